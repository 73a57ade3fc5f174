"""`palyra sessions`: list and change sessions (conversations)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, get_args

import click

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.listing import watchable
from palyra.cli.command.names import LATEST, find_id, id_argument, is_short
from palyra.cli.command.options import GivenPath, confirm_loss, shared_options
from palyra.cli.command.output import age, fold, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.export import export_session, write_new
from palyra.cli.run.modes import ModeType, spell_mode
from palyra.cli.view.conversation import Exchange, print_exchanges, read_exchanges
from palyra.core.ids import is_id
from palyra.core.journal.records import QueueMode, SessionMode, SessionRecord
from palyra.core.text.visible import pluralize, visible

if TYPE_CHECKING:
    from pathlib import Path

    from palyra.client import Client, QueueChange
    from palyra.client.sessions import RestoreOptions
    from palyra.core.journal.records import SessionCheckpointRecord
    from palyra.core.session.commands import (
        Queue,
        SessionCheckpoints,
        SessionCompacted,
        SessionRestored,
    )
    from palyra.core.session.purge import SessionPurged


PAGE_ROWS = 500


@click.group()
def sessions() -> None:
    """List, show, archive, reset and purge conversations."""


@sessions.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="SESSION_ID", help="Start after this session.")
@watchable
@shared_options
def list_(options: Options, limit: int, cursor: str | None) -> None:
    """List sessions, newest first."""
    page = talk(options, lambda client: client.list_sessions(cursor=cursor, limit=limit))
    if options.as_json:
        print_json(page)
        return
    print_table(
        _COLUMNS,
        [_row(session) for session in page.sessions],
        empty="no sessions yet",
    )
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


_COLUMNS = ("SESSION", "KEY", "WORKSPACE", "PRINCIPAL", "UPDATED", "EPOCH", "ARCHIVED", "TITLE")


def _row(session: SessionRecord) -> tuple[object, ...]:
    return (
        session.session_id,
        session.key or "-",
        session.workspace,
        session.principal,
        age(session.updated_ms),
        session.epoch,
        age(session.archived_ms),
        session.title or "-",
    )


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.option(
    "--last",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="Number of exchanges, counted from the end.",
)
@shared_options
def show(options: Options, name: str, last: int) -> None:
    """Print the conversation of a session, and its queue."""

    async def work(client: Client) -> tuple[SessionRecord, Queue, list[Exchange], bool]:
        session_id = await get_session_id(client, name, is_latest_allowed=True)
        session = await client.get_session(session_id)
        exchanges, is_cut = await read_exchanges(client, session_id, last)
        return session, await client.queue(session_id), exchanges, is_cut

    session, queue, exchanges, is_cut = talk(options, work)
    if options.as_json:
        print_json({"session": session, "queue": queue, "exchanges": exchanges})
        return
    say(fold(describe_session(session)), bold=True)
    whose = f"{session.session_id} of {session.principal}"
    mode = f", in the mode {spell_mode(session.mode)}" if session.mode != "ask" else ""
    if session.mode_set is not None and mode:
        mode += f" by {session.mode_set.by}"
    say(f"{whose}, updated {age(session.updated_ms)} ago{mode}", dim=True)
    say()
    if is_cut:
        say(f"earlier exchanges are left out: --last {2 * last}", dim=True)
    print_exchanges(exchanges)
    _print_queue(queue)
    if session.purge is not None:
        state = age(session.purge.done_ms) if session.purge.done_ms else "not complete yet"
        say(f"purged by {session.purge.by}: {state}")
    if session.pins:
        rows = [(each.run_id, each.seq) for each in session.pins]
        print_table(("PINNED RUN", "SEQ"), rows, empty="")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.argument("mode", type=ModeType())
@shared_options
def mode(options: Options, name: str, mode: SessionMode) -> None:
    """Change the mode of a session: what its calls are asked about."""

    async def work(client: Client) -> SessionRecord:
        return await client.set_session_mode(await get_session_id(client, name), mode)

    _print_change(options, talk(options, work), f"is in the mode {spell_mode(mode)}")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.option("--out", "-o", type=GivenPath(), help="New file; standard output if left out.")
@shared_options
def export(options: Options, name: str, out: Path | None) -> None:
    """Print the conversation of a session as Markdown, or write it to a new file."""

    async def work(client: Client) -> str:
        session_id = await get_session_id(client, name, is_latest_allowed=True)
        return await export_session(client, session_id)

    text = talk(options, work)
    if options.as_json:
        print_json({"markdown": text})
    elif out is None:
        say(text)
    else:
        write_new(out, text)
        say(f"{out} is written")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.option("--preview", is_flag=True, help="Show the summary without changing anything.")
@shared_options
def compact(options: Options, name: str, *, preview: bool) -> None:
    """Replace older messages in later prompts by a summary; the tape keeps them."""

    async def work(client: Client) -> SessionCompacted:
        session_id = await get_session_id(client, name)
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


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@id_argument("run_id", metavar="RUN_ID")
@click.argument("seq", type=click.IntRange(min=0))
@click.option("--off", is_flag=True, help="Unpin it.")
@shared_options
def pin(options: Options, name: str, run_id: str, seq: int, *, off: bool) -> None:
    """Keep a message or tool result verbatim in every summary; `palyra tape show` has its SEQ."""

    async def work(client: Client) -> SessionRecord:
        return await client.pin_message(
            await get_session_id(client, name), run_id, seq, pinned=not off
        )

    session = talk(options, work)
    _print_change(options, session, f"has {pluralize(len(session.pins), 'pin')}")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.option("--run", "run_id", metavar="RUN_ID", help="Run of the point; needs --at.")
@click.option("--at", "seq", type=click.IntRange(min=0), help="Its last event; needs --run.")
@click.option("--name", "title", default="", help="Name of the checkpoint.")
@shared_options
def checkpoint(
    options: Options, name: str, *, run_id: str | None, seq: int | None, title: str
) -> None:
    """Mark the newest point of a session, or the one after an event."""

    async def work(client: Client) -> SessionCheckpointRecord:
        session_id = await get_session_id(client, name)
        return await client.checkpoint_session(session_id, run_id=run_id, seq=seq, name=title)

    made = talk(options, work)
    if options.as_json:
        print_json(made)
    else:
        say(f"{made.checkpoint_id} marks {made.run_id} at seq {made.seq}")


@sessions.command("checkpoints")
@click.argument("name", metavar="ID | KEY")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@shared_options
def list_checkpoints(options: Options, name: str, limit: int) -> None:
    """List the points that a session can be restored to, newest first."""

    async def work(client: Client) -> SessionCheckpoints:
        return await client.session_checkpoints(await get_session_id(client, name), limit=limit)

    found = talk(options, work)
    if options.as_json:
        print_json(found)
        return
    rows = [
        (each.checkpoint_id, age(each.created_ms), each.cause, each.run_id, each.seq, each.name)
        for each in found.checkpoints
    ]
    print_table(("CHECKPOINT", "AGE", "CAUSE", "RUN", "SEQ", "NAME"), rows, empty="none yet")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.argument("checkpoint_id", required=False)
@click.option("--before-compaction", is_flag=True, help="Undo the last compaction.")
@click.option("--files", is_flag=True, help="Undo changes of files by the session's calls since.")
@click.option("--force", is_flag=True, help="Overwrite files that changed since by other means.")
@click.option("--documents", is_flag=True, help="Restore the entries of workspace documents.")
@click.option("--dry-run", is_flag=True, help="Show what would happen.")
@shared_options
def restore(
    options: Options,
    name: str,
    checkpoint_id: str | None,
    *,
    before_compaction: bool,
    **flags: Unpack[RestoreOptions],
) -> None:
    """Continue from a checkpoint in a new session; the old session stays as it is."""
    if (checkpoint_id is None) != before_compaction:
        raise click.UsageError("give a CHECKPOINT_ID or --before-compaction")

    async def work(client: Client) -> SessionRestored:
        return await client.restore_session(
            await get_session_id(client, name), checkpoint_id, **flags
        )

    done = talk(options, work)
    if options.as_json:
        print_json(done)
        return
    dry_run = not done.session_id
    what = f"{pluralize(done.messages, 'message')} up to seq {done.at_seq} of {done.parent_run_id}"
    say(f"a branch would have {what}" if dry_run else f"{done.session_id} has {what}")
    for path in done.files:
        note = ", which another program has changed since" if path in done.conflicts else ""
        say(f"{visible(path)} {'would be' if dry_run else 'is'} as at the checkpoint{note}")
    if done.file_checkpoint_id is not None:
        say(f"undo that with: palyra checkpoints restore {done.file_checkpoint_id}", dim=True)
    for document, version in done.documents.items():
        say(f"{document} {'would have' if dry_run else 'has'} the entries of version {version}")


def describe_session(session: SessionRecord) -> str:
    """Name a session and its workspace for a person: by its key, or else by its id."""
    archived = "" if session.archived_ms is None else ", archived"
    name = visible(session.key or session.title or session.session_id)
    return f"{name} in workspace {visible(session.workspace)}{archived}"


async def get_session_id(client: Client, name: str, *, is_latest_allowed: bool = False) -> str:
    """Return the id of the session with the id, the key or the short name `name`.

    A key comes before a short name of the same text.  Raises CommandFailed if there is none.
    """
    found = await find_session(client, name)
    if found is None and is_short(name) and (is_latest_allowed or name != LATEST):
        return await find_id(client, name, "session_id")
    if found is None:
        raise CommandFailed(
            f"{client.welcome.principal} has no session with the key or the id {name!r}",
            "`palyra sessions list` shows both",
            kind="not_found",
        )
    return found


async def find_session(client: Client, name: str) -> str | None:
    """Return an id as it is, and for a key the id of the caller's own session; None if none."""
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
            return None


def _print_queue(queue: Queue) -> None:
    state = "paused, " if queue.paused else ""
    say(f"{state}{queue.mode}, {queue.messages} of {pluralize(queue.cap, 'message')} waiting")
    rows = [("active", queue.active)] if queue.active else []
    rows += [(str(place), run_id) for place, run_id in enumerate(queue.waiting, 1)]
    if rows:
        print_table(("PLACE", "RUN"), rows, empty="")


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
        return await client.queue(await get_session_id(client, name), **change)

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
        return await client.archive_session(await get_session_id(client, name))

    session = talk(options, work)
    _print_change(options, session, "is archived")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.argument("title")
@shared_options
def rename(options: Options, name: str, title: str) -> None:
    """Give a session a title; with '' its next message gives it one."""

    async def work(client: Client) -> SessionRecord:
        return await client.rename_session(await get_session_id(client, name), title)

    session = talk(options, work)
    _print_change(options, session, f"is named {visible(session.title or '-')}")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@shared_options
def reset(options: Options, name: str) -> None:
    """Reset a session: its history and grants no longer count."""

    async def work(client: Client) -> SessionRecord:
        return await client.reset_session(await get_session_id(client, name))

    session = talk(options, work)
    _print_change(options, session, f"is reset, epoch {session.epoch}")


@sessions.command()
@click.argument("name", metavar="ID | KEY")
@click.option("--cancel", is_flag=True, help="Cancel its open runs first.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def purge(options: Options, name: str, *, cancel: bool, dry_run: bool, yes: bool) -> None:
    """Remove the content of a session for good; its events stay as a proof, without content."""

    async def work(client: Client) -> SessionPurged:
        session_id = await get_session_id(client, name)
        return await client.purge_session(session_id, cancel=cancel, dry_run=dry_run)

    if not dry_run:
        confirm_loss(f"Remove the content of {name} for good?", is_confirmed=yes)
    done = talk(options, work)
    if options.as_json:
        print_json(done)
        return
    what = "would lose" if dry_run else "has lost"
    say(
        f"{done.session_id} {what} the content of {pluralize(done.events, 'event')} in "
        f"{pluralize(done.runs, 'run')}, and {pluralize(done.items, 'item')} of memory"
    )
    say(
        f"also {pluralize(done.artifacts, 'artifact')} and "
        f"{pluralize(done.file_checkpoints, 'file checkpoint')}; in documents "
        f"{pluralize(done.document_entries, 'item')}"
    )
    say(f"and {pluralize(done.tasks, 'task')} and {pluralize(done.schedules, 'schedule')}")
    for branch in done.branches:
        say(f"{branch} inherited a part of the conversation: purge it too")
    for schedule_id in done.continuing:
        say(f"{schedule_id} ran in it and goes on: `palyra schedules remove {schedule_id}` ends it")


def _print_change(options: Options, session: SessionRecord, what: str) -> None:
    if options.as_json:
        print_json(session)
    else:
        say(f"{session.session_id} {what}")
