"""`palyra chat`: a conversation in the terminal.

At a terminal the line editor (`chat_terminal`) stays below what is printed; in a pipe each line of
standard input is one message, and standard output is the answers.

Theory of a conversation at a terminal: one task reads what is typed, one follows the run.  A line typed
while a run is open steers it; below a question it is the answer, if it names one, and nothing else.
Ctrl-C first cancels the run, then leaves.  Leaving never ends a run by itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from palyra.cli.command import Options, shared_options, talk
from palyra.cli.errors import CANCELLED, DONE, INTERRUPTED, USAGE, CommandFailed
from palyra.cli.output import one_line, safe, say, uses_color
from palyra.cli.run_options import ApprovePolicy, ApproveType, read_image
from palyra.cli.slash import COMMANDS, Message, Mistake, SlashCommand, help_lines, parse_line

if TYPE_CHECKING:
    import trio

    from palyra.cli.chat_session import Conversation
    from palyra.cli.chat_terminal import ChatTerminal, Typed
    from palyra.cli.event_text import EventLine
    from palyra.client import Client, TapeEvent
    from palyra.core.tape.events import ApprovalRequested

MAX_TYPED = 100  # lines that wait for the daemon
MAX_LISTED = 20  # files below one folder that are offered
ANSWERS = "y = yes, n = no, and Enter"


@click.command(short_help="Talk with the agent in the terminal.")
@click.option("--continue", "is_continued", is_flag=True, help="Go on with your last conversation.")
@click.option("--resume", metavar="SESSION", help="Go on with that session: its id or key.")
@click.option("--agent", help="Name of the agent.")
@click.option("--model", help="Name of the model.")
@click.option(
    "--approve",
    "policy",
    type=ApproveType(),
    default=ApprovePolicy(),
    metavar="ask|deny|TOOL,...",
    help="How calls that need approval are answered, as for `palyra run`.",
)
@shared_options
def chat(
    options: Options,
    *,
    is_continued: bool,
    resume: str | None,
    agent: str | None,
    model: str | None,
    policy: ApprovePolicy,
) -> None:
    """Talk with the agent in the terminal.

    /help lists the commands.  In a pipe each line of standard input is one message, and the exit code
    is that of the first run that did not end well.
    """
    if is_continued and resume is not None:
        raise click.UsageError("--continue and --resume exclude each other")
    if options.as_json:
        raise click.UsageError("a conversation has no JSON form: use `palyra run --json`")
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        say("palyra chat: /help lists commands, Ctrl-D leaves", dim=True)
        sys.stdout.flush()

    async def work(client: Client) -> int:
        from palyra.cli.chat_session import Conversation  # noqa: PLC0415 - first output must be fast

        mode = "deny" if policy.mode == "deny" else "ask"
        conversation = Conversation(client, approval_mode=mode)
        if is_continued or resume is not None:
            await conversation.resume(resume)
        conversation.agent, conversation.model = agent, model
        if is_terminal:
            return await talk_at_terminal(conversation, policy)
        return await answer_lines(conversation, policy)

    raise SystemExit(talk(options, work))


# --- in a pipe -----------------------------------------------------------------------------------


async def answer_lines(conversation: Conversation, policy: ApprovePolicy) -> int:
    """Send each line of standard input as one message; stop at the first run that does not end well.

    Returns the exit code.  Cancellation: a run that is open continues.
    """
    import trio  # noqa: PLC0415 - help must be instant

    from palyra.cli.approval_prompt import ApprovalPrompt  # noqa: PLC0415 - see above
    from palyra.cli.run_exit import RunExit  # noqa: PLC0415 - see above
    from palyra.cli.run_printer import RunPrinter  # noqa: PLC0415 - see above
    from palyra.client import TapeEvent  # noqa: PLC0415 - see above

    code = DONE
    client = conversation.client
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    while stdin is not None:
        line = await trio.to_thread.run_sync(stdin.readline, abandon_on_cancel=True)
        if not line:
            break
        text = _decode(line).strip()
        if not text:
            continue
        started = await conversation.send(text)
        ending, printer = RunExit(started.run_id), RunPrinter(streams=False)
        desk = ApprovalPrompt(client, None, policy)
        async with client.events(started.run_id) as items:
            async for item in items:
                printer.tell(item)
                if isinstance(item, TapeEvent):
                    desk.note(item)
                    ending.note(item.event)
                while desk.is_asking and not items.has_item:
                    await desk.work(items)
        sys.stdout.flush()
        if ending.code != DONE:
            code = ending.code
            break
    return code


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"standard input is not UTF-8: byte 0x{error.object[error.start]:02x}", code=USAGE
        ) from None


# --- at a terminal -------------------------------------------------------------------------------


async def talk_at_terminal(conversation: Conversation, policy: ApprovePolicy) -> int:
    """Hold the conversation until the person leaves, and return the exit code."""
    import trio  # noqa: PLC0415 - help must be instant

    from palyra.cli.chat_terminal import ChatTerminal, Typed  # noqa: PLC0415 - 0.3 s of imports

    send, receive = trio.open_memory_channel[Typed](MAX_TYPED)
    workspace = await _find_workspace(conversation.client)
    token = trio.lowlevel.current_trio_token()

    def complete(word: str) -> list[tuple[str, str]]:
        """Complete a word; called in a thread of the editor."""
        names = complete_word(word, workspace)
        if not word.startswith("@") or not names:
            return [(name, "") for name in names]
        costs = trio.from_thread.run(price_references, conversation, names, trio_token=token)
        return list(zip(names, costs, strict=True))

    terminal = ChatTerminal(send, complete)
    async with trio.open_nursery() as nursery:
        desk = ChatDesk(conversation, policy, terminal, nursery)
        nursery.start_soon(terminal.serve)
        nursery.start_soon(_leave_on_signal, send)
        try:
            desk.show_status()
            async for typed in receive:
                if await desk.take(typed):
                    break
        finally:
            terminal.close()
        nursery.cancel_scope.cancel("the person left")
    if desk.run_id is not None:
        say(f"{desk.run_id} continues: `palyra runs wait {desk.run_id}`", dim=True)
    if conversation.session_id is not None:
        say(f"`palyra chat --resume {conversation.session_id}` goes on with it", dim=True)
    return desk.code


async def _leave_on_signal(send: trio.MemorySendChannel[Typed]) -> None:
    """End the conversation in order on a signal, so that the terminal gets its mode back."""
    import trio  # noqa: PLC0415 - help must be instant

    from palyra.cli.chat_terminal import Typed  # noqa: PLC0415 - see above

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
    terminal: ChatTerminal
    nursery: trio.Nursery
    run_id: str | None = None  # the open run
    code: int = DONE
    _pending: dict[str, ApprovalRequested] = field(default_factory=dict)
    _asked: ApprovalRequested | None = None  # the question on the screen
    _was_interrupted: bool = False
    _calls: str = ""

    async def take(self, typed: Typed) -> bool:
        """Apply one line; return True to leave.  Failures are printed."""
        if typed.is_interrupt:
            return await self._interrupt()
        if typed.line is None:
            return True
        self._was_interrupted = False
        try:
            if typed.question_id:
                await self._answer(typed.question_id, typed.line)
                return False
            return await self._read(typed.line)
        except click.ClickException as failed:
            self.tell(f"✗ {failed.format_message()}", "red")
            remedy = getattr(failed, "remedy", None)
            if remedy:
                self.tell(f"  {remedy}")
        except _expected_errors() as error:
            self.tell(f"✗ {error}", "red")
        return False

    async def _read(self, line: str) -> bool:
        """Apply a line that is no answer; return True to leave."""
        match parse_line(line):
            case Mistake(text):
                self.tell(text, "yellow")
            case SlashCommand("quit"):
                return True
            case SlashCommand(name, argument):
                await self._obey(name, argument)
            case Message(""):
                pass
            case Message(text):
                await self._send(text)
        self.show_status()
        return False

    async def _send(self, text: str) -> None:
        """Steer the open run, or start one."""
        from palyra.errors import IllegalState  # noqa: PLC0415 - help must be instant

        if self.run_id is not None and not self.conversation.images:
            with suppress(IllegalState):  # it has just ended
                await self.conversation.client.steer(self.run_id, text)
                return
        started = await self.conversation.send(text)
        self.tell(f"› {one_line(text, 200)}", "cyan")
        if self.run_id != started.run_id:
            self.run_id = started.run_id
            self.nursery.start_soon(self._follow, started.run_id)

    async def _interrupt(self) -> bool:
        """Cancel the open run; leave if there is none, or at the second time."""
        if self._was_interrupted:
            self.code = INTERRUPTED if self.run_id is not None else DONE
            return True
        self._was_interrupted = True
        if self.run_id is None:
            self.tell("Ctrl-C again leaves")
            return False
        self.tell("cancelling; Ctrl-C again leaves without waiting", "yellow")
        self.nursery.start_soon(self._cancel, self.run_id)
        return False

    async def _cancel(self, run_id: str) -> None:
        with suppress(*_expected_errors()):
            await self.conversation.client.cancel(run_id, "interrupted at the terminal")

    # --- the run -------------------------------------------------------------

    async def _follow(self, run_id: str) -> None:
        """Show a run to its end; a failure to follow it is printed."""
        from palyra.cli.cards import Cards  # noqa: PLC0415 - help must be instant
        from palyra.cli.run_exit import RunExit  # noqa: PLC0415 - see above
        from palyra.client import TapeEvent  # noqa: PLC0415 - see above

        cards, ending = Cards(), RunExit(run_id)
        printer = make_card_printer(cards, self.terminal.print)
        try:
            async with self.conversation.client.events(run_id) as items:
                async for item in items:
                    printer.tell(item)
                    if isinstance(item, TapeEvent):
                        ending.note(item.event)
                        await self._note(item)
                    self._calls = cards.status
                    self.show_status()
        except _expected_errors() as error:
            self.tell(f"✗ {error}", "red")
        if self.run_id == run_id:
            self.run_id, self._calls = None, ""
        if ending.code == CANCELLED:
            self._was_interrupted = False
        self.show_status()

    async def _note(self, item: TapeEvent) -> None:
        """Ask the question of an event, or withdraw one that was answered."""
        from palyra.core.tape import events as ev  # noqa: PLC0415 - help must be instant

        match item.event:
            case ev.ApprovalRequested() as asked:
                self._pending[asked.approval_id] = asked
                await self._ask_next()
            case ev.ApprovalResolved(approval_id=approval_id):
                self._pending.pop(approval_id, None)
                await self._ask_next()
            case _:
                pass

    async def _ask_next(self) -> None:
        """Show the oldest question that waits, unless it is shown already."""
        from palyra.cli.chat_terminal import Question  # noqa: PLC0415 - see above

        asked = next(iter(self._pending.values()), None)
        if asked is self._asked:
            return
        self._asked = asked
        if asked is None:
            self.terminal.ask(None)
            return
        lines, is_permitted = await describe_question(self.conversation.client, asked, self.policy)
        if self._asked is not asked:  # answered elsewhere meanwhile
            return
        if is_permitted:
            self.tell(f"? {one_line(asked.summary, 200)}: allow by --approve")
            await self._resolve(asked, "y", "by --approve")
            return
        session = ", s = yes for this session" if "session" in asked.scopes else ""
        self.terminal.ask(
            Question(asked.approval_id, tuple(lines), f"allow it? {ANSWERS}{session}: ")
        )

    async def _answer(self, approval_id: str, line: str) -> None:
        """Send an answer; anything but one of the words is none."""
        from palyra.cli.approval_prompt import ANSWERS as WORDS  # noqa: PLC0415 - see above

        asked = self._pending.get(approval_id)
        if asked is None:
            self.tell("that question was answered already", "yellow")
            return
        word = line.strip().lower()
        answer = WORDS.get(word)
        if answer is None or answer[1] not in asked.scopes:
            self.tell(f"no answer: {ANSWERS}; Ctrl-C cancels the run", "yellow")
            return
        await self._resolve(asked, word, "")

    async def _resolve(self, asked: ApprovalRequested, word: str, reason: str) -> None:
        from palyra.cli.approval_prompt import ANSWERS as WORDS  # noqa: PLC0415 - see above
        from palyra.errors import Conflict, IllegalState  # noqa: PLC0415 - see above

        decision, scope = WORDS[word]
        self._pending.pop(asked.approval_id, None)
        try:
            await self.conversation.client.resolve_approval(
                asked.approval_id, decision, asked.digest, scope=scope, reason=reason
            )
        except (Conflict, IllegalState) as error:
            self.tell(f"too late: {error.message}", "yellow")
        await self._ask_next()

    # --- commands ------------------------------------------------------------

    async def _obey(self, name: str, argument: str) -> None:
        """Perform a slash command."""
        from palyra.cli import chat_commands  # noqa: PLC0415 - help must be instant

        busy = {"session", "undo", "compact"}
        if name in busy and self.run_id is not None and (name != "session" or argument):
            raise CommandFailed(f"/{name} waits for the end of the run", "Ctrl-C cancels it")
        conversation = self.conversation
        match name:
            case "help":
                lines = help_lines()
            case "image":
                conversation.images.append(read_image(Path(argument).expanduser()))
                lines = [f"{len(conversation.images)} with the next message"]
            case _:
                lines = await chat_commands.PERFORM[name](conversation, argument)
        for line in lines:
            self.tell(line)

    # --- the screen ----------------------------------------------------------

    def tell(self, text: str, colour: str | None = None) -> None:
        """Print one line; control characters are shown as escapes."""
        shown = safe(text)
        self.terminal.print(
            f"{shown if uses_color() is False else click.style(shown, fg=colour)}\n"
        )

    def show_status(self) -> None:
        """Show agent, model, session and what the run does below the prompt."""
        chat = self.conversation
        state = "idle"
        if self.run_id is not None:
            state = f"runs {self._calls}" if self._calls else "thinks"
            state = "waits for you" if self._asked is not None else state
        session = (chat.session_id or "new session")[-12:]
        images = f" · {len(chat.images)} images" if chat.images else ""
        self.terminal.show_status(
            one_line(f"{chat.agent or 'default'} · {chat.model or 'default model'} · …{session}"
                     f"{images} · {state}", 160)
        )  # fmt: skip


def make_card_printer(cards: object, write: Callable[[str], None]):  # noqa: ANN201 - a local class
    """Return a printer that writes streamed text, and a card for each call."""
    from palyra.cli.cards import Cards  # noqa: PLC0415 - help must be instant
    from palyra.cli.run_printer import RunPrinter  # noqa: PLC0415 - see above

    assert isinstance(cards, Cards)  # noqa: S101 - narrows the type

    class CardPrinter(RunPrinter):
        """Printer of a conversation."""

        def _narrate(self, item: TapeEvent) -> None:
            return None

        def _tell_event(self, item: TapeEvent) -> None:
            line = cards.take(item)
            if line is not None:
                self._say(line)
            super()._tell_event(item)

        def _say(self, line: EventLine) -> None:
            self._end_line()
            text = safe(f"{line.mark} {line.text}")
            write(f"{text if uses_color() is False else click.style(text, fg=line.colour)}\n")

        def _print(self, text: str) -> None:
            write(safe(text))

    return CardPrinter(streams=True)


async def describe_question(
    client: Client, asked: ApprovalRequested, policy: ApprovePolicy
) -> tuple[list[str], bool]:
    """Return the lines of a question, and True if `--approve` answers it."""
    from palyra.cli.preview import find_preview, style_preview  # noqa: PLC0415 - help must be instant
    from palyra.core.text.visible import show_json, visible  # noqa: PLC0415 - see above

    head = [
        click.style(safe(f"? {visible(asked.summary)}"), fg="magenta", bold=True),
        safe(f"  tool {visible(asked.tool)}, {asked.risk} risk; {visible(asked.policy_reason)}"),
    ]
    preview = await find_preview(client, asked.approval_id)
    if isinstance(preview, str):
        body = [
            f"  no preview: {preview}; exact arguments:",
            *show_json(asked.arguments).splitlines(),
        ]
        return [*head, *map(safe, body)], False
    is_permitted = policy.names(asked.tool, asked.scopes) and not (preview.taint or preview.stale)
    return [*head, *style_preview(preview), f"  digest {asked.digest[:12]}…"], is_permitted


# --- completion ----------------------------------------------------------------------------------


def complete_word(word: str, workspace: Path | None) -> list[str]:
    """Return the commands or files that continue a word; hidden files only if asked for."""
    if word.startswith("/"):
        return [f"/{name}" for name in COMMANDS if name.startswith(word[1:])]
    kind, colon, path = word.partition(":")
    if not colon:
        return [
            each for each in ("@file:", "@folder:", "@diff", "@staged") if each.startswith(word)
        ]
    if kind not in {"@file", "@folder"} or workspace is None:
        return []
    folder, _, start = path.rpartition("/")
    if Path(folder).is_absolute() or ".." in folder.split("/"):
        return []
    return [
        f"{kind}:{name}" for name in _names(workspace, folder, start, is_folder=kind == "@folder")
    ]


def _names(workspace: Path, folder: str, start: str, *, is_folder: bool) -> list[str]:
    found: list[str] = []
    with suppress(OSError), os.scandir(workspace / folder) as entries:
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            is_odd = not entry.name.isprintable() or " " in entry.name
            if is_odd or not entry.name.startswith(start) or (is_folder and not is_directory):
                continue
            if entry.name.startswith(".") and not start:
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            found.append(f"{path}/" if is_directory else path)
    return sorted(found)[:MAX_LISTED]


async def price_references(conversation: Conversation, names: Sequence[str]) -> list[str]:
    """Return the cost of each reference in words; "" where it is not known."""
    costs = dict.fromkeys(names, "")
    whole = [name for name in names if not name.endswith(("/", ":"))]
    with suppress(*_expected_errors()):
        found = await conversation.client.preview_references(
            " ".join(whole) or "-", agent=conversation.agent, session_id=conversation.session_id
        )
        for each in found.references:
            text = one_line(each.error, 40) if each.error else f"{each.tokens} tokens"
            costs[each.reference if each.reference in costs else f"@{each.reference}"] = text
    return [costs[name] for name in names]


async def _find_workspace(client: Client) -> Path | None:
    """Return the daemon's workspace if it is known here and on this machine."""
    with suppress(*_expected_errors()):
        workspace = Path((await client.list_documents()).workspace)
        return workspace if workspace.is_dir() else None
    return None


def _expected_errors() -> tuple[type[Exception], ...]:
    from palyra.errors import PalyraError  # noqa: PLC0415 - help must be instant

    return (PalyraError,)
