"""`palyra sessions`: list and change sessions (conversations)."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from palyra.cli.command import Options, shared_options, talk
from palyra.cli.errors import CommandFailed
from palyra.cli.output import age, print_json, print_table, say
from palyra.core.ids import is_id
from palyra.core.journal.records import QueueMode, SessionRecord
from palyra.core.text.visible import pluralize

if TYPE_CHECKING:
    from palyra.client import Client, QueueChange
    from palyra.core.session.commands import Queue, SessionCompacted


PAGE_ROWS = 500


@click.group()
def sessions() -> None:
    """List, show, archive and reset conversations."""


@sessions.command("list")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--after", "cursor", metavar="SESSION_ID", help="Start after this session.")
@shared_options
def list_(options: Options, limit: int, cursor: str | None) -> None:
    """List sessions, newest first."""
    page = talk(options, lambda client: client.list_sessions(cursor=cursor, limit=limit))
    if options.as_json:
        print_json(page)
        return
    print_table(
        ("SESSION", "KEY", "PRINCIPAL", "UPDATED", "EPOCH", "ARCHIVED"),
        [_row(session) for session in page.sessions],
        empty="no sessions yet",
    )
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


def _row(session: SessionRecord) -> tuple[object, ...]:
    return (
        session.session_id,
        session.key or "-",
        session.principal,
        age(session.updated_ms),
        session.epoch,
        age(session.archived_ms),
    )


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@shared_options
def show(options: Options, name: str) -> None:
    """Show one session and its queue."""

    async def work(client: Client) -> tuple[SessionRecord, Queue]:
        session_id = await _find_id(client, name)
        return await client.get_session(session_id), await client.queue(session_id)

    session, queue = talk(options, work)
    if options.as_json:
        print_json({"session": session, "queue": queue})
        return
    print_table(
        ("SESSION", "KEY", "PRINCIPAL", "UPDATED", "EPOCH", "ARCHIVED"), [_row(session)], empty=""
    )
    _print_queue(queue)


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.option("--preview", is_flag=True, help="Show the summary without changing anything.")
@shared_options
def compact(options: Options, name: str, *, preview: bool) -> None:
    """Replace older messages in later prompts by a summary; the tape keeps them."""

    async def work(client: Client) -> SessionCompacted:
        session_id = await _find_id(client, name)
        planned = await client.compact_session(session_id, preview=True)
        if preview or planned.reason:
            return planned
        started = await client.compact_session(session_id)
        if started.run_id is not None:
            await client.wait_run(started.run_id)
        return started

    compacted = talk(options, work)
    if options.as_json:
        print_json(compacted)
    elif compacted.run_id is not None:
        say(f"{compacted.run_id} has ended: `palyra tape show {compacted.run_id}` has the summary")
    elif compacted.reason:
        say(f"nothing to do: {compacted.reason}")
    else:
        messages = pluralize(compacted.messages, "message")
        say(f"{messages}: {compacted.before_tokens} tokens become {compacted.after_tokens}")
        say(compacted.text, dim=True)


async def _find_id(client: Client, name: str) -> str:
    """Return the id of the session with the id or the key `name`.

    A key is looked up among the caller's own sessions.  Raises CommandFailed if there is none.
    """
    if is_id(name, "ses"):
        return name
    principal, cursor = client.welcome.principal, None
    while True:
        page = await client.list_sessions(cursor=cursor, limit=PAGE_ROWS)
        for session in page.sessions:
            if (session.principal, session.key) == (principal, name):
                return session.session_id
        cursor = page.next_cursor
        if cursor is None:
            raise CommandFailed(
                f"{principal} has no session with the key or the id {name!r}",
                "`palyra sessions list` shows both",
                kind="not_found",
            )


def _print_queue(queue: Queue) -> None:
    state = "paused, " if queue.paused else ""
    say(f"{state}{queue.mode}, {queue.messages} of {pluralize(queue.cap, 'message')} waiting")
    rows = [("active", queue.active)] if queue.active else []
    rows += [(str(place), run_id) for place, run_id in enumerate(queue.waiting, 1)]
    print_table(("PLACE", "RUN"), rows, empty="nothing is active, nothing waits")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.option(
    "--mode", type=click.Choice(get_args(QueueMode)), help="Default queue mode of the session."
)
@click.option("--pause", is_flag=True, help="Hold queued runs back.")
@click.option("--resume", is_flag=True, help="Start queued runs again.")
@click.option("--drop", multiple=True, metavar="RUN_ID", help="Cancel a queued run.")
@click.option("--first", "order", multiple=True, metavar="RUN_ID", help="Run to start first.")
@shared_options
def queue(
    options: Options,
    name: str,
    *,
    mode: QueueMode | None,
    pause: bool,
    resume: bool,
    **named: tuple[str, ...],
) -> None:
    """Show the queue of a session, or change it: mode, pause, drop, order."""
    if pause and resume:
        raise click.UsageError("--pause and --resume are opposites: give one of them")
    change: QueueChange = {}
    if mode is not None:
        change["mode"] = mode
    if pause or resume:
        change["paused"] = pause
    if named["drop"]:
        change["drop"] = named["drop"]
    if named["order"]:
        change["order"] = named["order"]

    async def work(client: Client) -> Queue:
        return await client.queue(await _find_id(client, name), **change)

    found = talk(options, work)
    if options.as_json:
        print_json(found)
    else:
        _print_queue(found)


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@shared_options
def archive(options: Options, name: str) -> None:
    """Archive a session."""

    async def work(client: Client) -> SessionRecord:
        return await client.archive_session(await _find_id(client, name))

    session = talk(options, work)
    _print_change(options, session, "is archived")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@shared_options
def reset(options: Options, name: str) -> None:
    """Reset a session: its history and grants no longer count."""

    async def work(client: Client) -> SessionRecord:
        return await client.reset_session(await _find_id(client, name))

    session = talk(options, work)
    _print_change(options, session, f"is reset, epoch {session.epoch}")


def _print_change(options: Options, session: SessionRecord, what: str) -> None:
    if options.as_json:
        print_json(session)
    else:
        say(f"{session.session_id} {what}")
