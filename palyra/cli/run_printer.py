"""Live printing of a run: its text as it streams, and one line for each step.

Theory of the printed text: the model's text arrives twice, first as uncommitted deltas, then
complete in the committed `turn.completed`; the answer arrives once more in `message.completed`.
Deltas may be missing; their offsets say so, and what follows a gap is printed with the committed text.
`RunPrinter` prints of each committed text only the part that has not been
printed: it removes the printed text if that is a prefix of the committed one, and otherwise prints
the whole committed text on a new line.  A turn that ended at the token limit ("length") is
continued by the next turn on the same line.
"""

from dataclasses import dataclass, field

from palyra.cli.event_text import EventLine, narrate
from palyra.cli.output import say
from palyra.client import EventsDiscarded, Item, ProgressItem, TapeEvent
from palyra.core.tape import events as ev

# Events that are printed to standard error; `palyra tape show` prints all.
SHOWN = (
    ev.TurnStarted,
    ev.ItemRefused,
    ev.ToolProposed,
    ev.ToolRejected,
    ev.ToolDecided,
    ev.ApprovalResolved,
    ev.DelegationStarted,
    ev.ToolCompleted,
    ev.DelegationEnded,
    ev.SteerReceived,
    ev.AnswerRejected,
    ev.GuardWarned,
    ev.GuardBlocked,
    ev.RunRecovered,
    ev.RunDone,
    ev.RunFailed,
    ev.RunCancelled,
)


@dataclass(slots=True)
class RunPrinter:
    """Live printer of a run: deltas of the text as they arrive, and one line for each step."""

    streams: bool  # print deltas; else only the complete answer
    _streamed: dict[str, str] = field(default_factory=dict)  # item of a delta -> printed text
    _said: str = ""  # text of the last turn and of the turns that it continues
    _goes_on: bool = False  # the current turn continues the text of the one before
    _is_mid_line: bool = False

    def tell(self, item: Item) -> None:
        """Print one item of the subscription."""
        match item:
            case ProgressItem(kind="text"):
                self._stream(item)
            case TapeEvent():
                self._tell_event(item)
            case EventsDiscarded():
                self._say(
                    EventLine("●", "the daemon restarted; uncommitted output was discarded", "cyan")
                )
                self._streamed.clear()
                self._said = ""
            case _:
                pass

    def _stream(self, progress: ProgressItem) -> None:
        if not self.streams:
            return
        printed = self._streamed.get(progress.item, "")
        if progress.offset not in {None, len(printed)}:  # deltas before it are missing
            return
        self._streamed[progress.item] = printed + progress.delta
        self._print(progress.delta)
        self._is_mid_line = not progress.delta.endswith("\n")

    def _tell_event(self, item: TapeEvent) -> None:
        match item.event:
            case ev.TurnStarted(continues=continues):
                self._goes_on = continues
                if not continues:  # else the text continues on the line of the turn before
                    self._narrate(item)
            case ev.TurnCompleted() if self.streams:
                self._complete(item.event)
            case ev.TurnFailed():
                self._narrate(item)
                if any(self._streamed.values()) and item.event.retry:
                    self._say(EventLine("·", "the text of this turn is withdrawn", "yellow"))
                self._streamed.clear()
            case ev.MessageCompleted(text=text):
                self._conclude(text)
            case ev.Event() if isinstance(item.event, SHOWN):
                self._narrate(item)
            case _:
                pass

    def _narrate(self, item: TapeEvent) -> None:
        """Print one line for an event to standard error."""
        self._say(narrate(item))

    def _complete(self, event: ev.TurnCompleted) -> None:
        """Print the part of a turn's text that was not printed as deltas."""
        so_far, text = "".join(self._streamed.values()), event.text
        self._streamed.clear()
        self._said = self._said + text if self._goes_on else text
        if text.startswith(so_far):
            text = text[len(so_far) :]
        else:
            self._end_line()
        self._print(text)
        self._is_mid_line = self._is_mid_line or bool(text)
        if event.finish_reason != "length":  # else the next turn continues this line
            self._end_line()

    def _conclude(self, text: str) -> None:
        """Print the part of the answer that no turn has printed; without streaming, all of it."""
        if text.startswith(self._said):
            text = text[len(self._said) :]
        else:
            self._end_line()
        if text:
            self._print(f"{text}\n")
            self._is_mid_line = False
        self._end_line()

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._print("\n")
        self._is_mid_line = False

    def _say(self, line: EventLine) -> None:
        self._end_line()
        say(f"{line.mark} {line.text}", err=True, fg=line.colour)

    def _print(self, text: str) -> None:  # noqa: PLR6301 - a conversation prints elsewhere
        say(text, nl=False)
