"""Whether a store that refused a batch would take it now: when to try again, and with what.

A commit that finds room proves nothing for the others.  So a probe commits as many bytes as were
refused in all, as a receipt that has long run out: the next seal forgets it.  One that is taken says
that there is room; the store counts as writable once a second one is taken a while later, and
nothing was refused in between.

The gaps: runs whose tape lacks a change that the disk refused.

A run that has not heard of the refusal yet appends the next change, which cannot follow.  That is
the disk's doing and no bug, so whoever waits for it is told what those before were told.
Owned by: one incarnation of the journal.
"""

from collections.abc import Iterable, Sequence
from math import inf
from secrets import token_hex

from msgspec import Raw

from palyra.core.journal.changes import Change
from palyra.core.journal.records import IdempotencyRecord
from palyra.errors import InvariantBroken, PalyraError, Unavailable

PROBE_S = 0.5  # first pause before a store that refused is tried again; doubles
PROBE_LIMIT_S = 5.0
QUIET_S = 30.0  # between the two that must be taken
PRINCIPAL = ""  # nobody's: no caller finds the padding
BASE_BYTES = 65_536  # pages that any commit touches
ITEM_BYTES = 1_024  # of a row or a record, beside its payload
MOST_BYTES = 8_388_608


class Probe:
    """What a store still owes before it counts as writable; nothing while it works."""

    def __init__(self) -> None:
        self.at_s = inf  # when to try; never, while writing works
        self.has_room = True  # nothing was refused since a probe was taken
        self._pause_s = PROBE_S
        self._refused_bytes = 0

    def note_refusal(self, changes: Sequence[Change], now_s: float) -> int:
        """A batch was refused; milliseconds until the next probe, which it does not put off."""
        self.has_room = False
        self._refused_bytes = min(MOST_BYTES, self._refused_bytes + _measure(changes))
        self.at_s = min(self.at_s, now_s + self._pause_s)
        return round(1000 * max(0.0, self.at_s - now_s))

    def note_failure(self, now_s: float) -> None:
        """A probe was refused: wait longer each time."""
        self.has_room = False
        self._pause_s = min(2 * self._pause_s, PROBE_LIMIT_S)
        self.at_s = now_s + self._pause_s

    def note_taken(self, now_s: float) -> bool:
        """A probe was taken; whether writing works again."""
        is_over, self.has_room = self.has_room, True
        if is_over:
            self.at_s, self._pause_s, self._refused_bytes = inf, PROBE_S, 0
        else:
            self.at_s = now_s + QUIET_S
        return is_over

    def padding(self) -> Change:
        """What to commit; under a key nobody used, as those of earlier lives may still be there."""
        receipt = IdempotencyRecord(
            principal=PRINCIPAL,
            key=f"probe-{token_hex(8)}",
            body_sha256="",
            result=Raw(b'"%b"' % (b" " * (BASE_BYTES + self._refused_bytes))),
            created_ms=0,
        )
        return Change(records=(receipt,))


def _measure(changes: Sequence[Change]) -> int:
    """Bytes that these take at most, roughly."""
    payloads = sum(len(row.data) for change in changes for row in change.rows)
    items = sum(len(change.rows) + len(change.records) for change in changes)
    return payloads + items * ITEM_BYTES


class FailedRuns:
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
