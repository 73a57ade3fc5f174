"""The contract of both stores about candidates: turns of change, filters, and removal with content."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.changes import CandidateFilter, Change
from palyra.core.journal.records import (
    CandidateRecord,
    Evidence,
    MemoryRemoval,
    Record,
    ReflectionRecord,
    RunRemoval,
    SessionRemoval,
)
from palyra.core.ports import JournalStore
from palyra.errors import Conflict
from tests.store.kit import memory, row


def candidate(name: str, **fields: Any) -> CandidateRecord:
    plain = CandidateRecord(
        candidate_id=f"can_{name}",
        principal="alice",
        session_id="ses_a",
        kind="fact",
        text=f"fact {name}",
        score_bps=8_000,
        signals={"base": 8_000},
        evidence=(Evidence(run_id="run_a", seq=1, quote=f"xyzzy {name}"),),
        trust="trusted_local",
        key=f"fact:{name}",
        state="proposed",
        created_ms=1,
        changed_ms=1,
    )
    return msgspec.structs.replace(plain, **fields)


def put(store: JournalStore, *records: Record) -> None:
    assert [None] == store.commit([Change(records=records)])


def ids(store: JournalStore, **wanted: Any) -> list[str]:
    found = store.list_learned(CandidateFilter(**{"principal": "alice", **wanted}))
    return [each.candidate_id.removeprefix("can_") for each in found]


def test_candidates_are_found_by_each_filter(store: JournalStore) -> None:
    """Newest first, and only what every filter allows."""
    put(
        store,
        candidate("1"),
        candidate("2", state="applied", memory_id="mem_1"),
        candidate("3", kind="preference"),
        candidate("4", principal="bob"),
    )
    assert ["3", "2", "1"] == ids(store)
    assert ["4", "3"] == ids(store, principal=None, limit=2)
    assert ["2"] == ids(store, states=("applied", "undone"))
    assert ["3"] == ids(store, kinds=("preference",))
    assert ["2", "1"] == ids(store, keys=("fact:1", "fact:2", "fact:4"))
    assert ["2"] == ids(store, memory_ids=("mem_1",))
    assert ["1"] == ids(store, before="can_2")
    assert candidate("1") == store.find_candidate("can_1")
    assert None is store.find_candidate("can_none")


def test_changes_of_a_candidate_take_turns(store: JournalStore) -> None:
    """A revision out of turn is refused, and the first reading of a run stands."""
    put(store, candidate("1"))
    second = candidate("1", revision=2, state="rejected")
    put(store, second)
    (refusal,) = store.commit([Change(records=(candidate("1", revision=2, state="applied"),))])
    assert isinstance(refusal, Conflict)
    assert second == store.find_candidate("can_1")
    first = ReflectionRecord(run_id="run_a", session_id="ses_a", principal="alice", at_ms=1)
    put(store, first)
    put(store, first)
    (refusal,) = store.commit([Change(records=(msgspec.structs.replace(first, at_ms=2),))])
    assert isinstance(refusal, Conflict)
    assert first == store.find_reflection("run_a")


@pytest.mark.parametrize(
    "removal",
    [
        RunRemoval(run_id="run_a", events=0, at_ms=2),
        SessionRemoval(session_id="ses_a"),
        MemoryRemoval(principal="alice", memory_ids=("mem_1",), at_ms=2, by="alice"),
        MemoryRemoval(principal="alice", memory_ids=None, at_ms=2, by="alice"),
    ],
    ids=["run", "session", "item", "principal"],
)
def test_a_candidate_goes_with_what_it_was_taken_from(store: JournalStore, removal: Record) -> None:
    """Evidence and text of a purged run, session, item or principal leave with it."""
    other = candidate(
        "2", principal="bob", session_id="ses_b",
        evidence=(Evidence(run_id="run_b", seq=0, quote="mine"),),
    )  # fmt: skip
    store.commit([Change(rows=(row("run_a", 0),))])
    put(store, memory("mem_1", principal="alice"), candidate("1", memory_id="mem_1"), other)
    put(store, removal)
    assert [] == ids(store)
    assert ["2"] == ids(store, principal="bob")


def test_a_purged_memory_takes_every_candidate(store: JournalStore) -> None:
    """Candidates without an item, and the marks of readings, go with a principal's memory."""
    mark = ReflectionRecord(run_id="run_a", session_id="ses_a", principal="alice", at_ms=1)
    theirs = msgspec.structs.replace(mark, run_id="run_b", principal="bob")
    put(store, candidate("1"), candidate("2", principal="bob"), mark, theirs)
    put(store, MemoryRemoval(principal="alice", memory_ids=None, at_ms=2, by="alice"))
    assert ([], ["2"]) == (ids(store), ids(store, principal="bob"))
    assert (None, theirs) == (store.find_reflection("run_a"), store.find_reflection("run_b"))
