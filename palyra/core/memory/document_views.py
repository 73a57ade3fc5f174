"""Workspace documents as clients see them: states, versions, and the result of a change."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from palyra.core.journal.records import DocumentCause, DocumentEntry, DocumentRecord

FlagKind = Literal["conflict", "not an entry", "refused", "missing block"]


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A line or an entry that needs a person."""

    block: str
    kind: FlagKind
    reason: str
    line: int = 0  # from 1; 0: of no line
    entry_id: str = ""
    pending: str | None = None  # of a conflict: the text asked for; None: its removal


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a person added or changed."""

    block: str
    entry_id: str
    text: str
    is_new: bool
    before: str = ""


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a person deleted."""

    block: str
    entry_id: str
    text: str


class EntryChange(msgspec.Struct, frozen=True, kw_only=True):
    """Difference of one entry between the file as found and as merged; None: no entry."""

    block: str
    entry_id: str
    before: str | None = None
    after: str | None = None


class DocumentChange(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a change of a document, or of its preview."""

    document: str
    version: int  # the newest one after the change; 0: there is none
    is_preview: bool = False
    is_written: bool = False  # the file was changed, or would be
    checkpoint_id: str | None = None  # restores the file as it was before
    changes: tuple[EntryChange, ...] = ()
    adopted: tuple[Adopted, ...] = ()
    deleted: tuple[Deleted, ...] = ()
    flags: tuple[Flag, ...] = ()
    problem: str = ""  # of `forget`: why the file could not be changed


class DocumentState(msgspec.Struct, frozen=True, kw_only=True):
    """A document in a list."""

    document: str
    exists: bool
    size_bytes: int = 0
    version: int = 0  # the newest recorded one; 0: none
    entries: int = 0
    edits: int = 0  # additions, changes and deletions that no version has yet
    flags: int = 0
    problem: str = ""  # why the file cannot be read


class DocumentList(msgspec.Struct, frozen=True, kw_only=True):
    """All documents of the workspace."""

    workspace: str
    writes: bool  # the daemon may write learned entries (`documents.write`)
    documents: tuple[DocumentState, ...]


class BlockView(msgspec.Struct, frozen=True, kw_only=True):
    """A managed block and its entries, in the order of the file."""

    block: str
    entries: tuple[DocumentEntry, ...]


class DocumentView(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it is in the file now, or as a version had it."""

    document: str
    version: int
    sha256: str
    size_bytes: int
    blocks: tuple[BlockView, ...]
    adopted: tuple[Adopted, ...] = ()
    deleted: tuple[Deleted, ...] = ()
    flags: tuple[Flag, ...] = ()


class DocumentVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version in a history."""

    version: int
    at_ms: int
    cause: DocumentCause
    by: str
    sha256: str
    size_bytes: int
    entries: int
    checkpoint_id: str | None = None
    is_pending: bool = False  # a crash or a failure came before the file was written for certain


class DocumentHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A page of versions, newest first."""

    document: str
    versions: tuple[DocumentVersion, ...]
    next_before: int | None = None


class DocumentChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Notice of a new version."""

    document: str
    version: int
    cause: Literal["apply", "sync", "restore", "forget"]
    by: str
    is_written: bool
    adopted: int
    deleted: int
    flags: int


def view_blocks(blocks: Mapping[str, tuple[DocumentEntry, ...]]) -> tuple[BlockView, ...]:
    """Return the blocks by name."""
    return tuple(BlockView(block=name, entries=own) for name, own in sorted(blocks.items()))


def view_version(record: DocumentRecord) -> DocumentVersion:
    """Return the line of a history."""
    return DocumentVersion(
        version=record.version,
        at_ms=record.at_ms,
        cause=record.cause,
        by=record.by,
        sha256=record.sha256,
        size_bytes=record.size_bytes,
        entries=sum(len(own) for own in record.blocks.values()),
        checkpoint_id=record.checkpoint_id,
        is_pending=record.is_pending,
    )
