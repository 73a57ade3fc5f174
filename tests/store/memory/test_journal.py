"""The journal in memory, beyond the contract tests: tampering and the roots file."""

import msgspec
import pytest

from palyra.store.journal import verification
from tests.store.kit import memory_journal, rows
from tests.store.memory.tapes import MemoryFile


def test_a_changed_event_is_found_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal in memory runs the real verification, which reports an edited event."""
    monkeypatch.setattr(verification, "_KNOWN_RUNS", 1)
    store = memory_journal()
    store.open()
    for seq in range(3):
        store.commit([rows("run_a", seq, 1), rows("run_b", seq, 1)])
    assert 0 == store.verify().breaks
    links = store._tapes.links
    edited = msgspec.structs.replace(links[2].row, data=b"[]")
    links[2] = links[2]._replace(row=edited)
    found = store.verify().first_break
    assert found is not None
    assert ("edited", "run_a", 1, 3) == (found.kind, found.run_id, found.seq, found.position)


def test_a_cut_tail_is_found_in_memory() -> None:
    """Rows that a signed root covers and that are missing are reported, without a run."""
    store = memory_journal()
    store.open()
    store.commit([rows("run_a", 0, 4)])
    store.seal()
    del store._tapes.links[2:]
    found = store.verify().first_break
    assert found is not None
    assert ("truncated", None, 3) == (found.kind, found.run_id, found.position)


def test_a_file_in_memory_is_a_file() -> None:
    """Bytes written at an offset are read there, and truncating removes the end."""
    file = MemoryFile()
    file.write(0, b"abcdef")
    file.write(2, b"XY")
    file.truncate(5)
    file.sync()
    file.close()
    assert (5, b"bXYe") == (file.size_bytes(), file.read(1, 9))
