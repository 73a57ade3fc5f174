"""Delegated runs: start the child of a call, wait for its end, and end the children of an ended run.

Owns: nothing.  Talks to: the gateway, the registry, the journal.
Never: starts a child whose id is not on its parent's tape, or lets a call end before its child.
Restart: a call is executed again and finds its child; `core.run.delegation` has the protocol.

A child ends with its parent: the session of a run that has ended cancels its children, in this life
of the daemon by `ActorRegistry.children`, after a restart because recovery finds no open parent.
"""

from functools import partial

import msgspec
import trio

from palyra.actors.run.handle import RunHandle
from palyra.actors.session.registry import SessionServices
from palyra.core.access import Caller
from palyra.core.journal.records import Role
from palyra.core.ports import JournalStore
from palyra.core.run.call import DelegatedRun
from palyra.core.run.delegation import (
    DELEGATED,
    ChildEnd,
    find_other_rights,
    handed_down,
    render_end,
)
from palyra.core.run.state import Run
from palyra.core.session.commands import DelegatedTask, RunView, StartRun
from palyra.core.tape import events as ev
from palyra.core.tool.spec import DelegatedEnd, DelegatedWork, ToolCall, ToolFailure, ToolOutput
from palyra.errors import (
    IllegalState,
    InvariantBroken,
    NotFound,
    PalyraError,
    TooSlow,
    Unavailable,
    Unreadable,
)
from palyra.operations.runs import Gateway
from palyra.services.policy.gate import held_tools
from palyra.services.tape.run_loader import read_run

RETRY_S = 0.25  # between attempts while the journal takes no writes
NO_END = float("inf")


class Delegations:
    """`core.ports.Delegator` over the runs of the daemon."""

    def __init__(self, services: SessionServices, gateway: Gateway) -> None:
        self._services = services
        self._gateway = gateway

    async def delegate(self, call: ToolCall, work: DelegatedWork | None = None) -> ToolOutput:
        """Start the child of the call unless it exists, and wait for its end.

        Raises ToolFailure if it cannot be accepted; then no child exists.
        Cancellation: the child continues; the end of the parent cancels it.
        """
        parent = self._services.registry.runs.get(call.run_id)
        recorded = None if parent is None else parent.run.find_call(call.call_id)
        if parent is None or recorded is None or recorded.delegated is None:
            raise InvariantBroken(f"{call.call_id} of {call.run_id} has no run to delegate to")
        child = recorded.delegated
        accepted = parent.run.accepted
        role: Role = msgspec.convert(accepted.role, Role)
        caller = Caller(principal=accepted.principal, role=role, token_id="")
        while True:
            try:
                if not await self._is_known(child.run_id):
                    await self._start(caller, parent, call, child, work)
                await self._wait_end(caller, parent, call, child.run_id)
                ended, _ = await self._gateway.wait_run(
                    caller, child.run_id, until="terminal", timeout_s=NO_END
                )
                end = await self._read_end(ended)
                return render_end(end, people_ms=parent.take_idle_ms())
            except (NotFound, TooSlow, Unavailable):  # not accepted after all, or no journal
                await trio.sleep(RETRY_S)
            except IllegalState as stranded:
                await self._give_up(caller, child.run_id, stranded.message)

    async def _wait_end(
        self, caller: Caller, parent: RunHandle, call: ToolCall, child_id: str
    ) -> None:
        """Wait for the end of the child, with the parent's clock paused while the child asks a person.

        Raises the errors of `Gateway.find_open`.  Cancellation: the clock of the parent keeps running.
        """
        try:
            while (child := await self._gateway.find_open(caller, child_id)) is not None:
                parent.note_child(call.call_id, is_asking=child.is_asking)
                await child.wait_change()
        finally:
            parent.note_child(call.call_id, is_asking=False)

    async def _is_known(self, run_id: str) -> bool:
        if run_id in self._services.registry.runs:
            return True
        return await self._services.journal.find(lambda store: store.find_run(run_id)) is not None

    async def _start(
        self,
        caller: Caller,
        parent: RunHandle,
        call: ToolCall,
        child: DelegatedRun,
        work: DelegatedWork | None,
    ) -> None:
        """Start the child, committed.  Raises ToolFailure, TooSlow, Unavailable."""
        try:
            command = await self._command(parent.run, call, child, work or _work_of(call))
            await self._gateway.start_child(caller, command)
        except (TooSlow, Unavailable):
            raise
        except PalyraError as refused:
            raise ToolFailure(f"the task was not taken: {refused.message}") from refused

    async def _command(
        self, run: Run, call: ToolCall, child: DelegatedRun, work: DelegatedWork
    ) -> StartRun:
        """Return the message of the child: the task, and no more than its parent has."""
        accepted, agents = run.accepted, self._services.agents
        own = await agents.find_version(accepted.agent, accepted.agent_version)
        is_own = work.agent in {"", accepted.agent}
        other = own if is_own else await agents.get_present(work.agent)
        if own is None or other is None:
            raise NotFound(f"no agent {accepted.agent!r}", field="agent")
        if why := find_other_rights(own, other):
            raise IllegalState(why)
        depth = accepted.depth + 1
        above = () if accepted.delegation is None else accepted.delegation.agents
        return StartRun(
            text=work.task,
            run_id=child.run_id,
            agent=other.name,
            model=work.model or (run.model if is_own else None),
            model_choice="pinned" if work.model else accepted.model_choice if is_own else None,
            queue_mode="followup",
            approval_mode=accepted.approval_mode,
            budget=child.budget,
            origin=DELEGATED,
            workspace=accepted.workspace,
            delegated=DelegatedTask(
                parent_run_id=run.run_id,
                depth=depth,
                tools=handed_down(
                    work.tools,
                    held_tools(
                        run, agents.prefix(own, accepted.owner_of_tools, accepted.workspace)
                    ),
                    depth,
                ),
                delegation=ev.Delegation(
                    call_id=call.call_id,
                    agents=(*above, accepted.agent),
                    origin=accepted.origin
                    if accepted.delegation is None
                    else accepted.delegation.origin,
                    is_tainted=run.is_tainted,
                    input_trust=run.trust,
                    is_confined=accepted.is_confined,
                ),
            ),
        )

    async def _give_up(self, caller: Caller, run_id: str, why: str) -> None:
        """End a child that this daemon cannot resume, so that its parent gets an end."""
        try:
            await self._gateway.cancel_run(caller, run_id, why)
        except (TooSlow, Unavailable, IllegalState):
            await trio.sleep(RETRY_S)

    async def _read_end(self, view: RunView) -> ChildEnd:
        return await self._services.journal.read(partial(_read_end, view))


def _work_of(call: ToolCall) -> DelegatedWork:
    """Return the task in the arguments of the tool `delegate`."""
    arguments = call.arguments
    tools = arguments.get("tools")
    return DelegatedWork(
        task=str(arguments["task"]),
        tools=None if tools is None else tuple(tools),
        agent=arguments.get("agent") or "",
    )


def _read_end(view: RunView, store: JournalStore) -> ChildEnd:
    """Read the end of a child from its tape; one that cannot be read counts as tainted.  Blocks."""
    end = DelegatedEnd(
        state="partial" if view.state == "done" and view.reason == "partial" else _state(view),
        reason=view.reason or "",
        run_id=view.run_id,
        session_id=view.session_id,
        usage=view.usage,
        cost_usd_micros=view.cost_usd_micros,
        turns=view.turns,
        tool_calls=view.tool_calls,
    )
    try:
        loaded = read_run(store, view.run_id)
    except Unreadable:
        loaded = None
    if loaded is None:
        return ChildEnd(run_id=view.run_id, end=end)
    run = loaded.run
    answer, missing = "", ""
    last = store.read_tape(view.run_id, after_seq=max(-1, run.next_seq - 3), limit=2)
    for _, event in ev.read_events(last.rows):
        if isinstance(event, ev.MessageCompleted):
            answer = event.text
        elif isinstance(event, ev.RunDone):
            missing = event.missing
        elif isinstance(event, ev.RunFailed):
            missing = f"{event.failure_class}: {event.reason}"
    whole = msgspec.structs.replace(
        end,
        reason=missing or end.reason,
        usage=end.usage.plus(run.costs.delegated_usage),
        cost_usd_micros=end.cost_usd_micros + run.costs.delegated_usd_micros,
    )
    return ChildEnd(
        run_id=view.run_id,
        end=whole,
        answer=answer,
        is_tainted=run.is_tainted,
        trust=run.trust,
    )


def _state(view: RunView) -> ev.DelegationState:
    return "done" if view.state == "done" else "failed" if view.state == "failed" else "cancelled"
