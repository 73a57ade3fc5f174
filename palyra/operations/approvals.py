"""Approvals as clients use them: list, read, resolve.

Owns: nothing.  Talks to: the approval actors of open prompts, the journal.  Never reports a
decision before its event is committed, or distinguishes an approval of another principal from a
missing one.
"""

import trio

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.run.approval import ApprovalAnswer, Message, OpenApprovals
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval, recorded_outcome
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.views import Resolved
from palyra.errors import ActorGone, NotFound

RECOVERED_WITHIN_S = 15.0  # after a restart, until a listed approval can take its answer
OPEN_POLL_S = 0.1
ANSWER_S = 30.0  # a prompt that takes longer to take a message is in trouble


class Approvals:
    """Every approval of the journal, open or resolved."""

    def __init__(self, journal: JournalHandle, open_approvals: OpenApprovals) -> None:
        self._journal = journal
        self._open = open_approvals

    async def resolve(
        self, caller: Caller, command: ResolveApproval, receipt: IdempotencyKey | None = None
    ) -> Resolved:
        """Resolve an approval and return the committed outcome; `won` if this answer decided.

        Raises NotFound, DigestMismatch, InvalidParams (scope), IllegalState (expired),
        Unavailable if the run is not resumed within RECOVERED_WITHIN_S.
        """
        caller.require("approvals:write")
        mailbox = self._open.find(command.approval_id)
        if mailbox is None:
            mailbox, record = await self._wait_open(caller, command.approval_id)
            if mailbox is None:
                return recorded_outcome(record)
        try:
            with trio.CancelScope(shield=True):  # won or not, never unknown; bounded by the disk
                outcome: Resolved = await mailbox.ask(
                    lambda reply: ApprovalAnswer(command, caller, reply, receipt),
                    timeout_s=ANSWER_S,
                )
        except ActorGone:
            return recorded_outcome(await self.get(caller, command.approval_id))
        return outcome

    async def _wait_open(
        self, caller: Caller, approval_id: str
    ) -> tuple[Mailbox[Message] | None, ApprovalRecord]:
        """Wait until the run that asks is recovered, or the question is resolved.

        After RECOVERED_WITHIN_S the mailbox is None and the record pending.
        """
        until_s = trio.current_time() + RECOVERED_WITHIN_S
        while True:
            record = await self.get(caller, approval_id)
            mailbox = self._open.find(approval_id)
            is_late = trio.current_time() >= until_s
            if mailbox is not None or record.state != "pending" or is_late:
                return mailbox, record
            await trio.sleep(OPEN_POLL_S)

    async def get(self, caller: Caller, approval_id: str) -> ApprovalRecord:
        """Return one approval.  Raises NotFound, also for one of another principal."""
        caller.require("approvals:read")
        record = await self._journal.find(lambda store: store.find_approval(approval_id))
        if record is None or not caller.sees(record.principal):
            raise NotFound(f"no approval {approval_id!r}", field="approval_id")
        return record

    async def list_seen(
        self, caller: Caller, *, run_id: str | None, pending_only: bool, limit: int
    ) -> list[ApprovalRecord]:
        """List the approvals that the caller sees, pending ones first."""
        caller.require("approvals:read")
        return await self._journal.read(
            lambda store: [
                each.in_list()
                for each in store.list_approvals(
                    principal=caller.principal_filter,
                    run_id=run_id,
                    pending_only=pending_only,
                    limit=limit,
                )
            ]
        )
