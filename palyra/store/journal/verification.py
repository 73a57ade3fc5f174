"""Verification of the journal against its chain hashes and signed roots.  Reads, never repairs.

Four checks, each for what the one before cannot detect:

1. Chain hashes detect a changed row, or one missing inside a run.
2. Positions are dense over the whole journal: they detect a row that was moved, added or removed,
   and a tail that was cut off, as the owner row records the last position.
3. Signed roots detect a chain that was recomputed after a change.
4. A row whose payload was removed cannot match its chain hash; the record of the purge, the last
   event of its run, proves it instead (`core.tape.purge`).

`ChainVerifier` reads by position and reports the first violation with its run and seq.  It
continues after a violation, so that an old one does not hide a new one.  A missing row has no
content to name it, so a violation may be reported by position first and named later, when the row
that should follow the missing one is read, or when a run's record counts more events than its tape.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from palyra.core.journal.changes import MAX_FOUND, ChainViolation, VerifyReport
from palyra.core.journal.purged_row import read_tombstone
from palyra.core.journal.retention import PRUNES
from palyra.core.journal.tape_row import GENESIS, link, merkle_root
from palyra.core.tape.events import RunPurged
from palyra.core.tape.purge import find_fault
from palyra.store.journal.append_check import ChainLink
from palyra.store.journal.keys import is_signed_by
from palyra.store.journal.signed_roots import SignedRoot

Kind = Literal["edited", "missing", "inserted", "reordered", "truncated", "root"]

BEFORE_ALL = -(2**63)  # below every position SQLite can store
PAGE_ROWS = 256  # about 2 ms of hashing, which other threads can interrupt
SCAN_BYTES = 4_194_304


class ChainHead(NamedTuple):
    """A row of a run: its seq, position and chain hash."""

    seq: int
    position: int
    hash: bytes


class TapeExtent(NamedTuple):
    """The last position as recorded in the owner row and as found in the tape."""

    claimed_position: int  # written with every commit
    last_position: int


class ChainReader(Protocol):
    """The stored rows, read a page at a time."""

    def read_extent(self) -> TapeExtent: ...
    def scan(self, *, after: int, through: int) -> list[ChainLink]: ...
    def find_before(self, run_id: str, seq: int) -> ChainHead | None: ...
    def find_earlier(self, run_id: str, position: int) -> ChainHead | None: ...
    def find_cut_tape(self) -> tuple[str, int] | None: ...
    def read_hashes(self, *, first: int, through: int) -> list[bytes]: ...
    def read_links(self, run_id: str, *, after_seq: int) -> list[ChainLink]: ...


class ChainFindings:
    """Counts of what was checked, and the violations."""

    def __init__(self) -> None:
        self.events = 0
        self.purged = 0
        self.pruned = 0
        self.roots = 0
        self.breaks = 0
        self.signed_through = 0
        self.found: list[ChainViolation] = []

    @property
    def first(self) -> ChainViolation | None:
        return self.found[0] if self.found else None

    def report(
        self,
        kind: Kind,
        detail: str,
        *,
        position: int | None = None,
        run_id: str | None = None,
        seq: int | None = None,
    ) -> None:
        """Record a violation; the first ones are kept, the others are counted."""
        self.note(
            ChainViolation(kind=kind, position=position, run_id=run_id, seq=seq, detail=detail)
        )

    def note(self, found: ChainViolation) -> None:
        self.breaks += 1
        if len(self.found) < MAX_FOUND:
            self.found.append(found)

    @property
    def unnamed_position(self) -> int | None:
        """Position of the first violation while its event is not known, else None."""
        return None if self.first is None or self.first.run_id else self.first.position

    def name_first(self, run_id: str, seq: int) -> None:
        """Name the event of the first violation if it is not known yet."""
        if self.first is not None and self.unnamed_position is not None:
            self.found[0] = msgspec.structs.replace(self.first, run_id=run_id, seq=seq)

    def conclude(self, through_position: int) -> VerifyReport:
        return VerifyReport(
            checked_events=self.events,
            purged_events=self.purged,
            pruned_events=self.pruned,
            checked_roots=self.roots,
            through_position=through_position,
            signed_through_position=self.signed_through,
            first_break=self.first,
            breaks=self.breaks,
            found=tuple(self.found),
        )


_PRUNED = f'"purge_id":"{PRUNES}'.encode()  # the signature of the purge covers the id
_KNOWN_RUNS = 4_096  # runs whose last hash is cached; others are looked up


class PurgeProofs:
    """The purges of runs, each checked once."""

    def __init__(self, evidence: ChainReader, public_keys: Sequence[bytes]) -> None:
        self._evidence = evidence
        self._keys = public_keys
        self._faults: dict[str, str | None] = {}
        self._pruned: set[str] = set()

    def find_fault(self, run_id: str) -> str | None:
        """Return why the run's rows are not proven by the record of a purge, None if they are."""
        if run_id not in self._faults:
            if len(self._faults) >= _KNOWN_RUNS:
                self._faults.clear()
                self._pruned.clear()
            self._faults[run_id] = find_fault(
                run_id,
                self._rows(run_id),
                lambda text, proof: is_signed_by(self._keys, text, proof),
            )
        return self._faults[run_id]

    def is_pruned(self, run_id: str) -> bool:
        """True if the purge of a run, which has no fault, was an act of retention."""
        return self.find_fault(run_id) is None and run_id in self._pruned

    def _rows(self, run_id: str) -> Iterator[ChainLink]:
        after = BEFORE_ALL
        while page := self._evidence.read_links(run_id, after_seq=after):
            yield from page
            after, last = page[-1].row.seq, page[-1].row
            if last.kind == RunPurged.KIND and _PRUNED in last.data:
                self._pruned.add(run_id)


class ChainVerifier:
    """One pass over the rows, by position."""

    def __init__(self, evidence: ChainReader, *, after: int, public_keys: Sequence[bytes]) -> None:
        """Verify from `after` + 1; 0 verifies the whole journal."""
        self.findings = ChainFindings()
        self._purges = PurgeProofs(evidence, public_keys)
        self._evidence = evidence
        self._extent = evidence.read_extent()
        self._after = after or BEFORE_ALL  # of the last row read
        self._next = after + 1  # the expected position
        self._segment_breaks = 0  # found before the current segment
        self._unexplained = 0  # missing positions whose events are not known
        self._known: dict[str, ChainHead] = {}
        self._covered: list[bytes] | None = None  # hashes below the root under check

    def cover(self, root: SignedRoot | ChainViolation) -> None:
        """Check all rows up to the end of one root, and the root."""
        if isinstance(root, ChainViolation):
            self.findings.note(root)
            return
        self._advance(root.first_position - 1)
        if root.kind == "segment":
            self._end_segment(root)
            return
        self._covered = []
        breaks = self.findings.breaks
        self._advance(root.through_position)
        self._expect(root.through_position + 1)
        if breaks == self.findings.breaks and merkle_root(self._covered).hex() != root.merkle_root:
            self._report_root(root)
        self._covered = None
        self.findings.roots += 1
        self.findings.signed_through = root.through_position

    def finish(self) -> VerifyReport:
        """Check the rows without a root, and the recorded last position."""
        self._advance(self._extent.last_position)
        self._expect(self._extent.claimed_position + 1)
        if self.findings.unnamed_position is not None:
            cut = self._evidence.find_cut_tape()
            if cut is not None:
                self.findings.name_first(*cut)
        return self.findings.conclude(self._extent.last_position)

    def _advance(self, through: int) -> None:
        """Check the rows up to this position."""
        while self._after < through:
            page = self._evidence.scan(after=self._after, through=through)
            if not page:
                return
            for found in page:
                self._check(found)
            self._after = page[-1].position

    def _check(self, found: ChainLink) -> None:
        self.findings.events += 1
        if self._covered is not None:
            self._covered.append(found.hash)
        position, digest, row = found
        if self._is_beyond(found):
            return
        self._expect(position)
        self._next = position + 1
        prev = self._find_prev(found)
        if row.kind == RunPurged.KIND:
            self._require_purge(found)
        if prev is not None and link(prev, position, row) != digest:
            if read_tombstone(row.data) is None:
                self._report_misfit(prev, found)
            else:
                self.findings.purged += 1
                self._require_purge(found)
                self.findings.pruned += self._purges.is_pruned(row.run_id)
        if len(self._known) >= _KNOWN_RUNS:
            self._known.clear()
        self._known[row.run_id] = ChainHead(row.seq, position, digest)

    def _require_purge(self, found: ChainLink) -> None:
        """Report a row of a run whose purge is not proven."""
        fault = self._purges.find_fault(found.row.run_id)
        if fault is not None:
            self._report("edited", fault, found)

    def _report_misfit(self, prev: bytes, found: ChainLink) -> None:
        """Report a row that does not match its hash, unless it belongs to a missing position."""
        position = self.findings.unnamed_position
        if position is not None and link(prev, position, found.row) == found.hash:
            self.findings.name_first(found.row.run_id, found.row.seq)
        else:
            self._report("edited", "the event does not match its hash", found)

    def _is_beyond(self, found: ChainLink) -> bool:
        """True if no writer ever appended a row at this position."""
        if self._next <= found.position <= self._extent.claimed_position:
            return False
        if not self._explain(found.row.run_id, found.row.seq):
            self._report("inserted", "no writer appended the event here", found)
        return True

    def _expect(self, position: int) -> None:
        """Report missing positions before this one."""
        absent = position - self._next
        if absent <= 0:
            return
        is_tail = self._extent.last_position < position
        self.findings.report(
            "truncated" if is_tail else "missing",
            f"positions {self._next} to {position - 1} are missing",
            position=self._next,
        )
        self._unexplained += absent
        self._next = position

    def _find_prev(self, found: ChainLink) -> bytes | None:
        """Return the hash that the row was chained to, None if it is not available."""
        row = found.row
        if row.seq == 0:
            return GENESIS
        before = self._known.get(row.run_id)
        if before is None or before.seq != row.seq - 1:
            before = self._evidence.find_before(row.run_id, row.seq)
        last_seq = -1 if before is None else before.seq
        if before is not None and last_seq == row.seq - 1:
            if before.position > found.position and not self._explain(row.run_id, last_seq):
                self._report("reordered", f"the event is stored before event {last_seq}", found)
                return None
            return before.hash
        if not self._explain(row.run_id, last_seq + 1):
            self._report(
                "edited", f"the event follows event {last_seq}, which no writer allows", found
            )
        return None

    def _explain(self, run_id: str, seq: int) -> bool:
        """True if a missing position was reported for this event; names the violation."""
        if not self._unexplained:
            return False
        self._unexplained -= 1
        self.findings.name_first(run_id, seq)
        return True

    def _end_segment(self, root: SignedRoot) -> None:
        """Start over after a segment; report its violation if it left no other trace."""
        self._expect(root.first_position)
        if self._segment_breaks == self.findings.breaks and root.found is not None:
            self.findings.note(root.found)
        self._segment_breaks = self.findings.breaks
        self._unexplained = 0
        self.findings.signed_through = root.through_position

    def _report_root(self, root: SignedRoot) -> None:
        first = self._evidence.scan(after=root.first_position - 1, through=root.first_position)
        self.findings.report(
            "root",
            f"positions {root.first_position} to {root.through_position} do not match the signed root",
            position=root.first_position,
            run_id=first[0].row.run_id if first else None,
            seq=first[0].row.seq if first else None,
        )

    def _report(self, kind: Kind, detail: str, found: ChainLink) -> None:
        """Report a row, with the seq that its run should have had here."""
        run_id = found.row.run_id
        before = self._known.get(run_id) or self._evidence.find_earlier(run_id, found.position)
        seq = found.row.seq if before is None else min(found.row.seq, before.seq + 1)
        self.findings.report(kind, detail, position=found.position, run_id=run_id, seq=seq)


def verify_journal(
    evidence: ChainReader,
    roots: Iterable[SignedRoot | ChainViolation],
    public_keys: Sequence[bytes],
    *,
    after: int = 0,
    note: Callable[[int], object] | None = None,
) -> VerifyReport:
    """Check all rows after position `after` against their chain hashes and these roots.

    Records of purges must be signed with one of the keys.  `note` gets the last position of each
    root when its rows are checked.
    """
    walk = ChainVerifier(evidence, after=after, public_keys=public_keys)
    for root in roots:
        walk.cover(root)
        if note is not None and isinstance(root, SignedRoot):
            note(root.through_position)
    return walk.finish()


def verify_run(
    evidence: ChainReader,
    roots: Iterable[SignedRoot | ChainViolation],
    public_keys: Sequence[bytes],
    run_id: str,
    claimed_seq: int | None,
) -> VerifyReport:
    """Check the rows of one run against their chain hashes, and the roots that cover them.

    `claimed_seq` is the last seq according to the run's record.
    """
    findings = ChainFindings()
    positions = _check_run(evidence, findings, PurgeProofs(evidence, public_keys), run_id)
    seq = len(positions) - 1
    if claimed_seq is not None and claimed_seq > seq and not findings.breaks:
        detail = f"events {seq + 1} to {claimed_seq} are missing"
        findings.report("truncated", detail, run_id=run_id, seq=seq + 1)
    for root in roots:
        if isinstance(root, ChainViolation):
            findings.note(root)
            continue
        findings.signed_through = root.through_position
        covered = bisect_left(positions, root.first_position)
        if covered < len(positions) and positions[covered] <= root.through_position:
            _check_root(evidence, findings, root, run_id, covered)
    return findings.conclude(evidence.read_extent().last_position)


def _check_run(
    evidence: ChainReader, findings: ChainFindings, purges: PurgeProofs, run_id: str
) -> list[int]:
    """Check every chain hash of the run; return the positions of its rows, sorted."""
    positions: list[int] = []
    before, after = ChainHead(-1, BEFORE_ALL, GENESIS), BEFORE_ALL
    while page := evidence.read_links(run_id, after_seq=after):
        for found in page:
            wrong = _find_wrong(before, found, purges)
            is_purged = read_tombstone(found.row.data) is not None
            findings.purged += is_purged
            findings.pruned += is_purged and purges.is_pruned(run_id)
            if wrong is not None:
                seq = min(found.row.seq, before.seq + 1)
                kind, detail = wrong
                findings.report(kind, detail, position=found.position, run_id=run_id, seq=seq)
            before = ChainHead(found.row.seq, found.position, found.hash)
            positions.append(found.position)
        after = before.seq
    findings.events = len(positions)
    return sorted(positions)


def _find_wrong(
    before: ChainHead, found: ChainLink, purges: PurgeProofs
) -> tuple[Kind, str] | None:
    """Return why the row cannot follow the one before it, None if it can."""
    if found.row.seq != before.seq + 1:
        return "missing", f"event {found.row.seq} follows event {before.seq}"
    is_purged = read_tombstone(found.row.data) is not None
    if not is_purged and link(before.hash, found.position, found.row) != found.hash:
        return "edited", "the event does not match its hash"
    fault = None
    if is_purged or found.row.kind == RunPurged.KIND:
        fault = purges.find_fault(found.row.run_id)
    if fault is not None:
        return "edited", fault
    if found.position < before.position:
        return "reordered", f"the event is stored before event {before.seq}"
    return None


def _check_root(
    evidence: ChainReader, findings: ChainFindings, root: SignedRoot, run_id: str, seq: int
) -> None:
    """Check the stored hashes against one signed root."""
    hashes = evidence.read_hashes(first=root.first_position, through=root.through_position)
    if merkle_root(hashes).hex() != root.merkle_root:
        findings.report(
            "root",
            f"positions {root.first_position} to {root.through_position} do not match the signed root",
            position=root.first_position,
            run_id=run_id,
            seq=seq,
        )
    findings.roots += 1
