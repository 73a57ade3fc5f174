"""`palyra sessions`: conversations."""

import click

from palyra.cli.screen import age, print_json, print_table, say
from palyra.cli.shell import Options, shared_options, talk
from palyra.core.records import SessionRecord


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
    waiting = talk(options, lambda client: client.list_queue(session_id))
    if options.as_json:
        print_json({"session": session, "waiting": waiting})
        return
    print_table(
        ("SESSION", "KEY", "PRINCIPAL", "UPDATED", "EPOCH", "ARCHIVED"), [_row(session)], empty=""
    )
    print_table(("WAITING",), [(run_id,) for run_id in waiting], empty="nothing waits")


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
