"""The tool `propose_plan`: a plan for a person, whose approval ends the plan mode of the session.

The gate asks a person about each call, whatever the rules say (`core.policy.modes`), so the execution
is the acceptance.
"""

from collections.abc import Awaitable, Callable

from palyra.core.journal.records import SessionRecord
from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.errors import PalyraError
from palyra.tools.toolbox import AsyncTool, OnOutput, Tool

PLAN_CHARS = 12_000  # as much as a person can be asked to read at once

SPEC = ToolSpec(
    name=PROPOSE_PLAN,
    version="1",
    description=(
        "Propose a plan to the person: what you will change, in which steps, and how you will check "
        "it. Accepted, the plan mode ends and you carry it out; denied, you get the reason."
    ),
    parameters={
        "type": "object",
        "properties": {
            "plan": {"type": "string", "minLength": 1, "maxLength": PLAN_CHARS,
                     "description": "The whole plan, in Markdown."},
        },
        "required": ["plan"],
    },
    tool_class="read_only_safe",
    risk="low",
    deadline_s=30.0,
    is_idempotent=True,
    never_coerced=("plan",),
    executor="async",
    enforcement="gate",
)  # fmt: skip


def plan_tools(accept: Callable[[str], Awaitable[SessionRecord]]) -> list[Tool]:
    """Return the tool; `accept` ends the plan mode of a session."""

    async def propose(call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """End the plan mode.  Cancellation: it may have ended."""
        try:
            session = await accept(call.session_id)
        except PalyraError as error:
            raise ToolFailure(error.message) from error
        return ToolOutput(
            text=f"The plan was accepted and the session is in the mode {session.mode} again: carry it out.",
            trust="trusted_local",
        )

    return [AsyncTool(SPEC, propose)]
