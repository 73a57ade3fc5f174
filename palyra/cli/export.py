"""The conversation of a session as Markdown: `palyra sessions export`, and `/export` of a chat."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.output import one_line, safe
from palyra.cli.view.conversation import read_exchanges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from palyra.cli.view.conversation import Exchange, ExchangeEntry
    from palyra.client import Client
    from palyra.core.journal.records import SessionRecord

MAX_EXCHANGES = 499  # of one page of runs
CALL_CHARS = 400
_TICKS = re.compile(r"`+")


async def export_session(client: Client, session_id: str) -> str:
    """Return the conversation; a note at its top says if earlier exchanges are left out."""
    session = await client.get_session(session_id)
    exchanges, is_cut = await read_exchanges(client, session_id, MAX_EXCHANGES)
    return "\n".join(_render(session, exchanges, is_cut=is_cut))


def _render(
    session: SessionRecord, exchanges: Sequence[Exchange], *, is_cut: bool
) -> Iterator[str]:
    yield f"# {one_line(session.title or session.session_id)}\n"
    yield f"Session {session.session_id}, workspace {session.workspace}.\n"
    if is_cut:
        yield f"The last {MAX_EXCHANGES} exchanges; earlier ones are left out.\n"
    for exchange in exchanges:
        yield f"## {exchange.run_id}: {_when(exchange.created_ms)}\n"
        was = ""
        for entry in exchange.entries:
            is_item = entry.kind in {"call", "note"}
            if was == "item" and not is_item:
                yield ""
            was = "item" if is_item else "text"
            yield _render_entry(entry)
        if was == "item":
            yield ""


def _render_entry(entry: ExchangeEntry) -> str:
    text = safe(entry.text.strip("\n"))
    if entry.kind in {"call", "note"}:
        return f"- {entry.mark} {_code(one_line(entry.text, CALL_CHARS))}"
    if entry.kind in {"message", "steering"}:
        quoted = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
        return f"**{safe(entry.by or 'unknown')}**:\n\n{quoted}\n"
    return f"{text}\n"


def _code(text: str) -> str:
    """Return an inline code span, with more backticks than the text has."""
    longest = max((len(each) for each in _TICKS.findall(text)), default=0)
    marks = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{marks}{space}{text}{space}{marks}"


def _when(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def write_new(path: Path, text: str) -> None:
    """Create a file; one that exists, or a link, is left as it is.  Raises CommandFailed."""
    try:
        fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
        )
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CommandFailed(f"{path} exists already", "name another file, or remove it") from None
    except OSError as error:
        raise CommandFailed(
            f"{path}: {error.strerror}", "name a file that can be written"
        ) from None
