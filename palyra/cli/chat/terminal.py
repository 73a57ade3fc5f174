"""The terminal of `palyra chat`: a line editor that stays in place while text is printed above it.

A terminal that cannot move its cursor has `PlainTerminal` instead.

Owns: the terminal, by a thread with the event loop of prompt_toolkit.  Talks to: the conversation, on
trio's side, by a memory channel of `Typed`.  Never: decides what a line means.

Theory: a question changes the meaning of the next line, and a line that was begun before the question
must not answer it.  A question therefore ends the running prompt, keeps its text for later, discards
what was typed ahead, and begins a prompt of its own; an answer within `SETTLE_S` of it is not taken.
Each line carries the id of the question that it was typed below.

The tail of streamed text without a newline is part of the prompt, because only whole lines can be
printed above it.  All text must be harmless before it comes here (`palyra.cli.command.output.safe`).
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from palyra.cli.command.output import (
    fit_cells,
    fold,
    make_notice,
    page,
    safe,
    say,
    uses_style,
    write,
)
from palyra.cli.run.approval_prompt import discard_typed

if TYPE_CHECKING:
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples

SETTLE_S = 0.5  # an answer within this time after its question is no answer; console.md, the same
TOO_SOON = "not taken: too soon after the question"
MAX_COMPLETIONS = 20
MAX_LINE_BYTES = 4_096  # the kernel keeps no longer line
PRIVATE_MODE = 0o600

Complete = Callable[[str], Sequence[tuple[str, str]]]


class Question(NamedTuple):
    """A question to show: its lines with terminal colours, and the prompt that takes the answer."""

    question_id: str
    lines: tuple[str, ...]
    prompt: str


class Typed(NamedTuple):
    """A line that was typed, below that question if any; None for Ctrl-C and for end of input."""

    line: str | None
    question_id: str = ""
    is_interrupt: bool = False


class ChatTerminal:
    """Line editor in a thread.  Its methods are called on trio's side, unless they say otherwise."""

    def __init__(self, typed: trio.MemorySendChannel[Typed], complete: Complete) -> None:
        self._typed = typed
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._question: Question | None = None
        self._is_closed = False
        self._tail = ""
        self._live: tuple[str, ...] = ()  # lines that are replaced in place
        self._status = ""
        self._draft = ""  # begun before a question, continued after it
        self._session: PromptSession[str | None] = PromptSession(
            history=open_history(),
            completer=ThreadedCompleter(ReferenceCompleter(complete)),
            complete_while_typing=False,
            bottom_toolbar=lambda: [("class:bottom-toolbar", f" {self._status} ")],
            key_bindings=self._bind_keys(),
            style=Style.from_dict({"live": "ansibrightblack" if uses_style() else ""}),
        )

    # --- on trio's side --------------------------------------------------------------------------

    async def serve(self) -> None:
        """Edit lines until `close`.  Cancellation: ignored; the thread ends with `close`."""
        await trio.to_thread.run_sync(self._edit, abandon_on_cancel=False)

    def close(self) -> None:
        """End the editor; a prompt that is shown ends without a line."""
        self._is_closed = True
        self._switch()

    def print(self, text: str) -> None:
        """Print text above the prompt; a last line without newline is shown as its beginning."""
        whole, newline, tail = (self._tail + text).rpartition("\n")
        if newline:
            write(f"{whole}\n")
        self._tail = tail
        self._redraw()

    def show_live(self, lines: Sequence[str]) -> None:
        """Replace the dimmed lines above the prompt, where text in progress is."""
        if self._live != tuple(lines):
            self._live = tuple(lines)
            self._redraw()

    def show_status(self, text: str) -> None:
        """Show one line below the prompt."""
        if text != self._status:
            self._status = text
            self._redraw()

    def ask(self, question: Question | None) -> None:
        """Replace the question; None withdraws it."""
        with self._lock:
            self._question = question
        self._switch()

    def notify(self) -> None:
        """Notify the person of a question."""
        loop = self._session.app.loop
        if loop is not None and self._session.app.is_running:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._ring)

    def _redraw(self) -> None:
        if self._session.app.is_running:
            self._session.app.invalidate()  # may be called from any thread

    def _switch(self) -> None:
        """Let the running prompt end, so that the loop looks at question and end again."""
        app = self._session.app
        loop = app.loop
        if loop is not None and app.is_running:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._end_prompt)

    # --- in the thread ---------------------------------------------------------------------------

    def _end_prompt(self) -> None:
        app = self._session.app
        if app.is_running and not app.is_done:
            app.erase_when_done = True  # it took no line: the next output takes its place
            app.exit(result=None)

    def _ring(self) -> None:
        self._session.app.output.write_raw(make_notice())
        self._session.app.output.flush()

    def _edit(self) -> None:
        # Raw between prompts too: a Ctrl-C or Ctrl-D typed there belongs to the next prompt.
        with patch_stdout(raw=True), self._session.input.raw_mode():
            shown: Question | None = None
            shown_s = 0.0
            while not self._is_closed:
                with self._lock:
                    question = self._question
                if question is not None and question != shown:
                    show_question(question)
                    forget_typed(self._session)
                    shown_s = time.monotonic()
                shown = question
                self._read(question, shown_s)

    def _read(self, question: Question | None, shown_s: float) -> None:
        """Read one line, and send it if it is whole; the question was shown at `shown_s`."""
        self._session.app.erase_when_done = False
        try:
            line = self._session.prompt(
                lambda: self._render_prompt(question),
                default="" if question is not None else self._draft,
                pre_run=lambda: self._check_current(question),
                handle_sigint=False,
            )
        except KeyboardInterrupt:
            self._send(Typed("", is_interrupt=True))
            return
        except EOFError:
            self._send(Typed(None, question.question_id if question else ""))
            return
        if line is None:  # the prompt was ended to show something else
            if question is None:
                self._draft = self._session.default_buffer.text
            return
        if question is not None and time.monotonic() - shown_s < SETTLE_S:
            say(TOO_SOON)
            return
        if question is None:
            self._draft = ""
        self._send(Typed(line, question.question_id if question else ""))

    def _check_current(self, question: Question | None) -> None:
        """End the prompt at once if the question changed before the prompt was shown."""
        if self._is_closed or self._question != question:
            self._session.app.loop.call_soon(self._end_prompt)  # type: ignore[union-attr]  # it runs

    def _render_prompt(self, question: Question | None) -> StyleAndTextTuples:
        width = max(shutil.get_terminal_size().columns - 1, 10)
        tail = f"{self._tail[-width:]}\n" if self._tail else ""
        live = "".join(f"{fit_cells(safe(line), width)}\n" for line in self._live)
        sign = f"{fold(question.prompt).rstrip()} " if question is not None else "> "
        if self._session.app.is_done:  # what is in progress belongs to the next prompt
            return [("bold", sign)]
        return [("", tail), ("class:live", live), ("bold", sign)]

    def _send(self, typed: Typed) -> None:
        with suppress(trio.RunFinishedError, trio.BrokenResourceError, trio.WouldBlock):
            trio.from_thread.run_sync(self._typed.send_nowait, typed, trio_token=self._token)

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def interrupt(event: KeyPressEvent) -> None:
            self._draft = ""
            event.app.erase_when_done = not event.current_buffer.text
            event.app.exit(exception=KeyboardInterrupt)

        @keys.add("s-tab")
        def change_mode(_event: KeyPressEvent) -> None:
            self._send(Typed("/mode"))

        @keys.add("escape", "enter")
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys


class PlainTerminal:
    """Terminal that cannot move its cursor: no editor, text and questions are printed one below the other.

    The kernel edits the lines, and Ctrl-C is a signal.
    """

    def __init__(self, typed: trio.MemorySendChannel[Typed]) -> None:
        self._typed = typed
        self._question: Question | None = None
        self._shown_s = 0.0

    async def serve(self) -> None:
        """Pass on lines until the end of the input.  Cancellation: a line that was begun is lost."""
        number, kept = sys.stdin.fileno(), b""
        while True:
            await trio.lowlevel.wait_readable(number)
            chunk = os.read(number, MAX_LINE_BYTES)
            *lines, kept = (kept + chunk).split(b"\n")
            for line in lines:
                await self._pass_on(line.decode(errors="surrogateescape"))
            if not chunk:
                await self._typed.send(Typed(None))
                return

    async def _pass_on(self, line: str) -> None:
        question = self._question
        if question is None:
            await self._typed.send(Typed(line))
        elif time.monotonic() - self._shown_s < SETTLE_S:
            say(TOO_SOON)
        else:
            await self._typed.send(Typed(line, question.question_id))

    def close(self) -> None:
        """Change nothing: `serve` ends by its cancellation."""

    def print(self, text: str) -> None:  # noqa: PLR6301 - the editor prints above itself
        """Print text."""
        write(text)

    def show_live(self, lines: Sequence[str]) -> None:
        """Show nothing: there is no place that stays."""

    def show_status(self, text: str) -> None:
        """Show nothing: there is no place that stays."""

    def notify(self) -> None:
        """Print nothing: a terminal that cannot move its cursor may show a bell as a letter."""

    def ask(self, question: Question | None) -> None:
        """Print the question, and discard input typed before it; None withdraws it."""
        self._question, self._shown_s = question, time.monotonic()
        if question is not None:
            discard_typed(sys.stdin.fileno())
            write("\n".join([*question.lines, question.prompt]))


class ReferenceCompleter(Completer):
    """Completion of `@file:` with the cost of each file.  Called in a thread."""

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - prompt_toolkit's signature
    ) -> Iterator[Completion]:
        """Yield the completions of the word before the cursor."""
        word = document.get_word_before_cursor(WORD=True)
        if not word.startswith(("@", "/")):
            return
        for text, note in self._complete(word):
            yield Completion(text, start_position=-len(word), display_meta=note)


def show_question(question: Question) -> None:
    """Print the question; in a pager if it is longer than the terminal.  Called in the thread."""
    height = max(shutil.get_terminal_size().lines, 5)
    if len(question.lines) > height - 4:
        page(question.lines)
        write(question.lines[0], nl=True)
        return
    for line in question.lines:
        write(line, nl=True)


def forget_typed(session: PromptSession[str | None]) -> None:
    """Discard input typed before the question, because it cannot be an answer to it."""
    clear_typeahead(session.input)
    discard_typed(session.input.fileno())


def open_history() -> History:
    """Return the history of earlier conversations, private to the user; without a place, none."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "palyra"
    path = folder / "chat_history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND, PRIVATE_MODE))
        path.chmod(PRIVATE_MODE)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
