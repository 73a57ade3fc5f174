"""The task of one open question: asks people and takes the first valid answer.

Talks to: every approver's inbox (hub), its run.  The registry of open questions is
`open_approvals`; the rules of answers are `core.approval`.
Never: executes anything, or trusts an answer for who gives it (the caller is the token's).
Restart: none; it is a child of its run.  After a crash of the run it asks again with the same id,
digest and deadline, because the question is on the tape.
"""

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
from palyra.core.run.calls import DEADLINE
from palyra.core.run.inputs import ApprovalAnswered
from palyra.errors import Forbidden, IllegalState, NotFound, PalyraError

SETTLE_TIMEOUT_S = 30.0  # for the run to take an answer; after that the answer has failed


async def ask_person(run: RunHandle, services: RunServices, question: Question) -> None:
    """Notify clients of the question, wait for an answer or the deadline, and settle it.

    An answer may arrive before the question is committed, because clients have seen its event; it
    waits in the mailbox.
    Cancellation: the question closes; the run has recorded its outcome.
    """
    prompt = question.prompt
    with services.approvals.closing(question) as mailbox, mailbox.receiver() as answers:
        if prompt.approval_id not in run.prompts:
            return  # withdrawn before it was asked
        await question.ticket.wait()
        services.hub.notify(
            "approval.requested", prompt, principal=prompt.principal, scope="approvals:read"
        )
        run.wake()
        first: Message | None = None
        question.waits_for = "person"
        left_ms = max(
            0, prompt.expires_ms - services.now_ms()
        )  # the deadline may have passed while the daemon was down
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
    """Return the first valid answer; fail the others with the reason."""
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
    """Raise unless caller, content and policy allow the answer to settle the question."""
    prompt, caller = question.prompt, answer.caller
    caller.require("approvals:write")
    if not caller.sees(prompt.principal):
        raise NotFound(f"no approval {prompt.approval_id!r}", field="approval_id")
    check_answer(prompt, answer.command, services.now_ms())
    decision = question.judge(run.run, caller, answer.command)
    if decision is not None and decision.answer != "allow":
        raise Forbidden(f"{caller.principal} may not answer this: {decision.reason}")
    if answer.command.scope != "once":
        services.grants.check_room(prompt.principal)


async def _settle(
    run: RunHandle, services: RunServices, prompt: ApprovalRecord, first: Message | None
) -> Resolved:
    """Have the run record the outcome, and reply to the winner once that is committed.

    From then on a grant that the answer makes is in force, also for questions that are open.
    """
    answer, now_ms = _to_input(prompt, first), services.now_ms()

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
        with trio.CancelScope(
            shield=True
        ):  # an answer may end the run, and its sender still gets the outcome
            await taken.ticket.wait()
    except IllegalState:  # the run is ending: its committed end closes this question
        await trio.sleep_forever()
    seq = taken.seq
    grant = run.granted.pop(prompt.approval_id, None)
    if grant is not None and services.grants.add(grant):
        services.approvals.notify_grant(grant, now_ms)
    if isinstance(first, ApprovalAnswer):
        first.reply.put(outcome(seq))
    notify_resolved(services.hub, prompt, outcome(seq))
    return outcome(seq)


def _to_input(prompt: ApprovalRecord, first: Message | None) -> ApprovalAnswered:
    """Return the run's input for an answer, or for the deadline (None)."""
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
    """Notify clients of the outcome of a question, which must be committed."""
    hub.notify(
        "approval.resolved",
        {"approval_id": prompt.approval_id, **msgspec.to_builtins(outcome)},
        principal=prompt.principal,
        scope="approvals:read",
    )
