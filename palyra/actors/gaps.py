"""The gaps: runs whose tape lacks a change that the disk refused.

A run that has not heard of the refusal yet appends the next change, which cannot follow.  That is
the disk's doing and no bug, so whoever waits for it is told what those before were told.
Owned by: one incarnation of the journal.
"""

from collections.abc import Iterable

from palyra.core.journal import Change
from palyra.errors import InvariantBroken, PalyraError, Unavailable


class Gaps:
    """At most `limit` runs or so; of more, the older are forgotten."""

    __slots__ = ("_limit", "_runs")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: set[str] = set()

    def note(self, refused: Iterable[Change]) -> None:
        """These changes were not written."""
        if len(self._runs) > self._limit:
            self._runs.clear()
        self._runs |= {change.rows[0].run_id for change in refused if change.rows}

    def explain(self, change: Change, outcome: PalyraError | None) -> PalyraError | None:
        """What to tell whoever waits for the change; a run that goes on from its tape has no gap."""
        run_id = change.rows[0].run_id if change.rows else ""
        if outcome is None:
            self._runs.discard(run_id)
        elif run_id in self._runs and isinstance(outcome, InvariantBroken):
            return Unavailable(f"an earlier change of {run_id} could not be written")
        return outcome
