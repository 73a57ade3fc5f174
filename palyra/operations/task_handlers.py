"""The work of background tasks, a handler for each kind.

Owns: nothing.  Talks to: the gateway, the memory, the journal.
A handler of a further kind implements `core.ports.TaskHandler`; `wiring.tasks` lists them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.journal.changes import VerifyReport
from palyra.core.journal.records import TaskRecord
from palyra.core.journal.retention import RetentionReport
from palyra.core.ports import Journal, Progress
from palyra.core.run.state import COMPACTION
from palyra.core.session.commands import (
    AgentName,
    Amount,
    RunView,
    SessionId,
    SessionKey,
    StartRun,
    WallMs,
)
from palyra.core.tape.events import ApprovalMode, Budget
from palyra.core.task.run_end import RunFailedEarly, find_failure, may_repeat, read_end
from palyra.errors import (
    Conflict,
    Damaged,
    IllegalState,
    InvalidParams,
    InvariantBroken,
    NotFound,
    PalyraError,
    Purged,
)
from palyra.operations.runs import Gateway
from palyra.services.learning.candidates import Learning
from palyra.services.memory.index import SharedMemoryIndex
from palyra.services.memory.items import Memories
from palyra.services.tape.run_loader import read_rows

T = TypeVar("T", bound=msgspec.Struct)
STEP_RUNS, STEP_PAGES = 16, 16  # of one step of retention: some tenths of a second
PASS_ON_S = 5.0  # between two looks at the progress of a thread, or at a run that cannot begin yet
WAIT_S = 20.0  # between two looks at a run; a sixth of a lease


class PromptBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the run of a prompt."""

    tokens: Amount | None = None
    usd_micros: Amount | None = None
    wall_ms: WallMs | None = None


class PromptWork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Payload of a prompt: the message of a run, in a session of its own or a named one."""

    text: str
    agent: AgentName | None = None
    model: str | None = None
    session_id: SessionId | None = None
    session_key: SessionKey | None = None
    workspace: str | None = None  # of a new session
    approval_mode: ApprovalMode = "ask"
    budget: PromptBudget = PromptBudget()


class CompactionWork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Payload of a compaction: the session to summarise."""

    session_id: SessionId


class ReflectionWork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Payload of a reflection: the run to read."""

    run_id: str


class NoPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of work without settings."""


def _convert(payload: dict[str, Any], kind: type[T]) -> T:
    """Return the typed payload.  Raises InvalidParams."""
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"payload: {error}", field="payload") from None


def caller_of(task: TaskRecord) -> Caller:
    """Return the caller that a task acts as: its principal, with the rights of a client."""
    return Caller(principal=task.principal, role="client", token_id=task.task_id)


class RunWork:
    """Work that one run does.  The run is durable: every attempt continues it.

    A run that failed because its provider was down, before any call was started, is followed by
    another one (`core.task.run_end`).  While the run is open the task progresses: the run has its own limits of time, and an approval
    that a person has not answered is not a hang.
    """

    is_for_all = False

    def __init__(
        self, gateway: Gateway, journal: Journal, command: Callable[[dict[str, Any]], StartRun]
    ) -> None:
        """`command` returns the message of a payload, or raises InvalidParams."""
        self._gateway = gateway
        self._journal = journal
        self._command = command

    async def check(self, payload: dict[str, Any]) -> None:
        """See `TaskHandler.check`: the agent and the model of the run must exist by now."""
        await self._gateway.check_command(self._command(payload))

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        """Start the run unless an earlier attempt did, and wait for its end.

        Raises IllegalState if the run does not end as done or a call of it was refused, RunFailedEarly
        if another run may do the work.  Cancellation: the run continues.
        """
        caller, run_id = caller_of(task), _run_id(task)
        while not await self._is_on_tape(run_id):
            progress()
            await self._start(caller, task, run_id)
        while True:
            progress()
            run, is_late = await self._gateway.wait_run(
                caller, run_id, until="terminal", timeout_s=WAIT_S
            )
            if not is_late:
                return await self._result(run)

    async def _result(self, run: RunView) -> dict[str, Any]:
        """Return the result of a run.  Raises as `work`."""
        end = await self._journal.read(lambda store: read_end(read_rows(store, run.run_id)))
        failure = find_failure(run.state, run.reason or "", end)
        if failure and may_repeat(run.state, end):
            raise RunFailedEarly(f"{run.run_id} {failure}")
        if failure:
            raise IllegalState(f"{run.run_id} {failure}")
        return {"run_id": run.run_id, "session_id": run.session_id}

    async def _is_on_tape(self, run_id: str) -> bool:
        return await self._journal.find(lambda store: store.find_run(run_id)) is not None

    async def _start(self, caller: Caller, task: TaskRecord, run_id: str) -> None:
        """Start the run, or wait a little while the actor of a refused acceptance has its id.

        That actor learns of the refusal with its next append, at the latest after its time limit.
        """
        command = msgspec.structs.replace(self._command(task.payload), run_id=run_id)
        try:
            await self._gateway.start_run(caller, command)
        except Conflict:
            await trio.sleep(PASS_ON_S)

    async def abandon(self, task: TaskRecord) -> None:
        """Cancel the run, if it was started."""
        try:
            await self._gateway.cancel_run(
                caller_of(task), _run_id(task), f"its task is {task.state}"
            )
        except NotFound:
            return


def prompt(payload: dict[str, Any]) -> StartRun:
    """Return the message of a prompt.  Raises InvalidParams."""
    wanted = _convert(payload, PromptWork)
    if not wanted.text.strip():
        raise InvalidParams("payload: the text of a prompt is empty", field="payload")
    if wanted.session_id is not None and wanted.session_key is not None:
        raise InvalidParams("payload: give one of session_id and session_key", field="payload")
    return StartRun(
        text=wanted.text,
        agent=wanted.agent,
        model=wanted.model,
        session_id=wanted.session_id,
        session_key=wanted.session_key,
        approval_mode=wanted.approval_mode,
        budget=Budget(**msgspec.structs.asdict(wanted.budget)),
        origin="background",
        workspace=wanted.workspace,
    )


def compaction(payload: dict[str, Any]) -> StartRun:
    """Return the message that has a session summarised.  Raises InvalidParams."""
    session_id = _convert(payload, CompactionWork).session_id
    return StartRun(
        text="/compact", session_id=session_id, origin=COMPACTION, queue_mode="followup"
    )


class Reflection:
    """Learn from a run that ended; a run that was read is not read again."""

    is_for_all = False

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    @staticmethod
    async def check(payload: dict[str, Any]) -> None:
        """See `TaskHandler.check`."""
        _convert(payload, ReflectionWork)

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        """Read the run.  A run whose content was purged meanwhile teaches nothing.

        Raises NotFound, also for a run of another principal, IllegalState while the run is open.
        Cancellation: as of `Learning.reflect`.
        """
        run_id = _convert(task.payload, ReflectionWork).run_id
        try:
            read = await self._learning.reflect_for(caller_of(task), run_id)
        except Purged:
            return {"run_id": run_id, "purged": True}
        except Damaged as error:  # it teaches nothing either
            return {"run_id": run_id, "damaged": error.message}
        progress()
        return {
            "run_id": run_id,
            "candidates": list(read.candidate_ids),
            "applied": list(read.applied),
        }

    async def abandon(self, task: TaskRecord) -> None:
        """Nothing goes on outside of `work`."""


class SharedWork:
    """Work for all principals, without settings and without a run; repeating it is harmless."""

    is_for_all = True

    @staticmethod
    async def check(payload: dict[str, Any]) -> None:
        """See `TaskHandler.check`."""
        _convert(payload, NoPayload)

    async def abandon(self, task: TaskRecord) -> None:
        """Nothing goes on outside of `work`."""


class Embed(SharedWork):
    """Vectors for what has none."""

    def __init__(self, indexes: Sequence[SharedMemoryIndex]) -> None:
        self._indexes = indexes

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        """Take all steps of upkeep.  Raises Unavailable.  Cancellation: as of `upkeep`."""
        del task
        steps = 0
        for index in self._indexes:
            while await index.upkeep():
                steps += 1
                progress()
        return {"steps": steps}


class MemoryRebuild(SharedWork):
    """Text indexes created again, then the vectors; searches prove them."""

    def __init__(self, memories: Memories, indexes: Sequence[SharedMemoryIndex] = ()) -> None:
        self._memories = memories
        self._indexes = indexes

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        """Rebuild.  Raises Unavailable, also if an index is damaged afterwards.

        Cancellation: a part was rewritten; the task begins again.
        """
        operator = Caller(principal=task.principal, role="operator", token_id=task.task_id)
        items = await self._memories.rebuild(operator)
        progress()
        embedded = await Embed(self._indexes).work(task, progress)
        for index in self._indexes:
            await index.prove()
        return {"items": items, **embedded}


class Maintain(Protocol):
    """A bounded part of retention (`operations.retention`)."""

    async def __call__(self, *, max_runs: int, max_steps: int) -> RetentionReport:
        """Return what was removed; `is_complete` is False if there is more."""


class Cleanup(SharedWork):
    """Retention in small steps."""

    def __init__(self, maintain: Maintain | None) -> None:
        """`maintain` is None if the journal is not in files."""
        self._maintain = maintain

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        """Retain step by step, until a step finds nothing more or changes nothing.

        Raises Overloaded while an operator applies retention, Unavailable.
        Cancellation: what was removed stays removed.
        """
        del task
        if self._maintain is None:
            return {}
        runs = incidents = deleted = 0
        free_bytes = -1
        while True:
            report = await self._maintain(max_runs=STEP_RUNS, max_steps=STEP_PAGES)
            progress()
            runs, incidents = runs + report.runs, incidents + report.incidents
            deleted += report.artifacts + report.file_checkpoints
            is_idle = not report.runs and report.free_bytes == free_bytes
            if report.is_complete or is_idle:
                return {"deleted": deleted, "runs": runs, "incidents": incidents}
            free_bytes = report.free_bytes


class Maintenance(SharedWork):
    """A check of the whole chain of the journal, with its signed roots."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        """Verify.  Raises IllegalState with the first violation.  Cancellation: nothing happened."""
        del task
        walked: list[int] = []  # appended to by the thread that reads, emptied here
        report: VerifyReport | PalyraError
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, walked, progress)
            try:
                report = await self._journal.read(lambda store: store.verify(note=walked.append))
            except PalyraError as error:  # outside of the nursery it is not in a group
                report = error
            nursery.cancel_scope.cancel("the journal is verified")
        if isinstance(report, PalyraError):
            raise report
        if report.first_break is not None:
            raise IllegalState(f"the journal is damaged: {report.first_break}")
        return {"checked_events": report.checked_events, "checked_roots": report.checked_roots}


async def _pass_on(walked: list[int], progress: Progress) -> None:
    """Report the progress of a thread for as long as there is any."""
    while True:
        await trio.sleep(PASS_ON_S)
        if walked:
            walked.clear()
            progress()


def _run_id(task: TaskRecord) -> str:
    if task.run_id is None:
        raise InvariantBroken(f"{task.task_id} was claimed without a run id")
    return task.run_id
