"""The first loop: no configuration, no key, and a run that reads a file; over every door."""

import msgspec
import pytest
import trio

from palyra.client import TapeEvent
from palyra.core.tape import events as ev
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.tapes import calls, check_tape, kinds, read_whole
from tests.e2e.wire import Wire, connected

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("readme")]

README = "# A file of the workspace\n"
READ = '/call read_file {"path": "README.md"}'
READ_KINDS = [
    "run.accepted",
    "message.received",
    "run.started",
    "context.assembled",
    "turn.started",
    "turn.completed",
    "tool.proposed",
    "tool.decided",
    "tool.started",
    "tool.completed",
    "tool.attested",
    "context.assembled",
    "turn.started",
    "turn.completed",
    "message.completed",
    "run.done",
]


@pytest.fixture
def readme(daemon: DaemonProcess) -> None:
    """The file that the runs read."""
    (daemon.workspace / "README.md").write_text(README, encoding="utf-8")


async def watch(wire: Wire, run_id: str) -> list[ev.Event]:
    """The events of that run up to its end, decoded; every seq once."""
    events: list[ev.Event] = []
    while not events or events[-1].KIND not in ev.TERMINAL_KINDS:
        told = await wire.named("tape.event")
        assert (run_id, len(events)) == (told["run_id"], told["seq"])
        events.append(ev.decode_event(told["kind"], msgspec.json.encode(told["data"])))
    return events


async def test_raw_socket(daemon: DaemonProcess) -> None:
    """Over a plain socket: accepted, turn, proposal, decision, result, answer, done."""
    async with connected(daemon.port, daemon.token) as wire:
        started = await wire.call("run.start", text=READ, subscribe=True)
        events = await watch(wire, started["run_id"])
    assert READ_KINDS == [event.KIND for event in events]
    assert ("started", 1) == (started["disposition"], started["seq"])
    (completed,) = [event for event in events if isinstance(event, ev.ToolCompleted)]
    assert ("succeeded", README) == (completed.status, completed.output)
    (answer,) = [event for event in events if isinstance(event, ev.MessageCompleted)]
    assert "# A file of the workspace" in answer.text


async def test_client_library(daemon: DaemonProcess) -> None:
    """The same run through the client library, and its tape is what was seen live."""
    async with daemon.connect() as client:
        started = await client.start_run(READ)
        async with client.events(started.run_id) as items:
            live = [item async for item in items if isinstance(item, TapeEvent)]
        tape = await read_whole(client, started.run_id)
        view = await client.get_run(started.run_id)
    assert READ_KINDS == kinds(live)
    assert live == tape
    check_tape(tape)
    assert ("done", "done", 1, 2) == (view.state, view.phase, view.tool_calls, view.turns)
    assert len(tape) - 1 == view.head_seq


async def test_terminal(daemon: DaemonProcess) -> None:
    """`palyra run` shows acceptance, turn, proposal, decision, result and end; it prints the answer."""
    code, out, err = await palyra("run", "--verbose", READ, home=daemon.home)
    assert 0 == code, err
    wanted = ["started", "turn 1: asking scripted", "read_file", "allowed", "succeeded", "done"]
    positions = [err.find(word) for word in wanted]
    assert -1 not in positions, err
    assert sorted(positions) == positions, err
    assert "# A file of the workspace" in out


async def test_terminal_json(daemon: DaemonProcess) -> None:
    """`palyra run --json` prints the tape, one event a line."""
    code, out, err = await palyra("run", "--json", READ, home=daemon.home)
    assert 0 == code, err
    events = [msgspec.json.decode(line) for line in out.splitlines()]
    assert READ_KINDS == [event["kind"] for event in events]
    assert list(range(len(events))) == [event["seq"] for event in events]


async def test_endings_at_the_terminal(daemon: DaemonProcess) -> None:
    """The exit code of `palyra run` distinguishes failure, denial and success."""
    refused = '/call write_file {"path": "no.txt", "content": "no"}'
    codes: dict[str, int] = {}

    async def end(*arguments: str) -> None:
        codes[arguments[-1]], _, _ = await palyra("run", *arguments, home=daemon.home)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end, "hello")
        nursery.start_soon(end, "/fail malformed")
        nursery.start_soon(end, "--deny", refused)
    assert {"hello": 0, "/fail malformed": 1, refused: 4} == codes
    assert not (daemon.workspace / "no.txt").exists()


async def test_every_proposal_is_attested_once(daemon: DaemonProcess) -> None:
    """A call that runs, fails, is denied or malformed ends in one attestation."""
    lines = [
        READ,
        '/call read_file {"path": "missing.txt"}',
        '/call read_file {"path": "../outside.txt"}',
        '/call read_file {"wrong": 1}',
        '/call no_such_tool {"x": 1}',
        '/call echo {"text": "hi"}',
    ]
    async with daemon.connect() as client:
        started = await client.start_run("\n".join(lines))
        await client.wait_run(started.run_id)
        tape = await read_whole(client, started.run_id)
    check_tape(tape)
    found = calls(tape)
    assert len(lines) == len(found)
    statuses = [
        one.event.attestation["status"] for one in tape if isinstance(one.event, ev.ToolAttested)
    ]
    assert sorted(["succeeded", "failed", "denied", "rejected", "rejected", "succeeded"]) == sorted(
        statuses
    )
    attestations = [one.event for one in tape if isinstance(one.event, ev.ToolAttested)]
    previous = ["", *(one.digest for one in attestations[:-1])]
    assert previous == [one.attestation["prev"] for one in attestations]


async def test_model_failures(daemon: DaemonProcess) -> None:
    """A passing failure is tried again; a lasting one ends the run and says what to do."""
    async with daemon.connect() as client:
        again = await client.start_run("/fail transient 1\n/say after all")
        broken = await client.start_run("/fail malformed")
        views = [await client.wait_run(one.run_id) for one in (again, broken)]
        tapes = [await read_whole(client, one.run_id) for one in (again, broken)]
    assert ["done", "failed"] == [view.state for view in views]
    for tape in tapes:
        check_tape(tape)
    assert 1 == kinds(tapes[0]).count("turn.failed")
    last = tapes[1][-1].event
    assert isinstance(last, ev.RunFailed)
    assert last.action
