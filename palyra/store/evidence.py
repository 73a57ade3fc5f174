"""What a verification looks at, and what it finds."""

from typing import Literal, Protocol

import msgspec

from palyra.core.journal import Break, VerifyReport
from palyra.store.admission import Link
from palyra.store.tapes import Extent, Place

Kind = Literal["edited", "missing", "inserted", "reordered", "truncated", "root"]

BEFORE_ALL = -(2**63)  # below every position SQLite can hold
PAGE_ROWS = 256  # about 2 ms of hashing, which other threads can interrupt
PAGE_BYTES = 4_194_304


class Evidence(Protocol):
    """The stored rows, read a page at a time."""

    def read_extent(self) -> Extent: ...
    def scan(self, *, after: int, through: int) -> list[Link]: ...
    def find_before(self, run_id: str, seq: int) -> Place | None: ...
    def find_earlier(self, run_id: str, position: int) -> Place | None: ...
    def find_cut_tape(self) -> tuple[str, int] | None: ...
    def read_hashes(self, *, first: int, through: int) -> list[bytes]: ...
    def read_run(self, run_id: str, *, after_seq: int) -> list[Link]: ...


class Findings:
    """What was checked and what did not hold."""

    def __init__(self) -> None:
        self.events = 0
        self.roots = 0
        self.breaks = 0
        self.signed_through = 0
        self.first: Break | None = None

    def report(
        self,
        kind: Kind,
        detail: str,
        *,
        position: int | None = None,
        run_id: str | None = None,
        seq: int | None = None,
    ) -> None:
        """Note one break; the first is kept, the others are counted."""
        self.note(Break(kind=kind, position=position, run_id=run_id, seq=seq, detail=detail))

    def note(self, found: Break) -> None:
        self.breaks += 1
        self.first = self.first or found

    @property
    def unnamed_position(self) -> int | None:
        """Where the first break is, as long as nobody knows which event stood there."""
        return None if self.first is None or self.first.run_id else self.first.position

    def name_first(self, run_id: str, seq: int) -> None:
        """Say which event the first break is about, if that was open."""
        if self.first is not None and self.unnamed_position is not None:
            self.first = msgspec.structs.replace(self.first, run_id=run_id, seq=seq)

    def conclude(self, through_position: int) -> VerifyReport:
        return VerifyReport(
            checked_events=self.events,
            checked_roots=self.roots,
            through_position=through_position,
            signed_through_position=self.signed_through,
            first_break=self.first,
            breaks=self.breaks,
        )
