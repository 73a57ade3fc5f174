"""Bounds of the references of one message, and the texts of runs and sessions that they name."""

from collections.abc import Sequence

import msgspec

from palyra.core.model.messages import AssistantMessage, Message, UserMessage
from palyra.core.model.sources import ContextSource
from palyra.core.text.references import Reference, ReferenceKind, parse_references

MAX_REFERENCES = 8  # of one message
MAX_NAMED = 24  # references over the bound that are refused by name
TOTAL_CHARS = 24_000  # of all texts of one message
MAX_CHARS: dict[ReferenceKind, int] = {
    "file": 8_000,
    "folder": 12_000,
    "diff": 10_000,
    "staged": 10_000,
    "url": 8_000,
    "memory": 8_000,
    "run": 8_000,
    "session": 8_000,
    "mcp": 8_000,
    "prompt": 8_000,
}
FOLDER_FILES = 6
MEMORY_ITEMS = 4
# Files with instructions of a project.  Of one row a folder's first one counts: `CLAUDE.md` is read
# where there is no `AGENTS.md`, because many repositories have only one of them.
PROJECT_FILES = (("AGENTS.md", "CLAUDE.md"), ("PALYRA.md",))
PROJECT_CHARS = 12_000  # of one project file
PROJECT_TOTAL_CHARS = 24_000  # of all project files
RECALLED_CHARS = 24_000  # of all recalled memories
RECALLED_ITEMS = 64
NAME_CHARS = 200  # of a reference in a prompt and on the tape
ERROR_CHARS = 500


def list_references(text: str) -> tuple[list[Reference], list[ContextSource]]:
    """Return the references to resolve, each once, and the refusals of those over the bound."""
    found: dict[object, Reference] = {}
    for each in parse_references(text):
        found.setdefault(each.key, each)
    wanted, over = list(found.values())[:MAX_REFERENCES], list(found.values())[MAX_REFERENCES:]
    error = f"refused: a message may have {MAX_REFERENCES} references"
    refused = [
        ContextSource(name=each.name[:NAME_CHARS], kind=each.kind, error=error)
        for each in over[:MAX_NAMED]
    ]
    return wanted, refused


def cut_text(source: ContextSource, limit: int) -> ContextSource:
    """Return the source with at most `limit` characters of text and a note about the rest."""
    size = len(source.text)
    if size <= limit:
        return source
    note = f"cut: the first {limit} of {size} characters"
    if source.note:
        note = f"{source.note}; {note}"
    return msgspec.structs.replace(source, text=source.text[:limit], note=note)


def cut_all(sources: Sequence[ContextSource], total: int = TOTAL_CHARS) -> list[ContextSource]:
    """Cut the sources of one event, in their order, to their common bound.

    Names and errors are bounded as well, so that the event fits the tape whatever they hold.
    """
    left, fitting = total, []
    for given in sources:
        source = msgspec.structs.replace(
            given, name=given.name[:NAME_CHARS], error=given.error[:ERROR_CHARS]
        )
        if source.text and not left:
            error = f"left out: {total} characters are used by the references before it"
            source = ContextSource(name=source.name, kind=source.kind, error=error)
        source = cut_text(source, left) if source.text else source
        left -= len(source.text)
        fitting.append(source)
    return fitting


def find_folders(references: Sequence[Reference]) -> tuple[str, ...]:
    """Return the folders of the referenced paths, for the project files that are nearest to them."""
    folders = [
        each.target if each.kind == "folder" else each.target.rpartition("/")[0]
        for each in references
        if each.kind in {"file", "folder"}
    ]
    return tuple(dict.fromkeys(folder.strip("/") for folder in folders))


def nearest_first(folder: str) -> list[str]:
    """Return the folder and all above it, up to the root of the workspace."""
    parts = [part for part in folder.split("/") if part not in {"", "."}]
    return ["/".join(parts[:depth]) for depth in range(len(parts), -1, -1)]


def render_talk(messages: Sequence[Message]) -> str:
    """Return what the user and the model wrote, without tool outputs."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, UserMessage) and message.text:
            lines.append(f"user: {message.text}")
        elif isinstance(message, AssistantMessage) and message.text:
            lines.append(f"assistant: {message.text}")
    return "\n\n".join(lines)
