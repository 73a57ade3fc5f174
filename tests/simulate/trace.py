"""The trace of a story, line by line, and its broken invariants."""

import hashlib
from collections import Counter, deque

import trio

KEPT_LINES = 50


class InvariantFailed(Exception):
    """The daemon broke a promise."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


class Planted(Exception):
    """A crash that the simulation caused."""


class Trace:
    """A digest of all lines; the last ones are kept for the report."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=KEPT_LINES)
        self.counts: Counter[str] = Counter()
        self.whole: list[str] | None = None  # all lines, for who wants to read them
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Equal digests, equal stories."""
        return self._digest.hexdigest()

    def add(self, who: str, what: str) -> None:
        """One line, with the virtual time it happened at."""
        line = f"{trio.current_time():11.4f}  {who:<12} {what}"
        self.tail.append(line)
        self._digest.update(line.encode(errors="surrogatepass"))
        if self.whole is not None:
            self.whole.append(line)

    def fold_in(self, text: str) -> None:
        """Into the digest only: there are too many of these to show."""
        self._digest.update(text.encode())
