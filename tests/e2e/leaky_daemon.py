"""A daemon with a tool that crashes with its caller's text, and optionally without redaction."""

from functools import partial
from typing import Any

from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.tools.demo_tools import basic_tools
from palyra.tools.toolbox import InlineTool
from palyra.wiring import tools
from tests.e2e.daemon_process import DaemonProcess
from tests.forked import ForkedProcess, Setting

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


def prepare(*, is_blind: bool) -> None:
    """Change the process before it becomes the daemon."""
    tools.basic_tools = lambda: [*basic_tools(), InlineTool(EXPLODE, explode)]  # type: ignore[attr-defined]  # it only imports it
    if is_blind:
        make_blind()


class LeakyDaemon(DaemonProcess):
    """The process."""

    is_blind = False

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        before = partial(prepare, is_blind=self.is_blind)
        return ForkedProcess(self.arguments(), Setting(environment, streams, before=before))
