"""Workspace documents: apply entries to managed blocks, and adopt the edits of a person.

Owns: nothing that a restart would lose; versions are records of the journal.
Talks to: the files of the workspace (a port), in threads; the journal; the hub.
Written by: learning, while `documents.write` is set; operators (`sync`, `fill`, `restore`, and the
restore of a session);
`memory.forget`.
Never: writes a file of the workspace unless that setting or a person asks for it, or changes text
outside of a managed block.

A version is committed twice: before the file is written, as pending, and afterwards.  A process
that dies in between leaves a file in one of two known states, and neither is taken for an edit
(`core.memory.document_merge.Base`).  The file is compared with the content that was merged just before
it is replaced, and again afterwards; an editor that saves meanwhile causes another merge.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.changes import Change, MemoryFilter
from palyra.core.journal.records import (
    DEFAULT_WORKSPACE,
    DocumentCause,
    DocumentEntry,
    DocumentRecord,
    MemoryKind,
    MemoryRecord,
)
from palyra.core.memory.document_merge import MAX_REMEMBERED, Author, Base, Merge, merge
from palyra.core.memory.document_views import (
    DocumentChange,
    DocumentChanged,
    DocumentHistory,
    DocumentList,
    DocumentState,
    DocumentView,
    EntryChange,
    view_blocks,
    view_version,
)
from palyra.core.memory.documents import DOCUMENTS, check_document, check_entries, parse_document
from palyra.core.memory.items import TypedEntry
from palyra.core.ports import (
    DocumentFiles,
    DocumentVersions,
    Journal,
    JournalStore,
    Notifier,
    NowMs,
    RunBlocking,
)
from palyra.core.redaction.redactor import Redactor
from palyra.errors import Conflict, IllegalState, InvalidParams, NotFound, TooLarge

MAX_ATTEMPTS = 8  # merges of one change, while another program keeps writing the file
_MAX_PENDING = 16  # versions in a row that a crash or a failure left pending
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
PINNED_BLOCK = "pinned"
_PAGE = 200  # memories read at once
_TYPED, _ITEM = "ent_", "mem_"  # prefixes of the ids of entries typed by hand, and of items
_KINDS: Mapping[str, MemoryKind] = {  # of the items, by the name of the block
    "facts": "fact",
    "preferences": "preference",
    "decisions": "decision",
    "procedures": "procedure",
}
Plan = Callable[[bytes, Base], Merge]
KeepTyped = Callable[[Sequence[TypedEntry], Collection[str], str], Awaitable[None]]


class Documents:
    """The documents of one workspace.  Methods of the API take the authenticated caller first."""

    def __init__(  # noqa: PLR0913 - all by name, and each a part of its own
        self,
        journal: Journal,
        files: DocumentFiles,
        hub: Notifier,
        redactor: Redactor,
        *,
        run_blocking: RunBlocking,
        now_ms: NowMs,
        new_id: NewId,
        writes: bool,
        keep_typed: KeepTyped | None = None,
    ) -> None:
        """`keep_typed` gets a person's entries, the ids of deleted ones and the principal."""
        self.writes = writes
        self._keep_typed = keep_typed
        self._journal = journal
        self._files = files
        self._hub = hub
        self._redactor = redactor
        self._run_blocking = run_blocking
        self._now_ms = now_ms
        self._new_id = new_id
        self._turns = {name: trio.Lock() for name in DOCUMENTS}  # one change of a file at a time

    # --- for clients

    async def list_all(self, caller: Caller) -> DocumentList:
        """Return the state of every document; one that cannot be read has a problem."""
        caller.require("documents:read")
        states = [await self._state(name) for name in DOCUMENTS]
        return DocumentList(
            workspace=self._files.workspace, writes=self.writes, documents=tuple(states)
        )

    async def _state(self, document: str) -> DocumentState:
        latest = await self._read_versions(document, limit=1)
        version = latest[0].version if latest else 0
        try:
            found, merged, _ = await self._read(document)
        except (IllegalState, TooLarge) as error:
            return DocumentState(
                document=document, exists=True, version=version, problem=error.message
            )
        return DocumentState(
            document=document,
            exists=found is not None,
            size_bytes=len(found or b""),
            version=version,
            entries=sum(len(own) for own in merged.blocks.values()),
            edits=len(merged.adopted) + len(merged.deleted),
            flags=len(merged.flags),
        )

    async def get(self, caller: Caller, document: str, version: int | None = None) -> DocumentView:
        """Return the blocks in the file, or those of a version.

        Raises NotFound, InvalidParams, and IllegalState for a file with damaged markers.
        """
        caller.require("documents:read")
        check_document(document)
        if version is not None:
            record = await self._get_version(document, version)
            return DocumentView(
                document=document, version=version, sha256=record.sha256,
                size_bytes=record.size_bytes, blocks=view_blocks(record.blocks),
            )  # fmt: skip
        found, merged, versions = await self._read(document)
        if found is None and not versions:
            raise NotFound(f"the workspace has no {document}", field="document")
        content = found or b""
        return DocumentView(
            document=document,
            version=versions[0].version if versions else 0,
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            blocks=view_blocks(merged.blocks),
            adopted=merged.adopted,
            deleted=merged.deleted,
            flags=merged.flags,
        )

    async def history(
        self, caller: Caller, document: str, *, before: int | None = None, limit: int = 100
    ) -> DocumentHistory:
        """Return versions, newest first; `before` is the last version of the previous page."""
        caller.require("documents:read")
        found = await self._read_versions(check_document(document), before=before, limit=limit)
        return DocumentHistory(
            document=document,
            versions=tuple(map(view_version, found)),
            next_before=found[-1].version if len(found) == limit else None,
        )

    async def sync(self, caller: Caller, document: str, *, dry_run: bool = False) -> DocumentChange:
        """Adopt the edits in the file as the caller's; conflicts are settled for the file.

        New lines get their ids in the file.  Raises IllegalState for damaged markers, Conflict for
        a file that another program keeps writing, Unavailable.
        Cancellation: the file is as before or as after; the next merge finds out which.
        """
        caller.require("documents:write")
        check_document(document)
        author = replace(self._author(caller.principal), settles=True)
        plan = partial(merge, document, asked={}, author=author)
        done = await self._change(document, plan, "sync", caller.principal, dry_run=dry_run)
        return await self._remember_typed(done, caller.principal)

    async def restore(
        self, caller: Caller, document: str, version: int, *, dry_run: bool = False
    ) -> DocumentChange:
        """Give every managed block the entries of that version; text outside stays as it is.

        Forgotten entries do not come back.  Raises NotFound and the errors of `sync`.
        Cancellation: as for `sync`.
        """
        caller.require("documents:write")
        record = await self._get_version(check_document(document), version)
        author = replace(self._author(caller.principal), overrides=True)
        plan = partial(_restore, document, record, author)
        done = await self._change(document, plan, "restore", caller.principal, dry_run=dry_run)
        return await self._remember_typed(done, caller.principal)

    async def _remember_typed(self, done: DocumentChange, by: str) -> DocumentChange:
        """Give the memory the entries of a person, also those that an earlier call did not give it."""
        latest = await self._read_versions(done.document, limit=1)
        if self._keep_typed is None or done.is_preview or not latest:
            return done
        typed = [
            TypedEntry(
                _item_id(entry.entry_id),
                _KINDS.get(block, "note"),
                entry.text,
                entry.entry_id.startswith(_TYPED),
            )
            for block, own in latest[0].blocks.items()
            for entry in own
            if entry.text and (entry.by, entry.trust) == (by, "trusted_local")
        ]
        gone = [_item_id(each) for each in latest[0].removed if each.startswith(_TYPED)]
        await self._keep_typed(typed, gone, by)
        return done

    async def restore_all(
        self, caller: Caller, at_ms: int, *, dry_run: bool = False
    ) -> dict[str, int]:
        """Give every document the entries of its newest version at that time, as `restore` does.

        Return the versions of the documents whose files are changed, or would be, by document.  A
        document without a version that old stays as it is.  Raises the errors of `restore`.
        Cancellation: some documents may be restored; the same call completes it.
        """
        caller.require("documents:write")
        restored: dict[str, int] = {}
        for document in DOCUMENTS:
            versions = await self._read_versions(document)
            old = next((v for v in versions if v.at_ms <= at_ms and not v.is_pending), None)
            if old is None:
                continue
            done = await self.restore(caller, document, old.version, dry_run=dry_run)
            if done.is_written:
                restored[document] = old.version
        return restored

    async def fill(self, caller: Caller, document: str, *, dry_run: bool = False) -> DocumentChange:
        """Give the block `pinned` the caller's pinned memories; entries that a person typed stay.

        Left out are items of one channel or session, because every agent of the workspace reads the
        file, and items that were made from a text of others.  An item that is no longer pinned loses
        its entry.  Raises the errors of `apply`.  Cancellation: as for `sync`.
        """
        caller.require("documents:write")
        caller.require("memory:read")
        principal = caller.principal
        pinned = await self._journal.read(partial(_list_pinned, principal, self._now_ms()))
        entries = {item.memory_id: item.text for item in pinned}
        return await self.apply(
            document, PINNED_BLOCK, entries, principal=principal, by_hand=True, dry_run=dry_run
        )

    # --- for the daemon

    async def apply(
        self,
        document: str,
        block: str,
        entries: Mapping[str, str],
        *,
        principal: str,
        by_hand: bool = False,
        dry_run: bool = False,
    ) -> DocumentChange:
        """Give a block these entries, by id; entries that a person typed stay.

        Edits found on the way are adopted with the trust of a file of the workspace, until a person
        confirms them (`sync`).  Raises IllegalState unless `documents.write` is set or a person
        asks (`by_hand`), InvalidParams (also for a secret), TooLarge, and the errors of `sync`.
        Cancellation: as for `sync`.
        """
        if not (self.writes or by_hand):
            raise IllegalState(
                f"{document} was not changed: set write = true in the section [documents] to let the "
                "daemon write the documents of the workspace"
            )
        check_document(document)
        check_entries(block, entries)
        await self._run_blocking(self._check_secrets, entries)
        asked = {block: dict(entries)}
        plan = partial(merge, document, asked=asked, author=self._passer_by)
        return await self._change(document, plan, "apply", principal, dry_run=dry_run)

    async def read(self, document: str) -> DocumentChange:
        """Return the edits in the file that no version has; nothing is changed.

        Raises IllegalState for damaged markers, TooLarge.
        """
        found, merged, versions = await self._read(check_document(document))
        version = versions[0].version if versions else 0
        return _describe(document, version, found or b"", merged, is_preview=True)

    async def forget(self, entry_ids: Collection[str], *, principal: str) -> list[DocumentChange]:
        """Remove entries from every document, their texts from all versions and checkpoints.

        An entry that comes back with its id (a restored file) is removed by the next change.  A
        document that cannot be changed has a `problem`; its versions lose the texts all the same.
        Raises Unavailable.  Cancellation: repeat the call.
        """
        ids = frozenset(entry_ids)
        found = [await self._forget(name, ids, principal) for name in DOCUMENTS]
        return [change for change in found if change is not None]

    async def forget_items(self, memory_ids: Sequence[str], principal: str) -> None:
        """Remove the entries that show these items of memory, as `forget` does."""
        if wanted := await self.list_shown(memory_ids):
            await self.forget(wanted, principal=principal)

    async def list_shown(self, memory_ids: Sequence[str]) -> list[str]:
        """Return the entries of documents or versions of them that show these items of memory."""
        known = await self._journal.read(self._list_entries)
        texts = [await self._run_blocking(self._read_quietly, name) for name in DOCUMENTS]
        return await self._run_blocking(_find_named, memory_ids, known, texts)

    def _list_entries(self, store: DocumentVersions) -> set[str]:
        """Return the ids of the entries in all versions.  Blocks."""
        return {
            entry.entry_id
            for name in DOCUMENTS
            for version in store.list_document_versions(self._files.workspace, name)
            for own in version.blocks.values()
            for entry in own
        }

    def _read_quietly(self, document: str) -> bytes:
        try:
            return self._files.read(document) or b""
        except (IllegalState, TooLarge):
            return b""  # `forget` reports it

    async def _forget(
        self, document: str, ids: frozenset[str], principal: str
    ) -> DocumentChange | None:
        versions = await self._read_versions(document)
        marks = tuple(f"<!-- {entry_id} -->" for entry_id in sorted(ids))
        problem, content = "", b""
        try:
            found = await self._run_blocking(self._files.read, document)
            content = found or b""
        except (IllegalState, TooLarge) as error:
            problem = error.message
        is_known = any(_names(version, ids) for version in versions)
        if not is_known and not any(mark.encode() in content for mark in marks):
            return None
        plan = partial(merge, document, asked={}, author=self._passer_by, forget=ids)
        change: DocumentChange | None = None
        try:
            change = await self._change(document, plan, "forget", principal, forget=ids)
        except (IllegalState, TooLarge, Conflict) as error:
            problem = error.message
            await self._record_forgotten(document, ids, principal)
        await self._scrub(document, ids)
        await self._run_blocking(self._files.forget, document, marks)
        if change is None:
            latest = await self._read_versions(document, limit=1)
            return DocumentChange(document=document, version=latest[0].version, problem=problem)
        return msgspec.structs.replace(change, checkpoint_id=None)

    async def _record_forgotten(self, document: str, ids: frozenset[str], principal: str) -> None:
        """Commit a version without a change of the file, so that its next change removes the ids."""
        async with self._turns[document]:
            versions = await self._read_versions(document, limit=1)
            last = versions[0] if versions else None
            record = DocumentRecord(
                workspace=self._files.workspace,
                document=document,
                version=last.version + 1 if last else 1,
                sha256=last.sha256 if last else _EMPTY_SHA256,
                size_bytes=last.size_bytes if last else 0,
                cause="forget",
                by=principal,
                at_ms=self._now_ms(),
                blocks=_without(last.blocks, ids) if last else {},
                removed=last.removed if last else (),
                forgotten=_remember(last.forgotten if last else (), ids),
                is_pending=last.is_pending if last else False,
            )
            await self._journal.commit(Change(records=(record,)))

    async def _scrub(self, document: str, ids: frozenset[str]) -> None:
        """Take the texts of these entries out of all versions."""
        versions = await self._read_versions(document)
        scrubbed = [
            msgspec.structs.replace(
                version, blocks=_blanked(version.blocks, ids), scrubs=version.scrubs + 1
            )
            for version in versions
            if _has_text(version, ids)
        ]
        if scrubbed:
            await self._journal.commit(Change(records=tuple(scrubbed)))

    # --- the steps of a change

    async def _change(
        self,
        document: str,
        plan: Plan,
        cause: DocumentCause,
        by: str,
        *,
        dry_run: bool = False,
        forget: frozenset[str] = frozenset(),
    ) -> DocumentChange:
        async with self._turns[document]:
            for _ in range(MAX_ATTEMPTS):
                versions = await self._read_versions(document, limit=_MAX_PENDING)
                found = await self._run_blocking(self._files.read, document)
                content = found or b""
                merged = await self._run_blocking(plan, content, _base(versions))
                version = versions[0].version if versions else 0
                if dry_run or _is_recorded(versions, merged, content, forget):
                    return _describe(document, version, content, merged, is_preview=dry_run)
                record = DocumentRecord(
                    workspace=self._files.workspace,
                    document=document,
                    version=version + 1,
                    sha256=hashlib.sha256(merged.content).hexdigest(),
                    size_bytes=len(merged.content),
                    cause=cause,
                    by=by,
                    at_ms=self._now_ms(),
                    blocks=merged.blocks,
                    removed=merged.removed,
                    forgotten=_remember(versions[0].forgotten if versions else (), forget),
                )
                try:
                    checkpoint_id = await self._write(record, found, merged.content)
                except Conflict:
                    continue
                record = msgspec.structs.replace(record, checkpoint_id=checkpoint_id)
                await self._journal.commit(Change(records=(record,)))
                change = _describe(
                    document, record.version, content, merged, checkpoint_id=checkpoint_id
                )
                self._notify(change, cause, by)
                return change
        raise Conflict(
            f"{document} was changed by another program during each of {MAX_ATTEMPTS} attempts: try "
            "again when nothing else writes it"
        )

    async def _write(
        self, record: DocumentRecord, found: bytes | None, content: bytes
    ) -> str | None:
        """Replace the file after the version is committed as pending.  Raises Conflict."""
        if content == (found or b""):
            return None
        pending = msgspec.structs.replace(record, is_pending=True)
        await self._journal.commit(Change(records=(pending,)))
        return await self._run_blocking(
            self._files.write, record.document, found, content, record.by
        )

    def _notify(self, change: DocumentChange, cause: DocumentCause, by: str) -> None:
        notice = DocumentChanged(
            document=change.document,
            version=change.version,
            cause=cause,
            by=by,
            is_written=change.is_written,
            adopted=len(change.adopted),
            deleted=len(change.deleted),
            flags=len(change.flags),
        )
        self._hub.notify("document.changed", notice, principal=by, scope="documents:read")

    # --- reads

    async def _read(self, document: str) -> tuple[bytes | None, Merge, Sequence[DocumentRecord]]:
        versions = await self._read_versions(document, limit=_MAX_PENDING)
        found = await self._run_blocking(self._files.read, document)
        plan = partial(merge, document, asked={}, author=self._passer_by)
        return found, await self._run_blocking(plan, found or b"", _base(versions)), versions

    async def _read_versions(
        self, document: str, *, before: int | None = None, limit: int = -1
    ) -> list[DocumentRecord]:
        workspace = self._files.workspace
        return await self._journal.read(
            lambda store: store.list_document_versions(
                workspace, document, before=before, limit=limit
            )
        )

    async def _get_version(self, document: str, version: int) -> DocumentRecord:
        found = await self._read_versions(document, before=version + 1, limit=1)
        if not found or found[0].version != version:
            raise NotFound(
                f"{document} has no version {version} (any more): `palyra documents history "
                f"{document}` lists them",
                field="version",
            )
        return found[0]

    # --- texts

    def _author(self, by: str) -> Author:
        """Return the person `by`, whose edits are trusted."""
        return Author(
            by=by, trust="trusted_local", new_id=self._new_entry_id, refuse=self._find_secret
        )

    @property
    def _passer_by(self) -> Author:
        """The unknown person whose edits are found without a request to adopt them."""
        return replace(self._author(""), trust="workspace")

    def _new_entry_id(self) -> str:
        return self._new_id("ent")

    def _find_secret(self, text: str) -> str:
        return "it contains a secret, which is not stored" if self._is_secret(text) else ""

    def _is_secret(self, text: str) -> bool:
        return bool(self._redactor.redact_text(text)[1])

    def _check_secrets(self, entries: Mapping[str, str]) -> None:
        for entry_id, text in entries.items():
            if self._is_secret(text):
                raise InvalidParams(
                    f"entry {entry_id} contains a secret, which is not written", field="entries"
                )


class AllDocuments:
    """The documents of all workspaces, by the workspace's name."""

    def __init__(self, by_workspace: Mapping[str, Documents]) -> None:
        self._by_workspace = by_workspace

    def of(self, workspace: str | None) -> Documents:
        """Return the documents of a workspace, None for the default one.  Raises InvalidParams."""
        found = self._by_workspace.get(workspace or DEFAULT_WORKSPACE)
        if found is None:
            known = ", ".join(sorted(self._by_workspace))
            raise InvalidParams(f"no workspace {workspace!r}; known: {known}", field="workspace")
        return found

    async def forget_items(self, memory_ids: Sequence[str], principal: str) -> None:
        """Remove the entries that show these items of memory, as `Documents.forget` does."""
        for documents in self._by_workspace.values():
            await documents.forget_items(memory_ids, principal)

    async def list_shown(self, memory_ids: Sequence[str]) -> list[str]:
        """Return the entries of documents or versions of them that show these items of memory."""
        shown: dict[str, None] = {}
        for documents in self._by_workspace.values():
            shown |= dict.fromkeys(await documents.list_shown(memory_ids))
        return list(shown)


def _restore(
    document: str, version: DocumentRecord, author: Author, content: bytes, base: Base
) -> Merge:
    """Merge with a version's entries in place of every block; they keep their authors."""
    kept = {
        name: {entry.entry_id: entry for entry in own if entry.text}
        for name, own in version.blocks.items()
    }
    blocks = parse_document(document, content).blocks
    asked = {
        name: {entry_id: entry.text for entry_id, entry in kept.get(name, {}).items()}
        for name in {*blocks, *kept}
    }
    merged = merge(document, content, base, asked, author)
    own = {
        name: tuple(
            _as_recorded(entry, kept.get(name, {}).get(entry.entry_id)) for entry in entries
        )
        for name, entries in merged.blocks.items()
    }
    return Merge(merged.content, own, merged.removed, adopted=(), deleted=(), flags=merged.flags)


def _as_recorded(entry: DocumentEntry, recorded: DocumentEntry | None) -> DocumentEntry:
    if recorded is None or recorded.text != entry.text:
        return entry
    return msgspec.structs.replace(recorded, pending=None, has_conflict=False)


def _base(versions: Sequence[DocumentRecord]) -> Base:
    """Return the versions that the file may have: the pending ones and the one before them."""
    pending = next(
        (number for number, version in enumerate(versions) if not version.is_pending), len(versions)
    )
    return Base(tuple(versions[: pending + 1]))


def _is_recorded(
    versions: Sequence[DocumentRecord], merged: Merge, content: bytes, forget: frozenset[str]
) -> bool:
    """True if the newest version has this merge, and the file needs no change."""
    if merged.content != content:
        return False
    if not versions:
        return not (merged.blocks or forget)
    last = versions[0]
    return (
        not last.is_pending
        and last.blocks == merged.blocks
        and last.removed == merged.removed
        and forget.issubset(last.forgotten)
    )


def _describe(
    document: str,
    version: int,
    before: bytes,
    merged: Merge,
    *,
    is_preview: bool = False,
    checkpoint_id: str | None = None,
) -> DocumentChange:
    old, new = _entries(document, before), _entries(document, merged.content)
    return DocumentChange(
        document=document,
        version=version,
        is_preview=is_preview,
        is_written=before != merged.content,
        checkpoint_id=checkpoint_id,
        changes=tuple(
            EntryChange(block=block, entry_id=entry_id, before=old.get(key), after=new.get(key))
            for key in dict.fromkeys((*old, *new))
            if old.get(key) != new.get(key)
            for block, entry_id in [key]
        ),
        adopted=merged.adopted,
        deleted=merged.deleted,
        flags=merged.flags,
    )


def _entries(document: str, content: bytes) -> dict[tuple[str, str], str]:
    """Return the texts by block and id; lines without an id are left out."""
    return {
        (block.name, entry_id): text
        for block in parse_document(document, content).blocks.values()
        for entry_id, text in block.entries
        if entry_id
    }


# --- memories ------------------------------------------------------------------------------------


def _list_pinned(principal: str, now_ms: int, store: JournalStore) -> list[MemoryRecord]:
    """Return the pinned items of a principal that a document may hold, oldest first.  Blocks."""
    wanted = MemoryFilter(principal=principal, now_ms=now_ms, limit=_PAGE)
    found: list[MemoryRecord] = []
    while page := store.list_memories(wanted):
        found += (
            item
            for item in page
            if item.pinned
            and item.is_live(now_ms)
            and item.scope == "principal"
            and item.trust == "trusted_local"
        )
        wanted = msgspec.structs.replace(wanted, before=page[-1].memory_id)
    return found[::-1]


# --- forgetting ----------------------------------------------------------------------------------


def _find_named(
    memory_ids: Sequence[str], known: Collection[str], texts: Sequence[bytes]
) -> list[str]:
    """Return the ids of entries that a version or a file names."""
    marked = set(_MARK.findall(b"".join(texts)))
    ids = (name for each in memory_ids for name in (each, each.replace(_ITEM, _TYPED, 1)))
    return [each for each in ids if each in known or each.encode() in marked]


def _item_id(entry_id: str) -> str:
    """Return the id of the item that an entry shows, or that is made of one typed by hand."""
    return entry_id.replace(_TYPED, _ITEM, 1) if entry_id.startswith(_TYPED) else entry_id


_MARK = re.compile(rb"<!-- (\S+) -->")
_Blocks = Mapping[str, tuple[DocumentEntry, ...]]


def _remember(known: Sequence[str], ids: Collection[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *sorted(ids))))[-MAX_REMEMBERED:]


def _names(version: DocumentRecord, ids: frozenset[str]) -> bool:
    return any(entry.entry_id in ids for own in version.blocks.values() for entry in own)


def _has_text(version: DocumentRecord, ids: frozenset[str]) -> bool:
    return any(
        entry.entry_id in ids and bool(entry.text or entry.asked or entry.pending)
        for own in version.blocks.values()
        for entry in own
    )


def _without(blocks: _Blocks, ids: frozenset[str]) -> dict[str, tuple[DocumentEntry, ...]]:
    return {
        name: tuple(entry for entry in own if entry.entry_id not in ids)
        for name, own in blocks.items()
    }


def _blanked(blocks: _Blocks, ids: frozenset[str]) -> dict[str, tuple[DocumentEntry, ...]]:
    return {
        name: tuple(
            DocumentEntry(entry_id=entry.entry_id, text="", by=entry.by, trust=entry.trust)
            if entry.entry_id in ids
            else entry
            for entry in own
        )
        for name, own in blocks.items()
    }
