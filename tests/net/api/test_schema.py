"""The published documents agree with the tables they are made from, and with themselves."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from palyra.core.tape.events import KINDS
from palyra.net.api.asyncapi import render_asyncapi
from palyra.net.api.methods.table import METHODS
from palyra.net.api.schema import describe_protocol
from palyra.net.protocol.notifications import NOTIFICATIONS
from tests.rows import every_row

PROTOCOL = describe_protocol(METHODS)
RENDERED = render_asyncapi(PROTOCOL, version="1.2.3", host="127.0.0.1:7467")
DOCUMENT: dict[str, Any] = json.loads(msgspec.json.encode(RENDERED))
KEY = re.compile(r"[\w.-]+")  # AsyncAPI 3.0: keys of the components object


def walk(value: object) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from walk(item)


def resolve(reference: str, document: dict[str, Any]) -> object:
    """The target of a local reference.  Raises KeyError."""
    assert reference.startswith("#/")
    place: Any = document
    for part in reference[2:].split("/"):
        place = place[part]
    return place


def message(reference: str) -> dict[str, Any]:
    """A message, through its channel."""
    link: Any = resolve(reference, DOCUMENT)
    target: Any = resolve(link["$ref"], DOCUMENT)
    return dict(target)


def test_every_reference_resolves() -> None:
    """No `$ref` of the document points nowhere or out of it."""
    references = [item["$ref"] for item in walk(DOCUMENT) if isinstance(item.get("$ref"), str)]
    assert len(references) > 100
    for reference in references:
        resolve(reference, DOCUMENT)


def test_every_reference_of_the_schemas_resolves() -> None:
    """The same for what `system.describe` answers."""
    described = json.loads(msgspec.json.encode(PROTOCOL))
    for item in walk(described):
        if isinstance(item.get("$ref"), str):
            resolve(item["$ref"], described)


def test_document_has_what_asyncapi_3_requires() -> None:
    """Version, title, one ws server with token security, one channel at the real address."""
    assert "3.0.0" == DOCUMENT["asyncapi"]
    assert {"Palyra", "1.2.3"} <= set(DOCUMENT["info"].values())
    server = DOCUMENT["servers"]["daemon"]
    assert ("127.0.0.1:7467", "ws") == (server["host"], server["protocol"])
    assert ["/v1/ws"] == [channel["address"] for channel in DOCUMENT["channels"].values()]


def test_component_keys_are_allowed() -> None:
    """Names of messages and schemas use the characters AsyncAPI allows."""
    components = DOCUMENT["components"]
    names = [*components["messages"], *components["schemas"], *DOCUMENT["operations"]]
    assert [] == [name for name in names if not KEY.fullmatch(name)]


def test_operations_are_the_methods_and_notifications() -> None:
    """Each method is received, each notification sent; there is no other operation."""
    actions = {name: operation["action"] for name, operation in DOCUMENT["operations"].items()}
    expected = dict.fromkeys(METHODS, "receive") | dict.fromkeys(NOTIFICATIONS, "send")
    assert expected == actions


@every_row("name", sorted(METHODS))
def test_method_has_request_reply_and_scope(name: str) -> None:
    """A method's operation names its own request, its own result, the error reply, its scope."""
    operation = DOCUMENT["operations"][name]
    request = message(operation["messages"][0]["$ref"])["payload"]["properties"]
    result, error = (message(item["$ref"]) for item in operation["reply"]["messages"])
    assert {"const": name} == request["method"]
    assert {"jsonrpc", "id", "method", "params"} == set(request)
    assert {"jsonrpc", "id", "result"} == set(result["payload"]["properties"])
    assert {"jsonrpc", "id", "error"} == set(error["payload"]["properties"])
    assert METHODS[name].scope == operation["x-palyra-scope"]


def test_params_show_their_fields_and_refuse_others() -> None:
    """The schema of `run.start` has its required field and no room for unknown ones."""
    payload = DOCUMENT["components"]["messages"]["run.start.request"]["payload"]
    params: Any = resolve(payload["properties"]["params"]["$ref"], DOCUMENT)
    assert ["text"] == params["required"]
    assert params["additionalProperties"] is False
    assert {"session_key", "queue_mode", "idempotency_key"} <= set(params["properties"])


def test_every_event_kind_is_described() -> None:
    """All kinds of the tape have a schema, with the wire's field names."""
    assert set(KINDS) == set(DOCUMENT["x-palyra-events"])
    failed: Any = resolve(DOCUMENT["x-palyra-events"]["run.failed"]["$ref"], DOCUMENT)
    assert {"class", "reason", "action", "abandoned"} == set(failed["properties"])


def test_different_structs_of_one_name_have_two_schemas() -> None:
    """A result and an event with the same name keep a schema each."""
    for name, kind in KINDS.items():
        schema: Any = resolve(PROTOCOL.events[name]["$ref"], {"schemas": PROTOCOL.schemas})
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert fields == set(schema.get("properties", {})), name
