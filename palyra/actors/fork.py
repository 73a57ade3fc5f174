"""Forks: from a committed tape to the command that starts the run which goes on from it."""

from collections.abc import Iterator

from palyra.core.commands import StartRun
from palyra.core.fork import find_point, make_branch
from palyra.core.ports import JournalStore
from palyra.core.tape import TapeRow

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
        branch=make_branch(point, chained[0].hash, text),
    )


def _read_rows(store: JournalStore, run_id: str, at_seq: int) -> Iterator[TapeRow]:
    after_seq: int | None = -1
    while after_seq is not None and after_seq < at_seq:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        yield from page.rows
        after_seq = page.next_after_seq
