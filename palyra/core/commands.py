"""What clients ask the daemon to do, and its answers, whatever the transport."""

from typing import Any, Literal

import msgspec

from palyra.core.branch import Branch
from palyra.core.brief import Brief
from palyra.core.events import ApprovalMode, Budget
from palyra.core.journal import UsageBy, UsageFilter, UsageSum
from palyra.core.prompt import ToolMessage
from palyra.core.records import (
    ApprovalScope,
    BudgetMetric,
    BudgetScope,
    BudgetWindow,
    PairingMode,
    QueueMode,
    RunPhase,
    RunRecord,
    RunState,
)
from palyra.core.route_plan import ModelChoice

Disposition = Literal["started", "queued", "merged", "steered", "interrupted"]


class ReceiptKey(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key and the digest of the request body it came with."""

    principal: str
    key: str
    body_sha256: str


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """One message to the daemon."""

    text: str
    session_id: str | None = None
    session_key: str | None = None
    agent: str | None = None
    agent_version: int = 0
    channel: str | None = None
    conversation_id: str | None = None
    sender: str | None = None
    model: str | None = None
    model_choice: ModelChoice | None = None  # None: decided where the agent is known
    queue_mode: QueueMode | None = None  # None: the session's
    approval_mode: ApprovalMode = "ask"
    json_mode: bool = False
    budget: Budget = Budget()
    attachments: tuple[dict[str, Any], ...] = ()
    origin: str = "interactive"
    branch: Branch | None = None  # a conversation to go on from; then the text may be empty
    run_id: str | None = None  # a fresh id of the daemon's own making; None: the session makes one
    brief: Brief | None = None
    results: tuple[ToolMessage, ...] = ()  # of calls handed over before; the text may be empty


class SetChannel(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to answer a channel of that principal, or one conversation of it."""

    principal: str
    channel: str
    conversation_id: str = ""
    agent: str
    pairing: PairingMode


class PairingRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A sender waits for an operator: the news of it, without the code."""

    pairing_id: str
    principal: str
    channel: str
    sender: str
    expires_ms: int


class Started(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The message is durable and belongs to this run."""

    run_id: str
    session_id: str
    seq: int  # last committed seq that belongs to the acceptance
    disposition: Disposition
    position: int | None = None  # place in the session's queue, from 1


class Forked(Started, frozen=True, kw_only=True, omit_defaults=True):
    """A run that goes on from another one."""

    parent_run_id: str
    at_seq: int  # the last event of the other run that counts: where its conversation was whole


class ChangeQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a session's queue, all of it or nothing; None and () change nothing."""

    mode: QueueMode | None = None
    paused: bool | None = None
    drop: tuple[str, ...] = ()  # waiting runs that are to end unstarted
    order: tuple[str, ...] = ()  # waiting runs that come first, in this order

    @property
    def is_look(self) -> bool:
        """Whether it asks for nothing but a look."""
        return self == ChangeQueue()


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session's queue as it stands."""

    session_id: str
    mode: QueueMode
    paused: bool
    waiting: list[str]  # run ids, next one first
    messages: int  # in those runs: a collected one has several
    cap: int  # messages that may wait
    active: str | None = None  # the foreground run under way


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """Where the word stands on the tape."""

    seq: int


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The run's state after the cancel took effect."""

    state: RunState
    applied_seq: int


class ResolveApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer."""

    approval_id: str
    decision: Literal["allow", "deny"]
    digest: str
    scope: ApprovalScope = "once"
    ttl_ms: int | None = None
    reason: str = ""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded outcome; `won` tells whether this answer made it."""

    decision: Literal["allow", "deny", "abort"]
    scope: ApprovalScope
    by: str
    resolved_ms: int
    won: bool
    run_id: str
    seq: int | None = None  # of `approval.resolved`; None when it was settled before
    grant_id: str | None = None  # of the grant that the answer made


class UsageWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of the ledger to add up, and how to divide them."""

    lines: UsageFilter = UsageFilter()
    by: UsageBy | Literal["day"] | None = None
    limit: int = 100  # groups


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """What model calls took: in all, and in each group."""

    total: UsageSum
    groups: list[UsageSum]
    is_cut: bool = False  # there are more groups


class AccountView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one account of a budget stands."""

    budget_id: str
    scope: BudgetScope
    subject: str  # "" for everybody
    metric: BudgetMetric
    window: BudgetWindow
    spent: int
    reserved: int  # by calls under way
    soft: int | None = None
    hard: int | None = None
    left: int | None = None  # of the hard limit, neither spent nor reserved
    rolls_ms: int | None = None  # when something of it is free again


class AccountsView(msgspec.Struct, frozen=True, kw_only=True):
    """How accounts stand: by budget, and of each the most spent first."""

    accounts: list[AccountView]
    left_out: int  # how many there are beside


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its derived phase."""

    record: RunRecord
    phase: RunPhase
