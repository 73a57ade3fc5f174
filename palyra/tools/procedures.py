"""Tools `procedure:NAME`: the steps of an accepted procedure, executed by a delegated run."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec

from palyra.core.journal.procedure import Procedure
from palyra.core.learning.procedures import (
    MODEL,
    PREFIX,
    describe_procedure,
    plan_calls,
    render_plan,
)
from palyra.core.ports import Delegator
from palyra.core.text.canonical_json import digest_of, sha256_hex
from palyra.core.tool.spec import (
    DELEGATION,
    NO_FACETS,
    DelegatedWork,
    ToolCall,
    ToolFailure,
    ToolOutput,
    ToolSpec,
)
from palyra.tools.delegation import DAY_S
from palyra.tools.toolbox import AsyncTool, OnOutput, Tool

PROCEDURES = "procedures"  # their source in the toolbox
EXCERPT_BYTES = 32_768
Redact = Callable[[str], tuple[str, bool]]
# principal, name, use id, success, run that made the calls
NoteUse = Callable[[str, str, str, bool, str], Awaitable[None]]


def procedure_tools(
    procedures: Iterable[tuple[str, Procedure]],
    delegator: Delegator,
    *,
    redact: Redact,
    note_use: NoteUse,
) -> list[Tool]:
    """Return a tool for each procedure of a principal."""
    return [
        AsyncTool(
            _spec(principal, procedure),
            partial(_execute, principal, procedure, delegator, redact, note_use),
            facets=lambda _arguments: NO_FACETS,
        )
        for principal, procedure in procedures
    ]


def _spec(principal: str, procedure: Procedure) -> ToolSpec:
    steps = describe_procedure(procedure)
    return ToolSpec(
        name=f"{PREFIX}{procedure.name}",
        version=digest_of([msgspec.to_builtins(procedure.steps), procedure.parameters])[:16],
        description=f"Make these calls one after the other, and stop at the first failure:\n{steps}",
        parameters=procedure.parameters,
        tool_class=DELEGATION,
        risk="low",  # every step is gated
        deadline_s=8.0 * DAY_S,  # above the longest wall clock of a run, which ends the call
        is_idempotent=True,  # executed again, it finds the run that it started
        never_coerced=tuple(procedure.parameters["properties"]),
        excerpt_bytes=EXCERPT_BYTES,
        executor="async",
        enforcement="gate",
        principal=principal,
    )


async def _execute(  # noqa: PLR0917 - of a partial
    principal: str,
    procedure: Procedure,
    delegator: Delegator,
    redact: Redact,
    note_use: NoteUse,
    call: ToolCall,
    _on_output: OnOutput,
) -> ToolOutput:
    """Execute the steps.  Raises ToolFailure.  Cancellation: as `Delegator.delegate`."""
    if call.principal != principal:
        raise ToolFailure(f"{call.tool} belongs to another principal")
    plan = render_plan(procedure.name, plan_calls(procedure, call.arguments))
    if redact(plan)[1]:
        raise ToolFailure(
            "an argument holds a secret, which a procedure cannot hand to its steps: make the calls "
            "one by one"
        )
    work = DelegatedWork(
        task=plan, tools=tuple({step.tool for step in procedure.steps}), model=MODEL
    )
    output = await delegator.delegate(call, work)
    end = output.delegated
    if end is not None and end.state in {"done", "partial", "failed"}:
        use_id = sha256_hex(f"{call.run_id}/{call.call_id}".encode())[:16]
        await note_use(principal, procedure.name, use_id, end.state == "done", end.run_id)
    return output
