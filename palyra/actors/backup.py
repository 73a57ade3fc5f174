"""Backups on request: one at a time, in a thread, while everything else goes on.

Owns: whether a backup is being made.  Never: blocks the loop or the writer of the journal.
"""

from collections.abc import Callable
from typing import TypeVar

import trio

from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.backup import BackupMade, BackupOrder, BackupReport
from palyra.core.ports import BackupStore, NowMs, RunBlocking
from palyra.errors import Overloaded, PalyraError, Unavailable

T = TypeVar("T")
SCOPE = "backups:write"


class Backups:
    """The methods of backups; each takes the authenticated caller first."""

    def __init__(
        self,
        store: BackupStore | None,
        *,
        run_blocking: RunBlocking,
        now_ms: NowMs,
        new_id: NewId,
    ) -> None:
        """`store` is None if the journal is not in files."""
        self._store = store
        self._run_blocking = run_blocking
        self._now_ms = now_ms
        self._new_id = new_id
        self._is_busy = False

    async def create(self, caller: Caller, path: str | None, *, with_keys: bool) -> BackupMade:
        """Make a backup; `with_keys` includes keys, tokens and the vault.

        Raises Forbidden, Overloaded while another is being made, and as `BackupStore.create` does.
        Cancellation: the backup is stopped and nothing of it is left, unless it was complete.
        """
        caller.require(SCOPE)
        store = self._get_store()
        order = BackupOrder(
            backup_id=self._new_id("bak"),
            by=caller.principal,
            created_ms=self._now_ms(),
            with_keys=with_keys,
        )
        if self._is_busy:
            raise Overloaded("a backup is being made: wait for its end", retry_after_ms=1_000)
        self._is_busy = True
        try:
            return await self._run(lambda is_stopped: store.create(path, order, is_stopped))
        finally:
            self._is_busy = False

    async def verify(self, caller: Caller, path: str) -> BackupReport:
        """Check a backup.  Raises Forbidden, and as `BackupStore.verify` does.

        Cancellation: the check is stopped; it changes nothing.
        """
        caller.require(SCOPE)
        store = self._get_store()
        return await self._run(lambda is_stopped: store.verify(path, is_stopped))

    def _get_store(self) -> BackupStore:
        if self._store is None:
            raise Unavailable("this daemon keeps no files: there is nothing to back up")
        return self._store

    async def _run(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """Do the work in a thread, which polls for a cancel: trio does not cancel threads.

        Cancellation: the work is stopped first.
        """
        stop = _Stop()
        refusal: PalyraError | None = None
        results: list[T] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop.when_cancelled)
            try:
                results.append(await self._run_blocking(work, stop.is_set))
            except PalyraError as error:  # else it would leave the nursery in a group
                refusal = error
            nursery.cancel_scope.cancel("the work is done")
        if refusal is not None:
            raise refusal
        return results[0]


class _Stop:
    """A flag that is set when its task is cancelled."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    async def when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._is_set = True
