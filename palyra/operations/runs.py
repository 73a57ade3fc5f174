"""Runs as every transport uses them: start, fork, steer, cancel, read, wait; and `policy.explain`.

Owns: nothing; it is a set of functions over the sessions, the journal and the actors.
Never: takes the caller's identity from a message, distinguishes a run of another principal from a
missing one, or reports a success before the events behind it are committed.

A message is submitted in four steps: choose agent and model, reach the session, let the session
place the message, wait for the commit.  A message that steers goes on to the active run; if that
refuses it, because it is ending or crashed, the message is queued as a followup.  A run refuses only
when nothing of the message is on its tape, so no message is lost and none is recorded twice.

A fork is submitted in the same way, as the first message of a new session, with the conversation it
inherits from a committed tape.  Artifacts that the inherited calls name are shared with the new
session; artifacts of later calls are not.
"""

from functools import partial
from typing import Any, Literal

import msgspec
import structlog
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.run.environment import look_for_secrets
from palyra.actors.run.gather import find_files, resolve_all
from palyra.actors.run.handle import RunHandle
from palyra.actors.run.replay import Replayer
from palyra.actors.run.tool_call import inspect
from palyra.actors.session.handle import CancelQueued, SteerInstead, Submitted
from palyra.actors.session.recovery import abandon_run
from palyra.actors.session.registry import SessionServices
from palyra.actors.session.sessions import ANSWER_S, Sessions
from palyra.core.access import Caller
from palyra.core.context.session_compaction import render
from palyra.core.context.views import ContextExplained, ReferencePreview, preview_references
from palyra.core.journal.changes import RunFilter
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import AgentRecord, IdempotencyRecord, RunRecord
from palyra.core.learning.procedures import MODEL
from palyra.core.model.images import is_picture
from palyra.core.model.messages import ProposedCall
from palyra.core.model.route_plan import ModelChoice
from palyra.core.policy.request import Explanation
from palyra.core.ports import Artifacts, NowMs
from palyra.core.replay.report import ReplayReport
from palyra.core.run.inputs import Cancel, Steer
from palyra.core.run.state import COMPACTION, begin
from palyra.core.session.commands import (
    Cancelled,
    Forked,
    InheritedConversation,
    QueuedBehind,
    RunView,
    SessionCompacted,
    Started,
    StartRun,
    Steered,
)
from palyra.core.session.fork import ForkPoint, InheritedView, make_branch, require_open_end
from palyra.core.session.queue import make_acceptance
from palyra.core.text.references import remove_references
from palyra.core.tool.spec import ToolFailure
from palyra.errors import (
    ActorGone,
    Draining,
    IllegalState,
    InvalidParams,
    NotFound,
    Overloaded,
    PalyraError,
    TooSlow,
    Unavailable,
)
from palyra.services.context.images import keep_pictures
from palyra.services.registry.model_router import needs_of
from palyra.services.session.checkpoints import ForkMark, find_mark
from palyra.services.tape.contexts import find_context
from palyra.services.upkeep.admission import Admission

log = structlog.get_logger("palyra.run")
RECOVERING_POLL_S = 0.05
QUEUE_POLL_S = 0.1  # between looks at the run that a queued one waits for
WRITABLE_POLL_S = 0.25  # between checks that the journal takes writes
MAX_BACKLOG_ROWS = 50_000  # about a second of the journal's work; beyond it new runs are refused
PAGE_ROWS = 1_000
Until = Literal["terminal", "attention", "person"]


class Gateway:
    """Operations on runs.  Every method takes the authenticated caller first."""

    def __init__(self, services: SessionServices, sessions: Sessions, admission: Admission) -> None:
        self._services = services
        self._sessions = sessions
        self._replayer = Replayer(services)
        self.is_draining = False
        self.admission = admission

    @property
    def is_idle(self) -> bool:
        """True if no new run is started: in a drain, and while the daemon is suspended."""
        return self.is_draining or self.admission.suspension is not None

    async def start_run(
        self, caller: Caller, command: StartRun, receipt: IdempotencyKey | None = None
    ) -> Started:
        """Start, queue or steer a run; return it once its acceptance is committed.

        Raises Overloaded, Draining, Suspended, NotFound (session, channel), Unpaired, Conflict,
        IllegalState, InvalidParams, Unavailable.
        Cancellation: the run may have been accepted; repeat with the idempotency key.
        """
        caller.require("runs:write")
        if self.is_draining:
            raise Draining("the daemon is shutting down: connect again in a moment")
        self.admission.check()
        return await self._start(caller, command, receipt)

    async def check_command(self, command: StartRun) -> None:
        """Raise InvalidParams, naming the known ones, for an agent or a model that does not exist."""
        await choose(self._services, command)

    async def start_child(self, caller: Caller, command: StartRun) -> Started:
        """Start a delegated run, also in a drain or suspension, in which its parent may go on.

        Raises the other errors of `start_run`.
        Cancellation: the run may have been accepted; it is found by its id.
        """
        caller.require("runs:write")
        return await self._start(caller, command, None)

    async def _start(
        self, caller: Caller, command: StartRun, receipt: IdempotencyKey | None
    ) -> Started:
        self._check_room()
        await self._wait_complete()
        services = self._services
        chosen = await choose(services, await services.channels.route(caller, command))
        await look_for_secrets(services, msgspec.json.encode(chosen.text))
        placed = await self._place(caller, chosen, receipt)
        if isinstance(placed, SteerInstead):
            try:
                placed = await self._steer_instead(placed.run, caller, chosen, receipt)
            except (IllegalState, ActorGone):  # it is ending, or its actor ended first
                # Under the name it came with: a session whose first commit failed has no record.
                followup = msgspec.structs.replace(chosen, queue_mode="followup")
                placed = await self._place(caller, followup, receipt)
        assert isinstance(placed, Submitted)  # noqa: S101 - a followup never steers
        try:
            await _settle(placed.ticket)
        except ActorGone:  # it may be committed: the run learns it from its tape
            raise
        except PalyraError:
            if placed.started.disposition == "started":  # no model is paid for a run that is none
                run_id = placed.started.run_id
                services.registry.stop_actor(f"run:{run_id}", "its acceptance was refused")
            raise
        return placed.started

    async def compact_session(
        self, caller: Caller, session_id: str, receipt: IdempotencyKey | None = None
    ) -> SessionCompacted:
        """Summarise the session by a run of its own, which takes its place in the queue.

        Raises the errors of `start_run`.
        Cancellation: the run may have been accepted; repeat with the idempotency key.
        """
        command = StartRun(
            text="/compact", session_id=session_id, origin=COMPACTION, queue_mode="followup"
        )
        started = await self.start_run(caller, command, receipt)
        # A repetition is answered with the recorded `Started`, which has these two fields as well.
        return SessionCompacted(session_id=session_id, run_id=started.run_id)

    async def preview_compaction(self, caller: Caller, session_id: str) -> SessionCompacted:
        """Return the deterministic summary that a compaction would make now.

        Raises NotFound.  Cancellation: nothing happened.
        """
        session = await self._sessions.get(caller, session_id)
        services = self._services
        command = StartRun(text="", session_id=session_id, origin=COMPACTION)
        accepted = make_acceptance(command, caller, session, services.router.default)
        run = begin("run_preview", accepted, services.now_ms())
        history = await services.histories.find(run)
        planned = await services.compactor.preview(run, history)
        if isinstance(planned, str):
            return SessionCompacted(session_id=session_id, reason=planned)
        text, _ = services.redact(render(planned, services.fence_key).encode())
        return SessionCompacted(
            session_id=session_id,
            before_tokens=planned.before_tokens,
            after_tokens=planned.after_tokens,
            messages=sum(each.last - each.first + 1 for each in planned.covers),
            text=text.decode(),
            facts=tuple(
                msgspec.structs.replace(each, text=services.redact(each.text.encode())[0].decode())
                for each in planned.ledger.facts
            ),
        )

    def _check_room(self) -> None:
        services = self._services
        if len(services.registry.runs) >= services.max_open:
            raise Overloaded(
                f"{services.max_open} runs are open, which is the limit (runs.max_open)",
                retry_after_ms=1_000,
            )
        if services.journal.backlog > MAX_BACKLOG_ROWS:
            raise Overloaded("the journal is behind", retry_after_ms=500)

    async def _wait_complete(self) -> None:
        """Wait until recovery is done, so that no new message overtakes an open run."""
        with trio.move_on_after(ANSWER_S):
            while not self._services.registry.is_complete:  # noqa: ASYNC110 - recovery sends no notification
                await trio.sleep(RECOVERING_POLL_S)
            return
        raise Unavailable("open runs are still being recovered: try again in a moment")

    async def _place(
        self, caller: Caller, command: StartRun, receipt: IdempotencyKey | None
    ) -> Submitted | SteerInstead:
        """Send the message to its session; repeat with a new actor if the session just ended."""
        while True:
            session = await self._sessions.reach(caller, command)
            try:
                kept = await self._keep_pictures(session.session_id, command)
                await share_artifacts(self._services, session.session_id, command.branch)
                return await session.submit(kept, caller, receipt, timeout_s=ANSWER_S)
            except ActorGone:
                if self._services.registry.sessions.get(session.session_id) is session:
                    raise

    async def _steer_instead(
        self, run: RunHandle, caller: Caller, command: StartRun, receipt: IdempotencyKey | None
    ) -> Submitted:
        """Append the message to the active run's tape.

        Raises IllegalState, ActorGone: not appended.
        """
        session_id = run.run.accepted.session_id

        def steered(seq: int) -> Started:
            return Started(run_id=run.run_id, session_id=session_id, seq=seq, disposition="steered")

        def keep(key: IdempotencyKey, seq: int) -> IdempotencyRecord:
            return receipt_for(key, steered(seq), self._services.now_ms())

        kept = await self._keep_pictures(session_id, command)
        message = Steer(text=command.text, by=caller.principal, attachments=kept.attachments)
        make = partial(keep, receipt) if receipt is not None else None
        taken = await run.send(message, receipt=make, timeout_s=ANSWER_S)
        return Submitted(steered(taken.seq), taken.ticket)

    async def _keep_pictures(self, session_id: str, command: StartRun) -> StartRun:
        services, now_ms = self._services, self._services.now_ms()
        return await keep_pictures(
            services.artifacts, services.run_blocking, session_id, command, now_ms
        )

    async def fork_run(
        self,
        caller: Caller,
        run_id: str,
        at_seq: int,
        text: str | None,
        receipt: IdempotencyKey | None = None,
    ) -> Forked:
        """Fork one of the caller's own runs into a new session.

        Raises the errors of `start_run`, NotFound for a run of another principal, and InvalidParams
        for a seq that cannot be forked.  Cancellation: as for `start_run`.
        """
        caller.require("runs:write")
        record = await self._get_record(caller, run_id)
        if record.principal != caller.principal:
            raise NotFound(f"no run {run_id!r}", field="run_id")
        mark = await self._services.journal.read(lambda store: find_mark(store, run_id, at_seq))
        branch = await self.branch(mark)
        if text is None:
            require_open_end(branch)
        started = await self.start_run(caller, fork_command(mark.point, branch, text), receipt)
        assert isinstance(started, Forked)  # noqa: S101 - the reply to a fork
        return started

    async def branch(self, mark: ForkMark) -> InheritedConversation:
        """Return what a branch inherits at the mark: conversation, summary, pins.

        Cancellation: nothing happened.
        """
        view = await self._services.histories.view(mark.point.run, mark.history)
        branch = make_branch(mark.point, mark.link, view, mark.artifacts)
        session = await self._services.journal.find(
            lambda store: store.find_session(branch.session_id)
        )
        pins = () if session is None else session.pins
        kept = tuple(pin for pin in pins if mark.covers(pin, branch.summary))
        return msgspec.structs.replace(branch, pins=kept)

    async def replay_run(self, caller: Caller, run_id: str, *, strict: bool) -> ReplayReport:
        """Replay the run's tape; see `actors.run.replay`.  Raises NotFound."""
        caller.require("runs:read")
        await self._get_record(caller, run_id)
        return await self._replayer.replay(run_id, strict=strict)

    async def steer_run(
        self, caller: Caller, run_id: str, text: str, receipt: IdempotencyKey | None = None
    ) -> int:
        """Steer an open run, waiting or active; return the committed seq of `steer.received`.

        Raises NotFound, IllegalState, and the errors of `RunHandle.send` and `PendingCommit.wait`.
        Cancellation: the message may still take effect.
        """
        caller.require("runs:write")
        record = await self._get_record(caller, run_id)
        run = self._services.registry.runs.get(run_id)
        if run is None or record.is_terminal:
            raise IllegalState(f"{run_id} is {record.state}: start another run")
        message, make = Steer(text=text, by=caller.principal), None
        if receipt is not None:
            make = partial(_steer_receipt, receipt, self._services.now_ms)
        taken = None
        session = self._services.registry.sessions.get(record.session_id)
        if session is not None and run in session.waiting:
            taken = await session.steer(run_id, message, make, timeout_s=ANSWER_S)
        if taken is None:
            taken = await run.send(message, receipt=make, timeout_s=ANSWER_S)
        await _settle(taken.ticket)
        return taken.seq

    async def cancel_run(self, caller: Caller, run_id: str, reason: str) -> Cancelled:
        """Cancel a run; return its committed terminal state.  A run that has ended keeps its state.

        A stranded run is aborted (`actors.session.recovery`).
        """
        caller.require("runs:write")
        record = await self._get_record(caller, run_id)
        if not record.is_terminal:
            cancel = Cancel(reason=reason, by=caller.principal)
            with trio.move_on_after(ANSWER_S):
                if run_id in self._services.registry.stranded:
                    await abandon_run(self._services, record, cancel)
                    self._services.registry.end_children(run_id)
                else:
                    await self._cancel(caller, record, cancel)
            record = await self._get_record(caller, run_id)
            if not record.is_terminal:
                raise TooSlow(f"{run_id} did not end within {ANSWER_S:g} s")
        return Cancelled(state=record.state, applied_seq=record.head_seq)

    async def _cancel(self, caller: Caller, record: RunRecord, cancel: Cancel) -> None:
        registry = self._services.registry
        notified: RunHandle | None = None
        while (run := await self.find_open(caller, record.run_id)) is not None:
            if run is not notified:  # a resumed run has another handle
                notified = run
                run.inbox.offer(cancel)
                session = registry.sessions.get(record.session_id)
                if session is not None:
                    session.inbox.offer(CancelQueued(record.run_id, cancel))
            with trio.move_on_after(WRITABLE_POLL_S):
                await run.wait_change()
            if not self._services.journal.has_room:
                raise Unavailable(
                    f"the journal accepts no writes: {record.run_id} will be cancelled once it does"
                )

    async def get_run(self, caller: Caller, run_id: str) -> RunView:
        """Return the committed run.  Raises NotFound, also for a run of another principal."""
        caller.require("runs:read")
        return self._view(await self._get_record(caller, run_id))

    async def read_conversation(self, caller: Caller, run_id: str) -> InheritedView:
        """Return the conversation up to the end of a run, its session's history included.

        Raises NotFound, and Purged for a run without its content.
        """
        caller.require("runs:read")
        await self._get_record(caller, run_id)
        return await self._services.histories.conversation(run_id)

    async def list_runs(self, caller: Caller, wanted: RunFilter) -> list[RunView]:
        """Return the runs that the caller sees, newest first."""
        caller.require("runs:read")
        if caller.principal_filter is not None:
            wanted = msgspec.structs.replace(wanted, principal=caller.principal_filter)
        found = await self._services.journal.read(lambda store: store.list_runs(wanted))
        return [self._view(record) for record in found]

    async def wait_run(
        self, caller: Caller, run_id: str, *, until: Until, timeout_s: float
    ) -> tuple[RunView, bool]:
        """Wait until the run has ended (or needs a person); return it, and True if time ran out."""
        caller.require("runs:read")
        run = self._services.registry.runs.get(run_id)
        if run is None or not caller.sees(run.run.accepted.principal):
            record = await self._get_record(caller, run_id)
            if record.is_terminal:
                return self._view(record), False
        with trio.move_on_after(timeout_s) as scope:
            await self._wait(caller, run_id, until)
        if run is not None and run.is_ended:  # then its state in memory is the committed one
            return self._view(run.run.to_record()), False
        return self._view(await self._get_record(caller, run_id)), scope.cancelled_caught

    async def _wait(self, caller: Caller, run_id: str, until: Until) -> None:
        """Wait until the run has ended or needs a person; for `person` its queue may need one too."""
        approvals = self._services.approvals
        while (run := await self.find_open(caller, run_id)) is not None:
            behind = self._find_behind(run) if until == "person" else None
            if until != "terminal" and approvals.find_open(run_id) is not None:
                return
            if behind is None:
                await run.wait_change()
            elif behind.needs_person:
                return
            else:
                with trio.move_on_after(QUEUE_POLL_S):  # a change of the queue is none of the run
                    await run.wait_change()

    def _find_behind(self, run: RunHandle) -> QueuedBehind | None:
        """Return what keeps the run in its session's queue; None for a run outside of it."""
        registry = self._services.registry
        session = registry.sessions.get(run.run.accepted.session_id)
        if session is None or run not in session.waiting:
            return None
        active = session.active
        if active is None:
            return QueuedBehind(paused=session.is_paused)
        return QueuedBehind(
            run_id=active.run_id,
            phase=self._view(active.run.to_record()).phase,
            approval_id=self._services.approvals.find_open(active.run_id),
            paused=session.is_paused,
        )

    async def find_open(self, caller: Caller, run_id: str) -> RunHandle | None:
        """Return the run's handle, None once it has ended.

        An open run without a handle has not been recovered yet: wait.
        Raises IllegalState for a stranded run.
        """
        registry = self._services.registry
        while True:
            run = registry.runs.get(run_id)
            if run is not None:
                return None if run.is_ended else run
            if (await self._get_record(caller, run_id)).is_terminal:
                return None
            if run_id in registry.stranded:
                raise IllegalState(
                    f"{run_id} cannot be resumed: {registry.stranded[run_id]}; "
                    "its tape can still be read, the next start tries again, and cancelling it "
                    "gives it up"
                )
            await trio.sleep(RECOVERING_POLL_S)

    def _view(self, record: RunRecord) -> RunView:
        registry = self._services.registry
        run = registry.runs.get(record.run_id)
        if run is None:  # not recovered yet, if the daemon has just started
            is_recovering = record.state == "in_progress" and not registry.is_complete
        else:
            is_recovering = run.is_recovering
        is_stranded = record.run_id in registry.stranded
        behind = None if run is None or record.is_terminal else self._find_behind(run)
        return RunView.of(
            record, is_recovering=is_recovering, is_stranded=is_stranded, behind=behind
        )

    async def _get_record(self, caller: Caller, run_id: str) -> RunRecord:
        record = await self._services.journal.find(lambda store: store.find_run(run_id))
        if record is None or not caller.sees(record.principal):
            raise NotFound(f"no run {run_id!r}", field="run_id")
        return record

    async def explain_context(
        self, caller: Caller, run_id: str, turn: int | None = None
    ) -> ContextExplained:
        """Explain the prompt of a turn.  Raises NotFound."""
        caller.require("runs:read")
        await self._get_record(caller, run_id)
        return await self._services.journal.read(lambda store: find_context(store, run_id, turn))

    async def preview_references(
        self,
        caller: Caller,
        text: str,
        agent: str | None = None,
        session_id: str | None = None,
        workspace: str | None = None,
    ) -> ReferencePreview:
        """Resolve the references of a message that is not sent.  Raises InvalidParams, NotFound.

        Cancellation: the sources are abandoned.
        """
        caller.require("runs:write")
        services = self._services
        session, where = await self._sessions.find_workspace(caller, session_id, workspace)
        prefix = services.agents.prefix(
            await services.agents.get_present(agent), caller.principal, where
        )
        asker = services.sources.for_caller(caller, prefix, session, where)
        async with trio.open_nursery() as late:
            references = await resolve_all(late, services.sources, asker, text)
            files = await find_files(late, services.sources, asker, [text])
        return preview_references(remove_references(text), references, files.sources)

    async def explain_policy(
        self,
        caller: Caller,
        tool: str,
        arguments: dict[str, Any],
        agent: str | None = None,
        *,
        session_id: str | None = None,
        workspace: str | None = None,
    ) -> Explanation:
        """Explain the verdict on a call without running it.  Raises InvalidParams for a refused call.

        For callers that may start runs the explanation includes a preflight, as in a run.
        Cancellation: the preflight runs to its end in its thread.
        """
        caller.require("tools:read")
        services = self._services
        session, where = await self._sessions.find_workspace(caller, session_id, workspace)
        prefix = services.agents.prefix(
            await services.agents.get_present(agent), caller.principal, where
        )
        proposed = ProposedCall(call_id="", tool=tool, arguments=arguments)
        explain = partial(
            services.gate.explain,
            caller,
            proposed,
            prefix,
            session=session,
            workspace=where,
            now_ms=services.now_ms(),
        )
        explanation, inspectable = explain()
        if inspectable is not None and caller.may("runs:write"):
            try:
                explanation, _ = explain(inspection=await inspect(services, inspectable))
            except ToolFailure as refused:
                raise InvalidParams(refused.message, field="arguments") from None
        return explanation


def _steer_receipt(key: IdempotencyKey, now_ms: NowMs, seq: int) -> IdempotencyRecord:
    return receipt_for(key, Steered(seq=seq), now_ms())


# --- submitting a message ------------------------------------------------------------------------


async def _settle(ticket: PendingCommit) -> None:
    """Wait for the commit, even when cancelled: the result is committed or refused, never unknown."""
    with trio.CancelScope(shield=True):
        await ticket.wait()


async def choose(services: SessionServices, command: StartRun) -> StartRun:
    """Return the command with the agent's present version and the run's model.

    Raises InvalidParams for an unknown model, and for one that is known to lack a capability of
    the run if no other may replace it: a model that the client named and, for pictures, any model
    unless routes are enforced.
    """
    agent = await services.agents.get_present(command.agent)
    model = command.model or agent.model or services.router.default
    is_free = model != MODEL or command.delegated is not None  # the player of procedures is not
    if not (is_free and services.router.is_there(model)):
        whose = f" (of the agent {agent.name!r})" if command.model is None else ""
        known = ", ".join(sorted(services.models))
        raise InvalidParams(
            f"no model {model!r}{whose}; known: {known}; `palyra models add` connects another provider",
            field="model",
        )
    choice = command.model_choice or _choice(command, agent)
    has_pictures = _needs_vision(services, command)
    if choice == "pinned":
        _check(services, model, command, agent)
    elif has_pictures and services.router.table.mode != "enforced":
        services.router.check(model, ("vision",))
    return msgspec.structs.replace(
        command,
        agent=agent.name,
        agent_version=agent.version,
        model=model,
        model_choice=choice,
    )


def _needs_vision(services: SessionServices, command: StartRun) -> bool:
    """True if the message has pictures, and a model that sees none gets no lines instead."""
    has_pictures = any(map(is_picture, command.attachments))
    return has_pictures and not services.router.describes_pictures


def _choice(command: StartRun, agent: AgentRecord) -> ModelChoice:
    """Return how the run came by its model."""
    if command.model is not None:
        return "pinned"
    return "default" if agent.model is None else "preferred"


def _check(services: SessionServices, model: str, command: StartRun, agent: AgentRecord) -> None:
    brief = command.brief
    has_own = brief is not None and bool(brief.tools)
    has_tools = has_own or bool(services.agents.prefix(agent, "").tools)
    needs = needs_of(
        has_pictures=_needs_vision(services, command),
        json_mode=command.json_mode,
        has_tools=has_tools,
    )
    services.router.check(model, needs)


# --- forks ---------------------------------------------------------------------------------------


def fork_command(point: ForkPoint, branch: InheritedConversation, text: str | None) -> StartRun:
    """Return the message that forks a run; agent, model and limits are those of the run."""
    accepted = point.run.accepted
    return StartRun(
        text=text or "",
        agent=accepted.agent,
        model=point.run.model,
        model_choice="pinned" if accepted.model_choice == "pinned" else "preferred",
        approval_mode=accepted.approval_mode,
        json_mode=accepted.json_mode,
        budget=accepted.budget,
        origin="interactive" if accepted.origin == COMPACTION else accepted.origin,
        branch=branch,
        workspace=accepted.workspace,
    )


async def share_artifacts(
    services: SessionServices, session_id: str, branch: InheritedConversation | None
) -> None:
    """Store the artifacts of an inherited conversation for the new session as well.

    A missing artifact, or one the store refuses, is skipped: the conversation has its excerpt.
    Cancellation: waits for the thread.
    """
    if branch is not None and branch.artifacts:
        await services.run_blocking(_share, services.artifacts, session_id, branch)


def _share(artifacts: Artifacts, session_id: str, branch: InheritedConversation) -> None:
    for name in dict.fromkeys(branch.artifacts):
        try:
            found = artifacts.find(branch.session_id, name)
            if found is not None:
                artifact, data = found
                artifacts.put(msgspec.structs.replace(artifact, session_id=session_id), data)
        except Unavailable as error:
            log.warning("artifact was not inherited", artifact=name, error=error.message)
