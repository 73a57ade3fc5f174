"""AsyncAPI 3.0 document of the protocol, generated from the structs that decode and encode it.

Pure.  One channel, the WebSocket; one `receive` operation per method with its reply, one `send`
operation per notification.  The payload of an event depends on its kind: the schemas of all kinds
are listed under `x-palyra-events`, because a client must accept kinds it does not know.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from palyra.net.api.method import AnyMethod
from palyra.net.api.schema import RPC_ERROR, ProtocolSchema, Schema, describe_protocol

CHANNEL = "websocket"
ADDRESS = "/v1/ws"
ERROR_MESSAGE = "error"
ERROR_SCHEMA = "RpcError"

Json = dict[str, Any]

_REQUEST_ID = {"type": ["string", "integer"]}
_VERSION = {"const": "2.0"}


def asyncapi_document(methods: Mapping[str, AnyMethod], url: str, version: str) -> bytes:
    """Render the document of a daemon at that address as JSON."""
    host = url.removeprefix("http://")
    document = render_asyncapi(describe_protocol(methods), version=version, host=host)
    return msgspec.json.encode(document)


def render_asyncapi(protocol: ProtocolSchema, *, version: str, host: str) -> Json:
    """Render the document; `host` is `name:port` of this daemon."""
    messages = dict(_messages(protocol))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Palyra",
            "version": version,
            "description": "JSON-RPC 2.0, one object per WebSocket text message, "
            "subprotocol palyra.v1. The first request must be `connect`.",
        },
        "defaultContentType": "application/json",
        "servers": {
            "daemon": {
                "host": host,
                "protocol": "ws",
                "security": [{"$ref": "#/components/securitySchemes/token"}],
            }
        },
        "channels": {CHANNEL: _channel(messages)},
        "operations": dict(_operations(protocol)),
        "components": {
            "messages": messages,
            "schemas": {ERROR_SCHEMA: RPC_ERROR} | _move_refs(protocol.schemas),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "x-palyra-events": _move_refs(protocol.events),
    }


def _channel(messages: Json) -> Json:
    return {
        "address": ADDRESS,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"ws": {"method": "GET"}},
    }


def _messages(protocol: ProtocolSchema) -> Iterator[tuple[str, Json]]:
    for name, method in protocol.methods.items():
        request = _envelope(
            id=_REQUEST_ID, method={"const": name}, params=_move_refs(method.params)
        )
        yield _request_name(name), _message(name, request)
        yield _result_name(name), _message(f"Reply to {name}", _reply("result", method.result))
    for name, params in protocol.notifications.items():
        yield name, _message(name, _envelope(method={"const": name}, params=_move_refs(params)))
    error = {"$ref": f"#/components/schemas/{ERROR_SCHEMA}"}
    yield ERROR_MESSAGE, _message("Error reply", _reply("error", error))


def _operations(protocol: ProtocolSchema) -> Iterator[tuple[str, Json]]:
    channel = {"$ref": f"#/channels/{CHANNEL}"}
    for name, method in protocol.methods.items():
        replies = [_refer(_result_name(name)), _refer(ERROR_MESSAGE)]
        yield (
            name,
            {
                "action": "receive",
                "channel": channel,
                "messages": [_refer(_request_name(name))],
                "reply": {"channel": channel, "messages": replies},
                "x-palyra-scope": method.scope,
                "x-palyra-mutating": method.mutating,
            },
        )
    for name in protocol.notifications:
        yield name, {"action": "send", "channel": channel, "messages": [_refer(name)]}


def _request_name(method: str) -> str:
    return f"{method}.request"


def _result_name(method: str) -> str:
    return f"{method}.result"


def _refer(message: str) -> Json:
    return {"$ref": f"#/channels/{CHANNEL}/messages/{message}"}


def _message(title: str, payload: Schema) -> Json:
    return {"title": title, "payload": payload}


def _reply(member: str, schema: Schema) -> Schema:
    return _envelope(id=_REQUEST_ID, **{member: _move_refs(schema)})


def _envelope(**members: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["jsonrpc", *members],
        "properties": {"jsonrpc": _VERSION, **members},
    }


def _move_refs(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Rewrite references into `#/schemas/` to `#/components/schemas/`."""
    if isinstance(value, list | tuple):
        return [_move_refs(item) for item in value]
    if not isinstance(value, dict):
        return value
    moved = {name: _move_refs(item) for name, item in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/schemas/"):
        moved["$ref"] = f"#/components{reference[1:]}"
    return moved
