"""One tool call: the look before it is asked about, the execution, the outcome.

Owns: nothing.  Talks to: the toolbox (port), the hub (volatile output), its run.
Never: starts before its `tool.started` is committed, or runs anything but what was gated.
Restart: none; it is a child of its run.  A call that was under way when the daemon fell is
started again only if its tool says that is harmless (`core.run`).
"""

from collections.abc import Callable
from functools import partial

import msgspec
import structlog
import trio

from palyra.actors.hub.delta_stream import ProgressStream
from palyra.actors.journal.actor import PendingCommit
from palyra.actors.run.handle import RunHandle
from palyra.actors.run.services import RunServices
from palyra.core.run.inputs import CallEnded, CallInspected, Execute
from palyra.core.run.outcome import ended_with, ended_without
from palyra.core.run.state import Run
from palyra.core.text.canonical_json import digest_of_any, sha256_hex
from palyra.core.tool.artifacts import MAX_ARTIFACT_BYTES, Artifact
from palyra.core.tool.attestation import execution_digest
from palyra.core.tool.spec import OutcomeStatus, Preflight, ToolCall, ToolFailure, ToolSpec
from palyra.core.trust.labels import Trust
from palyra.errors import Unavailable

log = structlog.get_logger("palyra.run")

INSPECT_S = 10.0  # for a look at what a call would meet: hashing files, finding programs
INLINE_CHARS = 1_024  # of output: a millisecond of looking at the worst; more goes to a thread
# What may have to be cut goes there too, because its whole is then written to a disk: characters
# have up to four bytes, and a mark of redaction may be longer than what it stands for.
GROWTH = 8


async def inspect_call(
    run: RunHandle, services: RunServices, call: ToolCall, note: Callable[[str, Preflight], None]
) -> None:
    """Look at what the call would meet; the run hears Inspected.

    Nothing is changed by it, so it waits for no commit.  Cancellation: the look runs to its end,
    and nobody hears of it.
    """
    failure = ""
    try:
        note(call.call_id, await inspect(services, call))
    except ToolFailure as failed:
        failure = failed.message
    await run.report(CallInspected(call_id=call.call_id, failure=failure))


async def inspect(services: RunServices, call: ToolCall) -> Preflight:
    """What a person would be shown of what the call meets.  Raises ToolFailure, redacted.

    Cancellation: the look runs to its end, and nobody hears of it.
    """
    with trio.move_on_after(INSPECT_S):
        try:
            return await _inspect(services, call) or Preflight()
        except ToolFailure as failed:
            shown = services.redactor.redact_text(failed.message)[0] or failed.code
            raise ToolFailure(shown) from failed
    raise ToolFailure(f"what {call.tool} would meet could not be looked at within {INSPECT_S:g} s")


async def _inspect(services: RunServices, call: ToolCall) -> Preflight | None:
    """What the call would meet.  Raises ToolFailure, also for what the operating system refuses.

    Cancellation: the look runs to its end, and nobody hears of it.
    """
    try:
        return await services.toolbox.inspect(call)
    except OSError as error:
        why = error.strerror or type(error).__name__
        log.warning("a look at a call failed", call_id=call.call_id, tool=call.tool, error=why)
        raise ToolFailure(
            f"what {call.tool} would meet could not be looked at: {why.lower()}"
        ) from error


async def execute_call(
    run: RunHandle, services: RunServices, call: ToolCall, effect: Execute, ticket: PendingCommit
) -> None:
    """Run one call once its start is committed; the run hears CallEnded.

    Cancellation: the tool is stopped and nothing is reported; the run records the call as
    cancelled.
    """
    await ticket.wait()
    spec = services.gate.find_spec(call.tool)
    started_s = trio.current_time()
    ended: CallEnded | None = None
    if spec is None:
        ended = _not_run(services, call, "failed", f"{call.tool} is not available any more")
    else:
        with trio.move_on_after(spec.deadline_s):
            ended = await _run_gated(run, services, spec, call, effect)
        if ended is None:
            text = f"{call.tool} was stopped at its deadline of {spec.deadline_s:g} s"
            ended = _not_run(services, call, "timed_out", text)
    took_ms = round((trio.current_time() - started_s) * 1000)
    await run.report(msgspec.structs.replace(ended, took_ms=took_ms))


async def _run_gated(
    run: RunHandle, services: RunServices, spec: ToolSpec, call: ToolCall, effect: Execute
) -> CallEnded:
    """Look at what the call meets now, compare that with what was gated, and only then run it."""
    try:
        call = msgspec.structs.replace(call, inspection=await _inspect(services, call))
    except ToolFailure as failure:
        return ended_without(
            call.call_id, "failed", failure.message, services.redactor, "workspace"
        )
    obstacle = _obstacle(run.run, call, effect, services.gate.policy_version)
    if obstacle is not None:
        return _not_run(services, call, "failed", obstacle)
    return await _execute(run, services, spec, call)


def _obstacle(run: Run, call: ToolCall, effect: Execute, version: str) -> str | None:
    """Why what is about to run is not what was gated; None when it is.

    `version` is that of the rules now: a verdict ends with the rules it was given under.
    """
    recorded = run.find_call(call.call_id)
    if recorded is None or digest_of_any(call.arguments) != recorded.digest:
        return "the arguments held a secret, which no restart survives: propose the call again"
    if recorded.policy_version != version:
        return "the rules have changed since it was allowed: propose the call again"
    approved = effect.approval_digest
    if approved is not None and execution_digest(call, version, effect.covers) != approved:
        return "what would run is not what was approved: propose the call again"
    return None


async def _execute(
    run: RunHandle, services: RunServices, spec: ToolSpec, call: ToolCall
) -> CallEnded:
    """The tool's own outcome; a failure it announces is an outcome too."""
    stream = ProgressStream(run.run, services.hub, services.redactor, call.call_id)
    try:
        output = await services.toolbox.execute(call, lambda text: stream.take("tool_output", text))
    except ToolFailure as failure:
        return ended_without(
            call.call_id, "failed", failure.message, services.redactor, "workspace"
        )
    finally:
        stream.close()
    look = partial(ended_with, call.call_id, output, services.redactor, spec.excerpt_bytes)
    if len(output.text) <= min(INLINE_CHARS, spec.excerpt_bytes // GROWTH):
        return look()
    return await services.run_blocking(partial(look, partial(_keep, services, call, output.trust)))


def _keep(services: RunServices, call: ToolCall, trust: Trust, whole: str) -> str | None:
    """The name of the artifact that has the whole output, once it is on the disk.  Blocks.

    Without one the call is no failure: the model has the excerpt.
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
        log.warning("an output was not kept", call_id=call.call_id, error=error.message)
        return None
    return artifact.artifact


def _not_run(services: RunServices, call: ToolCall, status: OutcomeStatus, why: str) -> CallEnded:
    return ended_without(call.call_id, status, why, services.redactor, "trusted_local")
