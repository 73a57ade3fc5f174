"""Lines of a text, with a linear-time search for runs of lines.

A line ends with a line feed and nothing else; the last one may lack it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

_PLACES = 4  # bound of the search; two matches are ambiguous already


class TextLines:
    """The lines of one text."""

    def __init__(self, texts: list[bytes]) -> None:
        """`texts`: the lines, each with its line feed."""
        self.texts = texts
        self._exact = _Runs(self.texts)
        self._bare: _Runs | None = None  # without blanks at line ends
        self._places: dict[bytes, list[int]] | None = None  # stripped line -> its places

    def find(
        self, wanted: list[bytes], first: int, *, at_end: bool, blanks_count: bool, at: int | None
    ) -> list[int]:
        """Return indexes from `first` on at which these lines occur, at most a few.

        At `at`, if they stand there, counts alone.  With `at_end` they must be the last ones.
        """
        last = len(self.texts) - len(wanted)
        if at is not None and at >= first and self._is_at(wanted, at, blanks_count=blanks_count):
            return [at]
        if at_end or not wanted[-1].endswith(b"\n"):
            is_there = last >= first and self._is_at(wanted, last, blanks_count=blanks_count)
            return [last] if is_there else []
        if blanks_count:
            return list(self._exact.find(wanted, first))
        if self._bare is None:
            self._bare = _Runs(_bare(self.texts))
        return list(self._bare.find(_bare(wanted), first))

    def find_stripped(self, text: bytes, first: int) -> int | None:
        """Return the first index, from `first` on, of a line equal to this one without outer blanks."""
        if self._places is None:
            self._places = {}
            for index, line in enumerate(self.texts):
                self._places.setdefault(line.strip(), []).append(index)
        places = self._places.get(text, [])
        found = bisect_left(places, first)
        return places[found] if found < len(places) else None

    def _is_at(self, wanted: list[bytes], at: int, *, blanks_count: bool) -> bool:
        there = self.texts[at : at + len(wanted)]
        return there == wanted if blanks_count else _bare(there) == _bare(wanted)


def split_lines(data: bytes) -> list[bytes]:
    """Split into lines with their line feeds."""
    pieces = data.split(b"\n")
    last = pieces.pop()
    lines = [piece + b"\n" for piece in pieces]
    return [*lines, last] if last else lines


def _bare(lines: list[bytes]) -> list[bytes]:
    return [line.rstrip() + b"\n" for line in lines]


class _Runs:
    """A text that can be searched for runs of whole lines."""

    def __init__(self, texts: list[bytes]) -> None:
        self._data = b"".join(texts)
        self._starts = [0, *accumulate(map(len, texts))]

    def find(self, run: list[bytes], first: int) -> Iterator[int]:
        """Return the first few line indexes, from `first` on, at which the run starts."""
        wanted = b"".join(run)
        for _ in range(_PLACES):
            at = self._at_line(wanted, self._starts[first])
            if at < 0:
                return
            first = bisect_left(self._starts, at)
            yield first
            first += 1

    def _at_line(self, wanted: bytes, start: int) -> int:
        """Return the offset of a match at the start of a line, from `start` on; -1 for none."""
        if self._data.startswith(wanted, start):
            return start
        at = self._data.find(b"\n" + wanted, start)
        return at if at < 0 else at + 1
