"""`palyra chat` at a terminal: what is typed, what the run does, and which question waits.

Theory: one task reads what is typed, one follows the run.  A line typed while a run is open steers it;
below a question it is the answer, if it is one of the words, and nothing else.  Ctrl-C first cancels
the run, then leaves.  Leaving never ends a run by itself.
"""

from __future__ import annotations

import math
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio

from palyra.cli.chat.commands import DRAFT_INSTRUCTIONS, PERFORM, save_instructions
from palyra.cli.chat.completion import (
    complete_word,
    find_offers,
    find_workspace,
    list_prompts,
    price_references,
)
from palyra.cli.chat.own_commands import OwnCommand, RefusedFile, find_commands
from palyra.cli.chat.own_shell import run_own
from palyra.cli.chat.slash import (
    COMMANDS,
    Message,
    Mistake,
    PromptCommand,
    ShellCommand,
    SlashCommand,
    help_lines,
    is_command,
    parse_line,
)
from palyra.cli.chat.terminal import ChatTerminal, PlainTerminal, Question, Typed
from palyra.cli.command.answers import NOTICE_S, Answer, PromptReader, is_short_answer
from palyra.cli.command.errors import CANCELLED, DONE, INTERRUPTED, CommandFailed
from palyra.cli.command.output import fold, line_width, moves_cursor, one_line, paint, safe, say
from palyra.cli.command.talk import PATIENCE_S
from palyra.cli.run.exit import RunExit
from palyra.cli.run.modes import spell_mode
from palyra.cli.run.options import read_image
from palyra.cli.run.preview import find_preview, style_preview
from palyra.cli.run.printer import RunPrinter, find_size
from palyra.cli.view.cards import Cards
from palyra.cli.view.event_text import describe_briefly
from palyra.cli.view.prose import MARK, Prose
from palyra.client import TapeEvent
from palyra.config.paths import find_paths
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.tape import events as ev
from palyra.core.text.visible import pluralize, show_json, visible
from palyra.errors import Conflict, IllegalState, PalyraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palyra.cli.chat.session import Conversation
    from palyra.cli.run.approve_policy import ApprovePolicy
    from palyra.cli.view.event_text import EventLine
    from palyra.client import Client, Subscription
    from palyra.core.tape.events import ApprovalRequested

MAX_TYPED = 100  # lines that wait for the daemon
TICK_S = 1.0
QUIET_S = 3.0  # a shorter silence is not worth a figure
MODEL_CHARS = 30  # of the status, as of the workspace
WITHDRAWN_S = 10.0  # in which a short answer was typed for the question that is gone
CALLS_CHARS = 20  # of the status, which has its seconds behind them at 80 columns


async def talk_at_terminal(
    conversation: Conversation, policy: ApprovePolicy, *, rings: bool = True
) -> int:
    """Hold the conversation until the person leaves, and return the exit code."""
    if conversation.session_id is not None:
        await conversation.print_end()
    send, receive = trio.open_memory_channel[Typed](MAX_TYPED)
    workspace = await find_workspace(conversation.client, conversation.workspace)
    token = trio.lowlevel.current_trio_token()

    def complete(word: str) -> list[tuple[str, str]]:
        """Complete a word; called in a thread of the editor."""
        offers: list[str] = trio.from_thread.run(
            find_offers, conversation.client, word, trio_token=token
        )
        if word.startswith("/"):
            home = find_paths(conversation.options.home).config_dir
            offers = [
                *(f"/{each.name}" for each in find_commands(workspace, home, COMMANDS)[0]),
                *offers,
            ]
        names = complete_word(word, workspace, offers)
        if not word.startswith("@") or not names:
            return [(name, "") for name in names]
        costs = trio.from_thread.run(price_references, conversation, names, trio_token=token)
        return list(zip(names, costs, strict=True))

    terminal = ChatTerminal(send, complete) if moves_cursor() else PlainTerminal(send)
    async with trio.open_nursery() as nursery:
        desk = ChatDesk(conversation, policy, terminal, nursery, rings=rings)
        nursery.start_soon(terminal.serve)
        nursery.start_soon(desk.tick)
        nursery.start_soon(_leave_on_signal, send)
        try:
            await desk.serve(receive)
        finally:
            terminal.close()
        nursery.cancel_scope.cancel("the person left")
    if desk.run_id is not None:
        say(f"{desk.run_id} continues: `palyra runs follow {desk.run_id}`", dim=True)
    if conversation.session_id is not None:
        say(f"`palyra chat --resume {conversation.session_id}` goes on with it", dim=True)
    return desk.code


async def _leave_on_signal(send: trio.MemorySendChannel[Typed]) -> None:
    """End the conversation in order on a signal, so that the terminal gets its mode back."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        async for number in signals:
            is_interrupt = number == signal.SIGINT
            with suppress(trio.WouldBlock):
                send.send_nowait(Typed("" if is_interrupt else None, is_interrupt=is_interrupt))


@dataclass(slots=True)
class ChatDesk:
    """What lines mean, what the open run is, and which question waits."""

    conversation: Conversation
    policy: ApprovePolicy
    terminal: ChatTerminal | PlainTerminal
    nursery: trio.Nursery
    rings: bool = True  # for a question that waits
    run_id: str | None = None  # the open run
    code: int = DONE
    _pending: dict[str, ApprovalRequested] = field(default_factory=dict)
    _asked: ApprovalRequested | None = None  # the question on the screen
    _reader: PromptReader | None = None  # of its answer
    _ring_at_s: float = math.inf  # unless it is answered before
    _withdrawn_at_s: float = -math.inf  # the question on the screen ended without this person
    _was_interrupted: bool = False
    _own: trio.CancelScope | None = None  # of the person's command that runs
    _refused: set[RefusedFile] = field(default_factory=set)  # files that were named as no commands
    _calls: str = ""
    _printer: CardPrinter | None = None  # of the open run
    _models: tuple[str | None, str] = (
        None,
        "",
    )  # the model that was chosen, and the one that answers
    _heard_s: float = field(default_factory=trio.current_time)  # time of the run's last item
    _has_plan: bool = False  # a plan was proposed in this turn
    _lost_s: float | None = None  # time since which there is no connection

    async def tick(self) -> None:
        """Keep the seconds of the status current.  Cancellation: nothing is lost."""
        with suppress(PalyraError):  # an older daemon, or a token that may not see them
            models = (await self.conversation.client.list_models()).models
            default = next((each.name for each in models if each.is_default), "")
            self._models = self._models if self._models[1] else (None, default)
        while True:
            is_connected = self.conversation.client.is_connected
            if is_connected or self._lost_s is None:
                self._lost_s = None if is_connected else trio.current_time()
            self.show_status()
            if trio.current_time() >= self._ring_at_s:
                self._ring_at_s = math.inf
                self.terminal.notify()
            await trio.sleep(TICK_S)

    async def serve(self, typed: trio.MemoryReceiveChannel[Typed]) -> None:
        """Apply what is typed until the person leaves."""
        self.show_status()
        async for each in typed:
            if await self.take(each):
                return

    async def take(self, typed: Typed) -> bool:
        """Apply one line; return True to leave.  Failures are printed."""
        if typed.is_interrupt:
            return await self._interrupt()
        if typed.line is None:
            return True
        self._was_interrupted = False
        try:
            check_text(typed.line)
            if typed.question_id:
                await self._answer(typed.question_id, typed.line)
                return False
            return await self._read(typed.line)
        except click.ClickException as failed:
            self.tell(f"✗ {failed.format_message()}", "red")
            remedy = getattr(failed, "remedy", None)
            if remedy:
                self.tell(f"  {remedy}")
        except PalyraError as error:
            self.tell(f"✗ {error}", "red")
        return False

    async def _read(self, line: str) -> bool:
        """Apply a line that is no answer; return True to leave.

        A short answer right after its question ended elsewhere is not sent as a message.
        """
        since_s = trio.current_time() - self._withdrawn_at_s
        if since_s < WITHDRAWN_S and is_short_answer(line):
            self.tell("the question is answered elsewhere or withdrawn: nothing was sent", "yellow")
            return False
        client = self.conversation.client
        prompts = await list_prompts(client) if is_command(line) else ()
        own = await self._find_own() if is_command(line) else ()
        match parse_line(line, prompts, own):
            case Mistake(text):
                self.tell(text, "yellow")
            case SlashCommand("quit"):
                return True
            case SlashCommand("init", ""):
                await self._send(DRAFT_INSTRUCTIONS)
                self.tell("`/init save` writes the answer to AGENTS.md")
            case ShellCommand(command):
                await self._run_own(command)
            case SlashCommand(name, argument):
                await self._obey(name, argument)
            case Message(""):
                pass
            case Message(text) | PromptCommand(_, text):
                await self._send(text)
        self.show_status()
        return False

    async def _find_own(self) -> list[OwnCommand]:
        """Return the own commands; files that are none are named once."""
        workspace = await find_workspace(self.conversation.client, self.conversation.workspace)
        home = find_paths(self.conversation.options.home).config_dir
        found, refused = find_commands(workspace, home, COMMANDS)
        for each in refused:
            if each not in self._refused:
                self._refused.add(each)
                self.tell(f"{each.path} is no command: {each.reason}", "yellow")
        return found

    async def _run_own(self, command: str) -> None:
        """Run a command of the person, beside whatever goes on; without one drop what waits."""
        if not command:
            self.tell(f"{pluralize(len(self.conversation.outputs), 'output')} dropped")
            self.conversation.outputs.clear()
            return
        if self._own is not None:
            raise CommandFailed("another command of yours still runs", "Ctrl-C ends it")
        workspace = await find_workspace(self.conversation.client, self.conversation.workspace)
        is_here = workspace is not None and await trio.Path(workspace).is_dir()
        cwd = workspace if workspace is not None and is_here else Path.cwd()
        self._own = trio.CancelScope()
        self.nursery.start_soon(self._follow_own, command, cwd, self._own)

    async def _follow_own(self, command: str, cwd: Path, scope: trio.CancelScope) -> None:
        """Show a command of the person to its end.  Cancellation: it is ended."""
        try:
            with scope:
                text, code = await run_own(command, cwd, lambda line: self.tell(f"  {line}"))
                self.conversation.outputs.append(text)
                self.tell(f"exit code {code}; the output goes with the next message, `!` drops it")
        except CommandFailed as failed:
            self.tell(f"✗ {failed.message}", "red")
        self._own = None
        if scope.cancelled_caught:
            self.tell("ended; its output is dropped", "yellow")

    async def _send(self, text: str) -> None:
        """Steer the open run, or start one; outputs of the person's commands go with the text."""
        sent = self.conversation.outputs[:]
        text = self.conversation.with_outputs(text)
        if self.run_id is not None and not self.conversation.images:
            with suppress(IllegalState):  # it has just ended
                await self.conversation.client.steer(self.run_id, text)
                self.conversation.forget_outputs(sent)
                return
        started = await self.conversation.send(text)
        self.conversation.forget_outputs(sent)
        if self.run_id != started.run_id:
            self.run_id = started.run_id
            self.nursery.start_soon(self._follow, started.run_id)

    async def _interrupt(self) -> bool:
        """End the person's command or cancel the open run; leave if there is none, or at the second time."""
        if self._own is not None:
            self._own.cancel("interrupted at the terminal")
            return False
        if self._was_interrupted:
            self.code = INTERRUPTED if self.run_id is not None else DONE
            return True
        self._was_interrupted = True
        if self.run_id is None:
            self.tell("Ctrl-C again leaves")
            return False
        if self._printer is not None:
            self._printer.end_line()
        self.tell("cancelling; Ctrl-C again leaves without waiting", "yellow")
        self.nursery.start_soon(self._cancel, self.run_id)
        return False

    async def _cancel(self, run_id: str) -> None:
        with suppress(PalyraError):
            await self.conversation.client.cancel(run_id, "interrupted at the terminal")

    # --- the run -------------------------------------------------------------

    async def _follow(self, run_id: str) -> None:
        """Show a run to its end; a failure to follow it is printed."""
        ending, printer = RunExit(run_id), CardPrinter(self.terminal)
        self._printer, self._heard_s = printer, trio.current_time()
        try:
            async with self.conversation.client.events(run_id) as items:
                await self._show(items, printer, ending)
        except PalyraError as error:
            self.tell(f"✗ {error}", "red")
        if self.run_id == run_id:
            self.run_id, self._calls, self._printer = None, "", None
        if ending.code == CANCELLED:
            self._was_interrupted = False
        self.show_status()

    async def _show(self, items: Subscription, printer: CardPrinter, ending: RunExit) -> None:
        async for item in items:
            printer.tell(item)
            self._heard_s = trio.current_time()
            if isinstance(item, TapeEvent):
                ending.note(item.event)
                await self._note(item)
            self._calls = printer.status
            self.show_status()

    async def _note(self, item: TapeEvent) -> None:
        """Ask the question of an event, or withdraw one that was answered."""
        match item.event:
            case ev.ApprovalRequested() as asked:
                self._has_plan = self._has_plan or asked.tool == PROPOSE_PLAN
                self._pending[asked.approval_id] = asked
                await self._ask_next()
            case ev.ApprovalResolved(approval_id=approval_id):
                ended = self._pending.pop(approval_id, None)
                if ended is not None and ended is self._asked:
                    self._withdrawn_at_s = trio.current_time()
                await self._ask_next()
            case ev.TurnStarted(model=model):
                self._models = (self.conversation.model, model)
                if self._has_plan:  # it was answered, which may have changed the mode
                    self._has_plan = False
                    await self.conversation.read_mode()
            case _:
                pass

    async def _ask_next(self) -> None:
        """Show the oldest question that waits, unless it is shown already."""
        asked = next(iter(self._pending.values()), None)
        if asked is self._asked:
            return
        self._asked, self._ring_at_s = asked, math.inf
        if asked is None:
            self.terminal.ask(None)
            return
        lines, is_permitted = await describe_question(self.conversation.client, asked, self.policy)
        if self._asked is not asked:  # answered elsewhere meanwhile
            return
        if is_permitted:
            self.tell(f"? {one_line(asked.summary, 200)}: allow by --approve")
            await self._resolve(asked, Answer("allow", reason="by --approve"), lines)
            return
        if self.rings:
            self._ring_at_s = trio.current_time() + NOTICE_S
        self._show_prompt(asked, lines)

    async def _answer(self, approval_id: str, line: str) -> None:
        """Send an answer; anything but one of the words is none."""
        asked = self._pending.get(approval_id)
        if asked is None:
            self.tell("that question was answered already, or withdrawn", "yellow")
            return
        reader = self._reader
        if reader is None or reader.asked is not asked:
            reader = self._reader = PromptReader(asked)
        answer = reader.read(line)
        if answer is None:
            if reader.is_form:  # the next field, or the same one again
                self.terminal.ask(Question(approval_id, (), reader.prompt))
            else:
                words = reader.prompt.rstrip(": ")
                self.tell(f"not taken: {words}; Ctrl-C cancels the run", "yellow")
            return
        await self._resolve(asked, answer)

    async def _resolve(
        self, asked: ApprovalRequested, answer: Answer, lines: Sequence[str] = ()
    ) -> None:
        """Send an answer; a question whose answer does not arrive waits for another one, below the lines."""
        self._pending.pop(asked.approval_id, None)
        try:
            await self.conversation.client.resolve_approval(
                asked.approval_id, answer.decision, asked.digest, **answer.options
            )
        except (Conflict, IllegalState) as error:
            self.tell(f"too late: {error.message}", "yellow")
        except PalyraError as error:
            self.tell(f"✗ {error}", "red")
            self._pending = {asked.approval_id: asked, **self._pending}
            self._show_prompt(asked, lines)
            return
        await self._ask_next()

    def _show_prompt(self, asked: ApprovalRequested, lines: Sequence[str] = ()) -> None:
        """Take the answer of a question from its beginning, below these lines."""
        self._reader = PromptReader(asked)
        self.terminal.ask(Question(asked.approval_id, tuple(lines), self._reader.prompt))

    # --- commands ------------------------------------------------------------

    async def _obey(self, name: str, argument: str) -> None:
        """Perform a slash command."""
        busy = {"session", "undo", "compact"}
        if name in busy and self.run_id is not None and (name != "session" or argument):
            raise CommandFailed(f"/{name} waits for the end of the run", "Ctrl-C cancels it")
        conversation = self.conversation
        match name:
            case "help":
                lines = help_lines(await list_prompts(conversation.client), await self._find_own())
            case "image":
                conversation.images.append(read_image(Path(argument)))
                lines = [f"{len(conversation.images)} with the next message"]
            case "init":
                workspace = await find_workspace(conversation.client, conversation.workspace)
                lines = await save_instructions(conversation, workspace)
            case _:
                lines = await PERFORM[name](conversation, argument)
        for line in lines:
            if name == "diff":  # styled and escaped already
                self.terminal.print(f"{line}\n")
            else:
                self.tell(line)

    # --- the screen ----------------------------------------------------------

    def tell(self, text: str, colour: str | None = None) -> None:
        """Print one line; control characters are shown as escapes."""
        self.terminal.print(f"{paint(fold(text), fg=colour)}\n")

    def show_status(self) -> None:
        """Show agent, model, workspace, session and what the run does below the prompt."""
        chat = self.conversation
        now_s = trio.current_time()
        state = describe_state(
            self._calls if self.run_id is not None else None,
            is_asked=self._asked is not None,
            quiet_s=now_s - self._heard_s,
            lost_s=None if self._lost_s is None else now_s - self._lost_s,
        )
        chosen, used = self._models
        model = used if chosen == chat.model and used else chat.model or "default model"
        facts = [
            spell_mode(chat.mode),
            one_line(model, MODEL_CHARS),
            f"in {one_line(chat.workspace or DEFAULT_WORKSPACE, MODEL_CHARS)}",
            f"{len(chat.images)} images" if chat.images else "",
            f"agent {chat.agent or 'default'}",
            one_line(chat.title, MODEL_CHARS)
            or (f"…{chat.session_id[-12:]}" if chat.session_id else "new session"),
        ]
        width = line_width() - 2  # blanks around it
        self.terminal.show_status(fit_status([each for each in facts if each], state, width))


def check_text(line: str) -> None:
    """Raise CommandFailed for a line with bytes that are no UTF-8, or with NUL, which no name of a file has."""
    try:
        is_text = b"\0" not in line.encode()
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise CommandFailed("nothing was sent: the line is no UTF-8, or has a NUL", "type it again")


def fit_status(facts: Sequence[str], state: str, width: int) -> str:
    """Return the facts that the width has room for, the first ones, and the state, which is never cut off."""
    kept = list(facts)
    while kept and len(" · ".join([*kept, state])) > width:
        kept.pop()
    return one_line(" · ".join([*kept, state]), max(width, 1))


def describe_state(
    calls: str | None, *, is_asked: bool, quiet_s: float, lost_s: float | None
) -> str:
    """Return the state of a conversation in words; `calls` are those of the open run, None without one.

    A silence of the model or of a call has its seconds, as does a lost connection.
    """
    if lost_s is not None:
        return (
            f"reconnecting, {lost_s:.0f} s" if lost_s < PATIENCE_S else "no daemon; Ctrl-D leaves"
        )
    if calls is None:
        return "idle"
    if is_asked:
        return "waits for you"
    state = f"runs {one_line(calls, CALLS_CHARS)}" if calls else "thinks"
    return f"{state}, {quiet_s:.0f} s" if quiet_s >= QUIET_S else state


class CardPrinter(RunPrinter):
    """Printer of a conversation: streamed text, and a card for each call."""

    def __init__(self, terminal: ChatTerminal | PlainTerminal) -> None:
        super().__init__(streams=True)
        self._cards = Cards(line_width())
        self._terminal = terminal
        if self._prose is not None:
            self._prose = Prose(terminal.print, terminal.show_live, find_size, MARK)

    @property
    def status(self) -> str:
        """The calls that are open, in words."""
        return self._cards.status

    def _tell_event(self, item: TapeEvent) -> None:
        line = self._cards.take(item)
        if line is not None:
            self._say(line)
        super()._tell_event(item)

    def _narrate(self, item: TapeEvent) -> None:
        """Print nothing: the cards have their own choice of lines."""

    def _complete_call(self, item: TapeEvent, done: ev.ToolCompleted) -> None:
        """Print nothing: the card has the result."""

    def _say(self, line: EventLine) -> None:
        self.end_line()
        self._terminal.show_live(())
        self._terminal.print(f"{paint(fold(f'{line.mark} {line.text}'), fg=line.colour)}\n")
        for each in line.lines:
            self._terminal.print(f"{paint(f'  {each}', dim=True)}\n")

    def _print_raw(self, text: str) -> None:
        self._terminal.print(safe(text))

    def _show_live(self, lines: Sequence[str]) -> None:
        self._terminal.show_live(lines)


async def describe_question(
    client: Client, asked: ApprovalRequested, policy: ApprovePolicy
) -> tuple[list[str], bool]:
    """Return the lines of a question, and True if `--approve` answers it."""
    preview = await find_preview(client, asked.approval_id)
    is_exact = isinstance(preview, str)  # else the preview shows the arguments
    what = asked.summary if is_exact else describe_briefly(asked.tool, asked.arguments)
    head = [
        paint(fold(f"? {visible(what)}"), fg="magenta", bold=True),
        paint(
            fold(f"  tool {visible(asked.tool)}, {asked.risk} risk; {visible(asked.policy_reason)}")
        ),
    ]
    if isinstance(preview, str):
        body = [
            f"  no preview: {preview}; exact arguments:",
            *show_json(asked.arguments).splitlines(),
        ]
        return [*head, *map(safe, body)], False
    is_permitted = policy.names(asked.tool, asked.scopes) and not (preview.taint or preview.stale)
    return [*head, *style_preview(preview), f"  digest {asked.digest[:12]}…"], is_permitted
