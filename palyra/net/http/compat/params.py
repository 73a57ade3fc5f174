"""Parameters that the APIs share, and the refusal of unsupported ones.

A parameter is honoured, or ignored because it does not change the meaning of the answer, or refused
by name.

An unknown parameter is refused, because it might change the answer; with the value `null` it is
ignored, because SDKs send `null` for every unset member of their types.  Unknown nulls are removed
from the APIs' own objects only: in arguments and schemas `null` is data.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import inspect

from palyra.core.model.request_options import ClientTool
from palyra.core.text.json_schema import UnusableSchema, check_schema
from palyra.core.text.validation_errors import MAX_FIELD_CHARS, WORDS, show
from palyra.errors import InvalidParams
from palyra.net.http.compat.errors import Unsupported
from palyra.net.protocol.params import Params

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


class CompatRequest(Params, frozen=True, kw_only=True):
    """Members of every request for an answer of a model."""

    model: Name
    stream: bool | None = None

    @property
    def has_answer_schema(self) -> bool:
        """True if the request has a JSON Schema for the answer, which may take long to compile."""
        return False


def refuse_unless_neutral(params: msgspec.Struct, neutral: Mapping[str, Iterable[Any]]) -> None:
    """Raise Unsupported for a parameter whose value is not one of its neutral values."""
    for name, values in neutral.items():
        given = getattr(params, name)
        if given is not None and given not in values:
            shown = " or ".join(msgspec.json.encode(value).decode() for value in values)
            hint = f"leave it out, or send {shown}" if shown else "omit it"
            raise Unsupported(f"{name}: not supported by runs; {hint}", field=name)


def read_stop(stop: str | tuple[str, ...] | None, field: str = "stop") -> tuple[str, ...]:
    """Return the stop sequences.  Raises InvalidParams."""
    stops = (stop,) if isinstance(stop, str) else stop or ()
    if len(stops) > MAX_STOPS or not all(stops):
        raise InvalidParams(f"{field}: at most {MAX_STOPS} non-empty strings", field=field)
    return stops


def client_tool(
    name: str, description: str | None, parameters: dict[str, Any] | None
) -> ClientTool:
    """Return a tool that the client runs; without parameters it takes none."""
    schema = parameters or {"type": "object", "properties": {}}
    return ClientTool(name=name, description=description or "", parameters=schema)


def read_schema(schema: dict[str, Any] | None, field: str) -> dict[str, Any]:
    """Return the schema of the answer.  Raises Unsupported for one that cannot be checked."""
    if schema is None:
        raise InvalidParams(f"{field}: missing field schema", field=field)
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise Unsupported(f"{field}: more than {MAX_SCHEMA_BYTES} bytes", field=field)
    try:
        check_schema(schema)
    except UnusableSchema as error:
        raise Unsupported(f"{field}: {error.message}", field=field) from None
    return schema


def refuse_unknown(kind: type[Params], given: Mapping[str, Any]) -> None:
    """Raise Unsupported for an unknown parameter, unless it is `null`."""
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name, value in given.items():
        if value is not None and name not in known:
            raise Unsupported(f"unknown field {show(name)}", field=name[:MAX_FIELD_CHARS])


def without_unknown_nulls(kind: type, value: object) -> object:
    """Return the JSON without unknown null members of `kind` and of the structs inside it."""
    return _prune(_type_of(kind), value)


@cache
def _type_of(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _prune(kind: inspect.Type, value: object) -> object:
    match kind:
        case inspect.Metadata(type=inner):
            return _prune(inner, value)
        case inspect.UnionType(types=types):
            for each in types:
                if _fits(each, value):
                    return _prune(each, value)
        case inspect.StructType() if isinstance(value, dict):
            return _prune_struct(kind, value)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            if isinstance(value, list):
                return [_prune(item, each) for each in value]
        case _:
            pass
    return value


def _prune_struct(kind: inspect.StructType, value: dict[str, Any]) -> dict[str, Any]:
    known = {field.encode_name: field.type for field in kind.fields}
    return {
        name: _prune(known[name], each) if name in known else each
        for name, each in value.items()
        if each is not None or name in known
    }


def _fits(kind: inspect.Type, value: object) -> bool:
    """True if the value belongs to that one of several types."""
    if isinstance(kind, inspect.Metadata):
        return _fits(kind.type, value)
    if isinstance(kind, inspect.StructType):
        if not isinstance(value, dict):
            return False
        return kind.tag_field is None or value.get(kind.tag_field) == kind.tag
    is_many = isinstance(kind, inspect.ListType | inspect.VarTupleType)
    return is_many and isinstance(value, list)
