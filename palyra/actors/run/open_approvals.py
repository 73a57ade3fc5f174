"""The approval actor: puts one prompt before people and takes the first valid answer.

Owns: one open prompt.  Talks to: the inbox of every approver (hub), its run.
Never: executes anything, or takes an answer's word for who gives it (the caller is the token's).
Restart: none of its own; it is a child of its run.  After a crash the run asks again with the
same id, digest and deadline, because the prompt is on the tape.
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
    """Somebody's answer; the caller was made from the server's token record."""

    command: ResolveApproval
    caller: Caller
    reply: Reply[Resolved]
    receipt: IdempotencyKey | None = None


class Granted(msgspec.Struct, frozen=True):
    """An answer to another question, which holds for this one too."""

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
    """The open prompts of the daemon, by id: where an answer is handed in."""

    def __init__(self) -> None:
        self._open: dict[str, Question] = {}

    def find(self, approval_id: str) -> Mailbox[Message] | None:
        """The prompt's mailbox while it is open."""
        entry = self._open.get(approval_id)
        return entry.mailbox if entry is not None else None

    def has_open(self, run_id: str) -> bool:
        """Whether the run waits for a person right now, on a committed prompt."""
        return any(
            entry.prompt.run_id == run_id and entry.ticket.is_committed
            for entry in self._open.values()
        )

    def count(self, principal: str) -> int:
        """How many prompts of that principal are open."""
        return sum(entry.prompt.principal == principal for entry in self._open.values())

    @property
    def runs(self) -> set[str]:
        """The runs that ask somebody."""
        return {entry.prompt.run_id for entry in self._open.values()}

    def notify_grant(self, grant: GrantRecord, now_ms: int) -> None:
        """A new grant answers what is asked already, where it holds."""
        for entry in list(self._open.values()):
            if holds_for(grant, entry.prompt, entry.epoch, now_ms):
                with suppress(Overloaded):  # then enough people answer it themselves
                    entry.mailbox.offer(Granted(grant))

    def close(self, approval_id: str) -> None:
        """Ask no more; whoever answers now hears what is recorded."""
        entry = self._open.get(approval_id)
        if entry is not None:
            entry.scope.cancel(f"{approval_id} is asked no more")

    def open(
        self, prompt: ApprovalRecord, epoch: int | None, ticket: PendingCommit, judge: JudgeAnswer
    ) -> Question:
        """From now on it counts, and can be answered; `ask_person` closes it."""
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
        """The prompt is open inside the block; late answers get ActorGone after it."""
        with question.scope:
            try:
                yield question.mailbox
            finally:
                del self._open[question.prompt.approval_id]
                question.mailbox.close()
