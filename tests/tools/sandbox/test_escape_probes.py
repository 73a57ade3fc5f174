"""The self-test: it finds a missing layer, and its probes are effective."""

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.actors.kernel.threads import run_sync
from palyra.tools.sandbox import bubblewrap, escape_probes, folder_cache, start
from palyra.tools.sandbox.command import Command, SandboxFailure
from palyra.tools.sandbox.escape_probes import (
    ProbeTargets,
    build_probe,
    find_leak,
    lay_out_targets,
    probes,
)
from palyra.tools.sandbox.inside import build_inside
from palyra.tools.sandbox.launcher import SystemCall
from tests.tools.sandbox.jails import needs_bubblewrap, open_sandbox

pytestmark = [pytest.mark.real, needs_bubblewrap]
MAY_BE_MISSING = {"io_uring"}  # in a kernel, or switched off


async def test_no_probe_succeeds_in_a_jail() -> None:
    """On this machine all layers hold."""
    async with open_sandbox() as sandbox:
        assert not await find_leak(sandbox, run_sync)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can show that these succeed outside")
def test_every_probe_gets_through_outside(tmp_path: Path) -> None:
    """The control: the same program as a plain child reaches everything."""
    with lay_out_targets() as bait:
        for name, calls in probes(bait).items():
            program = tmp_path / "probe"
            program.write_bytes(build_probe({name: calls}, platform.machine()))
            program.chmod(0o755)
            done = subprocess.run(["unshare", "--mount", program, "/bin/true"], check=False)
            assert done.returncode == 10 or name in MAY_BE_MISSING, name
    Path("/usr/palyra-probe").unlink(missing_ok=True)


class HalfTheWords:
    """bubblewrap's options, some left out."""

    def __init__(self, *left_out: str) -> None:
        self._left_out = left_out
        self._render = bubblewrap.render_options

    def __call__(self, *arguments: object) -> list[str]:
        words = self._render(*arguments)  # type: ignore[arg-type]
        return [word for word in words if word not in self._left_out]


def no_filter(*, sockets: str, machine: str | None = None) -> bytes:
    del machine
    assert sockets == "local"
    return bytes([6, 0, 0, 0, 0, 0, 0xFF, 0x7F])  # return ALLOW


@pytest.mark.parametrize(
    ("left_out", "reached"),
    [
        (("--unshare-net",), "a listener on the loopback"),
        (("--unshare-net",), "a listener on the loopback of IPv6"),
        ((), "a socket in the workspace"),
    ],
)
async def test_a_missing_layer_is_found(
    left_out: tuple[str, ...], reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the filter, and without one namespace, the self-test names the reached target."""
    monkeypatch.setattr(start, "render_options", HalfTheWords(*left_out))
    monkeypatch.setattr(start, "build_filter", no_filter)
    monkeypatch.setattr(start, "build_inside", no_landlock(build_inside))
    monkeypatch.setattr(folder_cache, "_is_socket", lambda _entry: False)  # no mask
    only(monkeypatch, reached)
    async with open_sandbox() as sandbox:
        assert reached == await find_leak(sandbox, run_sync)


async def test_landlock_holds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the filter and the network namespace, Landlock alone blocks the listeners.

    Those on ports only for a program without a loopback of its own.
    """
    monkeypatch.setattr(start, "render_options", HalfTheWords("--unshare-net"))
    monkeypatch.setattr(start, "build_filter", no_filter)
    monkeypatch.setattr(start, "build_inside", without_loopback(build_inside))
    only(monkeypatch, "a listener on the loopback", "an abstract socket")
    async with open_sandbox() as sandbox:
        if "landlock" not in sandbox.enforcement:
            pytest.skip("the kernel has no Landlock")
        assert not await find_leak(sandbox, run_sync)


async def test_a_jail_that_cannot_be_built_is_no_proof() -> None:
    """Nothing reached is not the same as nothing tried."""
    async with open_sandbox(bubblewrap="/bin/false") as sandbox:
        with pytest.raises(SandboxFailure):
            await find_leak(sandbox, run_sync)


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Try nothing else, so that what is tried first does not hide it."""

    def some(bait: ProbeTargets, _level: str) -> Mapping[str, tuple[SystemCall, ...]]:
        return {name: calls for name, calls in probes(bait).items() if name in names}

    monkeypatch.setattr(escape_probes, "probes", some)


def without_loopback(build: object) -> object:
    def without(command: Command, abi: int, **more: object) -> bytes:
        made: bytes = build(replace(command, has_loopback=False), abi, **more)  # type: ignore[operator]
        return made

    return without


def no_landlock(build: object) -> object:
    def without(command: Command, _abi: int, **more: object) -> bytes:
        made: bytes = build(command, 0, **more)  # type: ignore[operator]
        return made

    return without
