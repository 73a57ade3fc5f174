"""The gate of one call: median time of each part and of the whole, as one JSON line.

Run: `python bench/gate.py [--calls N]`.  One thread, no journal; the rules are the shipped ones,
the call is a `read_file` with one coercion.  The asking path adds rendering and the execution
digest.  `step_*` is the whole step of a run between the model's answer and the first resulting
action: validation, rules, verdict, events, redaction, state.  The raw peer is the bare call of the
engine with the same request, rules and entities, already converted to its types.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cedarpy

from palyra.actors.run.environment import CallArguments
from palyra.core.context.assembly import assemble, stable_prefix
from palyra.core.journal.records import AgentRecord, Usage
from palyra.core.model.messages import ModelTurn, ProposedCall
from palyra.core.policy.gate import (
    Allow,
    CheckedCall,
    GateContext,
    NeedsApproval,
    judge,
    policy_request,
    tool_call,
    validate,
)
from palyra.core.policy.request import PolicyDecision
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.answer import find_defect
from palyra.core.run.decide import accept
from palyra.core.run.decide import decide as decide_step
from palyra.core.run.environment import RunEnvironment, RunLimits
from palyra.core.run.inputs import Begin, TurnFinished
from palyra.core.run.state import Run
from palyra.core.tape import events as ev
from palyra.core.tool.attestation import (
    FIRST,
    Attestation,
    attestation_bytes,
    attestation_digest,
    execution_digest,
)
from palyra.core.tool.spec import ToolOutput, build_catalogue
from palyra.services.policy.gate import Gate
from palyra.tools.files.read import list_dir_spec, read_file_spec
from palyra.tools.files.write import write_file_spec
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.policy.request_mapping import build_entities, facts, question
from palyra.tools.toolbox import InlineTool, Toolbox

TOOLS = [
    InlineTool(spec("openat2"), lambda _call: ToolOutput(text=""))
    for spec in (read_file_spec, list_dir_spec, write_file_spec)
]
CATALOGUE = build_catalogue(tool.spec for tool in TOOLS)
FACTS = GateContext(
    run_id="run_01890a5d-ac96-774b-bcce-b302099a8057",
    session_id="ses_01890a5d-ac96-774b-bcce-b302099a8058",
    principal="operator",
    role="operator",
    agent="default",
)
READ = ProposedCall(
    call_id="call_01890a5d-ac96-774b-bcce-b302099a8059",
    tool="read_file",
    arguments={"path": "palyra/core/policy/gate.py", "offset": "25", "limit": 200},
)
WRITE = ProposedCall(
    call_id="call_01890a5d-ac96-774b-bcce-b302099a805a",
    tool="write_file",
    arguments={"path": "notes.md", "content": "A line of some length.\n" * 40},
)
ATTESTATION = Attestation(
    call_id=READ.call_id,
    tool="read_file",
    arguments_sha256="a" * 64,
    output_sha256="b" * 64,
    raw_output_sha256="c" * 64,
    status="succeeded",
    executor="thread",
    enforcement="openat2",
    policy_hash="d" * 64,
    started_ms=1_700_000_000_000,
    finished_ms=1_700_000_000_007,
    prev=FIRST,
)
POLICY = CedarPolicy()


def admitted(call: ProposedCall) -> CheckedCall:
    """Return the validated call."""
    found = validate(call, CATALOGUE)
    assert isinstance(found, CheckedCall)
    return found


def decide(call: CheckedCall) -> PolicyDecision:
    """Evaluate the rules on the call."""
    return POLICY.decide(policy_request(call, FACTS))


def decide_anew(call: CheckedCall) -> PolicyDecision:
    """Evaluate the rules on the call without cached decisions."""
    POLICY._active.known.clear()  # noqa: SLF001 - clears the cache
    return decide(call)


def allowed() -> None:
    """Run the whole gate for an allowed call."""
    call = admitted(READ)
    assert isinstance(judge(call, FACTS, decide(call)), Allow)
    execution_digest(tool_call(call, FACTS), POLICY.version)


def asked() -> None:
    """Run the whole gate for a call that needs an approval."""
    call = admitted(WRITE)
    assert isinstance(judge(call, FACTS, decide(call)), NeedsApproval)
    execution_digest(tool_call(call, FACTS), POLICY.version)


def bare() -> Callable[[], object]:
    """Return the bare call of the engine."""
    request = policy_request(admitted(READ), FACTS)
    asked, entities = question(request, ())[0], build_entities(*facts(request))
    policies = POLICY._active.rules.policies  # noqa: SLF001 - rules for the raw peer
    return lambda: cedarpy.is_authorized(asked, policies, entities)


def bare_with_schema() -> Callable[[], object]:
    """Return the bare call with the engine's own request check, which ours replaces."""
    request = policy_request(admitted(READ), FACTS)
    asked, entities = question(request, ())[0], build_entities(*facts(request))
    rules = POLICY._active.rules  # noqa: SLF001 - likewise
    return lambda: cedarpy.is_authorized(asked, rules.policies, entities, rules.schema)


def step(call: ProposedCall) -> Callable[[], object]:
    """Return a run's step from the model's answer to the first resulting action."""
    prefix = stable_prefix(AgentRecord(name="default", version=0, instructions="x"), CATALOGUE)
    gate = Gate(Toolbox(TOOLS, run_inline), POLICY, lambda _principal: 0)
    redactor, clock, ids = Redactor([]), itertools.count(1), itertools.count(1)
    env: Any = SimpleNamespace(
        now_ms=lambda: next(clock),
        new_id=lambda prefix: f"{prefix}_{next(ids)}",
        redact=redactor.redact_bytes,
        sign=lambda digest: digest * 2,
        evaluate=CallArguments(gate, prefix, str).evaluate,
        assemble=lambda run, turn, attempt: assemble(run, prefix, turn, attempt, bytes(32)),
        jitter_ms=lambda _attempt: 0,
        provider=lambda _model: "scripted",
        limits=RunLimits(),
        check_answer=find_defect,
        plan_route=lambda _run: None,
        change_route=lambda _run, _leaving, may_retry: None,  # noqa: ARG005 - the interface's
        is_stale=lambda _call: False,
        has_lapsed=lambda _call: False,
    )
    run = open_turn(env)
    result = ModelTurn(text="", calls=(call,), finish_reason="tool_calls", usage=Usage())
    heard = TurnFinished(turn=1, attempt=1, result=result)
    return lambda: decide_step(run, heard, env)


async def run_inline(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401, RUF029 - the port's
    """Call the function inline, because none here blocks."""
    return function(*arguments)


def open_turn(env: RunEnvironment) -> Run:
    """Return a run that waits for the model's answer."""
    accepted = ev.RunAccepted(
        principal="operator", session_id=FACTS.session_id, agent="default", model="scripted",
        role="operator",
    )  # fmt: skip
    first = accept(FACTS.run_id, accepted, ev.MessageReceived(text="look"), env)
    return decide_step(first.run, Begin(instance_id="i"), env).run


def p50_us(action: Callable[[], object], calls: int) -> float:
    """Return the median time of one call in microseconds."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        action()
        times.append(time.perf_counter_ns() - start)
    return round(statistics.median(times) / 1000, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    calls = parser.parse_args().calls
    read = admitted(READ)
    call = tool_call(read, FACTS)
    parts: dict[str, Callable[[], object]] = {
        "intake": lambda: validate(READ, CATALOGUE),
        "decide": lambda: decide(read),
        "decide_anew": lambda: decide_anew(read),
        "digest": lambda: execution_digest(call, POLICY.version),
        "attestation": lambda: attestation_digest(attestation_bytes(ATTESTATION)),
        "gate_allow": allowed,
        "gate_ask": asked,
        "step_allow": step(READ),
        "step_ask": step(WRITE),
        "bare_cedar": bare(),
        "bare_cedar_schema": bare_with_schema(),
    }
    for action in parts.values():
        p50_us(action, calls // 10)  # warm caches
    result = {f"{name}_p50_us": p50_us(action, calls) for name, action in parts.items()}
    ratio = round(result["step_allow_p50_us"] / result["bare_cedar_p50_us"], 2)
    print(json.dumps({"bench": "gate", "calls": calls, **result, "step_to_bare": ratio}))


if __name__ == "__main__":
    main()
