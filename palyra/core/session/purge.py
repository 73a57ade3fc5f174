"""Purge of a session: the request, the reply, and the records that change.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from palyra.core.journal.records import (
    Lineage,
    LineageTrim,
    MemoryRecord,
    RunRecord,
    SessionPurge,
    SessionRecord,
    WorkRemoval,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.tape.events import RunPurged, encode_event
from palyra.errors import IllegalState

PURGED = "purged"  # reason of a purged run, in place of its own


class PurgeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request to remove the content of a session for good."""

    session_id: str
    cancel: bool = False  # its open runs first; otherwise one of them refuses the request
    dry_run: bool = False


class SessionPurged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts of removed content; of a dry run, content to remove; of a repeated purge, the rest."""

    session_id: str
    purge_id: str = ""  # "": a dry run
    by: str = ""
    requested_ms: int = 0
    done_ms: int | None = None
    dry_run: bool = False
    runs: int = 0
    events: int = 0  # whose payloads were removed
    items: int = 0  # of memory
    tasks: int = 0
    schedules: int = 0
    artifacts: int = 0
    file_checkpoints: int = 0
    document_entries: int = 0  # items that workspace documents show
    branches: tuple[str, ...] = ()  # other sessions that inherited a part of the conversation
    # Schedules that ran here without naming the session: they go on, with their texts.
    continuing: tuple[str, ...] = ()


class ItemPlan(NamedTuple):
    """Items of memory that go, and what is left of the lineage of others."""

    gone: tuple[str, ...]
    trims: tuple[LineageTrim, ...]


class SessionWork(NamedTuple):
    """Ids of the tasks and schedules of a session, ended and removed ones included."""

    tasks: list[str]
    schedules: list[str]
    continuing: tuple[str, ...]  # schedules of such tasks that name neither session nor key


def run_is_open(run_id: str) -> IllegalState:
    """Return the error for a session with a run that has not ended."""
    return IllegalState(
        f"{run_id} has not ended: cancel it, or let the purge cancel the session's open runs",
        details={"run_id": run_id},
    )


def mark_purged(record: SessionRecord, purge: SessionPurge) -> SessionRecord:
    """Return the record with the request: archived, in a new epoch, without names, title and pins.

    A record with a request keeps the first one.
    """
    if record.purge is not None:
        return record
    return msgspec.structs.replace(
        record,
        purge=purge,
        key=None,
        agent=None,
        channel=None,
        conversation_id=None,
        pins=(),
        waiting=(),
        title="",
        epoch=record.epoch + 1,
        archived_ms=record.archived_ms or purge.requested_ms,
        updated_ms=purge.requested_ms,
    )


def work_of(record: SessionRecord) -> WorkRemoval:
    """Return the removal of the session's tasks and schedules; its key is gone after `mark_purged`."""
    return WorkRemoval(principal=record.principal, session_id=record.session_id, key=record.key)


def mark_done(record: SessionRecord, at_ms: int) -> SessionRecord:
    """Return the record with the end of its purge."""
    if record.purge is None or record.purge.done_ms is not None:
        return record
    done = msgspec.structs.replace(record.purge, done_ms=at_ms)
    return msgspec.structs.replace(record, purge=done, updated_ms=at_ms)


def purge_run(run: RunRecord, row: TapeRow) -> RunRecord:
    """Return the record of a run whose content was removed: its numbers stay."""
    return msgspec.structs.replace(
        run, head_seq=row.seq, reason=PURGED, pending_approvals=0, purged_ms=row.at_ms
    )


def purge_row(run: RunRecord, event: RunPurged, at_ms: int) -> TapeRow:
    """Return the row that records the purge of a run, the last of its tape."""
    return TapeRow(
        run_id=run.run_id,
        session_id=run.session_id,
        seq=event.events,
        at_ms=at_ms,
        kind=RunPurged.KIND,
        principal=run.principal,
        redacted=False,
        data=encode_event(event),
    )


def plan_items(items: Iterable[MemoryRecord], session_id: str, run_ids: Iterable[str]) -> ItemPlan:
    """Decide which items came from the session alone: these go, others lose its runs as lineage."""
    runs = frozenset(run_ids)
    gone: list[str] = []
    trims: list[LineageTrim] = []
    for item in items:
        others = tuple(each for each in item.lineage if each.run_id not in runs)
        if _is_only_from(item, others, session_id):
            gone.append(item.memory_id)
        elif len(others) < len(item.lineage):
            trims.append(LineageTrim(memory_id=item.memory_id, lineage=others))
    return ItemPlan(tuple(gone), tuple(trims))


def _is_only_from(item: MemoryRecord, others: Sequence[Lineage], session_id: str) -> bool:
    is_of_session = item.session_id == session_id
    if item.scope == "session" and is_of_session:
        return True
    return not others and (bool(item.lineage) or is_of_session)


def successor(item: MemoryRecord, gone: Mapping[str, MemoryRecord]) -> str | None:
    """Return what supersedes an item once `gone` is removed; None if it is current again."""
    found = item.superseded_by
    while found is not None and found in gone:
        found = gone[found].superseded_by
    return found
