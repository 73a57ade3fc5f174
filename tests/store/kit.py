"""Rows, records and stores for the tests of the store; ids are short for readability."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import apsw
import msgspec

from palyra.core.journal.changes import Change
from palyra.core.journal.records import (
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    ChannelRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    PairingRecord,
    RunRecord,
    SessionRecord,
    TokenRecord,
    UsageRecord,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import JournalStore
from palyra.store.files.disk import REAL_DISK, Disk
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.connection import Synchronous
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.memory.journal import MemoryJournal

KEYS = KeyRing(bytes(range(32)))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_750_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class MakeStore(Protocol):
    """A store on the same storage at every call, not opened."""

    def __call__(self) -> JournalStore: ...


def sqlite_journal(
    directory: Path,
    now_ms: Callable[[], int] | None = None,
    *,
    disk: Disk = REAL_DISK,
    synchronous: Synchronous = "full",
) -> SqliteJournal:
    return SqliteJournal(
        directory / "journal.sqlite3",
        KEYS,
        now_ms=now_ms or Clock(),
        disk=disk,
        synchronous=synchronous,
    )


def memory_journal(now_ms: Callable[[], int] | None = None) -> MemoryJournal:
    return MemoryJournal(KEYS, now_ms=now_ms or Clock())


def row(run_id: str, seq: int, **fields: Any) -> TapeRow:
    """An event, the same for the same arguments."""
    plain = TapeRow(
        run_id,
        f"ses_{run_id}",
        seq,
        1_750_000_000_000 + seq,
        "turn.completed",
        "alice",
        redacted=False,
        data=b'{"n":%d}' % seq,
    )
    return msgspec.structs.replace(plain, **fields)


def rows(run_id: str, first: int, count: int) -> Change:
    """A change of consecutive events."""
    return Change(rows=tuple(row(run_id, seq) for seq in range(first, first + count)))


def run(run_id: str, head_seq: int = -1, **fields: Any) -> RunRecord:
    return RunRecord(
        **{
            "run_id": run_id,
            "session_id": f"ses_{run_id}",
            "state": "in_progress",
            "principal": "alice",
            "agent": "default",
            "model": "scripted",
            "created_ms": 1,
            "head_seq": head_seq,
            **fields,
        }
    )


def session(session_id: str, **fields: Any) -> SessionRecord:
    return SessionRecord(
        **{
            "session_id": session_id,
            "principal": "alice",
            "key": None,
            "created_ms": 1,
            "updated_ms": 1,
            **fields,
        }
    )


def approval(approval_id: str, **fields: Any) -> ApprovalRecord:
    return ApprovalRecord(
        **{
            "approval_id": approval_id,
            "run_id": "run_a",
            "session_id": "ses_a",
            "call_id": "call_a",
            "principal": "alice",
            "tool": "shell",
            "risk": "high",
            "summary": "rm \u2028 \U0001f4a5",
            "arguments": msgspec.Raw(b'{"argv": ["rm", "\\u2028"]}'),
            "digest": "00",
            "scopes": ("once", "session"),
            "policy_reason": "asks",
            "requested_ms": 1,
            "expires_ms": 2,
            **fields,
        }
    )


def grant(grant_id: str, **fields: Any) -> GrantRecord:
    return GrantRecord(
        **{
            "grant_id": grant_id,
            "principal": "alice",
            "agent": "default",
            "tool": "shell",
            "key": "git status",
            "decision": "allow",
            "scope": "session",
            "session_id": "ses_a",
            "epoch": 0,
            "approval_id": "apr_a",
            "by": "bob",
            "granted_ms": 1,
            **fields,
        }
    )


def receipt(key: str, **fields: Any) -> IdempotencyRecord:
    return IdempotencyRecord(
        **{
            "principal": "alice",
            "key": key,
            "body_sha256": "00",
            "result": msgspec.Raw(b'{"seq": 0}'),
            "created_ms": 1_750_000_000_000,
            **fields,
        }
    )


def token(token_id: str, **fields: Any) -> TokenRecord:
    return TokenRecord(
        **{
            "token_id": token_id,
            "sha256": f"sha of {token_id}",
            "principal": "alice",
            "role": "client",
            "name": "laptop",
            "created_ms": 1,
            **fields,
        }
    )


def agent(name: str, version: int = 1, **fields: Any) -> AgentRecord:
    return AgentRecord(**{"name": name, "version": version, "instructions": "x", **fields})


def usage(run_id: str, turn: int, **fields: Any) -> UsageRecord:
    return UsageRecord(
        **{
            "run_id": run_id,
            "turn": turn,
            "attempt": 1,
            "session_id": f"ses_{run_id}",
            "principal": "alice",
            "agent": "default",
            "provider": "scripted",
            "model": "scripted",
            "outcome": "completed",
            "input_tokens": 10,
            "output_tokens": 2,
            "cost_usd_micros": 0,
            "at_ms": 1_750_000_000_000,
            **fields,
        }
    )


def budget(budget_id: str, **fields: Any) -> BudgetRecord:
    return BudgetRecord(
        **{
            "budget_id": budget_id,
            "scope": "global",
            "metric": "tokens",
            "window": "day",
            "hard": 5,
            "revision": 1,
            **fields,
        }
    )


def incident(incident_id: str, **fields: Any) -> IncidentRecord:
    return IncidentRecord(
        **{
            "incident_id": incident_id,
            "domain": "run",
            "key": f"key of {incident_id}",
            "severity": "error",
            "summary": "it broke",
            "evidence": {"run_id": "run_a", "times": 3},
            "opened_ms": 1,
            "last_ms": 1,
            **fields,
        }
    )


def channel(name: str, conversation_id: str = "", **fields: Any) -> ChannelRecord:
    return ChannelRecord(
        **{
            "principal": "alice",
            "channel": name,
            "conversation_id": conversation_id,
            "agent": "default",
            "created_ms": 1,
            "updated_ms": 1,
            **fields,
        }
    )


def pairing(pairing_id: str, sender: str, **fields: Any) -> PairingRecord:
    return PairingRecord(
        **{
            "pairing_id": pairing_id,
            "principal": "alice",
            "channel": "chat",
            "sender": sender,
            "state": "pending",
            "code_sha256": "00",
            "requested_ms": 1,
            "expires_ms": 2_000_000_000_000,
            **fields,
        }
    )


def seqs(store: JournalStore, run_id: str) -> list[int]:
    """The committed seqs of a run, read page by page."""
    found: list[int] = []
    after_seq: int | None = -1
    while after_seq is not None:
        page = store.read_tape(run_id, after_seq=after_seq, limit=3)
        found += [event.seq for event in page.rows]
        after_seq = page.next_after_seq
    return found


def abandon(store: SqliteJournal) -> None:
    """End a life without a close: nothing is sealed, the shutdown is not clean."""
    if store._opened is not None:
        held, store._opened = store._opened.held, None
        with suppress(apsw.Error):  # a disk that is gone cannot even be closed well
            held.close()
