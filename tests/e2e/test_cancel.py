"""Cancel over a real connection, in every phase: soon, exactly one end, nothing afterwards."""

import statistics
import sys

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.core.tape.events import TERMINAL_KINDS
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import see, write_call
from tests.e2e.tapes import check_tape, kinds, read_whole
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real

TERMINAL_WITHIN_S = 0.25
ROUNDS = 3  # of each phase
MANY_ROUNDS = 20

# Phase -> text of the run, and the kind of event after which it is in that phase.
PHASES: dict[str, tuple[str, str]] = {
    "model": ("/delay 3600000\n/say late", "turn.started"),
    "stream": ("/delay 5\n/tokens 100000", "turn.started"),
    "backoff": ("/fail transient 2\n/say late", "turn.failed"),
    "tool": ('/call sleep {"seconds": 50}', "tool.started"),
    "batch": ("\n".join(['/call sleep {"seconds": 50}'] * 6), "tool.started"),
    "approval": (write_call("never.txt"), "approval.requested"),
}


class Stopwatch:
    """Seconds from each cancel request to the terminal event at the client."""

    def __init__(self) -> None:
        self.taken_s: dict[str, list[float]] = {}

    def note(self, phase: str, taken_s: float) -> None:
        self.taken_s.setdefault(phase, []).append(taken_s)

    def percentile(self, percent: int) -> float:
        """Over all phases."""
        everything = sorted(one for taken in self.taken_s.values() for one in taken)
        return statistics.quantiles(everything, n=100, method="inclusive")[percent - 1]

    @property
    def figures(self) -> dict[str, float]:
        """Percentiles over all phases and the slowest of each, milliseconds."""
        whole = {f"p{percent}": self.percentile(percent) for percent in (50, 90, 99)}
        slowest = {phase: max(taken) for phase, taken in self.taken_s.items()}
        return {name: round(1000 * taken_s, 1) for name, taken_s in {**whole, **slowest}.items()}


async def cancel_after(client: Client, run_id: str, kind: str) -> float:
    """Wait for that event, cancel, watch the end; seconds from the request to the end's event."""
    async with client.events(run_id) as items:
        await see(items, kind)
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.cancel, run_id, "enough")
            last = await see(items, *TERMINAL_KINDS)
            taken_s = trio.current_time() - began_s
        assert "run.cancelled" == last.kind
        assert [] == [item async for item in items if isinstance(item, TapeEvent)]
    return taken_s


async def cancel_in_phase(client: Client, phase: str) -> float:
    """One run, cancelled in that phase."""
    text, kind = PHASES[phase]
    started = await client.start_run(text)
    return await cancel_after(client, started.run_id, kind)


async def cancel_queued(client: Client, phase: str) -> float:
    """A run cancelled while another one of its session is active."""
    first = await client.start_run(PHASES["model"][0], session_key=phase)
    second = await client.start_run("never", session_key=phase)
    assert "queued" == second.disposition
    taken_s = await cancel_after(client, second.run_id, "message.received")
    await client.cancel(first.run_id)
    return taken_s


async def test_cancel_is_prompt_in_every_phase(daemon: DaemonProcess) -> None:
    """The end comes at once, not with the end of what is cancelled, which takes a minute."""
    await cancel_everywhere(daemon, ROUNDS)


@pytest.mark.slow
async def test_cancel_takes_a_quarter_of_a_second(daemon: DaemonProcess) -> None:
    """From the request to the end at the client: 250 ms at the 99th percentile, all phases.

    On a machine that has nothing else to do.
    """
    watch = await cancel_everywhere(daemon, MANY_ROUNDS)
    assert watch.percentile(99) <= TERMINAL_WITHIN_S, watch.figures


async def cancel_everywhere(daemon: DaemonProcess, rounds: int) -> Stopwatch:
    """So many cancels in each phase: how long they took, once their tapes are checked."""
    watch = Stopwatch()
    ways = [(phase, cancel_in_phase) for phase in PHASES] + [("queued", cancel_queued)]
    async with daemon.connect() as client:
        with trio.fail_after(WITHIN_S):
            for phase, cancel in ways * rounds:
                watch.note(phase, await cancel(client, phase))
        runs = (await client.list_runs(states=["cancelled"], limit=500)).runs
        tapes = [await read_whole(client, run.run_id) for run in runs]
    sys.stdout.write(f"{watch.figures}\n")  # `pytest -rP` shows it
    assert (len(ways) + 1) * rounds == len(tapes)  # the runs that made others wait, too
    for tape in tapes:
        check_tape(tape)
    assert not (daemon.workspace / "never.txt").exists()
    return watch


async def test_cancel_repeated_and_late(daemon: DaemonProcess) -> None:
    """Cancelling again, or after the end, is no error and changes nothing."""
    async with daemon.connect() as client:
        held = await client.start_run(PHASES["model"][0])
        ended = await client.start_run("hello")
        await client.wait_run(ended.run_id)
        answers = [await client.cancel(held.run_id) for _ in range(3)]
        late = await client.cancel(ended.run_id)
        tape = await read_whole(client, held.run_id)
    assert {("cancelled", len(tape) - 1)} == {(one.state, one.applied_seq) for one in answers}
    assert "done" == late.state
    assert 1 == kinds(tape).count("run.cancelled")


async def test_concurrent_cancels_make_one_end(daemon: DaemonProcess) -> None:
    """All requests get the same reply."""
    async with daemon.connect() as client, daemon.connect() as other:
        started = await client.start_run(PHASES["tool"][0])
        answers: list[tuple[str, int]] = []

        async def cancel(who: Client) -> None:
            answer = await who.cancel(started.run_id)
            answers.append((answer.state, answer.applied_seq))

        async with trio.open_nursery() as nursery:
            for who in [client, other] * 5:
                nursery.start_soon(cancel, who)
        tape = await read_whole(client, started.run_id)
    check_tape(tape)
    assert [("cancelled", len(tape) - 1)] == list(set(answers))


async def test_session_continues_after_a_cancel(daemon: DaemonProcess) -> None:
    """The next message of the session starts when the one before it is cancelled."""
    async with daemon.connect() as client:
        first = await client.start_run(PHASES["model"][0], session_key="goes-on")
        second = await client.start_run("next", session_key="goes-on")
        await client.cancel(first.run_id)
        view = await client.wait_run(second.run_id)
    assert ("queued", "done") == (second.disposition, view.state)
