"""Handing a message to its session and, when it is a word to the active run, to that run.

A word that the active run no longer takes waits its turn instead: nothing is lost, and because a
run says no only when nothing of the word is on its tape, nothing is there twice.
"""

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from palyra.actors.approvals import receipt_for
from palyra.actors.fork import share_artifacts
from palyra.actors.journal import Ticket
from palyra.actors.office import Office, look_for_secrets
from palyra.actors.pictures import keep_pictures
from palyra.actors.run_handle import RunHandle
from palyra.actors.session_handle import Begun, Divert
from palyra.actors.sessions import ANSWER_S, Sessions
from palyra.core.access import Caller
from palyra.core.commands import ReceiptKey, Started, StartRun
from palyra.core.records import Receipt
from palyra.core.run_steps import Steer
from palyra.errors import ActorGone, IllegalState


async def submit(
    office: Office,
    sessions: Sessions,
    caller: Caller,
    command: StartRun,
    receipt: ReceiptKey | None,
) -> Started:
    """Where the message went, once it is committed there.

    Raises what a session refuses with, TooSlow, and what `Ticket.wait` raises.
    Cancellation: the message may have been accepted; an idempotency key tells.
    """
    await look_for_secrets(office, msgspec.json.encode(command.text))
    placed = await _place(office, sessions, caller, command, receipt)
    if isinstance(placed, Divert):
        try:
            placed = await _steer(office, placed.run, caller, command, receipt)
        except (IllegalState, ActorGone):  # it is ending, or crashed before it took the word
            # By the name it came with: a session whose first commit failed has no record.
            waits = msgspec.structs.replace(command, queue_mode="followup")
            placed = await _place(office, sessions, caller, waits, receipt)
    assert isinstance(placed, Begun)  # noqa: S101 - a followup is no word to anybody
    await _settle(placed.ticket)
    return placed.started


async def _place(
    office: Office,
    sessions: Sessions,
    caller: Caller,
    command: StartRun,
    receipt: ReceiptKey | None,
) -> Begun | Divert:
    """Hand the message to its session; a session that just ended is made again."""
    while True:
        session = await sessions.reach(caller, command)
        try:
            kept = await keep_pictures(office, session.session_id, command)
            await share_artifacts(office, session.session_id, command.branch)
            return await session.submit(kept, caller, receipt, timeout_s=ANSWER_S)
        except ActorGone:
            if office.directory.sessions.get(session.session_id) is session:
                raise


async def _steer(
    office: Office,
    run: RunHandle,
    caller: Caller,
    command: StartRun,
    receipt: ReceiptKey | None,
) -> Begun:
    """The word on the tape of the active run.  Raises IllegalState, ActorGone: it is not there."""

    def steered(seq: int) -> Started:
        return Started(
            run_id=run.run_id,
            session_id=run.run.accepted.session_id,
            seq=seq,
            disposition="steered",
        )

    def keep(key: ReceiptKey, seq: int) -> Receipt:
        return receipt_for(key, steered(seq), office.now_ms())

    kept = await keep_pictures(office, run.run.accepted.session_id, command)
    word = Steer(text=command.text, by=caller.principal, attachments=kept.attachments)
    make = partial(keep, receipt) if receipt is not None else None
    taken = await run.take(word, receipt=make, timeout_s=ANSWER_S)
    return Begun(steered(taken.seq), taken.ticket)


async def tell(
    office: Office,
    run: RunHandle,
    word: Steer,
    receipt: Callable[[int], Receipt] | None,
) -> int:
    """The committed seq of a word to an open run, waiting or under way.

    Raises what `RunHandle.take` and `Ticket.wait` raise.
    Cancellation: the word may still take effect.
    """
    session = office.directory.sessions.get(run.run.accepted.session_id)
    if session is not None and run in session.waiting:
        taken = await session.tell(run.run_id, word, receipt, timeout_s=ANSWER_S)
        if taken is not None:
            await _settle(taken.ticket)
            return taken.seq
    taken = await run.take(word, receipt=receipt, timeout_s=ANSWER_S)
    await _settle(taken.ticket)
    return taken.seq


async def _settle(ticket: Ticket) -> None:
    """As `Ticket.wait`, but done or refused, never unknown: a cancel waits for the disk, too."""
    with trio.CancelScope(shield=True):
        await ticket.wait()
