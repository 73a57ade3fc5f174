"""The brief: what a caller tells a run beside its message.

It is the word of the principal who starts the run, no more: it stands below the agent's own
instructions, opens no door that policy closes, and ends with the run.  Tools it declares are run
by the client; the daemon hands their calls over and runs nothing.
"""

from typing import Any

import msgspec

from palyra.core.model.messages import DEFAULT_SAMPLING, Sampling
from palyra.core.text.canonical_json import digest_of
from palyra.core.tool.spec import CLIENT, ToolSpec

ANY_OBJECT = {"type": "object", "additionalProperties": True}
SCHEMA_NOTE = "Answer with one JSON value that fits this JSON Schema, and nothing round it:\n"
ANY_TOOL = "*"  # the name of no tool
HEADING = "The caller of this conversation adds, as far as it agrees with what stands above:"


class ClientTool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool that the client runs."""

    name: str
    description: str = ""
    parameters: dict[str, Any]  # JSON Schema; the client itself checks against it


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a caller tells a run beside its message."""

    instructions: str = ""
    tools: tuple[ClientTool, ...] = ()
    sampling: Sampling = DEFAULT_SAMPLING
    answer_schema: dict[str, Any] | None = None  # what the answer, in JSON mode, must fit
    must_call: str = ""  # one of the tools, or ANY_TOOL: the answer is a call of it, and no words
    one_call: bool = False  # of the tools, in an answer; a turn that makes more keeps the first

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing."""
        return self == BLANK

    @property
    def shown(self) -> tuple[ClientTool, ...]:
        """The tools that the model is shown: only those it may call."""
        if self.must_call in {"", ANY_TOOL}:
            return self.tools
        return tuple(tool for tool in self.tools if tool.name == self.must_call)


BLANK = RequestOptions()


def add_instructions(instructions: str, brief: RequestOptions) -> str:
    """The agent's instructions, then the caller's."""
    said = brief.instructions.strip()
    told = [instructions, f"{HEADING}\n{said}"] if said else [instructions]
    if brief.answer_schema is not None:
        told.append(SCHEMA_NOTE + msgspec.json.encode(brief.answer_schema).decode())
    return "\n\n".join(told)


def client_spec(tool: ClientTool) -> ToolSpec:
    """The tool as the gate knows it: any object may be its arguments, for it is not run here."""
    return ToolSpec(
        name=tool.name,
        version=digest_of([tool.name, tool.description, tool.parameters])[:16],
        description=tool.description,
        parameters=ANY_OBJECT,
        tool_class="effect",
        risk="low",
        executor=CLIENT,
    )
