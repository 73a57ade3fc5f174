"""The journal in memory answers every sequence of calls like the journal on SQLite."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from palyra.core.journal.changes import (
    Change,
    IncidentFilter,
    MemoryFilter,
    PairingFilter,
    RunFilter,
    UsageFilter,
)
from palyra.core.journal.records import MemoryRemoval, Record
from palyra.core.ports import JournalStore
from tests.examples import examples
from tests.store.kit import (
    Clock,
    agent,
    approval,
    budget,
    channel,
    grant,
    incident,
    memory,
    memory_journal,
    pairing,
    receipt,
    row,
    run,
    seqs,
    session,
    sqlite_journal,
    token,
    usage,
)

RUNS = ("run_a", "run_b", "run_c")
STATES = ("accepted", "in_progress", "done", "failed")
run_ids = st.sampled_from(RUNS)
few = st.integers(0, 2)
maybe = st.sampled_from([None, 5])


def a_run(draw: st.DrawFn, _number: int, variant: int) -> Record:
    state = draw(st.sampled_from(STATES))
    return run(draw(run_ids), draw(st.integers(-1, 4)), state=state, turns=variant)


def a_session(draw: st.DrawFn, number: int, variant: int) -> Record:
    key = draw(st.sampled_from([None, "work", "home"]))
    place = {"agent": "a", "channel": "c", "conversation_id": "1"} if variant else {}
    return session(f"ses_{number}", key=key, archived_ms=draw(maybe), **place)


def an_approval(draw: st.DrawFn, number: int, _variant: int) -> Record:
    state = draw(st.sampled_from(["pending", "allowed", "denied"]))
    return approval(f"apr_{number}", run_id="run_a", state=state, uses=draw(few))


def a_grant(draw: st.DrawFn, number: int, variant: int) -> Record:
    return grant(f"grt_{number}", key=f"{variant // 2}", expires_ms=7, ended_ms=draw(maybe))


def an_agent(draw: st.DrawFn, number: int, variant: int) -> Record:
    return agent(f"agent_{number}", 1 + variant, deleted_ms=draw(maybe))


def a_channel(draw: st.DrawFn, number: int, variant: int) -> Record:
    return channel("c", f"{number}", revision=1 + variant, deleted_ms=draw(maybe))


def a_pairing(draw: st.DrawFn, number: int, variant: int) -> Record:
    expires_ms = draw(st.sampled_from([1, 2_000_000_000_000]))
    sender = f"{draw(few)}"
    return pairing(f"pai_{number}", sender, revision=1 + variant, expires_ms=expires_ms)


def a_line(draw: st.DrawFn, number: int, variant: int) -> Record:
    cost = draw(st.sampled_from([None, 3]))
    return usage(draw(run_ids), number, at_ms=variant * 7, cost_usd_micros=cost)


def a_budget(draw: st.DrawFn, number: int, variant: int) -> Record:
    return budget(f"budget_{number}", revision=1 + variant, deleted_ms=draw(maybe))


def an_incident(draw: st.DrawFn, number: int, variant: int) -> Record:
    state = draw(st.sampled_from(["open", "escalated", "resolved"]))
    end_ms = 9 if state == "resolved" else None
    return incident(f"inc_{number}", state=state, count=1 + variant, resolved_ms=end_ms)


def a_memory(draw: st.DrawFn, number: int, variant: int) -> Record:
    successor = draw(st.sampled_from([None, "mem_0"])) if number else None
    end_ms = draw(st.sampled_from([None, 1]))
    return memory(f"mem_{number}", revision=1 + variant, superseded_by=successor, expires_ms=end_ms)


def a_removal(draw: st.DrawFn, number: int, variant: int) -> Record:
    principal = "bob" if variant == 2 else "alice"
    named = None if draw(few) == 2 else (f"mem_{number}",)
    return MemoryRemoval(principal=principal, memory_ids=named, at_ms=1, by="alice")


@st.composite
def a_record(draw: st.DrawFn) -> Record:
    """A record whose key often exists already."""
    number, variant = draw(few), draw(few)
    kinds = [a_run, a_session, an_approval, an_agent, a_channel, a_pairing, a_grant]
    kinds += [a_line, a_budget, an_incident, a_memory, a_memory, a_removal]
    make = draw(st.sampled_from([*kinds, None, None]))
    if make is not None:
        return make(draw, number, variant)
    if draw(st.booleans()):
        return receipt(f"key_{number}", body_sha256=f"{variant}")
    return token(f"tok_{number}", sha256=f"sha_{draw(few)}")


@st.composite
def a_change(draw: st.DrawFn) -> Change:
    """Rows near the head of a small tape: new, repeated, rewritten or after a gap."""
    run_id, first, count = draw(run_ids), draw(st.integers(0, 6)), draw(st.integers(0, 3))
    data = draw(st.sampled_from([b"{}", b"{}", b"{}", b"[1]"]))
    events = tuple(row(run_id, seq, data=data) for seq in range(first, first + count))
    return Change(rows=events, records=tuple(draw(st.lists(a_record(), max_size=2))))


class JournalComparison(RuleBasedStateMachine):
    """Makes the same calls on both stores and compares the outcomes."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        clock = Clock()
        self.stores: tuple[JournalStore, JournalStore] = (
            sqlite_journal(Path(self.directory.name), clock, synchronous="normal"),
            memory_journal(clock),
        )
        for store in self.stores:
            store.open()

    def agree(self, *found: Any) -> None:
        assert found[0] == found[1]

    @rule(changes=st.lists(a_change(), max_size=4))
    def commit(self, changes: list[Change]) -> None:
        self.agree(*([repr(outcome) for outcome in store.commit(changes)] for store in self.stores))

    @rule(run_id=run_ids)
    def append(self, run_id: str) -> None:
        """Append one valid row, whatever `commit` drew."""
        for store in self.stores:
            head = store.read_tape(run_id, after_seq=-1, limit=1).head_seq
            assert store.commit([Change(rows=(row(run_id, head + 1, data=b"{}"),))]) == [None]

    @rule()
    def seal(self) -> None:
        self.agree(*(store.seal() for store in self.stores))

    @rule(is_clean=st.booleans())
    def reopen(self, *, is_clean: bool) -> None:
        for store in self.stores:
            if is_clean:
                store.close()
            report = store.open()
            assert (is_clean, None) == (report.was_clean, report.verification.first_break)
            assert [*report.incidents] == [
                each
                for each in store.list_incidents(IncidentFilter())[::-1]
                if each.state != "resolved"
            ]
            assert store.check(lambda: False) is None
        self.agree(*(store.verify().through_position for store in self.stores))

    @rule(
        run_id=run_ids,
        after_seq=st.integers(-2, 5),
        limit=st.integers(1, 3),
        max_bytes=st.integers(0, 9),
    )
    def read(self, run_id: str, after_seq: int, limit: int, max_bytes: int) -> None:
        self.agree(
            *(
                store.read_tape(run_id, after_seq=after_seq, limit=limit, max_bytes=max_bytes)
                for store in self.stores
            )
        )
        self.agree(
            *(store.read_chain(run_id, after_seq=after_seq, limit=limit) for store in self.stores)
        )

    @rule(states=st.lists(st.sampled_from(STATES), max_size=2), before=run_ids | st.none())
    def list_runs(self, states: list[Any], before: str | None) -> None:
        wanted = RunFilter(states=tuple(states), before=before, limit=2)
        self.agree(*(store.list_runs(wanted) for store in self.stores))
        self.agree(*(store.list_started_ids(wanted) for store in self.stores))

    @rule(run_id=run_ids | st.none())
    def verify(self, run_id: str | None) -> None:
        self.agree(*(store.verify(run_id) for store in self.stores))

    @invariant()
    def have_the_same_contents(self) -> None:
        self.agree(*(self.contents(store) for store in self.stores))

    def contents(self, store: JournalStore) -> list[Any]:
        """The results of all queries."""
        return [
            [seqs(store, run_id) for run_id in RUNS],
            store.list_runs(RunFilter()),
            store.list_started_ids(RunFilter()),
            store.list_open_runs(),
            store.list_sessions(None, before=None, limit=9),
            [store.find_session_by_key("alice", key) for key in ("work", "home")],
            store.list_approvals(principal=None, run_id=None, pending_only=False, limit=9),
            store.list_grants(principal="alice", live_at_ms=None, limit=9),
            [store.list_grants(principal=None, live_at_ms=at, limit=9) for at in (6, 7)],
            [store.find_receipt("alice", f"key_{n}", now_ms=Clock().now_ms) for n in range(3)],
            [store.find_token(f"sha_{n}") for n in range(3)],
            store.list_tokens(),
            store.find_conversation("alice", "a", "c", "1"),
            [store.find_agent(f"agent_{n}") for n in range(3)],
            [store.find_agent("agent_0", version) for version in range(4)],
            store.list_agents(),
            [store.find_channel("alice", "c", f"{n}") for n in range(3)],
            store.list_channels("alice"),
            store.list_pairings(PairingFilter()),
            [store.find_pairing(f"pai_{n}") for n in range(3)],
            [store.find_sender("alice", "chat", f"{n}") for n in range(3)],
            store.list_usage(UsageFilter(), limit=9),
            store.sum_usage(UsageFilter(until_ms=14), "run", grain_ms=7),
            store.list_budgets(),
            store.list_incidents(IncidentFilter()),
            store.list_incidents(IncidentFilter(states=("open",), before="inc_2")),
            [store.find_memory(f"mem_{n}") for n in range(3)],
            [store.list_versions(f"mem_{n}") for n in range(3)],
            store.list_superseded("mem_0"),
            store.list_memories(MemoryFilter(principal="alice", now_ms=0)),
            store.count_memories(None, now_ms=0),
            [
                (line.memory_id, line.action)
                for line in store.list_memory_log(principal=None, limit=99)
            ],
        ]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.directory.cleanup()


TestJournalComparison = pytest.mark.real(JournalComparison.TestCase)
JournalComparison.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=20, deadline=None
)
