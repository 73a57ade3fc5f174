"""Backups on request: one at a time, in a thread, while the daemon serves.

Owns: whether a backup is being made.  Never: blocks the loop or the writer of the journal.
"""

from palyra.actors.kernel.threads import run_stoppable
from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.backup import BackupMade, BackupOrder, BackupReport
from palyra.core.ports import BackupStore, NowMs, RunBlocking
from palyra.errors import Overloaded, Unavailable

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
            return await run_stoppable(
                lambda is_stopped: self._run_blocking(store.create, path, order, is_stopped)
            )
        finally:
            self._is_busy = False

    async def verify(self, caller: Caller, path: str) -> BackupReport:
        """Check a backup.  Raises Forbidden, and as `BackupStore.verify` does.

        Cancellation: the check is stopped; it changes nothing.
        """
        caller.require(SCOPE)
        store = self._get_store()
        return await run_stoppable(
            lambda is_stopped: self._run_blocking(store.verify, path, is_stopped)
        )

    def _get_store(self) -> BackupStore:
        if self._store is None:
            raise Unavailable("this daemon keeps no files: there is nothing to back up")
        return self._store
