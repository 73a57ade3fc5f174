"""A process that changes files and dies on the way."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from palyra.core.tool.spec import ToolCall
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.files.retention import FolderBounds
from palyra.tools.files import changes
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.write import write_tools
from palyra.wiring.host import new_id

DEATH = 9


def change_and_die(root: Path, kept: Path, left: int, patch: str) -> None:
    """Apply the patch; the process ends silently at its step number `left`, or prints "done"."""

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(DEATH)
            return function(*arguments, **options)

        return act

    for module, name in ((changes, "swap"), (changes, "move"), (os, "fsync"), (os, "unlink")):
        setattr(module, name, deadly(getattr(module, name)))
    workspace = Workspace(root)
    store = FileCheckpoints(kept, FolderBounds(1 << 24, 1 << 40, lambda: 0))
    keep = Checkpoints(workspace, store, lambda: 0, new_id).keep_for
    call = ToolCall(
        call_id="c",
        run_id="r",
        session_id="s",
        principal="p",
        tool="apply_patch",
        tool_version="1",
        arguments={"patch": patch},
    )
    tool: Any = write_tools(workspace, keep)[1]
    tool.run(call)
    print("done")  # noqa: T201 - to the test
