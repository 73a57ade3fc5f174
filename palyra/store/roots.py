"""Signed roots: a file of lines beside the database that says what the database held.

One line per root or segment, appended and synced, never rewritten:
`{"body":{…},"signature":"hex"}`.  The signature covers the exact bytes of the body; a body names
the SHA-256 of the body before it, so a line can be neither changed, removed nor reordered.
A `root` holds the Merkle root of the links at `first_position..through_position`.  A `segment`
says that a break was found and that trust begins anew behind `through_position`.

A line is synced before anything relies on it, so only the last one can be torn by a power cut.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from palyra.core.journal import Break
from palyra.errors import Unavailable
from palyra.store.disk import File
from palyra.store.keys import KeyRing, is_signed

_DOMAIN = b"palyra.root.v1\x00"
_CHUNK_BYTES = 65_536  # a line has 500 to 1 000 bytes: the tail of a file is in one chunk


class Root(msgspec.Struct, frozen=True, kw_only=True):
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
    found: Break | None = None  # why a segment began


class _Line(msgspec.Struct, frozen=True):
    body: msgspec.Raw
    signature: str


class _Read(NamedTuple):
    """A line whose signature holds."""

    root: Root
    digest: str


@dataclass(slots=True)
class RootsFile:
    """The lines of one journal.  Appended by one thread; read by any."""

    file: File
    keys: KeyRing
    journal_id: str
    last: Root | None = None
    note: str | None = None  # what opening repaired
    damage: str | None = None  # what opening found and left alone
    _next_index: int = 0
    _size_bytes: int = 0
    _prev: str = ""

    def open(self, expected: int) -> None:
        """Find the last line that holds; cut off what a power cut left behind it.

        `expected` is how many lines the database knows of.  Raises OSError.
        """
        self._next_index = expected
        self._size_bytes = self.file.size_bytes()
        offset = max(0, self._size_bytes - _CHUNK_BYTES)
        *lines, torn = self.file.read(offset, _CHUNK_BYTES).split(b"\n")
        bad: list[bytes] = []
        while lines and self.last is None:
            self._adopt(self._parse(lines[-1]))
            if self.last is None:
                bad.append(lines.pop())
        if len(bad) > 1:
            self.damage = f"the last {len(bad)} lines of the roots file are damaged or not ours"
            bad = []
        self._cut(len(torn) + sum(len(line) + 1 for line in bad))

    def append(
        self,
        *,
        kind: Literal["root", "segment"],
        first: int,
        through: int,
        merkle_root: bytes,
        at_ms: int,
        found: Break | None = None,
    ) -> Root:
        """Sign and append one line; durable on return.

        Raises Unavailable, and then the file is as before or ends in a torn line that the next
        append overwrites.
        """
        root = Root(
            kind=kind,
            index=self._next_index,
            journal_id=self.journal_id,
            first_position=first,
            through_position=through,
            merkle_root=merkle_root.hex(),
            prev=self._prev,
            at_ms=at_ms,
            key_id=self.keys.key_id,
            found=found,
        )
        body = msgspec.json.encode(root)
        signature = self.keys.sign(_DOMAIN + body).hex()
        line = msgspec.json.encode(_Line(msgspec.Raw(body), signature)) + b"\n"
        self._write(line)
        self._adopt(_Read(root, sha256(body).hexdigest()))
        return root

    def entries(self) -> Iterator[Root | Break]:
        """Every line there is now, in order; a Break where one is damaged or missing."""
        return self._check(self._lines(self._size_bytes), self._next_index)

    def _check(self, lines: Iterator[bytes], expected: int) -> Iterator[Root | Break]:
        index, prev, is_lost = 0, "", False
        for number, line in enumerate(lines, 1):
            found = self._parse(line)
            if found is None:
                is_lost = True
                yield root_break(f"line {number} of the roots file is damaged or not ours")
                continue
            root = found.root
            if not is_lost and root.index != index:
                yield root_break(f"roots {index} to {root.index - 1} are missing")
            elif not is_lost and root.prev != prev:
                yield root_break(f"root {index} does not follow the one before it")
            is_lost = False
            yield root
            index, prev = root.index + 1, found.digest
        if index < expected and not is_lost:
            yield root_break(f"roots {index} to {expected - 1} are missing")

    @property
    def count(self) -> int:
        """Lines that should be there."""
        return self._next_index

    def _adopt(self, found: _Read | None) -> None:
        """Continue after this line."""
        if found is not None:
            self.last, self._prev = found
            self._next_index = max(self._next_index, found.root.index + 1)

    def _cut(self, count: int) -> None:
        """Remove the last `count` bytes: a line that nobody relied on yet."""
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
            raise Unavailable(f"the roots file cannot be written: {error}") from error
        self._size_bytes += len(line)

    def _parse(self, line: bytes) -> _Read | None:
        """The line's root when its signature holds, else None."""
        try:
            parsed = msgspec.json.decode(line, type=_Line)
            root = msgspec.json.decode(parsed.body, type=Root)
            signature = bytes.fromhex(parsed.signature)
        except (msgspec.MsgspecError, ValueError):
            return None
        body = bytes(parsed.body)
        if root.journal_id != self.journal_id:
            return None
        if not is_signed(self.keys.public_key, _DOMAIN + body, signature):
            return None
        return _Read(root, sha256(body).hexdigest())

    def _lines(self, end: int) -> Iterator[bytes]:
        """The lines up to offset `end`, which is the end of one, without their line ends."""
        offset, rest = 0, b""
        while offset < end:
            chunk = self.file.read(offset, min(_CHUNK_BYTES, end - offset))
            offset += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines


def root_break(detail: str) -> Break:
    return Break(kind="root", position=None, run_id=None, seq=None, detail=detail)
