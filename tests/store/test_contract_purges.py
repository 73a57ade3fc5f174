"""The contract of both stores about purges: content goes, the chain holds, nothing else changes."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.changes import Change, TaskFilter
from palyra.core.journal.purged_row import make_tombstone, read_tombstone
from palyra.core.journal.records import (
    Lineage,
    LineageTrim,
    MemoryUseRecord,
    Record,
    RunRemoval,
    SessionCheckpointRecord,
    SessionPurge,
    SessionRecord,
    SessionRemoval,
    WorkRemoval,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import JournalStore
from palyra.core.session.purge import purge_row, purge_run
from palyra.core.tape.events import RunPurged
from palyra.core.tape.purge import RowsDigest, claim
from palyra.core.task.life import claim as claim_task
from palyra.store.journal.keys import KeyRing
from tests.store.kit import KEYS, approval, grant, incident, memory, receipt, row, run
from tests.store.test_contract_tasks import schedule, task

AT_MS = 1_750_000_100_000
SECRET = b"xyzzy-plover"
EVENTS = 5


def say(run_id: str, count: int = EVENTS) -> Change:
    """A run that ended."""
    said = tuple(row(run_id, seq, data=b'{"text":"%b %d"}' % (SECRET, seq)) for seq in range(count))
    return Change(rows=said, records=(run(run_id, count - 1, state="done"),))


def purge_of(store: JournalStore, run_id: str, keys: KeyRing = KEYS, **fields: object) -> Change:
    """The change that purges a run, signed with these keys."""
    digest = RowsDigest()
    for each in store.read_chain(run_id, after_seq=-1, limit=1_000):
        digest.add((each.position, each.hash, each.row))
    event = RunPurged(
        purge_id="pur_1", by="op", events=digest.rows, digest=digest.hexdigest(), signature=""
    )
    event = msgspec.structs.replace(event, **fields)
    signed = keys.sign(claim(run_id, event, AT_MS)).hex()
    record = store.find_run(run_id)
    assert record is not None
    last = purge_row(record, msgspec.structs.replace(event, signature=signed), AT_MS)
    removal = RunRemoval(run_id=run_id, events=digest.rows, at_ms=AT_MS)
    return Change(rows=(last,), records=(purge_run(record, last), removal))


def everything(store: JournalStore, run_id: str) -> list[TapeRow]:
    return store.read_tape(run_id, after_seq=-1, limit=1_000).rows


def test_a_purge_removes_payloads_and_the_chain_holds(store: JournalStore) -> None:
    """Kind, seq, time and hash of each event stay; verification counts it and finds no break."""
    store.commit([say("run_a"), say("run_b")])
    store.seal()
    before, hashes = (
        everything(store, "run_a"),
        [each.hash for each in store.read_chain("run_a", after_seq=-1, limit=99)],
    )
    assert [None] == store.commit([purge_of(store, "run_a")])
    *purged, last = everything(store, "run_a")
    assert [
        msgspec.structs.replace(old, data=make_tombstone(old.data, AT_MS)) for old in before
    ] == purged
    assert "run.purged" == last.kind
    assert all(SECRET not in each.data for each in (*purged, last))
    chained = store.read_chain("run_a", after_seq=-1, limit=99)
    assert hashes == [each.hash for each in chained][:-1]
    for run_id in (None, "run_a"):
        for _ in range(2):
            report = store.verify(run_id)
            assert (None, EVENTS) == (report.first_break, report.purged_events)
            store.seal()
    record = store.find_run("run_a")
    assert record is not None
    assert (EVENTS, "purged", AT_MS) == (record.head_seq, record.reason, record.purged_ms)


def test_other_runs_are_not_touched(store: JournalStore) -> None:
    """An unrelated run is the same, byte by byte."""
    store.commit([say("run_a"), say("run_b")])
    before = everything(store, "run_b")
    store.commit([purge_of(store, "run_a")])
    assert before == everything(store, "run_b")
    assert 0 == store.verify("run_b").purged_events


def test_a_repeated_purge_changes_nothing(store: JournalStore) -> None:
    """The same change again is a repetition of committed rows."""
    store.commit([say("run_a")])
    change = purge_of(store, "run_a")
    assert [None, None] == store.commit([change]) + store.commit([change])
    assert EVENTS + 1 == len(everything(store, "run_a"))
    assert None is store.verify().first_break


@pytest.mark.parametrize(
    ("keys", "fields"),
    [(KeyRing(bytes(32)), {}), (KEYS, {"digest": "00" * 32})],
    ids=["foreign key", "other digest"],
)
def test_a_purge_that_is_not_proven_is_a_break(
    store: JournalStore, keys: KeyRing, fields: dict[str, object]
) -> None:
    """Payloads that are gone without a valid record are reported, by run and by journal."""
    store.commit([say("run_a")])
    store.commit([purge_of(store, "run_a", keys, **fields)])
    for run_id in (None, "run_a"):
        found = store.verify(run_id).first_break
        assert found is not None
        assert ("edited", "run_a", 0) == (found.kind, found.run_id, found.seq)
    assert None is store.verify("run_none").first_break


def test_what_belongs_to_a_run_goes_with_it(store: JournalStore) -> None:
    """Approvals and uses of memory have content of the run, and go."""
    use = MemoryUseRecord(
        use_id="use_1",
        run_id="run_a",
        session_id="ses_run_a",
        principal="alice",
        way="auto",
        question="xyzzy?",
        at_ms=1,
    )
    other = msgspec.structs.replace(use, use_id="use_2", run_id="run_b", session_id="ses_run_b")
    asked: tuple[Record, ...] = (
        approval("apr_1", run_id="run_a", state="denied"),
        approval("apr_2", run_id="run_b", state="denied"),
    )
    store.commit([say("run_a"), say("run_b"), Change(records=(*asked, use, other))])
    store.commit([purge_of(store, "run_a")])
    assert (None, "apr_2") == (
        store.find_approval("apr_1"),
        getattr(store.find_approval("apr_2"), "approval_id", None),
    )
    assert [[], [other]] == [
        store.list_memory_uses(run_id=name, limit=9) for name in ("run_a", "run_b")
    ]


def test_what_belongs_to_a_session_goes_with_it(store: JournalStore) -> None:
    """Marks, uses and grants go; trimmed items lose lineage and earlier revisions."""
    mark = SessionCheckpointRecord(
        checkpoint_id="scp_1",
        principal="alice",
        session_id="ses_a",
        run_id="run_a",
        seq=0,
        created_ms=1,
        name="xyzzy",
    )
    kept_mark = msgspec.structs.replace(mark, checkpoint_id="scp_2", session_id="ses_b")
    both = (Lineage(run_id="run_a"), Lineage(run_id="run_b"))
    item = memory("mem_1", lineage=both, session_id="ses_a")
    after = msgspec.structs.replace(item, text="a second", text_hash="h2", revision=2)
    results = {
        "k1": b'{"session_id":"ses_a"}',
        "k2": b'{"seq":0}',
        "k3": b'{"items":[{"lineage":[{"run_id":"run_a","first_seq":1}]}]}',
        "k4": b'{"text":"about ses_a and run_a, in words","ses_a":1}',
        "k5": b'{"session_id":"ses_ab","runs":["run_b","run_ab"]}',
        "k6": b'["ses_a"]',
    }
    about = [receipt(key, result=msgspec.Raw(result)) for key, result in results.items()]
    granted: list[Record] = [
        *about,
        run("run_a", session_id="ses_a"),
        run("run_b", session_id="ses_b"),
        grant("gra_1", session_id="ses_a"),
        grant("gra_2", session_id="ses_b"),
    ]
    changes: list[tuple[Record, ...]] = [(mark, kept_mark, item, *granted), (after,)]
    for change in changes:
        assert [None] == store.commit([Change(records=change)])
    assert [after] == store.list_taken_from("alice", "ses_none", ("run_a",))
    assert [after] == store.list_taken_from("alice", "ses_a", ())
    assert [] == store.list_taken_from("bob", "ses_a", ("run_a",))
    trim = LineageTrim(memory_id="mem_1", lineage=both[1:])
    removal = SessionRemoval(session_id="ses_a", trims=(trim,))
    assert [None] == store.commit([Change(records=(removal,))])
    assert [] == store.list_session_checkpoints("ses_a", limit=9)
    assert ["k2", "k4", "k5"] == [
        each.key
        for each in about
        if store.find_receipt("alice", each.key, now_ms=each.created_ms) is not None
    ]
    assert [kept_mark] == store.list_session_checkpoints("ses_b", limit=9)
    assert ["gra_2"] == [
        each.grant_id for each in store.list_grants(principal=None, live_at_ms=None, limit=9)
    ]
    assert msgspec.structs.replace(after, lineage=both[1:]) == store.find_memory("mem_1")
    assert [] == store.list_versions("mem_1")


def test_work_of_a_session_goes_with_it(store: JournalStore) -> None:
    """Tasks and schedules that name the session, its key or its runs go, ended and removed ones too."""
    here, other = {"session_id": "ses_a"}, {"session_id": "ses_b"}
    ended = {"state": "failed", "finished_ms": 5, "principal": "alice"}
    schedules: dict[str, dict[str, Any]] = {
        "sch_1": {"payload": here},
        "sch_2": {"payload": {"session_key": "work"}, "removed_ms": 5},
        "sch_3": {"payload": other},
        "sch_4": {"payload": {"text": "ses_a"}, "principal": "bob"},
        "sch_5": {},
    }
    tasks: dict[str, dict[str, Any]] = {
        "tsk_1": {"payload": here},
        "tsk_2": {**ended, "payload": {"session_key": "work"}},
        "tsk_3": {**ended, "run_id": "run_a"},
        "tsk_4": {**ended, "result": here},
        "tsk_5": {"payload": {"run_id": "run_a"}},
        "tsk_6": {"firing": "sch_1@5"},
        "tsk_7": {**ended, "firing": "sch_5@5", "run_id": "run_a"},
        "tsk_8": {"payload": other},
        "tsk_9": {"payload": {"session_key": "work"}, "principal": "bob"},
        "tsk_a": {"payload": {"text": "about ses_a and run_a"}},
    }
    submitted = task("tsk_1", principal="alice")
    records: list[Record] = [
        run("run_a", session_id="ses_a"),
        *(schedule(key, **{"principal": "alice", **each}) for key, each in schedules.items()),
        *(task(key, **{"principal": "alice", **each}) for key, each in tasks.items()),
        receipt("k1", result=msgspec.Raw(msgspec.json.encode(submitted))),
        receipt("k2", result=msgspec.Raw(b'{"task_id":"tsk_8"}')),
        incident("inc_1", key="a", evidence={"schedule_id": "sch_1"}),
        incident("inc_2", key="b", evidence={"schedule_id": "sch_3"}),
    ]
    assert [None] == store.commit([Change(records=tuple(records))])
    removal = WorkRemoval(principal="alice", session_id="ses_a", key="work")
    found = store.find_work(removal)
    gone = [f"tsk_{number}" for number in range(1, 8)]
    assert (gone, ["sch_1", "sch_2"], ("sch_5",)) == found
    assert [None] == store.commit([Change(records=(removal,))])
    assert ([], [], ()) == store.find_work(removal)
    assert [key for key in tasks if key not in gone] == [
        key for key in tasks if store.find_task(key) is not None
    ]
    assert ["sch_3", "sch_4", "sch_5"] == [
        key for key in schedules if store.find_schedule(key) is not None
    ]
    assert (None, False) == (
        store.find_receipt("alice", "k1", now_ms=receipt("k1").created_ms),
        store.find_receipt("alice", "k2", now_ms=receipt("k2").created_ms) is None,
    )
    assert (None, False) == (store.find_incident("inc_1"), store.find_incident("inc_2") is None)
    everything = WorkRemoval(principal="alice", session_id=None)
    assert [None] == store.commit([Change(records=(everything,))])
    assert ([], []) == (
        store.list_schedules("alice"),
        store.list_tasks(TaskFilter(principal="alice", limit=9)),
    )
    assert ["sch_4"] == [each.schedule_id for each in store.list_schedules("bob")]


def test_work_that_was_removed_does_not_return(store: JournalStore) -> None:
    """A worker or a firing that knew it is refused, and so is new work for the purged session."""
    known, timed = task("tsk_1", principal="alice"), schedule("sch_1", principal="alice")
    asked = SessionPurge(purge_id="pur_1", by="alice", requested_ms=2)
    purged = SessionRecord(
        session_id="ses_a", principal="alice", key=None, created_ms=1, updated_ms=1, purge=asked
    )
    removal = WorkRemoval(principal="alice", session_id=None)
    store.commit([Change(records=(known, timed, purged)), Change(records=(removal,))])
    fired = msgspec.structs.replace(timed, fired=1, revision=2)
    here = {"session_id": "ses_a"}
    late: tuple[tuple[Record, ...], ...] = (
        (claim_task(known, 1, 5),),
        (fired, task("tsk_2", firing="sch_1@5")),
        (task("tsk_3", payload=here),),
        (schedule("sch_2", payload=here),),
    )
    assert ["Conflict"] * 4 == [
        type(outcome).__name__ for outcome in store.commit([Change(records=each) for each in late])
    ]
    assert [] == store.list_tasks(TaskFilter(limit=9))
    assert [None] == store.commit(
        [Change(records=(task("tsk_4", payload={"session_id": "ses_b"}),))]
    )


def test_a_purge_that_is_not_complete_is_found(store: JournalStore) -> None:
    """The request is listed until its end is recorded, whatever else happens to the session."""
    plain = SessionRecord(
        session_id="ses_a", principal="alice", key=None, created_ms=1, updated_ms=1
    )
    asked = SessionPurge(purge_id="pur_1", by="alice", requested_ms=2)
    store.commit([Change(records=(plain,))])
    assert [] == store.list_purging()
    marked = msgspec.structs.replace(plain, purge=asked)
    store.commit([Change(records=(marked,))])
    assert [marked] == store.list_purging()
    done = msgspec.structs.replace(marked, purge=msgspec.structs.replace(asked, done_ms=3))
    store.commit([Change(records=(done,))])
    assert [] == store.list_purging()


def test_branches_are_found(store: JournalStore) -> None:
    """A run that continues another one is found by it."""
    branch = run("run_b", parent_run_id="run_a")
    store.commit([Change(records=(run("run_a"), branch, run("run_c")))])
    assert [[branch], []] == [store.list_branches([name]) for name in ("run_a", "run_b")]


def test_a_stub_is_recognised_exactly() -> None:
    """Only the form that a purge writes is a tombstone; making one of a tombstone changes nothing."""
    tombstone = make_tombstone(b"data", 5)
    found = read_tombstone(tombstone)
    assert found is not None
    assert (5, 4, "1970-01-01") == (found.at_ms, found.size_bytes, found.day)
    assert tombstone == make_tombstone(tombstone, 9)
    for other in (
        b"",
        b"{}",
        tombstone + b" ",
        tombstone[:-1],
        tombstone.replace(b":5,", b":-5,"),
        b'{"purged":{}}',
    ):
        assert None is read_tombstone(other)
