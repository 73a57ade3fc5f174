"""Pool of pre-started WASM workers, each used for one module only.

A slot (`keep_worker`) is a supervised service: it keeps one worker alive and replaces it when the
worker ends.

Life of a worker: starting, idle and unassigned, assigned to a purpose (a module digest, or one
compilation) by the first borrow, then alternately busy and idle, ended.  A worker is ended:
- after its borrower failed or was cancelled, or after a borrow with `is_last`;
- when an idle one must give its slot to another purpose (least recently used first);
- when `find_leak` reports a broken sandbox.
A worker is never reassigned to another module.  A guest that escapes wasmtime therefore reaches
neither the data of another skill nor the compilation of another module.

Owns: the assignment of workers.
Talked to by: calls, which borrow a worker and return it.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog
import trio

from palyra.errors import Unavailable
from palyra.tools.wasm.launch import Launch
from palyra.tools.wasm.worker_client import WorkerClient, WorkerGone

log = structlog.get_logger("palyra.wasm")
RETRY_S = 30.0  # delay after a failed start


class _Seat:
    """One worker and its assignment."""

    def __init__(self, peer: WorkerClient, life: trio.CancelScope) -> None:
        self.peer = peer
        self.life = life
        self.serves = ""  # purpose of the first borrow; "": unassigned
        self.is_busy = False
        self.used_s = trio.current_time()


class WorkerPool:
    """Lends workers to calls."""

    def __init__(
        self,
        launch: Launch,
        on_change: Callable[[], None] = lambda: None,
        *,
        obstacle: str = "",
        find_leak: Callable[[], str] = lambda: "",
    ) -> None:
        """`on_change` is called when workers become available or unavailable.

        `obstacle` is the reason why the daemon runs no workers, "" if it does.  `find_leak` returns
        a defect of the sandbox, "" for none; each borrow checks it and ends all workers on a
        defect.
        """
        self._find_leak = find_leak
        self._launch = launch
        self._on_change = on_change
        self._seats: list[_Seat] = []
        self._starting = 0
        self._turn = trio.StrictFIFOLock()  # borrowers are served in order
        self._changed = trio.Event()
        self._wanted = trio.Event()
        self.is_available = False  # last known state
        self.obstacle = obstacle  # reason for unavailability

    def has(self, purpose: str) -> bool:
        """True if a worker of that purpose is idle."""
        return any(seat.serves == purpose and not seat.is_busy for seat in self._seats)

    def want(self) -> None:
        """Start the workers.  A daemon without skills never calls this and runs none."""
        self._wanted.set()

    @asynccontextmanager
    async def borrow(self, purpose: str, *, is_last: bool = False) -> AsyncGenerator[WorkerClient]:
        """Lend a worker that has served no other purpose; `is_last` ends it after this use.

        Waits for a free worker.  Raises Unavailable when workers cannot be started.  An error in
        the block ends the worker.  Cancellation: the worker is ended.
        """
        self.want()
        self._check_walls()
        seat = await self._take(purpose)
        try:
            yield seat.peer
            if not is_last:
                self._give_back(seat)
        finally:
            if seat.is_busy:
                self._end(seat)

    async def _take(self, purpose: str) -> _Seat:
        async with self._turn:
            while (seat := self._choose(purpose)) is None:
                self._check_walls()
                if not self._seats and not self._starting and self.obstacle:
                    raise Unavailable(self.obstacle)
                await self._changed.wait()
            seat.is_busy, seat.serves = True, purpose
            return seat

    def _check_walls(self) -> None:
        leak = self._find_leak()
        if leak:
            for seat in list(self._seats):
                self._end(seat)
            self._set_available(obstacle=leak)
            raise Unavailable(leak)

    def _choose(self, purpose: str) -> _Seat | None:
        """Return an idle worker of that purpose, else an unassigned one.

        If there is neither, end the least recently used idle worker to free a slot.
        """
        idle = [seat for seat in self._seats if not seat.is_busy]
        for serves in (purpose, ""):
            for seat in idle:
                if seat.serves == serves:
                    return seat
        if idle and not self._starting:
            self._end(min(idle, key=lambda seat: seat.used_s))
        return None

    def _give_back(self, seat: _Seat) -> None:
        seat.is_busy = False
        seat.used_s = trio.current_time()
        self._tell()

    def _end(self, seat: _Seat) -> None:
        if seat in self._seats:
            self._seats.remove(seat)
            self._starting += 1  # its slot starts a replacement
        seat.is_busy = False
        seat.life.cancel("the worker is not to be used again")

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- the slots

    async def keep_worker(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep one worker running for ever.  Cancellation: the worker process is dead."""
        task_status.started()
        await self._wanted.wait()
        while True:
            if not await self._live():
                await trio.sleep(RETRY_S)

    async def _live(self) -> bool:
        """Run one worker until it ends; False if it never became ready."""
        seat: _Seat | None = None
        life = trio.CancelScope()
        self._starting += 1
        try:
            with life:
                async with self._launch() as process:
                    seat = await self._seat(WorkerClient(process), life)
                    await process.wait()
        except (Unavailable, WorkerGone) as error:
            self._obstruct(f"no WASM worker can be started: {error}")
        finally:
            self._leave(seat)
        return seat is not None

    async def _seat(self, peer: WorkerClient, life: trio.CancelScope) -> _Seat:
        await peer.greet()
        seat = _Seat(peer, life)
        self._seats.append(seat)
        self._starting -= 1
        self._set_available(obstacle="")
        self._tell()
        return seat

    def _leave(self, seat: _Seat | None) -> None:
        """Remove a worker that has ended.

        `_starting` counts its slot unless the worker ended while in `_seats`.
        """
        if seat in self._seats:
            self._seats.remove(seat)
        else:
            self._starting -= 1
        self._tell()

    def _obstruct(self, reason: str) -> None:
        log.error(reason)
        if not self._seats:
            self._set_available(obstacle=reason)

    def _set_available(self, *, obstacle: str) -> None:
        was_available = self.is_available
        self.obstacle, self.is_available = obstacle, not obstacle
        if was_available != self.is_available:
            self._on_change()
