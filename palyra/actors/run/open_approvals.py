"""Registry of open questions to people: where answers, grants and withdrawals find their task.

Owns: the questions that are open, by approval id.  The task of each is `approval.ask_person`.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.child import ChildTask
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.reply import Reply
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval, Resolved
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import ApprovalRecord, GrantRecord
from palyra.core.policy.grants import holds_for
from palyra.core.policy.request import PolicyDecision
from palyra.core.run.state import Run
from palyra.errors import Overloaded


class ApprovalAnswer(msgspec.Struct, frozen=True):
    """A person's answer; `caller` comes from the server's token record."""

    command: ResolveApproval
    caller: Caller
    reply: Reply[Resolved]
    receipt: IdempotencyKey | None = None


class Granted(msgspec.Struct, frozen=True):
    """A grant made by the answer to another question, which may cover this one."""

    grant: GrantRecord


Message = ApprovalAnswer | Granted
JudgeAnswer = Callable[[Run, Caller, ResolveApproval], PolicyDecision | None]


@dataclass(slots=True, kw_only=True)
class Question(ChildTask):
    """An open prompt, and the task that waits for its answer."""

    prompt: ApprovalRecord
    epoch: int | None  # of the run's session
    ticket: PendingCommit  # of `approval.requested`
    judge: JudgeAnswer  # the policy's verdict on an answer
    mailbox: Mailbox[Message]
    scope: trio.CancelScope  # of the task


class OpenApprovals:
    """The open questions of the daemon, by approval id."""

    def __init__(self) -> None:
        self._open: dict[str, Question] = {}

    def find(self, approval_id: str) -> Mailbox[Message] | None:
        """Return the mailbox of an open question."""
        entry = self._open.get(approval_id)
        return entry.mailbox if entry is not None else None

    def has_open(self, run_id: str) -> bool:
        """True if the run has an open question that is committed."""
        return any(
            entry.prompt.run_id == run_id and entry.ticket.is_committed
            for entry in self._open.values()
        )

    def count(self, principal: str) -> int:
        """Count the open questions of a principal."""
        return sum(entry.prompt.principal == principal for entry in self._open.values())

    @property
    def runs(self) -> set[str]:
        """Ids of the runs with an open question."""
        return {entry.prompt.run_id for entry in self._open.values()}

    def notify_grant(self, grant: GrantRecord, now_ms: int) -> None:
        """Offer a new grant to every open question that it covers."""
        for entry in list(self._open.values()):
            if holds_for(grant, entry.prompt, entry.epoch, now_ms):
                with suppress(Overloaded):  # a full mailbox has answers of people
                    entry.mailbox.offer(Granted(grant))

    def close(self, approval_id: str) -> None:
        """Close a question; later answers get the recorded outcome."""
        entry = self._open.get(approval_id)
        if entry is not None:
            entry.scope.cancel(f"{approval_id} was withdrawn")

    def open(
        self, prompt: ApprovalRecord, epoch: int | None, ticket: PendingCommit, judge: JudgeAnswer
    ) -> Question:
        """Register a question, which counts and can be answered from now on.

        The task that asks must run in `closing`, which removes it.
        """
        mailbox: Mailbox[Message] = Mailbox(prompt.approval_id, 64)
        question = Question(
            id=f"approval:{prompt.approval_id}",
            started_ms=prompt.requested_ms,
            prompt=prompt,
            epoch=epoch,
            ticket=ticket,
            judge=judge,
            mailbox=mailbox,
            scope=trio.CancelScope(),
        )
        self._open[prompt.approval_id] = question
        return question

    @contextmanager
    def closing(self, question: Question) -> Generator[Mailbox[Message]]:
        """Keep the question open inside the block; after it, answers get ActorGone."""
        with question.scope:
            try:
                yield question.mailbox
            finally:
                del self._open[question.prompt.approval_id]
                question.mailbox.close()
