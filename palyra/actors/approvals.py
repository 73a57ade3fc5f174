"""The approval actor: puts one prompt before people and takes the first valid answer.

Owns: one open prompt.  Talks to: the inbox of every approver (hub), its run.
Never: executes anything, or decides that an answer is authorised (the gateway checked that).
Restart: none of its own; it is a child of its run.  After a crash the run asks again with the
same id, digest and deadline, because the prompt is on the tape.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from palyra.actors.hub import HubHandle
from palyra.actors.journal import Ticket
from palyra.actors.mailbox import Mailbox, Receiver
from palyra.actors.reply import Reply
from palyra.core.approvals import check_answer
from palyra.core.commands import ReceiptKey, ResolveApproval, Resolved
from palyra.core.ports import NowMs
from palyra.core.records import ApprovalRecord, Receipt
from palyra.core.run_steps import ApprovalAnswered
from palyra.errors import IllegalState, Rejected

if TYPE_CHECKING:
    from palyra.actors.office import Office
    from palyra.actors.run_handle import RunHandle

SETTLE_TIMEOUT_S = 30.0  # an answer waits this long for its commit before it counts as not taken


class Answer(msgspec.Struct, frozen=True):
    """Somebody's answer; `by` was authorised by the gateway."""

    command: ResolveApproval
    by: str
    reply: Reply[Resolved]
    receipt: ReceiptKey | None = None


class _OpenPrompt(NamedTuple):
    prompt: ApprovalRecord
    ticket: Ticket  # of its commit
    mailbox: Mailbox[Answer]


class Approvals:
    """The open prompts of the daemon, by id: where an answer is handed in."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenPrompt] = {}

    def find(self, approval_id: str) -> Mailbox[Answer] | None:
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

    @contextmanager
    def opened(self, prompt: ApprovalRecord, ticket: Ticket) -> Generator[Mailbox[Answer]]:
        """The prompt is open inside the block; late answers get ActorGone after it."""
        mailbox: Mailbox[Answer] = Mailbox(prompt.approval_id, 64)
        self._open[prompt.approval_id] = _OpenPrompt(prompt, ticket, mailbox)
        try:
            yield mailbox
        finally:
            del self._open[prompt.approval_id]
            mailbox.close()


async def ask_person(
    run: "RunHandle", office: "Office", prompt: ApprovalRecord, ticket: Ticket
) -> None:
    """Ask, wait until the deadline, tell the run, tell everybody who answered.

    The prompt is open at once: it is on the wire, and an answer to it waits for the commit.
    Cancellation: the prompt closes; the run has recorded what became of it.
    """
    with office.approvals.opened(prompt, ticket) as mailbox, mailbox.receiver() as answers:
        await ticket.wait()
        office.hub.notify(
            "approval.requested", prompt, principal=prompt.principal, scope="approvals:read"
        )
        run.wake()
        first: Answer | None = None
        left_ms = max(0, prompt.expires_ms - office.now_ms())  # it may have run out while down
        with trio.move_on_after(left_ms / 1000):
            first = await _first_valid(answers, prompt, office.now_ms)
        outcome = await _settle(run, office, prompt, first)
        for _ in range(mailbox.depth):
            late = await answers.receive()
            late.reply.put(msgspec.structs.replace(outcome, won=False))


async def _first_valid(answers: Receiver[Answer], prompt: ApprovalRecord, now_ms: NowMs) -> Answer:
    """The first answer that counts; the others hear why they do not."""
    while True:
        answer = await answers.receive()
        try:
            check_answer(prompt, answer.command, now_ms())
        except Rejected as refused:
            answer.reply.fail(refused)
        else:
            return answer


async def _settle(
    run: "RunHandle", office: "Office", prompt: ApprovalRecord, first: Answer | None
) -> Resolved:
    """Have the run record the outcome; answer the winner once it is committed."""
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
        )

    key = None if first is None else first.receipt
    try:
        seq = await run.hear(
            heard,
            receipt=None if key is None else lambda seq: receipt_for(key, outcome(seq), now_ms),
            timeout_s=SETTLE_TIMEOUT_S,
        )
    except IllegalState:  # the run is ending: its end, once committed, closes this prompt
        await trio.sleep_forever()
    if first is not None:
        first.reply.put(outcome(seq))
    tell_resolved(office.hub, prompt, outcome(seq))
    return outcome(seq)


def _hear(prompt: ApprovalRecord, first: Answer | None) -> ApprovalAnswered:
    """What the run is told: the answer, or that nobody gave one."""
    if first is None:
        return ApprovalAnswered(
            approval_id=prompt.approval_id,
            decision="deny",
            scope="once",
            by="deadline",
            reason="nobody answered in time",
        )
    return ApprovalAnswered(
        approval_id=prompt.approval_id,
        decision=first.command.decision,
        scope=first.command.scope,
        by=first.by,
        reason=first.command.reason,
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
