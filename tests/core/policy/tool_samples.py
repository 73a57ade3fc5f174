"""Tools, catalogues and proposals that the tests of the gate share."""

from typing import Any

from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import CheckedCall, GateContext, validate
from palyra.core.policy.request import Answer, PolicyDecision
from palyra.core.tool.spec import Catalogue, ToolSpec

FACTS = GateContext(
    run_id="run_1", session_id="ses_1", principal="alice", role="client", agent="default"
)


def a_spec(name: str = "probe", **changes: object) -> ToolSpec:
    """A tool with one optional text, one optional number and a path."""
    values: dict[str, Any] = {
        "version": "1",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "maxLength": 4096},
                "text": {"type": "string"},
                "count": {"type": "integer", "minimum": 0, "maximum": 100},
            },
        },
        "tool_class": "read_only_safe",
        "risk": "low",
    }
    return ToolSpec(name=name, **(values | changes))


def a_catalogue(*specs: ToolSpec) -> Catalogue:
    """A catalogue of those tools."""
    return Catalogue(tools={spec.name: spec for spec in specs}, hash="catalogue")


def a_call(tool: str = "probe", arguments: object = None) -> ProposedCall:
    """A proposal."""
    return ProposedCall(
        call_id="call_1", tool=tool, arguments={} if arguments is None else arguments
    )


def an_admitted(arguments: object = None, **changes: object) -> CheckedCall:
    """A proposal that passed intake."""
    spec = a_spec("probe", **changes)
    admitted = validate(a_call(spec.name, arguments), a_catalogue(spec))
    assert isinstance(admitted, CheckedCall)
    return admitted


def a_decision(answer: Answer) -> PolicyDecision:
    """A decision of the policies."""
    return PolicyDecision(
        answer=answer, reason_code=f"{answer}_code", reason=f"rules say {answer}",
        policies=("default/x",), version="v1",
    )  # fmt: skip
