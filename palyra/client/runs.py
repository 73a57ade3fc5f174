"""Typed methods about runs."""

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypedDict, Unpack

from palyra.client.feed import to_event
from palyra.client.requests import Json, RequestMethods
from palyra.client.subscription import RunWatching, Subscription
from palyra.core.journal.records import QueueMode, RunPhase, RunState, SessionMode
from palyra.core.replay.report import ReplayReport
from palyra.core.session.commands import Cancelled, Forked, RunView, Started, Steered
from palyra.core.tape.events import ApprovalMode, Budget, MessageCompleted
from palyra.errors import Unavailable
from palyra.net.protocol.results import RunList, RunWaited, TapeItems

WAIT_MS = 60_000  # one `run.wait`; the daemon takes up to 120 000


class RunOptions(TypedDict, total=False):
    """Params of `run.start` besides the text; the daemon has a default for each."""

    session_id: str | None
    session_key: str | None
    workspace: str | None
    agent: str | None
    model: str | None
    queue_mode: QueueMode
    approval_mode: ApprovalMode
    json_mode: bool
    answer_schema: Json
    budget: Budget
    attachments: Sequence[Json]
    origin: str
    channel: str | None
    conversation_id: str | None
    sender: str | None
    mode: SessionMode | None
    idempotency_key: str


class RunsWanted(TypedDict, total=False):
    """Filter of `run.list`."""

    session_id: str | None
    principal: str | None
    states: Sequence[RunState]
    parent_run_id: str | None
    phases: Sequence[RunPhase]
    agent: str | None
    tainted: bool | None
    text: str
    cursor: str | None
    limit: int


class WatchedRuns(TypedDict, total=False):
    """Filter of `run.watch`."""

    session_id: str | None
    principal: str | None
    phases: Sequence[RunPhase]
    agent: str | None
    parent_run_id: str | None
    tainted: bool | None
    text: str


class RunMethods(RequestMethods):
    """Start, fork, steer, cancel, read, wait for and replay runs."""

    async def start_run(self, text: str, **options: Unpack[RunOptions]) -> Started:
        """Send a message; on return it is durable and belongs to the run named in the result."""
        return await self._mutate("run.start", {"text": text, **options}, Started)

    @asynccontextmanager
    async def run_events(
        self, text: str, *, progress: bool = True, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[tuple[Started, Subscription]]:
        """Send a message and iterate over the events of its run, from the first delta on.

        As `start_run` and then `events`, but subscribed before the run begins, so that no progress
        is missed.  Cancellation: the run continues.
        """
        opened: list[tuple[Started, Subscription]] = []
        params = {"text": text, "idempotency_key": secrets.token_hex(16), **options}
        try:
            await self._connection.start_run(
                params, lambda *both: opened.append(both), progress=progress
            )
            await opened[0][1].wait_opened()
            yield opened[0]
        finally:
            for _, subscription in opened:
                self._connection.unsubscribe(subscription)

    async def fork_run(
        self,
        run_id: str,
        at_seq: int,
        text: str | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Forked:
        """Start a run in a new session that continues a run from its state at `at_seq`.

        Without a text the model continues its turn.  `at_seq` of the result is the last event
        that counts: the nearest one, at or before the given seq, where the conversation is
        complete.
        """
        params = {
            "run_id": run_id,
            "at_seq": at_seq,
            "text": text,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("run.fork", params, Forked)

    async def steer(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> int:
        """Send a steering message, which the model gets before its next turn; return its committed seq."""
        params = {"run_id": run_id, "text": text, "idempotency_key": idempotency_key}
        return (await self._mutate("run.steer", params, Steered)).seq

    async def cancel(
        self, run_id: str, reason: str | None = None, *, idempotency_key: str | None = None
    ) -> Cancelled:
        """Cancel a run and return its terminal state; one that has ended already keeps its state."""
        params = {"run_id": run_id, "reason": reason, "idempotency_key": idempotency_key}
        return await self._mutate("run.cancel", params, Cancelled)

    async def get_run(self, run_id: str) -> RunView:
        """Return a run with its state, usage, cost and answer.  Raises NotFound."""
        return await self._ask("run.get", {"run_id": run_id}, RunView)

    async def read_answer(self, run: RunView) -> str | None:
        """Return the whole answer of a run that `get_run` returned; None if it has none."""
        if run.answer is None or not run.answer.is_cut:
            return None if run.answer is None else run.answer.text
        params = {"run_id": run.run_id, "after_seq": run.answer.seq - 1, "limit": 1}
        page = await self._ask("tape.read", params, TapeItems)
        event = to_event(page.events[0]).event
        return event.text if isinstance(event, MessageCompleted) else run.answer.text

    async def list_runs(self, **wanted: Unpack[RunsWanted]) -> RunList:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        return await self._ask("run.list", {**wanted}, RunList)

    @asynccontextmanager
    async def watch_runs(self, **wanted: Unpack[WatchedRuns]) -> AsyncGenerator[RunWatching]:
        """Iterate over the changes of open runs: first all of them, then each that changes.

        `runs` of the iterator has the open ones at any time.  It survives lost connections and
        restarts of the daemon: runs that have ended or left the filter meanwhile are in `gone`.
        """
        watching = self._connection.watch_runs({**wanted})
        try:
            await watching.wait_opened()
            yield watching
        finally:
            self._connection.unsubscribe(watching)

    async def wait_run(
        self, run_id: str, *, until: Literal["terminal", "attention", "person"] = "terminal"
    ) -> RunWaited:
        """Wait until the run has ended or, with "attention", needs an approval.

        With "person" the wait also ends while the run is queued behind one that needs an approval, or
        in a paused queue: `behind` of the result says which.
        The wait is unbounded and survives lost connections.
        """
        params = {"run_id": run_id, "until": until, "timeout_ms": WAIT_MS}
        while True:
            try:
                view = await self._ask("run.wait", params, RunWaited)
            except Unavailable:
                await (
                    self._connection.wait_connection()
                )  # raises when reconnecting has been given up
                continue
            if not view.timed_out:
                return view

    async def replay_run(self, run_id: str, *, strict: bool = False) -> ReplayReport:
        """Decide the run again from its tape and compare; a strict replay uses the current rules."""
        return await self._ask("run.replay", {"run_id": run_id, "strict": strict}, ReplayReport)
