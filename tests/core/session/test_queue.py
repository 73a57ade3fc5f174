"""A session's queue, decided without actors: places, collected messages, order, restart."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.records import SessionRecord
from palyra.core.run.state import Run, apply, begin
from palyra.core.session import queue
from palyra.core.session.commands import ChangeQueue
from palyra.core.session.queue import QueueState, find_place, plan_adoption, rearrange, takes
from palyra.core.tape import events as ev
from palyra.errors import Conflict, Overloaded, PalyraError
from tests.rows import every_row

SESSION = SessionRecord(session_id="ses_1", principal="ann", key=None, created_ms=0, updated_ms=0)
REST: dict[str, Any] = {
    "session_id": "ses_1",
    "active": None,
    "is_paused": False,
    "waiting": 0,
    "cap": 3,
    "can_merge": False,
    "is_debounced": True,
}
BUSY = {**REST, "active": "run_a"}


def promise(mode: str = "collect", **fields: Any) -> ev.RunAccepted:
    """A run.accepted of the session."""
    return ev.RunAccepted(
        principal="ann",
        session_id="ses_1",
        agent="default",
        model="m",
        queue_mode=mode,  # type: ignore[arg-type]  # a literal
        **fields,
    )


def run(
    run_id: str, mode: str = "followup", *texts: str, begun: bool = False, **fields: Any
) -> Run:
    """A run with its messages, waiting or begun."""
    at_ms = int(run_id.rpartition("_")[2])
    state = begin(run_id, promise(mode, **fields), at_ms)
    for text in texts or ("hi",):
        state = apply(state, ev.MessageReceived(text=text, by="ann"), at_ms)
    return apply(state, ev.RunStarted(instance_id="i"), at_ms) if begun else state


# --- places --------------------------------------------------------------------------------------


@every_row(
    ("mode", "standing", "place"),
    [
        ("followup", REST, "start"),
        ("steer", REST, "start"),
        ("reject", REST, "start"),
        ("interrupt", REST, "interrupt"),
        ("collect", REST, "wait"),
        ("collect", {**REST, "is_debounced": False}, "start"),
        ("followup", BUSY, "wait"),
        ("steer", BUSY, "steer"),
        ("steer", {**BUSY, "waiting": 3}, "steer"),
        ("interrupt", {**BUSY, "waiting": 3}, "interrupt"),
        ("collect", BUSY, "wait"),
        ("collect", {**BUSY, "waiting": 1, "can_merge": True}, "merge"),
        ("followup", {**BUSY, "waiting": 1, "can_merge": True}, "wait"),
        ("followup", {**REST, "waiting": 1}, "wait"),
        ("followup", {**REST, "is_paused": True}, "wait"),
        ("steer", {**REST, "is_paused": True}, "wait"),
        ("reject", BUSY, Conflict),
        ("reject", {**REST, "is_paused": True}, Conflict),
        ("reject", {**REST, "waiting": 1}, Conflict),
        ("followup", {**BUSY, "waiting": 3}, Overloaded),
        ("collect", {**BUSY, "waiting": 3, "can_merge": True}, Overloaded),
        ("steer", {**REST, "is_paused": True, "waiting": 3}, Overloaded),
    ],
)
def test_a_message_has_one_place(mode: Any, standing: dict[str, Any], place: Any) -> None:
    """Each mode on each standing: where the message goes, or why it is refused."""
    if isinstance(place, str):
        assert place == find_place(mode, QueueState(**standing))
    else:
        with pytest.raises(place):
            find_place(mode, QueueState(**standing))


@every_row(
    ("standing", "why"),
    [
        (BUSY, "run_a is active"),
        ({**REST, "is_paused": True}, "paused"),
        ({**REST, "waiting": 2}, "2 messages waiting"),
    ],
)
def test_a_rejection_names_the_active_run(standing: dict[str, Any], why: str) -> None:
    """The error names what the session is busy with."""
    with pytest.raises(Conflict, match=why):
        find_place("reject", QueueState(**standing))


# --- collected messages --------------------------------------------------------------------------


def test_a_message_is_collected_under_the_same_promise_only() -> None:
    """Agent, model, budget, epoch and above all the role must be the same."""
    waiting = run("run_1", "collect")
    assert takes(waiting, promise(), "more")
    for other in (
        promise("followup"),
        promise(role="operator"),
        promise(approval_mode="deny"),
        promise(epoch=1),
        msgspec.structs.replace(promise(), model="other"),
    ):
        assert not takes(waiting, other, "more")
    assert not takes(run("run_2"), promise(), "more")
    assert not takes(run("run_3", "collect", begun=True), promise(), "more")


def test_a_collected_run_is_bounded() -> None:
    """Neither more messages nor more text than one turn can do justice to."""
    full = run("run_1", "collect", *["x"] * queue.MAX_COLLECTED)
    assert not takes(full, promise(), "x")
    large = run("run_2", "collect", "x" * (queue.MAX_COLLECTED_BYTES - 2))
    assert takes(large, promise(), "yy")
    assert not takes(large, promise(), "yyy")
    assert not takes(large, promise(), "öö")


def test_the_cap_counts_messages() -> None:
    """A collected run counts as many as it has; one that began in an earlier life counts once."""
    runs = [run("run_1", "collect", "a", "b"), run("run_2"), run("run_3", begun=True)]
    assert 4 == queue.count_messages(runs)


# --- order ---------------------------------------------------------------------------------------


@every_row(
    ("change", "after"),
    [
        (ChangeQueue(), ["a", "b", "c"]),
        (ChangeQueue(drop=("b",)), ["a", "c"]),
        (ChangeQueue(order=("c",)), ["c", "a", "b"]),
        (ChangeQueue(order=("c", "b", "a")), ["c", "b", "a"]),
        (ChangeQueue(drop=("a",), order=("c",)), ["c", "b"]),
        (ChangeQueue(drop=("x",)), "x does not wait"),
        (ChangeQueue(order=("a", "x")), "x does not wait"),
        (ChangeQueue(drop=("a", "a")), "twice"),
        (ChangeQueue(drop=("a",), order=("a",)), "twice"),
    ],
)
def test_a_queue_is_rearranged_completely_or_not_at_all(change: ChangeQueue, after: Any) -> None:
    """Named runs come first or are dropped; a run that does not wait rejects the whole change."""
    if isinstance(after, list):
        assert after == rearrange(["a", "b", "c"], change)
    else:
        with pytest.raises(PalyraError, match=after):
            rearrange(["a", "b", "c"], change)


# --- restart -------------------------------------------------------------------------------------


def adopt(waiting: tuple[str, ...], *runs: Run, epoch: int = 0) -> queue.Adoption:
    """The plan for a session whose record lists these as waiting."""
    record = msgspec.structs.replace(SESSION, waiting=waiting, epoch=epoch)
    return plan_adoption(record, runs)


def test_a_begun_run_is_first_and_the_record_orders_the_rest() -> None:
    """The order of a restart is the order before it, not that of acceptance."""
    plan = adopt(("run_3", "run_2"), run("run_1", begun=True), run("run_2"), run("run_3"))
    assert ("run_1", ("run_3", "run_2"), {}) == (plan.first, plan.waiting, plan.doomed)


def test_a_run_that_had_its_turn_is_first_although_it_did_not_begin() -> None:
    """Accepted, not listed as waiting: the crash came before run.started."""
    plan = adopt(("run_2",), run("run_1"), run("run_2"))
    assert ("run_1", ("run_2",)) == (plan.first, plan.waiting)


def test_a_paused_queue_has_no_next_run() -> None:
    """Waiting runs without an active one mean that the queue was paused, so none is started."""
    plan = adopt(("run_1",), run("run_1"))
    assert (None, ("run_1",)) == (plan.first, plan.waiting)


def test_background_runs_start_at_once() -> None:
    """Background and delegated runs do not wait, and no run waits for them."""
    plan = adopt((), run("run_1", origin="background"), run("run_2", origin="delegated"))
    assert (("run_1", "run_2"), None, ()) == (plan.beside, plan.first, plan.waiting)


def test_an_interrupt_ends_what_it_found_also_over_a_restart() -> None:
    """The active run and an earlier interrupt end; the last interrupt and the queue stay."""
    plan = adopt(
        ("run_4", "run_3", "run_2"),
        run("run_1", begun=True),
        run("run_2"),
        run("run_3", "interrupt"),
        run("run_4", "interrupt"),
    )
    assert {"run_1", "run_3"} == set(plan.doomed)
    assert ("run_1", ("run_4", "run_3", "run_2")) == (plan.first, plan.waiting)


def test_an_interrupt_that_had_its_turn_ends_nothing() -> None:
    """It is the active run itself."""
    assert {} == adopt((), run("run_1", "interrupt")).doomed
    assert {} == adopt(("run_2",), run("run_1", "interrupt", begun=True), run("run_2")).doomed


def test_a_reset_ends_the_runs_of_earlier_epochs() -> None:
    """Those of the new epoch stay; a tape from before epochs were recorded is left alone."""
    plan = adopt(
        ("run_2", "run_3"),
        run("run_1", epoch=0, begun=True),
        run("run_2", epoch=1),
        run("run_3"),
        run("run_4", epoch=0, origin="background"),
        epoch=1,
    )
    assert {"run_1": queue.RESET} == plan.doomed


def test_a_request_without_changes_only_reads_the_queue() -> None:
    """A request with no change in it is a read."""
    assert ChangeQueue().is_look
    assert not ChangeQueue(paused=False).is_look
