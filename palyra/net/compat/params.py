"""Parameters that several of the APIs share, and the one way to say no to a value.

A parameter is honoured, or ignored because it changes nothing about the answer's meaning, or
refused by name.  None is silently taken for something else.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from palyra.core.explain import WORDS
from palyra.core.json_schema import UnusableSchema, check_schema
from palyra.core.prompt import Sampling
from palyra.errors import InvalidParams
from palyra.net.compat.errors import Unsupported
from palyra.net.params import Params

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
ToolName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        extra={WORDS: "1 to 64 letters, digits and _ . -"},
    ),
]

Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
MAX_STOPS = 4
MAX_SCHEMA_BYTES = 16_384


class Request(Params, frozen=True, kw_only=True):
    """What every request to a model says."""

    model: Name
    stream: bool | None = None


def refuse_unless_neutral(params: msgspec.Struct, neutral: Mapping[str, Iterable[Any]]) -> None:
    """Raises Unsupported for a parameter that is given and has none of its neutral values."""
    for name, values in neutral.items():
        given = getattr(params, name)
        if given is not None and given not in values:
            shown = " or ".join(msgspec.json.encode(value).decode() for value in values)
            rather = f"leave it out, or say {shown}" if shown else "leave it out"
            raise Unsupported(f"{name}: no run can be asked for that; {rather}", field=name)


def read_stop(stop: str | tuple[str, ...] | None, field: str = "stop") -> tuple[str, ...]:
    """The texts an answer stops at.  Raises InvalidParams."""
    stops = (stop,) if isinstance(stop, str) else stop or ()
    if len(stops) > MAX_STOPS or not all(stops):
        raise InvalidParams(f"{field}: at most {MAX_STOPS} texts, none of them empty", field=field)
    return stops


def sampling_of(
    *,
    max_output_tokens: int | None,
    temperature: float | None,
    top_p: float | None,
    stop: tuple[str, ...] = (),
) -> Sampling:
    """How the answer is to be written."""
    return Sampling(
        max_output_tokens=max_output_tokens, temperature=temperature, top_p=top_p, stop=stop
    )


def read_schema(schema: dict[str, Any] | None, field: str) -> dict[str, Any]:
    """The schema that the answer is to fit.  Raises Unsupported for one that cannot be checked."""
    if schema is None:
        raise InvalidParams(f"{field}: missing field schema", field=field)
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise Unsupported(f"{field}: more than {MAX_SCHEMA_BYTES} bytes", field=field)
    try:
        check_schema(schema)
    except UnusableSchema as error:
        raise Unsupported(f"{field}: {error.message}", field=field) from None
    return schema
