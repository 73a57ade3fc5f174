"""The documents service on real files, with a store of the test's choice."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.journal.changes import Change
from palyra.core.ports import Journal, JournalStore
from palyra.core.redaction.redactor import Redactor
from palyra.services.memory.documents import Documents, KeepTyped
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.files.retention import FolderBounds
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.documents import WorkspaceDocuments
from palyra.tools.files.workspace import Workspace
from palyra.wiring.host import new_id
from tests.store.kit import sqlite_journal

T = TypeVar("T")
SECRET = "correct-horse-battery-staple"
OPERATOR = Caller(principal="ann", role="operator", token_id="tok_1")
CLIENT = Caller(principal="bob", role="client", token_id="tok_2")


@cache
def redactor() -> Redactor:
    """Its rules take longer to compile than most tests to run."""
    return Redactor([SECRET])


class DirectJournal:
    """A store without its actor; `before_commit` is called first."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self.before_commit: Callable[[Change], None] = lambda _: None

    async def commit(self, change: Change) -> None:
        await trio.lowlevel.checkpoint()
        self.before_commit(change)
        (refusal,) = self.store.commit([change])
        if refusal is not None:
            raise refusal

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        await trio.lowlevel.checkpoint()
        return query(self.store)


class Hub:
    """Keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[msgspec.Struct] = []

    def notify(self, method: str, params: msgspec.Struct, *, principal: str, scope: str) -> None:
        assert (method, scope, bool(principal)) == ("document.changed", "documents:read", True)
        self.notices.append(params)


async def inline(fn: Callable[..., T], /, *args: object) -> T:
    await trio.lowlevel.checkpoint()
    return fn(*args)


class Kit:
    """A workspace, its checkpoints and the service."""

    def __init__(
        self,
        folder: Path,
        store: JournalStore,
        *,
        writes: bool = True,
        keep_typed: KeepTyped | None = None,
    ) -> None:
        self.root = folder / "work"
        self.root.mkdir(exist_ok=True)
        self.workspace = Workspace(self.root)
        kept = FileCheckpoints(folder / "kept", FolderBounds(1 << 28, 1 << 50, lambda: 0))
        self.checkpoints = Checkpoints(self.workspace, kept, lambda: 0, new_id)
        self.files = WorkspaceDocuments(self.workspace, self.checkpoints)
        self.journal = DirectJournal(store)
        self.hub = Hub()
        self.clock_ms = 5
        self.documents = Documents(
            cast("Journal", self.journal), self.files, cast("Any", self.hub), redactor(),
            run_blocking=inline, now_ms=lambda: self.clock_ms, new_id=new_id, writes=writes,
            keep_typed=keep_typed,
        )  # fmt: skip

    @property
    def memory(self) -> Path:
        """The file of MEMORY.md."""
        return self.root / "MEMORY.md"

    async def apply(self, **entries: str) -> Any:
        return await self.documents.apply("MEMORY.md", "facts", entries, principal="ann")


def apply_and_die(folder: Path, left: int, entries: dict[str, str]) -> None:
    """Apply in this process, and end it at the n-th instant at which something becomes durable."""
    import os  # noqa: PLC0415 - of the child process only

    from palyra.tools.files import changes  # noqa: PLC0415

    def deadly(function: Callable[..., T]) -> Callable[..., T]:
        def act(*arguments: object, **options: object) -> T:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), 9)
            return function(*arguments, **options)

        return act

    for name in ("swap", "move"):
        setattr(changes, name, deadly(getattr(changes, name)))
    os.fsync, os.unlink = deadly(os.fsync), deadly(os.unlink)
    store = sqlite_journal(folder)
    store.open()
    kit = Kit(folder, store)
    kit.journal.before_commit = deadly(lambda _: None)
    trio.run(lambda: kit.apply(**entries))
    print("done")  # noqa: T201 - to the test
