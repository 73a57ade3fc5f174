"""The pool: a few workers, started before they are needed, each of them for one module only.

Owns: which worker serves what.  Talked to by: calls, which borrow a worker and give it back.
A slot (`keep_worker`) is a supervised service: it keeps one worker alive and replaces it when its
life ends.  A worker that failed, or whose borrower left in the middle, is never used again; nor is
one that has seen a module ever given another, so that a guest that broke out of wasmtime meets
nobody else's data, and cannot touch what the compiler makes of somebody else's code.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog
import trio

from palyra.errors import Unavailable
from palyra.tools.wasm.launch import Launch
from palyra.tools.wasm.worker_client import WorkerClient, WorkerGone

log = structlog.get_logger("palyra.wasm")
RETRY_S = 30.0  # after a worker that could not be started


class _Seat:
    """One worker and who has it."""

    def __init__(self, peer: WorkerClient, life: trio.CancelScope) -> None:
        self.peer = peer
        self.life = life
        self.serves = ""  # what it was first borrowed for
        self.is_busy = False
        self.used_s = trio.current_time()


class WorkerPool:
    """Workers to borrow."""

    def __init__(
        self,
        launch: Launch,
        on_change: Callable[[], None] = lambda: None,
        *,
        obstacle: str = "",
        find_leak: Callable[[], str] = lambda: "",
    ) -> None:
        """`on_change` is told when workers become available, and when there are none any more.

        `obstacle`: why there will be none; nobody keeps a worker then.  `find_leak`: what is wrong
        with the walls round the workers; then none of them is used any more.
        """
        self._find_leak = find_leak
        self._launch = launch
        self._on_change = on_change
        self._seats: list[_Seat] = []
        self._starting = 0
        self._turn = trio.StrictFIFOLock()  # whoever came first chooses first
        self._changed = trio.Event()
        self._wanted = trio.Event()
        self.is_available = False  # whether workers can be had, as far as is known
        self.obstacle = obstacle  # why not

    def has(self, purpose: str) -> bool:
        """Whether a worker of that purpose is at rest."""
        return any(seat.serves == purpose and not seat.is_busy for seat in self._seats)

    def want(self) -> None:
        """From now on workers stand ready.  Before, a daemon without skills has none."""
        self._wanted.set()

    @asynccontextmanager
    async def borrow(self, purpose: str, *, is_last: bool = False) -> AsyncGenerator[WorkerClient]:
        """A worker that has served nothing but `purpose`; `is_last`: it serves nothing after this.

        Raises Unavailable when workers cannot be started.  Whoever leaves the block with an error
        leaves a dead worker.  Cancellation: the same.
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
        """A worker of that purpose, else an unused one; else room is made for one."""
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
            self._starting += 1  # its slot begins anew
        seat.is_busy = False
        seat.life.cancel("the worker is not to be used again")

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- the slots

    async def keep_worker(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep one worker, for ever.  Cancellation: it is gone."""
        task_status.started()
        await self._wanted.wait()
        while True:
            if not await self._live():
                await trio.sleep(RETRY_S)

    async def _live(self) -> bool:
        """One worker's life; False when it never came to serve."""
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
        """The worker is gone; `_starting` counted its slot unless it died while it was seated."""
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
