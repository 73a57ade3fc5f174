"""The steps that end a run: with an answer, with part of one, or without.

Whatever the end, every call that was proposed is closed and attested before it.

The partial answer: what a run that ends without an answer still has to say.

Computed from what the calls came to, never from what the model says of them: what was done, what
was not, and why there is no more.  In JSON mode it is a JSON object, so whoever parses answers
can parse this one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from palyra.core.journal.records import Charge
from palyra.core.model.messages import AssistantMessage, Message, ProposedCall, ToolMessage
from palyra.core.run.answer import answer_text
from palyra.core.run.approvals import abort_question
from palyra.core.run.calls import close_call
from palyra.core.run.inputs import Cancel, Expire
from palyra.core.run.state import Run, transcript_with_results
from palyra.core.run.transition import Step
from palyra.core.tape import events as ev
from palyra.core.text.excerpt import excerpt
from palyra.core.text.visible import describe_call, visible
from palyra.core.tool.spec import HANDED_OVER
from palyra.errors import TooLarge

# Causes with which the answer is the model's own all the same, and no partial answer of ours.
OWN_WORDS = frozenset({"max_tokens", "outcome_unknown"})
MAX_LISTED = 20  # calls in each list; more are counted
_DETAIL_CHARS = 160  # of what a tool said
_SAYS = {
    "failed": "failed",
    "denied": "denied",
    "rejected": "malformed",
    "timed_out": "stopped at its deadline",
    "cancelled": "stopped",
    "unknown": "it is unknown whether it took effect",
    "handed_over": "handed over to the client",
}


class EndReason(NamedTuple):
    """Why a run ends without a whole answer."""

    cause: str  # a code for programs
    sentence: str  # the same for people


class PartialResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run got done and what not; the JSON of it is the partial answer in JSON mode."""

    partial: bool = True
    cause: str
    reason: str
    done: list[str]
    not_done: list[str]


def partial_answer(run: Run, ending: EndReason, kept: str = "") -> str:
    """The partial answer; `kept` is the beginning of an answer that was cut off."""
    done, not_done = _sort_calls(transcript_with_results(run)[run.inherited :])
    if run.accepted.json_mode:
        account = PartialResult(
            cause=ending.cause, reason=ending.sentence, done=done, not_done=not_done
        )
        return msgspec.json.encode(account).decode()
    if kept:
        lines = [kept, "", f"[The answer stops here: {ending.sentence}.]"]
    else:
        lines = [f"This run ended without a full answer: {ending.sentence}."]
    lines += [*_section("Done", done), *_section("Not done", not_done)]
    if not (done or not_done):
        lines += ["", "No tool was called."]
    return "\n".join(lines)


def unknown_outcomes(run: Run) -> str:
    """The calls of the run that may or may not have happened, in words; "" for none."""
    results = _results(transcript_with_results(run)[run.inherited :])
    unknown = [
        describe_call(each.tool, each.arguments)
        for each, said in results
        if said.status == "unknown"
    ]
    return ", ".join(_cut(list(dict.fromkeys(unknown))))


def _section(title: str, entries: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"- {entry}" for entry in entries)] if entries else []


def _sort_calls(messages: Iterable[Message]) -> tuple[list[str], list[str]]:
    """What succeeded, and what at its last try did not, in the order of the first try."""
    succeeded: dict[str, int] = {}
    missed: dict[str, str] = {}
    for call, result in _results(messages):
        named = describe_call(call.tool, call.arguments)
        if result.status == "succeeded":
            succeeded[named] = succeeded.get(named, 0) + 1
            missed.pop(named, None)
        else:
            missed[named] = f"{named}: {_why(result)}"
    done = [
        f"{named} ({count} times)" if count > 1 else named for named, count in succeeded.items()
    ]
    return _cut(done), _cut(list(missed.values()))


def _results(messages: Iterable[Message]) -> Iterator[tuple[ProposedCall, ToolMessage]]:
    """Each call with its result; ids repeat from turn to turn."""
    calls: dict[str, ProposedCall] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls = {call.call_id: call for call in message.calls}
        elif isinstance(message, ToolMessage) and message.call_id in calls:
            yield calls[message.call_id], message


def _why(result: ToolMessage) -> str:
    line = visible(" ".join(result.output.split()))
    said = line if len(line) <= _DETAIL_CHARS else f"{line[:_DETAIL_CHARS]}…"
    status = _SAYS.get(result.status, result.status)
    return f"{status} ({said})" if said else status


def _cut(entries: list[str]) -> list[str]:
    more = len(entries) - MAX_LISTED
    return [*entries[:MAX_LISTED], f"… and {more} more"] if more > 0 else entries


KEPT_BYTES = 32_768  # of an answer that no event takes: its pieces stand on the tape as turns


def end_answered(step: Step) -> None:
    """The last turn's text is the answer; not a whole one if nobody knows what a call has done."""
    try:
        step.add(ev.MessageCompleted(text=answer_text(step.run)))
    except TooLarge as refused:
        end_partial(step, EndReason("too_large", refused.message), answer_text(step.run))
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


def end_partial(step: Step, ending: EndReason, kept: str = "") -> None:
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


def end_requested(step: Step, incoming: Cancel | Expire) -> None:
    """Somebody, or the wall clock, said so."""
    if isinstance(incoming, Expire):
        end_failed(
            step,
            "wall_clock",
            f"the run took longer than {incoming.wall_ms} ms",
            "raise runs.wall_ms or the run's budget.wall_ms",
            incoming.abandoned,
        )
        return
    _close_all(step, incoming.reason)
    step.add(ev.RunCancelled(reason=incoming.reason, by=incoming.by, abandoned=incoming.abandoned))


def _close_all(step: Step, reason: str) -> None:
    """Give every call that was proposed its end; a call only named by the model has none."""
    if step.run.question is not None:
        abort_question(step, step.run.question, by="run", reason=reason)
    for call in step.run.calls:
        close_call(step, call, reason)
