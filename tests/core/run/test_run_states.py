"""The state machine of a run: every state with every event, legal and illegal."""

from collections.abc import Callable
from typing import Any

import pytest

from palyra.core.journal.records import Usage
from palyra.core.model.messages import (
    AssistantMessage,
    ProposedCall,
    ToolMessage,
    UserMessage,
    pictures_of,
)
from palyra.core.model.route_plan import Estimate
from palyra.core.model.summary import Summary, SummaryLedger
from palyra.core.run.call import CALL_TRANSITIONS
from palyra.core.run.state import RUN_TRANSITIONS, Run, apply, begin
from palyra.core.tape import events as ev
from palyra.errors import InvariantBroken
from tests.core.run.run_world import exceeded
from tests.rows import every_row

ACCEPTED = ev.RunAccepted(principal="ann", session_id="s", agent="a", model="m")
MESSAGE = ev.MessageReceived(text="hello")
STARTED = ev.RunStarted(instance_id="i")
CALL = ProposedCall(call_id="c1", tool="t", arguments={})
ABOUT: dict[str, Any] = {"call_id": "c1"}
WALLS: dict[str, Any] = {"executor": "inline", "enforcement": "none"}
USED = Usage()


def turn_started(turn: int = 1, attempt: int = 1, *, continues: bool = False) -> ev.TurnStarted:
    return ev.TurnStarted(turn=turn, attempt=attempt, provider="p", model="m", continues=continues)


def turn_completed(*calls: ProposedCall, text: str = "", finish: Any = "stop") -> ev.TurnCompleted:
    return ev.TurnCompleted(turn=1, text=text, calls=calls, finish_reason=finish, usage=USED)


def decided(verdict: Any) -> ev.ToolDecided:
    return ev.ToolDecided(
        **ABOUT, verdict=verdict, reason_code="r", reason="r", policies=(), policy_version="v"
    )


PROPOSED = ev.ToolProposed(**ABOUT, tool="t", arguments={}, digest="d", tool_class="effect")
REJECTED = ev.ToolRejected(**ABOUT, reason="bad", repair_hint="good")
ASKED = ev.ApprovalRequested(
    **ABOUT, approval_id="apr", tool="t", risk="low", summary="", arguments={}, digest="d",
    scopes=("once",), expires_ms=9, policy_reason="",
)  # fmt: skip
ANSWERED = ev.ApprovalResolved(
    **ABOUT, approval_id="apr", decision="allow", scope="once", by="bob", reason=""
)
EXECUTED = ev.ToolStarted(**ABOUT, **WALLS, batch=1)
COMPLETED = ev.ToolCompleted(**ABOUT, status="succeeded", output="o")
ATTESTED = ev.ToolAttested(**ABOUT, attestation={"status": "succeeded"}, digest="d", signature="s")
FAILED = ev.RunFailed(failure_class="auth", reason="r", action="a")
CANCELLED = ev.RunCancelled(reason="r", by="ann")
DONE = ev.RunDone(reason="answered")

_OPEN = [MESSAGE, STARTED, turn_started()]
_NAMED = [*_OPEN, turn_completed(CALL)]
_GATED = [*_NAMED, PROPOSED]
_ALLOWED = [*_GATED, decided("allow")]
CHILD = ev.DelegationStarted(**ABOUT, run_id="run_2", depth=1, agent="default", budget=ev.Budget())
CHILD_ENDED = ev.DelegationEnded(
    **ABOUT, run_id="run_2", state="done", reason="answered", usage=USED
)
_DELEGATED = [*_ALLOWED, EXECUTED, CHILD]

# Each state as the events after `run.accepted` that lead to it.
STATES: dict[str, list[ev.Event]] = {
    "accepted, nothing said": [],
    "accepted": [MESSAGE],
    "started": [MESSAGE, STARTED],
    "turn open": _OPEN,
    "turn failed": [
        *_OPEN,
        ev.TurnFailed(turn=1, attempt=1, failure_class="transient", retry=True, detail=""),
    ],
    "text": [*_OPEN, turn_completed(text="hi")],
    "text cut off": [*_OPEN, turn_completed(text="hi", finish="length")],
    "text refused": [*_OPEN, turn_completed(), ev.AnswerRejected(reason="empty", guidance="g")],
    "call named": _NAMED,
    "call proposed": _GATED,
    "call rejected": [*_GATED, REJECTED],
    "call asking": [*_GATED, ASKED],
    "call answered": [*_GATED, ASKED, ANSWERED],
    "call denied": [*_GATED, decided("deny")],
    "call allowed": _ALLOWED,
    "call started": [*_ALLOWED, EXECUTED],
    "call completed": [*_ALLOWED, EXECUTED, COMPLETED],
    "call delegated": _DELEGATED,
    "call of an ended child": [*_DELEGATED, COMPLETED],
    "call with an end of a child": [*_DELEGATED, COMPLETED, CHILD_ENDED],
    "call attested": [*_ALLOWED, EXECUTED, COMPLETED, ATTESTED],
    "done": [*_OPEN, turn_completed(text="hi"), DONE],
    "failed": [MESSAGE, FAILED],
    "cancelled": [MESSAGE, CANCELLED],
}
SUMMARY = Summary(ledger=SummaryLedger(), narrative="", covers=(), before_tokens=9, after_tokens=1)
TERMINAL = {"done", "failed", "cancelled"}
LIVE = set(STATES) - TERMINAL
BETWEEN = {"text", "text cut off", "text refused", "turn failed", "call attested"}
HALFWAY = {name for name in STATES if name.startswith("call ")} - {"call named", "call attested"}

# Each event that fits a state by its ids, and the states that allow it.
NEXT: dict[str, tuple[Callable[[Run], ev.Event], set[str]]] = {
    "run.accepted": (lambda _: ACCEPTED, set()),
    "conversation.inherited": (
        lambda _: ev.ConversationInherited(run_id="run_0", at_seq=1, link="", messages=()),
        {"accepted, nothing said", "accepted"},
    ),
    "message.received": (lambda _: MESSAGE, {"accepted, nothing said", "accepted"}),
    "run.started": (lambda _: STARTED, {"accepted"}),
    "context.gathered": (
        lambda _: ev.ContextGathered(layer="project_files", absent="none"),
        BETWEEN | {"started"},
    ),
    "context.assembled": (
        lambda run: ev.ContextAssembled(
            turn=run.turn + 1, segments=(), input_tokens=1, prefix_hash="", catalogue_hash=""
        ),
        LIVE - {"accepted, nothing said", "accepted", "turn open"},
    ),
    "route.planned": (
        lambda _: ev.RoutePlanned(
            mode="enforced",
            model="m2",
            provider="p",
            uses="m2",
            reasons=(),
            needs=(),
            complexity="simple",
            estimate=Estimate(input_tokens=1, output_tokens=1),
            budget_usd_micros=None,
            candidates=(),
        ),
        {"started"},
    ),
    "route.changed": (
        lambda run: ev.RouteChanged(
            turn=run.turn, from_model=run.model, model="m2", provider="p", reason="gone", text=""
        ),
        LIVE - {"accepted, nothing said", "accepted", "turn open"},
    ),
    "context.compacted": (
        lambda run: ev.ContextCompacted(turn=run.turn, history_runs=1),
        LIVE - {"accepted, nothing said", "accepted", "turn open"},
    ),
    "compaction.applied": (
        lambda _: ev.CompactionApplied(
            compaction_id="cmp_1", algorithm="a", trigger="auto", summary=SUMMARY, input_tokens=9
        ),
        BETWEEN | {"started"},
    ),
    "compaction.skipped": (
        lambda _: ev.CompactionSkipped(trigger="auto", reason="nothing gained", input_tokens=9),
        BETWEEN | {"started"},
    ),
    "turn.started": (
        lambda run: turn_started(run.turn + 1, continues=run.is_cut),
        (BETWEEN | {"started"}),
    ),
    "turn.completed": (lambda _: turn_completed(text="x"), {"turn open"}),
    "turn.failed": (lambda _: STATES["turn failed"][-1], {"turn open"}),
    "item.refused": (
        lambda run: ev.ItemRefused(turn=run.turn, item="picture", name="a", detail=""),
        LIVE - {"accepted, nothing said", "accepted", "turn open"},
    ),
    "budget.exceeded": (lambda run: exceeded(turn=run.turn), {"turn open"}),
    "tool.proposed": (lambda _: PROPOSED, {"call named"}),
    "tool.rejected": (lambda _: REJECTED, {"call proposed"}),
    "tool.decided": (
        lambda _: decided("allow"),
        {"call proposed", "call asking", "call answered"},
    ),
    "approval.requested": (lambda _: ASKED, {"call proposed"}),
    "approval.resolved": (lambda _: ANSWERED, {"call asking"}),
    "tool.started": (lambda _: EXECUTED, {"call allowed"}),
    "tool.completed": (lambda _: COMPLETED, {"call started", "call delegated"}),
    "delegation.started": (lambda _: CHILD, {"call started"}),
    "delegation.ended": (lambda _: CHILD_ENDED, {"call of an ended child"}),
    "tool.attested": (
        lambda _: ATTESTED,
        {
            "call rejected",
            "call denied",
            "call allowed",
            "call completed",
            "call with an end of a child",
        },
    ),
    "steer.received": (lambda _: ev.SteerReceived(text="s", by="b"), LIVE),
    "answer.rejected": (
        lambda _: ev.AnswerRejected(reason="empty", guidance="g"),
        BETWEEN - {"call attested"},
    ),
    "todos.changed": (
        lambda _: ev.TodosChanged(todos=(ev.Todo(text="t", state="done"),)),
        {"call completed", "call of an ended child", "call with an end of a child"},
    ),
    "guard.warned": (
        lambda _: ev.GuardWarned(rule="failure", call="t()", count=3, guidance="g"),
        {"call attested"},
    ),
    "guard.blocked": (
        lambda _: ev.GuardBlocked(rule="failure", call="t()", count=4),
        {"call attested"},
    ),
    "message.completed": (lambda _: ev.MessageCompleted(text="x"), BETWEEN | {"started"}),
    "run.recovered": (
        lambda run: ev.RunRecovered(attempt=run.recoveries + 1, from_seq=run.next_seq - 1),
        LIVE,
    ),
    "run.done": (lambda _: DONE, BETWEEN | {"started"}),
    "run.failed": (lambda _: FAILED, LIVE - HALFWAY),
    "run.undone": (
        lambda _: ev.RunUndone(checkpoint_id="ckp_1", by="ann", files=("a",)),
        TERMINAL,
    ),
    "run.cancelled": (lambda _: CANCELLED, LIVE - HALFWAY),
}


def reach(name: str) -> Run:
    """The run in that state."""
    run = begin("run_1", ACCEPTED, 1)
    for event in STATES[name]:
        run = apply(run, event, run.next_seq + 1)
    return run


def test_every_kind_is_in_the_table() -> None:
    """A new kind of event has to say where it is legal."""
    kinds = {kind: event for kind, event in ev.KINDS.items() if event is not ev.RunPurged}
    assert set(NEXT) == set(kinds)  # a purge comes after the end: no run is folded with it
    assert {ev.RunAccepted, *RUN_TRANSITIONS} == set(kinds.values())
    about_calls = {kind for kind, _ in CALL_TRANSITIONS}
    assert about_calls == {kind for kind in RUN_TRANSITIONS if "call_id" in kind.__struct_fields__}


@every_row("kind", sorted(NEXT))
@every_row("state", STATES)
def test_a_state_allows_its_events_and_no_others(state: str, kind: str) -> None:
    """A legal event changes the state; an illegal one raises and changes nothing."""
    make, legal = NEXT[kind]
    before, same = reach(state), reach(state)
    if state in legal:
        after = apply(before, make(before), 99)
        assert (after.next_seq, after.last_ms) == (before.next_seq + 1, 99)
    else:
        with pytest.raises(InvariantBroken, match="not possible"):
            apply(before, make(before), 99)
    assert before == same


@every_row(
    ("state", "event"),
    [
        ("text", turn_started(3)),
        ("text", turn_started(1, 3)),
        ("text", turn_started(2, continues=True)),
        ("text cut off", turn_started(2)),
        ("turn open", turn_started(2)),
        ("turn open", turn_started(1, 1)),
        ("turn open", ev.TurnCompleted(turn=2, text="", calls=(), finish_reason="stop", usage=USED)),
        ("call asking", ev.ApprovalResolved(
            **ABOUT, approval_id="other", decision="deny", scope="once", by="b", reason=""
        )),
        ("call of an ended child", ev.DelegationEnded(
            **ABOUT, run_id="run_3", state="done", reason=""
        )),
        ("call named", ev.ToolStarted(call_id="nobody", **WALLS, batch=1)),
        ("text", ev.RunRecovered(attempt=2, from_seq=1)),
    ],
)  # fmt: skip
def test_an_event_about_something_else_is_illegal(state: str, event: ev.Event) -> None:
    """Another turn, attempt, call, approval or count."""
    before, same = reach(state), reach(state)
    with pytest.raises(InvariantBroken):
        apply(before, event, 99)
    assert before == same


def test_a_retry_and_a_next_turn_after_a_failed_one() -> None:
    """The attempt after a failure, and the one after a restart."""
    assert apply(reach("turn failed"), turn_started(1, 2), 9).attempt == 2
    recovered = apply(reach("turn open"), ev.RunRecovered(attempt=1, from_seq=3), 8)
    assert apply(recovered, turn_started(1, 2), 9).turn_is_open


# --- time ----------------------------------------------------------------------------------------


def timed(*events: tuple[int, ev.Event]) -> Run:
    """A run started at 1 000 ms, and what happened when."""
    run = apply(apply(begin("run_1", ACCEPTED, 10), MESSAGE, 10), STARTED, 1_000)
    for at_ms, event in events:
        run = apply(run, event, at_ms)
    return run


def test_a_picture_of_a_result_is_shown_with_it() -> None:
    """Of one that came with the message or was inherited; the message itself is then none."""
    results = tuple(ToolMessage(each, "t", "succeeded", "o") for each in ("c1", "c2"))
    shown = [
        {"type": "image", "artifact": each, "session_id": "s", "media_type": "image/png",
         "size_bytes": 1, "call_id": call_id}
        for each, call_id in (("a", "c1"), ("b", "c2"), ("c", "c2"))
    ]  # fmt: skip
    asked = (UserMessage("go"), AssistantMessage("", (CALL,)))
    inherited = ev.ConversationInherited(
        run_id="", at_seq=0, link="", messages=(*asked, results[0])
    )
    run = begin("run_1", ACCEPTED, 0)
    told = ev.MessageReceived(text="", results=results[1:], attachments=tuple(shown))
    for event in (inherited, told):
        run = apply(run, event, 0)
    *_, first, second = run.transcript
    assert [("a",), ("b", "c")] == [
        tuple(each.artifact for each in pictures_of(message)) for message in (first, second)
    ]
    own = {name: text for name, text in shown[0].items() if name != "call_id"}
    last = apply(begin("run_1", ACCEPTED, 0), ev.MessageReceived(text="", attachments=(own,)), 0)
    assert ["a"] == [each.artifact for each in pictures_of(last.transcript[-1])]


@every_row("call_id", [["c1"], {"a": 1}, 7, "c9", ""])
def test_an_attachment_of_a_client_names_no_call_by_accident(call_id: Any) -> None:
    """Attachments that are no pictures have members of any kind, and stay what they are."""
    note = {"type": "note", "call_id": call_id}
    run = apply(begin("run_1", ACCEPTED, 0), ev.MessageReceived(text="hi", attachments=(note,)), 0)
    assert (UserMessage("hi"),) == run.transcript


def test_a_picture_of_an_unknown_call_is_the_messages_own() -> None:
    """A client may name any call; what it sent is shown, also when a run is steered."""
    shown = {"type": "image", "artifact": "a", "session_id": "s", "media_type": "image/png",
             "size_bytes": 1, "call_id": "c9"}  # fmt: skip
    run = apply(begin("run_1", ACCEPTED, 0), ev.MessageReceived(text="", attachments=(shown,)), 0)
    assert [["a"]] == [[each.artifact for each in pictures_of(said)] for said in run.transcript]
    steer = ev.SteerReceived(text="look", by="ann", attachments=(shown,))
    for event in (STARTED, turn_started(), steer):
        run = apply(run, event, 0)
    assert ["a"] == [each.artifact for said in run.steers for each in pictures_of(said)]


def test_no_time_is_spent_before_the_start() -> None:
    """A queue costs nothing."""
    assert begin("run_1", ACCEPTED, 10).spent_ms() == 0
    assert timed().spent_ms() == 0


def test_time_of_people_and_of_no_daemon_is_not_spent() -> None:
    """Waiting for an answer, also over a restart, and the time between crash and start."""
    asked: tuple[tuple[int, ev.Event], ...] = (
        (1_100, turn_started()),
        (1_200, turn_completed(CALL)),
        (1_200, PROPOSED),
        (1_200, ASKED),
    )
    waiting = timed(*asked, (4_000, ev.SteerReceived(text="x", by="b")))
    assert (waiting.spent_ms(), waiting.spent_ms(with_people=True)) == (200, 3_000)
    resumed = timed(*asked, (9_000, ev.RunRecovered(attempt=0, from_seq=6)))
    assert resumed.spent_ms() == 200
    answered = timed(*asked, (9_000, ANSWERED), (9_000, decided("allow")), (9_300, EXECUTED))
    assert (answered.spent_ms(), answered.spent_ms(with_people=True)) == (500, 8_300)
    crashed = timed((1_100, turn_started()), (7_000, ev.RunRecovered(attempt=1, from_seq=3)))
    assert crashed.spent_ms() == crashed.spent_ms(with_people=True) == 100


def test_a_clock_that_was_set_back_spends_no_negative_time() -> None:
    """A wall clock that is set back does not extend a run's time limit."""
    assert timed((500, turn_started())).spent_ms() == 0
    assert (
        timed((500, turn_started()), (400, ev.RunRecovered(attempt=1, from_seq=3))).clock.down_ms
        == 0
    )
