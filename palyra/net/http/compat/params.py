"""Parameters that the APIs share, and what becomes of the others.

A parameter is honoured, ignored, or refused by name.  Programs send what their next release has, and
their users cannot change it, so an unknown one is ignored and the answer names it
(`palyra.ignored`).  Refused are the parameters of each API's table `REFUSED`: without them the answer
would not be the one that was asked for.  Unknown ones are looked for in the APIs' own objects only: in
arguments and schemas every member is data.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import inspect

from palyra.core.model.messages import ProposedCall
from palyra.core.model.request_options import ClientTool
from palyra.core.text.json_schema import UnusableSchema, check_schema
from palyra.core.text.validation_errors import MAX_FIELD_CHARS, WORDS
from palyra.errors import InvalidParams
from palyra.net.http.compat.errors import Unsupported
from palyra.net.protocol.params import Params

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
ToolName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_.-]{1,128}$",
        extra={WORDS: "1 to 128 letters, digits and _ . -"},
    ),
]

Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
MAX_STOPS = 4
MAX_SCHEMA_BYTES = 16_384
CUSTOM_MEMBER = "input"
CUSTOM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {CUSTOM_MEMBER: {"type": "string"}},
    "required": [CUSTOM_MEMBER],
}
OWN = "palyra"  # the member with options of a run
MAX_PLACES = 32  # of ignored members, named in an answer


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


def name_hints(params: msgspec.Struct, hints: Mapping[str, Iterable[Any]]) -> tuple[str, ...]:
    """Return the parameters that are ignored although a value other than a neutral one was given."""
    return tuple(
        name
        for name, neutral in hints.items()
        if (given := getattr(params, name)) is not None and given not in neutral
    )


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


def custom_tool(
    name: str, description: str | None, grammar: dict[str, Any] | None = None
) -> ClientTool:
    """Return a tool that takes one text: OpenAI's type `custom`.

    Models of other providers call functions only, so it is a function with one argument; the grammar
    of its input is in the description.
    """
    said = description or ""
    if grammar is not None and grammar.get("type") == "grammar":
        said += f"\n\nThe input has this form:\n{grammar.get('definition', '')}"
    return ClientTool(name=name, description=said.strip(), parameters=CUSTOM_SCHEMA)


def custom_input(call: ProposedCall) -> str:
    """Return the text of a call of such a tool; all arguments as JSON if the model gave others."""
    arguments = call.arguments
    if isinstance(arguments, dict) and isinstance(text := arguments.get(CUSTOM_MEMBER), str):
        return text
    return call.arguments_text


def custom_call(call_id: str, name: str, text: str | None) -> ProposedCall:
    """Return an earlier call of such a tool."""
    return ProposedCall(call_id=call_id, tool=name, arguments={CUSTOM_MEMBER: text or ""})


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


def without_unknown(kind: type, value: object) -> tuple[object, tuple[str, ...]]:
    """Return the JSON without members that `kind` and the structs inside it lack, and their places.

    A place has no indices (`messages[].content[].citations`); a member that is `null` is not named.
    """
    places: dict[str, None] = {}
    pruned = _prune(_type_of(kind), value, "", places)
    return pruned, tuple(places)


@cache
def _type_of(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _prune(kind: inspect.Type, value: object, where: str, places: dict[str, None]) -> object:
    match kind:
        case inspect.Metadata(type=inner):
            return _prune(inner, value, where, places)
        case inspect.UnionType(types=types):
            for each in types:
                if _fits(each, value):
                    return _prune(each, value, where, places)
        case inspect.StructType() if isinstance(value, dict):
            return _prune_struct(kind, value, where, places)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            if isinstance(value, list):
                return [_prune(item, each, f"{where}[]", places) for each in value]
        case _:
            pass
    return value


def _prune_struct(
    kind: inspect.StructType, value: dict[str, Any], where: str, places: dict[str, None]
) -> dict[str, Any]:
    known = {field.encode_name: field.type for field in kind.fields}
    kept: dict[str, Any] = {}
    for name, each in value.items():
        place = f"{where}.{name[:MAX_FIELD_CHARS]}" if where else name[:MAX_FIELD_CHARS]
        if name == OWN and name in known:  # our own options, where a misspelt one is an error
            kept[name] = each
        elif name in known:
            kept[name] = _prune(known[name], each, place, places)
        elif each is not None and len(places) < MAX_PLACES:
            places[place] = None
    return kept


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
