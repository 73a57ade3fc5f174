"""Input and output of the journal: changes, pages, filters, reports.

A change is the unit of atomicity: all of its rows and records are committed, or none.  Appending is
compare-and-append: the rows of a change must follow the committed head of their run, so a writer
that lost ownership cannot add to a tape.  Repeating a committed row with the same content is a no-op
(idempotent by (run_id, seq)).
"""

from typing import Literal, NamedTuple

import msgspec

from palyra.core.journal.backup import Restoration
from palyra.core.journal.records import (
    CandidateKind,
    CandidateState,
    IncidentDomain,
    IncidentRecord,
    IncidentState,
    MemoryAction,
    MemoryKind,
    MemoryRecord,
    PairingState,
    Record,
    RunPhase,
    RunState,
    TaskKind,
    TaskState,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.trust.labels import Trust


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Consecutive rows of one run and the records that belong to them."""

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
    """A row with its position in the journal and its chain hash, for export and proof."""

    position: int  # dense from 1 over the whole journal
    hash: bytes
    row: TapeRow


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of runs, newest first; `before` is the last run_id of the previous page."""

    principal: str | None = None
    session_id: str | None = None
    states: tuple[RunState, ...] = ()
    parent_run_id: str | None = None  # the runs that this one delegated, and its forks
    # A store ignores these three and the phases, which `RunView.fits` compares.
    phases: tuple[RunPhase, ...] = ()
    agent: str | None = None
    tainted: bool | None = None
    text: str = ""  # in the title of the session
    run_ids: tuple[str, ...] = ()
    before: str | None = None
    limit: int = 100


class PairingFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of pairings, newest first; `before` is the last id of the previous page."""

    principal: str | None = None
    channel: str | None = None
    state: PairingState | None = None
    before: str | None = None
    limit: int = 100


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of tasks, newest first; `before` is the last id of the previous page."""

    principal: str | None = None
    kind: TaskKind | None = None
    states: tuple[TaskState, ...] = ()
    schedule_id: str | None = None
    before: str | None = None
    limit: int = 100


class IncidentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of incidents, newest first; `before` is the last id of the previous page."""

    states: tuple[IncidentState, ...] = ()
    domain: IncidentDomain | None = None
    before: str | None = None
    limit: int = 100


class MemoryPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Place that a search is made from; None for a channel or session that it is not in."""

    principal: str
    channel: str | None = None
    session_id: str | None = None
    only_session: bool = False  # of an agent whose memory is limited to its session

    def sees(self, item: MemoryRecord) -> bool:
        """True if an item of its principal's memory is recalled here."""
        if item.principal != self.principal:
            return False
        if self.only_session and (item.session_id is None or item.session_id != self.session_id):
            return False
        if item.scope == "session":
            return item.session_id is not None and item.session_id == self.session_id
        if item.scope == "channel":
            return item.channel is not None and item.channel == self.channel
        return True


class MemoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of the items of one principal, newest first; empty and None mean all.

    Without a `place` every scope counts, which is for the owner's own lists.  Expired items never
    match.
    """

    principal: str
    now_ms: int
    place: MemoryPlace | None = None
    kinds: tuple[MemoryKind, ...] = ()
    tags: tuple[str, ...] = ()  # an item has all of them
    author: str | None = None
    channel: str | None = None
    session_id: str | None = None
    since_ms: int | None = None  # of the statement
    until_ms: int | None = None  # exclusive
    as_of_ms: int | None = None  # as the memory was: with items superseded later
    with_superseded: bool = False
    with_hidden: bool = False  # items that are never recalled
    standing: bool = False  # preferences and pinned items only
    before: str | None = None  # last memory_id of the previous page
    limit: int = 100


class CandidateFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of candidates, newest first; empty and None mean all."""

    principal: str | None
    states: tuple[CandidateState, ...] = ()
    kinds: tuple[CandidateKind, ...] = ()
    keys: tuple[str, ...] = ()
    memory_ids: tuple[str, ...] = ()
    before: str | None = None  # last candidate_id of the previous page
    limit: int = 100


class ScoredMemory(msgspec.Struct, frozen=True, kw_only=True):
    """An item that matched a search in the text index, with its bm25 score, higher is better."""

    row: int
    lexical: float
    item: MemoryRecord


class UnembeddedItem(msgspec.Struct, frozen=True, gc=False):
    """An item without a vector."""

    row: int
    principal: str
    text_hash: str
    text: str


class MemoryLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the memory, without text; `memory_id` is * for a whole principal."""

    entry: int
    principal: str
    memory_id: str
    action: MemoryAction
    at_ms: int
    by: str


class MemoryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of items of a principal, or of all."""

    total: int = 0
    items: int = 0  # that a search may return
    by_kind: dict[str, int] = {}
    superseded: int = 0
    never_recall: int = 0
    pinned: int = 0
    expiring: int = 0
    without_vector: int = 0
    text_bytes: int = 0


class SaidText(NamedTuple):
    """A user's message, a model's text or a tool's output on a tape."""

    run_id: str
    session_id: str
    seq: int
    at_ms: int
    is_user: bool
    text: str
    is_output: bool = False  # of a tool
    trust: Trust = "mixed"


class SaidTexts(NamedTuple):
    """Texts of earlier conversations that match a search, best first."""

    texts: list[SaidText]
    degraded: str  # why a part of the search was left out; "" if none was


class UsageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of the ledger; None and 0 mean all."""

    principal: str | None = None
    agent: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    model: str | None = None  # a whole name, or a prefix and *
    since_ms: int = 0
    until_ms: int | None = None  # exclusive

    @property
    def model_family(self) -> str | None:
        """The prefix of `model`; None if it is a whole name."""
        if self.model is None or not self.model.endswith("*"):
            return None
        return self.model[:-1]


UsageBy = Literal["principal", "agent", "session", "run", "model"]
UsageInterval = Literal["hour", "day"]


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of the calls of one group."""

    key: str = ""  # of the group; "" for all
    from_ms: int = 0  # with a grain: start of the interval
    last_ms: int = 0  # the newest call
    calls: int = 0
    broken_calls: int = 0  # without a complete turn
    estimated_calls: int = 0  # with tokens estimated by the daemon
    unpriced_calls: int = 0  # with unknown cost, which the sum leaves out
    input_tokens: int = 0
    cached_tokens: int = 0  # of the input
    output_tokens: int = 0
    cost_usd_micros: int = 0


class ChainViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A row or a signed root that fails verification."""

    kind: Literal["edited", "missing", "inserted", "reordered", "truncated", "root"]
    position: int | None
    run_id: str | None
    seq: int | None
    detail: str


MAX_FOUND = 20  # breaks that a report describes; one fault in the middle can break every later row


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a verification; `first_break` is None if everything is valid.

    `found` has the first of the `breaks`, at most `MAX_FOUND`.
    """

    checked_events: int
    checked_roots: int
    through_position: int
    signed_through_position: int
    purged_events: int = 0  # of the checked ones: without their payload, by a recorded purge
    pruned_events: int = 0  # of the purged ones: by retention
    first_break: ChainViolation | None = None
    breaks: int = 0
    found: tuple[ChainViolation, ...] = ()


class FilesLost(msgspec.Struct, frozen=True, kw_only=True):
    """Files of the open journal that were removed, replaced or shortened."""

    found: str  # each file and its fate
    copy: str = ""  # path of the database saved beside; "" if the database needs none
    keys: str = ""  # paths of the copies of lost keys, if the rest is in place
    problem: str = ""  # why no copy could be made


class OpenReport(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of opening the journal."""

    schema_version: int
    migrated_from: int | None
    owner_epoch: int
    was_clean: bool
    head_position: int
    verification: VerifyReport
    notes: tuple[str, ...] = ()  # repaired without loss, worth a log line (a torn last root line)
    incidents: tuple[IncidentRecord, ...] = ()  # unresolved, oldest first
    restored: Restoration | None = None  # since a backup was restored, this is the first opening
    newest_ids: tuple[str, ...] = ()  # the newest of each kind
