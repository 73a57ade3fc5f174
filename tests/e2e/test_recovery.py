"""SIGKILL and a restart on the same home: accepted runs continue, and nothing happens twice."""

import subprocess
from collections.abc import Generator
from datetime import datetime

import pytest
import trio

from palyra.client import Client, EventsDiscarded, Item, TapeEvent
from palyra.core.tape import events as ev
from palyra.errors import IdempotencyConflict
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, write_call
from tests.e2e.tapes import calls, check_tape, kinds, read_whole
from tests.e2e.wire import WITHIN_S, connected, reach_all

pytestmark = pytest.mark.real

RECOVERED_WITHIN_S = 1.0  # of the daemon's start, for 100 open runs
OPEN_RUNS = 100
KILL_IN_TURN = 4  # it waits for the kill
# A path so deep that making its folders, each synced, takes the tool long enough to be killed in.
DEEP = "/".join(["d"] * 1_500)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon to be killed; every test leaves it running and without open runs."""
    with running(tmp_path_factory.mktemp("mortal")) as process:
        yield process
    subprocess.run(
        ["rm", "-rf", process.workspace], check=True
    )  # too deep for a recursive function


async def finish(client: Client, run_id: str) -> list[TapeEvent]:
    """The tape of a run, once it has ended, checked."""
    with trio.fail_after(WITHIN_S):
        await client.wait_run(run_id)
    tape = await read_whole(client, run_id)
    check_tape(tape)
    return tape


async def test_everything_open_continues(mortal: DaemonProcess) -> None:
    """A turn, a safe tool, an approval and a queue at the kill all come to their ends."""
    texts = {
        "turn": '/call echo {"text": "once"}\n/then\n/delay 3600000 1\n/say answered',
        "prompt": write_call("asked.txt"),
        "first": "/delay 3600000 1\n/say first",
        "second": "/say second",
        "tool": '/call sleep {"seconds": 2}',
    }
    keys = {"first": "queue", "second": "queue"}
    async with mortal.connect() as client:
        ids: dict[str, str] = {}
        for name, text in texts.items():
            if name == "tool":  # the last, so that it is under way at the kill
                await client.wait_run(ids["prompt"], until="attention")
                await mortal.reach(ids["first"], "turn.started")
                answered = await mortal.reach(ids["turn"], "tool.completed")
                await mortal.reach(ids["turn"], "turn.started", after_seq=answered)
                (before,) = await client.list_approvals(run_id=ids["prompt"])
            ids[name] = (await client.start_run(text, session_key=keys.get(name))).run_id
        await mortal.reach(ids["tool"], "tool.started")
    await mortal.restart()
    async with mortal.connect() as client:
        (after,) = await client.list_approvals(run_id=ids["prompt"])
        assert before == after
        await client.wait_run(ids["prompt"], until="attention")
        outcome = await client.resolve_approval(after.approval_id, "allow", after.digest)
        tapes = {name: await finish(client, run_id) for name, run_id in ids.items()}
        report = await client.verify_tape()
    assert outcome.won
    assert {"run.done"} == {tape[-1].kind for tape in tapes.values()}
    for name in ("turn", "tool", "prompt", "first"):
        assert 1 == kinds(tapes[name]).count("run.recovered"), name
    assert "run.recovered" not in kinds(tapes["second"])
    assert tapes["first"][-1].at_ms <= tapes["second"][2].at_ms
    assert "written" == (mortal.workspace / "asked.txt").read_text(encoding="utf-8")
    assert 0 == report.breaks


async def test_unknown_outcome(mortal: DaemonProcess) -> None:
    """A write in progress at the kill is not repeated: the model gets `unknown`."""
    async with mortal.connect() as client, connected(mortal.port, mortal.token) as wire:
        asked = await ask_for(client, write_call(f"{DEEP}/file.txt"))
        await wire.call("tape.subscribe", run_id=asked.run_id, kinds=["tool.started"])
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        seq = (await wire.named("tape.event"))["seq"]
        while (await wire.named("tape.committed"))["committed"] < seq:
            pass
        await mortal.restart()
    async with mortal.connect() as client:
        tape = await finish(client, asked.run_id)
    (call,) = calls(tape).values()
    assert 1 == kinds(call).count("tool.started")
    completed = call[-2].event
    assert isinstance(completed, ev.ToolCompleted)
    assert "unknown" == completed.status
    answer = tape[-2].event
    assert isinstance(answer, ev.MessageCompleted)
    assert "unknown" in answer.text
    assert not (mortal.workspace / DEEP / "file.txt").exists()
    assert "its outcome is unknown" in mortal.said


def _take(seen: list[TapeEvent], item: Item) -> None:
    """Every event once and in order; what a crash undid is announced."""
    if isinstance(item, TapeEvent):
        assert len(seen) == item.seq
        seen.append(item)
    elif isinstance(item, EventsDiscarded):
        del seen[item.after_seq + 1 :]


async def test_client_follows_through_a_kill(mortal: DaemonProcess) -> None:
    """The client library delivers each event of a run once and in order, across a kill."""
    calls = [f'/call echo {{"text": "x{n}"}}' for n in range(20)]
    calls[KILL_IN_TURN - 1] = f"/delay 3600000 1\n{calls[KILL_IN_TURN - 1]}"
    text = "\n/then\n".join([*calls, "/say end"])
    seen: list[TapeEvent] = []
    async with mortal.follow() as client:
        started = await client.start_run(text)
        async with client.events(started.run_id) as items, trio.open_nursery() as nursery:
            while kinds(seen).count("turn.started") < KILL_IN_TURN:
                _take(seen, await anext(items))
            await mortal.reach(started.run_id, "turn.started", after_seq=seen[-1].seq - 1)
            nursery.start_soon(mortal.restart)
            async for item in items:
                _take(seen, item)
        tape = await finish(client, started.run_id)
    assert tape == seen
    assert "run.recovered" in kinds(tape)


async def test_receipts_survive(mortal: DaemonProcess) -> None:
    """The same key and body give the same receipt after a kill; another body is a conflict."""
    async with mortal.connect() as client:
        first = await client.start_run("hello", session_key="receipts", idempotency_key="once")
        asked = await ask_for(client, write_call("kept.txt"))
        word = await client.steer(asked.run_id, "a word", idempotency_key="word")
        answers = [
            await client.resolve_approval(
                asked.approval_id, "allow", asked.digest, idempotency_key="answer"
            )
        ]
        cancelled = [await client.cancel(first.run_id, idempotency_key="cancel")]
    await mortal.restart()
    async with mortal.connect() as client:
        assert first == await client.start_run(
            "hello", session_key="receipts", idempotency_key="once"
        )
        with pytest.raises(IdempotencyConflict):
            await client.start_run("something else", idempotency_key="once")
        assert word == await client.steer(asked.run_id, "a word", idempotency_key="word")
        answers.append(
            await client.resolve_approval(
                asked.approval_id, "allow", asked.digest, idempotency_key="answer"
            )
        )
        cancelled.append(await client.cancel(first.run_id, idempotency_key="cancel"))
        runs = (await client.list_runs(session_id=first.session_id)).runs
    assert answers[0] == answers[1]
    assert answers[0].won
    assert cancelled[0] == cancelled[1]
    assert [first.run_id] == [run.run_id for run in runs]


async def test_cancel_while_recovering(mortal: DaemonProcess) -> None:
    """A run can be cancelled as soon as the next daemon answers; it ends once and does nothing."""
    async with mortal.connect() as client:
        ids = [
            (await client.start_run(f'/delay 3600000\n/call echo {{"text": "{n}"}}')).run_id
            for n in range(20)
        ]
    await reach_all(mortal.port, mortal.token, ids, "turn.started")
    await mortal.restart()
    async with mortal.connect() as client:
        async with trio.open_nursery() as nursery:
            for run_id in ids:
                nursery.start_soon(client.cancel, run_id)
        tapes = [await finish(client, run_id) for run_id in ids]
    for tape in tapes:
        assert "run.cancelled" == tape[-1].kind
        assert "tool.proposed" not in kinds(tape)


async def test_given_up_after_three_resumptions(mortal: DaemonProcess) -> None:
    """A run that gets no further is resumed three times and then fails, saying so."""
    async with mortal.connect() as client:
        stuck = (await client.start_run("/delay 3600000\n/say late")).run_id
        asked = await ask_for(client, write_call("patient.txt"))
        seq = await mortal.reach(stuck, "turn.started")
    for _ in range(3):
        await mortal.restart()
        seq = await mortal.reach(stuck, "run.recovered", after_seq=seq)
    await mortal.restart()
    async with mortal.connect() as client:
        tape = await finish(client, stuck)
        waiting = await client.get_run(asked.run_id)
        await client.cancel(asked.run_id)
    last = tape[-1].event
    assert isinstance(last, ev.RunFailed)
    assert "recovery_exhausted" == last.failure_class
    assert 3 == kinds(tape).count("run.recovered")
    assert ("awaiting_approval", 0) == (waiting.phase, waiting.attempts)


@pytest.mark.slow
async def test_a_hundred_runs_within_a_second(mortal: DaemonProcess) -> None:
    """Every one of 100 open runs is resumed within a second of the process that resumes them.

    On a machine that has nothing else to do.
    """
    async with mortal.connect() as client:
        ids = [
            (await client.start_run("/delay 3600000\n/say late")).run_id for _ in range(OPEN_RUNS)
        ]
    await reach_all(mortal.port, mortal.token, ids, "turn.started")
    await mortal.restart()
    (*_, opened) = (line for line in mortal.said.splitlines() if "journal opened" in line)
    resumed = await reach_all(mortal.port, mortal.token, ids, "run.recovered")
    async with mortal.connect() as client:
        for run_id in ids:
            await client.cancel(run_id)
    taken_ms = max(event["at_ms"] for event in resumed.values()) - _stamp_ms(opened)
    assert taken_ms <= 1000 * RECOVERED_WITHIN_S


def _stamp_ms(line: str) -> int:
    """When a log line was written, Unix milliseconds."""
    stamp = line.split(" ", 1)[0]
    return int(1000 * datetime.fromisoformat(stamp).timestamp())
