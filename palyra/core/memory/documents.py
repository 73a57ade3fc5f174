r"""Workspace documents: text of a person with blocks of entries that the daemon maintains.

    # Notes                                      outside: never changed by a byte
    <!-- palyra:begin facts -->
    - The tests run with make check <!-- mem_0190a… -->
    - Typed by hand                              without an id: a new entry of a person
    <!-- palyra:end facts -->

A marker is a whole line that begins at the first column.  A line that imitates one (other case,
look-alike letters, indentation) is refused, because a person would take it for a marker.  Markers in
a closed code fence, in an indented code block and inside a line are text.

An entry is one line.  Escapes keep any text on it: `\\`, `<\!` and `--\>` (which Markdown renders as
`\`, `<!` and `-->`), and `\u{…}` for characters that end a line or are invisible.  Any other
backslash typed by hand means itself.

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

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from palyra.core.journal.records import DocumentEntry, DocumentRecord
from palyra.core.text.visible import visible
from palyra.core.trust.labels import Trust
from palyra.errors import IllegalState, InvalidParams, InvariantBroken, TooLarge

DOCUMENTS = ("MEMORY.md", "PALYRA.md", "USER.md")  # at the top of the workspace
MAX_DOCUMENT_BYTES = 262_144
MAX_ENTRY_BYTES = 16_384  # as many as a memory item has
MAX_ENTRIES = 1_000  # of one block
MAX_BLOCKS = 32
MAX_REMEMBERED = 1_000  # ids of entries that are not written again, the newest

_BOM = b"\xef\xbb\xbf"
_NAME = r"[a-z][a-z0-9-]{0,31}"
_MARKER = re.compile(rf"<!-- palyra:(begin|end) ({_NAME}) -->[ \t]*")
_BLOCK_NAME = re.compile(_NAME)
_ENTRY_ID = re.compile(r"(?:mem|ent)_[A-Za-z0-9-]{1,64}")
_BULLET = re.compile(r"[ \t]*[-*+][ \t]+(.*)", re.DOTALL)
_WITH_ID = re.compile(rf"(.*?)[ \t]*<!-- ({_ENTRY_ID.pattern}) -->[ \t]*", re.DOTALL)
_MENTIONED = re.compile(rf"<!-- ({_ENTRY_ID.pattern}) -->")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)
# A line that a reader takes for a marker.  Before the match, blanks, case, accents and invisible
# characters are taken away and look-alikes replaced.  Source: confusables.txt of Unicode TS 39.
_ALIKE = re.compile(r"<!?-*p[a4@][l1i|]yr[a4@][:;.]?(?:b[e3][g9][i1l|]n|[e3]nd)")
_LOOKALIKES = str.maketrans(
    {
        char: letter
        for letter, chars in {
            "<": "\u2039\u27e8\u2329\u276e\u02c2\u1438\u227a\u3008",
            "!": "\u01c3\u2d51",
            "-": "\u2212\u02d7\u2796\u2500\u30fc",
            ":": "\u2236\u02d0\u0589\u05c3\ua789\u02f8\u0703\ufe30",
            "p": "\u0440\u03c1\u1d18\u2ca3\u048f",
            "a": "\u0430\u03b1\u0251\u1d00\u237a",
            "l": "\u04cf\u0131\u05c0\u2223\u01c0\u029f\u0456\u03b9\u0625\u0627",
            "y": "\u0443\u03b3\u04af\u028f\u1d8c\u10e7",
            "r": "\u0433\u1d26\u0280\uab47\u2c85",
            "b": "\u044c\u0184\u0185\u0432\u0299\u13cf\u15af",
            "e": "\u0435\u0454\u04bd\u212e\u03b5\u1d07",
            "g": "\u0261\u0581\u050d\u0262\u1d83",
            "n": "\u043f\u03b7\u0578\u057c\u0274",
            "d": "\u0501\u13e7\u146f\u1d05",
        }.items()
        for char in chars
    }
)
_ALIKE_CHARS = 400  # of a line, enough for a marker
_INDENTED_CODE = re.compile(r"(?: {4}| {0,3}\t)")

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


# --- parse and render ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a block, or several that belong together; `entry_id` is empty without an id."""

    number: int
    raw: bytes
    text: str | None = None  # of an entry; None: not an entry
    entry_id: str = ""
    mentioned: tuple[str, ...] = ()  # ids in lines that are not an entry


@dataclass(frozen=True, slots=True)
class Block:
    """A managed block, with the bytes of its markers."""

    name: str
    begin: bytes
    end: bytes
    lines: tuple[Line, ...]
    number: int = 0  # of the line with the first marker

    @property
    def entries(self) -> list[tuple[str, str]]:
        """Ids and texts, in order."""
        return [(line.entry_id, line.text) for line in self.lines if line.text is not None]


@dataclass(frozen=True, slots=True)
class Document:
    """A document: texts outside, and blocks, in order."""

    pieces: tuple[bytes | Block, ...]
    eol: bytes = b"\n"

    @property
    def blocks(self) -> dict[str, Block]:
        """The blocks by name."""
        return {piece.name: piece for piece in self.pieces if isinstance(piece, Block)}

    @property
    def outside(self) -> tuple[bytes, ...]:
        """The texts outside of all blocks."""
        return tuple(piece for piece in self.pieces if isinstance(piece, bytes))


def parse_document(name: str, content: bytes) -> Document:
    """Parse a document.  Raises IllegalState that names the line, and TooLarge."""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise TooLarge(
            f"{name} has {len(content)} bytes; a document has at most {MAX_DOCUMENT_BYTES}"
        )
    raws = content.splitlines(keepends=True)  # of bytes: LF, CR LF, CR
    texts = _decode(name, raws)
    reader = _Reader(name, raws, texts)
    return reader.read()


def _decode(name: str, raws: Sequence[bytes]) -> list[str]:
    """Return each line without its end."""
    texts: list[str] = []
    for number, raw in enumerate(raws, 1):
        if b"\0" in raw:
            raise _damage(name, number, "a NUL byte; only text files are documents")
        body = raw.removeprefix(_BOM) if number == 1 else raw
        try:
            texts.append(body.rstrip(b"\r\n").decode())
        except UnicodeDecodeError:
            raise _damage(name, number, "not UTF-8; save the file as UTF-8") from None
    return texts


def _damage(name: str, number: int, reason: str) -> IllegalState:
    return IllegalState(f"{name}, line {number}: {reason}", details={"line": number})


@dataclass(slots=True)
class _Reader:
    """One pass over the lines."""

    name: str
    raws: list[bytes]
    texts: Sequence[str]
    fence: tuple[str, int] | None = None  # the open fence, and the number of its line
    in_fence: int | None = None  # line of the first marker in the open fence
    pieces: list[bytes | Block] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)  # blocks and their lines

    def read(self) -> Document:
        outside, at = self._take_bom(), 0
        while at < len(self.texts):
            marker = self._find_marker(at)
            if marker is None:
                outside.append(self.raws[at])
                at += 1
                continue
            self.pieces.append(b"".join(outside))
            outside = []
            at = self._read_block(at, *marker)
        if self.fence is not None and self.in_fence is not None:
            raise self._error(
                self.in_fence,
                f"a marker in the code fence that line {self.fence[1]} opens and nothing closes: "
                "close the fence",
            )
        self.pieces.append(b"".join(outside))
        return Document(tuple(self.pieces), self._eol())

    def _take_bom(self) -> list[bytes]:
        """Take the byte order mark off the first line: it is outside of a block that begins there."""
        if not self.raws or not self.raws[0].startswith(_BOM):
            return []
        self.raws[0] = self.raws[0].removeprefix(_BOM)
        return [_BOM]

    def _eol(self) -> bytes:
        first = self.raws[0] if self.raws else b"\n"
        return next((eol for eol in (b"\r\n", b"\n", b"\r") if first.endswith(eol)), b"\n")

    def _find_marker(self, at: int) -> tuple[str, str] | None:
        """Return the kind and the name of a marker outside of fences, None for text."""
        text = self.texts[at]
        if self._is_fenced(text, at + 1):
            if self.in_fence is None and _MARKER.fullmatch(text):
                self.in_fence = at + 1
            return None
        return self._marker(text, at + 1)

    def _marker(self, text: str, number: int) -> tuple[str, str] | None:
        found = _MARKER.fullmatch(text)
        if found is not None:
            return found[1], found[2]
        if looks_like_marker(text):
            raise self._error(
                number,
                f"{visible(text[:80])!r} looks like a marker and is none: write "
                "<!-- palyra:begin NAME --> or <!-- palyra:end NAME --> at the start of the line, with "
                "nothing else on it and a name of a-z, 0-9 and -, or remove the line",
            )
        return None

    def _is_fenced(self, text: str, number: int) -> bool:
        """True for a line of a fenced code block, its fences included.  Source: CommonMark 4.5."""
        found = _FENCE.fullmatch(text)
        if self.fence is None:
            if found is None or (found[1][0] == "`" and "`" in found[2]):
                return False
            self.fence, self.in_fence = (found[1], number), None
            return True
        mark = self.fence[0]
        if found and found[1][0] == mark[0] and len(found[1]) >= len(mark) and not found[2].strip():
            self.fence = None
        return True

    def _read_block(self, at: int, kind: str, name: str) -> int:
        number = at + 1
        if kind == "end":
            raise self._error(
                number, f"the end of a block {name!r} that is not open: remove the line"
            )
        if name in self.seen:
            raise self._error(
                number,
                f"a second block {name!r}; line {self.seen[name]} begins the first: keep one",
            )
        if len(self.seen) >= MAX_BLOCKS:
            raise self._error(number, f"more than {MAX_BLOCKS} blocks")
        self.seen[name] = number
        for end in range(at + 1, len(self.texts)):
            marker = self._marker(self.texts[end], end + 1)
            if marker is None:
                continue
            if marker != ("end", name):
                raise self._error(
                    end + 1,
                    f"<!-- palyra:{marker[0]} {marker[1]} --> in the block {name!r}, which line "
                    f"{number} begins: end that block first",
                )
            inner = _read_lines(self.raws[number:end], self.texts[number:end], number + 1)
            self._check(name, number, inner)
            self.pieces.append(Block(name, self.raws[at], self.raws[end], tuple(inner), number))
            return end + 1
        raise self._error(
            number, f"the block {name!r} has no end: write <!-- palyra:end {name} --> after it"
        )

    def _check(self, name: str, number: int, lines: Sequence[Line]) -> None:
        if sum(line.text is not None for line in lines) > MAX_ENTRIES:
            raise self._error(number, f"the block {name!r} has more than {MAX_ENTRIES} entries")

    def _error(self, number: int, reason: str) -> IllegalState:
        return _damage(self.name, number, reason)


def _read_lines(raws: Sequence[bytes], texts: Sequence[str], first: int) -> list[Line]:
    """Read the lines of a block; an item with continuation lines is not an entry."""
    lines: list[Line] = []
    at = 0
    while at < len(raws):
        end = at + 1
        while _BULLET.fullmatch(texts[at]) and end < len(texts) and _continues(texts[end]):
            end += 1
        if end == at + 1:
            lines.append(_read_line(raws[at], texts[at], first + at))
        else:
            mentioned = tuple(_MENTIONED.findall("\n".join(texts[at:end])))
            lines.append(Line(first + at, b"".join(raws[at:end]), mentioned=mentioned))
        at = end
    return lines


def _continues(text: str) -> bool:
    return text[:1] in {" ", "\t"} and bool(text.strip()) and not _BULLET.fullmatch(text)


def _read_line(raw: bytes, text: str, number: int) -> Line:
    bullet = _BULLET.fullmatch(text)
    body = "" if bullet is None else bullet[1]
    found = _WITH_ID.fullmatch(body)
    shown, entry_id = (found[1], found[2]) if found else (body, "")
    if bullet is None or _MENTIONED.search(shown):  # two entries that were joined, for one
        return Line(number, raw, mentioned=tuple(_MENTIONED.findall(text)))
    if not shown.strip(" \t"):
        return Line(number, raw)
    return Line(number, raw, unescape_entry(shown.strip(" \t")), entry_id)


def looks_like_marker(text: str) -> bool:
    """True for a line that begins like a marker to a reader; code blocks by indentation do not."""
    if _INDENTED_CODE.match(text):
        return False
    folded = unicodedata.normalize("NFKD", text[:_ALIKE_CHARS]).casefold()
    plain = "".join(_plain(char) for char in folded).translate(_LOOKALIKES)
    return _ALIKE.match(plain) is not None


def _plain(char: str) -> str:
    """Return the character, a dash for any dash, and "" for what is not seen."""
    category = unicodedata.category(char)
    if category == "Pd":
        return "-"
    return "" if category in {"Mn", "Me", "Cf", "Cc", "Zs", "Zl", "Zp"} else char


def render_document(document: Document) -> bytes:
    """Return the bytes; the inverse of `parse_document`."""
    return b"".join(
        piece
        if isinstance(piece, bytes)
        else b"".join((piece.begin, *(line.raw for line in piece.lines), piece.end))
        for piece in document.pieces
    )


def render_entry(entry_id: str, text: str) -> str:
    """Return the line of an entry, without its end."""
    return f"- {escape_entry(text)} <!-- {entry_id} -->"


def escape_entry(text: str) -> str:
    """Escape the text so that it stays on one line and within its block."""
    shown = "".join(_escape_char(char) for char in text.replace("\\", "\\\\"))
    shown = shown.replace("<!", "<\\!").replace("-->", "--\\>")
    stripped = shown.strip(" ")
    lead = len(shown) - len(shown.lstrip(" "))
    tail = len(shown) - lead - len(stripped)
    return "\\u{20}" * lead + stripped + "\\u{20}" * tail


def _escape_char(char: str) -> str:
    if char.isascii():
        is_hidden = not char.isprintable()
    else:  # joiners are parts of words and of emoji
        is_hidden = (
            unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} and char not in "\u200c\u200d"
        )
    return f"\\u{{{ord(char):x}}}" if is_hidden else char


_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|([\\!>]))")


def unescape_entry(shown: str) -> str:
    """Return the text of an entry; an unknown escape means itself."""
    return _ESCAPE.sub(_unescape, shown)


def _unescape(found: re.Match[str]) -> str:
    if found[2]:
        return found[2]
    code = int(found[1], 16)
    is_character = code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF  # noqa: PLR2004 - Unicode
    return chr(code) if is_character else found[0]


# --- checks of what is asked for -----------------------------------------------------------------


def check_document(name: str) -> str:
    """Return the name.  Raises InvalidParams for a file that is not a document."""
    if name in DOCUMENTS:
        return name
    near = [known for known in DOCUMENTS if known.casefold() == name.casefold()]
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidParams(
        f"{visible(name[:80])!r} is no document: documents are {', '.join(DOCUMENTS)}, at the top of "
        f"the workspace{hint}",
        field="document",
    )


def check_entries(block: str, entries: Mapping[str, str]) -> None:
    """Raise InvalidParams or TooLarge for entries that no block can hold."""
    if not _BLOCK_NAME.fullmatch(block):
        raise InvalidParams(
            f"block {visible(block[:80])!r}: a name has a-z, 0-9 and -, a letter first, at most 32 "
            "characters",
            field="block",
        )
    if len(entries) > MAX_ENTRIES:
        raise TooLarge(
            f"{len(entries)} entries; a block has at most {MAX_ENTRIES}", field="entries"
        )
    for entry_id, text in entries.items():
        if not _ENTRY_ID.fullmatch(entry_id):
            raise InvalidParams(
                f"{visible(entry_id[:80])!r} is no id of an entry: mem_… or ent_…", field="entries"
            )
        reason = find_fault(text)
        if reason:
            raise InvalidParams(f"entry {entry_id}: {reason}", field="entries")


def find_fault(text: str) -> str:
    """Return why the text cannot be an entry; "" if it can."""
    if not text.strip():
        return "it has no text"
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "it has half of a surrogate pair"
    if "\0" in text:
        return "it has a NUL character"
    if size_bytes > MAX_ENTRY_BYTES:
        return f"it has {size_bytes} bytes, at most {MAX_ENTRY_BYTES}"
    return ""


# --- merge ---------------------------------------------------------------------------------------


class Base(NamedTuple):
    """The versions that the file may have: the last one, and one whose write a crash may have cut."""

    versions: tuple[DocumentRecord, ...] = ()  # the newest first

    def find(self, block: str, entry_id: str, text: str | None) -> DocumentEntry | None:
        """Return the entry as the file had it; with several versions, the one with this text."""
        found = [
            entry
            for version in self.versions
            for entry in version.blocks.get(block, ())
            if entry.entry_id == entry_id
        ]
        return next((entry for entry in found if entry.text == text), found[0] if found else None)

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
    pieces: list[bytes | Block] = []
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


def _new_block(name: str, eol: bytes) -> Block:
    begin, end = (f"<!-- palyra:{kind} {name} -->".encode() + eol for kind in ("begin", "end"))
    return Block(name, begin, end, ())


def _separator(pieces: Sequence[bytes | Block], eol: bytes) -> bytes:
    """Return a line end if the text so far ends within a line."""
    before = render_document(Document(tuple(pieces[-2:])))
    return eol if before.removeprefix(_BOM) and not before.endswith((b"\n", b"\r")) else b""


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
    _owners: dict[str, int] = field(init=False)  # id -> number of the line that has it
    _present: frozenset[str] = field(init=False)  # ids anywhere in the file

    def __post_init__(self) -> None:
        """Find the line that owns each id: of copies, the unchanged one, or else the first."""
        best: dict[str, tuple[int, int]] = {}  # id -> how well it fits, line
        mentioned: list[str] = []
        for block in self.document.blocks.values():
            for line in block.lines:
                mentioned += line.mentioned
                if line.text is not None and line.entry_id:
                    known = self.base.find(block.name, line.entry_id, line.text)
                    fit = 2 if known is None else int(known.text != line.text)
                    place = fit, line.number
                    best[line.entry_id] = min(place, best.get(line.entry_id, place))
        self._owners = {entry_id: number for entry_id, (_, number) in best.items()}
        self._present = frozenset((*best, *mentioned))

    def merge(
        self, block: Block, asked: Mapping[str, str] | None
    ) -> tuple[Block, tuple[DocumentEntry, ...]]:
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
        return Block(block.name, block.begin, block.end, tuple(lines), block.number), tuple(entries)

    def _merge_line(
        self, block: Block, line: Line, asked: Mapping[str, str] | None
    ) -> tuple[Line | None, DocumentEntry | None]:
        if line.text is None:
            return self._keep_other(block, line)
        if line.entry_id in self.forget:
            return None, None
        if self._owners.get(line.entry_id) != line.number:
            return self._adopt_new(block, line, self.author.new_id())
        known = self.base.find(block.name, line.entry_id, line.text)
        if known is None:
            kept, entry = self._adopt_new(block, line, line.entry_id)
            if entry is None or asked is None:
                return kept, entry
            return self._answer(block, kept, entry, asked.get(line.entry_id))
        return self._merge_known(block, line, known, asked)

    def _keep_other(self, block: Block, line: Line) -> tuple[Line | None, DocumentEntry | None]:
        if self.forget.intersection(line.mentioned):
            return None, None
        if line.raw.strip():
            reason = "an entry is one line, `- text`, with one id: join, split or move the line"
            entry_id = line.mentioned[0] if line.mentioned else ""
            self._flag(block, line, "not an entry", reason, entry_id)
        return line, None

    def _adopt_new(
        self, block: Block, line: Line, entry_id: str
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

    def _is_refused(self, block: Block, line: Line, text: str) -> bool:
        reason = find_fault(text)
        if reason:
            self._flag(block, line, "refused", reason, line.entry_id)
            return True
        reason = self.author.refuse(text)
        if reason:
            self._flag(block, line, "refused", reason, line.entry_id)
        return bool(reason)

    def _merge_known(
        self, block: Block, line: Line, known: DocumentEntry, asked: Mapping[str, str] | None
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

    def _settle(self, block: Block, line: Line, now: DocumentEntry) -> DocumentEntry:
        """Report an open conflict; a person who has seen it settles it for the file."""
        if not now.has_conflict:
            return now
        self._flag_conflict(block, line, now)
        if not self.author.settles:
            return now
        return msgspec.structs.replace(now, asked=now.pending, pending=None, has_conflict=False)

    def _answer(
        self, block: Block, line: Line, now: DocumentEntry, wanted: str | None
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

    def _flag_conflict(self, block: Block, line: Line, entry: DocumentEntry) -> None:
        change = "removed" if entry.pending is None else "changed"
        reason = f"edited by a person, and {change} by the daemon: the file's text is kept"
        self.flags.append(
            Flag(
                block=block.name, kind="conflict", reason=reason, line=line.number,
                entry_id=entry.entry_id, pending=entry.pending,
            )
        )  # fmt: skip

    def _flag(
        self, block: Block, line: Line, kind: FlagKind, reason: str, entry_id: str = ""
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
