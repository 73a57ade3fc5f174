"""artifact.read: the full output of a tool call whose tape holds an excerpt."""

from typing import Annotated

import msgspec

from palyra.core.text.validation_errors import WORDS
from palyra.core.tool.artifacts import MAX_PAGE_BYTES, NAME_CHARS
from palyra.net.api.method import Id, Method, MethodCall, Offset
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import ArtifactPiece

Name = Annotated[
    str,
    msgspec.Meta(
        pattern=f"^[0-9a-f]{{{NAME_CHARS},64}}$",
        extra={WORDS: f"{NAME_CHARS} to 64 hex digits in lower case"},
    ),
]
PageBytes = Annotated[int, msgspec.Meta(ge=4, le=MAX_PAGE_BYTES)]


class ArtifactRead(Params, frozen=True, kw_only=True):
    """A page of an artifact; its name is the digest on the tape, or a prefix of it."""

    session_id: Id
    artifact: Name
    offset: Offset = 0
    limit_bytes: PageBytes = MAX_PAGE_BYTES


async def read(call: MethodCall, params: ArtifactRead) -> ArtifactPiece:
    artifact, page = await call.backend.files.read_artifact(
        call.caller,
        params.session_id,
        params.artifact,
        offset=params.offset,
        limit_bytes=params.limit_bytes,
    )
    fields = msgspec.structs.asdict(artifact)
    del fields["session_id"]
    return ArtifactPiece(**fields, **msgspec.structs.asdict(page))


METHODS = (
    Method(
        "artifact.read", ArtifactRead, ArtifactPiece, "runs:read", read, is_bulk=True, is_exact=True
    ),
)
