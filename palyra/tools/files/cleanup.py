"""Cleanup of drafts and replaced files that a killed daemon left under spare names.

Owns: nothing.  Talks to: the workspaces, in a thread.  Never: removes a file that a running change
needs, because no change runs as long as OLD_S; a replaced file is also in its checkpoint.
Restart: permanent.
"""

import os
import re
import time
from collections.abc import Collection
from contextlib import suppress

import structlog
import trio

from palyra.core.ports import RunBlocking
from palyra.core.tool.spec import ToolFailure
from palyra.tools.files.walk import Found, WorkspaceWalk
from palyra.tools.files.workspace import Workspace

log = structlog.get_logger("palyra.files")
SPARE = re.compile(r"\.palyra-[0-9a-f]{16}\.tmp")  # see `changes`
OLD_S = 600.0  # sixty times the deadline of a file tool
FIRST_S = 30.0  # after the start of the daemon
AGAIN_S = 3_600.0


def sweep(workspace: Workspace, now_s: float) -> int:
    """Remove old spare files; return their number.  Blocks for seconds at most.

    The change time counts: what was swapped out kept the time of its content.  In a workspace that
    cannot be used there is nothing.
    """
    swept = 0
    with suppress(ToolFailure):
        for found in WorkspaceWalk(workspace).files():
            if SPARE.fullmatch(found.name) is not None:
                swept += _remove_old(found, now_s)
    return swept


def _remove_old(found: Found, now_s: float) -> bool:
    """Remove one file if it is old; True if it was removed."""
    with suppress(OSError):
        seen = os.stat(found.name, dir_fd=found.folder_fd, follow_symlinks=False)
        if now_s - seen.st_ctime > OLD_S:
            os.unlink(found.name, dir_fd=found.folder_fd)
            return True
    return False


async def keep_swept(
    workspaces: Collection[Workspace],
    run_blocking: RunBlocking,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Sweep soon after the start and every hour.  Cancellation: a sweep runs to its end."""
    task_status.started()
    await trio.sleep(FIRST_S)
    while True:
        swept = 0
        for workspace in workspaces:
            swept += await run_blocking(sweep, workspace, time.time())
        if swept:
            log.info("files that a crash had left were removed", count=swept)
        await trio.sleep(AGAIN_S)
