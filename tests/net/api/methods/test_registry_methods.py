"""agent.*, channel.* and pairing.* on the wire: what is passed on, what is shown, what is refused."""

from typing import Any

import pytest
import trio.testing
from msgspec import UNSET

from palyra.client.frames import parse_frames, to_exception
from palyra.core.agent import AgentChange
from palyra.core.channel import SetChannel
from palyra.errors import Forbidden, Unpaired
from palyra.net.protocol.jsonrpc import encode_error
from tests.net.api.fake_services import open_daemon

Clock = trio.testing.MockClock
OPERATOR = "tok-operator"


async def refusal(peer: Any, method: str, **params: Any) -> dict[str, Any]:
    """The error of a request."""
    reply = await peer.ask(method, **params)
    data: dict[str, Any] = reply["error"]["data"]
    return data


async def test_lists_leave_instructions_out(autojump_clock: Clock) -> None:
    """They may be long; `agent.get` has them."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        (listed,) = (await peer.call("agent.list"))["agents"]
        shown = await peer.call("agent.get", name="scout")
        assert (None, "Look round.") == (listed.get("instructions"), shown["instructions"])
        assert ["echo"] == listed["tools"]


@pytest.mark.parametrize(
    ("params", "change"),
    [
        ({}, AgentChange()),
        ({"instructions": "B"}, AgentChange(instructions="B")),
        ({"model": ""}, AgentChange(model=None)),
        ({"model": "m"}, AgentChange(model="m")),
        ({"tools": ["*"]}, AgentChange(tools=None)),
        ({"tools": []}, AgentChange(tools=())),
        ({"tools": ["echo"]}, AgentChange(tools=("echo",))),
        ({"labels": []}, AgentChange(labels=())),
        ({"memory_scope": "none"}, AgentChange(memory_scope="none")),
    ],
)
async def test_an_update_changes_only_named_fields(
    autojump_clock: Clock, params: dict[str, Any], change: AgentChange
) -> None:
    """Fields that are left out keep their values."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        await peer.call("agent.update", name="scout", **params)
        assert [("update", "root", "scout", change, None)] == daemon.agents.asked


async def test_a_new_agent_may_call_everything(autojump_clock: Clock) -> None:
    """Unless its list says otherwise."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        await peer.call("agent.create", name="scout", instructions="Look.")
        change = daemon.agents.asked[0][3]
        assert (None, None, (), "principal") == (
            change.tools, change.model, change.labels, change.memory_scope,
        )  # fmt: skip
        assert UNSET is not change.tools


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Scout"),
        ("name", ""),
        ("name", "a b"),
        ("name", "x" * 65),
        ("instructions", ""),
        ("instructions", "x" * 32_769),
        ("labels", ["two words"]),
        ("labels", ["x"] * 33),
        ("tools", ["x"] * 257),
        ("memory_scope", "all"),
    ],
)
async def test_agents_have_limits(autojump_clock: Clock, field: str, value: object) -> None:
    """A field out of its bounds is refused by name."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        good = {"name": "scout", "instructions": "Look."}
        refused = await refusal(peer, "agent.create", **{**good, field: value})
        assert "invalid_params" == refused["code"]
        assert refused["field"].startswith(field)


async def test_pairings_are_shown_without_their_code(autojump_clock: Clock) -> None:
    """Neither code nor hash is in any answer."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        shown = [
            await peer.call("pairing.list"),
            await peer.call("pairing.approve", pairing_id="pai_1", code="c"),
            await peer.call("pairing.revoke", pairing_id="pai_1"),
        ]
        assert "hash" not in repr(shown)
        assert "sam" in repr(shown[0])


async def test_channels_are_the_callers_own_by_default(autojump_clock: Clock) -> None:
    """Pairing is required and the agent the default one by default."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        await peer.call("channel.set", channel="chat")
        await peer.call(
            "channel.set",
            channel="chat",
            principal="ann",
            conversation_id="1",
            agent="scout",
            pairing="open",
        )
        plain = SetChannel(principal="root", channel="chat", agent="default", pairing="required")
        full = SetChannel(
            principal="ann", channel="chat", conversation_id="1", agent="scout", pairing="open"
        )
        assert [plain, full] == [asked[2] for asked in daemon.channels.asked]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channel", "Chat"),
        ("conversation_id", ""),
        ("conversation_id", "line\nend"),
        ("sender", "x" * 257),
    ],
)
async def test_channel_addresses_have_limits(autojump_clock: Clock, field: str, value: str) -> None:
    """Names from other parties are bounded and printable."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        good = {"text": "hi", "channel": "chat", "conversation_id": "1", "sender": "sam"}
        refused = await refusal(peer, "run.start", **{**good, field: value})
        assert ("invalid_params", field) == (refused["code"], refused["field"])


def test_details_reach_the_client() -> None:
    """Facts of a refusal that a program needs are in `details`."""
    sent = encode_error(1, Unpaired("no", details={"code": "ABCD"}), lambda body: (body, False))
    (frame,) = parse_frames(sent.decode())
    assert frame.error is not None
    heard = to_exception(frame.error)
    assert (Forbidden, {"code": "ABCD"}) == (type(heard), heard.details)
