"""The tool `shell`: runs one program or command line in the sandbox until its exit.

The output is standard output and standard error in order of arrival.  A program that fails is a
failed call; the text ends with its exit code or signal, the limit it hit, and notes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from palyra.core.ports import RunBlocking
from palyra.core.text.visible import pluralize
from palyra.core.tool.spec import SHARED_HOST, ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.tools.programs.command_line import find_facets
from palyra.tools.programs.disk_watch import DiskWatch, disks_of
from palyra.tools.programs.output import (
    KEPT_BYTES,
    OutputBuffer,
    read_until_exit,
)
from palyra.tools.programs.program import (
    CommandEnvironment,
    build_command,
    explain_missing,
    inspect_program,
)
from palyra.tools.programs.result_notes import (
    CommandTrace,
    describe_ending,
    file_clock_ns,
    find_notes,
)
from palyra.tools.sandbox.child import ProcessExit
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.toolbox import AsyncTool

DEFAULT_S = 120
SLACK_S = 15  # for building and removing the jail, in addition to the program's time
EXCERPT_BYTES = 16_384
_HALF_BYTES = KEPT_BYTES // 2  # of head and tail

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
    enforcement: str,
    ceiling_s: float,
    capabilities: tuple[str, ...] = ("process",),
    git_obstacle: str = "",
) -> ToolSpec:
    """Return the tool's specification; a program runs for at most `ceiling_s`."""
    network = "network to a few hosts" if "network" in capabilities else "no network"
    network += " and a loopback of its own" * (SHARED_HOST not in capabilities)
    git = f" git finds no repository: {git_obstacle}." * bool(git_obstacle)
    top = " At the top of the workspace nothing new can be made." * (SHARED_HOST in capabilities)
    return ToolSpec(
        name="shell",
        version="1",
        description="Run a program, or a command line, in the workspace and give its output: "
        "standard output and standard error in the order they came. It "
        f"runs in a sandbox with {network}; only the workspace and temporary folders can be "
        f"written.{top} What still runs when the program exits is ended: process_start keeps it."
        f"{git} "
        "Give argv or command.",
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
            shell_spec(
                self.sandbox.enforcement,
                self.ceiling_s,
                self.around.capabilities,
                self.around.git_obstacle,
            ),
            self.run,
            facets=find_facets,
            inspect=lambda call: inspect_program(self.around, call),
        )

    async def run(self, call: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        """Run the program until its exit.  Cancellation: all its processes are killed first."""
        command = await self.run_blocking(build_command, self.around, call)
        output = OutputBuffer(on_output, head_bytes=_HALF_BYTES, tail_bytes=_HALF_BYTES)
        started_ns = file_clock_ns()
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
        result = output.result()
        trace = CommandTrace(
            command, started_ns, self.run_blocking, partial(explain_missing, self.around)
        )
        notes = await find_notes(result.text, child, ending, trace)
        text = result.text + "\n" * bool(result.text and not result.text.endswith("\n"))
        size = f"{pluralize(result.total_bytes, 'byte')} of output in {took_s:.1f} s"
        lines = [f"{describe_ending(ending, command.limits)}; {size}", *notes]
        return ToolOutput(
            text=text + "\n".join(f"[{line}]" for line in lines),
            is_truncated=result.is_truncated,
            is_failure=ending is None or ending.exit_code != 0,
            enforcement=child.enforcement,
        )
