"""Results as a client decodes them from a daemon that is newer than itself."""

from typing import Any

import msgspec
import pytest

from palyra.net.api.methods.table import METHODS
from palyra.net.api.schema import describe_protocol
from palyra.net.protocol.notifications import Hello, TapeReset
from palyra.net.protocol.results import Agent, Channel, Pairing, Skill, Status, Token, Welcome
from tests.rows import every_row

NEWER: dict[type[msgspec.Struct], dict[str, Any]] = {
    Hello: {
        "server": "s", "version": "9", "instance_id": "i", "protocol": "palyra.v1", "features": [],
        "limits": {
            "max_message_bytes": 1, "max_inflight": 1, "max_subscriptions": 1, "outbox_bytes": 1,
            "requests_per_s": 1,
        },
        "state": "resting",
    },
    TapeReset: {"subscription": "sub_1", "run_id": "run_1", "reason": "moved", "floor": 0},
    Welcome: {
        "principal": "p", "role": "robot", "scopes": [], "granted": [], "declined": [],
        "state": "resting",
    },
    Status: {
        "state": "resting", "version": "9", "instance_id": "i", "protocol": "palyra.v1",
        "now_ms": 1, "is_writable": True,
    },
    Token: {"token_id": "t", "principal": "p", "role": "robot", "name": "n", "created_ms": 1},
    Agent: {
        "name": "a", "version": 1, "memory_scope": "planet", "created_ms": 1, "updated_ms": 1,
    },
    Channel: {
        "principal": "p", "channel": "c", "agent": "a", "pairing": "vouched", "created_ms": 1,
        "updated_ms": 1,
    },
    Pairing: {
        "pairing_id": "p", "principal": "p", "channel": "c", "sender": "s", "state": "vouched",
        "requested_ms": 1, "expires_ms": 1, "attempts": 0,
    },
    Skill: {
        "id": "s", "version": "1", "publisher": "p", "public_key": "", "package_sha256": "",
        "description": "", "state": "asleep",
        "tools": [{"name": "t", "description": "", "tool_class": "magic", "risk": "none"}],
        "capabilities": [], "granted": [], "installed_ms": 1, "changed_ms": 1, "changed_by": "p",
    },
}  # fmt: skip


@every_row("kind", NEWER)
def test_values_and_members_of_a_newer_daemon_are_accepted(kind: type[msgspec.Struct]) -> None:
    """An unknown value of an open field is kept; a member that the client lacks is ignored."""
    sent = NEWER[kind]
    encoded = msgspec.json.encode({**sent, "invented": 1})
    found = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(encoded, type=kind)))
    assert sent == found


def test_another_type_is_refused() -> None:
    """Any string is accepted in an open field, and nothing but a string."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**NEWER[Token], "role": 1}, Token)


def test_the_schema_lists_the_values_of_this_version() -> None:
    """An open field is published as an enumeration, as a Literal is."""
    schemas = describe_protocol(METHODS).schemas
    assert {"enum": ["approver", "client", "observer", "operator", "person"]} == schemas["Token"][
        "properties"
    ]["role"]
