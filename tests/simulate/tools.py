"""Tools whose effects are counted, and the watch on what the daemon runs."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from palyra.core.tool.spec import CallFacts, ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.daemon import Daemon
from palyra.tools.toolbox import AsyncTool, ThreadTool, Tool
from tests.simulate.models import SECRET
from tests.simulate.trace import Planted

if TYPE_CHECKING:
    from tests.simulate.life import Life


PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "seconds": {"type": "number", "minimum": 0, "maximum": 60},
    },
    "required": ["text"],
}


def _spec(name: str, tool_class: Any, *, is_idempotent: bool = False) -> ToolSpec:
    return ToolSpec(
        name=name,
        version="1",
        description=f"{name}, simulated",
        parameters=PARAMETERS,
        tool_class=tool_class,
        risk="low",
        is_idempotent=is_idempotent,
        deadline_s=5.0,
    )


def simulated_tools(life: "Life") -> list[Tool]:
    """Return one tool of each kind: harmless, effect, idempotent, threaded, to be approved."""

    async def act(call: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        arguments, weather = call.arguments, life.world.weather
        on_output(f"about to {arguments['text']}\n")
        if weather.strikes("tool hangs"):
            await trio.sleep_forever()
        await trio.sleep(arguments.get("seconds", 0) / 2)
        if weather.strikes("tool fails"):
            raise ToolFailure(f"not today; by the way, {SECRET}")
        if weather.strikes("tool crashes"):
            raise Planted("tool")
        await life.reach(f"tool {call.tool}")
        life.world.oracle.took_effect(call)
        await life.reach("tool is done")
        await trio.sleep(arguments.get("seconds", 0) / 2)
        return ToolOutput(text=f"did {arguments['text']}")

    def press(call: ToolCall) -> ToolOutput:
        life.effect("tool press")
        life.world.oracle.took_effect(call)
        life.effect("tool is done")
        return ToolOutput(text=f"pressed {call.arguments['text']}")

    return [
        AsyncTool(_spec("peek", "read_only_safe"), act),
        AsyncTool(_spec("mark", "effect"), act),
        AsyncTool(_spec("again", "effect", is_idempotent=True), act),
        AsyncTool(_spec("approve_mark", "effect"), act, _whose),
        AsyncTool(_spec("approve_again", "effect", is_idempotent=True), act, _whose),
        AsyncTool(_spec("never", "effect"), act),
        ThreadTool(_spec("press", "effect"), press),
    ]


def _whose(arguments: Mapping[str, Any]) -> CallFacts:
    """A grant is for what the same person marks."""
    return CallFacts(grant_key=grant_key(arguments))


def grant_key(arguments: Mapping[str, Any]) -> str:
    """Return the part of the text before its first dot: `task ann` of `task ann.0.1`."""
    return str(arguments["text"]).partition(".")[0]


def watch_calls(life: "Life", daemon: Daemon) -> None:
    """Look at every call that is about to be executed."""
    toolbox: Any = daemon.services.toolbox
    execute = toolbox.execute

    async def watched(call: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        if life.is_on:
            life.world.oracle.is_executed(call, life)
        await life.reach(f"execute {call.tool} {call.call_id[-4:]}")
        output: ToolOutput = await execute(call, on_output)
        return output

    toolbox.execute = watched
