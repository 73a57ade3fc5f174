"""The daemon's clock: a gap in which nothing ran takes no time, lateness within reason does."""

import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from palyra.actors.kernel.awake_clock import GAP_S, AwakeClock, lost_time_s
from palyra.actors.kernel.loop_lag import LoopLag
from tests.actors.kernel.virtual_awake import VirtualAwakeClock


class Reading:
    """A raw clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_lateness_counts_and_gaps_do_not() -> None:
    """Up to the bound it is load; above it all of it is lost."""
    raw = Reading()
    clock = AwakeClock(raw)
    began_s = clock.current_time()
    raw.now_s += GAP_S
    assert GAP_S == clock.current_time() - began_s
    raw.now_s += 3_600
    assert GAP_S == clock.current_time() - began_s
    assert 3_600 == clock.lost_s


def test_a_sleep_that_was_meant_is_no_gap() -> None:
    """Only what comes on top of it is; a loop that is woken early loses nothing."""
    raw = Reading()
    clock = AwakeClock(raw)
    began_s = clock.current_time()
    assert 60 == clock.deadline_to_sleep_time(began_s + 60)
    raw.now_s += 60
    assert 60 == clock.current_time() - began_s
    clock.deadline_to_sleep_time(began_s + 120)
    raw.now_s += 60 + 600
    assert 120 == clock.current_time() - began_s
    clock.deadline_to_sleep_time(began_s + 180)
    raw.now_s += 1
    assert 121 == clock.current_time() - began_s
    assert float("inf") == clock.deadline_to_sleep_time(float("inf"))
    raw.now_s += 5_000
    assert 5_121 == clock.current_time() - began_s


@pytest.mark.parametrize("is_gap", [True, False], ids=["a gap", "the control"])
def test_deadlines_do_not_run_over_a_gap(*, is_gap: bool) -> None:
    """The same hour ends a deadline of ten seconds when the loop ran in it."""
    clock = VirtualAwakeClock()

    async def work() -> bool:
        with trio.move_on_after(10) as scope:
            await trio.sleep_until(trio.current_time() + 4)
            if is_gap:
                clock.now_s += 3_600
                await trio.sleep_until(trio.current_time() + 5)
            else:
                await trio.sleep_until(trio.current_time() + 3_600)
        return scope.cancelled_caught

    assert is_gap is not trio.run(work, clock=clock)


def test_lag_is_measured_in_all_time() -> None:
    """A gap is the largest lag there is, though deadlines do not see it."""
    clock = VirtualAwakeClock()

    async def work() -> None:
        lag = LoopLag()
        async with trio.open_nursery() as nursery:
            await nursery.start(lag.measure)
            clock.now_s += 60
            await trio.sleep_until(trio.current_time() + 1)
            assert lag.worst_s == pytest.approx(60, abs=0.2)
            assert lost_time_s() == pytest.approx(60, abs=0.2)
            nursery.cancel_scope.cancel()

    trio.run(work, clock=clock)


STOPPED = """
import os, signal, sys, trio
from palyra.actors.kernel.awake_clock import AwakeClock
async def work():
    with trio.move_on_after(1.0) as scope:
        os.kill(os.getpid(), signal.SIGSTOP)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
    print(scope.cancelled_caught)
trio.run(work, clock=AwakeClock() if sys.argv[1] == "awake" else None)
"""


@pytest.mark.real
@pytest.mark.parametrize(("clock", "expired"), [("awake", "False"), ("plain", "True")])
def test_a_stopped_process_loses_no_time(clock: str, expired: str) -> None:
    """SIGSTOP and SIGCONT of a real process; the plain clock is the control."""
    argv = (sys.executable, "-c", STOPPED, clock)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        while not _is_stopped(child.pid):
            assert child.poll() is None
        assert child.stdout is not None
        select.select([child.stdout], [], [], 1.2)  # the gap: longer than the deadline of a second
        child.send_signal(signal.SIGCONT)
        output, _ = child.communicate()
    assert expired == output.strip()


def _is_stopped(pid: int) -> bool:
    text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    return text.rpartition(")")[2].split()[0] == "T"
