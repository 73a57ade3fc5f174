"""Admission of new runs: whether the daemon is suspended, by whom and since when.

Owns: the suspension.  Talks to: its store, in threads.  Called by: the gateway, the queue of tasks.
Never: stops a run that was accepted, or forgets a suspension over a restart.
"""

from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from palyra.core.access import Caller
from palyra.core.ports import NowMs, RunBlocking
from palyra.core.suspension import Suspension
from palyra.errors import Suspended

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("palyra.admission")
RETRY_MS = 60_000  # a person ends it


class SuspensionStore(Protocol):
    """The durable state of the suspension."""

    def read(self) -> Suspension | None:
        """Return the stored suspension.  Blocks.  Raises Unavailable."""

    def write(self, suspension: Suspension | None) -> None:
        """Store the suspension, None for none.  Blocks.  Raises Unavailable."""


class Admission:
    """Admits new runs unless the daemon is suspended."""

    def __init__(self, store: SuspensionStore, now_ms: NowMs, run_blocking: RunBlocking) -> None:
        """Read the stored suspension.  Blocks.  Raises Unavailable."""
        self._store = store
        self._now_ms = now_ms
        self._run_blocking = run_blocking
        self.suspension = store.read()
        self.on_resumed: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise Suspended while the daemon is suspended."""
        if self.suspension is not None:
            raise Suspended(
                f"the daemon is {self.suspension.describe()}; `palyra resume` ends that",
                retry_after_ms=RETRY_MS,
            )

    async def suspend(self, caller: Caller, reason: str) -> Suspension:
        """Refuse new runs from the call on, durably on return; return the suspension in force.

        An earlier suspension stays as it is.  Raises Forbidden; Unavailable if it could not be
        stored: then it holds until the daemon stops.
        Cancellation: the daemon is suspended, and the store may not know it.
        """
        caller.require("system:write")
        found = self.suspension
        if found is None:
            found = Suspension(by=caller.principal, since_ms=self._now_ms(), reason=reason)
            self.suspension = found
            log.warning("suspended", by=found.by, reason=reason)
        await self._run_blocking(partial(self._store.write, found))
        return found

    async def resume(self, caller: Caller) -> Suspension | None:
        """Admit new runs once the store knows it; return the suspension that has ended.

        Raises Forbidden; Unavailable, and the daemon stays suspended.
        Cancellation: the daemon stays suspended until it is resumed again or restarted.
        """
        caller.require("system:write")
        await self._run_blocking(partial(self._store.write, None))
        ended, self.suspension = self.suspension, None
        if ended is not None:
            log.info("resumed", by=caller.principal)
            self.on_resumed()
        return ended


class VolatileSuspension:
    """A store for daemons without a data directory."""

    def __init__(self) -> None:
        self._kept: Suspension | None = None

    def read(self) -> Suspension | None:
        """Return the suspension."""
        return self._kept

    def write(self, suspension: Suspension | None) -> None:
        """Keep the suspension until the process ends."""
        self._kept = suspension
