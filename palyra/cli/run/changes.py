"""`palyra diff` and `palyra undo`: changes of files by a run."""

import click

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.names import id_argument
from palyra.cli.command.options import confirm_loss, shared_options
from palyra.cli.command.output import print_json, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.run.preview import print_blocks
from palyra.core.preview.call import MAX_LINES
from palyra.core.preview.run_changes import ChangedFile, RunUndo
from palyra.core.text.visible import pluralize, visible

_STANDINGS = {
    "left": "",
    "restored": "as before the run again",
    "changed": "changed since by other means",
}


@click.command()
@id_argument("run_id")
@click.option("--all", "is_whole", is_flag=True, help="Show every line.")
@shared_options
def diff(options: Options, run_id: str, *, is_whole: bool) -> None:
    """Show what a run changed in the workspace."""
    max_lines = MAX_LINES if is_whole else None
    found = talk(options, lambda client: client.diff_run(run_id, max_lines=max_lines))
    if options.as_json:
        print_json(found)
        return
    print_blocks(found.blocks)
    for file in found.files:
        _say_standing(file)
    if not found.files:
        say("no change of a file is recorded")
    _say_notes(found.unknown, found.redacted, found.cut)


@click.command()
@id_argument("run_id", latest=False)
@click.option("--dry-run", is_flag=True, help="Show the preview only.")
@click.option("--force", is_flag=True, help="Overwrite files that changed since by other means.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--all", "is_whole", is_flag=True, help="Show every line of the preview.")
@shared_options
def undo(
    options: Options, run_id: str, *, dry_run: bool, force: bool, yes: bool, is_whole: bool
) -> None:
    """Put the files back that a run changed."""
    max_lines = MAX_LINES if is_whole else None
    preview = talk(options, lambda client: client.undo_run(run_id, max_lines=max_lines))
    if not options.as_json:
        _print_preview(preview, force=force)
    paths = (*preview.files, *(preview.conflicts if force else ()))
    result = preview
    if paths and not dry_run:
        confirm_loss(
            f"Put {pluralize(len(paths), 'file')} back?",
            is_confirmed=yes,
            why="an undo replaces files, and there is no terminal to ask at",
        )
        result = talk(options, lambda client: client.undo_run(run_id, preview.digest, force=force))
    if options.as_json:
        print_json(result)
    else:
        _print_result(result, is_empty=not paths)
    left = 0 if force or dry_run else len(preview.conflicts)
    if left:
        raise CommandFailed(
            f"{pluralize(left, 'file')} left alone",
            "--force overwrites what was changed since by other means",
            kind="conflict",
        )


def _print_result(result: RunUndo, *, is_empty: bool) -> None:
    if is_empty:
        say("nothing to put back")
    if result.state == "preview":
        return
    for path in result.files:
        say(f"{visible(path)} is as before the run")
    if result.checkpoint_id is not None:
        say(f"undo that with: palyra checkpoints restore {result.checkpoint_id}", dim=True)


def _print_preview(preview: RunUndo, *, force: bool) -> None:
    print_blocks(preview.blocks)
    for path in preview.conflicts:
        ending = "will be overwritten" if force else "left alone (--force overwrites it)"
        say(f"{visible(path)}: changed since by other means; {ending}")
    for file in preview.unusable:
        _say_standing(file)
    _say_notes(preview.unknown, preview.redacted, preview.cut)


def _say_standing(file: ChangedFile) -> None:
    text = file.problem or _STANDINGS[file.standing]
    if text:
        say(f"{visible(file.path)}: {text}")


def _say_notes(unknown: tuple[str, ...], redacted: int, cut: int) -> None:
    for note in unknown:
        say(f"not known: {note}", dim=True)
    if redacted:
        say(f"{pluralize(redacted, 'mark')} [redacted:…] in place of secrets", dim=True)
    if cut:
        say(f"{pluralize(cut, 'line')} left out; --all shows them", dim=True)
