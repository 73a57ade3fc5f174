"""Facts of all items as arrays, so that a filter is a few comparisons of whole columns.

A row has a slot, its position in the arrays.  Rows are never numbered twice (AUTOINCREMENT), so the
array of rows ascends and a slot is found by binary search.  The slot of a deleted row stays, dead,
until the table is loaded again.  About 75 bytes an item.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palyra.core.journal.changes import MemoryFilter, MemoryPlace
from palyra.store.sqlite.memory_search import MemoryFacts

Mask = NDArray[np.bool_]
Slots = NDArray[np.int64]

NO_SLOT = -1
NEVER_MS = 2**62
_FIRST_CAPACITY = 1_024
_GROWTH = 1.25
_CHARS_PER_WORD = 5  # of English and German text; the length of a document is compared with others'
_NAMES = ("principal", "scope", "channel", "session", "kind", "author")
_TYPES: dict[str, Any] = {
    "row": np.int64,
    "principal": np.int32,
    "scope": np.int8,
    "channel": np.int32,
    "session": np.int32,
    "kind": np.int8,
    "author": np.int32,
    "at_ms": np.int64,
    "expires_ms": np.int64,
    "is_alive": np.bool_,
    "is_current": np.bool_,
    "is_hidden": np.bool_,
    "words": np.uint16,
    "previous": np.int32,
    "next": np.int32,
}


class RowTable:
    """Facts of rows by slot.  Not for concurrent use."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(_FIRST_CAPACITY, kind) for name, kind in _TYPES.items()
        }
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _NAMES}
        self._texts: dict[str, list[str]] = {name: [] for name in _NAMES}
        self._lengths: NDArray[np.float32] | None = None  # until a row changes

    def column(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self.count]

    @property
    def memory_bytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    def put(self, facts: Sequence[MemoryFacts]) -> Slots:
        """Store the facts of rows, in ascending order, and link them; return their slots."""
        self._lengths = None
        known = self.count and self._columns["row"][self.count - 1]
        for each in facts:
            slot = self._append(each.row) if each.row > known else self.find(each.row)
            if slot != NO_SLOT:
                self._write(slot, each)
        return self._link(facts)

    def remove_all_but(self, rows: Slots) -> bool:
        """Mark every other row as deleted; False when there was none."""
        self._lengths = None
        is_kept = np.isin(self.column("row"), rows)
        gone = np.flatnonzero(self.column("is_alive") & ~is_kept)
        self.column("is_alive")[gone] = False
        previous, following = self.column("previous"), self.column("next")
        for slot in gone.tolist():  # cut out of the list of neighbours
            before, after = int(previous[slot]), int(following[slot])
            if before != NO_SLOT:
                following[before] = after
            if after != NO_SLOT:
                previous[after] = before
            previous[slot] = following[slot] = NO_SLOT
        return bool(gone.size)

    def find(self, row: int) -> int:
        """Return the slot of a row, or NO_SLOT."""
        slot = int(np.searchsorted(self.column("row"), row))
        return slot if slot < self.count and self.column("row")[slot] == row else NO_SLOT

    def find_all(self, rows: NDArray[np.int64]) -> Slots:
        """Return the slots of those of the rows that are known, in their order."""
        slots = self._slots_or_none(rows)
        return np.asarray(slots[slots != NO_SLOT])

    def visible(self, wanted: MemoryFilter) -> Mask:
        """Slots that the principal may see from the place, and that live."""
        mask = self.column("is_alive") & self.is_of(wanted.principal)
        mask &= self.column("expires_ms") > wanted.now_ms
        if not (wanted.with_superseded or wanted.as_of_ms is not None):
            mask &= self.column("is_current")
        if not wanted.with_hidden:
            mask &= ~self.column("is_hidden")
        if wanted.place is not None:
            mask &= self._in_place(wanted.place, wanted.principal)
        return mask

    def narrowed(self, visible: Mask, wanted: MemoryFilter) -> Mask:
        """Those of the visible slots that match kind, author, channel, session and time."""
        mask = visible.copy()
        if wanted.kinds:
            codes = [self._code("kind", kind) for kind in wanted.kinds]
            mask &= np.isin(self.column("kind"), codes)
        for name, value in (
            ("author", wanted.author),
            ("channel", wanted.channel),
            ("session", wanted.session_id),
        ):
            if value is not None:
                mask &= self.column(name) == self._code(name, value)
        if wanted.since_ms is not None:
            mask &= self.column("at_ms") >= wanted.since_ms
        if wanted.until_ms is not None:
            mask &= self.column("at_ms") < wanted.until_ms
        return mask

    def embeddable(self, private_author: str | None) -> Mask:
        """Slots that are to have a vector: what searches return, but for texts of this author."""
        mask: Mask = self.column("is_alive") & self.column("is_current")
        mask &= ~self.column("is_hidden")
        return mask if private_author is None else mask & ~self.is_by(private_author)

    def authors(self, visible: Mask) -> list[str]:
        """Names of the authors of these slots."""
        names = self._texts["author"]
        is_there = np.zeros(len(names) + 1, np.bool_)
        is_there[self.column("author")[visible]] = True
        return [name for name, found in zip(names, is_there[1:].tolist(), strict=True) if found]

    def is_of(self, principal: str) -> Mask:
        """Slots of the items of this principal."""
        mask: Mask = self.column("principal") == self._code("principal", principal)
        return mask

    def is_by(self, author: str) -> Mask:
        """Slots of the items of this author."""
        mask: Mask = self.column("author") == self._code("author", author)
        return mask

    def lengths(self) -> NDArray[np.float32]:
        """Estimated words of each slot and its neighbours."""
        if self._lengths is None:
            own = self.column("words").astype(np.float32)
            self._lengths = own + self.shifted(own, "previous") + self.shifted(own, "next")
        return self._lengths

    def shifted(self, values: NDArray[np.float32], neighbour: str) -> NDArray[np.float32]:
        """Return for each slot the value of its neighbour; 0 without one."""
        slots = self.column(neighbour)
        return np.where(slots == NO_SLOT, np.float32(0), values[slots])

    def neighbours(self, name: str, slots: Slots) -> list[int | None]:
        """Return the row of the neighbour of each slot, None without one."""
        found = self.column(name)[slots]
        rows = self.column("row")[found].tolist()
        return [
            None if at == NO_SLOT else row for at, row in zip(found.tolist(), rows, strict=True)
        ]

    def _in_place(self, place: MemoryPlace, principal: str) -> Mask:
        """See `MemoryPlace.sees`.  A channel or session that is None is no place."""
        scope = self.column("scope")
        mask: Mask = scope == self._code("scope", "principal")
        if place.principal != principal:
            return np.zeros_like(mask)
        for name, value in (("channel", place.channel), ("session", place.session_id)):
            if value is not None:
                is_here = self.column(name) == self._code(name, value)
                mask |= (scope == self._code("scope", name)) & is_here
        if place.only_session:
            session = place.session_id
            is_here = self.column("session") == self._code("session", session or "")
            mask &= is_here if session is not None else False
        return mask

    def _code(self, name: str, value: str) -> int:
        """Return the number of a name; of an unknown one a number that no slot has."""
        return self._codes[name].get(value, -1)

    def _intern(self, name: str, value: str | None) -> int:
        """Return the number of a name, from 1; 0 for None."""
        if value is None:
            return 0
        codes = self._codes[name]
        code = codes.get(value)
        if code is None:
            code = codes[value] = len(codes) + 1
            self._texts[name].append(value)
        return code

    def _append(self, row: int) -> int:
        slot = self.count
        capacity = self._columns["row"].size
        if slot == capacity:
            grown = int(capacity * _GROWTH)
            for name, column in self._columns.items():
                self._columns[name] = np.resize(column, grown)
        self.count += 1
        self._columns["row"][slot] = row
        return slot

    def _write(self, slot: int, each: MemoryFacts) -> None:
        columns = self._columns
        columns["principal"][slot] = self._intern("principal", each.principal)
        columns["scope"][slot] = self._intern("scope", each.scope)
        columns["channel"][slot] = self._intern("channel", each.channel)
        columns["session"][slot] = self._intern("session", each.session_id)
        columns["kind"][slot] = self._intern("kind", each.kind)
        columns["author"][slot] = self._intern("author", each.author)
        columns["at_ms"][slot] = each.at_ms
        columns["expires_ms"][slot] = NEVER_MS if each.expires_ms is None else each.expires_ms
        columns["is_alive"][slot] = True
        columns["is_current"][slot] = each.is_current
        columns["is_hidden"][slot] = each.is_hidden
        columns["words"][slot] = min(1 + each.chars // _CHARS_PER_WORD, 65_535)

    def _link(self, facts: Sequence[MemoryFacts]) -> Slots:
        """Set the neighbours of the rows, and the rows as neighbours of theirs."""
        slots = np.array([self.find(each.row) for each in facts], np.int64)
        for column, other, rows in (
            ("previous", "next", [each.previous_row or 0 for each in facts]),
            ("next", "previous", [each.next_row or 0 for each in facts]),
        ):
            neighbours = self._slots_or_none(np.array(rows, np.int64))
            self._columns[column][slots] = neighbours
            has_one = neighbours != NO_SLOT
            self._columns[other][neighbours[has_one]] = slots[has_one]
        return slots

    def _slots_or_none(self, rows: NDArray[np.int64]) -> Slots:
        if not self.count:
            return np.full(rows.size, NO_SLOT, np.int64)
        column = self.column("row")
        slots = np.minimum(np.searchsorted(column, rows), self.count - 1)
        return np.where(column[slots] == rows, slots, NO_SLOT)


def read_numbers(text: str) -> NDArray[np.int64]:
    """Return the numbers of a text in which commas separate them."""
    return np.fromstring(text, np.int64, sep=",") if text else np.empty(0, np.int64)
