"""Recorded calls of the built-in tools, as evidence for suggested rules."""

from typing import Any

from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import GateContext, policy_request, reconstruct
from palyra.core.policy.recorded import Decided, PolicyEvidence
from palyra.core.tool.spec import build_catalogue
from palyra.tools.policy.cases import known_tools

_TOOLS = known_tools()
_CATALOGUE = build_catalogue(spec for spec, _ in _TOOLS.values())


def recorded(
    tool: str,
    arguments: dict[str, Any],
    run: str,
    decided: Decided = "allowed",
    **facts: Any,
) -> PolicyEvidence:
    """One recorded call; `facts` are fields of the run's `GateContext`."""
    call_id = f"call_{abs(hash(str(arguments)))}"
    proposed = ProposedCall(call_id=call_id, tool=tool, arguments=arguments)
    found = reconstruct(proposed, _CATALOGUE, lambda spec, given: _TOOLS[spec.name][1](given))
    assert found is not None, f"{tool} does not take {arguments}"
    checked, is_whole = found
    known = {"principal": "ann", "role": "client", "agent": "default", **facts}
    context = GateContext(run_id=run, session_id="ses_1", **known)
    return PolicyEvidence(
        request=policy_request(checked, context),
        decided=decided,
        run_id=run,
        call_id=call_id,
        summary=tool,
        is_whole=is_whole,
    )


def shell(*argv: str, run: str, decided: Decided = "allowed", **facts: Any) -> PolicyEvidence:
    return recorded("shell", {"argv": list(argv)}, run, decided, **facts)


def write(path: str, *, run: str, decided: Decided = "allowed", **facts: Any) -> PolicyEvidence:
    arguments = {"path": path, "content": f"of {run}"}
    return recorded("write_file", arguments, run, decided, **facts)


def in_runs(*argv: str, count: int = 3) -> list[PolicyEvidence]:
    """The same command, allowed once in each of some runs."""
    return [shell(*argv, run=f"run_{number}") for number in range(count)]
