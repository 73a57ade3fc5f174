"""The tool `shell`: runs one program or command line in the sandbox until its exit.

The output is standard output and standard error in order of arrival.  A program that fails is a
failed call; the text ends with its exit code or signal and the limit it hit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from palyra.core.ports import RunBlocking
from palyra.core.text.visible import pluralize
from palyra.core.tool.spec import SHARED_HOST, ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.tools.programs.command_line import find_facets
from palyra.tools.programs.disk_watch import DiskWatch, disks_of
from palyra.tools.programs.output import (
    FLOOD_BYTES,
    KEPT_BYTES,
    Captured,
    OutputBuffer,
    read_until_exit,
)
from palyra.tools.programs.program import CommandEnvironment, build_command, inspect_program
from palyra.tools.sandbox.child import JailedProcess, ProcessExit
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.toolbox import AsyncTool

DEFAULT_S = 120
SLACK_S = 15  # for building and removing the jail, in addition to the program's time
EXCERPT_BYTES = 16_384

WORDS: dict[str, Any] = {
    "argv": {
        "type": "array",
        "items": {"type": "string", "maxLength": 16_384},
        "minItems": 1,
        "maxItems": 256,
        "description": "Program and arguments, run as they are, without a shell.",
    },
    "command": {
        "type": "string",
        "minLength": 1,
        "maxLength": 16_384,
        "description": "Instead of argv: a line for /bin/sh, with pipes and redirections.",
    },
    "cwd": {
        "type": "string",
        "maxLength": 4_096,
        "description": "Folder to run in, relative to the workspace; left out, the workspace.",
    },
}


def shell_spec(
    enforcement: str, ceiling_s: float, capabilities: tuple[str, ...] = ("process",)
) -> ToolSpec:
    """Return the tool's specification; a program runs for at most `ceiling_s`."""
    network = "network to a few hosts" if "network" in capabilities else "no network"
    top = " At the top of the workspace nothing new can be made." * (SHARED_HOST in capabilities)
    return ToolSpec(
        name="shell",
        version="1",
        description="Run a program, or a command line, in the workspace and give its output: "
        "standard output and standard error in the order they came. It "
        f"runs in a sandbox with {network}; only the workspace and temporary folders can be "
        f"written.{top} Give argv or command.",
        parameters={
            "type": "object",
            "properties": {
                **WORDS,
                "timeout_s": {
                    "type": "number",
                    "minimum": 1,
                    "maximum": ceiling_s,
                    "description": f"Most seconds it may take; {min(DEFAULT_S, ceiling_s):g} when "
                    "left out.",
                },
            },
        },
        tool_class="effect",
        risk="high",
        capabilities=capabilities,
        deadline_s=ceiling_s + SLACK_S,
        never_coerced=("argv", "command", "cwd"),
        excerpt_bytes=EXCERPT_BYTES,
        executor="process",
        enforcement=enforcement,
    )


_LIMITS = {
    "output": f"more than {FLOOD_BYTES} bytes of output",
    "folder": "a folder it writes to is not there any more",
}


@dataclass(frozen=True, slots=True)
class Shell:
    """Runner of the tool."""

    sandbox: Sandbox
    around: CommandEnvironment
    run_blocking: RunBlocking
    ceiling_s: float

    def tool(self) -> AsyncTool:
        """Return the tool for the toolbox."""
        return AsyncTool(
            shell_spec(self.sandbox.enforcement, self.ceiling_s, self.around.capabilities),
            self.run,
            facets=find_facets,
            inspect=lambda call: inspect_program(self.around, call),
        )

    async def run(self, call: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        """Run the program until its exit.  Cancellation: all its processes are killed first."""
        command = await self.run_blocking(build_command, self.around, call)
        half_bytes = KEPT_BYTES // 2
        output = OutputBuffer(on_output, head_bytes=half_bytes, tail_bytes=half_bytes)
        timeout_s = call.arguments.get("timeout_s", min(DEFAULT_S, self.ceiling_s))
        started_s, limit = trio.current_time(), "time"
        try:
            watch = DiskWatch(*disks_of(command))
            async with self.sandbox.open(command) as child:
                with trio.move_on_after(timeout_s):
                    limit = await read_until_exit(child, output, watch)
            child.check_started()
        except SandboxFailure as failure:
            raise ToolFailure(failure.message) from failure
        took_s = trio.current_time() - started_s
        ending = ProcessExit(None, "SIGKILL", limit) if limit else child.ending
        return render(output.result(), ending, took_s, child)


def render(
    output: Captured, ending: ProcessExit | None, took_s: float, child: JailedProcess
) -> ToolOutput:
    """Return the tool's result: the output, then a line with exit code, size and time."""
    text = output.text if not output.text or output.text.endswith("\n") else f"{output.text}\n"
    how = describe_ending(ending)
    note = f"[{how}; {pluralize(output.total_bytes, 'byte')} of output in {took_s:.1f} s]"
    if child.restored:
        names = ", ".join(child.restored)
        note += f"\n[put back or set aside, because no program may change or make it: {names}]"
    return ToolOutput(
        text=text + note,
        is_truncated=output.is_truncated,
        is_failure=ending is None or ending.exit_code != 0,
        enforcement=child.enforcement,
    )


def describe_ending(ending: ProcessExit | None) -> str:
    """Describe an exit, with the limit that was hit."""
    if ending is None:
        return "still running"
    how = f"exit code {ending.exit_code}" if not ending.signal else f"ended by {ending.signal}"
    return f"{how}; limit hit: {_LIMITS.get(ending.limit, ending.limit)}" if ending.limit else how
