"""The tool `delegate`: a task for a run of its own, whose end is the result of the call.

The run is started and awaited behind `core.ports.Delegator`; `core.run.delegation` has the rules.
"""

from palyra.core.ports import Delegator
from palyra.core.run.delegation import DELEGATE, MAX_CHILDREN, MAX_DEPTH
from palyra.core.tool.spec import NO_FACETS, ToolSpec
from palyra.tools.toolbox import AsyncTool, Tool

_AMOUNT = {"type": "integer", "minimum": 1, "maximum": 1_000_000_000_000}
DAY_S = 86_400

DELEGATION = ToolSpec(
    name=DELEGATE,
    version="1",
    description=(
        "Give one self-contained task to another run, which sees none of this conversation, and "
        "wait for its answer. Calls of one turn work at the same time, up to "
        f"{MAX_CHILDREN}. Runs delegate at most {MAX_DEPTH} levels deep."
    ),
    parameters={
        "type": "object",
        "properties": {
            "task": {"type": "string", "minLength": 1, "maxLength": 32_768,
                     "description": "Everything that the other run has to know."},
            "agent": {"type": "string", "minLength": 1, "maxLength": 64,
                      "description": "The agent that works on it; this one if left out."},
            "tools": {"type": "array", "items": {"type": "string", "maxLength": 160},
                      "maxItems": 128,
                      "description": "The tools it may use, of yours; all if left out."},
            "budget": {"type": "object", "properties": {"tokens": _AMOUNT, "usd_micros": _AMOUNT},
                       "description": "Its share of what is left of your budget; a quarter if left out."},
            "wall_s": {"type": "integer", "minimum": 1, "maximum": DAY_S,
                       "description": "The longest it may take, in seconds."},
        },
        "required": ["task"],
    },
    tool_class="delegation",
    risk="low",  # every call of the other run is gated
    deadline_s=8.0 * DAY_S,  # above the longest wall clock of a run, which ends the call
    is_idempotent=True,  # executed again, it finds the run that it started
    never_coerced=("task", "agent", "tools"),
    excerpt_bytes=32_768,
    executor="async",
    enforcement="gate",
)  # fmt: skip


def delegation_tools(delegator: Delegator) -> list[Tool]:
    """Return the tool."""
    return [
        AsyncTool(
            DELEGATION,
            lambda call, _on_output: delegator.delegate(call),
            facets=lambda _arguments: NO_FACETS,
        )
    ]
