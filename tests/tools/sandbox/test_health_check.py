"""The health check: programs can be run exactly while the sandbox passes its test."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.tools.sandbox import health_check as keeping
from palyra.tools.sandbox import spawner
from palyra.tools.sandbox.child import JailedProcess
from palyra.tools.sandbox.command import Level, SandboxFailure
from palyra.tools.sandbox.health_check import PROVE_S, RETRY_S, SandboxHealthCheck
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.toolbox import InlineTool, Tool
from tests.actors.fake_alarms import FakeAlarms

PROOF_S = 0.5
T = TypeVar("T")


class Proofs:
    """Results of the self-tests: a leak, "" or the reason why there was none."""

    def __init__(self, *found: str | SandboxFailure) -> None:
        self._found: Iterator[str | SandboxFailure] = iter(found)
        self.times_s: list[float] = []
        self.levels = ""

    async def __call__(self, _sandbox: object, _run_blocking: object, level: str) -> str:
        self.levels += level
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


async def inline(fn: Callable[..., T], *args: object) -> T:  # noqa: RUF029 - as threads are called
    """A thread that is none, for what blocks; virtual time would run away from a real one."""
    return fn(*args)


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

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *found: str | SandboxFailure,
        min_level: Level = "A",
    ) -> None:
        self.proofs = Proofs(*found)
        monkeypatch.setattr(keeping, "find_leak", self.proofs)
        self.sandbox = Sandbox(Inline(), bubblewrap="/usr/bin/bwrap", is_proved=False)  # type: ignore[arg-type]
        monkeypatch.setattr(self.sandbox, "find_obstacle", lambda _: "")
        self.tools: Sequence[Tool] = ()
        self.alarms = FakeAlarms()
        tools = [InlineTool(SPEC, run)]
        self.keeper = SandboxHealthCheck(
            self.sandbox,
            inline,
            self.put,
            lambda _: tools,
            workspace=Path("/srv"),
            min_level=min_level,
            incidents=self.alarms,
        )

    def put(self, source: str, tools: Sequence[Tool]) -> None:
        assert source == "process"
        self.tools = tools


async def test_tools_are_offered_after_the_first_test(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service's start does not wait for it; after it the tools are offered."""
    kept = Kept(monkeypatch)
    await nursery.start(kept.keeper.serve)
    assert ((), None) == (kept.tools, kept.keeper.problem)
    await trio.sleep(2.5 * PROVE_S)
    assert (1, "", 3) == (len(kept.tools), kept.keeper.problem, len(kept.proofs.times_s))


async def test_a_leak_ends_it_for_good(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One probe that succeeds takes the tools away, closes the sandbox, and is an incident."""
    kept = Kept(monkeypatch, "", "a keyring")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(4 * PROVE_S)
    (alarm,) = kept.alarms.raised
    assert ("walls_leak", "critical", True) == (
        alarm.key,
        alarm.severity,
        "a keyring" in f"{alarm.evidence}",
    )
    assert () == kept.tools
    assert "a keyring" in (kept.keeper.problem or "")
    assert 2 == len(kept.proofs.times_s)
    with pytest.raises(SandboxFailure, match="a keyring"):
        async with kept.sandbox.open(None):  # type: ignore[arg-type]
            pass


async def test_an_impossible_test_is_repeated(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it succeeds there are no tools, and the reason is shown."""
    kept = Kept(monkeypatch, SandboxFailure("no namespaces"))
    await nursery.start(kept.keeper.serve)
    await trio.sleep(RETRY_S / 2)
    assert ((), "no namespaces") == (kept.tools, kept.keeper.problem)
    await trio.sleep(RETRY_S)
    assert (1, "") == (len(kept.tools), kept.keeper.problem)
    assert [] == kept.alarms.told  # what is missing is a problem, and no leak


async def test_a_failed_jail_triggers_a_test(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jail that could not be built makes the sandbox be tested at once."""
    kept = Kept(monkeypatch, "", "", "a remount")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(2 * PROOF_S)
    kept.sandbox.on_failure()
    await trio.sleep(2 * PROOF_S)
    assert [0.0, 1.0] == kept.proofs.times_s
    kept.sandbox.on_failure()
    await trio.sleep(2 * PROOF_S)
    assert () == kept.tools


async def test_without_bubblewrap_no_program_runs(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools are absent and the reason names the package."""
    kept = Kept(monkeypatch)
    monkeypatch.setattr(kept.sandbox._spawner, "_bubblewrap", "")
    monkeypatch.setattr(spawner, "PROGRAM_FOLDERS", "/nowhere")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(2 * PROOF_S)
    assert () == kept.tools
    assert ("bubblewrap is not installed: apt install bubblewrap",) == kept.keeper.absent()
    monkeypatch.undo()
    monkeypatch.setattr(keeping, "find_leak", kept.proofs)
    kept.sandbox._spawner._bubblewrap = "/usr/bin/bwrap"  # it was installed meanwhile
    await trio.sleep(RETRY_S + 1)
    assert 1 == len(kept.tools)


async def test_level_b_only_where_it_is_asked_for(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without level A there are no programs; with min_level B that level is proved, and runs them."""
    strict = Kept(monkeypatch, SandboxFailure("no namespaces"))
    await nursery.start(strict.keeper.serve)
    await trio.sleep(3 * PROOF_S)
    assert ("A", (), "no namespaces") == (strict.proofs.levels, strict.tools, strict.keeper.problem)
    kept = Kept(monkeypatch, SandboxFailure("no namespaces"), "", "", min_level="B")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(3 * PROOF_S)
    assert ("AB", 1, "B") == (kept.proofs.levels, len(kept.tools), kept.sandbox.level)
    assert kept.sandbox.enforcement.startswith("B:")
    kept.sandbox.on_failure()
    await trio.sleep(3 * PROOF_S)
    assert ("ABA", 1, "A") == (kept.proofs.levels, len(kept.tools), kept.sandbox.level)


async def test_without_level_a_and_b_no_program_runs(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no tools, and both reasons are given; a leak at either level ends both."""
    kept = Kept(monkeypatch, *(SandboxFailure(each) for each in ("no a", "no b")), min_level="B")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(3 * PROOF_S)
    assert ((), "no b; level A: no a") == (kept.tools, kept.keeper.problem)
    with pytest.raises(SandboxFailure, match="no b"):
        async with kept.sandbox.open(None):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize(
    "found", [("a keyring",), (SandboxFailure("no a"), "a keyring")], ids=["A", "B"]
)
async def test_a_leak_of_either_level_is_the_end_of_both(
    found: tuple[str | SandboxFailure, ...],
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other level is tried after it."""
    kept = Kept(monkeypatch, *found, min_level="B")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(2 * PROVE_S)
    assert ((), "AB"[: len(found)]) == (kept.tools, kept.proofs.levels)


async def test_nothing_starts_before_the_first_proof(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that comes earlier waits for it; here for its refusal."""
    kept = Kept(monkeypatch, SandboxFailure("no namespaces"))
    await nursery.start(kept.keeper.serve)
    with pytest.raises(SandboxFailure, match="no namespaces"):
        async with kept.sandbox.open(None):  # type: ignore[arg-type]
            pass
    assert PROOF_S == trio.current_time()


async def test_a_leak_kills_running_programs(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs in a jail that does not hold are killed at once."""
    kept = Kept(monkeypatch, "", "a keyring")
    await nursery.start(kept.keeper.serve)
    await trio.sleep(2 * PROOF_S)
    killed = trio.Event()
    child = object.__new__(JailedProcess)
    child.kill = killed.set  # type: ignore[method-assign]
    kept.sandbox._running.add(child)
    kept.sandbox.on_failure()
    await trio.sleep(PROOF_S / 2)
    assert not killed.is_set()
    await trio.sleep(PROOF_S)
    assert killed.is_set()
