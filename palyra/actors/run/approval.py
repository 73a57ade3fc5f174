"""Open questions to people: their registry, and the task of each, which takes the first valid answer.

Owns: the questions that are open, by approval id.
Talks to: every approver's inbox (hub), the run of the question.  The rules of answers are
`core.approval`.
Never: executes anything, or trusts an answer for who gives it (the caller is the token's).
Restart: none; a question is a child of its run.  After a crash of the run it is asked again with the
same id, digest and deadline, because it is on the tape.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.child import ChildTask
from palyra.actors.kernel.mailbox import Mailbox, Receiver
from palyra.actors.kernel.reply import Reply
from palyra.actors.run.handle import RunHandle
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval, check_answer
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import ApprovalRecord, GrantRecord
from palyra.core.policy.grants import grant_id_of, holds_for
from palyra.core.policy.request import PolicyDecision
from palyra.core.policy.views import Resolved
from palyra.core.ports import Notifier, NowMs
from palyra.core.run.calls import DEADLINE
from palyra.core.run.inputs import ApprovalAnswered
from palyra.core.run.state import Run
from palyra.core.tape.events import RunAccepted
from palyra.errors import Forbidden, IllegalState, NotFound, Overloaded, PalyraError
from palyra.services.policy.grants import Grants

WAITS_FOR_PERSON = "person"
SETTLE_TIMEOUT_S = 30.0  # for the run to take an answer; after that the answer has failed


class ApprovalAnswer(msgspec.Struct, frozen=True):
    """A person's answer; `caller` comes from the server's token record."""

    command: ResolveApproval
    caller: Caller
    reply: Reply[Resolved]
    receipt: IdempotencyKey | None = None


class Granted(msgspec.Struct, frozen=True):
    """A grant made by the answer to another question, which may cover this one."""

    grant: GrantRecord


class Expired(msgspec.Struct, frozen=True):
    """The deadline has passed: settle the question as unanswered."""


Message = ApprovalAnswer | Granted | Expired
JudgeAnswer = Callable[[Run, Caller, ResolveApproval], PolicyDecision | None]


@dataclass(slots=True, kw_only=True)
class Question(ChildTask):
    """An open prompt, and the task that waits for its answer."""

    prompt: ApprovalRecord
    epoch: int | None  # of the run's session
    asks_as: str
    ticket: PendingCommit  # of `approval.requested`
    judge: JudgeAnswer  # the policy's verdict on an answer
    mailbox: Mailbox[Message]
    scope: trio.CancelScope  # of the task
    deadline_s: float | None = None  # on the awake clock, once the task waits for an answer


class OpenApprovals:
    """The open questions of the daemon, by approval id."""

    def __init__(self, hub: Notifier, grants: Grants, now_ms: NowMs) -> None:
        self.hub = hub
        self.grants = grants
        self.now_ms = now_ms
        self.on_waiting: Callable[[], object] = (
            int  # called when a question begins to wait for a person
        )
        self._open: dict[str, Question] = {}

    def find(self, approval_id: str) -> Mailbox[Message] | None:
        """Return the mailbox of an open question."""
        entry = self._open.get(approval_id)
        return entry.mailbox if entry is not None else None

    def find_open(self, run_id: str) -> str | None:
        """Return the id of an open question of the run that is committed."""
        return next(
            (
                approval_id
                for approval_id, entry in self._open.items()
                if entry.prompt.run_id == run_id and entry.ticket.is_committed
            ),
            None,
        )

    def list_waiting(self, caller: Caller | None = None) -> list[str]:
        """List the ids of the questions that wait for a person, or for this one, oldest first."""
        return [
            approval_id
            for approval_id, entry in self._open.items()
            if entry.waits_for == WAITS_FOR_PERSON
            and (
                caller is None
                or (caller.may("approvals:write") and caller.sees(entry.prompt.principal))
            )
        ]

    def count(self, asks_as: str) -> int:
        """Count the open questions of a principal or a confined conversation (`RunAccepted.asks_as`)."""
        return sum(entry.asks_as == asks_as for entry in self._open.values())

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

    def list_overdue(self, before_s: float) -> list[Question]:
        """List questions that wait for an answer although their deadline was at `before_s` or earlier."""
        return [
            entry
            for entry in self._open.values()
            if entry.deadline_s is not None and entry.deadline_s <= before_s
        ]

    def expire(self, approval_id: str) -> None:
        """Settle a question as unanswered; without effect on one that is closed.

        Raises Overloaded.
        """
        entry = self._open.get(approval_id)
        if entry is not None:
            entry.mailbox.offer(Expired())

    def close(self, approval_id: str) -> None:
        """Close a question; later answers get the recorded outcome."""
        entry = self._open.get(approval_id)
        if entry is not None:
            entry.scope.cancel(f"{approval_id} was withdrawn")

    def open(
        self, prompt: ApprovalRecord, asking: RunAccepted, ticket: PendingCommit, judge: JudgeAnswer
    ) -> Question:
        """Register a question, which counts and can be answered from now on.

        The task that asks must run in `closing`, which removes it.
        """
        mailbox: Mailbox[Message] = Mailbox(prompt.approval_id, 64)
        question = Question(
            id=f"approval:{prompt.approval_id}",
            started_ms=prompt.requested_ms,
            prompt=prompt,
            epoch=asking.epoch,
            asks_as=asking.asks_as,
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


# --- the task of a question ------------------------------------------------------------------------


async def ask_person(run: RunHandle, approvals: OpenApprovals, question: Question) -> None:
    """Notify clients of the question, wait for an answer or the deadline, and settle it.

    An answer may arrive before the question is committed, because clients have seen its event; it
    waits in the mailbox.
    Cancellation: the question closes; the run has recorded its outcome.
    """
    prompt = question.prompt
    with approvals.closing(question) as mailbox, mailbox.receiver() as answers:
        if prompt.approval_id not in run.prompts:
            return  # withdrawn before it was asked
        await question.ticket.wait()
        approvals.hub.notify(
            "approval.requested", prompt, principal=prompt.principal, scope="approvals:read"
        )
        run.wake()
        first: Message | None = None
        question.waits_for = WAITS_FOR_PERSON
        approvals.on_waiting()
        # The deadline may have passed while the daemon was down, or the clock may have been ahead.
        left_ms = max(0, prompt.expires_ms - max(approvals.now_ms(), prompt.requested_ms))
        question.deadline_s = trio.current_time() + left_ms / 1000
        with trio.move_on_at(question.deadline_s):
            first = await _first_valid(answers, run, approvals, question)
        question.waits_for = "commit"
        outcome = await _settle(run, approvals, prompt, first)
        for _ in range(mailbox.depth):
            late = await answers.receive()
            if isinstance(late, ApprovalAnswer):
                late.reply.put(msgspec.structs.replace(outcome, won=False))


async def _first_valid(
    answers: Receiver[Message], run: RunHandle, approvals: OpenApprovals, question: Question
) -> Message | None:
    """Return the first valid answer, None for `Expired`; fail the others with the reason."""
    while True:
        answer = await answers.receive()
        if isinstance(answer, Expired):
            return None
        if isinstance(answer, Granted):
            if holds_for(answer.grant, question.prompt, question.epoch, approvals.now_ms()):
                return answer
            continue
        try:
            _check(answer, run, approvals, question)
        except PalyraError as refused:
            answer.reply.fail(refused)
        else:
            return answer


def _check(
    answer: ApprovalAnswer, run: RunHandle, approvals: OpenApprovals, question: Question
) -> None:
    """Raise unless caller, content and policy allow the answer to settle the question."""
    prompt, caller = question.prompt, answer.caller
    caller.require("approvals:write")
    if not caller.sees(prompt.principal):
        raise NotFound(f"no approval {prompt.approval_id!r}", field="approval_id")
    check_answer(prompt, answer.command, approvals.now_ms())
    decision = question.judge(run.run, caller, answer.command)
    if decision is not None and decision.answer != "allow":
        raise Forbidden(f"{caller.principal} may not answer this: {decision.reason}")
    if answer.command.scope != "once":
        approvals.grants.check_room(prompt.principal)


async def _settle(
    run: RunHandle, approvals: OpenApprovals, prompt: ApprovalRecord, first: Message | None
) -> Resolved:
    """Have the run record the outcome, and reply to the winner once that is committed.

    From then on a grant that the answer makes is in force, also for questions that are open.
    """
    answer, now_ms = _to_input(prompt, first), approvals.now_ms()

    def outcome(seq: int) -> Resolved:
        return Resolved(
            decision=answer.decision,
            scope=answer.scope,
            by=answer.by,
            resolved_ms=now_ms,
            won=True,
            run_id=prompt.run_id,
            seq=seq,
            grant_id=None if answer.scope == "once" else grant_id_of(prompt.approval_id),
        )

    key = first.receipt if isinstance(first, ApprovalAnswer) else None
    try:
        taken = await run.send(
            answer,
            receipt=None if key is None else lambda seq: receipt_for(key, outcome(seq), now_ms),
            timeout_s=SETTLE_TIMEOUT_S,
        )
        # An answer may end the run, and its sender still gets the outcome.
        with trio.CancelScope(shield=True):
            await taken.ticket.wait()
    except IllegalState:  # the run is ending: its committed end closes this question
        await trio.sleep_forever()
    seq = taken.seq
    grant = run.granted.pop(prompt.approval_id, None)
    if grant is not None and approvals.grants.add(grant):
        approvals.notify_grant(grant, now_ms)
    if isinstance(first, ApprovalAnswer):
        first.reply.put(outcome(seq))
    notify_resolved(approvals.hub, prompt, outcome(seq))
    return outcome(seq)


def _to_input(prompt: ApprovalRecord, first: Message | None) -> ApprovalAnswered:
    """Return the run's input for an answer, or for the deadline (None)."""
    match first:
        case None | Expired():
            return ApprovalAnswered(
                approval_id=prompt.approval_id,
                decision="deny",
                scope="once",
                by=DEADLINE,
                reason="nobody answered in time",
            )
        case Granted(grant=grant):
            return ApprovalAnswered(
                approval_id=prompt.approval_id,
                decision=grant.decision,
                scope="once",
                by=grant.by,
                reason=grant.reason or f"{grant.grant_id} holds for this too",
            )
        case ApprovalAnswer(command=command, caller=caller):
            return ApprovalAnswered(
                approval_id=prompt.approval_id,
                decision=command.decision,
                scope=command.scope,
                by=caller.principal,
                reason=command.reason,
                ttl_ms=command.ttl_ms,
            )


def notify_resolved(hub: Notifier, prompt: ApprovalRecord, outcome: Resolved) -> None:
    """Notify clients of the outcome of a question, which must be committed."""
    hub.notify(
        "approval.resolved",
        {"approval_id": prompt.approval_id, **msgspec.to_builtins(outcome)},
        principal=prompt.principal,
        scope="approvals:read",
    )
