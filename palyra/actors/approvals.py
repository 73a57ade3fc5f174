"""The approval actor: puts one prompt before people and takes the first valid answer.

Owns: one open prompt.  Talks to: the inbox of every approver (hub), its run.
Never: executes anything, or takes an answer's word for who gives it (the caller is the token's).
Restart: none of its own; it is a child of its run.  After a crash the run asks again with the
same id, digest and deadline, because the prompt is on the tape.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from palyra.actors.hub import HubHandle
from palyra.actors.journal import Ticket
from palyra.actors.mailbox import Mailbox, Receiver
from palyra.actors.reply import Reply
from palyra.core.access import Caller
from palyra.core.approvals import check_answer
from palyra.core.ask_steps import DEADLINE
from palyra.core.commands import ReceiptKey, ResolveApproval, Resolved
from palyra.core.grants import grant_id_of, holds_for
from palyra.core.policy import PolicyDecision
from palyra.core.records import ApprovalRecord, GrantRecord, Receipt
from palyra.core.run_state import Run
from palyra.core.run_steps import ApprovalAnswered
from palyra.errors import Forbidden, IllegalState, NotFound, Overloaded, PalyraError

if TYPE_CHECKING:
    from palyra.actors.office import Office
    from palyra.actors.run_handle import RunHandle

SETTLE_TIMEOUT_S = 30.0  # an answer waits this long for its commit before it counts as not taken


class Answer(msgspec.Struct, frozen=True):
    """Somebody's answer; the caller was made from the server's token record."""

    command: ResolveApproval
    caller: Caller
    reply: Reply[Resolved]
    receipt: ReceiptKey | None = None


class Granted(msgspec.Struct, frozen=True):
    """An answer to another question, which holds for this one too."""

    grant: GrantRecord


Message = Answer | Granted
JudgeAnswer = Callable[[Run, Caller, ResolveApproval], PolicyDecision | None]


class Question(NamedTuple):
    """An open prompt."""

    prompt: ApprovalRecord
    epoch: int | None  # of the session, for the run that asks
    ticket: Ticket  # of its commit
    judge: JudgeAnswer  # what the rules say of answers to it
    mailbox: Mailbox[Message]
    scope: trio.CancelScope  # of the task that asks


class Approvals:
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

    def tell(self, grant: GrantRecord, now_ms: int) -> None:
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
        self, prompt: ApprovalRecord, epoch: int | None, ticket: Ticket, judge: JudgeAnswer
    ) -> Question:
        """From now on it counts, and can be answered; `ask_person` closes it."""
        mailbox: Mailbox[Message] = Mailbox(prompt.approval_id, 64)
        question = Question(prompt, epoch, ticket, judge, mailbox, trio.CancelScope())
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


async def ask_person(run: "RunHandle", office: "Office", question: Question) -> None:
    """Ask, wait until the deadline, tell the run, tell everybody who answered.

    The prompt is open at once: it is on the wire, and an answer to it waits for the commit.
    Cancellation: the prompt closes; the run has recorded what became of it.
    """
    prompt = question.prompt
    with office.approvals.closing(question) as mailbox, mailbox.receiver() as answers:
        if prompt.approval_id not in run.prompts:
            return  # taken back before it was put
        await question.ticket.wait()
        office.hub.notify(
            "approval.requested", prompt, principal=prompt.principal, scope="approvals:read"
        )
        run.wake()
        first: Message | None = None
        left_ms = max(0, prompt.expires_ms - office.now_ms())  # it may have run out while down
        with trio.move_on_after(left_ms / 1000):
            first = await _first_valid(answers, run, office, question)
        outcome = await _settle(run, office, prompt, first)
        for _ in range(mailbox.depth):
            late = await answers.receive()
            if isinstance(late, Answer):
                late.reply.put(msgspec.structs.replace(outcome, won=False))


async def _first_valid(
    answers: Receiver[Message], run: "RunHandle", office: "Office", question: Question
) -> Message:
    """The first answer that counts; the others hear why they do not."""
    while True:
        answer = await answers.receive()
        if isinstance(answer, Granted):
            if holds_for(answer.grant, question.prompt, question.epoch, office.now_ms()):
                return answer
            continue
        try:
            _check(answer, run, office, question)
        except PalyraError as refused:
            answer.reply.fail(refused)
        else:
            return answer


def _check(answer: Answer, run: "RunHandle", office: "Office", question: Question) -> None:
    """Raise unless the answer may settle the question: who gives it, what it says, the rules."""
    prompt, caller = question.prompt, answer.caller
    caller.require("approvals:write")
    if not caller.sees(prompt.principal):
        raise NotFound(f"no approval {prompt.approval_id!r}", field="approval_id")
    check_answer(prompt, answer.command, office.now_ms())
    decision = question.judge(run.run, caller, answer.command)
    if decision is not None and decision.answer != "allow":
        raise Forbidden(f"{caller.principal} may not answer so: {decision.reason}")
    if answer.command.scope != "once":
        office.grants.check_room(prompt.principal)


async def _settle(
    run: "RunHandle", office: "Office", prompt: ApprovalRecord, first: Message | None
) -> Resolved:
    """Have the run record the outcome; answer the winner once it is committed.

    A grant that the answer makes holds from then on, also for what is asked already.
    """
    heard, now_ms = _hear(prompt, first), office.now_ms()

    def outcome(seq: int) -> Resolved:
        return Resolved(
            decision=heard.decision,
            scope=heard.scope,
            by=heard.by,
            resolved_ms=now_ms,
            won=True,
            run_id=prompt.run_id,
            seq=seq,
            grant_id=None if heard.scope == "once" else grant_id_of(prompt.approval_id),
        )

    key = first.receipt if isinstance(first, Answer) else None
    try:
        taken = await run.take(
            heard,
            receipt=None if key is None else lambda seq: receipt_for(key, outcome(seq), now_ms),
            timeout_s=SETTLE_TIMEOUT_S,
        )
        with trio.CancelScope(shield=True):  # an answer may end the run; its giver hears of it
            await taken.ticket.wait()
    except IllegalState:  # the run is ending: its end, once committed, closes this prompt
        await trio.sleep_forever()
    seq = taken.seq
    grant = run.granted.pop(prompt.approval_id, None)
    if grant is not None and office.grants.add(grant):
        office.approvals.tell(grant, now_ms)
    if isinstance(first, Answer):
        first.reply.put(outcome(seq))
    tell_resolved(office.hub, prompt, outcome(seq))
    return outcome(seq)


def _hear(prompt: ApprovalRecord, first: Message | None) -> ApprovalAnswered:
    """What the run is told: the answer, or that nobody gave one."""
    match first:
        case None:
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
        case Answer(command=command, caller=caller):
            return ApprovalAnswered(
                approval_id=prompt.approval_id,
                decision=command.decision,
                scope=command.scope,
                by=caller.principal,
                reason=command.reason,
                ttl_ms=command.ttl_ms,
            )


def tell_resolved(hub: HubHandle, prompt: ApprovalRecord, outcome: Resolved) -> None:
    """Tell every inbox what became of the prompt; call once that is committed."""
    hub.notify(
        "approval.resolved",
        {"approval_id": prompt.approval_id, **msgspec.to_builtins(outcome)},
        principal=prompt.principal,
        scope="approvals:read",
    )


def receipt_for(key: ReceiptKey, result: msgspec.Struct, now_ms: int) -> Receipt:
    """The receipt that repeats `result` to whoever sends the same key again."""
    return Receipt(
        principal=key.principal,
        key=key.key,
        body_sha256=key.body_sha256,
        result=msgspec.Raw(msgspec.json.encode(result)),
        created_ms=now_ms,
    )
