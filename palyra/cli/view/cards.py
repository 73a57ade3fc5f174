"""One line for each call of a run, made when the call has ended.

Pure.  `Cards` folds the events of a run: a proposal opens a card, and its result, refusal or denial
closes it.  Open cards are the status of a conversation.
"""

from dataclasses import dataclass, field

from palyra.cli.command.output import one_line
from palyra.cli.view.call_result import PROGRAM, describe_result, name_whole
from palyra.cli.view.event_text import EventLine, describe_briefly, narrate
from palyra.client import TapeEvent
from palyra.core.tape import events as ev
from palyra.core.text.visible import visible

# Events that have a line of their own in a conversation; calls have cards.
TOLD = (
    ev.TurnFailed,
    ev.ApprovalResolved,
    ev.DelegationEnded,
    ev.SteerReceived,
    ev.AnswerRejected,
    ev.TodosChanged,
    ev.GuardWarned,
    ev.GuardBlocked,
    ev.RunRecovered,
    ev.RunFailed,
    ev.RunCancelled,
)


@dataclass(slots=True)
class Cards:
    """Open calls of one run, by call id."""

    width: int = 79  # of a line
    _open: dict[str, str] = field(default_factory=dict)
    _programs: set[str] = field(default_factory=set)  # calls that run one

    @property
    def status(self) -> str:
        """The open calls in words; "" if there are none."""
        return ", ".join(self._open.values())

    def take(self, item: TapeEvent) -> EventLine | None:
        """Apply one event and return the line that it completes, if any."""
        match item.event:
            case ev.ToolProposed() as call:
                self._open[call.call_id] = visible(describe_briefly(call.tool, call.arguments))
                if call.executor == PROGRAM:
                    self._programs.add(call.call_id)
                return None
            case ev.ToolRejected() as call:
                return self._close(call.call_id, f"malformed: {call.reason}")
            case ev.ToolDecided(verdict="deny") as call:
                return self._close(call.call_id, f"denied: {call.reason}")
            case ev.ToolCompleted() as done:
                return self._complete(done, name_whole(done, item.run_id, item.session_id))
            case _:
                is_partial = isinstance(item.event, ev.RunDone) and item.event.reason == "partial"
                return narrate(item) if is_partial or isinstance(item.event, TOLD) else None

    def _complete(self, done: ev.ToolCompleted, where: str) -> EventLine:
        """Return the line of a result that fits the width, with the last lines of a program."""
        call = self._open.pop(done.call_id, done.call_id)
        room = self.width - len(one_line(call, self.width // 2)) - len("✓   ")
        result = describe_result(done, room, is_program=done.call_id in self._programs)
        mark, colour = ("✓", "green") if done.status == "succeeded" else ("✗", "red")
        shown = result.render(room)
        call = one_line(call, max(min(self.width // 2, self.width - len(shown) - len("✓   ")), 1))
        return EventLine(mark, f"{call}  {shown}", colour, result.list_lines(where))

    def _close(self, call_id: str, why: str) -> EventLine:
        """Return the line of a call that did not run: its cause is shown whole."""
        call = one_line(self._open.pop(call_id, call_id), self.width // 2)
        return EventLine("✗", f"{call}  {visible(why)}", "red")
