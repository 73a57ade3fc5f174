"""Resuming a run from its tape, after a restart of the daemon or of the run's actor alone."""

import msgspec
import trio

from palyra.actors.journal import JournalHandle
from palyra.actors.office import Office
from palyra.actors.run import run_actor
from palyra.actors.run_handle import RunHandle
from palyra.core.fold import fold
from palyra.core.journal import Change
from palyra.core.ports import JournalStore
from palyra.core.records import ApprovalRecord
from palyra.core.run_state import Run
from palyra.core.run_steps import Begin, Cancel, Resume
from palyra.errors import InvariantBroken, Unavailable

PAGE_ROWS = 1_000
RETRY_S = 0.25  # between looks whether the journal takes writes again


class Recovered(msgspec.Struct, frozen=True):
    """A run as its tape tells it."""

    run: Run
    prompts: tuple[ApprovalRecord, ...]  # the approvals that are still open
    approved: tuple[ApprovalRecord, ...] = ()  # those that calls may still start on
    last_ms: int = 0  # when its last event happened


def read_run(store: JournalStore, run_id: str) -> Recovered | None:
    """Fold the committed tape of a run, None when it has none; blocks.

    Raises InvariantBroken for a tape that cannot be followed.
    """
    rows = []
    after_seq: int | None = -1
    while after_seq is not None:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        rows.extend(page.rows)
        after_seq = page.next_after_seq
    if not rows:
        return None
    if rows[-1].seq != len(rows) - 1:
        raise InvariantBroken(f"of the {rows[-1].seq + 1} events of {run_id} {len(rows)} are there")
    try:
        run = fold(run_id, [(row.kind, row.at_ms, row.data) for row in rows])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise InvariantBroken(f"the tape of {run_id} cannot be read: {error}") from error
    return Recovered(run, *_read_approvals(store, run), rows[-1].at_ms)


_Approvals = tuple[ApprovalRecord, ...]


def _read_approvals(store: JournalStore, run: Run) -> tuple[_Approvals, _Approvals]:
    """The questions of the open turn that wait for an answer, and those that may be used."""
    if not any(call.approval_id for call in run.calls):
        return (), ()
    found = store.list_approvals(
        principal=None, run_id=run.run_id, pending_only=False, limit=PAGE_ROWS
    )
    pending = tuple(asked for asked in found if asked.state == "pending")
    return pending, tuple(asked for asked in found if asked.is_open)


async def find_run(journal: JournalHandle, run_id: str) -> Recovered | None:
    """See `read_run`, in a reader's thread."""
    return await journal.read(lambda store: read_run(store, run_id))


async def resume_run(
    handle: RunHandle,
    office: Office,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """A lost run's next incarnation: what the tape says, not what its last life believed.

    Waits until what that life appended is written or refused, and the journal takes writes again.
    Cancellation: as for the run itself.
    """
    await trio.sleep(RETRY_S * handle.lost)
    while not await _is_through(office.journal):  # noqa: ASYNC110 - the journal tells nobody
        await trio.sleep(RETRY_S)
    recovered = await find_run(office.journal, handle.run_id)
    if recovered is None:
        task_status.started()
        handle.is_void = True
        return
    handle.run = recovered.run
    handle.prompts = {prompt.approval_id: prompt for prompt in recovered.prompts}
    handle.approved = {asked.approval_id: asked for asked in recovered.approved}
    if recovered.run.is_terminal:  # committed after all, and nobody was there to hear of it
        task_status.started()
        handle.is_settled = True
        return
    await run_actor(handle, office, first_input(handle, office), task_status=task_status)


async def _is_through(journal: JournalHandle) -> bool:
    """Whether everything appended so far is settled and the journal takes writes."""
    try:
        await journal.commit(Change())
    except Unavailable:
        return False
    return journal.is_writable  # what is nothing fits on a full disk


def first_input(handle: RunHandle, office: Office) -> Begin | Resume | Cancel:
    """What a run without an actor hears first: its end may be decided, or it may have begun."""
    if handle.ending is not None:
        return handle.ending
    if handle.run.state == "accepted":
        return Begin(instance_id=office.instance_id)
    return Resume()
