"""Forks: from a committed tape to the command that starts the run which goes on from it.

Owns: nothing.  Talks to: the artifacts, in threads.  Never: hands on what was not inherited.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import structlog

from palyra.core.branch import Branch
from palyra.core.commands import StartRun
from palyra.core.fork import Point, find_point, make_branch
from palyra.core.ports import Artifacts, JournalStore
from palyra.core.tape import TapeRow
from palyra.errors import Unavailable

if TYPE_CHECKING:
    from palyra.actors.office import Office

log = structlog.get_logger("palyra.run")

PAGE_ROWS = 1_000


def fork_command(store: JournalStore, run_id: str, at_seq: int, text: str | None) -> StartRun:
    """The fork as a message to a new session; agent, model and limits are those of the run.

    Reads the tape up to `at_seq`, so it belongs in a thread.  Raises InvalidParams.
    """
    point = find_point(_read_rows(store, run_id, at_seq), at_seq)
    chained = store.read_chain(run_id, after_seq=point.seq - 1, limit=1)
    accepted = point.run.accepted
    return StartRun(
        text=text or "",
        agent=accepted.agent,
        model=point.run.model,
        model_choice="pinned" if accepted.model_choice == "pinned" else "preferred",
        approval_mode=accepted.approval_mode,
        json_mode=accepted.json_mode,
        budget=accepted.budget,
        origin=accepted.origin,
        branch=make_branch(point, chained[0].hash, text, tuple(_artifacts(store, point))),
    )


def _artifacts(store: JournalStore, point: Point | None) -> Iterator[str]:
    """Those of the point, and of the runs that its run goes on from, each up to its own place."""
    while point is not None:
        yield from point.artifacts
        run_id, at_seq = point.inherited or ("", -1)
        point = find_point(_read_rows(store, run_id, at_seq), at_seq) if run_id else None


async def share_artifacts(office: "Office", session_id: str, branch: Branch | None) -> None:
    """The whole outputs of what is inherited are the new session's as well, durably.

    One that is not kept any more, or finds no room, is left out: the conversation has its excerpt.
    Cancellation: not heard.
    """
    if branch is not None and branch.artifacts:
        await office.run_blocking(_share, office.artifacts, session_id, branch)


def _share(artifacts: Artifacts, session_id: str, branch: Branch) -> None:
    for name in dict.fromkeys(branch.artifacts):
        try:
            found = artifacts.find(branch.session_id, name)
            if found is not None:
                artifact, data = found
                artifacts.put(msgspec.structs.replace(artifact, session_id=session_id), data)
        except Unavailable as error:
            log.warning("an output was not inherited", artifact=name, error=error.message)


def _read_rows(store: JournalStore, run_id: str, at_seq: int) -> Iterator[TapeRow]:
    after_seq: int | None = -1
    while after_seq is not None and after_seq < at_seq:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        yield from page.rows
        after_seq = page.next_after_seq
