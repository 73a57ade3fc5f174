"""Tools of skills: from a call to a guest and back."""

from pathlib import Path

import pytest
import trio.testing

from palyra.core.skill.manifest import SkillRecord
from palyra.core.tool.spec import ToolCall, ToolOutput
from palyra.tools.skills.audit import DAMAGED
from palyra.tools.skills.host_functions import HostFunctions
from palyra.tools.skills.tools import SkillTools, read_output
from palyra.tools.toolbox import Toolbox
from palyra.tools.wasm import protocol
from palyra.tools.wasm.limits import GuestFailure
from tests.core.skill.skill_samples import package
from tests.tools.skills.kit import HELLO, OPERATOR, World, open_world, run_inline

Clock = trio.testing.MockClock


async def call(world: World, record: SkillRecord, heard: list[str] | None = None) -> ToolOutput:
    """One call of the skill's tool, through a toolbox."""
    tools = SkillTools(
        world.runtime,
        HostFunctions(),
        run_inline,
        world.skills.find_package,
        world.skills.report_damage,
    )
    toolbox = Toolbox(tools.make([record]), run_inline)
    (name,) = toolbox.catalogue().tools
    made = ToolCall(
        call_id="c",
        run_id="r",
        session_id="s",
        principal="ann",
        tool=name,
        tool_version=toolbox.catalogue().tools[name].version,
        arguments={"text": "a b"},
    )
    return await toolbox.execute(made, (heard if heard is not None else []).append)


async def test_a_guest_gets_its_tool_and_arguments(autojump_clock: Clock, tmp_path: Path) -> None:
    """And its result is what the model sees, as text from outside."""
    async with open_world(tmp_path) as world:
        output = await call(world, await world.install(package(HELLO)))
    (guest,) = world.runtime.ran
    assert b'{"tool":"count","arguments":{"text":"a b"}}' == guest.input
    assert ("hello", "external_untrusted", False) == (output.text, output.trust, output.is_failure)
    assert ("wasm", "A+wasmtime") == (output.executor, output.enforcement)


async def test_a_log_line_is_output_while_it_runs(autojump_clock: Clock, tmp_path: Path) -> None:
    """Where it is granted."""
    heard: list[str] = []
    async with open_world(tmp_path) as world:
        world.runtime.asks = protocol.HostCall(function="log", argument=b"half way")
        await call(world, await world.install(package(HELLO, capabilities=["log"])), heard)
        assert "'log' is not granted" == (world.runtime.reply or protocol.HostReply()).denied
        await call(
            world, await world.install(package(HELLO, capabilities=["log"]), ("log",)), heard
        )
    assert ["half way\n"] == heard


async def test_a_replaced_package_is_not_run(autojump_clock: Clock, tmp_path: Path) -> None:
    """The call says why, and the skill is quarantined.  Control: before, it was run."""
    async with open_world(tmp_path) as world:
        record = await world.install(package(HELLO))
        await call(world, record)
        world.package_file.write_bytes(world.package_file.read_bytes() + b"\0")
        failed = await call(world, record)
        assert (f"disabled: words: {DAMAGED}", True) == (failed.text, failed.is_failure)
        assert 1 == len(world.runtime.ran)
        assert "quarantined" == world.skills.get(OPERATOR, "words").state


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"result":1,"error":"x"}',
        b'{"result":1,"more":2}',
        b'{"error":1}',
        b'{"result":"\xff"}',
        b'{"result":1}{}',
        b"[" * 100_000,
    ],
)
async def test_invalid_output_fails_the_call(
    autojump_clock: Clock, tmp_path: Path, output: bytes
) -> None:
    """Any invalid output does."""
    async with open_world(tmp_path) as world:
        world.runtime.output = output
        failed = await call(world, await world.install(package(HELLO)))
        assert (True, "external_untrusted") == (failed.is_failure, failed.trust)
        assert failed.text.startswith("bad_output: ")


def test_a_result_is_shown_as_text() -> None:
    """A text as it is, anything else as JSON; an error is a failed call with its text."""
    assert ["a\nb", '{"n":1}', "null"] == [
        read_output(output).text
        for output in (b'{"result":"a\\nb"}', b'{"result": {"n": 1}}', b'{"result":null}')
    ]
    failed = read_output(b'{"error":"no such word"}')
    assert ("no such word", True) == (failed.text, failed.is_failure)
    with pytest.raises(GuestFailure):
        read_output(b'{"error":null}')
