"""Tools of skills: run an allowed call in a WASM guest and convert its output.

Guest input: `{"tool": NAME, "arguments": {…}}`.
Guest output: an object with exactly one member, `result` (any JSON) or `error` (text for the
model).  `error` reports a failed call, not a failure of the guest.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from palyra.core.ports import RunBlocking
from palyra.core.skill.manifest import MODULE, SkillRecord, SkillTool, kinds_of, tool_specs
from palyra.core.skill.package import read_module
from palyra.core.tool.spec import ToolCall, ToolOutput
from palyra.tools.skills.audit import DAMAGED
from palyra.tools.skills.host_functions import HostFunctionGate, HostFunctions
from palyra.tools.toolbox import AsyncTool, OnOutput, Tool
from palyra.tools.wasm.limits import GuestFailure, GuestLimits
from palyra.tools.wasm.runtime import Guest, Runtime

FindPackage = Callable[[SkillRecord], bytes | None]
ReportDamage = Callable[[SkillRecord], Awaitable[None]]


class SkillTools:
    """Creates the tools of installed skills and executes their calls."""

    def __init__(
        self,
        runtime: Runtime,
        doors: HostFunctions,
        run_blocking: RunBlocking,
        find_package: FindPackage,
        report_damage: ReportDamage,
    ) -> None:
        self._runtime = runtime
        self._doors = doors
        self._run_blocking = run_blocking
        self._find_package = find_package
        self._report_damage = report_damage

    def make(self, records: Iterable[SkillRecord]) -> list[Tool]:
        """Return one tool for each tool of the records' manifests."""
        return [
            AsyncTool(spec, _Runner(self, record, tool).run)
            for record in records
            for spec, tool in zip(tool_specs(record), record.manifest.tools, strict=True)
        ]

    async def call(
        self, record: SkillRecord, tool: SkillTool, call: ToolCall, on_output: OnOutput
    ) -> ToolOutput:
        """Run the call in a guest.  Raises GuestFailure.  Cancellation: the guest is ended."""
        package = await self._run_blocking(self._find_package, record)
        if package is None:
            await self._report_damage(record)
            raise GuestFailure("disabled", f"{record.manifest.id}: {DAMAGED}")
        guest = Guest(
            module_sha256=record.manifest.files[MODULE].sha256,
            read_module=lambda: read_module(package),
            input=render_input(tool.name, call.arguments),
            limits=GuestLimits(deadline_s=tool.deadline_s),
            granted=tuple(sorted(kinds_of(record.granted))),
        )
        keeper = HostFunctionGate(self._doors, record.granted, on_output)
        output = await self._runtime.run(guest, keeper.serve)
        return await self._run_blocking(read_output, output)


class _Runner:
    """One tool of one record."""

    def __init__(self, tools: SkillTools, record: SkillRecord, tool: SkillTool) -> None:
        self._tools, self._record, self._tool = tools, record, tool

    async def run(self, call: ToolCall, on_output: OnOutput) -> ToolOutput:
        try:
            return await self._tools.call(self._record, self._tool, call, on_output)
        except GuestFailure as failure:  # the message may contain guest output
            return ToolOutput(text=failure.message, is_failure=True, trust="external_untrusted")


_SHAPE = 'a JSON object with "result" or "error"'


def render_input(tool: str, arguments: Mapping[str, Any]) -> bytes:
    """Encode the guest input of one call."""
    return msgspec.json.encode({"tool": tool, "arguments": arguments})


def read_output(output: bytes) -> ToolOutput:
    """Decode the guest output; blocks if it is large.  Raises GuestFailure (`bad_output`)."""
    try:
        value = msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GuestFailure("bad_output", f"the output is not {_SHAPE}: {error}") from None
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"result", "error"}:
        raise GuestFailure("bad_output", f"the output is not {_SHAPE}")
    if "error" in value:
        if not isinstance(value["error"], str):
            raise GuestFailure("bad_output", "`error` is not a text")
        return ToolOutput(text=value["error"], is_failure=True, trust="external_untrusted")
    return ToolOutput(text=_text(value["result"]), trust="external_untrusted")


def _text(result: object) -> str:
    if isinstance(result, str):
        return result
    try:
        return msgspec.json.encode(result).decode()
    except (RecursionError, ValueError, OverflowError) as error:
        raise GuestFailure("bad_output", f"the result cannot be shown: {error}") from None
