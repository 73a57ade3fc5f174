"""Live printing of a run: its text as it streams, and one line for each step.

Theory of the printed text: the model's text arrives twice, first as uncommitted deltas, then
complete in the committed `turn.completed`; the answer arrives once more in `message.completed`.
Deltas may be missing; their offsets say so: what follows a gap is shown in live lines, and printed with
the committed text.
`RunPrinter` prints of each committed text only the part that has not been
printed: it removes the printed text if that is a prefix of the committed one, and otherwise prints
the whole committed text on a new line.  A turn that ended at the token limit ("length") is
continued by the next turn on the same line.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

from palyra.cli.command.output import LiveLines, fold, line_width, say, uses_style, write
from palyra.cli.view.call_result import PROGRAM, LiveOutput, describe_result, name_whole
from palyra.cli.view.event_text import EventLine, narrate
from palyra.cli.view.prose import Prose
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
    ev.TodosChanged,
    ev.GuardWarned,
    ev.GuardBlocked,
    ev.RunRecovered,
    ev.RunDone,
    ev.RunFailed,
    ev.RunCancelled,
)


LIVE_ROWS = 10  # of a program that runs
ROWS_LEFT = 14  # of the screen, for the prompt of a conversation and its menu


def find_live_rows() -> int:
    """Return how many lines of a running program the terminal shows."""
    return max(min(LIVE_ROWS, shutil.get_terminal_size().lines - ROWS_LEFT), 3)


def find_size() -> tuple[int, int]:
    """Return the columns and the rows of a text in progress."""
    return line_width(), find_live_rows()


@dataclass(slots=True)
class RunPrinter:
    """Live printer of a run: deltas of the text as they arrive, and one line for each step."""

    streams: bool  # print deltas; else only the complete answer
    _streamed: dict[str, str] = field(default_factory=dict)  # item of a delta -> printed text
    _said: str = ""  # text of the last turn and of the turns that it continues
    _goes_on: bool = False  # the current turn continues the text of the one before
    _is_mid_line: bool = False
    is_verbose: bool = False  # print every decision
    _calls: dict[str, ev.ToolProposed] = field(default_factory=dict)  # open calls, by id
    _outputs: dict[str, LiveOutput] = field(default_factory=dict)  # of open calls that print
    _questions: set[str] = field(default_factory=set)  # on the screen: nothing is drawn below them
    _live: LiveLines = field(default_factory=lambda: LiveLines(err=True))
    _prose: Prose | None = None  # renders the text, at a terminal that shows styles

    def __post_init__(self) -> None:
        if self.streams and uses_style():
            self._prose = Prose(write, LiveLines().show, find_size)

    def tell(self, item: Item) -> None:
        """Print one item of the subscription."""
        match item:
            case ProgressItem(kind="text"):
                self._stream(item)
            case ProgressItem(kind="tool_output"):
                self._outputs.setdefault(item.item, LiveOutput()).add(item.delta)
                if not self._questions:
                    self.end_line()
                    last = self._outputs[item.item].last_lines(find_live_rows())
                    self._show_live([f"  {line}" for line in last])
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
            if self._prose is not None:
                self._prose.show_behind_gap(progress.delta)
            return
        self._streamed[progress.item] = printed + progress.delta
        self._print(progress.delta, is_live=True)
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
            case ev.RunRecovered():
                self._narrate(item)
                if any(self._streamed.values()):
                    self._say(EventLine("·", "the text of this turn is withdrawn", "yellow"))
                self._streamed.clear()  # the turn is asked for again: its text streams from the beginning
            case ev.MessageCompleted(text=text):
                self._conclude(text)
            case _:
                self._tell_call(item)

    def _narrate(self, item: TapeEvent) -> None:
        """Print one line for an event to standard error."""
        self._say(narrate(item))

    def _tell_call(self, item: TapeEvent) -> None:
        """Print an event of a call, or another one of the list."""
        match item.event:
            case ev.ToolProposed() as call:
                self._calls[call.call_id] = call
                self._narrate(item)
            case ev.ToolDecided() as decided if not self.is_verbose and self._is_plain(decided):
                pass
            case ev.ToolCompleted() as done:
                self._complete_call(item, done)
            case ev.ApprovalRequested() as asked:
                self._show_live(())
                self._questions.add(asked.approval_id)
            case ev.ApprovalResolved() as answered:
                self._questions.discard(answered.approval_id)
                self._narrate(item)
            case ev.Event() if isinstance(item.event, SHOWN):
                self._narrate(item)
            case _:
                pass

    def _is_plain(self, decided: ev.ToolDecided) -> bool:
        """True for a permission that goes without saying: of a reading call, or just given by a person."""
        call = self._calls.get(decided.call_id)
        is_reading = call is not None and call.tool_class.startswith("read_only")
        return decided.verdict == "allow" and (is_reading or decided.reason_code == "approved")

    def _complete_call(self, item: TapeEvent, done: ev.ToolCompleted) -> None:
        """Print the result of a call, with the last lines of a program."""
        call = self._calls.pop(done.call_id, None)
        self._outputs.pop(done.call_id, None)
        width = line_width(err=True) - 2
        is_program = call is not None and call.executor == PROGRAM
        result = describe_result(done, width, is_program=is_program)
        colour = "green" if done.status == "succeeded" else "red"
        lines = result.list_lines(name_whole(done, item.run_id, item.session_id))
        self._say(EventLine("←", result.render(width), colour, lines))

    def _complete(self, event: ev.TurnCompleted) -> None:
        """Print the part of a turn's text that was not printed as deltas."""
        so_far, text = "".join(self._streamed.values()), event.text
        self._streamed.clear()
        self._said = self._said + text if self._goes_on else text
        if text.startswith(so_far):
            text = text[len(so_far) :]
        else:
            self.end_line()
        self._print(text)
        self._is_mid_line = self._is_mid_line or bool(text)
        if event.finish_reason != "length":  # else the next turn continues this line
            self.end_line()

    def _conclude(self, text: str) -> None:
        """Print the part of the answer that no turn has printed; without streaming, all of it."""
        if text.startswith(self._said):
            text = text[len(self._said) :]
        else:
            self.end_line()
        if text:
            self._print(f"{text}\n")
            self._is_mid_line = False
        self.end_line()

    def end_line(self) -> None:
        """End the line of a text in progress: something else is printed next."""
        if self._prose is not None:
            self._prose.end()
        elif self._is_mid_line:
            self._print_raw("\n")
        self._is_mid_line = False

    def _show_live(self, lines: Sequence[str]) -> None:
        """Replace the lines of a program that runs."""
        self._live.show(lines)

    def _say(self, line: EventLine) -> None:
        self._show_live(())
        self.end_line()
        say(fold(f"{line.mark} {line.text}", err=True), err=True, fg=line.colour)
        for each in line.lines:
            say(f"  {each}", err=True, dim=True)

    def _print(self, text: str, *, is_live: bool = False) -> None:
        self._show_live(())
        if self._prose is not None:
            self._prose.add(text, is_live=is_live)
        else:
            self._print_raw(text)

    def _print_raw(self, text: str) -> None:  # noqa: PLR6301 - a conversation prints elsewhere
        say(text, nl=False)
