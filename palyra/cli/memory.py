"""`palyra memory`: store, search, change, forget and move items of memory."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args

import click
import msgspec

from palyra.cli.command.errors import USAGE, CommandFailed
from palyra.cli.command.names import id_argument
from palyra.cli.command.options import (
    GivenPath,
    confirm_loss,
    read_text,
    replace_file,
    shared_options,
)
from palyra.cli.command.output import age, one_line, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.host.status import describe_embedder
from palyra.cli.sessions import find_session
from palyra.core.journal.records import ItemScope, MemoryKind
from palyra.core.memory.foreign import parse_mem0, parse_openclaw
from palyra.core.memory.items import MAX_IMPORT, MemoryChanged, MemoryDraft
from palyra.core.text.visible import pluralize
from palyra.errors import InvalidParams, PalyraError, Rejected
from palyra.net.protocol.results import MemoryItem, MemoryPage, MemorySearched, MemoryStatement

if TYPE_CHECKING:
    from palyra.client import Client
    from palyra.core.memory.items import MemoryAdded

_KINDS = click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(get_args(MemoryKind)),
    help="Only those of this kind.",
)
_TAGS = click.option("--tag", "tags", multiple=True, help="Repeatable.")
_SESSION = click.option(
    "--session", "session_id", help="Of this conversation: key or id of a session, or an own name."
)
_CHANNEL = click.option("--channel", help="Of this channel.")
_PRINCIPAL = click.option("--principal", help="Whose memory; else your own.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be deleted.")
_ITEM = re.compile(r"items\[(?P<at>\d+)\]\.(?P<name>\w+)")
_FORMATS = ("auto", "palyra", "openclaw", "mem0")


class PurgeScope(TypedDict):
    """Scope of a purge besides the memory."""

    sessions: bool
    cancel: bool


@click.group()
def memory() -> None:
    """Store, search, change and forget what runs remember."""


# --- storing


@memory.command()
@click.argument("text")
@click.option("--kind", type=click.Choice(get_args(MemoryKind)), help="Default: note.")
@_TAGS
@click.option("--author", help="Whose statement it is.")
@_SESSION
@_CHANNEL
@click.option("--scope", type=click.Choice(get_args(ItemScope)), help="Where it is recalled.")
@click.option("--at-ms", type=click.IntRange(0), help="Time of the statement; else now.")
@click.option(
    "--confidence-bps", type=click.IntRange(0, 10_000), help="Confidence in ten-thousandths."
)
@click.option("--ttl-ms", type=click.IntRange(1), help="Delete it after this time.")
@click.option("--pin", "pinned", is_flag=True, default=None, help="No correction replaces it.")
@click.option("--supersedes", metavar="MEMORY_ID", help="The item that it corrects.")
@_PRINCIPAL
@shared_options
def add(options: Options, text: str, **given: Any) -> None:  # noqa: ANN401 - click's own values
    """Remember TEXT; @FILE reads it from a file."""
    fields = {name: value for name, value in given.items() if value not in {None, ()}}

    async def work(client: "Client") -> "MemoryAdded":
        return await client.add_memory(read_text(text), **await _located(client, fields))

    done = talk(options, work)
    if options.as_json:
        print_json(done)
        return
    corrected = f", in place of {done.superseded}" if done.superseded else ""
    say(f"{done.memory_id} {done.disposition}{corrected}")


async def _located(client: "Client", given: dict[str, Any]) -> dict[str, Any]:
    """Put the id of a session in the place of its key.

    Another name stays: that of an imported conversation, or of another principal's.
    """
    name = given.get("session_id")
    if not name or given.get("principal") is not None:
        return given
    return {**given, "session_id": await find_session(client, name) or name}


@memory.command("import")
@click.argument("file", type=GivenPath(exists=True, dir_okay=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="auto",
    show_default=True,
    help="Format of the file.",
)
@click.option("--update", is_flag=True, help="Update items that exist, instead of skipping them.")
@click.option("--dry-run", is_flag=True, help="Read the file, and store nothing.")
@_PRINCIPAL
@shared_options
def import_(
    options: Options, file: Path, *, form: str, update: bool, dry_run: bool, principal: str | None
) -> None:
    """Import FILE: an export of Palyra or mem0, or OpenClaw's MEMORY.md."""
    items = read_statements(file, form)
    totals = {"added": 0, "updated": 0, "skipped": 0}
    if not dry_run:

        async def send(client: "Client") -> None:
            for start in range(0, len(items), MAX_IMPORT):
                try:
                    done = await client.import_memories(
                        items[start : start + MAX_IMPORT],
                        on_conflict="update" if update else "skip",
                        principal=principal,
                    )
                except Rejected as error:
                    raise _name_item(error, file, start) from None
                for name in totals:
                    totals[name] += getattr(done, name)

        talk(options, send)
    if options.as_json:
        print_json({"items": len(items), "dry_run": dry_run, **totals})
    elif dry_run:
        say(f"{pluralize(len(items), 'item')} would be imported")
    else:
        say(", ".join(f"{count} {name}" for name, count in totals.items()))


def _name_item(error: Rejected, file: Path, start: int) -> PalyraError:
    """Return the error with the number of the item in the file that it is about, if it is one's."""
    place = _ITEM.fullmatch(error.field or "")
    if place is None:
        return error
    number = start + int(place["at"]) + 1
    stored = f"; the {start} before it in the file are stored" if start else ""
    message = f"{file}, item {number}, {place['name']}: {error.message}{stored}"
    return type(error)(message, field=error.field)


def read_statements(file: Path, form: str) -> list[MemoryStatement]:
    """Return the items of a file.  Raises CommandFailed for a file of another format."""
    try:
        text = file.read_text(encoding="utf-8")
        wanted = _guess_format(file, text) if form == "auto" else form
        if wanted == "palyra":
            return _read_own(text)
        drafts = parse_openclaw(text) if wanted == "openclaw" else parse_mem0(text)
        return [_statement(draft) for draft in drafts]
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, InvalidParams) as error:
        raise CommandFailed(
            f"{file}: {error}", "name an export, or its --format", code=USAGE
        ) from None


def _guess_format(file: Path, text: str) -> str:
    if file.suffix.lower() in {".md", ".markdown"}:
        return "openclaw"
    found = msgspec.json.decode(text.split("\n", 1)[0]) if file.suffix == ".ndjson" else None
    if found is not None:
        return "palyra"
    whole = msgspec.json.decode(text)
    entries = whole.get("items") if isinstance(whole, dict) else None
    is_own = isinstance(entries, list) and all(
        isinstance(entry, dict) and "text" in entry for entry in entries
    )
    return "palyra" if is_own else "mem0"


def _read_own(text: str) -> list[MemoryStatement]:
    """Read `{"items": [...]}`, or one item on each line."""
    if text.lstrip().startswith('{"text"'):
        lines = (line for line in text.splitlines() if line.strip())
        return [msgspec.json.decode(line, type=MemoryStatement) for line in lines]
    return msgspec.convert(msgspec.json.decode(text)["items"], list[MemoryStatement])


def _statement(draft: MemoryDraft) -> MemoryStatement:
    named = MemoryStatement.__struct_fields__
    fields = {name: value for name, value in msgspec.structs.asdict(draft).items() if name in named}
    return MemoryStatement(**fields)


@memory.command()
@click.option("--output", type=GivenPath(dir_okay=False), help="A file; else standard output.")
@_PRINCIPAL
@shared_options
def export(options: Options, output: Path | None, principal: str | None) -> None:
    """Export all current items as `palyra memory import` takes them."""
    items: list[MemoryStatement] = []

    async def fetch(client: "Client") -> None:
        cursor: str | None = None
        while True:
            page = await client.export_memories(principal, cursor=cursor)
            items.extend(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return

    talk(options, fetch)
    text = msgspec.json.format(msgspec.json.encode({"items": items[::-1]}))
    if output is None:
        say(text.decode())
        return
    replace_file(output, text + b"\n")
    if options.as_json:
        print_json({"items": len(items), "file": str(output)})
    else:
        say(f"{pluralize(len(items), 'item')} in {output}")


# --- reading


@memory.command()
@click.argument("query")
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Most rows to print.",
)
@_KINDS
@_TAGS
@click.option("--author", help="Only statements of this person.")
@_SESSION
@_CHANNEL
@click.option(
    "--since-ms",
    type=click.IntRange(0),
    help="Not older than this moment, in milliseconds since 1970.",
)
@click.option(
    "--until-ms", type=click.IntRange(0), help="Older than this moment, in milliseconds since 1970."
)
@click.option("--as-of-ms", type=click.IntRange(0), help="As the memory was at that time.")
@click.option("--why", is_flag=True, help="Show the parts of each score.")
@_PRINCIPAL
@shared_options
def search(options: Options, query: str, *, why: bool, **given: Any) -> None:  # noqa: ANN401 - click's own values
    """Search the memory for QUERY."""

    async def work(client: "Client") -> MemorySearched:
        where = await _located(client, given)
        return await client.search_memories(query, explain=why, **where)

    found = talk(options, work)
    if options.as_json:
        print_json(found)
        return
    _print_hits(found, why=why)


def _print_hits(found: MemorySearched, *, why: bool) -> None:
    if not found.hits:
        say("nothing found", dim=True)
    for hit in found.hits:
        source = f"earlier than {hit.later}: " if hit.later else ""
        source += f"{hit.author}: " if hit.author else ""
        say(f"{hit.memory_id}  {hit.score:.3f}  {hit.kind}  {source}{one_line(hit.text, 160)}")
        if why and hit.why is not None:
            say(f"    {hit.why}", dim=True)
    if found.degraded:
        say(f"degraded: {found.degraded}", dim=True)


@memory.command("list")
@_KINDS
@_TAGS
@click.option("--author", help="Only statements of this person.")
@_SESSION
@_CHANNEL
@click.option("--superseded", is_flag=True, help="Also what was corrected.")
@click.option("--hidden", is_flag=True, help="Also what is never recalled.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="MEMORY_ID", help="Go on after this one.")
@_PRINCIPAL
@shared_options
def list_(options: Options, **given: Any) -> None:  # noqa: ANN401 - click's own values
    """List items, newest first."""

    async def work(client: "Client") -> MemoryPage:
        return await client.list_memories(**await _located(client, given))

    page = talk(options, work)
    if options.as_json:
        print_json(page)
        return
    _print_page(page)


def _print_page(page: MemoryPage) -> None:
    columns = ("MEMORY", "KIND", "AGE", "STATE", "TEXT")
    rows = [
        (item.memory_id, item.kind, age(item.at_ms), _state(item), item.text) for item in page.items
    ]
    print_table(columns, rows, empty="no memories")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


def _state(item: MemoryItem) -> str:
    if item.superseded_by is not None:
        return "superseded"
    if item.never_recall:
        return "hidden"
    return "pinned" if item.pinned else "-"


@memory.command()
@id_argument("memory_id")
@shared_options
def show(options: Options, memory_id: str) -> None:
    """Show an item with everything known about it."""
    item = talk(options, lambda client: client.get_memory(memory_id))
    if options.as_json:
        print_json(item)
        return
    say(item.text)
    fields = msgspec.structs.asdict(item)
    del fields["text"]
    for name, value in fields.items():
        if value not in {None, (), False}:
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            say(f"{name}: {shown}", dim=True)


@memory.command()
@id_argument("memory_id")
@shared_options
def history(options: Options, memory_id: str) -> None:
    """Show the revisions of an item, and what it superseded."""
    found = talk(options, lambda client: client.get_memory_history(memory_id))
    if options.as_json:
        print_json(found)
        return
    columns = ("MEMORY", "REVISION", "ACTION", "BY", "AGE", "TEXT")
    rows = [
        (
            item.memory_id,
            item.revision,
            item.action,
            item.changed_by,
            age(item.changed_ms),
            item.text,
        )
        for item in (*found.superseded, *found.versions)
    ]
    print_table(columns, rows, empty="no revisions")


@memory.command()
@_PRINCIPAL
@shared_options
def status(options: Options, principal: str | None) -> None:
    """Show how much is remembered, and how it is searched."""
    found = talk(options, lambda client: client.get_memory_status(principal))
    if options.as_json:
        print_json(found)
        return
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.by_kind.items()))
    say(f"{found.principal}: {pluralize(found.items, 'item')} ({kinds or 'none'})")
    say(
        f"pinned {found.pinned}, never recalled {found.never_recall}, superseded "
        f"{found.superseded}, with an end {found.expiring}, {found.text_bytes} bytes"
    )
    say(f"search: {found.mode}" + (f", degraded: {found.degraded}" if found.degraded else ""))
    say(f"embedder: {describe_embedder(found.embedder)}")


@memory.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", type=click.IntRange(1), metavar="ENTRY", help="Go on after it.")
@_PRINCIPAL
@shared_options
def audit(options: Options, *, principal: str | None, limit: int, cursor: int | None) -> None:
    """List the changes of a memory, newest first, without text."""
    page = talk(options, lambda client: client.audit_memory(principal, limit=limit, cursor=cursor))
    if options.as_json:
        print_json(page)
        return
    columns = ("ENTRY", "MEMORY", "ACTION", "BY", "AGE")
    rows = [
        (line.entry, line.memory_id, line.action, line.by or "-", age(line.at_ms))
        for line in page.entries
    ]
    print_table(columns, rows, empty="no changes")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


@memory.command()
@id_argument("run_id")
@shared_options
def used(options: Options, run_id: str) -> None:
    """Show what the memory gave a run, and for which question."""
    found = talk(options, lambda client: client.get_memory_used(run_id))
    if options.as_json:
        print_json(found)
        return
    columns = ("WAY", "MEMORY", "SCORE", "QUESTION")
    rows = [
        (use.way, item.memory_id, f"{item.score:.3f}", use.question)
        for use in found.uses
        for item in use.items
    ]
    print_table(columns, rows, empty="nothing was recalled")


# --- changing


@memory.command()
@id_argument("memory_id", latest=False)
@click.argument("new_text", metavar="[TEXT]", required=False)
@click.option("--text", help="The new text, as an option.")
@click.option("--kind", type=click.Choice(get_args(MemoryKind)), help="New kind.")
@_TAGS
@click.option("--author", help='Whose statement it is; "" for none.')
@click.option(
    "--confidence-bps", type=click.IntRange(0, 10_000), help="Confidence in ten-thousandths."
)
@click.option("--ttl-ms", type=click.IntRange(0), help="Delete it after this time; 0: never.")
@shared_options
def edit(
    options: Options,
    memory_id: str,
    new_text: str | None,
    text: str | None,
    **given: Any,  # noqa: ANN401 - click's own values
) -> None:
    """Change an item, such as its TEXT (@FILE reads it from a file).

    `palyra memory undo` takes it back.
    """
    if text is not None and new_text is not None:
        raise click.UsageError("the new text is given twice: as an argument or as --text")
    fields = {name: value for name, value in given.items() if value is not None and value != ()}
    if (wanted := text if new_text is None else new_text) is not None:
        fields["text"] = read_text(wanted)
    done = talk(options, lambda client: client.edit_memory(memory_id, **fields))
    _print_change(options, done)


@memory.command()
@id_argument("memory_id", latest=False)
@shared_options
def undo(options: Options, memory_id: str) -> None:
    """Take back the last change of an item, or the correction that it was."""
    _print_change(options, talk(options, lambda client: client.undo_memory(memory_id)))


@memory.command()
@id_argument("memory_id", latest=False)
@click.option("--off", is_flag=True, help="Release it.")
@shared_options
def pin(options: Options, memory_id: str, *, off: bool) -> None:
    """Pin an item, so that no correction replaces it by itself."""
    done = talk(options, lambda client: client.pin_memory(memory_id, pinned=not off))
    _print_change(options, done)


@memory.command("never-recall")
@id_argument("memory_id", latest=False)
@click.option("--off", is_flag=True, help="Recall it again.")
@shared_options
def never_recall(options: Options, memory_id: str, *, off: bool) -> None:
    """Keep an item out of every search and recall, without deleting it."""
    done = talk(options, lambda client: client.never_recall_memory(memory_id, never_recall=not off))
    _print_change(options, done)


def _print_change(options: Options, done: MemoryChanged) -> None:
    if options.as_json:
        print_json(done)
    else:
        say(f"{done.memory_id} {done.action}, revision {done.revision}")


# --- deleting


@memory.command()
@id_argument(
    "memory_id", name="memory_ids", latest=False, nargs=-1, required=True, metavar="MEMORY_ID..."
)
@_DRY_RUN
@shared_options
def forget(options: Options, memory_ids: tuple[str, ...], *, dry_run: bool) -> None:
    """Delete items for good, with what they superseded."""
    done = talk(options, lambda client: client.forget_memories(*memory_ids, dry_run=dry_run))
    if options.as_json:
        print_json(done)
        return
    for memory_id in done.memory_ids:
        say(f"{memory_id} {'would be forgotten' if dry_run else 'forgotten'}")


@memory.command()
@click.option("--principal", required=True, help="Whose memory.")
@click.option("--with-sessions", "sessions", is_flag=True, help="Purge all sessions, too.")
@click.option("--cancel", is_flag=True, help="Cancel their open runs first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_DRY_RUN
@shared_options
def purge(
    options: Options, principal: str, *, dry_run: bool, yes: bool, **scope: Unpack[PurgeScope]
) -> None:
    """Delete the whole memory of a principal for good, with --with-sessions all its content."""
    if not dry_run:
        what = "memory and sessions" if scope["sessions"] else "memory"
        confirm_loss(
            f"Delete the {what} of {principal} for good?",
            is_confirmed=yes,
            is_required=scope["sessions"],
        )
    done = talk(options, lambda client: client.purge_memory(principal, dry_run=dry_run, **scope))
    if options.as_json:
        print_json(done)
        return
    what = "would be deleted" if dry_run else "deleted"
    say(f"{pluralize(done.items, 'item')} of {done.principal} {what}")
    if scope["sessions"]:
        what = "would lose its" if dry_run else "lost its"
        say(f"{pluralize(done.sessions, 'session')} {what} content")


@memory.command()
@shared_options
def rebuild(options: Options) -> None:
    """Create the search index of all items again."""
    done = talk(options, lambda client: client.rebuild_memory())
    if options.as_json:
        print_json(done)
    else:
        say(f"{pluralize(done.rows, 'row')} indexed")
