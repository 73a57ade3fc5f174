"""The tools `process_start`, `process_status`, `process_output` and `process_stop`.

A run sees and stops only the programs it started itself, by ids of the daemon; a process of the
machine cannot be named.  All programs of a run end with it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import trio

from palyra.core.ids import NewId
from palyra.core.ports import RunBlocking
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import pluralize
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.tools.programs.command_line import find_facets, read_command
from palyra.tools.programs.processes import BackgroundProgram
from palyra.tools.programs.program import (
    CommandEnvironment,
    build_command,
    explain_missing,
    inspect_program,
)
from palyra.tools.programs.result_notes import describe_ending
from palyra.tools.programs.shell import WORDS
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.toolbox import AsyncTool, InlineTool, OnOutput, Tool

MAX_PER_RUN = 8
MAX_SEALED_BYTES = 16_777_216  # of the scripts of a run's programs, while they run
MAX_REMEMBERED = 256  # that have ended, over all runs
PAGE_BYTES = 16_000  # leaves room for the note in the excerpt for the model
EXCERPT_BYTES = 16_384
NAME_CHARS = 80
MAX_WAIT_S = 30
NOTHING_STARTED = "this run has started no program in the background; process_start does that"

# Start a named task under a supervisor; returns when the task is ready.
Spawn = Callable[[str, Callable[..., Awaitable[None]]], Awaitable[object]]

_PROCESS: dict[str, Any] = {
    "process": {"type": "string", "maxLength": 64, "description": "Its name, of process_start."}
}


def _spec(name: str, description: str, parameters: dict[str, Any], **more: Any) -> ToolSpec:  # noqa: ANN401 - fields of ToolSpec
    return ToolSpec(
        name=name,
        version="1",
        description=description,
        parameters={"type": "object", **parameters},
        excerpt_bytes=EXCERPT_BYTES,
        **more,
    )


START = _spec(
    "process_start",
    "Start a program, or a command line, that goes on in the background; same sandbox as shell. "
    "It ends with this run. Give argv or command.",
    {"properties": WORDS},
    tool_class="effect",
    risk="high",
    capabilities=("process",),
    deadline_s=60.0,
    never_coerced=("argv", "command", "cwd"),
    executor="process",
)
STATUS = _spec(
    "process_status",
    "The background programs of this run, and how each is.",
    {"properties": {}},
    tool_class="read_only_safe",
    risk="low",
)
OUTPUT = _spec(
    "process_output",
    "What a background program of this run has written, from a position on.",
    {
        "properties": {
            **_PROCESS,
            "offset": {"type": "integer", "minimum": 0, "description": "First byte, from 0."},
            "wait_s": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S,
                       "description": "How long to wait if nothing is there yet."},
        },
        "required": ["process"],
    },
    tool_class="read_only_safe",
    risk="low",
    deadline_s=MAX_WAIT_S + 5.0,
    executor="async",
)  # fmt: skip
STOP = _spec(
    "process_stop",
    "Stop a background program of this run, with everything it started.",
    {"properties": _PROCESS, "required": ["process"]},
    tool_class="effect",
    risk="low",
    deadline_s=30.0,
    is_idempotent=True,
    executor="async",
)


class Processes:
    """The background programs of all runs."""

    def __init__(
        self,
        sandbox: Sandbox,
        run_blocking: RunBlocking,
        *,
        spawn: Spawn,
        is_open: Callable[[str], bool],
        new_id: NewId,
    ) -> None:
        """`is_open`: True for the id of a run that has not ended."""
        self._sandbox = sandbox
        self._run_blocking = run_blocking
        self._spawn = spawn
        self._is_open = is_open
        self._new_id = new_id
        self._known: dict[str, BackgroundProgram] = {}

    def tools(self, around: CommandEnvironment) -> list[Tool]:
        """Return the four tools; their programs run in this environment."""
        start = msgspec.structs.replace(START, capabilities=around.capabilities)
        return [
            AsyncTool(
                start,
                partial(self.start, around),
                facets=find_facets,
                inspect=partial(inspect_program, around),
            ),
            InlineTool(STATUS, self.status),
            AsyncTool(OUTPUT, self.output),
            AsyncTool(STOP, self.stop),
        ]

    async def start(
        self, around: CommandEnvironment, call: ToolCall, _on_output: OnOutput
    ) -> ToolOutput:
        """Start a program.  Cancellation: it may have started, and ends with its run."""
        own = [each for each in self._of(call.run_id) if each.is_running]
        if len(own) >= MAX_PER_RUN:
            raise ToolFailure(f"{len(own)} programs run already, the most there may be: stop one")
        command = await self._run_blocking(build_command, around, call)
        held_bytes = sum(each.command.sealed_bytes for each in self._of(call.run_id))
        if held_bytes + command.sealed_bytes > MAX_SEALED_BYTES:
            raise ToolFailure(
                f"the scripts of the programs in the background would have more than "
                f"{MAX_SEALED_BYTES} bytes together: stop one first"
            )
        process_id = self._new_id("proc")
        name = truncate_safely(" ".join(read_command(call.arguments).words), NAME_CHARS)
        program = BackgroundProgram(
            process_id,
            call.run_id,
            name,
            command,
            run_blocking=self._run_blocking,
            explain_missing=partial(explain_missing, around),
        )
        self._remember(program)

        async def live(*, task_status: trio.TaskStatus[None]) -> None:
            await program.live(self._sandbox, self._is_open, task_status=task_status)

        try:
            await self._spawn(process_id, live)
        except SandboxFailure as failure:
            raise ToolFailure(failure.message) from failure
        return ToolOutput(text=f"{process_id} started", enforcement=program.enforcement)

    def status(self, call: ToolCall) -> ToolOutput:
        """List the run's programs, one line each."""
        lines = [_describe(each) for each in self._of(call.run_id)]
        return ToolOutput(text="\n".join(lines) or NOTHING_STARTED)

    async def output(self, call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """Return a page of output.  Cancellation: nothing changes."""
        program = self._find(call)
        start = call.arguments.get("offset", 0)
        with trio.move_on_after(call.arguments.get("wait_s", 0)):
            while program.is_running and program.output.total_bytes <= start:
                await program.wait_change()
        page = program.output.read(start, PAGE_BYTES)
        note = f"[bytes {page.start} to {page.end} of {page.total}; {_state(program)}]"
        if page.start > start:
            note = f"[bytes {start} to {page.start} are not kept any more]\n{note}"
        more = f" go on with offset {page.end}" if page.end < page.total else ""
        return ToolOutput(text=f"{page.text}\n{note}{more}", is_truncated=page.start > start)

    async def stop(self, call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """Kill a program and wait for its exit.  Cancellation: it is being killed."""
        program = self._find(call)
        program.stop()
        await program.wait_ended()
        return ToolOutput(text=_describe(program))

    def _of(self, run_id: str) -> list[BackgroundProgram]:
        return [each for each in self._known.values() if each.run_id == run_id]

    def _find(self, call: ToolCall) -> BackgroundProgram:
        """Find a program of this run.  Raises the same ToolFailure for any other id, existing or not."""
        found = self._known.get(call.arguments["process"])
        if found is None or found.run_id != call.run_id:
            raise ToolFailure("this run has started no such process: see process_status")
        return found

    def _remember(self, program: BackgroundProgram) -> None:
        self._known[program.process_id] = program
        gone = [each for each in self._known.values() if not each.is_running]
        for each in gone[: max(0, len(gone) - MAX_REMEMBERED)]:
            del self._known[each.process_id]


def _describe(program: BackgroundProgram) -> str:
    until_s = trio.current_time() if program.ended_s is None else program.ended_s
    took_s = until_s - program.started_s
    how = "for" if program.is_running else "after"
    return (
        f"{program.process_id}: {_state(program)} {how} {took_s:.0f} s, "
        f"{pluralize(program.output.total_bytes, 'byte')} of output, command: {program.name}"
    )


def _state(program: BackgroundProgram) -> str:
    if program.failure:
        return f"not started: {program.failure}"
    if program.is_running:
        return "running"
    return "; ".join([describe_ending(program.ending, program.command.limits), *program.notes])
