"""The end of a run: with an answer, with a partial answer, failed or cancelled.

Every proposed call is closed and attested before the end.

A run that ends without an answer gives a partial one: the calls that succeeded, the calls that did
not, and why the run ended.  It is computed from the outcomes of the calls, never from the model's
text.  In JSON mode it is a JSON object, so a client that parses answers can parse it too.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from palyra.core.journal.records import Charge
from palyra.core.model.messages import AssistantMessage, Message, ProposedCall, ToolMessage
from palyra.core.run.answer import answer_text
from palyra.core.run.calls import abort_question, close_call
from palyra.core.run.inputs import Cancel, Expire
from palyra.core.run.state import Run, transcript_with_results
from palyra.core.run.step import Step
from palyra.core.tape import events as ev
from palyra.core.text.excerpt import excerpt
from palyra.core.text.visible import describe_call, visible
from palyra.core.tool.spec import HANDED_OVER
from palyra.errors import TooLarge

# Causes of a partial end whose answer is the model's own text.
OWN_WORDS = frozenset({"max_tokens", "outcome_unknown"})
MAX_LISTED = 20  # calls in each list; more are counted
_DETAIL_CHARS = 160  # shown of a tool's output
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
    """The reason why a run ends without a whole answer."""

    cause: str  # a code for programs
    sentence: str  # the same for people


class PartialResult(msgspec.Struct, frozen=True, kw_only=True):
    """A partial answer in JSON mode."""

    partial: bool = True
    cause: str
    reason: str
    done: list[str]
    not_done: list[str]


def partial_answer(run: Run, ending: EndReason, kept: str = "") -> str:
    """Return the partial answer; `kept` is the beginning of an answer that was cut off."""
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
    """List the calls of the run with unknown outcome; "" if there are none."""
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
    """Return the calls that succeeded and those whose last attempt did not, by first attempt."""
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
    """Yield each call with its result; ids repeat from turn to turn."""
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


KEPT_BYTES = 32_768  # of an answer too large for one event; its parts are on the tape as turns


def end_answered(step: Step) -> None:
    """End with the last turn's text; a partial end if the outcome of a call is unknown."""
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
    """End with the calls that the client executes, and the text before them."""
    calls = tuple(
        ProposedCall(call_id=call.call_id, tool=call.tool, arguments=call.arguments)
        for call in step.run.calls
        if call.status == HANDED_OVER
    )
    step.add(ev.MessageCompleted(text=answer_text(step.run), calls=calls))
    step.add(ev.RunDone(reason="answered"))


def end_at_callers_limit(step: Step, tokens: int) -> None:
    """End with the text that reached the caller's own token limit."""
    step.add(ev.MessageCompleted(text=answer_text(step.run)))
    sentence = f"the caller limited an answer to {tokens} tokens"
    step.add(ev.RunDone(reason="partial", cause="max_tokens", missing=sentence))


def end_partial(step: Step, ending: EndReason, kept: str = "") -> None:
    """End with a partial answer."""
    try:
        step.add(ev.MessageCompleted(text=partial_answer(step.run, ending, kept)))
    except TooLarge:
        kept, _ = excerpt(kept, KEPT_BYTES)
        step.add(ev.MessageCompleted(text=partial_answer(step.run, ending, kept)))
    step.add(ev.RunDone(reason="partial", cause=ending.cause, missing=ending.sentence))


def end_failed(
    step: Step, failure_class: str, reason: str, action: str, abandoned: Charge | None = None
) -> None:
    """End the run as failed; `action` says how to correct the cause."""
    _close_all(step, reason)
    step.add(
        ev.RunFailed(failure_class=failure_class, reason=reason, action=action, abandoned=abandoned)
    )


def end_requested(step: Step, incoming: Cancel | Expire) -> None:
    """End the run because it was cancelled or timed out."""
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
    """Withdraw the pending question and close every proposed call."""
    if step.run.question is not None:
        abort_question(step, step.run.question, by="run", reason=reason)
    for call in step.run.calls:
        close_call(step, call, reason)
