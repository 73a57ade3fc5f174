"""Previews of approvals at the terminal, in colour where the output is one.

The daemon makes the preview (`approval.preview`); every command shows it by the same text.
"""

import os
import shutil
from typing import Any

import click

from palyra.cli.output import safe
from palyra.client import Client
from palyra.core.preview.blocks import Preview
from palyra.core.preview.text import Style, render_preview
from palyra.errors import PalyraError

_COLOURS: dict[Style, dict[str, Any]] = {
    "title": {"bold": True},
    "dim": {"dim": True},
    "removed": {"fg": "red"},
    "added": {"fg": "green"},
    "removed_word": {"fg": "red", "bold": True, "reverse": True},
    "added_word": {"fg": "green", "bold": True, "reverse": True},
    "warning": {"fg": "yellow"},
}


def print_preview(preview: Preview, *, err: bool = False) -> None:
    """Print a preview as wide as the terminal; without colours for a pipe or with NO_COLOR."""
    width = shutil.get_terminal_size().columns
    color = False if os.environ.get("NO_COLOR") else None  # None: click asks the stream
    for line in render_preview(preview, width):
        parts = (click.style(safe(text), **_COLOURS.get(style, {})) for text, style in line)
        click.echo("".join(parts), err=err, color=color)


async def find_preview(
    client: Client, approval_id: str, max_lines: int | None = None
) -> Preview | str:
    """Return the preview, or the reason why there is none: an older daemon, a missing approval.

    Cancellation: nothing happened.
    """
    try:
        return await client.preview_approval(approval_id, max_lines=max_lines)
    except PalyraError as error:
        return error.message
