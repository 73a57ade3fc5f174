"""Submitting a message: choose agent and model, find the session, start, queue or steer a run.

The session places the message.  A message that steers goes on to the active run; if that refuses
it, because it is ending or crashed, the message is queued as a followup.  A run refuses only when
nothing of the message is on its tape, so no message is lost and none is recorded twice.

A fork is submitted in the same way, as the first message of a new session, with the conversation it
inherits from a committed tape.  Artifacts that the inherited calls name are shared with the new
session; artifacts of later calls are not.
"""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import structlog
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.run.handle import RunHandle
from palyra.actors.run.services import look_for_secrets
from palyra.actors.session.handle import SteerInstead, Submitted
from palyra.actors.session.services import SessionServices
from palyra.actors.session.sessions import ANSWER_S, Sessions
from palyra.core.access import Caller
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import AgentRecord, IdempotencyRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.images import is_picture
from palyra.core.model.route_plan import ModelChoice
from palyra.core.ports import Artifacts, JournalStore
from palyra.core.run.inputs import Steer
from palyra.core.session.commands import Started, StartRun
from palyra.core.session.fork import ForkPoint, InheritedConversation, find_point, make_branch
from palyra.errors import ActorGone, IllegalState, InvalidParams, Unavailable
from palyra.services.images import keep_pictures
from palyra.services.model_router import needs_of


async def submit(
    services: SessionServices,
    sessions: Sessions,
    caller: Caller,
    command: StartRun,
    receipt: IdempotencyKey | None,
) -> Started:
    """Submit a message; return where it went, once it is committed there.

    Raises the session's errors, TooSlow, and those of `PendingCommit.wait`.
    Cancellation: the message may have been accepted; repeat it with its idempotency key.
    """
    await look_for_secrets(services, msgspec.json.encode(command.text))
    placed = await _place(services, sessions, caller, command, receipt)
    if isinstance(placed, SteerInstead):
        try:
            placed = await _steer(services, placed.run, caller, command, receipt)
        except (IllegalState, ActorGone):  # it is ending, or its actor ended first
            # Under the name it came with: a session whose first commit failed has no record.
            followup = msgspec.structs.replace(command, queue_mode="followup")
            placed = await _place(services, sessions, caller, followup, receipt)
    assert isinstance(placed, Submitted)  # noqa: S101 - a followup never steers
    await _settle(placed.ticket)
    return placed.started


async def _place(
    services: SessionServices,
    sessions: Sessions,
    caller: Caller,
    command: StartRun,
    receipt: IdempotencyKey | None,
) -> Submitted | SteerInstead:
    """Send the message to its session; repeat with a new actor if the session just ended."""
    while True:
        session = await sessions.reach(caller, command)
        try:
            kept = await keep_pictures(
                services.artifacts,
                services.run_blocking,
                session.session_id,
                command,
                services.now_ms(),
            )
            await share_artifacts(services, session.session_id, command.branch)
            return await session.submit(kept, caller, receipt, timeout_s=ANSWER_S)
        except ActorGone:
            if services.registry.sessions.get(session.session_id) is session:
                raise


async def _steer(
    services: SessionServices,
    run: RunHandle,
    caller: Caller,
    command: StartRun,
    receipt: IdempotencyKey | None,
) -> Submitted:
    """Append the message to the active run's tape.  Raises IllegalState, ActorGone: not appended."""

    def steered(seq: int) -> Started:
        return Started(
            run_id=run.run_id,
            session_id=run.run.accepted.session_id,
            seq=seq,
            disposition="steered",
        )

    def keep(key: IdempotencyKey, seq: int) -> IdempotencyRecord:
        return receipt_for(key, steered(seq), services.now_ms())

    kept = await keep_pictures(
        services.artifacts,
        services.run_blocking,
        run.run.accepted.session_id,
        command,
        services.now_ms(),
    )
    message = Steer(text=command.text, by=caller.principal, attachments=kept.attachments)
    make = partial(keep, receipt) if receipt is not None else None
    taken = await run.send(message, receipt=make, timeout_s=ANSWER_S)
    return Submitted(steered(taken.seq), taken.ticket)


async def steer(
    services: SessionServices,
    run: RunHandle,
    message: Steer,
    receipt: Callable[[int], IdempotencyRecord] | None,
) -> int:
    """Steer an open run, waiting or active; return the committed seq of the message.

    Raises the errors of `RunHandle.send` and `PendingCommit.wait`.
    Cancellation: the message may still take effect.
    """
    session = services.registry.sessions.get(run.run.accepted.session_id)
    if session is not None and run in session.waiting:
        taken = await session.steer(run.run_id, message, receipt, timeout_s=ANSWER_S)
        if taken is not None:
            await _settle(taken.ticket)
            return taken.seq
    taken = await run.send(message, receipt=receipt, timeout_s=ANSWER_S)
    await _settle(taken.ticket)
    return taken.seq


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
    model = command.model or agent.model or services.default_model
    if model not in services.models:
        whose = f" (of the agent {agent.name!r})" if command.model is None else ""
        known = ", ".join(sorted(services.models))
        raise InvalidParams(f"no model {model!r}{whose}; known: {known}", field="model")
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
    has_tools = bool(brief is not None and brief.tools) or bool(services.agents.prefix(agent).tools)
    needs = needs_of(
        has_pictures=_needs_vision(services, command),
        json_mode=command.json_mode,
        has_tools=has_tools,
    )
    services.router.check(model, needs)


log = structlog.get_logger("palyra.run")

PAGE_ROWS = 1_000


def fork_command(store: JournalStore, run_id: str, at_seq: int, text: str | None) -> StartRun:
    """Return the message that forks a run; agent, model and limits are those of the run.

    Blocks: reads the tape up to `at_seq`.  Raises InvalidParams.
    """
    point = find_point(_read_rows(store, run_id, at_seq), at_seq)
    chained = store.read_chain(run_id, after_seq=point.seq - 1, limit=1)
    accepted = point.run.accepted
    return StartRun(
        text=text or "",
        agent=accepted.agent,
        model=point.run.model,
        model_choice="pinned" if accepted.model_choice == "pinned" else "preferred",
        approval_mode=accepted.approval_mode,
        json_mode=accepted.json_mode,
        budget=accepted.budget,
        origin=accepted.origin,
        branch=make_branch(point, chained[0].hash, text, tuple(_artifacts(store, point))),
    )


def _artifacts(store: JournalStore, point: ForkPoint | None) -> Iterator[str]:
    """Yield the artifacts up to the point, and those of the runs it inherited from."""
    while point is not None:
        yield from point.artifacts
        run_id, at_seq = point.inherited or ("", -1)
        point = find_point(_read_rows(store, run_id, at_seq), at_seq) if run_id else None


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


def _read_rows(store: JournalStore, run_id: str, at_seq: int) -> Iterator[TapeRow]:
    after_seq: int | None = -1
    while after_seq is not None and after_seq < at_seq:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        yield from page.rows
        after_seq = page.next_after_seq
