"""Cost of a sandbox over a plain child process: start to exit of /bin/true, one after another.

Prints one JSON line, medians in milliseconds:

- `plain`: the same program, started in the same way without isolation
- `setuid`: `plain` with another user, which a daemon that is root needs
- `bubblewrap`: its own start with the same namespaces and nothing else
- `jail`: without a workspace
- `read`, `write`: with a workspace, the latter with its masks
- `level_b`: `write` without namespaces, if the kernel's Landlock supports it; its reaper is an
  interpreter
- `over_plain`: median of the differences within a round
- `self_test`: all escape probes
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio
from _machine import calibrate

from palyra.actors.kernel.threads import DedicatedThread, run_sync
from palyra.tools.sandbox.command import Command, Level
from palyra.tools.sandbox.escape_probes import find_leak
from palyra.tools.sandbox.landlock import SCOPED_ABI, find_abi
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.sandbox.spawner import JAIL_UID

ROUNDS = 60
TRUE = "/bin/true"
NAMESPACES = (
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
    "--disable-userns", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc",
)  # fmt: skip


async def plain(thread: DedicatedThread, argv: tuple[str, ...], uid: int | None) -> None:
    """Run a child without isolation, started in the same thread."""
    groups = None if uid is None else list[int]()
    await thread.call(
        partial(subprocess.run, argv, check=True, user=uid, group=uid, extra_groups=groups)
    )


async def jailed(sandbox: Sandbox, command: Command) -> None:
    """Run a command in the sandbox."""
    async with sandbox.open(command) as child:
        ending = await child.wait()
    assert ending.exit_code == 0


async def jailed_at_b(sandbox: Sandbox, command: Command) -> None:
    """Run a command in the sandbox without namespaces."""
    async with sandbox.open(command, probed="B") as child:
        ending = await child.wait()
    assert ending.exit_code == 0


async def prove(sandbox: Sandbox, level: Level = "A") -> None:
    """Run the self-test of the sandbox."""
    assert not await find_leak(sandbox, run_sync, level)


async def took_ms(work: Callable[[], Awaitable[None]]) -> float:
    """Return the milliseconds of one piece of work."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1e3


async def measure(workspace: Path) -> dict[str, object]:
    thread = DedicatedThread("sandbox")
    sandbox = Sandbox(thread)
    uid = JAIL_UID if os.geteuid() == 0 else None
    command = Command(argv=(TRUE,))
    within = Command(argv=(TRUE,), workspace=workspace, cwd=str(workspace))
    writing = Command(argv=(TRUE,), workspace=workspace, cwd=str(workspace), is_writable=True)
    bwrap = shutil.which("bwrap") or "bwrap"
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "plain": partial(plain, thread, (TRUE,), None),
        "setuid": partial(plain, thread, (TRUE,), uid),
        "bubblewrap": partial(plain, thread, (bwrap, *NAMESPACES, "--", TRUE), uid),
        "jail": partial(jailed, sandbox, command),
        "read": partial(jailed, sandbox, within),
        "write": partial(jailed, sandbox, writing),
    }
    has_b = find_abi() >= SCOPED_ABI
    if has_b:
        if uid is not None:  # the sandbox runs as this user
            os.chown(workspace, uid, uid)
        works["level_b"] = partial(jailed_at_b, sandbox, replace(writing, least="B"))
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 2):
        for name, work in works.items():
            found = await took_ms(work)
            if number >= 2:  # the first rounds create mounts and read programs
                taken[name].append(found)
    levels: list[Level] = ["A", "B"] if has_b else ["A"]
    proofs = {
        level: [await took_ms(partial(prove, sandbox, level)) for _ in range(5)] for level in levels
    }
    thread.close()
    over = {
        name: [jail - bare for jail, bare in zip(taken[name], taken["plain"], strict=True)]
        for name in ("jail", "read", "write", "level_b")
        if name in taken
    }
    return {
        "walls": sandbox.enforcement,
        "median_ms": {name: middle(values) for name, values in taken.items()},
        "over_plain_ms": {name: middle(values) for name, values in over.items()},
        "times_bubblewrap": round(
            statistics.median(taken["write"]) / statistics.median(taken["bubblewrap"]), 2
        ),
        "self_test_ms": {level: middle(values) for level, values in proofs.items()},
    }


def middle(values: list[float]) -> float:
    return round(statistics.median(values), 1)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as name:
        figures = trio.run(measure, Path(name))
    print(
        json.dumps(
            {
                "bench": "jail",
                **figures,
                "rounds": ROUNDS,
                "calibration_ms": calibrate(),
                "python": platform.python_version(),
            }
        )
    )


if __name__ == "__main__":
    main()
