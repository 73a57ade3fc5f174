"""Fixtures that run each contract test against both stores."""

from pathlib import Path

import pytest

from palyra.core.ports import JournalStore
from tests.store.kit import Clock, MakeStore, memory_journal, sqlite_journal


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> MakeStore:
    """A fresh handle on the same storage at every call."""
    memory = memory_journal(clock)
    return lambda: memory if request.param == "memory" else sqlite_journal(tmp_path, clock)


@pytest.fixture
def store(make_store: MakeStore) -> JournalStore:
    """An open, empty store."""
    opened = make_store()
    opened.open()
    return opened
