"""One-line texts for tape events, and the meaning of each event kind.

Pure.  `palyra run`, `palyra tape show` and the demonstration print events with `narrate`.  The
demonstration adds MEANING, which explains each kind to a reader who is new to tapes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from palyra.cli.command.output import one_line
from palyra.cli.view.call_result import CallResult, name_whole, split_lines
from palyra.client import TapeEvent
from palyra.core.journal import damaged_row
from palyra.core.journal.purged_row import read_tombstone
from palyra.core.run.decide import describe
from palyra.core.run.todos import count_todos, list_todos
from palyra.core.tape import events as ev
from palyra.core.text.visible import describe_call, pluralize, visible

E = TypeVar("E", bound=ev.Event)
Renderer = Callable[[Any], "EventLine"]


LINE_CHARS = 100  # of a text on the line of its event


@dataclass(frozen=True, slots=True)
class EventLine:
    """Text of an event with a mark and a colour; the colour is one that click and rich share."""

    mark: str
    text: str
    colour: str | None = None
    lines: tuple[str, ...] = ()  # of an output, as they are; the printer escapes them


def narrate(item: TapeEvent, body_lines: int | None = 0) -> EventLine:
    """Return the line for an event; an unknown kind is shown by name and payload.

    With `body_lines` the lines of a text follow, its last ones or with None all of it, and
    any text that the line would cut.
    """
    purged = read_tombstone(item.data) if item.event is None else None
    if purged is not None:
        return EventLine("·", f"[purged {purged.day}]")
    if item.event is None and bytes(item.data).startswith(damaged_row.PREFIX):
        return EventLine("✗", f"{visible(item.kind)} [damaged: it does not decode]", "red")
    render = _RENDERERS.get(type(item.event)) if item.event is not None else None
    if render is None:
        return EventLine(
            "·", f"{visible(item.kind)} {one_line(item.data.decode(errors='replace'), 120)}"
        )
    event, lines = _split_text(item, body_lines) if body_lines != 0 else (item.event, ())
    line = render(event)
    return replace(line, text=visible(line.text), lines=lines or line.lines)


def _split_text(item: TapeEvent, limit: int | None) -> tuple[ev.Event | None, tuple[str, ...]]:
    """Return the event without a text that one line cannot show, and the lines of that text."""
    match item.event:
        case ev.ToolCompleted(output=output, error=error):
            text, without = output, {"output": ""}
            if error:
                text = f"{output}\n{error}" if output else error
                without["error"] = ""
            where = name_whole(item.event, item.run_id, item.session_id)
        case (
            ev.MessageReceived(text=text)
            | ev.MessageCompleted(text=text)
            | ev.SteerReceived(text=text)
        ):
            where, without = f"palyra tape show --full {item.run_id}", {"text": ""}
        case _:
            return item.event, ()
    lines = split_lines(text)
    if len(lines) < 2 and len(text) <= LINE_CHARS:  # noqa: PLR2004 - one line
        return item.event, ()
    kept = lines if limit is None else lines[-limit:]
    shown = CallResult("", "", tuple(kept), len(lines) - len(kept)).list_lines(where)
    if limit is None and getattr(item.event, "artifact", None) is not None:
        shown = (*shown, f"the tape has an excerpt; all of it: {where}")
    return msgspec.structs.replace(item.event, **without), shown


def to_json(item: TapeEvent) -> dict[str, object]:
    """Return the event as an object with the member names of the protocol."""
    return {
        "run_id": item.run_id,
        "session_id": item.session_id,
        "seq": item.seq,
        "at_ms": item.at_ms,
        "kind": item.kind,
        "data": msgspec.Raw(item.data),
    }


def _accepted(event: ev.RunAccepted) -> EventLine:
    return EventLine("●", f"accepted from {event.principal} for model {event.model}", "cyan")


def _inherited(event: ev.ConversationInherited) -> EventLine:
    where = f"{event.run_id} up to seq {event.at_seq}"
    return EventLine(
        "·", f"continues from {where}, {pluralize(len(event.messages), 'message')}", "cyan"
    )


def _received(event: ev.MessageReceived) -> EventLine:
    return EventLine("»", one_line(event.text, 160))


def _started(event: ev.RunStarted) -> EventLine:
    return EventLine("·", f"started by daemon {event.instance_id[:12]}")


def _planned(event: ev.RoutePlanned) -> EventLine:
    why = "; ".join(reason.text for reason in event.reasons)
    return EventLine("·", f"route ({event.mode}): {event.model}: {why}")


def _rerouted(event: ev.RouteChanged) -> EventLine:
    return EventLine("·", f"{event.model} takes over: {event.text}", "yellow")


def _compacted(event: ev.ContextCompacted) -> EventLine:
    shown = f"about {pluralize(event.before_tokens, 'token')} become {event.after_tokens}"
    return EventLine("·", f"the prompt was too large: {shown}", "yellow")


def _summarised(event: ev.CompactionApplied) -> EventLine:
    summary = event.summary
    shown = f"about {pluralize(summary.before_tokens, 'token')} become {summary.after_tokens}"
    refused = f"; draft refused: {summary.refusals[0]}" if summary.refusals else ""
    return EventLine("·", f"session summarised: {shown}{refused}", "yellow")


def _not_summarised(event: ev.CompactionSkipped) -> EventLine:
    return EventLine("·", f"session not summarised: {event.reason}")


def _gathered(event: ev.ContextGathered) -> EventLine:
    """Name the texts that were gathered, and those that could not be."""
    found = [source.name for source in event.sources if not source.error]
    lost = [f"{source.name} ({source.error})" for source in event.sources if source.error]
    shown = ", ".join(found) or event.absent or "nothing"
    missing = f"; not available: {', '.join(lost)}" if lost else ""
    label = event.layer.replace("_", " ")
    return EventLine("·", f"{label}: {shown}{missing}", "yellow" if missing else None)


def _assembled(event: ev.ContextAssembled) -> EventLine:
    tokens = pluralize(event.input_tokens, "token")
    return EventLine("·", f"context of {tokens}, {pluralize(len(event.segments), 'segment')}")


def _turn_started(event: ev.TurnStarted) -> EventLine:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return EventLine("▸", f"turn {event.turn}: asking {event.model}{again}")


def _turn_completed(event: ev.TurnCompleted) -> EventLine:
    used = event.usage
    calls = f", {pluralize(len(event.calls), 'call')}" if event.calls else ""
    spent = f"{used.input_tokens} + {pluralize(used.output_tokens, 'token')}"
    cost = f", ${event.cost_usd_micros / 1_000_000:.6f}" if event.cost_usd_micros else ""
    if event.is_unpriced:
        cost = ", cost unknown"
    return EventLine("▸", f"turn {event.turn}: {event.finish_reason}{calls}, {spent}{cost}")


def _turn_failed(event: ev.TurnFailed) -> EventLine:
    after = f"; again in {event.delay_ms} ms" if event.retry else ""
    return EventLine("✗", f"turn {event.turn}: {event.failure_class}: {event.detail}{after}", "red")


def _item_refused(event: ev.ItemRefused) -> EventLine:
    names = ", ".join(name[:64] for name in (event.name, *event.also))
    what = event.item if event.item == "reasoning" else f"{event.item} {names}"
    return EventLine("·", f"left out from here on, refused by the provider: {what}", "yellow")


def _exceeded(event: ev.BudgetExceeded) -> EventLine:
    why = "no price for its model" if event.is_unpriced else describe(event)
    return EventLine(
        "✗", f"turn {event.turn}: model not called; budget {event.budget_id}: {why}", "red"
    )


def _proposed(event: ev.ToolProposed) -> EventLine:
    return EventLine(
        "→", f"{describe_briefly(event.tool, event.arguments)}  [{event.tool_class}]", "yellow"
    )


_VERBS = {"Add": "create ", "Update": "", "Delete": "delete "}
_SIDE = re.compile(r"^[ab]/")
_NO_FILE = "/dev/null"
# Lines of a patch that name files, in sections or as a unified difference (`tools.files.patch`).
_OF_PATCH = re.compile(
    r"^\*\*\* (?:(?P<verb>Add|Update|Delete) File: (?P<path>.+)|Move to: (?P<moved>.+))$"
    r"|^--- (?P<old>.+)\n\+\+\+ (?P<new>.+)\n(?=@@ )",
    re.MULTILINE,
)


def describe_briefly(tool: str, arguments: object) -> str:
    """Describe a call in one line; a text of several lines is left out, its result or preview has it.

    Of a patch the names of its files are left.
    """
    if isinstance(arguments, dict):
        if tool == "apply_patch" and isinstance(patch := arguments.get("patch"), str):
            files = name_files(patch)
            arguments = ({"files": files} if files else {"patch": patch}) | {
                name: value for name, value in arguments.items() if name != "patch"
            }
        arguments = {
            name: "…" if isinstance(value, str) and "\n" in value.strip() else value
            for name, value in arguments.items()
        }
    return describe_call(tool, arguments)


def name_files(patch: str) -> str:
    """Return the files that a patch changes, with what it does beyond that; "" if it names none."""
    named: list[str] = []
    for found in _OF_PATCH.finditer(patch.replace("\r\n", "\n")):
        if found["moved"]:
            named[-1:] = [f"{''.join(named[-1:])} → {found['moved']}"]
        elif found["verb"]:
            named.append(f"{_VERBS[found['verb']]}{found['path']}")
        else:
            old, new = (found[each].partition("\t")[0].strip() for each in ("old", "new"))
            verb = "create " if old == _NO_FILE else "delete " if new == _NO_FILE else ""
            named.append(f"{verb}{_SIDE.sub('', old if verb == 'delete ' else new)}")
    return ", ".join(named)


def _rejected(event: ev.ToolRejected) -> EventLine:
    reason = "; ".join(filter(None, (event.reason, event.repair_hint)))
    return EventLine("✗", f"rejected: {reason}", "red")


def _decided(event: ev.ToolDecided) -> EventLine:
    unnamed = [name for name in event.policies if name not in event.reason]
    by = f" (by {', '.join(unnamed)})" if unnamed else ""
    if event.verdict == "allow":
        return EventLine("✓", f"allowed: {event.reason}{by}", "green")
    return EventLine("✗", f"denied: {event.reason}{by}", "red")


def _asked(event: ev.ApprovalRequested) -> EventLine:
    shown = f"{event.summary} ({event.risk} risk)"
    return EventLine("?", f"needs a person: {shown}, {event.approval_id}", "magenta")


def _answered(event: ev.ApprovalResolved) -> EventLine:
    why = f": {event.reason}" if event.reason else ""
    if event.decision == "abort":
        return EventLine("!", f"the question is withdrawn{why}", "yellow")
    colour = "green" if event.decision == "allow" else "red"
    return EventLine("!", f"{event.decision} ({event.scope}) by {event.by}{why}", colour)


def _tool_started(event: ev.ToolStarted) -> EventLine:
    return EventLine("·", f"running, {event.executor}, isolation: {event.enforcement}")


def _tool_completed(event: ev.ToolCompleted) -> EventLine:
    good = event.status == "succeeded"
    output = event.output if good else (event.error or event.output)
    found = f": {one_line(output, LINE_CHARS)}" if output else ""
    text = f"{event.status} in {event.duration_ms} ms{found}"
    return EventLine("←", text, "green" if good else "red")


def _delegated(event: ev.DelegationStarted) -> EventLine:
    share = f", at most {pluralize(event.budget.tokens, 'token')}" if event.budget.tokens else ""
    return EventLine("⇢", f"{event.agent} works on it in {event.run_id}{share}", "magenta")


def _delegation_ended(event: ev.DelegationEnded) -> EventLine:
    why = f": {one_line(event.reason, 120)}" if event.reason else ""
    colour = "red" if event.state not in {"done", "partial"} else "magenta"
    return EventLine("⇠", f"{event.run_id} is {event.state}{why}", colour)


def _attested(event: ev.ToolAttested) -> EventLine:
    return EventLine("·", f"attested, signature {event.signature[:16]}…")


def _steered(event: ev.SteerReceived) -> EventLine:
    return EventLine("»", f"{event.by} steers: {one_line(event.text, 120)}", "cyan")


def _answer_rejected(event: ev.AnswerRejected) -> EventLine:
    return EventLine("✗", f"no answer yet: {event.reason}", "red")


def _todos(event: ev.TodosChanged) -> EventLine:
    lines = tuple(list_todos(event.todos))
    return EventLine("☰", f"to-do list, {count_todos(event.todos)}", "cyan", lines)


def _guard_warned(event: ev.GuardWarned) -> EventLine:
    return EventLine(
        "!", f"no progress: {event.call} ({event.rule}, {event.count} times)", "yellow"
    )


def _guard_blocked(event: ev.GuardBlocked) -> EventLine:
    return EventLine("✗", f"stopped: {event.call} ({event.rule}, {event.count} times)", "red")


def _message(event: ev.MessageCompleted) -> EventLine:
    return EventLine("«", one_line(event.text, 160))


def _recovered(event: ev.RunRecovered) -> EventLine:
    where = f"after seq {event.from_seq}"
    return EventLine("●", f"resumed from its tape, attempt {event.attempt}, {where}", "cyan")


def _done(event: ev.RunDone) -> EventLine:
    if event.reason == "answered":
        return EventLine("■", "done: answered", "green")
    why = f": {event.missing}" if event.missing else ""
    return EventLine("■", f"done: {event.reason}{why}", "yellow")


def _failed(event: ev.RunFailed) -> EventLine:
    return EventLine("■", f"failed: {event.failure_class}: {event.reason} ({event.action})", "red")


def _cancelled(event: ev.RunCancelled) -> EventLine:
    return EventLine("■", f"cancelled by {event.by}: {event.reason}", "red")


def _undone(event: ev.RunUndone) -> EventLine:
    files = pluralize(len(event.files), "file")
    return EventLine("■", f"{files} put back by {event.by} ({event.checkpoint_id})")


def _purged(event: ev.RunPurged) -> EventLine:
    events = pluralize(event.events, "event")
    return EventLine("■", f"content of {events} purged by {event.by} ({event.purge_id})")


_RENDERERS: dict[type[ev.Event], Renderer] = {
    ev.RunAccepted: _accepted,
    ev.ConversationInherited: _inherited,
    ev.MessageReceived: _received,
    ev.RunStarted: _started,
    ev.ContextGathered: _gathered,
    ev.ContextAssembled: _assembled,
    ev.RoutePlanned: _planned,
    ev.RouteChanged: _rerouted,
    ev.ContextCompacted: _compacted,
    ev.CompactionApplied: _summarised,
    ev.CompactionSkipped: _not_summarised,
    ev.TurnStarted: _turn_started,
    ev.TurnCompleted: _turn_completed,
    ev.TurnFailed: _turn_failed,
    ev.ItemRefused: _item_refused,
    ev.BudgetExceeded: _exceeded,
    ev.ToolProposed: _proposed,
    ev.ToolRejected: _rejected,
    ev.ToolDecided: _decided,
    ev.ApprovalRequested: _asked,
    ev.ApprovalResolved: _answered,
    ev.ToolStarted: _tool_started,
    ev.ToolCompleted: _tool_completed,
    ev.ToolAttested: _attested,
    ev.DelegationStarted: _delegated,
    ev.DelegationEnded: _delegation_ended,
    ev.SteerReceived: _steered,
    ev.AnswerRejected: _answer_rejected,
    ev.TodosChanged: _todos,
    ev.GuardWarned: _guard_warned,
    ev.GuardBlocked: _guard_blocked,
    ev.MessageCompleted: _message,
    ev.RunRecovered: _recovered,
    ev.RunDone: _done,
    ev.RunFailed: _failed,
    ev.RunCancelled: _cancelled,
    ev.RunUndone: _undone,
    ev.RunPurged: _purged,
}


MEANING = {
    "run.accepted": "durable before the reply, so a crash cannot lose it",
    "message.received": "the user's message",
    "run.started": "the run left its session's queue and starts",
    "route.planned": "which model should answer, which one does, and why",
    "route.changed": "another model takes over",
    "context.compacted": "the prompt was too large; older parts are left out",
    "compaction.applied": "a summary replaces older messages; the tape keeps them all",
    "compaction.skipped": "a compaction was due and would have gained nothing",
    "context.assembled": "the parts of the model's prompt, with hashes",
    "turn.started": "a request to the model",
    "turn.completed": "the complete answer; the deltas streamed before were only progress",
    "turn.failed": "the provider failed; the failure class decides what happens next; text that the "
    "turn streamed is withdrawn",
    "item.refused": "the provider refused this item of the prompt; later prompts leave it out",
    "tool.proposed": "the model proposes a call; nothing has happened yet",
    "tool.rejected": "malformed; the model may repair it",
    "tool.decided": "the gate's decision, by policy or by a person",
    "approval.requested": "a person must answer; the answer is bound to this digest",
    "approval.resolved": "the first valid answer; durable before the call runs",
    "tool.started": "committed before the effect, so a restart knows it may have happened",
    "tool.completed": "the result, which goes back to the model",
    "tool.attested": "a signature over proposal, decision and outcome",
    "steer.received": "a message to a running run",
    "answer.rejected": "the model's last text was not an answer; it gets one more turn",
    "todos.changed": "the model replaced its to-do list",
    "guard.warned": "the run repeats itself; the model is warned",
    "guard.blocked": "the run repeated itself too often and ends with a partial answer",
    "message.completed": "the answer, whole or partial",
    "run.recovered": "a new actor continues from the end of the tape, after a restart or a hang",
    "run.done": "the end, exactly one",
    "run.failed": "the end, exactly one; it names a remedy",
    "run.cancelled": "the end, exactly one; nothing starts after it",
    "run.undone": "files that the run had changed were put back; the checkpoint undoes that",
    "run.purged": "the content of all events before was removed, on request; signed",
}
