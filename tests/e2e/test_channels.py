"""Conversations of a channel: what one sender said or the owner keeps, no other sender reads."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from palyra.client import Client
from palyra.core.journal.records import ChannelAudience, ChannelRecord
from palyra.core.tape.events import RunAccepted
from palyra.core.text.references import KINDS
from palyra.errors import InvalidParams
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import make_token
from tests.e2e.tapes import read_whole

WITHIN_S = 120.0  # a bound against hanging, not a promise

pytestmark = pytest.mark.real

PRIVATE, ANNAS = "quagga-44", "okapi-77"  # in what the owner keeps, and in what anna told
QUESTION = "the number of the bike lock"


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that applies what it learns by itself."""
    with running(tmp_path_factory.mktemp("channels"), PALYRA_LEARNING__MODE="auto") as process:
        yield process


@dataclass(frozen=True)
class Desk:
    """A person with memories and private sessions, whose channel answers other people."""

    owner: Client
    operator: Client
    ids: Mapping[str, str]

    async def open(self, channel: str, audience: ChannelAudience | None = None) -> None:
        """Set a channel of the owner; pairing is not what these tests are about."""
        await self.operator.set_channel(channel, principal="ann", pairing="open", audience=audience)

    async def told(self, channel: str, sender: str, text: str) -> tuple[str, str]:
        """Send a message of a sender in a conversation of its own; the run and its whole tape."""
        started = await self.owner.start_run(
            text, channel=channel, conversation_id=sender, sender=sender, approval_mode="deny"
        )
        await self.owner.wait_run(started.run_id)
        events = await read_whole(self.owner, started.run_id)
        return started.run_id, msgspec.json.encode([event.event for event in events]).decode()


DOCUMENT = f"""{{}}
<!-- palyra:begin facts -->
- the number of the bike lock is {PRIVATE} <!-- mem_1 -->
<!-- palyra:end facts -->
"""
FILES = {"PALYRA.md": "Be brief.", "MEMORY.md": "", "copy.md": ""}


async def desk_of(owner: Client, operator: Client, workspace: Path) -> Desk:
    """Fill the places where the principal's words are kept."""
    for name, text in FILES.items():
        (workspace / name).write_text(DOCUMENT.format(text))
    item = await owner.add_memory(f"My bike lock has the number {PRIVATE}", kind="fact")
    diary = await owner.start_run(f"The number of the bike lock is {PRIVATE}.", session_key="diary")
    await owner.wait_run(diary.run_id)
    ids = {"item": item.memory_id, "run": diary.run_id, "session": diary.session_id}
    return Desk(owner, operator, ids)


def references(ids: Mapping[str, str]) -> Iterator[str]:
    """Every kind of reference, with each target that a sender may know."""
    for kind in KINDS:
        for target in (*ids.values(), *FILES, "diary", QUESTION):
            yield f'@{kind}:"{target}"'


def arguments(schema: Mapping[str, Any], value: str) -> Any:
    """Fill a schema of a tool with one text."""
    match schema:
        case {"enum": [first, *_]}:
            return first
        case {"type": "object"}:
            wanted = schema.get("properties", {})
            return {name: arguments(wanted[name], value) for name in wanted}
        case {"type": "array"}:
            return [arguments(schema["items"], value)]
        case {"type": "integer" | "number"}:
            return schema.get("minimum", 1)
        case {"type": "boolean"}:
            return False
        case _:
            return value


async def probes(desk: Desk) -> list[str]:
    """Every tool that acts for a principal and every reference, by what the daemon offers."""
    tools = [
        tool for tool in (await desk.owner.list_tools()).tools if tool.enforcement == "principal"
    ]
    assert len(tools) >= 4
    calls = []
    for tool in tools:
        required = set(tool.parameters.get("required", ()))
        for value in (QUESTION, *desk.ids.values()):
            given = arguments(tool.parameters, value)
            least = {name: given[name] for name in given if name in required}
            calls += [
                f"/call {tool.name} {msgspec.json.encode(each).decode()}" for each in (least, given)
            ]
    calls += [f'/call read_file {{"path": "{name}"}}' for name in FILES]
    calls += ['/call search_text {"query": "bike lock", "context": 2}']
    return [QUESTION, *calls, *references(desk.ids)]


async def leaks(desk: Desk, channel: str, mark: str) -> list[str]:
    """The probes by which mallory reads a mark."""
    return [
        probe
        for probe in await probes(desk)
        if mark in (await desk.told(channel, "mallory", probe))[1]
    ]


async def test_a_conversation_of_a_channel_is_a_wall(daemon: DaemonProcess) -> None:
    """No tool and no reference shows a sender the owner's words or another sender's."""
    async with daemon.connect() as operator:
        token = await make_token(operator, "client", "ann")
        async with daemon.connect(token) as owner:
            desk = await desk_of(owner, operator, daemon.workspace)
            await desk.open("closed")
            said = f'/call memory_retain {{"text": "Anna\'s bike lock is {ANNAS}", "kind": "fact"}}'
            run_id, tape = await desk.told("closed", "anna", said)
            assert "added: mem_" in tape
            while ANNAS not in (await desk.told("closed", "anna", QUESTION))[1]:
                pass  # the item is being indexed
            desk.ids["anna"] = run_id  # type: ignore[index]  # the test's own dictionary
            assert [] == await leaks(desk, "closed", ANNAS)
            assert [] == await leaks(desk, "closed", PRIVATE)
            assert "Be brief." in (await desk.told("closed", "mallory", QUESTION))[1]
            assert PRIVATE in (await owner.get_memory(desk.ids["item"])).text


async def test_an_opened_channel_reaches_its_owner(daemon: DaemonProcess) -> None:
    """The operator opens a channel: then recall, references and searches find the owner's words."""
    async with daemon.connect() as operator:
        token = await make_token(operator, "client", "ann")
        async with daemon.connect(token) as owner:
            desk = await desk_of(owner, operator, daemon.workspace)
            await desk.open("opened", "principal")
            seen = " ".join(await leaks(desk, "opened", PRIVATE))
            ways = (
                "/call read_file",
                "/call search_text",
                "@file:",
                "@memory:",
                "@run:",
                "@session:",
            )
            for way in (QUESTION, "/call memory_search", *ways):
                assert way in seen


async def wait_applied(owner: Client, word: str) -> None:
    """Wait for a learned preference with that word: the daemon may have begun to read the run by itself."""
    applied = ""
    with trio.fail_after(WITHIN_S):
        while word not in applied:
            found = await owner.list_candidates(states=("applied",), kinds=("preference",))
            applied = " ".join(each.text for each in found.candidates)


async def test_a_sender_teaches_the_owner_nothing(learner: DaemonProcess) -> None:
    """A lasting preference of a sender waits for a person; the owner's own applies itself."""
    said = "From now on I always prefer answers in haiku form."
    async with learner.connect() as operator:
        token = await make_token(operator, "client", "ann")
        async with learner.connect(token) as owner:
            desk = await desk_of(owner, operator, learner.workspace)
            await desk.open("closed")
            run_id, _ = await desk.told("closed", "anna", said)
            done = await owner.reflect(run_id)
            assert () == done.applied
            for each in done.candidate_ids:
                changed = await owner.accept_candidate(each)
                assert changed.memory_id is not None
                item = await owner.get_memory(changed.memory_id)
                assert ("session", "mixed") == (item.scope, item.trust)
            own = await owner.start_run("From now on I always prefer answers in English.")
            await owner.wait_run(own.run_id)
            await owner.reflect(own.run_id)
            await wait_applied(owner, "English")


async def test_the_words_of_a_sender_are_not_trusted(daemon: DaemonProcess) -> None:
    """What a run of a channel stores has a label from outside, and its owner quotes it under one."""
    async with daemon.connect() as operator:
        token = await make_token(operator, "client", "ann")
        async with daemon.connect(token) as owner:
            desk = await desk_of(owner, operator, daemon.workspace)
            await desk.open("closed")
            run_id, _ = await desk.told(
                "closed", "zoe", '/call memory_retain {"text": "Zoe likes figs"}'
            )
            (hit,) = (await owner.list_memories()).items[:1]
            assert ("Zoe likes figs", "mixed", "session") == (hit.text, hit.trust, hit.scope)
            quoting = await owner.start_run(f"What did @run:{run_id} say?")
            await owner.wait_run(quoting.run_id)
            tape = await read_whole(owner, quoting.run_id)
            assert (
                '"trust":"mixed"' in msgspec.json.encode([event.event for event in tape]).decode()
            )


async def test_the_earlier_name_of_the_setting_is_refused(daemon: DaemonProcess) -> None:
    """With the new one, by the method and by the command; a stored channel keeps its setting."""
    async with daemon.connect() as operator:
        with pytest.raises(
            InvalidParams, match='unknown field "reach": it is called "audience" now'
        ):
            await operator.call("channel.set", {"channel": "named", "reach": "principal"})
        said = await palyra("channels", "set", "named", "--reach", "principal", home=daemon.home)
        assert "--reach is called --audience now" in said.err
        made = await operator.set_channel("named", audience="principal")
        assert "principal" == made.audience
        assert ["principal"] == [
            each.audience for each in await operator.list_channels() if each.channel == "named"
        ]
    record = ChannelRecord(
        principal="ann", channel="c", agent="a", pairing="open", audience="principal",
        created_ms=1, updated_ms=1,
    )  # fmt: skip
    stored = msgspec.json.encode(record)
    assert b'"reach":"principal"' in stored
    assert record == msgspec.json.decode(stored, type=ChannelRecord)


def test_an_older_tape_is_confined() -> None:
    """A run of a channel whose tape names no reach is confined; one without a channel is not."""
    facts: dict[str, Any] = {"principal": "ann", "session_id": "ses_1", "agent": "a", "model": "m"}
    assert RunAccepted(**facts, channel="chat").is_confined
    assert not RunAccepted(**facts).is_confined
    assert not RunAccepted(**facts, channel="chat", reach="principal").is_confined
