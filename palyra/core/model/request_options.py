"""Request options: settings that a caller gives a run in addition to its message.

They have the authority of the principal who starts the run and no more: they rank below the agent's
instructions, cannot bypass policy, and end with the run.  Tools declared here are executed by the
client; the daemon only forwards their calls.
"""

from typing import Any

import msgspec

from palyra.core.model.messages import DEFAULT_SAMPLING, Sampling
from palyra.core.text.canonical_json import digest_of
from palyra.core.tool.spec import CLIENT, ToolSpec

ANY_OBJECT = {"type": "object", "additionalProperties": True}
SCHEMA_NOTE = "Answer with one JSON value that fits this JSON Schema, and nothing round it:\n"
ANY_TOOL = "*"  # not a valid tool name
HEADING = "The caller of this conversation adds, as far as it agrees with what stands above:"


class ClientTool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool executed by the client."""

    name: str
    description: str = ""
    parameters: dict[str, Any]  # JSON Schema; checked by the client only


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Settings that a caller gives a run in addition to its message."""

    instructions: str = ""
    tools: tuple[ClientTool, ...] = ()
    sampling: Sampling = DEFAULT_SAMPLING
    answer_schema: dict[str, Any] | None = None  # JSON Schema of an answer in JSON mode
    must_call: str = ""  # a tool's name or ANY_TOOL: the answer must be a call of it, without text
    one_call: bool = False  # at most one call an answer; a turn with more keeps the first

    @property
    def is_blank(self) -> bool:
        """True if every option has its default."""
        return self == BLANK

    @property
    def shown(self) -> tuple[ClientTool, ...]:
        """The client's tools shown to the model: only those it may call."""
        if self.must_call in {"", ANY_TOOL}:
            return self.tools
        return tuple(tool for tool in self.tools if tool.name == self.must_call)


BLANK = RequestOptions()


def add_instructions(instructions: str, brief: RequestOptions) -> str:
    """Return the agent's instructions followed by the caller's."""
    said = brief.instructions.strip()
    parts = [instructions, f"{HEADING}\n{said}"] if said else [instructions]
    if brief.answer_schema is not None:
        parts.append(SCHEMA_NOTE + msgspec.json.encode(brief.answer_schema).decode())
    return "\n\n".join(parts)


def client_spec(tool: ClientTool) -> ToolSpec:
    """Return the tool's gate specification; it accepts any object, because the client checks it."""
    return ToolSpec(
        name=tool.name,
        version=digest_of([tool.name, tool.description, tool.parameters])[:16],
        description=tool.description,
        parameters=ANY_OBJECT,
        tool_class="effect",
        risk="low",
        executor=CLIENT,
    )
