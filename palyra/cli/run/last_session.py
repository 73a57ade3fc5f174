"""The session that `--continue` continues: that of the caller's last conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palyra.cli.command.errors import USAGE, WAITING, CommandFailed
from palyra.cli.run.workspaces import find_here
from palyra.core.tape.events import RunAccepted

if TYPE_CHECKING:
    from palyra.cli.command.talk import Options
    from palyra.client import Client
    from palyra.core.journal.records import RunState, SessionRecord

PAGE_ROWS = 100


async def get_last_session(client: Client, options: Options) -> SessionRecord:
    """Return the session of the caller's newest interactive run.

    Runs of tasks, delegated runs, conversations in channels and archived sessions do not count; in a
    workspace only its own sessions do.  Raises CommandFailed if there is none among the newest
    PAGE_ROWS runs, or if it waits for a person: a new message would wait behind that question.
    """
    here = await find_here(client, options)
    page = await client.list_runs(principal=client.welcome.principal, limit=PAGE_ROWS)
    seen: set[str] = set()
    for run in page.runs:
        if run.depth or run.session_id in seen or run.purged_ms is not None:
            continue
        first = (await client.read_tape(run.run_id, limit=1)).events
        accepted = first[0].event if first else None
        if not isinstance(accepted, RunAccepted) or accepted.origin != "interactive":
            continue
        seen.add(run.session_id)
        session = await client.get_session(run.session_id)
        is_elsewhere = here is not None and session.workspace != here
        if session.archived_ms is None and session.channel is None and not is_elsewhere:
            asking = await _find_asking(client, session.session_id)
            if asking is not None:
                raise CommandFailed(
                    f"the last conversation waits for an answer: {asking}",
                    "`palyra approvals list` shows the question, `palyra runs cancel` ends the run",
                    code=WAITING,
                )
            return session
    raise CommandFailed(
        "there is no conversation to continue",
        "start one without --continue, or name one with --session",
        code=USAGE,
    )


async def _find_asking(client: Client, session_id: str) -> str | None:
    """Return the open run of the session that waits for a person, whichever run is the newest."""
    states: tuple[RunState, ...] = ("accepted", "in_progress")
    runs = (await client.list_runs(session_id=session_id, states=states, limit=PAGE_ROWS)).runs
    return next((run.run_id for run in runs if run.phase == "awaiting_approval"), None)
