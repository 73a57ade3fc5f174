"""Resuming a run from its tape, after a restart of the daemon or of the run's actor alone."""

import trio

from palyra.actors.journal import JournalHandle
from palyra.actors.office import Office
from palyra.actors.recovered import Recovered, read_run
from palyra.actors.run import run_actor
from palyra.actors.run_handle import RunHandle
from palyra.core.journal import Change
from palyra.core.run_steps import Begin, Cancel, Resume
from palyra.errors import Unavailable

RETRY_S = 0.25  # between looks whether the journal takes writes again


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
    return journal.has_room  # what is nothing fits on a full disk


def first_input(handle: RunHandle, office: Office) -> Begin | Resume | Cancel:
    """What a run without an actor hears first: its end may be decided, or it may have begun."""
    if handle.ending is not None:
        return handle.ending
    if handle.run.state == "accepted":
        return Begin(instance_id=office.instance_id)
    return Resume(is_put_off=handle.is_put_off)
