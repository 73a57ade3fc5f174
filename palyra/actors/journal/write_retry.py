"""Deciding when a store that refused a batch is writable again.

After a full disk or an I/O error, a small commit that succeeds proves little: the refused batches
may still not fit, and the runs that wait would all fail again.  So the journal commits a *probe*, a
record with as many bytes of padding as were refused since the trouble began.  It is an idempotency
record that expired long ago, so that the seal which follows deletes it.

State machine of one incarnation (`Probe`):

    writable --refusal--> refusing    first probe after PROBE_S
    refusing --probe fails--> refusing    the pause doubles, up to PROBE_LIMIT_S
    refusing --probe succeeds--> has room    runs may try again; second probe after QUIET_S
    has room --refusal--> refusing    keeps the bytes refused so far
    has room --probe succeeds--> writable    all is forgotten

The second probe is what tells a disk that works from one that fails now and then: without it, the
incident "the journal refuses writes" would be opened and resolved with every batch.  Clients get
the time until the next probe as `retry_after_ms`.

`FailedRuns` keeps the runs whose tape lacks a refused change.  Such a run may have appended its next
change before it learned of the refusal; that change cannot follow and is InvariantBroken to the
store, although the disk is the cause.  It is reported as Unavailable too.
"""

from collections.abc import Iterable, Sequence
from math import inf
from secrets import token_hex

from msgspec import Raw

from palyra.core.journal.changes import Change
from palyra.core.journal.records import IdempotencyRecord
from palyra.errors import InvariantBroken, PalyraError, Unavailable

PROBE_S = 0.5  # pause before the first probe; doubles
PROBE_LIMIT_S = 5.0
QUIET_S = 30.0  # between the two probes that must succeed
PRINCIPAL = ""  # no caller has this name, so none finds the padding
BASE_BYTES = 65_536  # pages that every commit touches
ITEM_BYTES = 1_024  # of a row or a record, without its payload
MOST_BYTES = 8_388_608  # of padding


class Probe:
    """The state machine above; `at_s` is the time of the next probe."""

    def __init__(self) -> None:
        self.at_s = inf  # no probe while writing works
        self.has_room = True  # nothing was refused since a probe succeeded
        self._pause_s = PROBE_S
        self._refused_bytes = 0

    def record_refusal(self, changes: Sequence[Change], now_s: float) -> int:
        """Record a refused batch; return the milliseconds until the next probe, which stays due."""
        self.has_room = False
        payloads = sum(len(row.data) for change in changes for row in change.rows)
        items = sum(len(change.rows) + len(change.records) for change in changes)
        refused_bytes = self._refused_bytes + payloads + items * ITEM_BYTES
        self._refused_bytes = min(MOST_BYTES, refused_bytes)
        self.at_s = min(self.at_s, now_s + self._pause_s)
        return round(1000 * max(0.0, self.at_s - now_s))

    def record_failure(self, now_s: float) -> None:
        """Record a refused probe: the next pause is longer."""
        self.has_room = False
        self._pause_s = min(2 * self._pause_s, PROBE_LIMIT_S)
        self.at_s = now_s + self._pause_s

    def record_success(self, now_s: float) -> bool:
        """Record a committed probe; return True if the store counts as writable again."""
        is_over, self.has_room = self.has_room, True
        if is_over:
            self.at_s, self._pause_s, self._refused_bytes = inf, PROBE_S, 0
        else:
            self.at_s = now_s + QUIET_S
        return is_over

    def padding(self) -> Change:
        """Return the probe; its key is random, as probes of earlier incarnations may still exist."""
        record = IdempotencyRecord(
            principal=PRINCIPAL,
            key=f"probe-{token_hex(8)}",
            body_sha256="",
            result=Raw(b'"%b"' % (b" " * (BASE_BYTES + self._refused_bytes))),
            created_ms=0,
        )
        return Change(records=(record,))


class FailedRuns:
    """Runs with a refused change; the set is cleared when it exceeds `limit`."""

    __slots__ = ("_limit", "_runs")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: set[str] = set()

    def record(self, refused: Iterable[Change]) -> None:
        """Record the runs of changes that were not written."""
        if len(self._runs) > self._limit:
            self._runs.clear()
        self._runs |= {change.rows[0].run_id for change in refused if change.rows}

    def explain(self, change: Change, outcome: PalyraError | None) -> PalyraError | None:
        """Return the outcome to report; a change that was committed closes the gap of its run."""
        run_id = change.rows[0].run_id if change.rows else ""
        if outcome is None:
            self._runs.discard(run_id)
        elif run_id in self._runs and isinstance(outcome, InvariantBroken):
            return Unavailable(f"an earlier change of {run_id} could not be written")
        return outcome
