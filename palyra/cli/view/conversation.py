"""The conversation of a session in words: who said what, one line for each call, and the answers.

It is read from the tapes, on which it stays after the process that asked has ended.  `palyra sessions
show` prints it, and `palyra chat` its end when it goes on with a session.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal

import msgspec

from palyra.cli.command.output import age, fold, line_width, one_line, say, uses_style, write
from palyra.cli.view.cards import Cards
from palyra.cli.view.event_text import narrate
from palyra.cli.view.prose import lay_out
from palyra.core.journal.purged_row import read_tombstone
from palyra.core.run.todos import list_todos
from palyra.core.tape import events as ev
from palyra.core.text.visible import describe_call, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palyra.client import Client, RunView, TapeEvent

PAGE_ROWS = 500

EntryKind = Literal["message", "steering", "text", "call", "note", "answer"]
_COLOURS = {"✓": "green", "✗": "red", "■": "red", "?": "magenta", "!": "yellow"}


class ExchangeEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was said or done; `text` of a call is the call and its outcome."""

    kind: EntryKind
    at_ms: int
    text: str
    by: str = ""  # principal that sent a message
    mark: str = ""  # of a call or a note: ✓ succeeded, ✗ did not


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a conversation."""

    run_id: str
    phase: str
    created_ms: int
    entries: list[ExchangeEntry]


async def read_exchanges(client: Client, session_id: str, last: int) -> tuple[list[Exchange], bool]:
    """Return the last exchanges of a session, oldest first, and True if there are earlier ones."""
    runs = (await client.list_runs(session_id=session_id, limit=last + 1)).runs
    found = [await _read_exchange(client, run) for run in reversed(runs[:last])]
    return found, len(runs) > last


async def _read_exchange(client: Client, run: RunView) -> Exchange:
    items: list[TapeEvent] = []
    cursor: int | None = -1
    while cursor is not None:
        page = await client.read_tape(run.run_id, cursor, limit=PAGE_ROWS)
        cursor = page.next_after_seq
        items += page.events
    entries = list(fold_entries(items))
    if not run.is_terminal:
        at_ms = entries[-1].at_ms if entries else run.created_ms
        text = f"{run.phase.replace('_', ' ')}: `palyra runs follow {run.run_id}` shows it live"
        entries.append(ExchangeEntry(kind="note", at_ms=at_ms, text=text, mark="·"))
    return Exchange(run_id=run.run_id, phase=run.phase, created_ms=run.created_ms, entries=entries)


def fold_entries(items: Sequence[TapeEvent]) -> Iterator[ExchangeEntry]:
    """Yield what a person wants to read of a run's events; purged content is one note."""
    cards, is_purged = Cards(line_width()), False
    for item in items:
        at_ms = item.at_ms
        match item.event:
            case ev.MessageReceived() as received:
                yield ExchangeEntry(
                    kind="message", at_ms=at_ms, text=_words_of(received), by=received.by
                )
            case ev.SteerReceived(text=text, by=by):
                yield ExchangeEntry(kind="steering", at_ms=at_ms, text=text, by=by)
            case ev.TurnCompleted(text=text, calls=calls) if calls and text.strip():
                yield ExchangeEntry(kind="text", at_ms=at_ms, text=text)
            case ev.MessageCompleted() as answer:
                yield from _answer(answer, at_ms)
            case ev.ConversationInherited() | ev.CompactionApplied():
                yield ExchangeEntry(kind="note", at_ms=at_ms, text=narrate(item).text, mark="·")
            case None if not is_purged and read_tombstone(item.data) is not None:
                is_purged = True
                yield ExchangeEntry(kind="note", at_ms=at_ms, text=narrate(item).text, mark="·")
            case _:
                line = cards.take(item)
                if line is not None:
                    is_call = isinstance(item.event, _CALLS)
                    kind: EntryKind = "call" if is_call else "note"
                    todos = item.event.todos if isinstance(item.event, ev.TodosChanged) else ()
                    text = "; ".join([line.text, *list_todos(todos)])
                    yield ExchangeEntry(kind=kind, at_ms=at_ms, text=text, mark=line.mark)
    yield from _open_questions(items)


def _open_questions(items: Iterable[TapeEvent]) -> Iterator[ExchangeEntry]:
    found: dict[str, ExchangeEntry] = {}
    for item in items:
        match item.event:
            case ev.ApprovalRequested(approval_id=approval_id, summary=summary):
                text = f"waits for a person, `palyra approvals show {approval_id}`: {summary}"
                found[approval_id] = ExchangeEntry(
                    kind="note", at_ms=item.at_ms, text=text, mark="?"
                )
            case ev.ApprovalResolved(approval_id=approval_id):
                found.pop(approval_id, None)
            case ev.RunCancelled() | ev.RunFailed() | ev.RunDone():
                return
            case _:
                pass
    yield from found.values()


_CALLS = (ev.ToolCompleted, ev.ToolRejected, ev.ToolDecided)


def _answer(event: ev.MessageCompleted, at_ms: int) -> Iterator[ExchangeEntry]:
    if event.text.strip():
        yield ExchangeEntry(kind="answer", at_ms=at_ms, text=event.text)
    for call in event.calls:  # of the caller's own tools
        text = describe_call(call.tool, call.arguments)
        yield ExchangeEntry(kind="call", at_ms=at_ms, text=text, mark="→")


def _words_of(event: ev.MessageReceived) -> str:
    text = event.text or pluralize(len(event.results), "result of a tool")
    files = len(event.attachments)
    return f"{text}\n[{pluralize(files, 'attachment')}]" if files else text


def print_exchanges(exchanges: Iterable[Exchange], *, most_lines: int | None = None) -> None:
    """Print exchanges for a person, each text with at most that many lines of the terminal."""
    for exchange in exchanges:
        say(f"{exchange.run_id}, {age(exchange.created_ms)} ago, {exchange.phase}", dim=True)
        was = ""
        for entry in exchange.entries:
            is_line = entry.kind in {"call", "note"}
            if was and not (is_line and was == "line"):
                say()
            was = "line" if is_line else "text"
            _print_entry(entry, exchange.run_id, most_lines)
        say()


def _print_entry(entry: ExchangeEntry, run_id: str, most_lines: int | None) -> None:
    if entry.kind in {"call", "note"}:
        text = one_line(entry.text, 400)
        say(fold(f"{entry.mark} {text}"), fg=_COLOURS.get(entry.mark))
        return
    if entry.kind in {"answer", "text"} and uses_style():
        rows = lay_out(entry.text)
        for row in rows[:most_lines]:
            write(row, nl=True)
        if len(rows) > len(rows[:most_lines]):
            say(_whole(run_id))
        return
    lines = entry.text.strip("\n").split("\n")
    if entry.kind in {"message", "steering"}:
        late = " (while it worked)" * (entry.kind == "steering")
        lines[0] = f"» {entry.by or 'unknown'}{late}: {lines[0]}"
    shown = lines if most_lines is None else _first(lines, most_lines, run_id)
    colour = "cyan" if entry.kind in {"message", "steering"} else None
    for line in shown:
        say(fold(line), fg=colour)


def _first(lines: list[str], most: int, run_id: str) -> list[str]:
    """Return the first lines as a terminal shows them, and where the rest is."""
    width = line_width() or 100
    shown = [row for line in lines[: most + 1] for row in textwrap.wrap(line, width) or [""]]
    if len(shown) <= most and len(lines) <= most:
        return lines
    return [*shown[:most], _whole(run_id)]


def _whole(run_id: str) -> str:
    return f"… `palyra runs show {run_id}` has all of it"
