"""`palyra documents`: entries in managed blocks of MEMORY.md, PALYRA.md and USER.md."""

from typing import TYPE_CHECKING

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import age, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.run.workspaces import workspace_option
from palyra.core.memory.document_views import Adopted, Deleted, DocumentChange, Flag
from palyra.core.text.visible import pluralize, visible

if TYPE_CHECKING:
    from palyra.client import Client


@click.group()
def documents() -> None:
    """List, show, sync, fill and restore MEMORY.md, PALYRA.md and USER.md."""


@documents.command("list")
@workspace_option
@shared_options
def list_(options: Options, workspace: str | None) -> None:
    """List the documents of the workspace."""
    found = talk(options, lambda client: client.list_documents(workspace=workspace))
    if options.as_json:
        print_json(found)
        return
    print_table(
        ("DOCUMENT", "BYTES", "VERSION", "ENTRIES", "EDITS", "FLAGS"),
        [
            (
                each.document,
                each.size_bytes if each.exists else "no file",
                each.version or "-",
                each.entries,
                each.edits,
                each.flags,
            )
            for each in found.documents
        ],
        empty="no documents",
    )
    for each in found.documents:
        if each.problem:
            say(f"problem: {visible(each.problem)}")
    if not found.writes:
        say("the daemon writes none of them unless documents.write is set", dim=True)


@documents.command()
@click.argument("document")
@click.option("--version", type=click.IntRange(min=1), help="Show this version, not the file.")
@workspace_option
@shared_options
def show(options: Options, document: str, version: int | None, workspace: str | None) -> None:
    """Show the entries of a document, and edits that are not adopted yet."""
    found = talk(
        options, lambda client: client.get_document(document, version, workspace=workspace)
    )
    if options.as_json:
        print_json(found)
        return
    print_table(
        ("BLOCK", "ENTRY", "BY", "TEXT"),
        [
            (
                block.block,
                entry.entry_id,
                entry.by or ("file" if entry.trust == "workspace" else "daemon"),
                visible(entry.text) or "(forgotten)",
            )
            for block in found.blocks
            for entry in block.entries
        ],
        empty=f"{found.document} has no entries",
    )
    _say_edits(found.adopted, found.deleted, found.flags)


@documents.command()
@click.argument("document")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--before", type=click.IntRange(min=1), help="Start before this version.")
@workspace_option
@shared_options
def history(
    options: Options, document: str, limit: int, before: int | None, workspace: str | None
) -> None:
    """List the versions of a document, newest first."""
    found = talk(
        options,
        lambda client: client.document_history(
            document, before=before, limit=limit, workspace=workspace
        ),
    )
    if options.as_json:
        print_json(found)
        return
    print_table(
        ("VERSION", "AGE", "BY", "CAUSE", "ENTRIES", "CHECKPOINT"),
        [
            (
                each.version,
                age(each.at_ms),
                each.by or "daemon",
                f"{each.cause} (not completed)" if each.is_pending else each.cause,
                each.entries,
                each.checkpoint_id or "-",
            )
            for each in found.versions
        ],
        empty=f"{document} has no versions",
    )
    if found.next_before:
        say(f"more: --before {found.next_before}", dim=True)


@documents.command()
@click.argument("document")
@click.argument("version", type=click.IntRange(min=1))
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@workspace_option
@shared_options
def restore(
    options: Options, document: str, version: int, *, dry_run: bool, workspace: str | None
) -> None:
    """Give the managed blocks the entries of a version; other text stays as it is."""
    done = talk(
        options,
        lambda client: client.restore_document(
            document, version, dry_run=dry_run, workspace=workspace
        ),
    )
    if options.as_json:
        print_json(done)
        return
    _say_changes(done)


@documents.command()
@click.argument("document", default="MEMORY.md")
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@workspace_option
@shared_options
def fill(options: Options, document: str, *, dry_run: bool, workspace: str | None) -> None:
    """Write your pinned memories to the block `pinned` of DOCUMENT, or of MEMORY.md."""
    done = talk(
        options, lambda client: client.fill_document(document, dry_run=dry_run, workspace=workspace)
    )
    if options.as_json:
        print_json(done)
        return
    _say_changes(done)


@documents.command()
@click.argument("document", required=False)
@click.option("--dry-run", is_flag=True, help="Only show the edits.")
@workspace_option
@shared_options
def sync(options: Options, document: str | None, *, dry_run: bool, workspace: str | None) -> None:
    """Adopt what was added, changed and deleted in the file; without DOCUMENT, in all."""
    if document is not None:
        names = [document]
    else:
        found = talk(options, lambda client: client.list_documents(workspace=workspace))
        names = [each.document for each in found.documents if each.exists or each.version]

    async def sync_all(client: "Client") -> list[DocumentChange]:
        return [
            await client.sync_document(name, dry_run=dry_run, workspace=workspace) for name in names
        ]

    done = talk(options, sync_all)
    if options.as_json:
        print_json({"documents": done})
        return
    for each in done:
        _say_sync(each)
    if not done:
        say("the workspace has no documents")


def _say_sync(done: DocumentChange) -> None:
    _say_edits(done.adopted, done.deleted, done.flags)
    counts = (
        f"{pluralize(len(done.adopted), 'edit')} adopted, {len(done.deleted)} deleted, "
        f"{len(done.flags)} flagged"
    )
    state = "preview, nothing changed" if done.is_preview else f"version {done.version}"
    say(f"{done.document}: {counts} ({state})")
    _say_undo(done)


def _say_edits(
    adopted: tuple[Adopted, ...], deleted: tuple[Deleted, ...], flags: tuple[Flag, ...]
) -> None:
    for each in adopted:
        verb = "added" if each.is_new else "changed"
        say(f"{verb} {each.block}/{each.entry_id}: {visible(each.text)}")
    for gone in deleted:
        say(f"deleted {gone.block}/{gone.entry_id}: {visible(gone.text)}")
    for flag in flags:
        where = f"line {flag.line}: " if flag.line else ""
        pending = "" if flag.pending is None else f" (not written: {visible(flag.pending)})"
        say(f"flagged {flag.block}: {where}{flag.reason}{pending}")


def _say_changes(done: DocumentChange) -> None:
    for each in done.changes:
        name = f"{each.block}/{each.entry_id}"
        if each.before is not None:
            say(f"- {name}: {visible(each.before)}")
        if each.after is not None:
            say(f"+ {name}: {visible(each.after)}")
    if not done.changes:
        say("nothing to do: the file has these entries")
    elif done.is_preview:
        say("preview, nothing changed", dim=True)
    else:
        say(f"{done.document} is at version {done.version}")
    _say_undo(done)


def _say_undo(done: DocumentChange) -> None:
    if done.checkpoint_id is not None:
        say(f"undo it with: palyra checkpoints restore {done.checkpoint_id}", dim=True)
