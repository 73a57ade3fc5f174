"""Completion in `palyra chat`: commands, and references with their cost."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.cli.chat.slash import COMMANDS, prompt_names
from palyra.cli.command.output import one_line
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palyra.cli.chat.session import Conversation
    from palyra.client import Client
    from palyra.core.tool.mcp import McpPrompt

MAX_OFFERED = 50  # commands or references of MCP servers
MAX_LISTED = 20  # files below one folder that are offered


def complete_word(word: str, workspace: Path | None, offers: Sequence[str] = ()) -> list[str]:
    """Return the commands, files or offers that continue a word; hidden files only if asked for.

    `offers` are prompts and resources of MCP servers.
    """
    if word.startswith(("/", "@mcp:", "@prompt:")):
        known = [*(f"/{name}" for name in COMMANDS), *offers]
        return [each for each in known if each.startswith(word)][:MAX_OFFERED]
    kind, colon, path = word.partition(":")
    if not colon:
        return [
            each
            for each in ("@file:", "@folder:", "@diff", "@staged", "@mcp:", "@prompt:")
            if each.startswith(word)
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
    # A preview reads what it prices: no key press calls a server elsewhere.
    whole = [
        name
        for name in names
        if not name.endswith(("/", ":")) and not name.startswith(("@mcp:", "@prompt:"))
    ]
    if not whole:
        return [""] * len(names)
    with suppress(PalyraError):
        found = await conversation.client.preview_references(
            " ".join(whole) or "-",
            agent=conversation.agent,
            session_id=conversation.session_id,
            workspace=conversation.workspace if conversation.session_id is None else None,
        )
        for each in found.references:
            text = one_line(each.error, 40) if each.error else f"{each.tokens} tokens"
            costs[each.reference if each.reference in costs else f"@{each.reference}"] = text
    return [costs[name] for name in names]


async def list_prompts(client: Client) -> Sequence[McpPrompt]:
    """Return the prompts of all MCP servers; none if the daemon does not answer that."""
    with suppress(PalyraError):
        return (await client.list_mcp_prompts()).prompts
    return ()


async def find_offers(client: Client, word: str) -> list[str]:
    """Return the prompts and resources of MCP servers that may continue a word."""
    if word.startswith("/"):
        return [f"/{name}" for name in prompt_names(await list_prompts(client))]
    if word.startswith("@prompt:"):
        return [f"@prompt:{each.server}/{each.name}" for each in await list_prompts(client)]
    if not word.startswith("@mcp:"):
        return []
    with suppress(PalyraError):
        server, slash, _ = word.removeprefix("@mcp:").partition("/")
        if slash:
            found = await client.list_mcp_resources(server)
            return [f"@mcp:{server}/{each.uri}" for each in found.resources if not each.is_template]
        servers = (await client.list_mcp_servers()).servers
        return [f"@mcp:{each.name}/" for each in servers if each.resources]
    return []


async def find_workspace(client: Client, name: str | None) -> Path | None:
    """Return the folder of a workspace, None for the default one's; None if it is not known.

    It may be on another machine.
    """
    with suppress(PalyraError):
        found = {each.name: each.path for each in await client.list_workspaces()}
        return Path(found[name or DEFAULT_WORKSPACE])
    return None
