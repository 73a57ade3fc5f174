"""The contract of both stores about records: lookups, listings, and protected changes."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.changes import Change, PairingFilter, RunFilter
from palyra.core.journal.records import RECEIPT_TTL_MS, Record, SessionCheckpointRecord
from palyra.core.ports import JournalStore
from palyra.errors import Conflict, IdempotencyConflict
from tests.store.kit import (
    agent,
    approval,
    channel,
    grant,
    pairing,
    receipt,
    row,
    run,
    seqs,
    session,
    token,
)


def put(store: JournalStore, *records: Record) -> list[str | None]:
    """Commit each record as a change of its own; the names of the refusals."""
    outcomes = store.commit([Change(records=(record,)) for record in records])
    return [None if outcome is None else type(outcome).__name__ for outcome in outcomes]


def test_each_record_comes_back(store: JournalStore) -> None:
    """A record of any kind is found by its key, equal to what was committed."""
    asked = approval("apr_1")
    records: tuple[Record, ...] = (
        run("run_a"), session("ses_1", key="k"), asked, receipt("key"), token("tok_1"),
    )  # fmt: skip
    assert [None] == store.commit([Change(records=records)])
    assert records == (
        store.find_run("run_a"),
        store.find_session("ses_1"),
        store.find_approval("apr_1"),
        store.find_receipt("alice", "key", now_ms=1_750_000_000_000),
        store.find_token("sha of tok_1"),
    )
    assert [token("tok_1")] == store.list_tokens()
    found = store.find_approval("apr_1")
    assert found is not None
    assert bytes(asked.arguments) == bytes(found.arguments)


def test_a_missing_record_is_none(store: JournalStore) -> None:
    """Lookups of unknown keys return None."""
    assert [None] * 6 == [
        store.find_run("x"),
        store.find_session("x"),
        store.find_session_by_key("alice", "x"),
        store.find_approval("x"),
        store.find_receipt("alice", "x", now_ms=0),
        store.find_token("x"),
    ]


def test_the_last_record_replaces_the_one_before(store: JournalStore) -> None:
    """Within one batch and over several."""
    put(store, run("run_a", turns=1), run("run_a", turns=2))
    put(store, run("run_a", turns=3))
    assert run("run_a", turns=3) == store.find_run("run_a")


def test_runs_are_listed_newest_first(store: JournalStore) -> None:
    """Filters narrow the list, `before` continues it, `limit` ends it."""
    runs = [
        run(
            f"run_{n}",
            principal="alice" if n % 2 else "bob",
            session_id="ses_1" if n < 3 else "ses_2",
            state="done" if n == 4 else "accepted",
        )
        for n in range(6)
    ]
    put(store, *runs)
    found = [
        store.list_runs(wanted)
        for wanted in (
            RunFilter(),
            RunFilter(principal="alice"),
            RunFilter(session_id="ses_1"),
            RunFilter(states=("done", "failed")),
            RunFilter(before="run_3", limit=2),
            RunFilter(principal="nobody"),
            RunFilter(principal="bob", session_id="ses_2", states=("done",), before="run_5"),
        )
    ]
    assert ["543210", "531", "210", "4", "21", "", "4"] == [
        "".join(record.run_id[-1] for record in records) for records in found
    ]


def test_open_runs_are_those_that_have_not_ended(store: JournalStore) -> None:
    """Recovery gets every run that is not terminal, oldest first."""
    states = ("failed", "in_progress", "done", "accepted", "cancelled")
    put(store, *(run(f"run_{n}", state=state) for n, state in enumerate(states)))
    assert ["run_1", "run_3"] == [found.run_id for found in store.list_open_runs()]


def test_a_run_ends_once(store: JournalStore) -> None:
    """A terminal state is never replaced by another, in the same batch or later."""
    put(store, run("run_a", state="done"))
    refused = put(store, run("run_a", state="failed"), run("run_a", state="done", turns=3))
    assert ["Conflict", None] == refused
    assert ["Conflict"] == put(store, run("run_a"))
    found = store.find_run("run_a")
    assert found is not None
    assert ("done", 3) == (found.state, found.turns)


def test_sessions_are_found_by_key(store: JournalStore) -> None:
    """A key names one session of its principal; sessions without a key are many."""
    named, foreign = session("ses_1", key="work"), session("ses_2", key="work", principal="bob")
    assert [None] * 4 == put(store, named, foreign, session("ses_3"), session("ses_4"))
    assert (named, foreign) == (
        store.find_session_by_key("alice", "work"),
        store.find_session_by_key("bob", "work"),
    )


def test_two_sessions_cannot_share_a_key(store: JournalStore) -> None:
    """The second one is refused, alone, in the same batch or later."""
    first, second = session("ses_1", key="work"), session("ses_2", key="work")
    assert [None, "Conflict", None] == put(store, first, second, session("ses_3"))
    assert ["Conflict"] == put(store, second)
    assert first == store.find_session_by_key("alice", "work")


def test_sessions_are_listed_newest_first(store: JournalStore) -> None:
    """The list is bounded by principal, cursor and limit."""
    put(store, *(session(f"ses_{n}", principal="alice" if n % 2 else "bob") for n in range(6)))
    found = [
        store.list_sessions(None, before=None, limit=4),
        store.list_sessions("alice", before=None, limit=9),
        store.list_sessions("alice", before="ses_5", limit=1),
        store.list_sessions("eve", before=None, limit=9),
    ]
    assert ["5432", "531", "3", ""] == [
        "".join(record.session_id[-1] for record in records) for records in found
    ]


def test_approvals_are_listed_pending_first(store: JournalStore) -> None:
    """Open questions come before answered ones, each newest first."""
    put(
        store,
        approval("apr_1"),
        approval("apr_2", run_id="run_b", state="denied"),
        approval("apr_3", principal="bob"),
        approval("apr_4", state="allowed"),
    )
    found = [
        store.list_approvals(principal=None, run_id=None, pending_only=False, limit=9),
        store.list_approvals(principal=None, run_id=None, pending_only=True, limit=9),
        store.list_approvals(principal="alice", run_id=None, pending_only=False, limit=2),
        store.list_approvals(principal=None, run_id="run_b", pending_only=False, limit=9),
    ]
    assert ["3142", "31", "14", "2"] == [
        "".join(record.approval_id[-1] for record in records) for records in found
    ]


def test_answers_to_the_same_question_are_counted(store: JournalStore) -> None:
    """Of one principal, agent, tool and key, among its newest; the latest answer is named."""
    answered: dict[str, Any] = {"grant_key": "k", "resolved_ms": 5, "by": "ann"}
    put(
        store,
        approval("apr_1", state="allowed", **(answered | {"by": "eve"})),
        approval("apr_2", state="denied", **(answered | {"resolved_ms": 9, "by": "bob"})),
        approval("apr_3", state="allowed", **answered),
        approval("apr_4", state="aborted", **(answered | {"resolved_ms": 11})),
        approval("apr_5", state="allowed", **(answered | {"grant_key": "other"})),
        approval("apr_6", state="allowed", principal="bob", **answered),
        approval("apr_7", state="allowed", tool="write_file", **answered),
        approval("apr_8", state="allowed", agent="scout", **answered),
        approval("apr_9", grant_key="k"),
    )
    asked = approval("apr_9", grant_key="k")
    found = [store.count_answers(asked, limit=limit) for limit in (99, 7, 6, 1)]
    assert [(2, 1, 9, "bob"), (1, 1, 9, "bob"), (1, 0, 5, "ann"), (0, 0, None, None)] == [
        (each.allowed, each.denied, each.latest_ms, each.latest_by) for each in found
    ]


def test_an_approval_is_answered_once(store: JournalStore) -> None:
    """The first answer is final; repeating it is harmless, another one is refused."""
    allowed = approval("apr_1", state="allowed", by="bob")
    denied = approval("apr_1", state="denied", by="eve")
    assert [None, None, "Conflict", None] == put(store, approval("apr_1"), allowed, denied, allowed)
    assert ["Conflict", "Conflict"] == put(store, approval("apr_1"), denied)
    assert allowed == store.find_approval("apr_1")


def test_an_approval_is_used_once_for_each_call_it_is_for(store: JournalStore) -> None:
    """An allowed approval can be used once a call, without any other change."""
    allowed = approval("apr_1", state="allowed", by="bob", covers=("call_b",))
    used = approval("apr_1", state="allowed", by="bob", covers=("call_b",), uses=1)
    again = approval("apr_1", state="allowed", by="bob", covers=("call_b",), uses=2)
    third = approval("apr_1", state="allowed", by="bob", covers=("call_b",), uses=3)
    assert [None, None] == put(store, allowed, used)
    assert ["Conflict"] == put(store, allowed)
    assert ["Conflict"] == put(store, approval("apr_1", state="allowed", by="eve", uses=2))
    assert [None, "Conflict"] == put(store, again, third)
    assert again == store.find_approval("apr_1")


def test_a_denied_approval_cannot_be_used(store: JournalStore) -> None:
    """A denial has no uses."""
    put(store, approval("apr_1", state="denied"))
    assert ["Conflict"] == put(store, approval("apr_1", state="denied", uses=1))


def test_grants_are_listed_newest_first(store: JournalStore) -> None:
    """All of a principal, or those that hold at a moment."""
    put(
        store,
        grant("grt_1"),
        grant("grt_2", scope="timeboxed", expires_ms=5),
        grant("grt_3", principal="bob"),
        grant("grt_4", ended_ms=3, ended_by="bob"),
    )
    found = [
        store.list_grants(principal=None, live_at_ms=None, limit=9),
        store.list_grants(principal="alice", live_at_ms=4, limit=9),
        store.list_grants(principal="alice", live_at_ms=5, limit=9),
        store.list_grants(principal=None, live_at_ms=0, limit=1),
    ]
    assert ["4321", "21", "1", "3"] == [
        "".join(record.grant_id[-1] for record in records) for records in found
    ]
    assert (grant("grt_1"), None) == (store.find_grant("grt_1"), store.find_grant("x"))


def test_a_grant_can_only_end(store: JournalStore) -> None:
    """No field but its end changes, and that is final."""
    ended = grant("grt_1", ended_ms=5, ended_by="bob")
    wider = grant("grt_1", key="")
    assert [None, "Conflict", None] == put(store, grant("grt_1"), wider, ended)
    assert ["Conflict", None] == put(store, grant("grt_1"), ended)
    assert ended == store.find_grant("grt_1")


def test_a_receipt_is_given_once(store: JournalStore) -> None:
    """While a receipt lives its key is taken; the same receipt may be committed again."""
    first = receipt("key")
    other = receipt("key", body_sha256="01")
    assert [None, "IdempotencyConflict", None] == put(store, first, other, first)
    assert [None] == put(store, receipt("key", principal="bob"))
    assert first == store.find_receipt("alice", "key", now_ms=first.created_ms + 1)


def test_a_receipt_lives_a_day(store: JournalStore) -> None:
    """When its time is over a receipt is not found, and its key is free."""
    first = receipt("key")
    put(store, first)
    end_ms = first.created_ms + RECEIPT_TTL_MS
    found = [store.find_receipt("alice", "key", now_ms=now) for now in (end_ms - 1, end_ms)]
    assert [first, None] == found
    second = receipt("key", body_sha256="01", created_ms=end_ms)
    assert [None] == put(store, second)
    assert second == store.find_receipt("alice", "key", now_ms=end_ms)


def test_two_tokens_cannot_be_the_same(store: JournalStore) -> None:
    """A token is known by its hash, which is unique; its record may change."""
    revoked = token("tok_1", revoked_ms=5)
    assert [None, "Conflict", None] == put(
        store, token("tok_1"), token("tok_2", sha256="sha of tok_1"), revoked
    )
    assert [revoked] == store.list_tokens()
    assert revoked == store.find_token("sha of tok_1")


def test_an_agents_versions_stay(store: JournalStore) -> None:
    """Every version can be read for ever; the newest is the agent; one that was deleted is gone."""
    first, second = agent("scout"), agent("scout", 2, instructions="y")
    assert [None, None] == put(store, first, second)
    assert ["Conflict", None] == put(store, agent("scout", 2, instructions="z"), second)
    assert (second, first) == (store.find_agent("scout"), store.find_agent("scout", 1))
    assert [second] == store.list_agents()
    gone = agent("scout", 3, deleted_ms=5)
    assert [None] == put(store, gone)
    assert (gone, first) == (store.find_agent("scout"), store.find_agent("scout", 1))
    assert [] == store.list_agents()
    assert None is store.find_agent("nobody")


def test_agents_are_listed_by_name(store: JournalStore) -> None:
    """Each once, in its newest version."""
    put(store, agent("b"), agent("a"), agent("a", 2), agent("c"), agent("c", 2, deleted_ms=5))
    assert [agent("a", 2), agent("b")] == store.list_agents()


def test_channels_and_pairings_change_in_turn(store: JournalStore) -> None:
    """A change of an outdated revision is refused, so every attempt is counted."""
    assert [None, "Conflict", None, "Conflict"] == put(
        store,
        channel("chat"),
        channel("chat", agent="other"),
        channel("chat", revision=2),
        channel("chat", revision=2, pairing="open"),
    )
    assert [None, None, "Conflict"] == put(
        store,
        pairing("pai_1", "sam"),
        pairing("pai_1", "sam", revision=2, attempts=1),
        pairing("pai_1", "sam", revision=2, state="paired"),
    )
    found = store.find_pairing("pai_1")
    assert found is not None
    assert ("pending", 1) == (found.state, found.attempts)


def test_channels_are_a_principals_own(store: JournalStore) -> None:
    """Lookup and listing separate principals, channels and conversations."""
    mine = [channel("chat"), channel("chat", "1"), channel("mail")]
    theirs = channel("chat", principal="bob")
    put(store, *reversed(mine), theirs, channel("gone", deleted_ms=5))
    assert mine == store.list_channels("alice")
    assert [*mine, theirs] == store.list_channels(None)
    assert mine[1] == store.find_channel("alice", "chat", "1")
    assert theirs == store.find_channel("bob", "chat", "")
    assert None is store.find_channel("bob", "chat", "1")


def test_pairings_are_found_by_sender(store: JournalStore) -> None:
    """A sender has one record in a channel of a principal; lists are newest first, page by page."""
    records = [pairing(f"pai_{n}", f"sender {n}") for n in range(3)]
    elsewhere = pairing("pai_9", "sender 0", channel="mail", state="paired")
    foreign = pairing("pai_8", "sender 0", principal="bob")
    assert [None] * 5 + ["Conflict"] == put(
        store, *records, elsewhere, foreign, pairing("pai_7", "sender 0")
    )
    assert records[0] == store.find_sender("alice", "chat", "sender 0")
    assert foreign == store.find_sender("bob", "chat", "sender 0")
    wanted = PairingFilter(principal="alice", channel="chat", before="pai_2", limit=1)
    assert [records[1]] == store.list_pairings(wanted)
    assert [elsewhere] == store.list_pairings(PairingFilter(state="paired"))


def test_an_expired_pairing_request_is_deleted(store: JournalStore) -> None:
    """It is deleted when the journal seals; decided pairings stay."""
    put(
        store,
        pairing("pai_1", "old", expires_ms=1),
        pairing("pai_2", "new"),
        pairing("pai_3", "friend", expires_ms=1, state="paired"),
    )
    store.seal()
    found = [
        None if one is None else one.sender
        for one in map(store.find_pairing, ("pai_1", "pai_2", "pai_3"))
    ]
    assert [None, "new", "friend"] == found


def test_one_session_for_a_conversation(store: JournalStore) -> None:
    """Principal, agent, channel and conversation name one session, until it is archived."""
    place = {"agent": "scout", "channel": "chat", "conversation_id": "1"}
    first = session("ses_1", **place)
    assert [None, "Conflict", None, None] == put(
        store,
        first,
        session("ses_2", **place),
        session("ses_3", **{**place, "agent": "other"}),
        session("ses_4", principal="bob", **place),
    )
    assert first == store.find_conversation("alice", "scout", "chat", "1")
    assert None is store.find_conversation("alice", "scout", "chat", "2")
    second = session("ses_2", **place)
    assert [None, None] == put(store, session("ses_1", archived_ms=5, **place), second)
    assert second == store.find_conversation("alice", "scout", "chat", "1")


def test_a_refused_record_takes_its_rows_with_it(store: JournalStore) -> None:
    """A change is all or nothing: a receipt that is taken keeps the run from starting."""
    first = Change(rows=(row("run_a", 0),), records=(receipt("key"), run("run_a", 0)))
    second = Change(
        rows=(row("run_b", 0),), records=(receipt("key", body_sha256="01"), run("run_b", 0))
    )
    third = Change(rows=(row("run_c", 0),), records=(run("run_c", 0),))
    outcomes = store.commit([first, second, third])
    assert [type(None), IdempotencyConflict, type(None)] == [type(found) for found in outcomes]
    assert ([0], [], [0]) == tuple(seqs(store, name) for name in ("run_a", "run_b", "run_c"))
    assert None is store.find_run("run_b")
    chain = [store.read_chain(name, after_seq=-1, limit=9)[0] for name in ("run_a", "run_c")]
    assert [1, 2] == [link.position for link in chain]


def test_a_conflict_names_the_violated_rule(store: JournalStore) -> None:
    """The message of a conflict names the trigger or the unique columns."""
    put(store, run("run_a", state="done"), session("ses_1", key="work"))
    outcomes = store.commit(
        [
            Change(records=(run("run_a", state="failed"),)),
            Change(records=(session("ses_2", key="work"),)),
        ]
    )
    assert [Conflict, Conflict] == [type(outcome) for outcome in outcomes]
    assert "terminal state" in str(outcomes[0])
    assert "sessions.principal, sessions.key is already in use" == str(outcomes[1])


@pytest.mark.parametrize("field", ["reason", "principal", "agent"])
def test_text_in_records_is_kept_exactly(store: JournalStore, field: str) -> None:
    """Line ends, NUL and quotes inside a record survive a listing of several."""
    strange = 'a"b\\c\n\x00\u2028\U0001f4a5'
    records = [msgspec.structs.replace(run(f"run_{n}"), **{field: strange}) for n in range(3)]
    put(store, *records)
    assert records[::-1] == store.list_runs(RunFilter())


def test_runs_that_started_are_listed_by_their_start(store: JournalStore) -> None:
    """Ids of the newest that match, latest start first; one that never started is left out."""
    started = {"run_a": 30, "run_b": None, "run_c": 10, "run_d": 30, "run_e": 20}
    put(store, *(run(r, session_id="ses_1", started_ms=ms) for r, ms in started.items()))
    put(store, run("run_f", session_id="ses_2", started_ms=40))
    assert ["run_d", "run_a", "run_e", "run_c"] == store.list_started_ids(
        RunFilter(session_id="ses_1")
    )
    newest = RunFilter(session_id="ses_1", limit=2)  # by id
    assert ["run_d", "run_e"] == store.list_started_ids(newest)
    assert [] == store.list_started_ids(RunFilter(session_id="ses_1", states=("failed",)))


def test_session_checkpoints_are_listed_newest_first(store: JournalStore) -> None:
    """Those of one session, at most as many as wanted."""
    first, second, other = (
        SessionCheckpointRecord(
            checkpoint_id=f"scp_{n}",
            principal="alice",
            session_id="ses_2" if n == 3 else "ses_1",
            run_id="run_a",
            seq=n,
            created_ms=n,
        )
        for n in (1, 2, 3)
    )
    assert [None] * 3 == put(store, first, second, other)
    assert [second, first] == store.list_session_checkpoints("ses_1", limit=5)
    assert [second] == store.list_session_checkpoints("ses_1", limit=1)
