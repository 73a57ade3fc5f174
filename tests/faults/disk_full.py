"""A daemon whose disk is full: `python -m tests.faults.disk_full`.

Two ways to run out of space, both real: a small file system of its own that is filled to the last
byte (needs the right to mount), and a limit on the size of files (RLIMIT_FSIZE, which needs no
rights).  While there is no space, writes are refused as `unavailable` and reads work; when there
is space again, all acknowledged runs continue by themselves.  Prints sums as JSON.
"""

import errno
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import trio

from palyra.client import Client
from palyra.errors import Unavailable
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, write_call
from tests.e2e.tapes import check_tape, read_whole

if TYPE_CHECKING:
    from palyra.core.journal.records import ApprovalRecord


WITHIN_S = 120.0  # a bound against hanging, not a promise
ATTEMPTS = 500  # at starting runs, before there must be no space left
REFUSALS = 5  # in a row, of a journal that reports it cannot be written
DISK_BYTES = 8_388_608
BALLAST_BYTES = 4_096


class Shortage(Protocol):
    """One way to run out of space."""

    @property
    def base(self) -> Path: ...
    def begin(self, daemon: DaemonProcess) -> None: ...
    def end(self, daemon: DaemonProcess) -> None: ...


# --- a full file system --------------------------------------------------------------------------


@dataclass
class SmallDisk:
    """A file system in memory with a few megabytes, filled to the last byte by a file."""

    base: Path

    @property
    def _ballast(self) -> Path:
        return self.base / "ballast"

    def begin(self, daemon: DaemonProcess) -> None:
        del daemon
        with self._ballast.open("wb", buffering=0) as file, suppress(_Full):
            while True:
                _fill(file.fileno())

    def end(self, daemon: DaemonProcess) -> None:
        del daemon
        self._ballast.unlink()


class _Full(Exception):
    """No space left."""


def _fill(descriptor: int) -> None:
    try:
        os.write(descriptor, bytes(BALLAST_BYTES))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _Full from error


@contextmanager
def small_disk() -> Generator[SmallDisk]:
    """Mounted for the length of the block.  Raises PermissionError where that is not allowed."""
    with tempfile.TemporaryDirectory() as name:
        options = f"size={DISK_BYTES},mode=700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", name]
        ended = subprocess.run(mount, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise PermissionError(ended.stderr.strip())
        try:
            yield SmallDisk(Path(name))
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


# --- files that may not grow ---------------------------------------------------------------------


@dataclass
class FileLimit:
    """No file of the daemon may grow beyond the size that its largest has now."""

    base: Path

    def begin(self, daemon: DaemonProcess) -> None:
        largest = max(path.stat().st_size for path in daemon.home.iterdir())
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (largest, hard))

    def end(self, daemon: DaemonProcess) -> None:
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def file_limit() -> Generator[FileLimit]:
    """Under any directory."""
    with tempfile.TemporaryDirectory() as name:
        yield FileLimit(Path(name))


# --- what happens --------------------------------------------------------------------------------


@dataclass
class Case:
    """One shortage, from before to after."""

    daemon: DaemonProcess
    shortage: Shortage
    is_killed: bool = False  # while there is no space
    asked: "ApprovalRecord" = field(init=False)  # the prompt that is open all the time
    acknowledged: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    async def play(self) -> dict[str, Any]:
        """Everything; what it came to."""
        with trio.fail_after(WITHIN_S):
            async with self.daemon.connect() as client:
                await self.before(client)
                self.shortage.begin(self.daemon)
                await self.refused(client)
            if self.is_killed:
                self.daemon.kill()
                self.daemon.launch()
                self.figures["start_without_space"] = await self.daemon.ended()
            self.shortage.end(self.daemon)
            if self.is_killed:
                self.daemon.start()
            async with self.daemon.connect() as client:
                await self.after(client)
        self.figures["acknowledged"] = len(self.acknowledged)
        return self.figures

    async def before(self, client: Client) -> None:
        """Start three runs: one ends, one waits for a person, one has a busy model."""
        ended = await client.start_run("/tokens 20")
        await client.wait_run(ended.run_id)
        self.asked = await ask_for(client, write_call("after.txt"))
        busy = await client.start_run("/delay 1500\n/say after all")
        self.acknowledged += [ended.run_id, self.asked.run_id, busy.run_id]
        await self.daemon.reach(busy.run_id, "turn.started")

    async def refused(self, client: Client) -> None:
        """Check that writes are refused, reads work, and the daemon reports the shortage."""
        await self.start_until_refused(client)
        assert await self.is_answer_refused(client)
        for run_id in self.acknowledged:
            assert run_id == (await client.get_run(run_id)).run_id
            assert (await read_whole(client, run_id))[0].kind == "run.accepted"
        (incident,) = (await client.list_incidents()).incidents  # resolved ones too
        assert ("journal_refuses", "open") == (incident.key, incident.state)
        assert incident.count > REFUSALS
        runs = (await client.list_runs(limit=500)).runs
        assert set(self.acknowledged) == {run.run_id for run in runs}
        async with self.daemon.connect() as other:
            assert self.asked == await other.get_approval(self.asked.approval_id)

    async def start_until_refused(self, client: Client) -> None:
        """Use up what space there is: what was refused leaves room for something smaller."""
        refusals = self.figures["refused_while_writable"] = 0
        before = len(self.acknowledged)
        for _ in range(ATTEMPTS):
            was_writable = (await client.status()).is_writable
            if not await self.is_start_refused(client):
                refusals = 0
            elif refusals == REFUSALS:
                break
            elif not was_writable:  # it had reported the shortage
                refusals += 1
            else:
                self.figures["refused_while_writable"] += 1
        assert refusals == REFUSALS, "the disk does not get full"
        self.figures["accepted_before_full"] = len(self.acknowledged) - before

    async def is_start_refused(self, client: Client) -> bool:
        """Return True if a small run is refused; an accepted one is recorded as acknowledged."""
        try:
            started = await client.start_run("/tokens 200")
        except Unavailable:
            return True
        self.acknowledged.append(started.run_id)
        return False

    async def is_answer_refused(self, client: Client) -> bool:
        """Return True if the answer to the prompt is refused too."""
        try:
            await client.resolve_approval(self.asked.approval_id, "deny", self.asked.digest)
        except Unavailable:
            return True
        return False

    async def after(self, client: Client) -> None:
        """Check that all runs continue by themselves, with nothing acknowledged lost or changed."""
        began_s = trio.current_time()
        while await self.is_start_refused(client):
            await trio.lowlevel.checkpoint()
        self.figures["writable_again_ms"] = round(1000 * (trio.current_time() - began_s))
        await self.answer_until_taken(client)
        for run_id in self.acknowledged:
            view = await client.wait_run(run_id)
            assert "done" == view.state, view
            check_tape(await read_whole(client, run_id))
        assert (self.daemon.workspace / "after.txt").exists()
        assert 0 == (await client.verify_tape()).breaks

    async def answer_until_taken(self, client: Client) -> None:
        """The prompt that was open is open again as soon as its run is."""
        while True:
            with suppress(Unavailable):
                outcome = await client.resolve_approval(
                    self.asked.approval_id, "allow", self.asked.digest
                )
                assert outcome.won
                return


async def is_over(daemon: DaemonProcess) -> None:
    """Check that the daemon reports itself writable and has no open incident."""
    async with daemon.connect() as client:
        assert (await client.status()).is_writable
        assert [] == (await client.list_incidents(states=("open",))).incidents


def run_case(make: AbstractContextManager[Shortage], *, is_killed: bool = False) -> dict[str, Any]:
    """One way to run out of space, with a daemon that is stopped and started once more at the end."""
    with make as shortage:
        daemon = DaemonProcess(shortage.base)
        daemon.log = Path(tempfile.mkstemp(suffix=".log")[1])  # elsewhere: it has space
        try:
            daemon.start()
            case = Case(daemon, shortage, is_killed)
            figures = trio.run(case.play)
            assert 0 == daemon.stop()
            daemon.start()
            assert "was_clean=True" in daemon.said.rpartition("journal opened")[2]
            assert daemon.said.count("key=journal_refuses") >= 1
            trio.run(is_over, daemon)
            assert 0 == daemon.stop()
        finally:
            daemon.end()
            daemon.log.unlink()
    return figures


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "small_disk": lambda: run_case(small_disk()),
    "small_disk_and_kill": lambda: run_case(small_disk(), is_killed=True),
    "file_limit": lambda: run_case(file_limit()),
}


def main() -> int:
    """Run as a program."""
    for name, play in CASES.items():
        try:
            figures = play()
        except PermissionError as error:
            figures = {"skipped": str(error)}
        sys.stdout.write(f"{json.dumps({'case': name, **figures})}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
