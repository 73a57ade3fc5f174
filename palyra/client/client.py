"""The client: one typed method per method of protocol v1.

Runs, tapes and approvals are here, the rest of the daemon in `admin`.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypedDict, Unpack

from palyra.client.operations import OperationMethods
from palyra.client.results import (
    ApprovalList,
    GrantList,
    Json,
    RawPage,
    RunList,
    RunView,
    TapePage,
    to_page,
)
from palyra.client.subscription import Inbox, Subscription
from palyra.core.approval import Resolved
from palyra.core.journal.records import (
    ApprovalRecord,
    ApprovalScope,
    GrantRecord,
    QueueMode,
    RunState,
)
from palyra.core.replay.report import ReplayReport
from palyra.core.session.commands import Cancelled, Forked, Started, Steered
from palyra.core.tape.events import ApprovalMode, Budget
from palyra.errors import Unavailable

WAIT_MS = 60_000  # one `run.wait`; the daemon takes up to 120 000


class RunOptions(TypedDict, total=False):
    """What `run.start` takes besides the text; the daemon has a default for each."""

    session_id: str | None
    session_key: str | None
    agent: str | None
    model: str | None
    queue_mode: QueueMode
    approval_mode: ApprovalMode
    json_mode: bool
    budget: Budget
    attachments: Sequence[Json]
    origin: str
    channel: str | None
    conversation_id: str | None
    sender: str | None
    idempotency_key: str


class RunsWanted(TypedDict, total=False):
    """Which runs to list."""

    session_id: str | None
    principal: str | None
    states: Sequence[RunState]
    cursor: str | None
    limit: int


class AnswerOptions(TypedDict, total=False):
    """What `approval.resolve` takes besides the answer."""

    scope: ApprovalScope
    ttl_ms: int | None
    reason: str
    idempotency_key: str


class Client(OperationMethods):
    """A connection to one daemon that mends itself.

    Every method raises the PalyraError that the daemon answered with.  Mutations carry an
    idempotency key (yours, or one made here), so they are safely repeated when the connection is
    lost under way; other requests then raise Unavailable.  Deadlines are the caller's:
    `with trio.fail_after(5): await client.ping()`.
    """

    # --- runs ---

    async def start_run(self, text: str, **options: Unpack[RunOptions]) -> Started:
        """The message is durable and belongs to the run named in the result."""
        return await self._mutate("run.start", {"text": text, **options}, Started)

    async def fork_run(
        self,
        run_id: str,
        at_seq: int,
        text: str | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Forked:
        """A new run, in a session of its own, that goes on from a run as it was at `at_seq`.

        Without a text the model goes on with what it had; `at_seq` of the result is where the
        conversation was whole, at or before the one asked for.
        """
        params = {
            "run_id": run_id,
            "at_seq": at_seq,
            "text": text,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("run.fork", params, Forked)

    async def steer(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> int:
        """The committed seq of a word that reaches the model at its next boundary."""
        params = {"run_id": run_id, "text": text, "idempotency_key": idempotency_key}
        return (await self._mutate("run.steer", params, Steered)).seq

    async def cancel(
        self, run_id: str, reason: str | None = None, *, idempotency_key: str | None = None
    ) -> Cancelled:
        """The run's terminal state; a run that had ended already keeps its own."""
        params = {"run_id": run_id, "reason": reason, "idempotency_key": idempotency_key}
        return await self._mutate("run.cancel", params, Cancelled)

    async def get_run(self, run_id: str) -> RunView:
        return await self._ask("run.get", {"run_id": run_id}, RunView)

    async def list_runs(self, **wanted: Unpack[RunsWanted]) -> RunList:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        return await self._ask("run.list", {**wanted}, RunList)

    async def wait_run(
        self, run_id: str, *, until: Literal["terminal", "attention"] = "terminal"
    ) -> RunView:
        """The run once it has ended or, with "attention", also once it needs a person.

        Waits as long as it takes, across lost connections.
        """
        params = {"run_id": run_id, "until": until, "timeout_ms": WAIT_MS}
        while True:
            try:
                view = await self._ask("run.wait", params, RunView)
            except Unavailable:
                await self._line.wait_link()  # raises when there will be none
                continue
            if not view.timed_out:
                return view

    async def replay_run(self, run_id: str, *, strict: bool = False) -> ReplayReport:
        """What deciding the run again from its tape comes to; strictly with the rules of now."""
        return await self._ask("run.replay", {"run_id": run_id, "strict": strict}, ReplayReport)

    # --- tapes ---

    async def read_tape(
        self, run_id: str, after_seq: int = -1, *, limit: int | None = None
    ) -> TapePage:
        """A page of committed events with seq > after_seq."""
        params = {"run_id": run_id, "after_seq": after_seq, "limit": limit}
        return to_page(await self._ask("tape.read", params, RawPage))

    @asynccontextmanager
    async def events(
        self, run_id: str, after_seq: int = -1, *, progress: bool = True
    ) -> AsyncGenerator[Subscription]:
        """All events after `after_seq`, then live ones, as an async iterator.

        The iterator ends after the run's terminal event.  It survives lost connections and
        restarts of the daemon without gap or repeat; events that a crash undid are announced by
        `Dropped`.  Raises NotFound for an unknown run.
        """
        subscription = self._line.subscribe(run_id, after_seq, progress=progress)
        try:
            await subscription.wait_opened()
            yield subscription
        finally:
            self._line.unsubscribe(subscription)

    @asynccontextmanager
    async def notices(self) -> AsyncGenerator[Inbox]:
        """Notifications outside subscriptions (approvals, draining) from now on.

        They are news: after a lost connection, list again what matters.
        """
        inbox = self._line.open_inbox()
        try:
            yield inbox
        finally:
            self._line.close_inbox(inbox)

    # --- approvals ---

    async def list_approvals(
        self,
        *,
        run_id: str | None = None,
        pending_only: bool | None = None,
        limit: int | None = None,
    ) -> list[ApprovalRecord]:
        """Pending ones first."""
        params = {"run_id": run_id, "pending_only": pending_only, "limit": limit}
        return (await self._ask("approval.list", params, ApprovalList)).approvals

    async def get_approval(self, approval_id: str) -> ApprovalRecord:
        return await self._ask("approval.get", {"approval_id": approval_id}, ApprovalRecord)

    async def resolve_approval(
        self,
        approval_id: str,
        decision: Literal["allow", "deny"],
        digest: str,
        **options: Unpack[AnswerOptions],
    ) -> Resolved:
        """The recorded outcome; `won` is false when somebody else answered first.

        `digest` is the one that was shown: an answer to anything else raises DigestMismatch.
        """
        params = {"approval_id": approval_id, "decision": decision, "digest": digest, **options}
        return await self._mutate("approval.resolve", params, Resolved)

    async def list_grants(
        self, *, live_only: bool | None = None, limit: int | None = None
    ) -> list[GrantRecord]:
        """Answers that hold for more than one call, newest first."""
        params = {"live_only": live_only, "limit": limit}
        return (await self._ask("approval.grants", params, GrantList)).grants

    async def revoke_grant(self, grant_id: str) -> GrantRecord:
        """The grant with its end; one that had ended keeps it."""
        return await self._mutate("approval.revoke", {"grant_id": grant_id}, GrantRecord)
