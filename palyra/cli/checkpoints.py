"""`palyra checkpoints`: list and restore file contents saved before tool calls changed them."""

from typing import Literal

import click

from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import age, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.core.text.visible import visible
from palyra.net.protocol.results import CheckpointFile, CheckpointView


@click.group()
def checkpoints() -> None:
    """List changes of files by tool calls, and restore files."""


@checkpoints.command("list")
@click.option(
    "--session", "session_id", metavar="SESSION_ID", help="Only checkpoints of this session."
)
@click.option("--run", "run_id", metavar="RUN_ID", help="Only checkpoints of this run.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="CHECKPOINT_ID", help="Start after this checkpoint.")
@shared_options
def list_(
    options: Options,
    session_id: str | None,
    run_id: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """List checkpoints, newest first, with the files of each."""
    page = talk(
        options,
        lambda client: client.list_checkpoints(
            session_id=session_id, run_id=run_id, cursor=cursor, limit=limit
        ),
    )
    if options.as_json:
        print_json(page)
        return
    print_table(
        ("CHECKPOINT", "AGE", "RUN", "BY", "FILE", "CHANGE"),
        [row for checkpoint in page.checkpoints for row in _rows(checkpoint)],
        empty="no checkpoints yet",
    )
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


def _rows(checkpoint: CheckpointView) -> list[tuple[object, ...]]:
    first = (
        checkpoint.checkpoint_id,
        age(checkpoint.created_ms),
        checkpoint.run_id,
        checkpoint.tool,
    )
    return [
        (*(first if number == 0 else ("", "", "", "")), visible(file.path), _change(file))
        for number, file in enumerate(checkpoint.files)
    ]


def _change(file: CheckpointFile) -> str:
    if file.before_sha256 is None:
        return "created"
    return "deleted" if file.after_sha256 is None else "changed"


@checkpoints.command()
@id_argument("checkpoint_id", latest=False)
@click.option(
    "--to", type=click.Choice(["before", "after"]), default="before", show_default=True,
    help="State of the files: before the change or after it.",
)  # fmt: skip
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite files that have changed since the checkpoint.",
)
@shared_options
def restore(
    options: Options, checkpoint_id: str, *, to: Literal["before", "after"], force: bool
) -> None:
    """Restore the files of a checkpoint: all of them or none."""
    done = talk(options, lambda client: client.restore_checkpoint(checkpoint_id, to, force=force))
    if options.as_json:
        print_json(done)
        return
    for path in done.files:
        say(f"{visible(path)} is as {done.side}")
    if done.checkpoint_id is None:
        say("nothing to do: no file differs")
    else:
        say(f"undo it with: palyra checkpoints restore {done.checkpoint_id}", dim=True)
