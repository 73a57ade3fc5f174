"""Tape events as sentences: what happened, in one line each.

Pure.  `run`, `tape show` and the demonstration tell the same story with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from palyra.cli.screen import one_line
from palyra.core import events as ev
from palyra.core.budget_steps import describe
from palyra.core.counted import counted
from palyra.core.display import describe_call, visible
from palyra.net.client import TapeEvent

E = TypeVar("E", bound=ev.Event)
Tell = Callable[[Any], "Line"]


@dataclass(frozen=True, slots=True)
class Line:
    """A mark, what happened, and a colour of click's and rich's common set."""

    mark: str
    text: str
    colour: str | None = None


def narrate(item: TapeEvent) -> Line:
    """The line for an event; unknown kinds are shown by name and payload."""
    tell = _TELL.get(type(item.event)) if item.event is not None else None
    if tell is None:
        return Line(
            "·", f"{visible(item.kind)} {one_line(item.data.decode(errors='replace'), 120)}"
        )
    line = tell(item.event)
    return replace(line, text=visible(line.text))


def to_json(item: TapeEvent) -> dict[str, object]:
    """The event as the wire shows it."""
    return {
        "run_id": item.run_id,
        "session_id": item.session_id,
        "seq": item.seq,
        "at_ms": item.at_ms,
        "kind": item.kind,
        "data": msgspec.Raw(item.data),
    }


def _accepted(event: ev.RunAccepted) -> Line:
    return Line("●", f"accepted from {event.principal} for model {event.model}", "cyan")


def _inherited(event: ev.ConversationInherited) -> Line:
    where = f"{event.run_id} up to seq {event.at_seq}"
    return Line("·", f"goes on from {where}, {counted(len(event.messages), 'message')}", "cyan")


def _received(event: ev.MessageReceived) -> Line:
    return Line("»", one_line(event.text, 160))


def _started(event: ev.RunStarted) -> Line:
    return Line("·", f"started by daemon {event.instance_id[:12]}")


def _planned(event: ev.RoutePlanned) -> Line:
    why = "; ".join(reason.text for reason in event.reasons)
    return Line("·", f"route ({event.mode}): {event.model}: {why}")


def _rerouted(event: ev.RouteChanged) -> Line:
    return Line("·", f"{event.model} takes over: {event.text}", "yellow")


def _compacted(event: ev.ContextCompacted) -> Line:
    shown = f"about {counted(event.before_tokens, 'token')} become {event.after_tokens}"
    return Line("·", f"the prompt was too large: {shown}", "yellow")


def _assembled(event: ev.ContextAssembled) -> Line:
    tokens = counted(event.input_tokens, "token")
    return Line("·", f"context of {tokens}, {counted(len(event.segments), 'segment')}")


def _turn_started(event: ev.TurnStarted) -> Line:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return Line("▸", f"turn {event.turn}: asking {event.model}{again}")


def _turn_completed(event: ev.TurnCompleted) -> Line:
    used = event.usage
    calls = f", {counted(len(event.calls), 'call')}" if event.calls else ""
    spent = f"{used.input_tokens} + {counted(used.output_tokens, 'token')}"
    cost = f", ${event.cost_usd_micros / 1_000_000:.6f}" if event.cost_usd_micros else ""
    if event.is_unpriced:
        cost = ", cost unknown"
    return Line("▸", f"turn {event.turn}: {event.finish_reason}{calls}, {spent}{cost}")


def _turn_failed(event: ev.TurnFailed) -> Line:
    after = f"; again in {event.delay_ms} ms" if event.retry else ""
    return Line("✗", f"turn {event.turn}: {event.failure_class}: {event.detail}{after}", "red")


def _exceeded(event: ev.BudgetExceeded) -> Line:
    why = "no price for its model" if event.is_unpriced else describe(event)
    return Line("✗", f"turn {event.turn}: not asked; budget {event.budget_id}: {why}", "red")


def _proposed(event: ev.ToolProposed) -> Line:
    return Line(
        "→", f"{describe_call(event.tool, event.arguments)}  [{event.tool_class}]", "yellow"
    )


def _rejected(event: ev.ToolRejected) -> Line:
    told = "; ".join(filter(None, (event.reason, event.repair_hint)))
    return Line("✗", f"rejected: {told}", "red")


def _decided(event: ev.ToolDecided) -> Line:
    unnamed = [name for name in event.policies if name not in event.reason]
    by = f" (by {', '.join(unnamed)})" if unnamed else ""
    if event.verdict == "allow":
        return Line("✓", f"allowed: {event.reason}{by}", "green")
    return Line("✗", f"denied: {event.reason}{by}", "red")


def _asked(event: ev.ApprovalRequested) -> Line:
    shown = f"{event.summary} ({event.risk} risk)"
    return Line("?", f"needs a person: {shown}, {event.approval_id}", "magenta")


def _answered(event: ev.ApprovalResolved) -> Line:
    why = f": {event.reason}" if event.reason else ""
    colour = "green" if event.decision == "allow" else "red"
    return Line("!", f"{event.decision} ({event.scope}) by {event.by}{why}", colour)


def _tool_started(event: ev.ToolStarted) -> Line:
    return Line("·", f"running, {event.executor}, walls: {event.enforcement}")


def _tool_completed(event: ev.ToolCompleted) -> Line:
    good = event.status == "succeeded"
    output = event.output if good else (event.error or event.output)
    text = f"{event.status} in {event.duration_ms} ms: {one_line(output, 100)}"
    return Line("←", text, "green" if good else "red")


def _attested(event: ev.ToolAttested) -> Line:
    return Line("·", f"attested, signature {event.signature[:16]}…")


def _steered(event: ev.SteerReceived) -> Line:
    return Line("»", f"{event.by} adds: {one_line(event.text, 120)}", "cyan")


def _answer_rejected(event: ev.AnswerRejected) -> Line:
    return Line("✗", f"no answer yet: {event.reason}", "red")


def _guard_warned(event: ev.GuardWarned) -> Line:
    return Line("!", f"no progress: {event.call} ({event.rule}, {event.count} times)", "yellow")


def _guard_blocked(event: ev.GuardBlocked) -> Line:
    return Line("✗", f"stopped: {event.call} ({event.rule}, {event.count} times)", "red")


def _message(event: ev.MessageCompleted) -> Line:
    return Line("«", one_line(event.text, 160))


def _recovered(event: ev.RunRecovered) -> Line:
    where = f"after seq {event.from_seq}"
    return Line(
        "●", f"taken up again by a restarted daemon, attempt {event.attempt}, {where}", "cyan"
    )


def _done(event: ev.RunDone) -> Line:
    if event.reason == "answered":
        return Line("■", "done: answered", "green")
    why = f": {event.missing}" if event.missing else ""
    return Line("■", f"done: {event.reason}{why}", "yellow")


def _failed(event: ev.RunFailed) -> Line:
    return Line("■", f"failed: {event.failure_class}: {event.reason} ({event.action})", "red")


def _cancelled(event: ev.RunCancelled) -> Line:
    return Line("■", f"cancelled by {event.by}: {event.reason}", "red")


_TELL: dict[type[ev.Event], Tell] = {
    ev.RunAccepted: _accepted,
    ev.ConversationInherited: _inherited,
    ev.MessageReceived: _received,
    ev.RunStarted: _started,
    ev.ContextAssembled: _assembled,
    ev.RoutePlanned: _planned,
    ev.RouteChanged: _rerouted,
    ev.ContextCompacted: _compacted,
    ev.TurnStarted: _turn_started,
    ev.TurnCompleted: _turn_completed,
    ev.TurnFailed: _turn_failed,
    ev.BudgetExceeded: _exceeded,
    ev.ToolProposed: _proposed,
    ev.ToolRejected: _rejected,
    ev.ToolDecided: _decided,
    ev.ApprovalRequested: _asked,
    ev.ApprovalResolved: _answered,
    ev.ToolStarted: _tool_started,
    ev.ToolCompleted: _tool_completed,
    ev.ToolAttested: _attested,
    ev.SteerReceived: _steered,
    ev.AnswerRejected: _answer_rejected,
    ev.GuardWarned: _guard_warned,
    ev.GuardBlocked: _guard_blocked,
    ev.MessageCompleted: _message,
    ev.RunRecovered: _recovered,
    ev.RunDone: _done,
    ev.RunFailed: _failed,
    ev.RunCancelled: _cancelled,
}
