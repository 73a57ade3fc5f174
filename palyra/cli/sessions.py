"""`palyra sessions`: conversations."""

from typing import TYPE_CHECKING, get_args

import click

from palyra.cli.screen import age, print_json, print_table, say
from palyra.cli.shell import Options, shared_options, talk
from palyra.core.commands import Queue
from palyra.core.records import QueueMode, SessionRecord

if TYPE_CHECKING:
    from palyra.net.client import QueueChange


@click.group()
def sessions() -> None:
    """List, show, archive and reset conversations."""


@sessions.command("list")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--after", "cursor", metavar="SESSION_ID", help="Go on after this session.")
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
@click.argument("session_id")
@shared_options
def show(options: Options, session_id: str) -> None:
    """Show one session and what waits in it."""
    session = talk(options, lambda client: client.get_session(session_id))
    queue = talk(options, lambda client: client.queue(session_id))
    if options.as_json:
        print_json({"session": session, "queue": queue})
        return
    print_table(
        ("SESSION", "KEY", "PRINCIPAL", "UPDATED", "EPOCH", "ARCHIVED"), [_row(session)], empty=""
    )
    _print_queue(queue)


def _print_queue(queue: Queue) -> None:
    state = "paused, " if queue.paused else ""
    say(f"{state}{queue.mode}, {queue.messages} of {queue.cap} messages wait")
    rows = [("active", queue.active)] if queue.active else []
    rows += [(str(place), run_id) for place, run_id in enumerate(queue.waiting, 1)]
    print_table(("PLACE", "RUN"), rows, empty="nothing is active, nothing waits")


@sessions.command()
@click.argument("session_id")
@click.option("--mode", type=click.Choice(get_args(QueueMode)), help="Of messages that name none.")
@click.option("--pause/--resume", "paused", default=None, help="Whether anything leaves the queue.")
@click.option("--drop", multiple=True, metavar="RUN_ID", help="End a waiting run unstarted.")
@click.option("--first", "order", multiple=True, metavar="RUN_ID", help="Goes before the others.")
@shared_options
def queue(
    options: Options,
    session_id: str,
    *,
    mode: QueueMode | None,
    paused: bool | None,
    drop: tuple[str, ...],
    order: tuple[str, ...],
) -> None:
    """Show what waits in a session, or change it: mode, pause, drop, order."""
    change: QueueChange = {}
    if mode is not None:
        change["mode"] = mode
    if paused is not None:
        change["paused"] = paused
    if drop:
        change["drop"] = drop
    if order:
        change["order"] = order
    found = talk(options, lambda client: client.queue(session_id, **change))
    if options.as_json:
        print_json(found)
    else:
        _print_queue(found)


@sessions.command()
@click.argument("session_id")
@shared_options
def archive(options: Options, session_id: str) -> None:
    """Put a session away."""
    session = talk(options, lambda client: client.archive_session(session_id))
    _print_change(options, session, "is archived")


@sessions.command()
@click.argument("session_id")
@shared_options
def reset(options: Options, session_id: str) -> None:
    """Begin a session anew: its history and grants no longer count."""
    session = talk(options, lambda client: client.reset_session(session_id))
    _print_change(options, session, f"begins anew, epoch {session.epoch}")


def _print_change(options: Options, session: SessionRecord, what: str) -> None:
    if options.as_json:
        print_json(session)
    else:
        say(f"{session.session_id} {what}")
