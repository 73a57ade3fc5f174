"""Completion in `palyra chat`: commands, and references with their cost."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.cli.output import one_line
from palyra.cli.slash import COMMANDS
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palyra.cli.chat_session import Conversation
    from palyra.client import Client

MAX_LISTED = 20  # files below one folder that are offered


def complete_word(word: str, workspace: Path | None) -> list[str]:
    """Return the commands or files that continue a word; hidden files only if asked for."""
    if word.startswith("/"):
        return [f"/{name}" for name in COMMANDS if name.startswith(word[1:])]
    kind, colon, path = word.partition(":")
    if not colon:
        return [
            each for each in ("@file:", "@folder:", "@diff", "@staged") if each.startswith(word)
        ]
    if kind not in {"@file", "@folder"} or workspace is None:
        return []
    folder, _, start = path.rpartition("/")
    if Path(folder).is_absolute() or ".." in folder.split("/"):
        return []
    return [
        f"{kind}:{name}" for name in _names(workspace, folder, start, is_folder=kind == "@folder")
    ]


def _names(workspace: Path, folder: str, start: str, *, is_folder: bool) -> list[str]:
    found: list[str] = []
    with suppress(OSError), os.scandir(workspace / folder) as entries:
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            is_odd = not entry.name.isprintable() or " " in entry.name
            if is_odd or not entry.name.startswith(start) or (is_folder and not is_directory):
                continue
            if entry.name.startswith(".") and not start:
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            found.append(f"{path}/" if is_directory else path)
    return sorted(found)[:MAX_LISTED]


async def price_references(conversation: Conversation, names: Sequence[str]) -> list[str]:
    """Return the cost of each reference in words; "" where it is not known."""
    costs = dict.fromkeys(names, "")
    whole = [name for name in names if not name.endswith(("/", ":"))]
    with suppress(PalyraError):
        found = await conversation.client.preview_references(
            " ".join(whole) or "-", agent=conversation.agent, session_id=conversation.session_id
        )
        for each in found.references:
            text = one_line(each.error, 40) if each.error else f"{each.tokens} tokens"
            costs[each.reference if each.reference in costs else f"@{each.reference}"] = text
    return [costs[name] for name in names]


async def find_workspace(client: Client) -> Path | None:
    """Return the path of the daemon's workspace, which may be on another machine; None if not known."""
    with suppress(PalyraError):
        return Path((await client.list_documents()).workspace)
    return None
