"""Memories of other programs: OpenClaw's MEMORY.md and exports of mem0, as drafts of items.

OpenClaw keeps a Markdown file: headings, and a list entry or a paragraph for each memory.  The
headings above an entry become its tags, and their words its kind.  mem0 exports JSON: an array of
objects with the text in `memory`, by itself or in `results` or `memories`.

What other agents wrote is labelled as text of the workspace, not of the user.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import starmap
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import MemoryKind
from palyra.core.memory.items import MAX_TAG_CHARS, MAX_TAGS, MemoryDraft
from palyra.errors import InvalidParams

ForeignFormat = Literal["openclaw", "mem0"]
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_ENTRY = re.compile(r"(\s*)(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.*)$")
_FENCE = re.compile(r"\s*(```|~~~)")
_KINDS: tuple[tuple[re.Pattern[str], MemoryKind], ...] = (
    (re.compile(r"prefer|style|likes", re.IGNORECASE), "preference"),
    (re.compile(r"decision|decided", re.IGNORECASE), "decision"),
    (re.compile(r"procedure|workflow|how[- ]to|playbook", re.IGNORECASE), "procedure"),
    (re.compile(r"fact|about|people|person|project|environment|setup", re.IGNORECASE), "fact"),
)
_LISTS = ("results", "memories", "items", "data")
_TEXTS = ("memory", "text", "data", "content")


def parse_openclaw(text: str) -> list[MemoryDraft]:
    """Return the entries of a MEMORY.md, in order."""
    return list(_Markdown().read(text))


class _Markdown:
    """Reader of one file: the headings above the current line, and the entry that is open."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._lines: list[str] = []
        self._is_code = False

    def read(self, text: str) -> Iterator[MemoryDraft]:
        for line in _without_front_matter(text.splitlines()):
            yield from self._read_line(line)
        yield from self._close()

    def _read_line(self, line: str) -> Iterator[MemoryDraft]:
        if _FENCE.match(line):
            self._is_code = not self._is_code
            self._lines.append(line)
            return
        heading, entry = _HEADING.match(line), _ENTRY.match(line)
        if self._is_code:
            self._lines.append(line)
        elif heading is not None:
            yield from self._close()
            level = len(heading[1])
            self._headings = [each for each in self._headings if each[0] < level]
            self._headings.append((level, heading[2]))
        elif not line.strip():
            yield from self._close()
        elif entry is not None and not entry[1]:
            yield from self._close()
            self._lines.append(entry[2])
        else:
            self._lines.append(line.strip())

    def _close(self) -> Iterator[MemoryDraft]:
        text = "\n".join(self._lines).strip()
        self._lines = []
        if text:
            names = [name for _, name in self._headings]
            yield MemoryDraft(
                text=text,
                kind=_kind_of(names),
                tags=_tags(names),
                source="import",
                trust="workspace",
            )


def _without_front_matter(lines: list[str]) -> list[str]:
    """Leave out the block of YAML between two lines of dashes at the start."""
    if lines and lines[0].strip() == "---":
        for at, line in enumerate(lines[1:], 1):
            if line.strip() == "---":
                return lines[at + 1 :]
    return lines


def _kind_of(headings: list[str]) -> MemoryKind:
    """Return the kind that the nearest heading names."""
    for heading in reversed(headings):
        for pattern, kind in _KINDS:
            if pattern.search(heading):
                return kind
    return "note"


def _tags(names: list[str]) -> tuple[str, ...]:
    plain = (" ".join(re.sub(r"[\x00-\x1f\x7f]", " ", name).split()) for name in names)
    return tuple(dict.fromkeys(name[:MAX_TAG_CHARS] for name in plain if name))[:MAX_TAGS]


def parse_mem0(text: str | bytes) -> list[MemoryDraft]:
    """Return the memories of an export of mem0.  Raises InvalidParams for another format."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidParams(f"not an export of mem0: {error}", field="file") from None
    entries = next(
        (found[name] for name in _LISTS if isinstance(found, dict) and name in found), found
    )
    if not isinstance(entries, list):
        raise InvalidParams("not an export of mem0: no array of memories", field="file")
    return list(starmap(_mem0_entry, enumerate(entries)))


def _mem0_entry(at: int, entry: object) -> MemoryDraft:
    if not isinstance(entry, dict):
        raise InvalidParams(f"memory {at} is no object", field=f"items[{at}]")
    text = next((entry[name] for name in _TEXTS if isinstance(entry.get(name), str)), None)
    if text is None:
        raise InvalidParams(f"memory {at} has no text in `memory`", field=f"items[{at}].text")
    categories = entry.get("categories")
    names = [name for name in categories or () if isinstance(name, str)]
    return MemoryDraft(
        text=text,
        kind="fact",
        tags=_tags(names),
        session_id=_name(entry, "run_id"),
        author=_name(entry, "actor_id"),
        at_ms=_time_of(entry),
        source="import",
        trust="workspace",
    )


def _name(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value.strip() else None


def _time_of(entry: Mapping[str, Any]) -> int | None:
    """Return the time of the last change in milliseconds; None without a valid one."""
    for name in ("updated_at", "created_at"):
        value = entry.get(name)
        if not isinstance(value, str):
            continue
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            continue
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return max(0, round(at.timestamp() * 1000))
    return None
