"""A journal for connection tests: dicts, and commits that happen when the test says so."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import msgspec
import trio

from palyra.core.journal.changes import ChainedRow, Change, TapePage, VerifyReport
from palyra.core.journal.records import (
    RECEIPT_TTL_MS,
    IdempotencyRecord,
    RunRecord,
    SessionRecord,
    TokenRecord,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import JournalStore
from palyra.core.tape.outline import code_of
from palyra.core.tape.search import EventRow, TapeSearch
from palyra.errors import IdempotencyConflict, PalyraError

T = TypeVar("T")


@dataclass
class FakeStore:
    """The reads that connections make."""

    tapes: dict[str, list[TapeRow]] = field(default_factory=lambda: defaultdict(list))
    floors: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    runs: dict[str, RunRecord] = field(default_factory=dict)
    sessions: dict[str, SessionRecord] = field(default_factory=dict)
    receipts: dict[tuple[str, str], IdempotencyRecord] = field(default_factory=dict)
    tokens: dict[str, TokenRecord] = field(default_factory=dict)
    page_rows: int = 1000  # tests make pages small

    def write(self, change: Change) -> None:
        for row in change.rows:
            assert row.seq == len(self.tapes[row.run_id]), "a gap in the tape"
            self.tapes[row.run_id].append(row)
        for record in change.records:
            match record:
                case IdempotencyRecord():
                    found = self.receipts.get((record.principal, record.key), record)
                    age_ms = record.created_ms - found.created_ms
                    if found != record and age_ms < RECEIPT_TTL_MS:
                        raise IdempotencyConflict("the key was used; its first receipt stays")
                    self.receipts[record.principal, record.key] = record
                case TokenRecord():
                    self.tokens[record.sha256] = record
                case SessionRecord():
                    self.sessions[record.session_id] = record
                case RunRecord():
                    self.runs[record.run_id] = record
                case _:
                    raise AssertionError(record)

    def read_tape(self, run_id: str, *, after_seq: int, limit: int, max_bytes: int = 0) -> TapePage:
        del max_bytes
        tape, floor = self.tapes[run_id], self.floors[run_id]
        rows = [row for row in tape if row.seq > after_seq and row.seq >= floor]
        rows = rows[: min(limit, self.page_rows)]
        head = len(tape) - 1
        is_more = bool(rows) and rows[-1].seq < head
        return TapePage(
            rows=rows,
            head_seq=head,
            floor_seq=floor,
            next_after_seq=rows[-1].seq if is_more else None,
            size_bytes=sum(len(row.data) for row in rows),
        )

    def find_session(self, session_id: str) -> SessionRecord | None:
        return self.sessions.get(session_id)

    def find_latest(self, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        last = [self.tapes[each][-1] for each in run_ids if self.tapes[each]]
        return {row.run_id: (row.kind, row.at_ms) for row in last}

    def read_codes(self, run_id: str) -> str:
        return "".join(code_of(row.kind, row.data) for row in self.tapes[run_id])

    def search_tape(self, run_id: str, wanted: TapeSearch) -> tuple[list[EventRow], int | None]:
        del wanted
        return [
            EventRow(seq=row.seq, at_ms=row.at_ms, kind=row.kind, data=row.data)
            for row in self.tapes[run_id]
        ], None

    def read_chain(self, run_id: str, *, after_seq: int, limit: int) -> list[ChainedRow]:
        rows = [row for row in self.tapes[run_id] if row.seq > after_seq]
        return [
            ChainedRow(position=row.seq + 1, hash=bytes([row.seq]), row=row) for row in rows[:limit]
        ]

    def verify(self, run_id: str | None = None) -> VerifyReport:
        total = len(self.tapes[run_id]) if run_id else sum(map(len, self.tapes.values()))
        return VerifyReport(
            checked_events=total,
            checked_roots=0,
            through_position=total,
            signed_through_position=0,
        )

    def find_run(self, run_id: str) -> RunRecord | None:
        return self.runs.get(run_id)

    def list_open_runs(self) -> list[RunRecord]:
        return [run for run in self.runs.values() if not run.is_terminal]

    def find_receipt(self, principal: str, key: str, *, now_ms: int) -> IdempotencyRecord | None:
        del now_ms
        return self.receipts.get((principal, key))

    def find_token(self, sha256: str) -> TokenRecord | None:
        return self.tokens.get(sha256)

    def list_tokens(self) -> list[TokenRecord]:
        return list(self.tokens.values())


@dataclass
class FakeJournal:
    """The journal's handle."""

    store: FakeStore
    reads: int = 0
    failure: PalyraError | None = None
    backlog: int = 0
    is_writable: bool = True

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        self.reads += 1
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        result = query(cast("JournalStore", self.store))
        await trio.lowlevel.checkpoint()  # like the way back from a thread
        return result

    async def find(self, query: Callable[[JournalStore], T]) -> T:
        return await self.read(query)

    async def commit(self, change: Change) -> None:
        await trio.lowlevel.checkpoint()
        self.store.write(change)


def run_record(run_id: str, *, principal: str = "ann", **changes: object) -> RunRecord:
    """A run in progress."""
    record = RunRecord(
        run_id=run_id,
        session_id="ses_1",
        state="in_progress",
        principal=principal,
        agent="default",
        model="scripted",
        created_ms=1,
        head_seq=-1,
    )
    return msgspec.structs.replace(record, **changes)
