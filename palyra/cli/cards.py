"""One line for each call of a run, made when the call has ended.

Pure.  `Cards` folds the events of a run: a proposal opens a card, and its result, refusal or denial
closes it.  Open cards are the status of a conversation.
"""

from dataclasses import dataclass, field

from palyra.cli.event_text import EventLine, narrate
from palyra.cli.output import one_line
from palyra.client import TapeEvent
from palyra.core.tape import events as ev
from palyra.core.text.visible import describe_call, visible

OUTPUT_CHARS = 80
AROUND = 5  # the mark, blanks, and the last column, which makes some terminals wrap

# Events that have a line of their own in a conversation; calls have cards.
TOLD = (
    ev.TurnFailed,
    ev.ApprovalResolved,
    ev.DelegationEnded,
    ev.SteerReceived,
    ev.AnswerRejected,
    ev.GuardWarned,
    ev.GuardBlocked,
    ev.RunRecovered,
    ev.RunFailed,
    ev.RunCancelled,
)


@dataclass(slots=True)
class Cards:
    """Open calls of one run, by call id; a line has at most `width` characters, or any number with 0."""

    width: int = 0
    _open: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The open calls in words; "" if there are none."""
        return ", ".join(self._open.values())

    def take(self, item: TapeEvent) -> EventLine | None:
        """Apply one event and return the line that it completes, if any."""
        match item.event:
            case ev.ToolProposed() as call:
                self._open[call.call_id] = visible(describe_call(call.tool, call.arguments))
                return None
            case ev.ToolRejected() as call:
                return self._close(call.call_id, "✗", f"malformed: {call.reason}", "red")
            case ev.ToolDecided(verdict="deny") as call:
                return self._close(call.call_id, "✗", f"denied: {call.reason}", "red")
            case ev.ToolCompleted() as call:
                is_good = call.status == "succeeded"
                found = one_line(call.output or call.error or "", OUTPUT_CHARS)
                text = f"{call.status.replace('_', ' ')}, {call.duration_ms} ms: {found}"
                return self._close(
                    call.call_id, *(("✓", text, "green") if is_good else ("✗", text, "red"))
                )
            case _:
                is_partial = isinstance(item.event, ev.RunDone) and item.event.reason == "partial"
                return narrate(item) if is_partial or isinstance(item.event, TOLD) else None

    def _close(self, call_id: str, mark: str, text: str, colour: str) -> EventLine:
        call, outcome = self._open.pop(call_id, call_id), visible(text)
        if self.width and len(call) + len(outcome) + AROUND > self.width:
            outcome = one_line(outcome, max(self.width - AROUND - len(call), self.width // 2))
            call = one_line(call, max(self.width - AROUND - len(outcome), 1))
        return EventLine(mark, f"{call}  {outcome}", colour)
