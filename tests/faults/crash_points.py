"""Named places where a daemon under test kills itself: between any two of its effects.

Nothing of this is in the daemon.  The process that is to serve replaces a method by one that ends
in SIGKILL at the n-th call, before or after the real one, and only then begins to serve.
"""

import importlib
import os
import signal
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Literal, NamedTuple

from msgspec import Struct


class Place(NamedTuple):
    """A method, or a function of a module (without an owner); die before or after it."""

    module: str
    owner: str
    name: str
    when: Literal["before", "after"]
    is_async: bool = False
    most: int = 30  # the n-th call, at most


STORE = ("palyra.store.sqlite.journal", "SqliteJournal")
ROOTS = ("palyra.store.journal.signed_roots", "RootsFile")
TOOLS = ("palyra.tools.toolbox", "Toolbox")
MODEL = ("palyra.models.scripted.model", "Scripted")
HUB = ("palyra.actors.hub", "Hub")
SESSIONS = ("palyra.actors.session.sessions", "Sessions")
FILES = ("palyra.tools.files.checkpoints", "Checkpoints")
ARTIFACTS = ("palyra.store.files.artifacts", "FileArtifacts")
OUTBOX = ("palyra.actors.journal.actor", "PendingCommit")

POINTS: dict[str, Place] = {
    "on the wire, not on tape": Place(*HUB, "publish", "after", most=200),
    "before a commit": Place(*STORE, "commit", "before"),
    "committed, nobody told": Place(*STORE, "commit", "after"),
    "told that it is committed": Place(*HUB, "committed", "after"),
    "one pending commit settled": Place(*OUTBOX, "settle", "after", most=200),
    "before a model call": Place(*MODEL, "stream", "before", is_async=True, most=40),
    "after a model call": Place(*MODEL, "stream", "after", is_async=True, most=40),
    "before a tool": Place(*TOOLS, "execute", "before", is_async=True, most=20),
    "after a tool": Place(*TOOLS, "execute", "after", is_async=True, most=20),
    "before a root": Place(*ROOTS, "append", "before", most=2),
    "after a root": Place(*ROOTS, "append", "after", most=2),
    "journal open, nothing read": Place(*STORE, "open", "after", most=1),
    "while runs are adopted": Place(*SESSIONS, "adopt", "before", most=20),
    "one more run adopted": Place(*SESSIONS, "adopt", "after", most=20),
    "looking for open runs": Place(*STORE, "list_open_runs", "after", most=1),
}

# Places that a storm of ordinary runs does not reach.
PURGE_POINTS: dict[str, Place] = {
    "before artifacts go": Place(*ARTIFACTS, "drop_session", "before", most=1),
    "artifacts gone, checkpoints not": Place(*FILES, "drop_session", "before", most=1),
    "files gone, no end on record": Place(*FILES, "drop_session", "after", most=1),
}
RESTORE_POINTS: dict[str, Place] = {
    "before files are put back": Place(*FILES, "rewind", "before", most=2),
    "files put back, no branch": Place(*FILES, "rewind", "after", most=2),
}

MEMORIES = ("palyra.services.memory.items", "Memories")
INDEX = ("palyra.store.vectors.search", "IndexedMemory")
COMPACTOR = ("palyra.services.context.compaction", "SessionCompactor")
MARKS = ("palyra.operations.checkpoints", "Checkpointer")
GATEWAY = ("palyra.operations.runs", "Gateway")
SNAPSHOTS = ("palyra.store.vectors.index", "")
DOCUMENTS = ("palyra.services.memory.documents", "Documents")

# Places of the memory, of compactions, checkpoints and documents.
MEMORY_POINTS: dict[str, Place] = {
    "before a change of the memory": Place(*MEMORIES, "_commit", "before", is_async=True, most=8),
    "a change of the memory answered": Place(*MEMORIES, "_commit", "after", is_async=True, most=8),
    "vectors made, not stored": Place(*INDEX, "embed_next", "after", most=6),
    "before vectors are in the index": Place(*INDEX, "refresh", "before", most=4),
    "before the index is saved": Place(*INDEX, "save", "before", most=4),
    "before the file of the index": Place(*SNAPSHOTS, "write_snapshot", "before", most=4),
    "the file of the index written": Place(*SNAPSHOTS, "write_snapshot", "after", most=4),
    "before a compaction": Place(*COMPACTOR, "summarise", "before", is_async=True, most=2),
    "a compaction made, not recorded": Place(
        *COMPACTOR, "summarise", "after", is_async=True, most=2
    ),
    "before a mark": Place(*MARKS, "create", "before", is_async=True, most=2),
    "a mark made, not answered": Place(*MARKS, "create", "after", is_async=True, most=2),
    "before a restore": Place(*MARKS, "restore", "before", is_async=True, most=2),
    "a branch read, not started": Place(*GATEWAY, "branch", "after", is_async=True, most=2),
    "a restore made, not answered": Place(*MARKS, "restore", "after", is_async=True, most=2),
    "before a document is written": Place(*DOCUMENTS, "_write", "before", is_async=True, most=2),
    "a document written, not recorded": Place(*DOCUMENTS, "_write", "after", is_async=True, most=2),
}


class CrashAt(Struct, frozen=True):
    """A crash point and the number of the visit at which to crash."""

    point: str
    count: int


def arm(crash: CrashAt) -> None:
    """Make this process kill itself there."""
    place = (POINTS | RESTORE_POINTS | MEMORY_POINTS | PURGE_POINTS)[crash.point]
    module = importlib.import_module(place.module)
    owner = getattr(module, place.owner) if place.owner else module
    real = getattr(owner, place.name)
    setattr(owner, place.name, _wrap(real, place, crash.count))


def _wrap(real: Callable[..., Any], place: Place, nth: int) -> Callable[..., Any]:
    left = nth

    def pass_by(when: str) -> None:
        nonlocal left
        left -= when == place.when
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    @wraps(real)
    def blocking(*args: Any, **named: Any) -> Any:
        pass_by("before")
        result = real(*args, **named)
        pass_by("after")
        return result

    @wraps(real)
    async def waiting(*args: Any, **named: Any) -> Any:
        pass_by("before")
        made: Awaitable[Any] = real(*args, **named)
        result = await made
        pass_by("after")
        return result

    return waiting if place.is_async else blocking
