"""A daemon with a tool that crashes in its caller's words, and, if told so, without redaction.

`leaky_daemon.py guarded|blind` and the rest of the command line of `palyra`.
"""

import sys
from typing import Any

from palyra import toolset
from palyra.core.redact import Redactor, StreamRedactor
from palyra.core.tools import ToolCall, ToolOutput, ToolSpec
from palyra.tools.basic import basic_tools
from palyra.tools.catalog import InlineTool

EXPLODE = ToolSpec(
    name="explode",
    version="1",
    description="Crash.",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}},
    tool_class="read_only_safe",
    risk="low",
)


def explode(call: ToolCall) -> ToolOutput:
    """A defect that shows what it was called with."""
    raise RuntimeError(f"cannot go on with {call.arguments}")


def make_blind() -> None:
    """Take every redactor's sight."""

    def pass_on(_self: object, data: Any) -> Any:
        return data, False

    blind: Any = {"redact_bytes": pass_on, "redact_text": pass_on}
    for name, method in blind.items():
        setattr(Redactor, name, method)
    seeing: Any = {"feed": lambda _self, text: text, "flush": lambda _self: ""}
    for name, method in seeing.items():
        setattr(StreamRedactor, name, method)


if __name__ == "__main__":
    toolset.basic_tools = lambda: [*basic_tools(), InlineTool(EXPLODE, explode)]  # type: ignore[attr-defined]  # it only imports it
    if sys.argv.pop(1) == "blind":
        make_blind()
    from palyra.__main__ import main  # after the above

    main()
