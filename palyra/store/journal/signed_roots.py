"""Signed roots: a file of lines next to the database that proves what the database contained.

One line per root or segment, appended and synced, never rewritten:
`{"body":{…},"signature":"hex"}`.  The signature covers the exact bytes of the body.  A body names
the SHA-256 of the previous body, so a line cannot be changed, removed or reordered.
A `root` holds the Merkle root of the chain hashes at `first_position..through_position`.  A
`segment` records a chain violation; verification starts over after its `through_position`.  A
segment without a violation records that the journal was restored from a backup.

A line is synced before anything relies on it, so a power cut can tear only the last one.  A torn
line lacks its line end, or has NUL bytes where sectors were not written; JSON has neither.  Only
such a line is cut off.  A complete line that is invalid is evidence: it is reported and kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from palyra.core.journal.backup import Restoration
from palyra.core.journal.changes import ChainViolation
from palyra.store.files.disk import File
from palyra.store.files.free_space import cannot_write
from palyra.store.journal.keys import KeyRing, is_signed_by

_DOMAIN = b"palyra.root.v1\x00"
_CHUNK_BYTES = 65_536  # a line has 500 to 1 000 bytes: the tail of a file is in one chunk


class SignedRoot(msgspec.Struct, frozen=True, kw_only=True):
    """The body of one line."""

    kind: Literal["root", "segment"]
    index: int  # dense from 0 over the file
    journal_id: str
    first_position: int
    through_position: int  # first_position - 1 in a segment
    merkle_root: str  # hex; empty in a segment
    prev: str  # hex SHA-256 of the body before, empty in the first line
    at_ms: int
    key_id: str
    found: ChainViolation | None = None  # why a segment began
    restored: Restoration | msgspec.UnsetType = msgspec.UNSET  # instead, in a restored journal


class _Line(msgspec.Struct, frozen=True):
    body: msgspec.Raw
    signature: str


class _Read(NamedTuple):
    """A line with a valid signature."""

    root: SignedRoot
    digest: str


@dataclass(slots=True)
class SignedRootsFile:
    """The lines of one journal.  Appended by one thread; read by any."""

    file: File
    keys: KeyRing
    journal_id: str
    last: SignedRoot | None = None
    note: str | None = None  # what opening repaired
    breaks: tuple[ChainViolation, ...] = ()  # found by opening after the last segment
    count: int = 0  # lines that should exist; the index of the next one
    _size_bytes: int = 0
    _prev: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of the lines that are durable."""
        return self._size_bytes

    def open(self, expected: int) -> None:
        """Read the end of the file, cut off a torn line, and continue after the last valid line.

        `expected` is the number of lines that the database has recorded.  Raises OSError,
        Unavailable.
        """
        self.count = expected
        self._size_bytes = self.file.size_bytes()
        offset = max(0, self._size_bytes - _CHUNK_BYTES)
        *lines, rest = self.file.read(offset, _CHUNK_BYTES).split(b"\n")
        where = "the roots file"
        if offset:
            del lines[:1]  # a part of a line
            where = f"the last {len(lines)} lines of the roots file"
        lines += self._end_line(rest)
        found = list(self._check(lines, expected, where, is_whole=not offset))
        holding = [each for each in found if isinstance(each, _Read)]
        known = holding[-1].root.index + 1 if holding else 0
        if lines and b"\x00" in lines[-1] and known >= expected:  # the database misses no root
            self._cut(len(lines[-1]) + 1)
            del found[-1]
        if holding:
            self._adopt(holding[-1])
        self.breaks = _behind_segment(found)

    def _end_line(self, rest: bytes) -> list[bytes]:
        """Return an unterminated last line after terminating it; cut it off if it is incomplete."""
        if not rest:
            return []
        if self._parse(rest) is None and len(rest) < _CHUNK_BYTES:
            self._cut(len(rest))
            return []
        self._write(b"\n")
        return [rest]

    def append(
        self,
        *,
        kind: Literal["root", "segment"],
        first: int,
        through: int,
        merkle_root: bytes,
        at_ms: int,
        found: ChainViolation | Restoration | None = None,
    ) -> SignedRoot:
        """Sign and append one line; durable on return.  `found` is the reason of a segment.

        Raises Unavailable, and then the file is as before or ends in a torn line that the next
        append overwrites.
        """
        root = SignedRoot(
            kind=kind,
            index=self.count,
            journal_id=self.journal_id,
            first_position=first,
            through_position=through,
            merkle_root=merkle_root.hex(),
            prev=self._prev,
            at_ms=at_ms,
            key_id=self.keys.key_id,
            found=found if isinstance(found, ChainViolation) else None,
            restored=found if isinstance(found, Restoration) else msgspec.UNSET,
        )
        body = msgspec.json.encode(root)
        signature = self.keys.sign(_DOMAIN + body).hex()
        line = msgspec.json.encode(_Line(msgspec.Raw(body), signature)) + b"\n"
        self._write(line)
        self._adopt(_Read(root, sha256(body).hexdigest()))
        return root

    def entries(self) -> Iterator[SignedRoot | ChainViolation]:
        """Yield every line, in order, with a violation where one is damaged or missing."""
        lines = self._lines(self._size_bytes)
        for found in self._check(lines, self.count, "the roots file", is_whole=True):
            yield found.root if isinstance(found, _Read) else found

    def _check(
        self, lines: Iterable[bytes], expected: int, where: str, *, is_whole: bool
    ) -> Iterator[_Read | ChainViolation]:
        """Yield valid lines and violations; `is_whole` if `lines` starts at the first line."""
        index, prev, is_lost = 0, "", not is_whole
        for number, line in enumerate(lines, 1):
            found = self._parse(line)
            if found is None or found.root.journal_id != self.journal_id:
                is_lost = True
                fault = (
                    "is damaged or signed with another key"
                    if found is None
                    else "belongs to another journal"
                )
                yield root_break(f"line {number} of {where} {fault}")
                continue
            root = found.root
            if not is_lost and root.index != index:
                yield root_break(_describe_jump(root.index, index))
            elif not is_lost and root.prev != prev:
                yield root_break(f"root {index} does not follow the root before it")
            is_lost = False
            yield found
            index, prev = root.index + 1, found.digest
        if index < expected and not is_lost:
            yield root_break(f"roots {index} to {expected - 1} are missing")

    def _adopt(self, found: _Read) -> None:
        """Continue after this line."""
        self.last, self._prev = found
        self.count = max(self.count, found.root.index + 1)

    def _cut(self, count: int) -> None:
        """Remove the last `count` bytes: a line that nothing relies on yet."""
        if count:
            self.note = f"a torn last line of {count} bytes was cut off the roots file"
            self._size_bytes -= count
            self.file.truncate(self._size_bytes)
            self.file.sync()

    def _write(self, line: bytes) -> None:
        try:
            self.file.write(self._size_bytes, line)
            self.file.sync()
        except OSError as error:
            with suppress(OSError):
                self.file.truncate(self._size_bytes)
            raise cannot_write("the roots file", error) from error
        self._size_bytes += len(line)

    def _parse(self, line: bytes) -> _Read | None:
        """Return the line's root, of any journal, if its signature is valid; else None."""
        try:
            parsed = msgspec.json.decode(line, type=_Line)
            root = msgspec.json.decode(parsed.body, type=SignedRoot)
            signature = bytes.fromhex(parsed.signature)
        except (msgspec.MsgspecError, ValueError):
            return None
        body = bytes(parsed.body)
        if not is_signed_by(self.keys.trusted, _DOMAIN + body, signature):
            return None
        return _Read(root, sha256(body).hexdigest())

    def _lines(self, end: int) -> Iterator[bytes]:
        """Yield the lines up to offset `end`, which ends a line, without their line ends."""
        offset, rest = 0, b""
        while offset < end:
            chunk = self.file.read(offset, min(_CHUNK_BYTES, end - offset))
            offset += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines


def read_roots(
    file: File, keys: KeyRing, journal_id: str, *, expected: int
) -> Iterator[SignedRoot | ChainViolation]:
    """Yield every line of a file that no journal has open; see `SignedRootsFile.entries`."""
    roots = SignedRootsFile(file, keys, journal_id, count=expected, _size_bytes=file.size_bytes())
    return roots.entries()


def _behind_segment(found: Sequence[_Read | ChainViolation]) -> tuple[ChainViolation, ...]:
    """Return the violations that no segment has recorded yet."""
    breaks: list[ChainViolation] = []
    for each in found:
        if isinstance(each, ChainViolation):
            breaks.append(each)
        elif each.root.kind == "segment":
            breaks.clear()
    return tuple(breaks)


def _describe_jump(index: int, expected: int) -> str:
    if index < expected:
        return f"root {index} is repeated or out of order"
    return f"roots {expected} to {index - 1} are missing"


def root_break(detail: str) -> ChainViolation:
    return ChainViolation(kind="root", position=None, run_id=None, seq=None, detail=detail)
