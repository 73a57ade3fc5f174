import msgspec
import trio

from palyra.actors.kernel.mailbox import Receiver
from palyra.actors.run.handle import RunHandle
from palyra.actors.run.open_approvals import ApprovalAnswer, Granted, Message, Question
from palyra.actors.run.services import RunServices
from palyra.core.approval import Resolved, check_answer
from palyra.core.journal.idempotency import receipt_for
from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.grants import grant_id_of, holds_for
from palyra.core.ports import Notifier
from palyra.core.run.approvals import DEADLINE
from palyra.core.run.inputs import ApprovalAnswered
from palyra.errors import Forbidden, IllegalState, NotFound, PalyraError

SETTLE_TIMEOUT_S = 30.0  # an answer waits this long for its commit before it counts as not taken


async def ask_person(run: RunHandle, services: RunServices, question: Question) -> None:
    """Ask, wait until the deadline, tell the run, tell everybody who answered.

    The prompt is open at once: it is on the wire, and an answer to it waits for the commit.
    Cancellation: the prompt closes; the run has recorded what became of it.
    """
    prompt = question.prompt
    with services.approvals.closing(question) as mailbox, mailbox.receiver() as answers:
        if prompt.approval_id not in run.prompts:
            return  # taken back before it was put
        await question.ticket.wait()
        services.hub.notify(
            "approval.requested", prompt, principal=prompt.principal, scope="approvals:read"
        )
        run.wake()
        first: Message | None = None
        question.waits_for = "person"
        left_ms = max(0, prompt.expires_ms - services.now_ms())  # it may have run out while down
        with trio.move_on_after(left_ms / 1000):
            first = await _first_valid(answers, run, services, question)
        question.waits_for = "commit"
        outcome = await _settle(run, services, prompt, first)
        for _ in range(mailbox.depth):
            late = await answers.receive()
            if isinstance(late, ApprovalAnswer):
                late.reply.put(msgspec.structs.replace(outcome, won=False))


async def _first_valid(
    answers: Receiver[Message], run: RunHandle, services: RunServices, question: Question
) -> Message:
    """The first answer that counts; the others hear why they do not."""
    while True:
        answer = await answers.receive()
        if isinstance(answer, Granted):
            if holds_for(answer.grant, question.prompt, question.epoch, services.now_ms()):
                return answer
            continue
        try:
            _check(answer, run, services, question)
        except PalyraError as refused:
            answer.reply.fail(refused)
        else:
            return answer


def _check(
    answer: ApprovalAnswer, run: RunHandle, services: RunServices, question: Question
) -> None:
    """Raise unless the answer may settle the question: who gives it, what it says, the rules."""
    prompt, caller = question.prompt, answer.caller
    caller.require("approvals:write")
    if not caller.sees(prompt.principal):
        raise NotFound(f"no approval {prompt.approval_id!r}", field="approval_id")
    check_answer(prompt, answer.command, services.now_ms())
    decision = question.judge(run.run, caller, answer.command)
    if decision is not None and decision.answer != "allow":
        raise Forbidden(f"{caller.principal} may not answer so: {decision.reason}")
    if answer.command.scope != "once":
        services.grants.check_room(prompt.principal)


async def _settle(
    run: RunHandle, services: RunServices, prompt: ApprovalRecord, first: Message | None
) -> Resolved:
    """Have the run record the outcome; answer the winner once it is committed.

    A grant that the answer makes holds from then on, also for what is asked already.
    """
    heard, now_ms = _handle(prompt, first), services.now_ms()

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

    key = first.receipt if isinstance(first, ApprovalAnswer) else None
    try:
        taken = await run.send(
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
    if grant is not None and services.grants.add(grant):
        services.approvals.notify_grant(grant, now_ms)
    if isinstance(first, ApprovalAnswer):
        first.reply.put(outcome(seq))
    notify_resolved(services.hub, prompt, outcome(seq))
    return outcome(seq)


def _handle(prompt: ApprovalRecord, first: Message | None) -> ApprovalAnswered:
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
    """Tell every inbox what became of the prompt; call once that is committed."""
    hub.notify(
        "approval.resolved",
        {"approval_id": prompt.approval_id, **msgspec.to_builtins(outcome)},
        principal=prompt.principal,
        scope="approvals:read",
    )
