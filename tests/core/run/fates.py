"""Runs of every fate for properties: a list of numbers decides what happens to the run next."""

from palyra.core.journal.records import Charge, Usage
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import FailureClass, FinishReason
from palyra.core.run.inputs import (
    ApprovalAnswered,
    Begin,
    BudgetRefused,
    CallEnded,
    Cancel,
    Expire,
    Input,
    Resume,
    Steer,
    TurnFailedInput,
    TurnFinished,
)
from palyra.core.run.state import Run
from tests.core.run.run_world import World, exceeded, turn

TOOLS = ("allow", "deny", "ask", "refuse", "allow:effect", "allow:path_scoped", "ask:effect")
FAILURES: tuple[FailureClass, ...] = (
    "transient",
    "auth",
    "malformed",
    "rate_limited",
    "context_overflow",
)
STATUSES = ("succeeded", "failed", "timed_out")
FINISHES: tuple[FinishReason | None, ...] = (None, None, None, "length", "content_filter")


def live(choices: list[int]) -> World:
    """A run that these choices happened to."""
    first = choices[0] if choices else 0
    spares = ("second", "third")[: first // 7 % 3]
    world = World(max_turns=2 + first % 7, spares=spares)
    for choice in choices:
        world.hear(next_input(world.run, choice))
    return world


def next_input(run: Run, choice: int) -> Input:
    """One plausible input for the state the run is in."""
    pick, rest = choice % 97, choice // 97
    if pick == 0:
        return Cancel(reason=f"enough {rest}", by="ann")
    if pick == 1:
        return Expire(wall_ms=1 + rest)
    if pick in {2, 3}:
        return Resume() if run.state == "in_progress" else Begin(instance_id="i1")
    if pick in {4, 5}:
        return Steer(text=f"word {rest}", by="bob")
    if run.state == "accepted":
        return Begin(instance_id=f"i{rest}")
    likely = _likely(run, rest)
    return likely[pick % len(likely)] if likely else Resume()


def _likely(run: Run, choice: int) -> list[Input]:
    """The inputs that the run waits for."""
    if run.turn_is_open:
        refused = BudgetRefused(
            exceeded=exceeded(
                turn=run.turn, attempt=run.attempt, action="ask" if choice % 2 else "block"
            ),
            approval_id=f"apr_b{run.next_seq}",
        )
        return [*[_finished(run, choice)] * 6, _broke(run, choice), refused]
    if run.question is not None:
        return [_answered(run.question.approval_id, choice)]
    asking = next((call for call in run.calls if call.phase == "asking"), None)
    waited: list[Input] = [
        _ended(call.call_id, choice) for call in run.calls if call.phase == "started"
    ]
    if asking is not None:
        waited.append(_answered(asking.approval_id or "", choice))
    return waited


def _answered(approval_id: str, choice: int) -> ApprovalAnswered:
    return ApprovalAnswered(
        approval_id=approval_id,
        decision="allow" if choice % 2 else "deny",
        scope="once",
        by="deadline" if choice % 5 == 0 else "bob",
        reason="" if choice % 3 else "no reason",
    )


def _finished(run: Run, choice: int) -> TurnFinished:
    names = [TOOLS[(choice >> 2 * shift) % len(TOOLS)] for shift in range(choice % 5)]
    finish = FINISHES[choice // 5 % len(FINISHES)]
    result = turn(*names, text=f"text {choice}" if choice % 7 else "", finish=finish)
    return TurnFinished(turn=run.turn, attempt=run.attempt, result=result)


def _broke(run: Run, choice: int) -> TurnFailedInput:
    return TurnFailedInput(
        turn=run.turn,
        attempt=run.attempt,
        failure_class=FAILURES[choice % len(FAILURES)],
        detail=f"detail {choice}",
        is_final=choice % 3 == 0,
        charge=Charge(usage=Usage(output_tokens=choice)) if choice % 2 else None,
    )


def _ended(call_id: str, choice: int) -> CallEnded:
    status = STATUSES[choice % len(STATUSES)]
    return CallEnded(
        call_id=call_id,
        status=status,  # type: ignore[arg-type]  # one of them
        output=f"output {choice}" * (1 + choice % 300) if status == "succeeded" else "",
        error=None if status == "succeeded" else f"error {choice}",
        raw_sha256=f"{choice:064x}",
        is_truncated=choice % 2 == 0,
        executor="inline",
        enforcement="none",
    )


def rows(world: World) -> list[TapeRow]:
    """The run's tape as rows."""
    return [
        TapeRow("run_1", "ses_1", seq, at_ms, kind, "ann", False, data)  # noqa: FBT003 - of a row
        for seq, (kind, at_ms, data) in enumerate(world.tape)
    ]
