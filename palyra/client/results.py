"""What the methods of protocol v1 answer, where no record or command of `core` says it already."""

from typing import Any

import msgspec

from palyra.client.feed import EventFrame, TapeEvent, to_event
from palyra.core.journal.records import (
    ApprovalRecord,
    GrantRecord,
    RunPhase,
    RunRecord,
    SessionRecord,
)
from palyra.core.tool.spec import ToolSpec


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `ping`."""

    now_ms: int


class RunView(RunRecord, frozen=True, kw_only=True):
    """A run as the wire shows it: the record and its derived phase."""

    phase: RunPhase = "in_progress"
    timed_out: bool = False  # of `run.wait` only


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `run.list`, newest first."""

    runs: list[RunView]
    next_cursor: str | None = None


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `session.list`, newest first."""

    sessions: list[SessionRecord]
    next_cursor: str | None = None


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `approval.list`, pending first."""

    approvals: list[ApprovalRecord]


class GrantList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `approval.grants`, newest first."""

    grants: list[GrantRecord]


class TapePage(msgspec.Struct, frozen=True, kw_only=True):
    """Committed events after a cursor; `next_after_seq` is None when the head was reached."""

    events: list[TapeEvent]
    head_seq: int
    floor_seq: int
    next_after_seq: int | None


class RawPage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `tape.read` as sent."""

    events: list[EventFrame]
    head_seq: int
    floor_seq: int = 0
    next_after_seq: int | None = None


def to_page(raw: RawPage) -> TapePage:
    """The page with its payloads decoded."""
    return TapePage(
        events=[to_event(frame) for frame in raw.events],
        head_seq=raw.head_seq,
        floor_seq=raw.floor_seq,
        next_after_seq=raw.next_after_seq,
    )


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token as the daemon shows it; the secret itself only at its making."""

    token_id: str
    principal: str
    role: str
    name: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    token: str | None = None


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `token.list`."""

    tokens: list[Token]


class ToolList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `tool.list`."""

    tools: list[ToolSpec]
    hash: str


class ExportPage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `tape.export`: lines of `core.tape.export`, and a signature over the last one's link."""

    run_id: str
    ndjson: str
    public_key: str
    signature: str  # empty for an empty page
    next_after_seq: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `system.status`; figures over everybody only for who sees everybody."""

    state: str
    version: str
    instance_id: str
    protocol: str
    now_ms: int
    is_writable: bool = True
    journal_backlog: int | None = None
    connections: int | None = None
    stranded_runs: int | None = None
    open_incidents: int | None = None
    problems: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


Json = dict[str, Any]
