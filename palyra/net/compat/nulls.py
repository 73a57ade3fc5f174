"""Members that say nothing: an SDK that dumps its own types sends `null` for whatever they have.

A name that is not known is refused, for it would change what is asked for; with the value `null`
it asks for nothing.  Only members of the APIs' own objects are left out: in arguments and schemas
`null` is somebody's data.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from palyra.core.explain import MAX_FIELD_CHARS, show
from palyra.net.compat.errors import Unsupported
from palyra.net.params import Params


def refuse_unknown(kind: type[Params], given: Mapping[str, Any]) -> None:
    """Raises Unsupported for a parameter that there is not; one that is `null` asks for nothing."""
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name, value in given.items():
        if value is not None and name not in known:
            raise Unsupported(f"unknown field {show(name)}", field=name[:MAX_FIELD_CHARS])


def without_unknown_nulls(kind: type, value: object) -> object:
    """The plain JSON without those members of `kind` and what lies in it."""
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
    """Whether the value is meant for that one of several types."""
    if isinstance(kind, inspect.Metadata):
        return _fits(kind.type, value)
    if isinstance(kind, inspect.StructType):
        if not isinstance(value, dict):
            return False
        return kind.tag_field is None or value.get(kind.tag_field) == kind.tag
    is_many = isinstance(kind, inspect.ListType | inspect.VarTupleType)
    return is_many and isinstance(value, list)
