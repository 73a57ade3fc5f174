"""JSON Schemas of the protocol, generated from the structs that decode and encode it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from palyra.core.tape.events import KINDS
from palyra.net.api.method import AnyMethod
from palyra.net.protocol.notifications import NOTIFICATIONS
from palyra.net.protocol.open_values import render_enums

REF_TEMPLATE = "#/schemas/{name}"

Schema = dict[str, Any]

# The error of a reply; clients compare `data.code`.
RPC_ERROR: Schema = {
    "type": "object",
    "required": ["code", "message", "data"],
    "properties": {
        "code": {"type": "integer"},
        "message": {"type": "string"},
        "data": {
            "type": "object",
            "required": ["code", "message", "retryable"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "retryable": {"type": "boolean"},
                "retry_after_ms": {"type": "integer"},
                "field": {"type": "string"},
            },
        },
    },
}


class MethodSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One method: schemas of its params and result, and the scope it requires."""

    params: Schema
    result: Schema
    scope: str | None
    mutating: bool


class ProtocolSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Methods, notifications and event kinds by name; `schemas` is what they refer to."""

    methods: dict[str, MethodSchema]
    notifications: dict[str, Schema]
    events: dict[str, Schema]
    schemas: dict[str, Schema]


def describe_protocol(methods: Mapping[str, AnyMethod]) -> ProtocolSchema:
    """Describe the whole protocol in one pass, so that two structs of one name get distinct names."""
    pairs = [kind for method in methods.values() for kind in (method.params, method.result)]
    kinds = [*pairs, *NOTIFICATIONS.values(), *KINDS.values()]
    refs, schemas = msgspec.json.schema_components(kinds, ref_template=REF_TEMPLATE)
    rest = refs[len(pairs) :]
    return ProtocolSchema(
        methods={
            method.name: MethodSchema(
                params=refs[2 * index],
                result=refs[2 * index + 1],
                scope=method.scope,
                mutating=method.is_mutating,
            )
            for index, method in enumerate(methods.values())
        },
        notifications=dict(zip(NOTIFICATIONS, rest, strict=False)),
        events=dict(zip(KINDS, rest[len(NOTIFICATIONS) :], strict=True)),
        schemas=render_enums(schemas),
    )
