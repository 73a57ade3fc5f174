"""Procedures: what runs have in common, its proof, its name and its uses."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.procedure import Procedure, ProvedCall
from palyra.core.learning.candidates import LearningRules, is_reviewable
from palyra.core.learning.procedures import (
    MAX_PARAMETERS,
    MAX_STEP_BYTES,
    MAX_STEPS,
    PlannedCall,
    RecordedCall,
    RecordedRun,
    add_steps,
    check_name,
    describe_procedure,
    find_procedure,
    fits,
    is_proved,
    keeps_failing,
    note_use,
    plan_calls,
    procedure_key,
    read_calls,
    read_plan,
    render_plan,
    score_procedure,
    shape_of,
    suggest_name,
)
from palyra.core.tape import events as ev
from palyra.errors import InvalidParams
from tests.rows import every_row

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.0, "", "a", "b", "@c"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("kl"), inner),
    max_leaves=3,
)
SHAPES = st.lists(
    st.tuples(st.sampled_from(["t", "u"]), st.sets(st.sampled_from(["x", "y"]))),
    min_size=2,
    max_size=MAX_STEPS,
)


def call(place: str, tool: str, **arguments: object) -> RecordedCall:
    """A call that succeeded; `place` is run and number, such as `a1`."""
    return RecordedCall(
        place=ProvedCall(place[0], int(place[1:])),
        tool=tool,
        arguments=arguments,
        outcome="succeeded",
    )


def build(run_id: str, path: object, text: object = "t") -> RecordedRun:
    """A run that reads a file and writes it."""
    calls = (
        call(f"{run_id}1", "read", path=path),
        call(f"{run_id}2", "write", path=path, text=text, mode="w"),
    )
    return RecordedRun(run_id=run_id, calls=calls)


def with_second(run: RecordedRun, **fields: object) -> RecordedRun:
    changed = msgspec.structs.replace(run.calls[1], **fields)
    return msgspec.structs.replace(run, calls=(run.calls[0], changed))


def found(*runs: RecordedRun) -> Procedure:
    """The procedure of the first run."""
    procedure = find_procedure(runs[0], runs[1:])
    assert procedure is not None
    return procedure


@given(SHAPES, st.data())
def test_values_of_each_run_give_exactly_its_calls(
    shape: list[tuple[str, set[str]]], data: st.DataObject
) -> None:
    """From each procedure of three runs of one shape follow the recorded calls, and only those."""
    runs = [
        RecordedRun(
            run_id=run_id,
            calls=tuple(
                call(f"{run_id}{seq}", tool, **{name: data.draw(VALUES) for name in sorted(names)})
                for seq, (tool, names) in enumerate(shape)
            ),
        )
        for run_id in ("a", "b", "c")
    ]
    procedure = find_procedure(runs[0], runs[1:])
    if procedure is None:  # nothing in common, or too many parameters
        return
    assert is_proved(procedure, runs)
    for proof in procedure.proofs:
        run = next(each for each in runs if each.run_id == proof.run_id)
        recorded = [each for each in run.calls if each.place in proof.calls]
        assert fits(procedure, recorded)
        plan = plan_calls(procedure, proof.values)
        assert [PlannedCall(each.tool, each.arguments) for each in recorded] == list(plan)
        assert plan == read_plan(render_plan("x", plan))


def test_equal_values_are_fixed_and_others_are_parameters() -> None:
    """Arguments with equal values in every run share a parameter."""
    procedure = found(build("a", "one"), build("b", "two"))
    read, write = procedure.steps
    assert ({}, {"path": "path"}) == (read.fixed, read.filled)
    assert ({"text": "t", "mode": "w"}, {"path": "path"}) == (write.fixed, write.filled)
    assert {"path": {"type": "string"}} == procedure.parameters["properties"]
    assert ["path"] == procedure.parameters["required"]
    calls = plan_calls(procedure, {"path": "three"})
    assert {"path": "three", "text": "t", "mode": "w"} == calls[1].arguments


def test_different_values_of_one_name_are_two_parameters() -> None:
    """The second gets a number."""
    runs = [
        RecordedRun(
            run_id=run,
            calls=(call(f"{run}1", "t", path=one), call(f"{run}2", "u", path=two, mode="w")),
        )
        for run, one, two in (("a", "p", "q"), ("b", "r", "s"))
    ]
    assert {"path", "path_2"} == set(found(*runs).parameters["properties"])


def test_values_are_equal_as_json() -> None:
    """True, 1 and 1.0 are three values."""
    procedure = found(build("a", "p", True), build("b", "p", 1), build("c", "p", 1.0))  # noqa: FBT003 - a value
    kinds = procedure.parameters["properties"]["text"]["type"]
    assert ["boolean", "integer", "number"] == kinds
    assert "path" in procedure.steps[0].fixed


@every_row(
    "change",
    [
        {"outcome": "failed"},
        {"outcome": "denied"},
        {"is_redacted": True},
        {"tool": "procedure:x"},
        {"tool": "delegate"},
        {"tool": "process_start"},
        {"tool": "memory_retain"},
        {"tool": "artifact_read"},
    ],
)
def test_unusable_calls_teach_nothing(change: dict[str, object]) -> None:
    """Neither failed, denied or redacted ones, nor those that belong to one run."""
    one, two = build("a", "p"), build("b", "q")
    assert find_procedure(one, [two]) is not None
    assert find_procedure(one, [with_second(two, **change)]) is None
    assert find_procedure(with_second(one, **change), [two]) is None


def test_a_tainted_run_teaches_nothing() -> None:
    """Nor does it prove anything."""
    one, two = build("a", "p"), build("b", "q")
    tainted = msgspec.structs.replace(two, is_tainted=True)
    assert find_procedure(one, [tainted]) is None
    assert find_procedure(tainted, [one]) is None


def test_one_run_alone_teaches_nothing() -> None:
    """Not even if it makes the calls twice, or is among the earlier ones."""
    once = build("a", "p")
    twice = msgspec.structs.replace(once, calls=(*once.calls, *build("a", "q").calls))
    assert find_procedure(twice, [twice]) is None


@every_row(
    ("second", "is_worth_it"),
    [
        ({"patch": "other"}, False),
        ({"patch": "value"}, True),  # the value of the first call
        ({"patch": "other", "mode": "fixed"}, True),
        ({}, True),
    ],
)
def test_two_tools_alone_are_no_procedure(second: dict[str, str], is_worth_it: bool) -> None:  # noqa: FBT001 - a row
    """Calls that have only the names of their tools in common save the caller nothing."""
    runs = []
    for run in "ab":
        values = {name: f"{value} {run}" for name, value in second.items()}
        if "mode" in second:
            values["mode"] = "fixed"
        calls = (call(f"{run}1", "read", path=f"value {run}"), call(f"{run}2", "patch", **values))
        runs.append(RecordedRun(run_id=run, calls=calls))
    assert is_worth_it == (find_procedure(runs[0], runs[1:]) is not None)


def test_calls_of_one_tool_need_something_in_common() -> None:
    """Two reads of whatever files are no procedure; two with a fixed argument are."""

    def reads(run_id: str, one: str, two: str, **more: object) -> RecordedRun:
        calls = (
            call(f"{run_id}1", "read", path=one, **more),
            call(f"{run_id}2", "read", path=two, **more),
        )
        return RecordedRun(run_id=run_id, calls=calls)

    assert find_procedure(reads("a", "p", "q"), [reads("b", "r", "s")]) is None
    assert found(reads("a", "p", "q", limit=5), reads("b", "r", "s", limit=5)).steps[0].fixed


def test_the_longest_block_wins() -> None:
    """Calls of one run before, between and after the block are left out."""
    one, two = build("a", "p"), build("b", "q")
    more = (call("a0", "list"), *one.calls, call("a3", "other", x=1))
    procedure = found(msgspec.structs.replace(one, calls=more), two)
    assert ["read", "write"] == [step.tool for step in procedure.steps]
    both = (call("b0", "list"), *two.calls)
    longer = found(
        msgspec.structs.replace(one, calls=more), msgspec.structs.replace(two, calls=both)
    )
    assert ["list", "read", "write"] == [step.tool for step in longer.steps]


def test_failed_calls_and_reads_of_records_between_the_steps_are_left_out() -> None:
    """A call that cannot be a step is not: no procedure goes across it."""
    one, two = build("a", "p"), build("b", "q")

    def between(**change: Any) -> RecordedRun:
        other = msgspec.structs.replace(call("b9", "other", x=1), **change)
        return msgspec.structs.replace(two, calls=(two.calls[0], other, two.calls[1]))

    for change in ({"outcome": "failed"}, {"tool": "memory_search"}, {"tool": "artifact_read"}):
        steps = found(one, between(**change)).steps
        assert ["read", "write"] == [step.tool for step in steps]
    changes: list[dict[str, Any]] = [
        {}, {"is_redacted": True}, {"tool": "delegate"}, {"tool": "procedure:x"},
    ]  # fmt: skip
    for fields in changes:
        assert find_procedure(one, [between(**fields)]) is None


def failing(run_id: str, *after: RecordedCall, made: Sequence[RecordedCall]) -> RecordedRun:
    """A run whose procedure failed after the steps `made`, and that made the calls `after` itself."""
    use = msgspec.structs.replace(
        call(f"{run_id}0", "procedure:x"), outcome="failed", delegated_id=run_id.upper()
    )
    run = RecordedRun(run_id=run_id, calls=(use, *after))
    assert [run_id.upper()] == run.failed_procedures
    steps = RecordedRun(run_id=run_id.upper(), calls=tuple(made))
    return add_steps(run, {steps.run_id: steps})


def test_steps_of_a_procedure_that_failed_count_for_the_run() -> None:
    """The run that continues after them teaches the whole; the failed step is no part of it."""
    runs = []
    for name in "ab":
        failed = msgspec.structs.replace(call(f"{name.upper()}2", "write", x=1), outcome="failed")
        made = [call(f"{name.upper()}1", "read", path=name), failed]
        runs.append(failing(name, call(f"{name}1", "write", path=name, x=2), made=made))
    procedure = found(*runs)
    assert ["read", "write"] == [step.tool for step in procedure.steps]
    assert [ProvedCall("A", 1), ProvedCall("a", 1)] == list(procedure.proofs[0].calls)
    assert is_proved(procedure, runs)


def test_a_run_that_begins_again_after_a_failed_procedure_teaches_its_own_calls() -> None:
    """The steps of the procedure are not counted twice, nor alone."""
    made = [[call(f"{run.upper()}1", "read", path=run)] for run in "ab"]
    again = [
        failing(run, *build(run, run).calls, made=steps)
        for run, steps in zip("ab", made, strict=True)
    ]
    assert ["read", "write"] == [step.tool for step in found(*again).steps]
    both = [(*steps, call(f"{steps[0].place.run_id}2", "u", x=1)) for steps in made]
    alone = [failing(run, made=steps) for run, steps in zip("ab", both, strict=True)]
    assert find_procedure(alone[0], alone[1:]) is None


def test_a_procedure_with_a_denied_or_tainted_step_teaches_nothing() -> None:
    """Neither does the run that made the same calls itself afterwards."""
    one, other = build("a", "p"), build("b", "q")
    step = call("B1", "read", path="q")
    assert 2 == len(found(one, failing("b", *other.calls, made=[step])).proofs)
    denied = msgspec.structs.replace(step, outcome="denied")
    assert find_procedure(one, [failing("b", *other.calls, made=[denied])]) is None
    use = msgspec.structs.replace(call("b0", "procedure:x"), outcome="failed", delegated_id="B")
    run = msgspec.structs.replace(other, calls=(use, *other.calls))
    tainted = RecordedRun(run_id="B", calls=(step,), is_tainted=True)
    assert find_procedure(one, [add_steps(run, {"B": tainted})]) is None


def test_a_value_that_changed_for_good_is_fixed_to_the_new_one() -> None:
    """Two runs with the new value, and two with the old one, are needed; else it is a parameter."""
    new = [build(run, run, "new") for run in "ab"]
    old = [build(run, run, "old") for run in "cd"]
    procedure = found(*new, *old)
    assert "new" == procedure.steps[1].fixed["text"]
    assert 2 == len(procedure.proofs)
    for runs in ([new[0], *old], [*new, old[0]], [new[0], old[0], new[1], old[1]]):
        assert "text" in found(*runs).parameters["properties"]


def test_a_procedure_stays_small() -> None:
    """Neither many parameters nor a large fixed argument."""
    wide = [
        RecordedRun(
            run_id=run,
            calls=(
                call(f"{run}1", "t", **{f"x{n}": f"{run}{n}" for n in range(MAX_PARAMETERS + 1)}),
                call(f"{run}2", "u"),
            ),
        )
        for run in "ab"
    ]
    assert find_procedure(wide[0], wide[1:]) is None
    large = "x" * MAX_STEP_BYTES
    assert find_procedure(build("a", "p", large), [build("b", "q", large)]) is None


def test_a_changed_tape_proves_nothing() -> None:
    """A proof whose run has other calls, or which is missing, is none."""
    one, two = build("a", "p"), build("b", "q")
    procedure = found(one, two)
    assert is_proved(procedure, [one, two])
    assert not is_proved(procedure, [one, with_second(two, tool="erase")])
    assert not is_proved(procedure, [one])
    alone = msgspec.structs.replace(procedure, proofs=procedure.proofs[:1])
    assert not is_proved(alone, [one, two])


def test_fits_follows_fixed_values_and_shared_parameters() -> None:
    """Other tools, names, fixed values, or two values of one parameter do not fit."""
    procedure = found(build("a", "p"), build("b", "q"))
    assert fits(procedure, build("c", "new").calls)
    assert not fits(procedure, build("c", "new", "other text").calls)
    assert not fits(procedure, build("c", "new").calls[:1])
    assert not fits(procedure, with_second(build("c", "p"), tool="x").calls)
    mixed = (build("c", "p").calls[0], build("c", "q").calls[1])
    assert not fits(procedure, mixed)


def test_the_tape_says_how_calls_ended() -> None:
    """Proposals in order, with verdicts, outcomes and marks of redaction."""

    def proposed(call_id: str, arguments: Any) -> ev.ToolProposed:
        return ev.ToolProposed(
            call_id=call_id, tool="t", arguments=arguments, digest="", tool_class="effect"
        )

    denied = ev.ToolDecided(
        call_id="b", verdict="deny", reason_code="", reason="", policies=(), policy_version=""
    )
    tape: list[ev.Event] = [
        proposed("a", {"x": 1}),
        ev.ToolCompleted(call_id="a", status="succeeded", output=""),
        proposed("b", {"key": "[redacted:github_token]"}),
        denied,
        proposed("c", {}),
        ev.DelegationStarted(call_id="c", run_id="child", depth=1, agent="", budget=ev.Budget()),
        ev.ToolCompleted(call_id="c", status="timed_out", output=""),
        proposed("d", {}),
        proposed("e", "not an object"),
    ]
    run = read_calls("run", list(enumerate(tape)), is_tainted=True)
    assert run.is_tainted
    assert [
        (0, "succeeded", False, None),
        (2, "denied", True, None),
        (4, "failed", False, "child"),
        (7, "failed", False, None),
    ] == [(each.place.seq, each.outcome, each.is_redacted, each.delegated_id) for each in run.calls]
    assert [] == run.failed_procedures  # a task that was delegated is none


@pytest.mark.parametrize("values", [{}, {"path": 1, "more": 2}])
def test_other_parameters_are_refused(values: dict[str, object]) -> None:
    """Missing and unknown ones are named."""
    procedure = found(build("a", "p"), build("b", "q"))
    with pytest.raises(InvalidParams, match="parameters missing or unknown"):
        plan_calls(procedure, values)


def test_two_runs_are_enough_for_a_review() -> None:
    """The score of the least proof reaches the threshold, and more runs raise it to the most."""
    least = found(build("a", "p"), build("b", "q"))
    score, signals = score_procedure(least)
    assert is_reviewable(LearningRules(), "procedure", score)
    assert sum(signals.values()) == score
    most = found(*(build(str(n), n) for n in range(8)))
    assert 10_000 == score_procedure(most)[0]


def test_key_and_shape() -> None:
    """The shape leaves values out; the key of other steps is another one."""
    one = found(build("a", "p"), build("b", "q"))
    other = found(build("a", "p", "u"), build("b", "q", "u"))
    assert shape_of(one) == shape_of(other)
    assert procedure_key(one) != procedure_key(other)
    assert procedure_key(one) == procedure_key(found(build("c", "r"), build("d", "s")))


def test_the_description_shows_each_step() -> None:
    """Fixed values are shortened and made visible."""
    runs = [build("a", "p", "\u202e" + "x" * 99), build("b", "q", "\u202e" + "x" * 99)]
    first, second = describe_procedure(found(*runs)).split("\n")
    assert "1. read(path = <path>)" == first
    assert second.startswith('2. write(mode = "w", text = ')
    assert "\u202e" not in second
    assert "…" in second


def test_names() -> None:
    """A suggested name is valid and free; a taken or odd one is refused."""
    procedure = found(build("a", "p"), build("b", "q"))
    assert "read_write" == suggest_name(procedure, ())
    assert "read_write_3" == suggest_name(procedure, {"read_write", "read_write_2"})
    odd = msgspec.structs.replace(
        procedure, steps=(msgspec.structs.replace(procedure.steps[0], tool="9:?"),)
    )
    check_name(suggest_name(odd, ()), ())
    for name in ("", "A", "1a", "a-b", "a" * 41, "a\n", "\uff41"):
        with pytest.raises(InvalidParams, match="is no name of a procedure"):
            check_name(name, ())
    with pytest.raises(InvalidParams, match="another procedure is named 'a'"):
        check_name("a", {"a"})


def test_uses_are_counted_once_and_two_failures_in_a_row_are_too_many() -> None:
    """A success between two failures starts the row again; the newest uses are kept."""
    procedure = found(build("a", "p"), build("b", "q"))
    for number, is_success in enumerate([False, True, False]):
        used = note_use(procedure, f"use{number}", is_success=is_success, now_ms=number)
        assert used is not None
        procedure = used
        assert not keeps_failing(procedure)
    assert note_use(procedure, "use2", is_success=False, now_ms=9) is None
    last = note_use(procedure, "use3", is_success=False, now_ms=9)
    assert last is not None
    assert keeps_failing(last)
    assert (1, 3) == (last.succeeded, last.failed)
    for number in range(50):
        last = note_use(last, f"more{number}", is_success=True, now_ms=9) or last
    assert 20 == len(last.uses)
    assert 51 == last.succeeded


@every_row("text", ["", "hello", "Palyra procedure plan 1\n", "Palyra procedure plan 1\n[]"])
def test_other_messages_are_no_plan(text: str) -> None:
    """Neither text nor a plan that is cut."""
    assert read_plan(text) is None


def test_a_plan_has_no_references() -> None:
    """An at sign in an argument would be resolved as a reference."""
    plan = (PlannedCall("t", {"x": "@file:secret"}),)
    assert "@" not in render_plan("x", plan)
    assert plan == read_plan(render_plan("x", plan))


def test_a_failed_procedure_is_read_from_the_tape() -> None:
    """The run of a delegated call is known by its id, which finds the steps of a failed procedure."""
    procedure = ev.ToolProposed(
        call_id="c1", tool="procedure:x", arguments={}, digest="", tool_class="effect"
    )
    started = ev.DelegationStarted(
        call_id="c1", run_id="run_2", depth=1, agent="default", budget=ev.Budget()
    )
    other = msgspec.structs.replace(procedure, call_id="c2")
    end = ev.RunDone(reason="answered")
    read = read_calls("run_1", enumerate((procedure, started, other, end)), is_tainted=False)
    assert ["run_2", None] == [each.delegated_id for each in read.calls]
    assert ["run_2"] == read.failed_procedures
