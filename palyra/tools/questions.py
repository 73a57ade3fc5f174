"""The tool `ask_user`: a question of the model, whose approval carries the answer."""

from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.questions import (
    ASK_USER,
    CHOICE_CHARS,
    FORM,
    MAX_CHOICES,
    QUESTION_CHARS,
)
from palyra.core.ports import Journal
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.tools.toolbox import AsyncTool, OnOutput, Tool

_MOST = 500  # approvals of one run that are read

SPEC = ToolSpec(
    name=ASK_USER,
    version="2",
    description=(
        "Ask the person something that you cannot find out and need to know; waits for the answer. "
        "Calls beside it run meanwhile."
    ),
    parameters={
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1, "maxLength": QUESTION_CHARS},
            "choices": {
                "type": "array",
                "minItems": 2,
                "maxItems": MAX_CHOICES,
                "items": {"type": "string", "minLength": 1, "maxLength": CHOICE_CHARS},
                "description": "The possible answers; any text if left out.",
            },
            "form": FORM,
        },
        "required": ["question"],
    },
    tool_class="read_only_safe",
    risk="low",
    deadline_s=30.0,
    never_coerced=("question", "choices", "form"),
    executor="async",
    enforcement="gate",
)


def question_tools(journal: Journal) -> list[Tool]:
    """Return the tool, which reads the answer from the approval of its call."""

    async def ask(call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """Return the person's words.  Cancellation: nothing."""
        found = await journal.read(
            lambda store: store.list_approvals(
                principal=call.principal, run_id=call.run_id, pending_only=False, limit=_MOST
            )
        )
        answer = next((each for each in found if _answers(each, call)), None)
        if answer is None:
            raise ToolFailure("the answer is not in the journal: ask again")
        return ToolOutput(text=f"{answer.by} answers: {answer.reason}", trust="trusted_local")

    return [AsyncTool(SPEC, ask)]


def _answers(approval: ApprovalRecord, call: ToolCall) -> bool:
    asked = (approval.call_id, *approval.covers)
    return approval.state == "allowed" and approval.tool == ASK_USER and call.call_id in asked
