"""`POST /v1/embeddings`: texts as vectors, by the configured embedding model.

Source: https://platform.openai.com/docs/api-reference/embeddings.
"""

import base64
import sys
from array import array
from typing import Annotated, Any, Literal

import msgspec

from palyra.actors.kernel.threads import run_sync
from palyra.core.access import Caller
from palyra.core.model.embeddings import MAX_DIMENSIONS, Embeddings, Vector
from palyra.core.text.excerpt import truncate_safely
from palyra.net.http.compat.errors import ModelNotFound, Unsupported
from palyra.net.http.compat.params import Name
from palyra.net.http.compat.sources import CompatSources
from palyra.net.protocol.params import Params

SCOPE = "runs:write"  # it costs money like a run


class EmbeddingsRequest(Params, frozen=True, kw_only=True):
    """`POST /v1/embeddings`."""

    model: Name
    input: str | tuple[Any, ...]  # texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=MAX_DIMENSIONS)] | None = None
    user: Name | None = None


class EmbeddingUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """One vector: numbers, or little-endian 32-bit floats in base64."""

    embedding: list[float] | str
    index: int
    object: Literal["embedding"] = "embedding"


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    """One vector a text, in order."""

    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


async def embed(sources: CompatSources, caller: Caller, request: EmbeddingsRequest) -> bytes:
    """Return the vectors, an `EmbeddingList` as JSON.

    Raises ModelNotFound, Rejected, ModelFailure, Unavailable.
    """
    caller.require(SCOPE)
    model = sources.embeddings
    if model is None or request.model not in sources.embedding_names:
        names = ", ".join(sources.embedding_names)
        known = f"available: {names}" if names else "none is configured"
        raise ModelNotFound(
            f"no embedding model {truncate_safely(request.model, 128)!r}; {known}",
            field="model",
        )
    texts = [request.input] if isinstance(request.input, str) else list(request.input)
    if not all(isinstance(text, str) for text in texts):
        raise Unsupported("input: send texts; token ids are not supported", field="input")
    made = await model.embed(
        caller.principal, [str(text) for text in texts], dimensions=request.dimensions
    )
    return await run_sync(_encode, made, request)


def _encode(made: Embeddings, request: EmbeddingsRequest) -> bytes:
    """Encode the list.  Blocking; encodes vector by vector, so that other threads can run."""
    spell = _base64 if request.encoding_format == "base64" else list
    tokens = made.usage.input_tokens
    items: list[Any] = [
        msgspec.Raw(msgspec.json.encode(Embedding(embedding=spell(vector), index=index)))
        for index, vector in enumerate(made.vectors)
    ]
    usage = EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
    return msgspec.json.encode(EmbeddingList(data=items, model=request.model, usage=usage))


def _base64(vector: Vector) -> str:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")
