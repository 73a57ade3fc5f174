"""Merge of a workspace document: the file, the entries asked for, and the versions before.

The file and the daemon both change entries, so each is merged in three ways: the text that the file
had at the last version (`text`), the text that the daemon had asked for (`asked`), and the two
present ones.

    file      daemon     result
    same      same       nothing
    same      changed    the new text; with an earlier edit of a person: a conflict
    changed   same       adopted: the text of the file, by a person
    changed   changed    the text of the file; a conflict, unless both are equal
    deleted   any        deleted, and never written again

A conflict keeps the file and records the text or the removal that was asked for.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from palyra.core.journal.records import DocumentEntry, DocumentRecord
from palyra.core.memory.document_views import Adopted, Deleted, Flag, FlagKind
from palyra.core.memory.documents import (
    BOM,
    MAX_BLOCKS,
    Document,
    Line,
    ManagedBlock,
    find_fault,
    parse_document,
    render_document,
    render_entry,
)
from palyra.core.trust.labels import Trust
from palyra.errors import InvariantBroken

MAX_REMEMBERED = 1_000  # ids of entries that are not written again, the newest


class Base(NamedTuple):
    """The versions that the file may have: the last one, and one whose write a crash may have cut."""

    versions: tuple[DocumentRecord, ...] = ()  # the newest first

    def by_id(self) -> dict[tuple[str, str], list[DocumentEntry]]:
        """Return the entries by block and id, one for each version that has it."""
        found: dict[tuple[str, str], list[DocumentEntry]] = {}
        for version in self.versions:
            for block, entries in version.blocks.items():
                for entry in entries:
                    found.setdefault((block, entry.entry_id), []).append(entry)
        return found

    def in_all(self, block: str) -> dict[str, DocumentEntry]:
        """Return the entries that every version has: without one, a person deleted it."""
        if not self.versions:
            return {}
        maps = [
            {entry.entry_id: entry for entry in version.blocks.get(block, ())}
            for version in self.versions
        ]
        return {
            entry_id: entry
            for entry_id, entry in maps[0].items()
            if all(entry_id in each for each in maps)
        }

    @property
    def block_names(self) -> frozenset[str]:
        """Names of the blocks that every version has."""
        names = [frozenset(version.blocks) for version in self.versions]
        return frozenset.intersection(*names) if names else frozenset()

    @property
    def removed(self) -> tuple[str, ...]:
        """Ids of entries that a person deleted."""
        return self.versions[0].removed if self.versions else ()

    @property
    def forgotten(self) -> tuple[str, ...]:
        """Ids of entries that are removed wherever they are found."""
        return self.versions[0].forgotten if self.versions else ()


@dataclass(frozen=True, slots=True)
class Author:
    """The owner of the edits that a merge finds, and the checks of their texts."""

    by: str
    trust: Trust
    new_id: Callable[[], str]
    overrides: bool = False  # a restore: what is asked for replaces every edit
    refuse: Callable[[str], str] = lambda _: ""  # why a text is not stored; "" for none
    settles: bool = False  # the person has seen the conflicts: the file's text is final


@dataclass(frozen=True, slots=True)
class Merge:
    """Result of a merge."""

    content: bytes
    blocks: dict[str, tuple[DocumentEntry, ...]]
    removed: tuple[str, ...]
    adopted: tuple[Adopted, ...]
    deleted: tuple[Deleted, ...]
    flags: tuple[Flag, ...]


Asked = Mapping[
    str, Mapping[str, str]
]  # block -> id -> text; a block that is missing stays as it is


def merge(
    name: str,
    content: bytes,
    base: Base,
    asked: Asked,
    author: Author,
    *,
    forget: Collection[str] = (),
) -> Merge:
    """Merge the file with the entries asked for.  Raises IllegalState, TooLarge.

    A block that is missing with its markers is not a deletion of its entries: a branch of a
    repository may not have it.  It is written again when entries are asked for.
    """
    document = parse_document(name, content)
    merger = _Merger(base, author, frozenset(forget) | frozenset(base.forgotten), document)
    pieces: list[bytes | ManagedBlock] = []
    merged: dict[str, tuple[DocumentEntry, ...]] = {}
    for piece in document.pieces:
        if isinstance(piece, bytes):
            pieces.append(piece)
        else:
            block, merged[piece.name] = merger.merge(piece, asked.get(piece.name))
            pieces.append(block)
    for block_name in sorted(base.block_names - document.blocks.keys() - asked.keys()):
        reason = "its markers are not in the file; it is written again with its next entries"
        merger.flags.append(Flag(block=block_name, kind="missing block", reason=reason))
    for block_name in sorted(asked.keys() - document.blocks.keys()):
        block, entries = merger.merge(_new_block(block_name, document.eol), asked[block_name])
        if entries:
            pieces += [_separator(pieces, document.eol), block, b""]
            merged[block_name] = entries
    result = render_document(Document(tuple(pieces), document.eol))
    _verify(name, document, result, merged)
    present = {entry.entry_id for entries in merged.values() for entry in entries}
    removed = dict.fromkeys((*base.removed, *merger.removed))
    return Merge(
        content=result,
        blocks=merged,
        removed=tuple(each for each in removed if each not in present)[-MAX_REMEMBERED:],
        adopted=tuple(merger.adopted),
        deleted=tuple(merger.deleted),
        flags=tuple(merger.flags),
    )


def _new_block(name: str, eol: bytes) -> ManagedBlock:
    begin, end = (f"<!-- palyra:{kind} {name} -->".encode() + eol for kind in ("begin", "end"))
    return ManagedBlock(name, begin, end, ())


def _separator(pieces: Sequence[bytes | ManagedBlock], eol: bytes) -> bytes:
    """Return a line end if the text so far ends within a line."""
    before = render_document(Document(tuple(pieces[-2:])))
    return eol if before.removeprefix(BOM) and not before.endswith((b"\n", b"\r")) else b""


def _verify(
    name: str,
    before: Document,
    content: bytes,
    merged: Mapping[str, Sequence[DocumentEntry]],
) -> None:
    """Read the result again: what is outside and every entry must be as intended."""
    after = parse_document(name, content)
    outside = [piece for piece in after.outside if piece]
    kept = [piece for piece in before.outside if piece]
    entries = {
        block.name: {entry_id: text for entry_id, text in block.entries if entry_id}
        for block in after.blocks.values()
    }
    wanted = {block: {each.entry_id: each.text for each in own} for block, own in merged.items()}
    is_same = (
        b"".join(outside).startswith(b"".join(kept))
        and len(b"".join(outside)) <= len(b"".join(kept)) + 2 * MAX_BLOCKS
    )
    lost = [
        block
        for block, own in wanted.items()
        if any(entries.get(block, {}).get(entry_id) != text for entry_id, text in own.items())
    ]
    if not is_same or lost:
        raise InvariantBroken(f"{name}: the merged document does not read as intended: {lost}")


@dataclass(slots=True)
class _Merger:
    """The merge of all blocks of one document."""

    base: Base
    author: Author
    forget: frozenset[str]
    document: Document
    adopted: list[Adopted] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    _known: dict[tuple[str, str], list[DocumentEntry]] = field(init=False)
    _owners: dict[str, int] = field(init=False)  # id -> number of the line that has it
    _present: frozenset[str] = field(init=False)  # ids anywhere in the file

    def __post_init__(self) -> None:
        """Find the line that owns each id: of copies, the unchanged one, or else the first."""
        self._known = self.base.by_id()
        best: dict[str, tuple[int, int]] = {}  # id -> how well it fits, line
        mentioned: list[str] = []
        for block in self.document.blocks.values():
            for line in block.lines:
                mentioned += line.mentioned
                if line.text is not None and line.entry_id:
                    known = self._find_known(block.name, line.entry_id, line.text)
                    fit = 2 if known is None else int(known.text != line.text)
                    place = fit, line.number
                    best[line.entry_id] = min(place, best.get(line.entry_id, place))
        self._owners = {entry_id: number for entry_id, (_, number) in best.items()}
        self._present = frozenset((*best, *mentioned))

    def merge(
        self, block: ManagedBlock, asked: Mapping[str, str] | None
    ) -> tuple[ManagedBlock, tuple[DocumentEntry, ...]]:
        """Return the new block and its entries."""
        lines: list[Line] = []
        entries: list[DocumentEntry] = []
        for line in block.lines:
            kept, entry = self._merge_line(block, line, asked)
            if entry is not None:
                entries.append(entry)
            if kept is not None:
                lines.append(kept)
        if block.number:  # not for a block that is new in the file
            self._find_deleted(block.name)
        removed = () if self.author.overrides else (*self.base.removed, *self.removed)
        lasting = self._present.union(removed, self.forget)
        for entry_id, text in (asked or {}).items():
            if entry_id not in lasting:
                entries.append(DocumentEntry(entry_id=entry_id, text=text, asked=text))
                lines.append(_line(entry_id, text, _eol_of(block.begin)))
        return ManagedBlock(block.name, block.begin, block.end, tuple(lines), block.number), tuple(
            entries
        )

    def _find_known(self, block: str, entry_id: str, text: str) -> DocumentEntry | None:
        """Return the entry as the file had it; with several versions, the one with this text."""
        found = self._known.get((block, entry_id))
        if not found:
            return None
        return next((entry for entry in found if entry.text == text), found[0])

    def _merge_line(
        self, block: ManagedBlock, line: Line, asked: Mapping[str, str] | None
    ) -> tuple[Line | None, DocumentEntry | None]:
        if line.text is None:
            return self._keep_other(block, line)
        if line.entry_id in self.forget:
            return None, None
        if self._owners.get(line.entry_id) != line.number:
            return self._adopt_new(block, line, self.author.new_id())
        known = self._find_known(block.name, line.entry_id, line.text)
        if known is None:
            kept, entry = self._adopt_new(block, line, line.entry_id)
            if entry is None or asked is None:
                return kept, entry
            return self._answer(block, kept, entry, asked.get(line.entry_id))
        return self._merge_known(block, line, known, asked)

    def _keep_other(
        self, block: ManagedBlock, line: Line
    ) -> tuple[Line | None, DocumentEntry | None]:
        if self.forget.intersection(line.mentioned):
            return None, None
        if line.raw.strip():
            reason = "an entry is one line, `- text`, with one id: join, split or move the line"
            entry_id = line.mentioned[0] if line.mentioned else ""
            self._flag(block, line, "not an entry", reason, entry_id)
        return line, None

    def _adopt_new(
        self, block: ManagedBlock, line: Line, entry_id: str
    ) -> tuple[Line, DocumentEntry | None]:
        assert line.text is not None  # noqa: S101 - the caller has looked
        if self._is_refused(block, line, line.text):
            return line, None
        entry = DocumentEntry(
            entry_id=entry_id, text=line.text, trust=self.author.trust, by=self.author.by
        )
        self.adopted.append(
            Adopted(block=block.name, entry_id=entry_id, text=line.text, is_new=True)
        )
        if line.entry_id == entry_id:
            return line, entry
        return _line(entry_id, line.text, _eol_of(line.raw)), entry

    def _is_refused(self, block: ManagedBlock, line: Line, text: str) -> bool:
        reason = find_fault(text)
        if reason:
            self._flag(block, line, "refused", reason, line.entry_id)
            return True
        reason = self.author.refuse(text)
        if reason:
            self._flag(block, line, "refused", reason, line.entry_id)
        return bool(reason)

    def _merge_known(
        self, block: ManagedBlock, line: Line, known: DocumentEntry, asked: Mapping[str, str] | None
    ) -> tuple[Line | None, DocumentEntry | None]:
        """Merge an entry that the last version has; see the table at the top of this file."""
        assert line.text is not None  # noqa: S101 - the caller has looked
        is_edited = line.text != known.text
        if is_edited and self._is_refused(block, line, line.text):
            return line, None
        now = known
        if is_edited or (known.trust == "workspace" and self.author.settles):
            now = msgspec.structs.replace(
                known, text=line.text, trust=self.author.trust, by=self.author.by
            )
            self.adopted.append(
                Adopted(
                    block=block.name, entry_id=line.entry_id, text=line.text, is_new=False,
                    before=known.text,
                )
            )  # fmt: skip
        if asked is None:
            return line, self._settle(block, line, now)
        return self._answer(block, line, now, asked.get(line.entry_id))

    def _settle(self, block: ManagedBlock, line: Line, now: DocumentEntry) -> DocumentEntry:
        """Report an open conflict; a person who has seen it settles it for the file."""
        if not now.has_conflict:
            return now
        self._flag_conflict(block, line, now)
        if not self.author.settles:
            return now
        return msgspec.structs.replace(now, asked=now.pending, pending=None, has_conflict=False)

    def _answer(
        self, block: ManagedBlock, line: Line, now: DocumentEntry, wanted: str | None
    ) -> tuple[Line | None, DocumentEntry | None]:
        """Apply the text asked for, or the removal."""
        clear = msgspec.structs.replace(now, pending=None, has_conflict=False)
        if wanted == now.text:
            return line, msgspec.structs.replace(clear, asked=wanted)
        if wanted == now.asked and not self.author.overrides:
            return line, clear
        if now.text == now.asked or self.author.overrides:
            if wanted is None:
                return None, None
            entry = DocumentEntry(entry_id=now.entry_id, text=wanted, asked=wanted)
            return _line(now.entry_id, wanted, _eol_of(line.raw)), entry
        entry = msgspec.structs.replace(now, pending=wanted, has_conflict=True)
        self._flag_conflict(block, line, entry)
        return line, entry

    def _flag_conflict(self, block: ManagedBlock, line: Line, entry: DocumentEntry) -> None:
        change = "removed" if entry.pending is None else "changed"
        reason = f"edited by a person, and {change} by the daemon: the file's text is kept"
        self.flags.append(
            Flag(
                block=block.name, kind="conflict", reason=reason, line=line.number,
                entry_id=entry.entry_id, pending=entry.pending,
            )
        )  # fmt: skip

    def _flag(
        self, block: ManagedBlock, line: Line, kind: FlagKind, reason: str, entry_id: str = ""
    ) -> None:
        self.flags.append(
            Flag(block=block.name, kind=kind, reason=reason, line=line.number, entry_id=entry_id)
        )

    def _find_deleted(self, block: str) -> None:
        for entry_id, known in self.base.in_all(block).items():
            if entry_id not in self._present and entry_id not in self.forget:
                self.removed.append(entry_id)
                self.deleted.append(Deleted(block=block, entry_id=entry_id, text=known.text))


def _line(entry_id: str, text: str, eol: bytes) -> Line:
    return Line(0, render_entry(entry_id, text).encode() + eol, text, entry_id)


def _eol_of(raw: bytes) -> bytes:
    return raw[len(raw.rstrip(b"\r\n")) :] or b"\n"
