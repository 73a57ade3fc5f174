"""Tapes and the roots file in memory."""

from collections.abc import Sequence

import msgspec

from palyra.core.journal.purged_row import make_tombstone
from palyra.core.journal.records import RunRemoval
from palyra.core.journal.tape_row import TapeRow
from palyra.store.journal.append_check import NO_HEAD, ChainLink, TapeHead
from palyra.store.journal.verification import PAGE_ROWS, ChainHead, TapeExtent
from palyra.store.sqlite.tapes import PAGE_BYTES


class MemoryFile:
    """A `File` of bytes."""

    def __init__(self) -> None:
        self.content = bytearray()

    def size_bytes(self) -> int:
        return len(self.content)

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self.content[offset : offset + count])

    def write(self, offset: int, content: bytes) -> None:
        self.content[offset : offset + len(content)] = content

    def truncate(self, size_bytes: int) -> None:
        del self.content[size_bytes:]

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class MemoryTapes:
    """All tapes of one journal, for admission and for verification."""

    def __init__(self) -> None:
        self.links: list[ChainLink] = []  # by position, from 1
        self._tapes: dict[str, list[ChainLink]] = {}  # by seq, from 0

    def append(self, links: Sequence[ChainLink]) -> None:
        self.links += links
        for link in links:
            self._tapes.setdefault(link.row.run_id, []).append(link)

    def purge(self, removal: RunRemoval) -> None:
        """Replace the payloads of a run."""
        for link in self._tapes[removal.run_id][: removal.events]:
            row = msgspec.structs.replace(
                link.row, data=make_tombstone(link.row.data, removal.at_ms)
            )
            self.links[link.position - 1] = ChainLink(link.position, link.hash, row)
            self._tapes[removal.run_id][link.row.seq] = self.links[link.position - 1]

    def find_head(self, run_id: str) -> TapeHead:
        tape = self._tapes.get(run_id)
        return TapeHead(tape[-1].row.seq, tape[-1].hash) if tape else NO_HEAD

    def find_row(self, run_id: str, seq: int) -> TapeRow | None:
        return next((link.row for link in self.read_page(run_id, seq - 1, 1)), None)

    def read_page(
        self, run_id: str, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[ChainLink]:
        """Return rows with seq > after_seq, at least one if there is any."""
        page: list[ChainLink] = []
        room = max_bytes
        start = max(after_seq + 1, 0)
        for link in self._tapes.get(run_id, [])[start : start + limit]:
            room -= len(link.row.data)
            if page and room < 0:
                break
            page.append(link)
        return page

    def read_extent(self) -> TapeExtent:
        return TapeExtent(len(self.links), len(self.links))

    def scan(self, *, after: int, through: int) -> list[ChainLink]:
        return self.links[max(after, 0) : through][:PAGE_ROWS]

    def find_before(self, run_id: str, seq: int) -> ChainHead | None:
        tape = self._tapes.get(run_id, [])[:seq]
        return ChainHead(tape[-1].row.seq, tape[-1].position, tape[-1].hash) if tape else None

    def find_earlier(self, run_id: str, position: int) -> ChainHead | None:
        earlier = [link for link in self._tapes.get(run_id, []) if link.position < position]
        last = max(earlier, default=None)
        return None if last is None else ChainHead(last.row.seq, last.position, last.hash)

    @staticmethod
    def find_cut_tape() -> tuple[str, int] | None:
        """Return None: a tape in memory cannot be cut behind the journal's back."""
        return None

    def read_hashes(self, *, first: int, through: int) -> list[bytes]:
        return [link.hash for link in self.links[first - 1 : through]]

    def read_links(self, run_id: str, *, after_seq: int) -> list[ChainLink]:
        return self.read_page(run_id, after_seq, PAGE_ROWS)
