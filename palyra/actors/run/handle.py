"""A run's handle and what its actor hears: what everybody else may know of `actors.run`.

Owned by: the directory and the run's session.  The state in it is written by the run's actor only.
"""

from collections.abc import Callable, Sequence

import msgspec
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.reply import Reply
from palyra.core.journal.records import ApprovalRecord, GrantRecord, IdempotencyRecord
from palyra.core.run.inputs import Cancel, Input
from palyra.core.run.state import Run
from palyra.errors import Overloaded
from palyra.services.budgets import Reservation

INBOX_CAPACITY = 256  # a run hears its own few children and a person now and then

# --- messages ------------------------------------------------------------------------------------


class AcceptedInput(msgspec.Struct, frozen=True):
    """An input on its way to the tape: the seq of its own event and the ticket of its commit."""

    seq: int
    ticket: PendingCommit


class RunMessage(msgspec.Struct, frozen=True):
    """An input somebody waits for; without an answer nothing of it is on the tape."""

    input: Input
    reply: Reply[AcceptedInput]
    receipt: Callable[[int], IdempotencyRecord] | None = (
        None  # from that seq; committed with the events
    )


Message = Input | RunMessage


# --- handle --------------------------------------------------------------------------------------


class RunHandle:
    """An open run, queued or with an actor."""

    __slots__ = (
        "_changed",
        "acceptance_commit",
        "approved",
        "crash_count",
        "ending",
        "granted",
        "has_history",
        "inbox",
        "is_recovering",
        "is_settled",
        "is_void",
        "last_commit",
        "prompts",
        "refusals",
        "reservation",
        "run",
        "waits_for_journal",
    )

    def __init__(
        self,
        run: Run,
        prompts: Sequence[ApprovalRecord] = (),
        *,
        is_recovering: bool = False,
        crash_count: int = 0,
        waits_for_journal: bool = False,
    ) -> None:
        self.inbox: Mailbox[Message] = Mailbox(run.run_id, INBOX_CAPACITY)
        self.run = run  # the latest state, possibly ahead of the committed one
        self.prompts = {prompt.approval_id: prompt for prompt in prompts}  # open on the tape
        self.approved: dict[str, ApprovalRecord] = {}  # calls may still start on them
        self.granted: dict[str, GrantRecord] = {}  # made by answers that are being committed
        self.has_history = True  # there may be earlier runs in its session
        self.is_recovering = is_recovering
        self.is_settled = False  # the terminal event is committed
        self.is_void = False  # its acceptance was never committed: there is no such run
        self.crash_count = (
            crash_count  # times its actor ended before that, and the journal was not to blame
        )
        self.waits_for_journal = waits_for_journal  # the last time it was
        self.refusals = 0  # of the journal before its actor began
        self.ending: Cancel | None = None  # decided: a next life begins with it
        self.acceptance_commit: PendingCommit | None = None  # of the acceptance
        self.last_commit: PendingCommit | None = None  # of the last append before it has an actor
        self.reservation: Reservation | None = None  # of the model call under way
        self._changed: trio.Event | None = None

    @property
    def run_id(self) -> str:
        """Which run."""
        return self.run.run_id

    @property
    def is_refused(self) -> bool:
        """Whether the acceptance was not committed: whoever asked was told."""
        return self.acceptance_commit is not None and _has_failed(self.acceptance_commit)

    @property
    def is_ahead(self) -> bool:
        """Whether the state has an event that the tape will never have."""
        return self.last_commit is not None and _has_failed(self.last_commit)

    async def report(self, outcome: Input) -> None:
        """Hand in what a child of the run found; without a checkpoint as long as there is room."""
        try:
            self.inbox.offer(outcome)
        except Overloaded:
            await self.inbox.tell(outcome)

    async def hear(
        self,
        heard: Input,
        *,
        receipt: Callable[[int], IdempotencyRecord] | None = None,
        timeout_s: float,
    ) -> int:
        """Hand in an input; the seq of its own event once that is committed.

        Raises what `take` and `Ticket.wait` raise.
        Cancellation: the input may still take effect.
        """
        taken = await self.take(heard, receipt=receipt, timeout_s=timeout_s)
        await taken.ticket.wait()
        return taken.seq

    async def take(
        self,
        heard: Input,
        *,
        receipt: Callable[[int], IdempotencyRecord] | None = None,
        timeout_s: float,
    ) -> AcceptedInput:
        """Hand in an input; where it will stand on the tape.

        Raises IllegalState when the run no longer takes it, ActorGone when it crashed before it
        did: then nothing of it is on the tape.  Raises TooSlow.
        Cancellation: the input may still take effect.
        """
        return await self.inbox.ask(
            lambda reply: RunMessage(heard, reply, receipt), timeout_s=timeout_s
        )

    def wake(self) -> None:
        """Let everybody in `wait_change` look again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait_change(self) -> None:
        """Until the run asks a person, settles or is lost."""
        if self._changed is None:  # an event has no truth value
            self._changed = trio.Event()
        await self._changed.wait()


def _has_failed(ticket: PendingCommit) -> bool:
    return ticket.is_settled and not ticket.is_committed
