"""The steps that end a run: with an answer, with part of one, or without.

Whatever the end, every call that was proposed is closed and attested before it.
"""

from palyra.core import events as ev
from palyra.core.answer import answer_text
from palyra.core.call_steps import close_call
from palyra.core.excerpt import excerpt
from palyra.core.partial import Ending, partial_answer, unknown_outcomes
from palyra.core.prompt import ProposedCall
from palyra.core.records import Charge
from palyra.core.run_steps import Cancel, Expire
from palyra.core.step import Step
from palyra.core.tools import HANDED_OVER
from palyra.errors import TooLarge

KEPT_BYTES = 32_768  # of an answer that no event takes: its pieces stand on the tape as turns


def end_answered(step: Step) -> None:
    """The last turn's text is the answer; not a whole one if nobody knows what a call has done."""
    try:
        step.add(ev.MessageCompleted(text=answer_text(step.run)))
    except TooLarge as refused:
        end_partial(step, Ending("too_large", refused.message), answer_text(step.run))
        return
    unknown = unknown_outcomes(step.run)
    if unknown:
        sentence = f"it is unknown whether this took effect: {unknown}"
        step.add(ev.RunDone(reason="partial", cause="outcome_unknown", missing=sentence))
        return
    step.add(ev.RunDone(reason="answered"))


def end_handed_over(step: Step) -> None:
    """The answer is the calls that the client runs, and the text before them."""
    calls = tuple(
        ProposedCall(call_id=call.call_id, tool=call.tool, arguments=call.arguments)
        for call in step.run.calls
        if call.status == HANDED_OVER
    )
    step.add(ev.MessageCompleted(text=answer_text(step.run), calls=calls))
    step.add(ev.RunDone(reason="answered"))


def end_at_callers_limit(step: Step, tokens: int) -> None:
    """The text is as long as the caller wanted it at most: it stands as it is."""
    step.add(ev.MessageCompleted(text=answer_text(step.run)))
    sentence = f"the caller limited an answer to {tokens} tokens"
    step.add(ev.RunDone(reason="partial", cause="max_tokens", missing=sentence))


def end_partial(step: Step, ending: Ending, kept: str = "") -> None:
    """There is no more than this: what was done, what was not, and why."""
    try:
        step.add(ev.MessageCompleted(text=partial_answer(step.run, ending, kept)))
    except TooLarge:
        kept, _ = excerpt(kept, KEPT_BYTES)
        step.add(ev.MessageCompleted(text=partial_answer(step.run, ending, kept)))
    step.add(ev.RunDone(reason="partial", cause=ending.cause, missing=ending.sentence))


def end_failed(
    step: Step, failure_class: str, reason: str, action: str, abandoned: Charge | None = None
) -> None:
    """Something broke; `action` says what somebody can do about it."""
    _close_all(step, reason)
    step.add(
        ev.RunFailed(failure_class=failure_class, reason=reason, action=action, abandoned=abandoned)
    )


def end_told(step: Step, heard: Cancel | Expire) -> None:
    """Somebody, or the wall clock, said so."""
    if isinstance(heard, Expire):
        end_failed(
            step,
            "wall_clock",
            f"the run took longer than {heard.wall_ms} ms",
            "raise runs.wall_ms or the run's budget.wall_ms",
            heard.abandoned,
        )
        return
    _close_all(step, heard.reason)
    step.add(ev.RunCancelled(reason=heard.reason, by=heard.by, abandoned=heard.abandoned))


def _close_all(step: Step, reason: str) -> None:
    """Give every call that was proposed its end; a call only named by the model has none."""
    if step.run.budget_question:
        step.add(
            ev.ApprovalResolved(
                approval_id=step.run.budget_question,
                call_id="",
                decision="abort",
                scope="once",
                by="run",
                reason=reason,
            )
        )
    for call in step.run.calls:
        close_call(step, call, reason)
