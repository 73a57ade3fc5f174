"""The wait of a queued run, described to the person who follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from palyra.cli.command.errors import WAITING, CommandFailed
from palyra.cli.command.output import say

if TYPE_CHECKING:
    from palyra.client import Client, RunView
    from palyra.core.session.commands import QueuedBehind

LOOK_S = 1.0  # between looks at a queue that needs a person


def describe_wait(view: RunView) -> tuple[str, str | None] | None:
    """Return what a run waits for, and the command that ends the wait; None for a run that works."""
    if view.phase == "awaiting_approval":
        return f"{view.run_id} waits for a person", f"palyra approvals list --run {view.run_id}"
    if view.behind is None:
        return None
    return _describe_queue(view.behind, view.session_id)


def _describe_queue(behind: QueuedBehind, session_id: str) -> tuple[str, str | None]:
    if behind.run_id is None:
        if behind.paused:
            return "queued: the queue is paused", f"palyra sessions queue {session_id} --resume"
        return "queued: it collects further messages", None
    if behind.approval_id is None:
        return f"queued behind {behind.run_id}", f"palyra runs show {behind.run_id}"
    said = f"queued behind {behind.run_id}, which waits for a person"
    return said, f"palyra approvals show {behind.approval_id}"


async def follow_queue(client: Client, run_id: str, *, waits: bool, quiet: bool = False) -> None:
    """Say what a queued run waits for, until it has left the queue.

    Raises CommandFailed with WAITING when the queue needs a person, unless `waits`.
    Cancellation: the run is where it was.
    """
    last = None
    view = await client.get_run(run_id)
    while view.behind is not None:
        said = describe_wait(view)
        if view.behind.needs_person and not waits:
            raise waiting(view)
        if said is not None and said != last and not quiet:
            last = said
            say(f"● {': '.join(part for part in said if part)}", err=True, dim=True)
        if view.behind.needs_person:
            await trio.sleep(LOOK_S)
            view = await client.get_run(run_id)
        else:
            view = await client.wait_run(run_id, until="person")


def waiting(view: RunView) -> CommandFailed:
    """Return the failure of a command that does not wait for a person."""
    said, remedy = describe_wait(view) or (f"{view.run_id} waits", None)
    action = f"`{remedy}`, then `palyra runs wait {view.run_id}`" if remedy else None
    return CommandFailed(said, action, code=WAITING)
