"""The run's decisions: what follows from each input, in which order, in every phase."""

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.model.messages import FailureClass, FinishReason, UserMessage
from palyra.core.model.route_plan import RouteChange
from palyra.core.run import step as steps
from palyra.core.run.calls import attest
from palyra.core.run.decide import accept, decide
from palyra.core.run.inputs import (
    ApprovalAnswered,
    AskPerson,
    Begin,
    CallEnded,
    CallModel,
    Cancel,
    Execute,
    Expire,
    ReportIncident,
    Resume,
    Steer,
    TurnFailedInput,
    TurnFinished,
)
from palyra.core.run.state import RESTORE, apply, fold
from palyra.core.run.step import Step
from palyra.core.session.commands import RunView
from palyra.core.tape import events as ev
from palyra.core.trust.fences import inside_fence
from palyra.errors import InvariantBroken
from tests.core.run.run_world import World, environment, turn
from tests.rows import every_row

BEGIN = Begin(instance_id="i1")
CANCEL = Cancel(reason="enough", by="ann")


def finished(world: World, *tools: str, text: str = "") -> list[str]:
    """The model answers the open turn."""
    return world.hear(
        TurnFinished(turn=world.run.turn, attempt=world.run.attempt, result=turn(*tools, text=text))
    )


def broke(world: World, failure_class: FailureClass = "transient", **told: Any) -> list[str]:
    """The model fails the open turn."""
    return world.hear(
        TurnFailedInput(
            turn=world.run.turn,
            attempt=world.run.attempt,
            failure_class=failure_class,
            detail="no luck",
            **told,
        )
    )


def ended(call_id: str, status: str = "succeeded") -> CallEnded:
    """A tool's outcome."""
    return CallEnded(call_id=call_id, status=status, output="out", raw_sha256="0" * 64)  # type: ignore[arg-type]  # named in the test


def answered(world: World, decision: Literal["allow", "deny"], by: str = "bob") -> list[str]:
    """A person answers the open prompt."""
    asking = next(call for call in world.run.calls if call.phase == "asking")
    return world.hear(
        ApprovalAnswered(
            approval_id=asking.approval_id or "",
            decision=decision,
            scope="once",
            by=by,
            reason="",
        )
    )


def begun(*tools: str) -> World:
    """A run whose first turn called these tools."""
    world = World()
    world.hear(BEGIN)
    if tools:
        finished(world, *tools)
    return world


def test_a_plain_answer_is_one_turn_and_the_end() -> None:
    """A run without calls is accepted, started, answered, done."""
    world = begun()
    assert finished(world, text="hi") == ["turn.completed", "message.completed", "run.done"]
    assert [kind for kind, _, _ in world.tape][:5] == [
        "run.accepted",
        "message.received",
        "run.started",
        "context.assembled",
        "turn.started",
    ]
    assert (world.run.state, world.run.reason) == ("done", "answered")


@every_row("jump_ms", [-3_600_000, 0, 3_600_000])
def test_the_duration_of_a_call_is_measured(jump_ms: int) -> None:
    """A jump of the wall clock during a call changes neither its duration nor its attestation."""
    world = begun("allow")
    (call,) = world.run.calls
    env = world.env
    world.env = msgspec.structs.replace(env, now_ms=lambda: env.now_ms() + jump_ms)
    world.hear(msgspec.structs.replace(ended(call.call_id), took_ms=40))
    events = {kind: msgspec.json.decode(data) for kind, _, data in world.tape}
    attested = events["tool.attested"]["attestation"]
    assert events["tool.completed"]["duration_ms"] == 40
    assert attested["finished_ms"] - attested["started_ms"] == 40


def test_an_allowed_call_runs_and_its_result_reaches_the_next_turn() -> None:
    """Proposed < decided < started < completed < attested, then the next turn sees the output."""
    world = begun()
    assert finished(world, "allow") == [
        "turn.completed",
        "tool.proposed",
        "tool.decided",
        "tool.started",
    ]
    assert world.effects[-1] == Execute(call_id="c1", approval_digest=None)
    assert world.hear(ended("c1")) == [
        "tool.completed",
        "tool.attested",
        "context.assembled",
        "turn.started",
    ]
    request = world.effects[-1].request
    assert [type(message).__name__ for message in request.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]
    assert "out" == inside_fence(request.messages[-1].output)


@pytest.mark.parametrize(
    ("tool", "between", "status"),
    [("refuse", "tool.rejected", "rejected"), ("deny", "tool.decided", "denied")],
)
def test_a_refused_call_is_attested_and_shown_to_the_model(
    tool: str, between: str, status: str
) -> None:
    """A rejected or denied call is attested and the run continues."""
    world = begun()
    assert finished(world, tool) == [
        "turn.completed",
        "tool.proposed",
        between,
        "tool.attested",
        "context.assembled",
        "turn.started",
    ]
    assert world.drafts("tool.attested")[0].attestation["status"] == status
    assert world.effects[-1].request.messages[-1].status == status


def test_preparation_stops_at_an_approval() -> None:
    """No later call is gated, and none starts, before the approval is answered."""
    world = begun()
    assert finished(world, "allow", "ask", "allow") == [
        "turn.completed",
        "tool.proposed",
        "tool.decided",
        "tool.proposed",
        "approval.requested",
    ]
    assert isinstance(world.effects[-1], AskPerson)
    assert RunView.of(world.run.to_record()).phase == "awaiting_approval"
    assert answered(world, "allow") == [
        "approval.resolved",
        "tool.decided",
        "tool.proposed",
        "tool.decided",
        "tool.started",
        "tool.started",
        "tool.started",
    ]
    assert world.effects[-2] == Execute(call_id="c2", approval_digest="execution of c2")


def test_a_denial_is_remembered_and_fed_back() -> None:
    """A person's denial ends the call, is recorded for the gate, and is shown to the model."""
    world = begun("ask")
    assert answered(world, "deny") == [
        "approval.resolved",
        "tool.decided",
        "tool.attested",
        "context.assembled",
        "turn.started",
    ]
    assert world.run.denied == frozenset({("ask", "digest of c1")})
    assert world.drafts("tool.decided")[0].reason_code == "denied_by_person"


def test_a_deadline_denies_without_being_a_persons_no() -> None:
    """An expired prompt counts as denied, with its own code."""
    world = begun("ask")
    answered(world, "deny", by="deadline")
    assert world.drafts("tool.decided")[0].reason_code == "approval_expired"
    assert world.run.denied == frozenset()


def test_an_answer_to_a_settled_prompt_changes_nothing() -> None:
    """The first answer wins; a second one leaves no event."""
    world = begun("ask")
    prompt = world.drafts("approval.requested")[0].approval_id
    answered(world, "allow")
    late = ApprovalAnswered(approval_id=prompt, decision="deny", scope="once", by="x", reason="")
    assert world.hear(late) == []


def test_five_safe_calls_run_four_and_one_and_an_effect_alone() -> None:
    """Batches: at most four together; the next starts when all of the last are attested."""
    world = begun(*["allow"] * 5, "allow:effect")
    assert [e.batch for e in world.drafts("tool.started")] == [1, 1, 1, 1]
    for call_id in ("c3", "c1", "c4"):
        assert world.hear(ended(call_id)) == ["tool.completed", "tool.attested"]
    assert world.hear(ended("c2")) == ["tool.completed", "tool.attested", "tool.started"]
    assert world.hear(ended("c5"))[-1] == "tool.started"
    assert [e.batch for e in world.drafts("tool.started")] == [1, 1, 1, 1, 2, 3]
    world.hear(ended("c6"))
    results = [m.call_id for m in world.effects[-1].request.messages[2:]]
    assert results == ["c1", "c2", "c3", "c4", "c5", "c6"]


def test_attestations_are_linked() -> None:
    """Each attestation names the digest of the one before it."""
    world = begun("deny", "refuse", "deny")
    attested = world.drafts("tool.attested")
    assert [e.attestation["prev"] for e in attested] == ["", attested[0].digest, attested[1].digest]


def test_a_transient_failure_is_retried_twice_then_fails_the_run() -> None:
    """Back-off grows, the attempt is counted, the third failure is the end."""
    world = begun()
    assert broke(world) == ["turn.failed", "context.assembled", "turn.started"]
    assert world.effects[-1].delay_ms == 10
    broke(world)
    assert world.effects[-1].delay_ms == 20
    assert broke(world) == ["turn.failed", "run.failed"]
    assert [e.attempt for e in world.drafts("turn.started")] == [1, 2, 3]


@every_row(("asked_ms", "delay_ms"), [(None, 10), (0, 10), (7_000, 7_000)])
def test_a_provider_is_not_asked_sooner_than_it_wants(asked_ms: int | None, delay_ms: int) -> None:
    """The longer of the back-off and what the provider asks for; the tape says which pause."""
    world = begun()
    broke(world, "rate_limited", retry_after_ms=asked_ms)
    assert delay_ms == world.effects[-1].delay_ms
    assert [delay_ms] == [event.delay_ms for event in world.drafts("turn.failed")]


@pytest.mark.parametrize(("failure", "is_final"), [("auth", False), ("transient", True)])
def test_a_failure_that_must_not_be_retried_ends_the_run(
    failure: FailureClass, *, is_final: bool
) -> None:
    """A client error, and an answer that would be unfit again, are not retried."""
    world = begun()
    assert broke(world, failure, is_final=is_final) == ["turn.failed", "run.failed"]


def test_a_late_turn_is_ignored() -> None:
    """An outcome of an attempt that is over leaves no event."""
    world = begun()
    broke(world)
    late = TurnFinished(turn=1, attempt=1, result=turn(text="late"))
    assert world.hear(late) == []


def test_a_late_outcome_is_ignored() -> None:
    """A second outcome of one call leaves no event."""
    world = begun("allow", "allow:effect")
    world.hear(ended("c1"))
    assert world.hear(ended("c1")) == []
    assert world.hear(ended("nobody")) == []


def test_a_steer_reaches_the_next_turn_of_the_same_run() -> None:
    """A steering message is the last message of the next request."""
    world = begun("allow")
    assert world.hear(Steer(text="shorter", by="ann")) == ["steer.received"]
    world.hear(ended("c1"))
    assert world.effects[-1].request.messages[-1].text == "shorter"
    assert world.run.steers == ()


def test_a_steer_during_the_last_turn_makes_another() -> None:
    """An answer given before the steering message is not the final one."""
    world = begun()
    world.hear(Steer(text="wait", by="ann"))
    assert finished(world, text="done") == ["turn.completed", "context.assembled", "turn.started"]
    assert [m.text for m in world.effects[-1].request.messages] == ["hello", "done", "wait"]


def test_the_wall_clock_ends_the_run() -> None:
    """Time that ran out closes open calls and fails the run."""
    world = begun("allow")
    assert world.hear(Expire(wall_ms=5)) == ["tool.completed", "tool.attested", "run.failed"]
    assert world.run.state == "failed"


# --- cancel --------------------------------------------------------------------------------------


def cancelled_in(phase_name: str) -> list[str]:
    """The events a cancel leaves in one phase of a run."""
    if phase_name == "queued":
        return World().hear(CANCEL)
    world = begun(*{"turn": (), "asking": ("ask",), "tool": ("allow", "allow")}[phase_name])
    return world.hear(CANCEL)


@every_row(
    ("phase_name", "events"),
    [
        ("queued", ["run.cancelled"]),
        ("turn", ["run.cancelled"]),
        ("asking", ["approval.resolved", "tool.decided", "tool.attested", "run.cancelled"]),
        (
            "tool",
            ["tool.completed", "tool.attested", "tool.completed", "tool.attested", "run.cancelled"],
        ),
    ],
)
def test_cancel_closes_everything_in_every_phase(phase_name: str, events: list[str]) -> None:
    """A cancelled run aborts its prompt, ends its calls, and has one terminal event."""
    assert cancelled_in(phase_name) == events


def test_cancel_attests_a_call_that_was_allowed_and_never_started() -> None:
    """A call that waited for its batch is attested as cancelled, without an outcome."""
    world = begun("allow:effect", "allow:effect", "ask")
    assert [call.phase for call in world.run.calls] == ["allowed", "allowed", "asking"]
    events = world.hear(CANCEL)
    assert events.count("tool.attested") == 3
    assert "tool.completed" not in events


def test_a_terminal_run_ignores_every_input() -> None:
    """After the end nothing changes, whatever arrives."""
    world = begun()
    finished(world, text="bye")
    for late in (BEGIN, CANCEL, Resume(), Steer(text="x", by="y"), ended("c1"), Expire(wall_ms=1)):
        assert world.hear(late) == []


# --- recovery ------------------------------------------------------------------------------------


def test_an_open_turn_is_asked_again_as_the_next_attempt() -> None:
    """The open turn is repeated and charged."""
    world = begun()
    assert world.hear(Resume()) == ["run.recovered", "context.assembled", "turn.started"]
    assert (world.run.recoveries, world.run.attempt) == (1, 2)


def test_a_harmless_call_without_outcome_runs_again() -> None:
    """A started read is repeated without a second start event."""
    world = begun("allow")
    assert world.hear(Resume()) == ["run.recovered"]
    assert world.effects[-1] == Execute(call_id="c1", approval_digest=None)


def test_an_effect_without_outcome_is_unknown_to_model_and_operator() -> None:
    """A call that may have happened is never repeated by the daemon."""
    world = begun("allow:effect")
    assert world.hear(Resume()) == [
        "run.recovered",
        "tool.completed",
        "tool.attested",
        "context.assembled",
        "turn.started",
    ]
    assert any(isinstance(e, ReportIncident) for e in world.effects)
    assert world.effects[-1].request.messages[-1].status == "unknown"


def test_an_answer_after_an_unknown_outcome_is_no_whole_one() -> None:
    """The model's text is the answer, and the end names the unknown effect; a read leaves none."""
    world = begun("allow:effect")
    world.hear(Resume())
    assert world.hear(TurnFinished(turn=2, attempt=1, result=turn(text="it is done")))[-2:] == [
        "message.completed",
        "run.done",
    ]
    (done,) = world.drafts("run.done")
    assert ("partial", "outcome_unknown") == (done.reason, done.cause)
    assert done.missing.startswith("it is unknown whether this took effect: ")
    assert "it is done" == world.drafts("message.completed")[0].text


def test_a_pending_prompt_is_asked_again_unchanged_and_costs_no_attempt() -> None:
    """Waiting for a person over many restarts never exhausts a run."""
    world = begun("ask")
    asked = world.effects[-1]
    for _ in range(5):
        assert world.hear(Resume()) == ["run.recovered"]
        assert world.effects[-1] == asked
    assert world.run.recoveries == 0


def test_three_resumes_without_progress_are_the_limit() -> None:
    """The fourth resume fails the run; progress in between resets the count."""
    world = begun()
    for _ in range(3):
        world.hear(Resume())
    assert world.hear(Resume()) == ["run.failed"]
    assert world.drafts("run.failed")[0].failure_class == "recovery_exhausted"
    other = begun()
    for _ in range(3):
        other.hear(Resume())
    finished(other, "deny")
    assert other.run.recoveries == 0


# --- the fold ------------------------------------------------------------------------------------


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    """A state that does not allow an event keeps its value."""
    world = begun()
    before = world.run
    with pytest.raises(InvariantBroken, match=r"tool\.started is not possible"):
        apply(before, ev.ToolStarted(call_id="c1", executor="x", enforcement="y", batch=1), 1)
    assert world.run == before


def test_nothing_follows_a_terminal_event() -> None:
    """A terminal state rejects every event."""
    world = begun()
    finished(world, text="x")
    with pytest.raises(InvariantBroken):
        apply(world.run, ev.SteerReceived(text="late", by="ann"), 1)


def test_a_tape_must_begin_with_its_promise() -> None:
    """A fold of something else, or of nothing, is refused."""
    for rows in ([], [("run.done", 1, b"{}")]):
        with pytest.raises(InvariantBroken, match=r"run\.accepted"):
            fold("run_1", rows)


TEXTS = ("t", "t", "", " ", "half a")
FINISHES: tuple[FinishReason | None, ...] = (None, None, None, "length", "content_filter")
STATUSES = ("succeeded", "succeeded", "failed", "timed_out")


def inputs(world: World, choice: int) -> object:
    """One plausible input for the state the run is in."""
    run = world.run
    started = [call.call_id for call in run.calls if call.phase == "started"]
    asking = [call for call in run.calls if call.phase == "asking"]
    tools = ("allow", "deny", "ask", "refuse", "allow:effect", "allow:path_scoped")
    options: list[object] = [Steer(text="s", by="b"), Resume()]
    if run.state == "accepted":
        return BEGIN
    if run.turn_is_open:
        picked = [tools[(choice >> shift) % len(tools)] for shift in range(choice % 5)]
        finish = FINISHES[choice // 7 % len(FINISHES)]
        answer = turn(*picked, text=TEXTS[choice // 3 % len(TEXTS)], finish=finish)
        options += [TurnFinished(turn=run.turn, attempt=run.attempt, result=answer)] * 4
        options.append(
            TurnFailedInput(
                turn=run.turn,
                attempt=run.attempt,
                failure_class="transient",
                detail="",
            )
        )
    status = STATUSES[choice // 11 % len(STATUSES)]
    options += [ended(call_id, status) for call_id in started] * 3
    if asking:
        words = {"approval_id": asking[0].approval_id or "", "scope": "once", "by": "b"}
        options += [ApprovalAnswered(decision=d, reason="", **words) for d in ("allow", "deny")] * 2  # type: ignore[arg-type]  # literals
    if choice % 41 == 40:
        return CANCEL
    return options[choice % len(options)]


@settings(max_examples=150)
@given(st.lists(st.integers(min_value=0, max_value=2**20), max_size=40))
def test_the_fold_of_any_prefix_equals_the_live_state(choices: list[int]) -> None:
    """Whatever happens to a run, its tape alone gives the same state at every step."""
    world = World()
    lengths = [len(world.tape)]
    for choice in choices:
        world.hear(inputs(world, choice))  # type: ignore[arg-type]  # one of Input
        lengths.append(len(world.tape))
    for length, state in zip(lengths, world.states, strict=True):
        assert fold("run_1", world.tape[:length]) == state
    for length in range(1, len(world.tape)):
        fold("run_1", world.tape[:length])  # also what was cut off inside a step is a state


@settings(max_examples=150)
@given(st.lists(st.integers(min_value=0, max_value=2**20), max_size=40))
def test_every_proposal_ends_in_exactly_one_attestation(choices: list[int]) -> None:
    """Per call: in order, attested once, and one terminal event at the most."""
    world = World()
    for choice in choices:
        world.hear(inputs(world, choice))  # type: ignore[arg-type]  # one of Input
    world.hear(CANCEL)
    kinds = [kind for kind, _, _ in world.tape]
    assert kinds.count("tool.proposed") == kinds.count("tool.attested")
    assert sum(kinds.count(kind) for kind in ev.TERMINAL_KINDS) == 1
    assert kinds[-1] in ev.TERMINAL_KINDS
    assert kinds.count("message.completed") == kinds.count("run.done")
    assert kinds.count("answer.rejected") <= 1
    assert kinds.count("approval.requested") == kinds.count("approval.resolved")


def test_a_redacted_event_is_what_the_state_holds() -> None:
    """State, tape and wire see the same, redacted text."""
    world = World()
    world.env = msgspec.structs.replace(
        world.env, redact=lambda data: (data.replace(b"hunter2", b"*****"), b"hunter2" in data)
    )
    world.hear(BEGIN)
    step = decide(
        world.run, TurnFinished(turn=1, attempt=1, result=turn(text="it is hunter2")), world.env
    )
    assert step.run.transcript[-1].text == "it is *****"  # type: ignore[union-attr]  # an assistant message
    assert step.drafts[0].redacted


def test_call_model_carries_the_turn() -> None:
    """The request says which turn and attempt it is."""
    world = begun()
    effect = world.effects[-1]
    assert isinstance(effect, CallModel)
    assert (effect.request.turn, effect.request.attempt) == (1, 1)


# --- edges ----------------------------------------------------------------------------------------


def test_a_secret_in_the_promise_is_redacted() -> None:
    """The first event is redacted like any other, before state, wire and tape see it."""
    redacts = msgspec.structs.replace(
        environment(), redact=lambda data: (data.replace(b"hunter2", b"*"), b"hunter2" in data)
    )
    accepted = ev.RunAccepted(
        principal="ann", session_id="ses_1", agent="default", model="scripted", sender="hunter2"
    )
    step = accept("run_1", accepted, ev.MessageReceived(text="hello"), redacts)
    assert step.run.accepted.sender == "*"
    assert step.drafts[0].redacted
    assert b"hunter2" not in step.drafts[0].data


def test_a_call_of_another_turn_is_not_attested() -> None:
    """An attestation is about a call of the turn at hand."""
    world = World()
    step = Step(world.run, world.env, now_ms=0, redacts_each=False)
    with pytest.raises(InvariantBroken, match="c9"):
        attest(step, "c9", "denied")


def test_a_signature_is_not_redacted() -> None:
    """Computed fields are not redacted; text fields are."""
    event = ev.ToolAttested(
        call_id="call_hunter2", attestation={}, digest="d" * 64, signature="sk+hunter2=="
    )
    data = ev.encode_event(event).replace(b"hunter2", b"*")
    kept, payload = steps._keep_computed(event, ev.decode_event(event.KIND, data), data)
    assert isinstance(kept, ev.ToolAttested)
    assert ("call_*", "sk+hunter2==") == (kept.call_id, kept.signature)
    assert kept == ev.decode_event(event.KIND, payload)


def test_a_restored_conversation_is_done_at_once() -> None:
    """A run that only gives a branch its conversation starts, calls no model and is answered."""
    world = World()
    accepted = msgspec.structs.replace(world.run.accepted, origin=RESTORE)
    inherited = ev.ConversationInherited(
        run_id="run_0", at_seq=3, link="0" * 64, messages=(UserMessage(text="hello"),)
    )
    world.keep(accept("run_1", accepted, None, world.env, [inherited]))
    assert ["run.started", "run.done"] == world.hear(BEGIN)
    assert ("done", "answered", 0) == (world.run.state, world.run.reason, world.run.turn)
    assert not any(isinstance(effect, CallModel) for effect in world.effects)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_model_that_is_not_configured_any_more_is_left(*, is_gone: bool) -> None:
    """Another model takes over before the first turn, and the tape says from which and why."""
    world = World()
    other = RouteChange(
        turn=0, from_model="scripted", model="spare", provider="p", reason="gone", text="gone"
    )
    route = lambda _run, leaving, may_retry: other if is_gone and leaving == "gone" else None  # noqa: ARG005, E731
    world.env = msgspec.structs.replace(world.env, change_route=route)
    kinds = world.hear(BEGIN)
    assert kinds.count("route.changed") == is_gone
    assert "turn.started" in kinds
    assert world.run.model == ("spare" if is_gone else "scripted")
