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
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from palyra.core.text.visible import visible
from palyra.errors import IllegalState, InvalidParams, TooLarge

DOCUMENTS = ("MEMORY.md", "PALYRA.md", "USER.md")  # at the top of the workspace
MAX_DOCUMENT_BYTES = 262_144
MAX_ENTRY_BYTES = 16_384  # as many as a memory item has
MAX_ENTRIES = 1_000  # of one block
MAX_BLOCKS = 32

BOM = b"\xef\xbb\xbf"
_NAME = r"[a-z][a-z0-9-]{0,31}"
_MARKER = re.compile(rf"<!-- palyra:(begin|end) ({_NAME}) -->[ \t]*")
_BLOCK_NAME = re.compile(_NAME)
_ENTRY_ID = re.compile(r"(?:mem|ent)_[A-Za-z0-9-]{1,64}")
_BULLET = re.compile(r"[ \t]*[-*+][ \t]+(.*)", re.DOTALL)
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
class ManagedBlock:
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

    pieces: tuple[bytes | ManagedBlock, ...]
    eol: bytes = b"\n"

    @property
    def blocks(self) -> dict[str, ManagedBlock]:
        """The blocks by name."""
        return {piece.name: piece for piece in self.pieces if isinstance(piece, ManagedBlock)}

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
        body = raw.removeprefix(BOM) if number == 1 else raw
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
    pieces: list[bytes | ManagedBlock] = field(default_factory=list)
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
        if not self.raws or not self.raws[0].startswith(BOM):
            return []
        self.raws[0] = self.raws[0].removeprefix(BOM)
        return [BOM]

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
            self.pieces.append(
                ManagedBlock(name, self.raws[at], self.raws[end], tuple(inner), number)
            )
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
        is_item = _BULLET.fullmatch(texts[at]) is not None
        while is_item and end < len(texts) and _continues(texts[end]):
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
    shown, entry_id = _split_id(body)
    if bullet is None or _MENTIONED.search(shown):  # two entries that were joined, for one
        return Line(number, raw, mentioned=tuple(_MENTIONED.findall(text)))
    if not shown.strip(" \t"):
        return Line(number, raw)
    return Line(number, raw, unescape_entry(shown.strip(" \t")), entry_id)


def _split_id(body: str) -> tuple[str, str]:
    """Split the id off the end of a line; linear, also for a line of blanks."""
    shown, opening, rest = body.rstrip(" \t").rpartition("<!-- ")
    entry_id = rest.removesuffix(" -->")
    if not opening or entry_id == rest or not _ENTRY_ID.fullmatch(entry_id):
        return body, ""
    return shown, entry_id


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


def without_blocks(content: bytes) -> bytes:
    """Return the content without managed blocks, which show memory of a principal.

    A damaged document loses all from the begin of a block to the next end, and a look-alike begins one.
    """
    if b"palyra" not in content.lower():
        return content
    kept: list[bytes] = []
    is_inside = False
    for raw in content.splitlines(keepends=True):
        text = raw.removeprefix(BOM).decode("utf-8", "replace").rstrip("\r\n")
        marker = _MARKER.fullmatch(text)
        if marker is not None or looks_like_marker(text):
            is_inside = marker is None or marker[1] == "begin"
        elif not is_inside:
            kept.append(raw)
    return b"".join(kept)


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
