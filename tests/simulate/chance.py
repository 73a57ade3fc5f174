"""Chance that is a function of the seed: who runs next, which fault strikes, which id is next."""

import gc
import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import trio._core._run as trio_run  # noqa: PLC2701 - there is no public way

_GC_EVERY = 20  # worlds: looking through the heap takes as long as a world


class Chance:
    """One independent stream of chance for each purpose, so that one draw more moves no other."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """The stream of that name; text seeds do not depend on the interpreter's hash seed."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(f"{self.seed}/{name}")
        return found


class _Worlds:
    count = 0


@contextmanager
def scheduled_by(seed: int) -> Generator[None]:
    """Inside, trio's choice among the tasks that can run is a function of the seed.

    So is the moment at which garbage is found: never, except for what reference counts free.
    And no daemon freezes the heap it begins with: there were worlds before it.
    """
    run: Any = trio_run
    before, was_collecting = run._ALLOW_DETERMINISTIC_SCHEDULING, gc.isenabled()
    state = run._r.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r.seed(f"{seed}/scheduler")
    if not _Worlds.count:
        gc.freeze()  # what is loaded by now stays, and is not looked through again
    gc.disable()
    try:
        with patch.object(gc, "freeze"):
            yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = before
        run._r.setstate(state)
        _tidy(is_collecting=was_collecting)


def _tidy(*, is_collecting: bool) -> None:
    """Free what the worlds left behind."""
    _Worlds.count += 1
    if _Worlds.count % _GC_EVERY == 0:
        gc.collect()
    if is_collecting:
        gc.enable()
