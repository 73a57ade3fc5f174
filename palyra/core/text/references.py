r"""References in a user's message: `@file:path`, `@url:…` and their kin, as spans of the text.

Grammar, in the order in which a reader meets it:

    reference = "@" ("file" | "folder" | "url" | "memory" | "run" | "session" | "mcp" | "prompt") ":" target
              | "@" ("diff" | "staged") [":" target]
    target    = quoted [lines] | bare
    quoted    = one of " ' ` , any text of one line, the same mark again
    lines     = "#L" first ["-" ["L"] last]                     only for a file

- A letter, digit, underscore, slash or `@` directly before the `@` makes it no reference, so e-mail
  addresses, packages and decorators stay text.
- A bare target ends at a blank, at full-width punctuation or before the next reference.  Punctuation
  of the sentence at its end is not part of it; a closing bracket is, if the target opens it.
- `@@file:x` is the literal text `@file:x`.
- Text between lines of three backticks or tildes is pasted code, as is text of one line between equal
  marks of one or two backticks, and a line that begins with `>` is quoted from another author; none of
  them has references.
- Dots alone are the end of a sentence, except that `@folder:.` is the whole workspace.

An unknown kind, an empty target and an unclosed quote leave the text as it is.  Targets and the number
of references are bounded, so the time is linear in the length of a hostile text as well.
"""

import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, cast, get_args
from urllib.parse import parse_qsl, urlencode

ReferenceKind = Literal[
    "file", "folder", "diff", "staged", "url", "memory", "run", "session", "mcp", "prompt"
]
KINDS: tuple[ReferenceKind, ...] = get_args(ReferenceKind)

_OPENING = re.compile(
    r"(?<![A-Za-z0-9_@/])@(?P<literal>@?)"
    r"(?:(?P<named>file|folder|url|memory|run|session|mcp|prompt):(?=\S)"
    r"|(?P<git>diff|staged)(?::(?=[^\s.,;:!?)\]}>*]|\.+[\w/])|(?![\w/@-]|\.\w)))"
)
_FULL_WIDTH = "\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f\u300d\u300f\u3011\u201d\u2019"
MAX_TARGET_CHARS = 2_048  # a longer one is text
MAX_SCANNED = 64  # references of one text; later ones are text
MAX_TRIED = 1_024  # places looked at; the rest of a text with more is text
_BARE = re.compile(rf"[^\s{_FULL_WIDTH}]{{1,{MAX_TARGET_CHARS + 1}}}")
_QUOTES = "\"'`"
_LINES = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?(?![\w-])")
_LINES_AT_END = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?\Z")
_TRAILING = frozenset(".,;:!?'\"`*>\u2026\u00bb")
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_CODE_FENCE = re.compile(r"^ {0,3}(```+|~~~+)", re.MULTILINE)
_INLINE = re.compile(  # a quoted target, or code
    rf"@(?:{'|'.join(KINDS)}):`[^`\n]*`|(?<!`)(?P<mark>`{{1,2}})(?!`)[^\n]*?[^`\n](?P=mark)(?!`)"
)
_QUOTED_LINE = re.compile(r"^ {0,3}>[^\n]*", re.MULTILINE)  # block quote of CommonMark and of mail


class Reference(NamedTuple):
    """A reference and its place in the text."""

    kind: ReferenceKind
    target: str  # "" for a whole diff
    first_line: int | None  # from 1
    last_line: int | None
    start: int  # span of the whole token
    end: int

    @property
    def key(self) -> tuple[str, str, int | None, int | None]:
        """Equal for references to the same thing."""
        return self.kind, self.target, self.first_line, self.last_line

    @property
    def name(self) -> str:
        """The reference in plain form, without quotes."""
        lines = "" if self.first_line is None else f"#L{self.first_line}"
        if self.last_line not in {None, self.first_line}:
            lines += f"-{self.last_line}"
        return f"@{self.kind}:{self.target}{lines}" if self.target else f"@{self.kind}"


def parse_references(text: str) -> tuple[Reference, ...]:
    """Return the references of a message, in order."""
    return tuple(each for each in _scan(text) if isinstance(each, Reference))


def parse_prompt(target: str) -> tuple[str, str, dict[str, str]]:
    """Return server, name and arguments of `SERVER/NAME?ARGUMENT=VALUE&…`, encoded as in a URL.

    Server and name are "" where they are missing.  The last of several values counts.
    """
    place, _, query = target.partition("?")
    server, _, name = place.partition("/")
    return server, name, dict(parse_qsl(query, keep_blank_values=True))


def render_prompt(server: str, name: str, arguments: Mapping[str, str]) -> str:
    """Return the reference of a prompt, which `parse_prompt` reads."""
    query = f"?{urlencode(arguments)}" if arguments else ""
    return f'@prompt:"{server}/{name}{query}"'


def has_references(text: str) -> bool:
    """True if the text has a reference; almost free for one without an `@`."""
    return "@" in text and any(isinstance(each, Reference) for each in _scan(text))


def remove_references(text: str) -> str:
    """Return the text without its references; every other character stays where it is."""
    if "@" not in text:
        return text
    pieces: list[str] = []
    done = 0
    for each in _scan(text):
        start, end = (each.start, each.end) if isinstance(each, Reference) else (each, each + 1)
        pieces.append(text[done:start])
        done = end
    return "".join([*pieces, text[done:]])


def _scan(text: str) -> Iterator[Reference | int]:
    """Yield references, and the index of the first `@` of each literal `@@`."""
    if "@" not in text:
        return
    foreign = _foreign_spans(text)
    starts = [start for start, _ in foreign]
    at = found_count = 0
    for _ in range(MAX_TRIED):
        opening = _OPENING.search(text, at)
        if opening is None or found_count == MAX_SCANNED:
            return
        at = opening.end()
        block = bisect(starts, opening.start()) - 1
        if block >= 0 and opening.start() < foreign[block][1]:
            at = foreign[block][1]
            continue
        found = _read(text, opening) or _read_whole(opening)
        if found is None:
            continue
        at = max(at, found.end)
        found_count += 1
        yield opening.start() if opening["literal"] else found


def _read(text: str, opening: re.Match[str]) -> Reference | None:
    """Return the reference that starts with this opening, literal or not."""
    kind = cast("ReferenceKind", opening["named"] or opening["git"])
    start, at = opening.start(), opening.end()
    if text[at - 1] != ":":
        return Reference(kind, "", None, None, start, at)
    if text[at] in _QUOTES:
        return _read_quoted(text, kind, start, at)
    bare = None if _OPENING.match(text, at) else _BARE.match(text, at)
    if bare is None:
        return None
    following = _OPENING.search(text, at, bare.end())
    end = bare.end() if following is None else following.start()
    if end - at > MAX_TARGET_CHARS:
        return None
    whole, end = end, _trim(text, at, end)
    if end == at and kind == "folder" and text[at:whole] == ".":
        end = whole
    target, first, last = text[at:end], None, None
    lines = _LINES_AT_END.search(target) if kind == "file" else None
    if lines is not None:
        target = target[: lines.start()]
        first, last = _line_range(lines)
    return Reference(kind, target, first, last, start, end) if target else None


def _read_whole(opening: re.Match[str]) -> Reference | None:
    """Return a diff of everything if what follows its colon is no target."""
    if opening["git"] is None:
        return None
    start, end = opening.span()
    return Reference(cast("ReferenceKind", opening["git"]), "", None, None, start, end - 1)


def _read_quoted(text: str, kind: ReferenceKind, start: int, at: int) -> Reference | None:
    most = min(len(text), at + MAX_TARGET_CHARS)
    line_end = text.find("\n", at, most)
    close = text.find(text[at], at + 1, most if line_end < 0 else line_end)
    target = text[at + 1 : close]
    if close < 0 or not target.strip():
        return None
    lines = _LINES.match(text, close + 1) if kind == "file" else None
    if lines is None:
        return Reference(kind, target, None, None, start, close + 1)
    return Reference(kind, target, *_line_range(lines), start, lines.end())


def _line_range(lines: re.Match[str]) -> tuple[int, int]:
    return int(lines[1]), int(lines[2] or lines[1])


def _trim(text: str, start: int, end: int) -> int:
    """Return the end of a bare target without the punctuation of its sentence."""
    open_brackets = dict.fromkeys(_BRACKETS, 0)
    for closing, opening in _BRACKETS.items():
        part = text[start:end]
        open_brackets[closing] = part.count(opening) - part.count(closing)
    while end > start:
        last = text[end - 1]
        if last in _BRACKETS and open_brackets[last] < 0:
            open_brackets[last] += 1
        elif last not in _TRAILING:
            break
        end -= 1
    return end


def _foreign_spans(text: str) -> Sequence[tuple[int, int]]:
    """Return the spans of pasted code and of quoted lines outside of it, in order, none in another."""
    spans = list(_code_spans(text))
    if "`" in text:
        spans += [each.span() for each in _INLINE.finditer(text) if each["mark"]]
    if ">" in text:
        spans += [each.span() for each in _QUOTED_LINE.finditer(text)]
    kept: list[tuple[int, int]] = []
    for span in sorted(spans):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def _code_spans(text: str) -> Sequence[tuple[int, int]]:
    """Return the spans of pasted code blocks; an unclosed one reaches to the end."""
    if "```" not in text and "~~~" not in text:
        return ()
    spans: list[tuple[int, int]] = []
    opened: tuple[int, str] | None = None
    for fence in _CODE_FENCE.finditer(text):
        if opened is None:
            opened = fence.start(), fence[1]
        elif fence[1][0] == opened[1][0] and len(fence[1]) >= len(opened[1]):
            spans.append((opened[0], fence.end()))
            opened = None
    if opened is not None:
        spans.append((opened[0], len(text)))
    return spans
