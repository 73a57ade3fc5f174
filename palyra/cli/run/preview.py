"""Previews of approvals at the terminal, in colour where the output is one.

The daemon makes the preview (`approval.preview`); every command shows it by the same text.
"""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from palyra.cli.command.output import Style as Look
from palyra.cli.command.output import paint, write
from palyra.client import Client
from palyra.core.preview.blocks import Block, FileBlock, Preview
from palyra.core.preview.text import Line, Style, render_blocks, render_preview
from palyra.core.text.visible import visible
from palyra.errors import PalyraError

_COLOURS: dict[Style, Look] = {
    "title": {"bold": True},
    "dim": {"dim": True},
    "removed": {"fg": "red"},
    "added": {"fg": "green"},
    "removed_word": {"fg": "red", "bold": True, "reverse": True},
    "added_word": {"fg": "green", "bold": True, "reverse": True},
    "warning": {"fg": "yellow"},
}

_COMMON_VARIABLES = frozenset({"HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TERM", "TMPDIR"})
_OPERANDS_SHOWN = 3


def print_preview(preview: Preview, *, err: bool = False) -> None:
    """Print a preview as wide as the terminal; without colours for a pipe or with NO_COLOR."""
    _print_lines(render_preview(preview, shutil.get_terminal_size().columns), err=err)


def print_blocks(blocks: Sequence[Block], *, err: bool = False) -> None:
    """Print blocks as `print_preview` does."""
    _print_lines(render_blocks(blocks, shutil.get_terminal_size().columns), err=err)


def style_preview(preview: Preview) -> list[str]:
    """Return the lines of a preview, as wide as the terminal, with colours."""
    return _style(render_preview(preview, shutil.get_terminal_size().columns), err=False)


def style_blocks(blocks: Sequence[Block]) -> list[str]:
    """Return the lines of blocks as `style_preview` does."""
    return _style(render_blocks(blocks, shutil.get_terminal_size().columns), err=False)


def _print_lines(lines: Sequence[Line], *, err: bool) -> None:
    for line in _style(lines, err=err):
        write(line, err=err, nl=True)


def _style(lines: Sequence[Line], *, err: bool) -> list[str]:
    return [
        "".join(paint(text, err=err, **_COLOURS.get(style, Look())) for text, style in line)
        for line in lines
    ]


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


def beyond_files(inspection: Mapping[str, Any] | None, preview: Preview) -> dict[str, Any]:
    """Return the inspection of a call without the files that have blocks: these have their digests."""
    found = dict(inspection or {})
    if any(isinstance(block, FileBlock) for block in preview.blocks):
        found["operands"] = {}
    return found


def describe_conditions(inspection: Mapping[str, Any] | None) -> str:
    """Return in one line what must be unchanged when the call runs; "" for nothing.

    Variables that every program has, and the layers of the sandbox, are left out.
    """
    found = inspection or {}
    parts = []
    if found.get("binary"):
        parts.append(f"runs {found['binary']} in {found.get('cwd', '')}")
    parts += (found.get("profile") or "").split("; ")[1:]
    if names := sorted(set(found.get("environment") or {}) - _COMMON_VARIABLES):
        parts.append(f"with {', '.join(names)} set")
    operands = found.get("operands") or {}
    for path, digest in list(operands.items())[:_OPERANDS_SHOWN]:
        parts.append(f"{path} as it is ({digest[:12]})")
    if len(operands) > _OPERANDS_SHOWN:
        parts.append(f"{len(operands) - _OPERANDS_SHOWN} more files as they are")
    return visible(", ".join(parts))
