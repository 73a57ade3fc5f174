"""What goes into the journal and what comes out: changes, pages, reports.

A change is the unit of atomicity: all of its rows and records are committed, or none.  Appending
is compare-and-append: a change's rows must follow the committed head of their run, so a writer
that lost ownership cannot add to a tape; repeating a committed row with the same content is a
no-op (idempotent by (run_id, seq)).
"""

from typing import Literal

import msgspec

from palyra.core.journal.records import (
    IncidentDomain,
    IncidentRecord,
    IncidentState,
    PairingState,
    Record,
    RunState,
)
from palyra.core.journal.tape_row import TapeRow


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Rows of one run (consecutive) and records that belong to them."""

    rows: tuple[TapeRow, ...] = ()
    records: tuple[Record, ...] = ()


class TapePage(msgspec.Struct, frozen=True, kw_only=True):
    """Rows after a cursor, in order; `next_after_seq` is None when `head_seq` was reached."""

    rows: list[TapeRow]
    head_seq: int  # last committed seq, -1 for an empty tape
    floor_seq: int  # oldest seq still kept
    next_after_seq: int | None
    size_bytes: int  # sum of the payloads


class ChainedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row with its place in the journal and its link in the chain (for export and proof)."""

    position: int  # dense from 1 over the whole journal
    hash: bytes
    row: TapeRow


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; `before` is the run_id of the last one seen."""

    principal: str | None = None
    session_id: str | None = None
    states: tuple[RunState, ...] = ()
    before: str | None = None
    limit: int = 100


class PairingFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which pairings to list, newest first; `before` is the id of the last one seen."""

    principal: str | None = None
    channel: str | None = None
    state: PairingState | None = None
    before: str | None = None
    limit: int = 100


class IncidentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which incidents to list, newest first; `before` is the id of the last one seen."""

    states: tuple[IncidentState, ...] = ()
    domain: IncidentDomain | None = None
    before: str | None = None
    limit: int = 100


class UsageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of the ledger; None and 0 mean all there are."""

    principal: str | None = None
    agent: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    model: str | None = None  # a whole name, or a beginning and *
    since_ms: int = 0
    until_ms: int | None = None  # exclusive

    @property
    def model_family(self) -> str | None:
        """The beginning that the names of models have; None when it is a whole name."""
        if self.model is None or not self.model.endswith("*"):
            return None
        return self.model[:-1]


UsageBy = Literal["principal", "agent", "session", "run", "model"]


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of one group took together."""

    key: str = ""  # of the group; "" for all
    from_ms: int = 0  # with a grain: where its stretch of time begins
    last_ms: int = 0  # the newest call
    calls: int = 0
    broken_calls: int = 0  # without a whole turn
    estimated_calls: int = 0  # whose tokens nobody but the daemon counted
    unpriced_calls: int = 0  # whose cost is not known, and not in the sum
    input_tokens: int = 0
    cached_tokens: int = 0  # of the input
    output_tokens: int = 0
    cost_usd_micros: int = 0


class ChainViolation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the chain or a signed root does not hold."""

    kind: Literal["edited", "missing", "inserted", "reordered", "truncated", "root"]
    position: int | None
    run_id: str | None
    seq: int | None
    detail: str


MAX_FOUND = 20  # breaks that a report describes; one fault in the middle can break every later row


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a verification; `first_break` is None when everything holds.

    `found` are the first of the `breaks`, `MAX_FOUND` at most.
    """

    checked_events: int
    checked_roots: int
    through_position: int
    signed_through_position: int
    first_break: ChainViolation | None = None
    breaks: int = 0
    found: tuple[ChainViolation, ...] = ()


class OpenReport(msgspec.Struct, frozen=True, kw_only=True):
    """What opening the journal found."""

    schema_version: int
    migrated_from: int | None
    owner_epoch: int
    was_clean: bool
    head_position: int
    verification: VerifyReport
    notes: tuple[str, ...] = ()  # repaired without loss, worth a log line (a torn last root line)
    incidents: tuple[IncidentRecord, ...] = ()  # that are not resolved, oldest first
