"""Tool calls: the preflight before the gate decides, and the execution after it has allowed.

Talks to: the tool runner (port), the hub (volatile output), its run (one message per task).
Never: starts a tool before its `tool.started` is committed, or runs anything but the gated call.
Restart: none; each task is a child of its run.  After a restart of the daemon, a call that was
executing is started again only if its tool declares that safe (`core.run`).

An execution has five steps, in this order, and the order is the guarantee:

1. Wait until `tool.started` is committed, so that no effect is missing from the tape.
2. Inspect the call again: files may have changed since the gate looked at them.
3. Compare arguments, policy version and preflight with the gated call and, if a person approved it,
   with the approval's digest.  Nothing between this step and the next one waits.
4. Execute the tool, streaming its output as volatile progress.
5. Redact the output, store the whole of it as an artifact if the model sees an excerpt only.

Steps 2 to 5 share the deadline of the tool.  Each step either succeeds or raises `ToolFailure`;
both, and the deadline, end in one `CallEnded` message to the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog
import trio

from palyra.actors.hub import ProgressStream
from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.child import CRASH_TEXT_LIMIT, ChildTask, Exit
from palyra.actors.kernel.supervisor import report
from palyra.actors.run.environment import RunServices
from palyra.actors.run.handle import RunHandle
from palyra.core.incident.kinds import tool_crashed
from palyra.core.run.calls import ended_with, ended_without
from palyra.core.run.inputs import CallEnded, CallInspected, Execute
from palyra.core.text.canonical_json import digest_of_any, sha256_hex
from palyra.core.tool.artifacts import MAX_ARTIFACT_BYTES, Artifact
from palyra.core.tool.attestation import execution_digest
from palyra.core.tool.spec import (
    DELEGATION,
    OutcomeStatus,
    Preflight,
    ToolCall,
    ToolFailure,
    ToolOutput,
    ToolSpec,
)
from palyra.core.trust.labels import Trust
from palyra.errors import Unavailable
from palyra.services.context.images import keep_returned

log = structlog.get_logger("palyra.run")

INSPECT_S = 10.0  # for a preflight before the gate: hashing files, finding programs
INLINE_CHARS = 1_024  # of output redacted on the event loop: at most 1 ms; more goes to a thread
# Output that may have to be cut goes to a thread too, because its whole is written to a disk.  A
# character has up to four bytes, and a redaction mark may be longer than the secret it replaces.
GROWTH = 8


@dataclass(slots=True, kw_only=True)
class ToolExecution(ChildTask):
    """One started call, on its way through the five steps."""

    run: RunHandle
    services: RunServices
    call: ToolCall  # from step 2 on with its new preflight
    effect: Execute  # what the gate and the approval covered
    start: PendingCommit  # of `tool.started`
    scope: trio.CancelScope | None = None  # of steps 2 to 5
    stopped: str = ""  # why it was ended before its deadline

    def stop(self, reason: str) -> bool:
        """End the call as timed out, for that reason; False if it does not run (any more)."""
        if self.scope is None or self.stopped:
            return False
        self.stopped = reason
        self.scope.cancel(reason)
        return True


@dataclass(slots=True, kw_only=True)
class CallInspection(ChildTask):
    """The preflight of a proposed call, before the gate decides."""

    run: RunHandle
    services: RunServices
    call: ToolCall
    note: Callable[[str, Preflight], None]  # keeps the preflight for the gate


class NotExecuted(ToolFailure):
    """The daemon refused to run the tool; unlike a tool's own failure, its text is trusted."""


async def execute_call(execution: ToolExecution) -> None:
    """Take a started call through its five steps and report `CallEnded` to its run.

    Cancellation: the tool is stopped and nothing is reported; the run records the call as
    cancelled.
    """
    services, call = execution.services, execution.call
    await execution.start.wait()
    spec = services.gate.find_spec(call.tool)
    if spec is None:
        why = f"{call.tool} is not available any more"
        await execution.run.report(_ended_without(execution, "failed", why, "trusted_local"))
        return
    started_s = trio.current_time()
    ended: CallEnded | None = None
    try:  # noqa: PLW0717 - the steps
        with trio.move_on_after(spec.deadline_s) as execution.scope:
            if not await has_child(execution):
                execution.waits_for = "preflight"
                preflight = await run_preflight(services, call)
                execution.call = msgspec.structs.replace(call, inspection=preflight)
                compare_with_gate(execution, services.gate.policy_version)
            execution.waits_for = "child" if spec.tool_class == DELEGATION else "tool"
            output = await run_tool(execution)
            execution.waits_for = "storage"
            ended = await redact_and_store(execution, spec, output)
    except NotExecuted as refusal:
        ended = _ended_without(execution, "failed", refusal.message, "trusted_local")
    except ToolFailure as failure:
        ended = _ended_without(execution, "failed", failure.message, "workspace")
    execution.scope = None  # it has ended: there is nothing to stop
    if ended is None:
        why = f"{call.tool} was stopped at its deadline of {spec.deadline_s:g} s"
        if execution.stopped:
            why = f"{call.tool} was stopped: {execution.stopped}"
        ended = _ended_without(execution, "timed_out", why, "trusted_local")
    took_ms = round((trio.current_time() - started_s) * 1000)
    await execution.run.report(msgspec.structs.replace(ended, took_ms=took_ms))


def _ended_without(
    execution: ToolExecution, status: OutcomeStatus, why: str, trust: Trust
) -> CallEnded:
    return ended_without(execution.call.call_id, status, why, execution.services.redactor, trust)


# --- the steps -----------------------------------------------------------------------------------


async def has_child(execution: ToolExecution) -> bool:
    """Return True if the run that the call delegates to exists: then it is only awaited.

    Cancellation: no effect.
    """
    recorded = execution.run.run.find_call(execution.call.call_id)
    if recorded is None or recorded.delegated is None:
        return False
    child_id = recorded.delegated.run_id
    found = await execution.services.journal.find(lambda store: store.find_run(child_id))
    return found is not None


async def run_preflight(services: RunServices, call: ToolCall) -> Preflight | None:
    """Return the tool's preflight.  Raises ToolFailure, also for errors of the operating system.

    Cancellation: the inspection runs to its end in its thread; its result is dropped.
    """
    try:
        return await services.toolbox.inspect(call)
    except OSError as error:
        why = error.strerror or type(error).__name__
        log.warning("tool preflight failed", call_id=call.call_id, tool=call.tool, error=why)
        raise ToolFailure(f"the preflight of {call.tool} failed: {why.lower()}") from error


def compare_with_gate(execution: ToolExecution, version: str) -> None:
    """Raise NotExecuted unless the call is the one that was gated, and approved if it had to be.

    `version` is the policy version now: a verdict holds only under the version it was given under.
    Arguments that held a secret are on the tape in redacted form, so after a restart their digest
    differs from the gated one.
    """
    call, effect = execution.call, execution.effect
    recorded = execution.run.run.find_call(call.call_id)
    if recorded is None or digest_of_any(call.arguments) != recorded.digest:
        raise NotExecuted(
            "the arguments held a secret, which no restart survives: propose the call again"
        )
    if recorded.policy_version != version:
        raise NotExecuted("the rules have changed since it was allowed: propose the call again")
    approved = effect.approval_digest
    if approved is not None and execution_digest(call, version, effect.covers) != approved:
        raise NotExecuted("what would run is not what was approved: propose the call again")


async def run_tool(execution: ToolExecution) -> ToolOutput:
    """Execute the tool and stream its output to the watchers of the run.  Raises ToolFailure.

    Cancellation: the tool is stopped.
    """
    services, call = execution.services, execution.call
    stream = ProgressStream(execution.run, services.hub, services.redactor, call.call_id)
    try:
        return await services.toolbox.execute(call, partial(stream.take, "tool_output"))
    finally:
        stream.close()


async def redact_and_store(
    execution: ToolExecution, spec: ToolSpec, output: ToolOutput
) -> CallEnded:
    """Redact the output, cut it to the model's excerpt and store the whole of a long one.

    Short output is redacted on the event loop, longer output and pictures in a thread.
    Cancellation: the thread finishes; artifacts may have been stored.
    """
    services, call = execution.services, execution.call
    redact = partial(ended_with, call.call_id, output, services.redactor, spec.excerpt_bytes)
    is_short = len(output.text) <= min(INLINE_CHARS, spec.excerpt_bytes // GROWTH)
    if is_short and not output.pictures:
        return redact()
    store = partial(store_output, services, call, output.trust)
    if not output.pictures:
        return await services.run_blocking(partial(redact, store))

    def redact_with_pictures() -> CallEnded:
        ended = redact(store)
        kept = keep_returned(services.artifacts, call, output, services.now_ms())
        text = "\n".join(filter(None, (ended.output, *kept.lines)))
        return msgspec.structs.replace(ended, output=text, pictures=kept.pictures)

    return await services.run_blocking(redact_with_pictures)


def store_output(services: RunServices, call: ToolCall, trust: Trust, whole: str) -> str | None:
    """Store the whole output as an artifact and return its name.  Blocks.

    Return None if the output is too large or the store refuses it: the call has succeeded all the
    same, and the model has the excerpt.
    """
    data = whole.encode("utf-8", "surrogatepass")
    if len(data) > MAX_ARTIFACT_BYTES:
        return None
    artifact = Artifact(
        artifact=sha256_hex(data),
        session_id=call.session_id,
        run_id=call.run_id,
        call_id=call.call_id,
        tool=call.tool,
        size_bytes=len(data),
        created_ms=services.now_ms(),
        trust=trust,
    )
    try:
        services.artifacts.put(artifact, data)
    except Unavailable as error:
        log.warning("tool output was not stored", call_id=call.call_id, error=error.message)
        return None
    return artifact.artifact


# --- before the gate -----------------------------------------------------------------------------


async def inspect_call(inspection: CallInspection) -> None:
    """Inspect a proposed call, note the preflight, and report `CallInspected` to its run.

    The inspection changes nothing, so it waits for no commit.
    Cancellation: the inspection runs to its end in its thread; nothing is reported.
    """
    call_id, failure = inspection.call.call_id, ""
    try:
        inspection.note(call_id, await inspect(inspection.services, inspection.call))
    except ToolFailure as failed:
        failure = failed.message
    await inspection.run.report(CallInspected(call_id=call_id, failure=failure))


async def report_crash(task: ToolExecution | CallInspection, error: Exception) -> None:
    """Make a failed call of the crash of its task, with an incident.

    Before the start is committed only the journal can have failed: then the run has lost its
    journal, and the error goes on to its actor.
    """
    run, call = task.run, task.call
    if task.waits_for == "commit":
        raise error
    report(Exit(run.run_id, task.id, 1, "crashed", error), None)
    text = f"{type(error).__name__}: {error}"[:CRASH_TEXT_LIMIT]
    task.services.incidents.report(tool_crashed(call.tool, run.run_id, call.call_id, text))
    why = f"{call.tool} crashed ({type(error).__name__}): see the log of the daemon"
    if isinstance(task, ToolExecution):
        await run.report(_ended_without(task, "failed", why, "trusted_local"))
    else:
        await run.report(CallInspected(call_id=call.call_id, failure=why))


async def inspect(services: RunServices, call: ToolCall) -> Preflight:
    """Return the preflight of the call as a person may see it.

    Raises ToolFailure with a redacted message, also after `INSPECT_S`.
    Cancellation: the inspection runs to its end in its thread; its result is dropped.
    """
    with trio.move_on_after(INSPECT_S):
        try:
            return await run_preflight(services, call) or Preflight()
        except ToolFailure as failed:
            shown = services.redactor.redact_text(failed.message)[0] or failed.code
            raise ToolFailure(shown) from failed
    raise ToolFailure(f"the preflight of {call.tool} took longer than {INSPECT_S:g} s")
