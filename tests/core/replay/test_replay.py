"""Replay: a tape follows from its inputs, and whatever does not is the first divergence."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.journal.records import Usage
from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES, TapeRow
from palyra.core.replay.replay import Replay
from palyra.core.replay.report import ReplayReport
from palyra.core.run.inputs import (
    ApprovalAnswered,
    Begin,
    CallEnded,
    Cancel,
    Expire,
    Resume,
    Steer,
    TurnFailedInput,
    TurnFinished,
)
from palyra.core.run.step import record_event
from palyra.core.tape import events as ev
from palyra.core.tape.events import DelegationState
from palyra.core.tool.spec import DelegatedEnd
from palyra.errors import Damaged
from tests.core.context.test_overflow import long_run, overflowing
from tests.core.run.fates import live, rows
from tests.core.run.run_world import ScriptedEnvironment, World, environment, turn
from tests.core.run.test_delegation import delegating

CHOICES = st.lists(st.integers(min_value=0, max_value=2**20), max_size=40)
BOTH = pytest.mark.parametrize("strict", [True, False])

# Fields that tell what came from outside: a replay takes them as they are, and a change of one
# shows in what follows from it, if anything does.  `*`: all of them.
INPUTS: dict[str, set[str]] = {
    "run.accepted": {"*"},
    "message.received": {"*"},
    "conversation.inherited": {"*"},
    "run.started": {"*"},
    "context.gathered": {"*"},
    "turn.completed": {"*"},
    "turn.failed": {"*"},
    "budget.exceeded": {"*"},
    "approval.resolved": {"*"},
    "tool.completed": {"*"},
    "steer.received": {"*"},
    "run.cancelled": {"*"},
    "run.failed": {"*"},
    "tool.attested": {"attestation", "signature", "digest"},
    # what the settings of that time decided: a lenient replay takes it, too
    "tool.proposed": {"*"},
    "tool.rejected": {"*"},
    "tool.decided": {"*"},
    "approval.requested": {"*"},
    "context.assembled": {"*"},
    "turn.started": {"provider"},
    "route.planned": {"*"},
    "route.changed": {"*"},
    "context.compacted": {"*"},
    "item.refused": {"*"},
    "compaction.applied": {"*"},
    "compaction.skipped": {"*"},
    "answer.rejected": {"*"},
    "run.undone": {"*"},  # a person's, behind the end
    "run.purged": {"*"},  # follows the end; a purged run is not replayed
    "tool.started": set(),
    "delegation.started": {"*"},
    "delegation.ended": {"*"},
    "guard.warned": set(),
    "todos.changed": set(),
    "guard.blocked": set(),
    "message.completed": set(),
    "run.recovered": {"abandoned"},
    "run.done": set(),
}


def replay(
    tape: list[TapeRow], *, strict: bool = False, now: ScriptedEnvironment | None = None
) -> ReplayReport:
    """The whole replay of a tape."""
    env = now or environment()
    under_way = Replay(tape, env.redact, limits=env.limits, now=env if strict else None)
    while under_way.advance(3):
        pass
    return under_way.report()


def story() -> World:
    """A run with most of what can happen to one: it takes every road but the ends."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    world.hear(TurnFailedInput(turn=1, attempt=1, failure_class="timeout", detail="late"))
    world.hear(Resume())
    answer = turn("allow", "ask", "deny", "refuse", "allow:effect")
    world.hear(TurnFinished(turn=1, attempt=world.run.attempt, result=answer))
    asking = next(call for call in world.run.calls if call.phase == "asking")
    world.hear(
        ApprovalAnswered(
            approval_id=asking.approval_id or "", decision="allow", scope="once", by="b", reason=""
        )
    )
    world.hear(ended("c1", "one"))
    world.hear(Steer(text="shorter", by="ann"))
    world.hear(ended("c2", "two"))
    world.hear(Resume())
    world.hear(TurnFinished(turn=2, attempt=1, result=turn(text="the answer")))
    assert world.run.state == "done"
    return world


def ended(call_id: str, output: str) -> CallEnded:
    return CallEnded(call_id=call_id, status="succeeded", output=output, raw_sha256="0" * 64)


def find(tape: list[TapeRow], kind: str, nth: int = 0) -> int:
    """The seq of the nth event of a kind."""
    return [row.seq for row in tape if row.kind == kind][nth]


def change(tape: list[TapeRow], seq: int, **fields: Any) -> list[TapeRow]:
    """The tape with other values in one event."""
    data = {**msgspec.json.decode(tape[seq].data), **fields}
    row = msgspec.structs.replace(tape[seq], data=msgspec.json.encode(data))
    return [*tape[:seq], row, *tape[seq + 1 :]]


# --- what matches --------------------------------------------------------------------------------


@BOTH
def test_a_run_with_everything_replays_to_the_same_digest(*, strict: bool) -> None:
    """A run with retries, restarts, approvals, words and several calls matches."""
    tape = rows(story())
    report = replay(tape, strict=strict)
    assert (report.matched, report.first_divergence, report.events) == (True, None, len(tape))
    assert report.recorded_digest == report.replayed_digest


@BOTH
@settings(max_examples=300)
@given(choices=CHOICES)
def test_any_run_matches(choices: list[int], *, strict: bool) -> None:
    """Whatever happens to a run and however it ends, its tape follows from its inputs."""
    world = live(choices)
    now = msgspec.structs.replace(environment(), limits=world.env.limits)
    report = replay(rows(world), strict=strict, now=now)
    assert report.first_divergence is None
    assert report.matched


@pytest.mark.parametrize(
    "end",
    [Cancel(reason="enough", by="ann"), Expire(wall_ms=5)],
    ids=["cancel", "wall clock"],
)
@pytest.mark.parametrize("tools", [(), ("ask",), ("allow", "allow"), ("allow:effect",) * 2])
@BOTH
def test_every_end_in_every_phase_matches(
    end: Any, tools: tuple[str, ...], *, strict: bool
) -> None:
    """A run cancelled during a question, a tool call or a model call matches, also once undone."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    if tools:
        world.hear(TurnFinished(turn=1, attempt=1, result=turn(*tools)))
    world.hear(end)
    assert world.run.is_terminal
    tape = rows(world)
    assert replay(tape, strict=strict).matched
    undone = ev.RunUndone(checkpoint_id="ckp_1", by="ann", files=("a",))
    row = msgspec.structs.replace(
        tape[-1], seq=len(tape), at_ms=tape[-1].at_ms + 60_000, kind=undone.KIND,
        data=ev.encode_event(undone),
    )  # fmt: skip
    report = replay([*tape, row], strict=strict)
    assert report.matched, report.first_divergence


@BOTH
def test_a_run_that_was_resumed_too_often_matches(*, strict: bool) -> None:
    """The end of a run that never got further follows from its restarts."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    for _ in range(4):
        world.hear(Resume())
    assert world.run.reason is not None
    assert "recovery_exhausted" in world.run.reason
    assert replay(rows(world), strict=strict).matched


@BOTH
@pytest.mark.parametrize("state", ["done", "failed"])
def test_a_run_with_delegated_runs_matches(state: DelegationState, *, strict: bool) -> None:
    """Plans and ends of children are taken from the tape; one without an end has none in a replay."""
    world = delegating(2)
    end = DelegatedEnd(
        state=state, reason="because", usage=Usage(output_tokens=4), cost_usd_micros=5
    )
    world.hear(
        CallEnded(call_id="c0", status="succeeded", output="o", raw_sha256="", delegated=end)
    )
    tape = rows(world)
    kinds = [row.kind for row in tape]
    assert (2, 1) == (kinds.count("delegation.started"), kinds.count("delegation.ended"))
    assert replay(tape, strict=strict).matched
    world.hear(Cancel(reason="enough", by="ann"))
    assert replay(rows(world), strict=strict).matched


@BOTH
def test_a_run_with_a_smaller_prompt_matches(*, strict: bool) -> None:
    """What was left out after an overflow is read from the tape, or planned again."""
    world = long_run()
    overflowing(world)
    tape = rows(world)
    assert "context.compacted" in {row.kind for row in tape}
    report = replay(tape, strict=strict, now=world.env)
    assert report.first_divergence is None
    seq = find(tape, "context.compacted")
    found = replay(change(tape, seq, history_runs=7), strict=strict, now=world.env).first_divergence
    assert (seq if strict else None) == (found and found.seq)


def test_an_open_run_matches_as_far_as_it_got() -> None:
    """Every state between two steps is a tape that matches."""
    world = story()
    tape = rows(world)
    ends = [at for at in range(2, len(tape)) if tape[at - 1].at_ms != tape[at].at_ms]
    assert len(ends) > 5
    for end in ends:
        assert replay(tape[:end]).matched


def test_a_lenient_replay_needs_no_rules_and_no_limits() -> None:
    """Without the daemon's settings everything that they decided is on the tape."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("a lenient replay asks for nothing")

    world = World(max_turns=1, approval_ms=77)
    world.hear(Begin(instance_id="i1"))
    world.hear(TurnFinished(turn=1, attempt=1, result=turn("ask", "deny")))
    asking = world.run.calls[0]
    world.hear(
        ApprovalAnswered(
            approval_id=asking.approval_id or "", decision="deny", scope="once", by="b", reason="no"
        )
    )
    assert world.drafts("run.done")[0].cause == "turn_cap"
    blank = msgspec.structs.replace(
        environment(),
        evaluate=refuse,
        assemble=refuse,
        sign=refuse,
        jitter_ms=refuse,
        new_id=refuse,
    )
    assert replay(rows(world), now=blank).matched


@BOTH
def test_a_run_that_collected_messages_matches(*, strict: bool) -> None:
    """Messages that came while the run waited are taken as they came."""
    world = World()
    for text in ("and this", "and that"):
        world.keep(record_event(world.run, ev.MessageReceived(text=text), world.env))
    world.hear(Begin(instance_id="i1"))
    world.hear(TurnFinished(turn=1, attempt=1, result=turn(text="all of it")))
    assert [message.text for message in world.run.transcript] == [  # type: ignore[union-attr]  # no tools
        "hello",
        "and this",
        "and that",
        "all of it",
    ]
    assert replay(rows(world), strict=strict).matched


@BOTH
def test_refused_and_cut_off_texts_and_guards_replay(*, strict: bool) -> None:
    """Rejected answers, continuations, warnings and ends by the guard follow from the tape."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    for text, finish in (("", "stop"), ("al", "length"), ("pha", "stop")):
        if text == "pha":
            world.hear(Steer(text="and then?", by="ann"))
        result = turn(text=text, finish=finish)  # type: ignore[arg-type]  # a literal
        world.hear(TurnFinished(turn=world.run.turn, attempt=1, result=result))
    for _ in range(4):
        world.hear(TurnFinished(turn=world.run.turn, attempt=1, result=turn("allow")))
        world.hear(ended("c1", "the same"))
    kinds = {kind for kind, _, _ in world.tape}
    assert {"answer.rejected", "guard.warned", "guard.blocked"} <= kinds
    assert replay(rows(world), strict=strict).matched


@BOTH
@pytest.mark.parametrize("text", ["", "x" * (MAX_PAYLOAD_BYTES - 1_000)])
def test_partial_ends_replay(text: str, *, strict: bool) -> None:
    """A text that is refused twice, and one too large for an event."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    for finish in ("length", "stop"):
        result = turn(text=text, finish=finish)
        world.hear(TurnFinished(turn=world.run.turn, attempt=1, result=result))
    assert world.run.reason == "partial"
    assert replay(rows(world), strict=strict).matched


@BOTH
def test_a_malformed_turn_replays(*, strict: bool) -> None:
    """A turn with equal call ids is on the tape as a failure."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    result = turn("allow", "allow")
    same = msgspec.structs.replace(result, calls=(result.calls[0], result.calls[0]))
    world.hear(TurnFinished(turn=1, attempt=1, result=same))
    assert world.run.state == "failed"
    assert replay(rows(world), strict=strict).matched


# --- what diverges -------------------------------------------------------------------------------


def test_a_tape_cut_before_a_context_diverges_at_its_end() -> None:
    """A lenient replay diverges where its recorded input is missing."""
    tape = rows(story())
    end = find(tape, "context.assembled", 2)
    found = replay(tape[:end]).first_divergence
    assert found is not None
    assert (found.seq, found.found) == (end, "context.assembled")


def test_a_changed_answer_is_the_first_divergence() -> None:
    """The answer on the tape is not the model's: its event is named, with both texts."""
    tape = rows(story())
    seq = find(tape, "message.completed")
    found = replay(change(tape, seq, text="another answer")).first_divergence
    assert found is not None
    assert (found.seq, found.kind, found.field) == (seq, "message.completed", "text")
    assert (found.expected, found.found) == ("another answer", "the answer")


def test_a_changed_model_turn_shows_in_the_answer() -> None:
    """A model's turn is an input; the divergence is the answer that does not follow from it."""
    tape = rows(story())
    changed = change(tape, find(tape, "turn.completed", 1), text="something else")
    found = replay(changed).first_divergence
    assert found is not None
    assert (found.kind, found.found) == ("message.completed", "something else")


def test_a_difference_inside_a_list_is_named_by_its_place() -> None:
    """The path of a divergence leads through lists, too."""
    tape = rows(story())
    seq = find(tape, "approval.requested")
    found = replay(change(tape, seq, scopes=["session"]), strict=True).first_divergence
    assert found is not None
    assert (found.field, found.expected, found.found) == ("scopes.0", "session", "once")


@BOTH
def test_a_changed_output_shows_in_its_attestation(*, strict: bool) -> None:
    """A tool's output that is not what was attested diverges at the attestation."""
    tape = rows(story())
    seq = find(tape, "tool.completed")
    found = replay(change(tape, seq, output="other"), strict=strict).first_divergence
    assert found is not None
    assert (found.seq, found.field) == (seq + 1, "attestation.output_sha256")


def test_changed_rules_are_a_divergence_of_a_strict_replay_only() -> None:
    """A changed verdict diverges at its event; a lenient replay does not evaluate."""
    tape = rows(story())
    base = environment()

    def stricter(run: Any, call: Any) -> Any:
        named = msgspec.structs.replace(call, tool="deny") if call.tool == "allow" else call
        return base.evaluate(run, named)

    now = msgspec.structs.replace(base, evaluate=stricter)
    found = replay(tape, strict=True, now=now).first_divergence
    assert found is not None
    assert (found.seq, found.kind) == (find(tape, "tool.decided"), "tool.decided")
    assert (found.field, found.expected, found.found) == ("verdict", "allow", "deny")
    assert replay(tape, now=now).matched


def test_a_changed_catalogue_is_a_divergence_of_a_strict_replay_only() -> None:
    """Another list of tools is found in the first assembled context."""
    tape = rows(story())
    base = environment()

    def other(run: Any, number: int, attempt: int) -> Any:
        event, request = base.assemble(run, number, attempt)
        return msgspec.structs.replace(event, catalogue_hash="other"), request

    now = msgspec.structs.replace(base, assemble=other)
    found = replay(tape, strict=True, now=now).first_divergence
    assert found is not None
    assert (found.seq, found.field) == (find(tape, "context.assembled"), "catalogue_hash")
    assert replay(tape, now=now).matched


def test_a_call_with_redacted_arguments_is_not_evaluated_again() -> None:
    """A strict replay uses the recorded verdict and reports it."""
    tape = rows(story())
    seq = find(tape, "tool.proposed", 1)
    tape[seq] = msgspec.structs.replace(tape[seq], redacted=True)
    tape = change(tape, seq, arguments={"n": "[redacted:token]"})
    asked = find(tape, "approval.requested")
    tape = change(tape, asked, arguments={"n": "[redacted:token]"})
    report = replay(tape, strict=True)
    assert (report.matched, report.unjudged) == (True, (seq,))


def test_a_prompt_that_was_redacted_is_not_judged_again() -> None:
    """A secret may be one only as it was shown to a person."""
    tape = rows(story())
    seq = find(tape, "approval.requested")
    tape[seq] = msgspec.structs.replace(tape[seq], redacted=True)
    report = replay(change(tape, seq, summary="[redacted:token]"), strict=True)
    assert (report.matched, report.unjudged) == (True, (seq - 1,))


def test_a_denial_at_the_approval_limit_is_not_evaluated_again() -> None:
    """The number of approvals of other runs is on no tape, so the recorded verdict is used."""
    tape = rows(story())
    seq = find(tape, "tool.decided", 2)  # after the one of c1 and the person's of c2
    tape = change(tape, seq, reason_code="too_many_prompts")
    report = replay(tape, strict=True)
    assert (report.matched, report.unjudged) == (True, (seq - 1,))


def test_a_missing_event_and_an_added_one_are_found() -> None:
    """A tape whose event was taken out or put in diverges there."""
    tape = rows(story())
    seq = find(tape, "message.completed")
    gone = [*tape[:seq], *tape[seq + 1 :]]
    renumbered = [msgspec.structs.replace(row, seq=at) for at, row in enumerate(gone)]
    found = replay(renumbered).first_divergence
    assert found is not None
    assert (found.seq, found.found) == (seq, "message.completed")
    twice = [*tape[: seq + 1], *tape[seq:]]
    renumbered = [msgspec.structs.replace(row, seq=at) for at, row in enumerate(twice)]
    found = replay(renumbered).first_divergence
    assert found is not None
    assert found.seq == seq + 1


def test_a_tape_cut_inside_a_step_is_found() -> None:
    """Steps are committed whole: half of one did not come from the engine."""
    tape = rows(story())[:-1]
    found = replay(tape).first_divergence
    assert found is not None
    assert (found.seq, found.kind, found.found) == (len(tape), "", "run.done")


def test_an_event_of_another_version_is_a_divergence() -> None:
    """A kind this version lacks, or a payload it cannot read, is named and no crash."""
    tape = rows(story())
    seq = find(tape, "tool.started")
    tape[seq] = msgspec.structs.replace(tape[seq], kind="tool.dreamt")
    found = replay(tape).first_divergence
    assert found is not None
    assert found.seq == seq
    assert "newer version" in found.expected


def inserted(tape: list[TapeRow], at: int, row: TapeRow) -> list[TapeRow]:
    """The tape with one more row, renumbered."""
    longer = [*tape[:at], msgspec.structs.replace(row, at_ms=tape[at].at_ms), *tape[at:]]
    return [msgspec.structs.replace(row, seq=seq) for seq, row in enumerate(longer)]


def test_an_input_of_another_version_is_a_divergence() -> None:
    """So is one with which a step would begin."""
    tape = rows(story())
    seq = find(tape, "turn.completed")
    tape[seq] = msgspec.structs.replace(tape[seq], kind="turn.dreamt")
    found = replay(tape).first_divergence
    assert found is not None
    assert (found.seq, found.expected) == (seq, "")
    assert "newer version" in found.found


def test_an_input_that_the_state_does_not_allow_is_a_divergence() -> None:
    """A run that starts twice is named with what forbids it."""
    tape = rows(story())
    seq = find(tape, "turn.failed")
    found = replay(inserted(tape, seq, tape[find(tape, "run.started")])).first_divergence
    assert found is not None
    assert (found.seq, found.kind, found.expected) == (seq, "run.started", "run.started")
    assert "not possible" in found.found


@pytest.mark.parametrize("kind", ["context.assembled", "tool.completed"])
def test_an_event_that_nothing_could_have_made_is_a_divergence(kind: str) -> None:
    """A consequence without its input, and an outcome that the run does not wait for."""
    tape = rows(story())
    seq = find(tape, "turn.failed")
    found = replay(inserted(tape, seq, tape[find(tape, kind)])).first_divergence
    assert found is not None
    assert (found.seq, found.kind) == (seq, kind)
    assert found.found == "nothing that could happen here"


def test_a_changed_signature_is_a_divergence() -> None:
    """An invalid signature is not accepted from the tape."""
    tape = rows(story())
    seq = find(tape, "tool.attested")
    found = replay(change(tape, seq, signature="?")).first_divergence
    assert found is not None
    assert (found.seq, found.field, found.expected) == (seq, "signature", "?")


@pytest.mark.parametrize(
    ("last", "missing"),
    [("turn.completed", "tool.proposed"), ("tool.proposed", "tool.rejected")],
)
def test_a_tape_cut_inside_a_verdict_diverges_at_its_end(last: str, missing: str) -> None:
    """A call of which the tape says no more is refused, and so differs."""
    tape = rows(story())
    end = find(tape, last) + 1
    found = replay(tape[:end]).first_divergence
    assert found is not None
    assert (found.seq, found.found) == (end, missing)


def test_nothing_before_the_promise_and_no_gap() -> None:
    """A page out of the middle is no tape."""
    tape = rows(story())
    for part in ([], tape[1:], [tape[0], *tape[2:]]):
        with pytest.raises(Damaged):
            Replay(part, environment().redact)


def test_the_values_of_a_divergence_are_cut_and_redacted() -> None:
    """A divergence shows no secret and no long text."""
    base = environment()
    now = msgspec.structs.replace(base, redact=lambda data: (data.replace(b"hunter2", b"*"), True))
    tape = rows(story())
    seq = find(tape, "message.completed")
    changed = change(tape, seq, text="hunter2 " * 1_000)
    found = replay(changed, now=now).first_divergence
    assert found is not None
    assert "hunter2" not in found.expected
    assert len(found.expected) < 500


# --- every field ---------------------------------------------------------------------------------


def other_values(value: Any) -> Iterator[Any]:
    """The value with one leaf changed, for every leaf."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ({**value, key: changed} for changed in other_values(item))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for changed in other_values(item):
                yield [*value[:index], changed, *value[index + 1 :]]
    else:
        yield other_leaf(value)


def other_leaf(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value or ''}x"


def computed_changes(tape: list[TapeRow]) -> Iterator[tuple[str, list[TapeRow], int]]:
    """Every tape with one changed leaf in a field that the engine computes."""
    for row in tape:
        taken = INPUTS[row.kind]
        event = msgspec.to_builtins(ev.decode_event(row.kind, row.data))
        for field in event.keys() - taken if "*" not in taken else ():
            for changed in other_values(event[field]):
                yield f"{row.kind}.{field}", change(tape, row.seq, **{field: changed}), row.seq


def test_every_computed_field_diverges_where_it_was_changed() -> None:
    """One changed leaf of what the engine computes is the first divergence, at its very seq."""
    tape = rows(story())
    seen = set()
    for name, changed, seq in computed_changes(tape):
        seen.add(name)
        found = replay(changed).first_divergence
        assert found is not None, name
        assert found.seq == seq, (name, found)
    assert {"tool.started.batch", "message.completed.text", "run.recovered.from_seq"} <= seen


def test_every_computed_field_of_an_attestation_diverges() -> None:
    """Of an attestation only what the tool alone knew is taken; the rest is computed."""
    tape = rows(story())
    seq = find(tape, "tool.attested", 3)  # of a call that ran
    document = msgspec.json.decode(tape[seq].data)["attestation"]
    assert document["status"] == "succeeded"
    for field in document.keys() - {"raw_output_sha256", "executor", "enforcement"}:
        value = next(other_values(document[field]))
        found = replay(change(tape, seq, attestation={**document, field: value})).first_divergence
        assert found is not None, field
        assert (found.seq, found.field) == (seq, f"attestation.{field}")
    found = replay(change(tape, seq, digest="0" * 64)).first_divergence
    assert found is not None
    assert found.seq == seq


@settings(max_examples=60)
@given(choices=CHOICES, data=st.data())
def test_any_changed_leaf_is_found_at_its_seq(choices: list[int], data: st.DataObject) -> None:
    """A strict replay takes only inputs from the tape; any other changed leaf diverges at its seq."""
    world = live(choices)
    tape = rows(world)
    event_kinds = (
        "context.assembled", "turn.started", "tool.proposed", "tool.rejected", "answer.rejected",
    )  # fmt: skip
    places = [row.seq for row in tape if row.kind in event_kinds or not INPUTS[row.kind]]
    if not places:
        return
    seq = data.draw(st.sampled_from(places))
    event = msgspec.to_builtins(ev.decode_event(tape[seq].kind, tape[seq].data))
    changes = [(f, v) for f in event for v in other_values(event[f]) if f != "call_id"]
    field, value = data.draw(st.sampled_from(changes))
    now = msgspec.structs.replace(environment(), limits=world.env.limits)
    found = replay(change(tape, seq, **{field: value}), strict=True, now=now).first_divergence
    assert found is not None
    assert found.seq == seq


@settings(max_examples=60)
@given(choices=CHOICES, data=st.data())
def test_one_changed_time_is_found(choices: list[int], data: st.DataObject) -> None:
    """Events of one step happened at one time: a row that says otherwise is found."""
    world = live(choices)
    tape = rows(world)
    inside = [at for at in range(1, len(tape)) if tape[at].at_ms == tape[at - 1].at_ms]
    seq = data.draw(st.sampled_from(inside))
    row = msgspec.structs.replace(tape[seq], at_ms=tape[seq].at_ms + 1)
    found = replay([*tape[:seq], row, *tape[seq + 1 :]]).first_divergence
    assert found is not None
    assert (found.seq, found.field) == (seq, "at_ms")


def test_every_kind_is_accounted_for() -> None:
    """A new kind of event must be put on one side or the other."""
    assert INPUTS.keys() == ev.KINDS.keys()
