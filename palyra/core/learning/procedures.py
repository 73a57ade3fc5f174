"""Procedures: sequences of tool calls that runs made alike, as one call with parameters.

A procedure is a block of successful calls, one after the other, that two or more runs made with the
same tools and the same names of arguments.  Failed calls between them, and reading the daemon's own
records, are left out.  An argument that is equal in all runs is fixed; the others are filled by
parameters, and those with equal values in every run share one.  Values are compared as canonical
JSON, since Python holds `True`, `1` and `1.0` for equal.  An argument with one value in the newest
runs and another one in all before has changed for good: then only the runs since count.

It is proved before it is offered: from its steps and the values of each run follow exactly the calls
that the tape of this run has.  Refused are runs with a denied call or with text that had injection
findings, and blocks across a call that cannot be a step: its arguments were redacted, or belong to
one run alone (`_NEVER`).

A person who accepts it gets a tool `procedure:NAME`.  A call of it is delegated (`core.run.delegation`)
to a run whose turns are the steps: the model `palyra:procedure` proposes one after the other, so
each is validated, gated, executed and recorded as any other call.  The first that does not succeed
ends the run.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from palyra.core.journal.procedure import (
    MAX_USES,
    Procedure,
    ProcedureProof,
    ProcedureStep,
    ProcedureUse,
    ProvedCall,
)
from palyra.core.tape import events as ev
from palyra.core.text.canonical_json import digest_of
from palyra.core.text.visible import visible
from palyra.errors import InvalidParams

PREFIX = "procedure:"  # of the tools
MODEL = "palyra:procedure"
MIN_STEPS, MAX_STEPS = 2, 12
MIN_RUNS, MAX_RUNS = 2, 8
MAX_CALLS = 500  # of one run that are read
MAX_PARAMETERS = 16
MAX_STEP_BYTES = 4_096  # of its fixed arguments
MAX_FAILURES = 2  # in a row; then a person decides again
BASE_BPS = 7_500
RUN_BPS = 1_000  # for each run beyond the first
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")

_NEVER = ("delegate", "process_", PREFIX)
_READS = ("artifact_read", "session_search", "memory_", "update_todos", "propose_plan", "ask_user")
_REDACTED = re.compile(rb"\[redacted:[a-z][a-z0-9_]*\]")
_SHOWN_CHARS = 60
_PLAN = "Palyra procedure plan 1\n"

READ_KINDS = frozenset({  # of `read_calls`
    ev.ToolProposed.KIND, ev.DelegationStarted.KIND, ev.ToolDecided.KIND, ev.ToolCompleted.KIND,
})  # fmt: skip
Outcome = Literal["succeeded", "failed", "denied"]
Shape = tuple[tuple[str, tuple[str, ...]], ...]  # tools and names of arguments


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call of a run that ended; `place` is that of its proposal."""

    place: ProvedCall
    tool: str
    arguments: dict[str, Any]
    outcome: Outcome
    is_redacted: bool = False
    delegated_id: str | None = None  # of the run that it was delegated to


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The calls of a run that ended, in their order."""

    run_id: str
    calls: tuple[RecordedCall, ...]
    is_tainted: bool = False

    @property
    def failed_procedures(self) -> list[str]:
        """Ids of the runs of procedures that failed."""
        return [
            call.delegated_id
            for call in self.calls
            if call.delegated_id is not None and _is_failed_procedure(call)
        ]


class PlannedCall(msgspec.Struct, frozen=True, gc=False):
    """One call that a procedure makes."""

    tool: str
    arguments: dict[str, Any]


# --- finding -------------------------------------------------------------------------------------


def read_calls(
    run_id: str, events: Iterable[tuple[int, ev.Event]], *, is_tainted: bool
) -> RecordedRun:
    """Return the calls of a tape; a call without arguments by name is left out."""
    proposed: dict[str, tuple[int, ev.ToolProposed]] = {}
    outcomes: dict[str, Outcome] = {}
    delegated: dict[str, str] = {}
    for seq, event in events:
        match event:
            case ev.ToolProposed():
                proposed[event.call_id] = seq, event
            case ev.DelegationStarted():
                delegated[event.call_id] = event.run_id
            case ev.ToolDecided(verdict="deny"):
                outcomes[event.call_id] = "denied"
            case ev.ToolCompleted():
                outcomes[event.call_id] = "succeeded" if event.status == "succeeded" else "failed"
            case _:
                pass
    calls = (
        RecordedCall(
            place=ProvedCall(run_id, seq),
            tool=event.tool,
            arguments=event.arguments,
            outcome=outcomes.get(call_id, "failed"),
            is_redacted=_REDACTED.search(msgspec.json.encode(event.arguments)) is not None,
            delegated_id=delegated.get(call_id),
        )
        for call_id, (seq, event) in proposed.items()
        if isinstance(event.arguments, dict)
    )
    ordered = sorted(calls, key=lambda call: call.place.seq)[:MAX_CALLS]
    return RecordedRun(run_id=run_id, calls=tuple(ordered), is_tainted=is_tainted)


def add_steps(run: RecordedRun, steps: Mapping[str, RecordedRun]) -> RecordedRun:
    """Return the run with each failed procedure replaced by the steps that it made.

    `steps` are the runs of those procedures by id.  A run that made the first step once more after
    the failure began from the start: then the steps are left out.  Denied ones stay, because a run
    with a denied call teaches nothing.
    """
    calls: list[RecordedCall] = []
    is_tainted = run.is_tainted
    for number, call in enumerate(run.calls):
        made = steps.get(call.delegated_id or "") if _is_failed_procedure(call) else None
        if made is None:
            calls.append(call)
            continue
        is_tainted = is_tainted or made.is_tainted
        done = [step for step in made.calls if step.outcome == "succeeded"]
        is_restarted = any(_is_same(done[0], later) for later in run.calls[number + 1 :] if done)
        calls += [
            step
            for step in made.calls
            if step.outcome == "denied" or (step.outcome == "succeeded" and not is_restarted)
        ]
    return msgspec.structs.replace(run, calls=tuple(calls), is_tainted=is_tainted)


def _is_failed_procedure(call: RecordedCall) -> bool:
    return call.tool.startswith(PREFIX) and call.outcome == "failed"


def _is_same(call: RecordedCall, other: RecordedCall) -> bool:
    is_same = (call.tool, _canonical(call.arguments)) == (other.tool, _canonical(other.arguments))
    return is_same and call.outcome == other.outcome


def find_procedure(latest: RecordedRun, earlier: Sequence[RecordedRun]) -> Procedure | None:
    """Return the longest procedure of the latest run that earlier ones prove, without a name.

    Of two with the same length the one that begins first; `earlier` has the newest run first.
    """
    blocks = _blocks(latest)
    if not blocks:
        return None
    begun = {shape[:size] for shape in blocks for size in range(1, len(shape) + 1)}
    others = {run.run_id: _blocks(run, begun) for run in earlier if run.run_id != latest.run_id}
    for shape in sorted(blocks, key=len, reverse=True):
        shown = [(latest.run_id, blocks[shape])]
        shown += [(run_id, known[shape]) for run_id, known in others.items() if shape in known]
        if len(shown) < MIN_RUNS:
            continue
        found = _generalise(_since_change(shown[:MAX_RUNS]))
        if is_worth_it(found) and is_proved(found, [latest, *earlier]):
            return found
    return None


def is_worth_it(procedure: Procedure) -> bool:
    """True if it decides something that its caller need not, and stays small.

    That is an argument with a fixed or a shared value, or a step without arguments.
    """
    steps = procedure.steps
    filled = [parameter for step in steps for parameter in step.filled.values()]
    return (
        (any(step.fixed or not step.filled for step in steps) or len(set(filled)) < len(filled))
        and len(procedure.parameters["properties"]) <= MAX_PARAMETERS
        and all(len(msgspec.json.encode(step.fixed)) <= MAX_STEP_BYTES for step in steps)
    )


def is_proved(procedure: Procedure, runs: Sequence[RecordedRun]) -> bool:
    """True if the values of each proof give exactly the calls that its run recorded."""
    known = {call.place: call for run in runs for call in run.calls}
    if len({each.run_id for each in procedure.proofs}) < MIN_RUNS:
        return False
    return all(
        [
            (call.tool, _canonical(call.arguments))
            for call in map(known.get, proof.calls)
            if call is not None and _is_usable(call)
        ]
        == [(call.tool, _canonical(call.arguments)) for call in plan_calls(procedure, proof.values)]
        for proof in procedure.proofs
    )


def plan_calls(procedure: Procedure, values: Mapping[str, Any]) -> tuple[PlannedCall, ...]:
    """Return the calls for these values.  Raises InvalidParams if the names are not its parameters.

    The schema of the parameters is for the caller to check.
    """
    wrong = procedure.parameters["properties"].keys() ^ values.keys()
    if wrong:
        raise InvalidParams(
            f"parameters missing or unknown: {', '.join(sorted(wrong))}", field="arguments"
        )
    return tuple(
        PlannedCall(
            step.tool,
            {**step.fixed, **{name: values[each] for name, each in step.filled.items()}},
        )
        for step in procedure.steps
    )


def fits(procedure: Procedure, calls: Sequence[RecordedCall]) -> bool:
    """True if some values of the parameters give exactly these calls."""
    if len(calls) != len(procedure.steps):
        return False
    values: dict[str, bytes] = {}
    for step, call in zip(procedure.steps, calls, strict=True):
        given = call.arguments
        if step.tool != call.tool or given.keys() != step.fixed.keys() | step.filled.keys():
            return False
        if any(_canonical(given[name]) != _canonical(step.fixed[name]) for name in step.fixed):
            return False
        for name, parameter in step.filled.items():
            value = _canonical(given[name])
            if values.setdefault(parameter, value) != value:
                return False
    return True


def _blocks(
    run: RecordedRun, begun: Container[Shape] | None = None
) -> dict[Shape, tuple[RecordedCall, ...]]:
    """Return the first block of usable calls for each shape, in the order of the run.

    `begun` has the shapes that are wanted and their beginnings; None: all are wanted.
    """
    if run.is_tainted or any(call.outcome == "denied" for call in run.calls):
        return {}
    calls = tuple(
        call
        for call in run.calls
        if call.outcome == "succeeded" and not call.tool.startswith(_READS)
    )
    found: dict[Shape, tuple[RecordedCall, ...]] = {}
    for first in range(len(calls)):
        shape: Shape = ()
        for last, call in enumerate(calls[first : first + MAX_STEPS], first):
            if not _is_usable(call):
                break
            shape = (*shape, (call.tool, tuple(sorted(call.arguments))))
            if begun is not None and shape not in begun:
                break
            block = calls[first : last + 1]
            if len(shape) >= MIN_STEPS and any(each.place.run_id == run.run_id for each in block):
                found.setdefault(shape, block)
    return found


def _is_usable(call: RecordedCall) -> bool:
    is_refused = call.is_redacted or call.tool.startswith(_NEVER)
    return call.outcome == "succeeded" and not is_refused


Block = tuple[str, tuple[RecordedCall, ...]]  # with the id of its run


def _since_change(shown: Sequence[Block]) -> Sequence[Block]:
    """Return the newest blocks, those since an argument changed for good; all if none did."""
    newest = len(shown)
    for index, call in enumerate(shown[0][1]):
        for argument in call.arguments:
            values = [_canonical(block[index].arguments[argument]) for _, block in shown]
            same = next((n for n, each in enumerate(values) if each != values[0]), len(values))
            before = values[same:]
            if same >= MIN_RUNS and len(before) >= MIN_RUNS and len(set(before)) == 1:
                newest = min(newest, same)
    return shown[:newest]


def _generalise(shown: Sequence[Block]) -> Procedure:
    """Return what blocks of one shape have in common."""
    names: dict[tuple[bytes, ...], str] = {}  # parameters by their canonical values
    columns: dict[str, list[Any]] = {}  # and their values in each run
    steps: list[ProcedureStep] = []
    for index, call in enumerate(shown[0][1]):
        fixed: dict[str, Any] = {}
        filled: dict[str, str] = {}
        for argument in sorted(call.arguments):
            column = [block[index].arguments[argument] for _, block in shown]
            values = tuple(_canonical(value) for value in column)
            if len(set(values)) == 1:
                fixed[argument] = column[0]
                continue
            if values not in names:
                names[values] = _free_name(argument, columns)
                columns[names[values]] = column
            filled[argument] = names[values]
        steps.append(ProcedureStep(tool=call.tool, fixed=fixed, filled=filled))
    return Procedure(
        name="",
        steps=tuple(steps),
        parameters={
            "type": "object",
            "properties": {name: {"type": _kinds(column)} for name, column in columns.items()},
            "required": list(columns),
        },
        proofs=tuple(
            ProcedureProof(
                run_id=run_id,
                calls=tuple(call.place for call in block),
                values={name: column[row] for name, column in columns.items()},
            )
            for row, (run_id, block) in enumerate(shown)
        ),
    )


def _free_name(argument: str, taken: Mapping[str, object]) -> str:
    """Return the argument's name, with a number if another parameter has it."""
    name, number = argument, 2
    while name in taken:
        name, number = f"{argument}_{number}", number + 1
    return name


def _kinds(column: Sequence[object]) -> str | list[str]:
    kinds = sorted({_kind(value) for value in column})
    return kinds[0] if len(kinds) == 1 else kinds


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object"}
    return kinds.get(type(value), "array")


def _canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


# --- a candidate ---------------------------------------------------------------------------------


def score_procedure(procedure: Procedure) -> tuple[int, dict[str, int]]:
    """Return its score in basis points and the summands: the more runs, the higher."""
    signals = {"base": BASE_BPS, "runs": RUN_BPS * (len(procedure.proofs) - 1)}
    return min(10_000, sum(signals.values())), signals


def shape_of(procedure: Procedure) -> Shape:
    """Return its tools and the names of their arguments."""
    return tuple(
        (step.tool, tuple(sorted((*step.fixed, *step.filled)))) for step in procedure.steps
    )


def procedure_key(procedure: Procedure) -> str:
    """Return what two procedures with the same steps have in common."""
    return f"procedure:{digest_of(msgspec.to_builtins(procedure.steps))}"


def describe_procedure(procedure: Procedure) -> str:
    """Return its steps in one sentence each, for persons and for the model."""
    lines = []
    for number, step in enumerate(procedure.steps, 1):
        shown = [f"{name} = {_shorten(value)}" for name, value in step.fixed.items()]
        shown += [f"{name} = <{each}>" for name, each in step.filled.items()]
        lines.append(f"{number}. {step.tool}({', '.join(shown)})")
    return "\n".join(lines)


def _shorten(value: object) -> str:
    text = visible(msgspec.json.encode(value).decode())
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def suggest_name(procedure: Procedure, taken: Iterable[str]) -> str:
    """Return a free name made of the tools."""
    words = dict.fromkeys(re.sub(r"[^a-z0-9]+", "_", step.tool) for step in procedure.steps)
    base = re.sub(r"^[^a-z]+", "", "_".join(words))[:32].strip("_") or "steps"
    used = set(taken)
    name, number = base, 2
    while name in used:
        name, number = f"{base}_{number}", number + 1
    return name


def check_name(name: str, taken: Iterable[str]) -> None:
    """Raise InvalidParams for a name of another form, or one that is in use."""
    if NAME.fullmatch(name) is None:
        raise InvalidParams(
            f"{name!r} is no name of a procedure: up to 40 lowercase letters, digits and _, "
            "a letter first",
            field="name",
        )
    if name in set(taken):
        raise InvalidParams(f"another procedure is named {name!r}: choose another", field="name")


def note_use(
    procedure: Procedure, use_id: str, *, is_success: bool, now_ms: int
) -> Procedure | None:
    """Return the procedure with one more use; None if it is counted already."""
    if any(use.use_id == use_id for use in procedure.uses):
        return None
    use = ProcedureUse(use_id=use_id, is_success=is_success, at_ms=now_ms)
    return msgspec.structs.replace(
        procedure,
        succeeded=procedure.succeeded + is_success,
        failed=procedure.failed + (not is_success),
        uses=(*procedure.uses, use)[-MAX_USES:],
    )


def keeps_failing(procedure: Procedure) -> bool:
    """True if the last uses failed, as many as take it back to review."""
    last = procedure.uses[-MAX_FAILURES:]
    return len(last) == MAX_FAILURES and not any(use.is_success for use in last)


# --- the message of the run that executes it -----------------------------------------------------


def render_plan(name: str, calls: Sequence[PlannedCall]) -> str:
    """Return the message that the model of procedures plays.

    Without `@`, which would be a reference to a file or a person's memory.
    """
    plan = msgspec.json.encode({"procedure": name, "steps": calls}).decode()
    return _PLAN + plan.replace("@", "\\u0040")


def read_plan(text: str) -> tuple[PlannedCall, ...] | None:
    """Return the calls of a message; None if it is none of `render_plan`."""
    if not text.startswith(_PLAN):
        return None
    try:
        return msgspec.json.decode(text[len(_PLAN) :], type=_Plan).steps
    except msgspec.DecodeError:
        return None


class _Plan(msgspec.Struct, frozen=True):
    steps: tuple[PlannedCall, ...]
