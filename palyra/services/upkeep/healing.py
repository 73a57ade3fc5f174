"""Modes of healing, and the remedies that need no actor.

Owns: the mode of each domain.  Talks to: the journal, the memory index, the incidents.
Called by: `actors.watchdog`, and operators for the modes.
Never: decides what is stuck or which remedy fits (`core.healing`).

A mode that an operator sets holds until the daemon stops: the configuration says how a daemon starts,
and a forgotten `auto` does not survive a restart.
"""

from collections.abc import Callable, Mapping
from typing import get_args

from palyra.core.access import Caller
from palyra.core.healing.rules import AUTO_SWEEP_S, STUCK_S, SWEEP_S, HealingMode
from palyra.core.incident.kinds import chain_broken
from palyra.core.journal.changes import Change
from palyra.core.journal.records import IncidentDomain
from palyra.core.ports import Journal
from palyra.errors import Unavailable
from palyra.services.upkeep.incidents import Incidents

DOMAINS: tuple[IncidentDomain, ...] = get_args(IncidentDomain)


class HealingModes:
    """The mode of each domain, and the pace of the watchdog."""

    def __init__(
        self,
        mode: HealingMode = "observe_only",
        domains: Mapping[IncidentDomain, HealingMode] | None = None,
        *,
        stuck_s: float = STUCK_S,
        sweep_s: float | None = None,
    ) -> None:
        """`domains` has exceptions from `mode`; `sweep_s` replaces the pace of the mode."""
        self._modes: dict[IncidentDomain, HealingMode] = dict.fromkeys(DOMAINS, mode)
        self._modes.update(domains or {})
        self.stuck_s = stuck_s
        self._sweep_s = sweep_s

    def mode(self, domain: IncidentDomain) -> HealingMode:
        """Return the mode in force."""
        return self._modes[domain]

    @property
    def sweep_s(self) -> float:
        """Seconds between two sweeps: shorter if a domain is in mode `auto`."""
        if self._sweep_s is not None:
            return self._sweep_s
        return AUTO_SWEEP_S if "auto" in self._modes.values() else SWEEP_S

    def read(self, caller: Caller) -> dict[IncidentDomain, HealingMode]:
        """Return the mode of each domain.  Raises Forbidden."""
        caller.require("incidents:read")
        return dict(self._modes)

    def change(
        self, caller: Caller, mode: HealingMode, domain: IncidentDomain | None
    ) -> dict[IncidentDomain, HealingMode]:
        """Set the mode of a domain, or of all; return all.  Raises Forbidden."""
        caller.require("incidents:write")
        for each in DOMAINS if domain is None else (domain,):
            self._modes[each] = mode
        return dict(self._modes)


# --- remedies --------------------------------------------------------------------------------------


async def reverify_journal(journal: Journal, incidents: Incidents, key: str) -> str:
    """Verify the whole journal again; clear the incident if that finds another result.

    Raises Unavailable.  Cancellation: the verification ends in its thread; nothing has changed.
    """
    report = await journal.read(lambda store: store.verify())
    found = () if report.first_break is None else (report.first_break, *report.found)
    is_known = any(chain_broken(each, report).key == key for each in found)
    if is_known or report.breaks > len(report.found):  # more breaks than the report describes
        return f"the chain is still broken in {report.breaks} places"
    incidents.clear(key, "a verification of the whole journal did not find it again")
    return "the verification did not find it again"


async def checkpoint_wal(journal: Journal, request: Callable[[], None]) -> str:
    """Fold the write-ahead log into the database, which frees its space for later writes.

    `request` makes the writer do it before its next batch.
    Raises Unavailable.  Cancellation: the checkpoint is made all the same.
    """
    request()
    try:
        await journal.commit(Change())  # wakes the writer; an empty change fits on a full disk
    except Unavailable as refused:
        return f"the journal still refuses writes: {refused.message}"
    return "a checkpoint was requested"
