"""The keeper: programs can be run exactly while the walls are proved."""

from collections.abc import Iterator, Sequence

import pytest
import trio
from trio.testing import MockClock

from palyra.actors.blocking import run_sync
from palyra.core.tools import ToolCall, ToolOutput, ToolSpec
from palyra.tools.catalog import InlineTool, Tool
from palyra.tools.sandbox import jailer
from palyra.tools.sandbox import keeper as keeping
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.keeper import PROVE_S, RETRY_S, Keeper
from palyra.tools.sandbox.sandbox import Sandbox

PROOF_S = 0.5


class Proofs:
    """What each self-test finds: a leak, "" or why it could not be made."""

    def __init__(self, *found: str | SandboxFailure) -> None:
        self._found: Iterator[str | SandboxFailure] = iter(found)
        self.times_s: list[float] = []

    async def __call__(self, *_: object) -> str:
        self.times_s.append(trio.current_time())
        await trio.sleep(PROOF_S)
        found = next(self._found, "")
        if isinstance(found, SandboxFailure):
            raise found
        return found


class Inline:
    """A thread that is none."""

    async def call(self, fn: object, *args: object) -> object:
        return fn(*args)  # type: ignore[operator]


SPEC = ToolSpec(
    name="shell",
    version="1",
    description="",
    parameters={"type": "object"},
    tool_class="effect",
    risk="high",
)


def run(_call: ToolCall) -> ToolOutput:
    return ToolOutput(text="")


class Kept:
    """A keeper, and what it has put into the toolbox."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: str | SandboxFailure) -> None:
        self.proofs = Proofs(*found)
        monkeypatch.setattr(keeping, "prove_walls", self.proofs)
        self.sandbox = Sandbox(Inline(), bubblewrap="/usr/bin/bwrap")  # type: ignore[arg-type]
        self.tools: Sequence[Tool] = ()
        tools = [InlineTool(SPEC, run)]
        self.keeper = Keeper(self.sandbox, run_sync, self.put, tools)

    def put(self, source: str, tools: Sequence[Tool]) -> None:
        assert source == "process"
        self.tools = tools


async def test_tools_come_with_the_proof(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start does not wait for the first proof; after it the tools are there, and stay."""
    kept = Kept(monkeypatch)
    await nursery.start(kept.keeper.serve)
    assert ((), None) == (kept.tools, kept.keeper.problem)
    await trio.sleep(2.5 * PROVE_S)
    assert (1, "", 3) == (len(kept.tools), kept.keeper.problem, len(kept.proofs.times_s))


async def test_a_leak_ends_it_for_good(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One probe that succeeds takes the tools away, and closes the sandbox for everybody."""
    kept = Kept(monkeypatch, "", "a keyring")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(4 * PROVE_S)
    assert () == kept.tools
    assert "a keyring" in (kept.keeper.problem or "")
    assert 2 == len(kept.proofs.times_s)
    with pytest.raises(SandboxFailure, match="a keyring"):
        async with kept.sandbox.open(None):  # type: ignore[arg-type]
            pass


async def test_a_proof_that_cannot_be_made_is_tried_again(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it can be made there are no tools, and somebody can read why."""
    kept = Kept(monkeypatch, SandboxFailure("no namespaces"))
    await nursery.start(kept.keeper.serve)
    await trio.sleep(RETRY_S / 2)
    assert ((), "no namespaces") == (kept.tools, kept.keeper.problem)
    await trio.sleep(RETRY_S)
    assert (1, "") == (len(kept.tools), kept.keeper.problem)


async def test_a_failure_is_a_reason_to_look(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jail that could not be built has the walls proved again at once."""
    kept = Kept(monkeypatch, "", "", "a remount")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(2 * PROOF_S)
    kept.sandbox.on_failure()
    await trio.sleep(2 * PROOF_S)
    assert [0.0, 1.0] == kept.proofs.times_s
    kept.sandbox.on_failure()
    await trio.sleep(2 * PROOF_S)
    assert () == kept.tools


async def test_without_bubblewrap_nothing_runs(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools are absent and the reason names the package; nothing runs without walls."""
    kept = Kept(monkeypatch)
    monkeypatch.setattr(kept.sandbox._jailer, "_bubblewrap", "")
    monkeypatch.setattr(jailer, "PROGRAM_FOLDERS", "/nowhere")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(2 * PROOF_S)
    assert () == kept.tools
    assert "install the package bubblewrap" in (kept.keeper.problem or "")
    monkeypatch.undo()
    monkeypatch.setattr(keeping, "prove_walls", kept.proofs)
    kept.sandbox._jailer._bubblewrap = "/usr/bin/bwrap"  # it was installed meanwhile
    await trio.sleep(RETRY_S + 1)
    assert 1 == len(kept.tools)
