"""JSON Schemas of the protocol, made from the structs that decode and encode it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from palyra.net.methods.method import AnyMethod
from palyra.net.wire import NOTIFICATIONS

REF_TEMPLATE = "#/schemas/{name}"

Schemas = dict[str, Any]


class MethodSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One method: schemas of its params and result, and who may call it."""

    params: dict[str, Any]
    result: dict[str, Any]
    scope: str | None
    mutating: bool


def describe_methods(methods: Mapping[str, AnyMethod]) -> tuple[dict[str, MethodSchema], Schemas]:
    """Each method by name, and the schemas they refer to."""
    table = sorted(methods.values(), key=lambda method: method.name)
    params, schemas = _components([method.params for method in table])
    results, more = _components([method.result for method in table])
    described = {
        method.name: MethodSchema(
            params=params[index],
            result=results[index],
            scope=method.scope,
            mutating=method.is_mutating,
        )
        for index, method in enumerate(table)
    }
    return described, schemas | more


def describe_notifications() -> tuple[dict[str, Any], Schemas]:
    """The params of each notification by method, and the schemas they refer to."""
    refs, schemas = _components(list(NOTIFICATIONS.values()))
    return dict(zip(NOTIFICATIONS, refs, strict=True)), schemas


def _components(types: list[Any]) -> tuple[tuple[dict[str, Any], ...], Schemas]:
    return msgspec.json.schema_components(types, ref_template=REF_TEMPLATE)
