"""`palyra run TEXT`: send a message and follow the run.

The model's text is written to standard output and everything else to standard error, so that
`palyra run … > file` stores the answer.  With --json standard output is the tape, one event a line.

Theory of the printed text: the model's text arrives twice, first as uncommitted deltas, then
complete in the committed `turn.completed`; the answer arrives once more in `message.completed`.
Deltas may be missing.  `RunPrinter` prints of each committed text only the part that has not been
printed: it removes the printed text if that is a prefix of the committed one, and otherwise prints
the whole committed text on a new line.  A turn that ended at the token limit ("length") is
continued by the next turn on the same line.
"""

import sys
from dataclasses import dataclass, field
from typing import TypeGuard, get_args

import click
import trio

from palyra.cli.approval_prompt import ApprovalPrompt, find_terminal
from palyra.cli.command import shared_options
from palyra.cli.context import print_preview
from palyra.cli.countdown import count_down
from palyra.cli.errors import CANCELLED, INTERRUPTED, USAGE, CommandFailed
from palyra.cli.event_text import narrate, to_json
from palyra.cli.output import print_json, print_json_line, safe, say
from palyra.cli.run_exit import RunExit
from palyra.cli.talk import Options, talk
from palyra.client import (
    Client,
    EventsDiscarded,
    Item,
    ProgressItem,
    RunOptions,
    Subscription,
    TapeEvent,
)
from palyra.core.journal.records import QueueMode
from palyra.core.tape import events as ev

CANCEL_WITHIN_S = 10.0

# Events that are printed to standard error; `palyra tape show` prints all.
SHOWN = (
    ev.TurnStarted,
    ev.TurnFailed,
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
                self._end_line()
                say("● the daemon restarted; uncommitted output was discarded", err=True, fg="cyan")
                self._streamed.clear()
                self._said = ""
            case _:
                pass

    def _stream(self, progress: ProgressItem) -> None:
        if not self.streams:
            return
        self._streamed[progress.item] = self._streamed.get(progress.item, "") + progress.delta
        click.echo(safe(progress.delta), nl=False)
        self._is_mid_line = not progress.delta.endswith("\n")

    def _tell_event(self, item: TapeEvent) -> None:
        match item.event:
            case ev.TurnStarted(continues=continues):
                self._goes_on = continues
                if not continues:  # else the text continues on the line of the turn before
                    self._narrate(item)
            case ev.TurnCompleted() if self.streams:
                self._complete(item.event)
            case ev.MessageCompleted(text=text):
                self._conclude(text)
            case ev.Event() if isinstance(item.event, SHOWN):
                self._narrate(item)
            case _:
                pass

    def _narrate(self, item: TapeEvent) -> None:
        """Print one line for an event to standard error."""
        self._end_line()
        line = narrate(item)
        say(f"{line.mark} {line.text}", err=True, fg=line.colour)

    def _complete(self, event: ev.TurnCompleted) -> None:
        """Print the part of a turn's text that was not printed as deltas."""
        so_far, text = "".join(self._streamed.values()), event.text
        self._streamed.clear()
        self._said = self._said + text if self._goes_on else text
        if text.startswith(so_far):
            text = text[len(so_far) :]
        else:
            self._end_line()
        click.echo(safe(text), nl=False)
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
            click.echo(safe(text))
            self._is_mid_line = False
        self._end_line()

    def _end_line(self) -> None:
        if self._is_mid_line:
            click.echo()
        self._is_mid_line = False


@click.command(short_help="Send a message and follow the run.")
@click.argument("text")
@click.option("--session", "session_key", help="Key of the session; created if it does not exist.")
@click.option("--agent", help="Name of the agent.")
@click.option("--model", help="Name of the model.")
@click.option(
    "--queue-mode",
    type=click.Choice(get_args(QueueMode)),
    help="What to do if the session is busy.",
)
@click.option("--channel", help="Channel of the message; needs --conversation.")
@click.option("--conversation", "conversation_id", help="Conversation in the channel.")
@click.option("--sender", help="Sender of the message, if the channel requires paired senders.")
@click.option("--deny", is_flag=True, help="Deny calls that need approval instead of asking.")
@click.option(
    "--fail-fast", is_flag=True, help="Cancel the run when its model fails, instead of waiting."
)
@click.option("--detach", is_flag=True, help="Print the run's id and return.")
@click.option(
    "--preview", is_flag=True, help="Print what the references would cost, and send nothing."
)
@shared_options
def run(
    options: Options,
    text: str,
    *,
    deny: bool,
    fail_fast: bool,
    detach: bool,
    preview: bool,
    **wanted: str | None,
) -> None:
    """Send TEXT (- reads standard input) and follow the run.

    Tool calls that need approval are asked about here; without a terminal the run waits for
    another client to answer (`palyra approvals`).  Ctrl-C cancels the run; a second Ctrl-C does not
    wait for the cancellation.  SIGTERM ends only this command and the run continues (`palyra runs
    cancel`).
    """
    words = _read_input() if text == "-" else text
    if preview:
        agent = wanted["agent"]
        print_preview(
            options, talk(options, lambda client: client.preview_references(words, agent=agent))
        )
        return
    start: RunOptions = {"approval_mode": "deny"} if deny else {}
    start.update({key: value for key, value in wanted.items() if value is not None})  # type: ignore[typeddict-item]  # click made them
    if detach and fail_fast:
        raise click.UsageError("--fail-fast follows the run, --detach does not: give one of them")
    if detach:
        started = talk(options, lambda client: client.start_run(words, **start))
        if options.as_json:
            print_json(started)
        else:
            click.echo(started.run_id)
        return
    ending = RunExit()
    watch = _FailFast() if fail_fast else None
    try:
        talk(options, lambda client: _watch(client, words, start, options, ending, watch))
    except CommandFailed as stop:
        if stop.exit_code != INTERRUPTED or ending.run_id is None:
            raise
        _cancel(options, ending)
    raise SystemExit(ending.code)


def _read_input() -> str:
    """Read all of standard input.  Raises CommandFailed if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"standard input is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}",
            "convert it first, for example with iconv",
            code=USAGE,
        ) from None


@dataclass(slots=True)
class _FailFast:
    """Cancels the run when its model failed and would be asked again after a pause."""

    failure: ev.TurnFailed | None = None

    async def note(self, client: Client, item: Item) -> None:
        """Cancel the run if the item is the first such failure."""
        if self.failure is None and isinstance(item, TapeEvent) and _is_pausing(item.event):
            self.failure = item.event
            await client.cancel(item.run_id, f"--fail-fast: {item.event.failure_class}")

    def check(self, ending: RunExit) -> None:
        """Raise CommandFailed if the run was cancelled for a failure."""
        if self.failure is not None and ending.code == CANCELLED:
            raise CommandFailed(
                f"the model failed: {self.failure.failure_class}: {self.failure.detail}",
                "see `palyra models`, or run it without --fail-fast to wait",
                kind=self.failure.failure_class,
            )


def _is_pausing(event: ev.Event | None) -> TypeGuard[ev.TurnFailed]:
    """True for a failure after which the same model is asked again, after a pause."""
    return isinstance(event, ev.TurnFailed) and event.retry and event.delay_ms > 0


async def _watch(  # noqa: PLR0917 - of one command
    client: Client,
    text: str,
    start: RunOptions,
    options: Options,
    ending: RunExit,
    fail_fast: _FailFast | None,
) -> None:
    started = await client.start_run(text, **start)
    ending.run_id = started.run_id
    if not options.as_json:
        say(f"● {started.run_id} {started.disposition}", err=True, dim=True)
    story = None if options.as_json else RunPrinter(streams=sys.stdout.isatty())
    desk = ApprovalPrompt(client, None if story is None else find_terminal())
    async with client.events(started.run_id, progress=story is not None) as items:
        async for item in items:
            if story is None:
                _print_event(item, ending)
            else:
                story.tell(item)
            if fail_fast is not None:
                await fail_fast.note(client, item)
            if story is not None:
                await _answer(item, items, desk, ending, is_waiting=fail_fast is None)
    if fail_fast is not None:
        fail_fast.check(ending)


async def _answer(
    item: Item, items: Subscription, desk: ApprovalPrompt, ending: RunExit, *, is_waiting: bool
) -> None:
    """Apply a printed item: ask for approvals, and count down the pause before the next attempt."""
    if isinstance(item, TapeEvent):
        desk.note(item)
        ending.note(item.event)
        if _is_pausing(item.event) and is_waiting and sys.stderr.isatty():
            await count_down(items, item.event.delay_ms)
    while desk.is_asking and not items.has_item:
        await desk.work(items)


def _print_event(item: Item, ending: RunExit) -> None:
    if isinstance(item, TapeEvent):
        ending.note(item.event)
        print_json_line(to_json(item))
    elif isinstance(item, EventsDiscarded):
        print_json_line({"run_id": item.run_id, "dropped_after": item.after_seq})


def _cancel(options: Options, ending: RunExit) -> None:
    """Cancel the followed run after an interrupt and set the exit code.

    Raises CommandFailed if the daemon does not answer within CANCEL_WITHIN_S.
    """
    run_id = ending.run_id or ""

    async def work(client: Client) -> str:
        with trio.move_on_after(CANCEL_WITHIN_S):
            return (await client.cancel(run_id, "interrupted at the terminal")).state
        raise CommandFailed(f"{run_id} was not cancelled in time", f"palyra runs cancel {run_id}")

    state = talk(options, work)
    say(f"■ {run_id} is {state}", err=True, fg="red")
    ending.code = CANCELLED if state == "cancelled" else ending.code
