"""The time by which stored content ages, and its file `clock.json`.

One start with a clock that is ahead must not delete what is young.  So ages are counted by the wall
clock only while it agrees with the time that this home knows, which the file keeps.  A clock that is
further ahead is doubted: ages stand still until the daemon has run for a day with it, over any number
of starts, or an operator confirms it.  Expiry of rights (tokens, approvals) goes by the wall clock.
All methods block and may be called from any thread; `look` by one at a time.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from palyra.core.journal.retention import DOUBT_MS, Aging, observe
from palyra.core.ports import NowMs
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

KEEP_MS = 600_000  # between two writes of the file while the clock agrees


class Doubt(NamedTuple):
    """A wall clock that is ahead."""

    agreed_ms: int  # the time that the home knows
    ahead_ms: int


class AgeClock:
    """Wall clock whose jumps ahead are not believed at once."""

    def __init__(
        self, path: Path | None, now_ms: NowMs, elapsed_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`path` is None for a daemon without a data directory.  Nothing is written here."""
        self.path = path
        self._now_ms = now_ms
        self._elapsed_s = elapsed_s
        self._looked_s = elapsed_s()
        self._kept = self._known = _read(path)

    def begin(self, newest_ms: int) -> None:
        """Start with the newest time in the journal, 0 for none, if the file has none."""
        if self._known is None:
            self._known = Aging(agreed_ms=newest_ms or self._now_ms())

    def age_ms(self) -> int:
        """Return the Unix time by which content ages, in milliseconds; 0 before the start."""
        return 0 if self._known is None else self._known.age_ms(self._now_ms())

    def look(self) -> Doubt | None:
        """Compare the clocks and keep the result; return the doubt if the wall clock is ahead.

        Raises Unavailable if the file cannot be written; what is known holds.
        """
        if self._known is None:
            return None
        now_s, now_ms = self._elapsed_s(), self._now_ms()
        known = observe(self._known, now_ms, round(1_000 * (now_s - self._looked_s)))
        self._known, self._looked_s = known, now_s
        if self._kept is None or abs(known.agreed_ms - self._kept.agreed_ms) >= KEEP_MS:
            self._keep(known)
        ahead_ms = now_ms - known.agreed_ms
        return Doubt(known.agreed_ms, ahead_ms) if ahead_ms > DOUBT_MS else None

    def confirm(self) -> None:
        """Believe the wall clock as it is.  Raises Unavailable; it is believed until the next start."""
        self._known = Aging(agreed_ms=self._now_ms())
        self._keep(self._known)

    def _keep(self, known: Aging) -> None:
        if self.path is not None:
            try:
                private_files.create_file(self.path, msgspec.json.encode(known))
            except OSError as error:
                raise cannot_write(self.path, error) from error
        self._kept = known


def _read(path: Path | None) -> Aging | None:
    """Return what the file keeps; None for an absent or damaged one, which is written again."""
    try:
        return (
            None if path is None else msgspec.json.decode(private_files.read_file(path), type=Aging)
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
