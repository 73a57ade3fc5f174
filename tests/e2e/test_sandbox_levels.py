"""A real daemon where namespaces cannot be had: level B if that is allowed, else no programs."""

import json
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import trio

from palyra.cli.host import doctor
from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.net.protocol.results import Status
from palyra.tools.sandbox import spawner
from palyra.tools.sandbox.landlock import SCOPED_ABI, find_abi
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import LOOK_S, ask_for, find_events, wait_alive
from tests.e2e.tapes import check_tape, read_whole
from tests.e2e.test_programs import PERMIT, call, outcomes
from tests.e2e.wire import WITHIN_S
from tests.forked import ForkedProcess, Setting, run_forked
from tests.tools.sandbox.jails import find_alive

pytestmark = pytest.mark.real
SOMEBODY = 4_242 if os.geteuid() == 0 else os.geteuid()


def hide_bubblewrap() -> None:
    """Hide bubblewrap in a process before it becomes the daemon or a command."""
    spawner.PROGRAM_FOLDERS = "/nowhere"
    doctor.BUBBLEWRAP_FOLDERS = "/nowhere"


class WithoutBubblewrap(DaemonProcess):
    """The process."""

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        return ForkedProcess(
            self.arguments(), Setting(environment, streams, before=hide_bubblewrap)
        )


@contextmanager
def running(level: str, settings: str = "") -> Generator[WithoutBubblewrap]:
    """A daemon whose policies let programs run, over a workspace of an unprivileged user."""
    base = Path(tempfile.mkdtemp(prefix="palyra-test-levels-"))
    base.chmod(0o755)  # programs run as somebody who may not enter a folder of tests
    daemon = WithoutBubblewrap(base, PALYRA_SANDBOX__MIN_LEVEL=level)
    rules = daemon.home / "policies"
    rules.mkdir(parents=True)
    (daemon.home / "palyra.toml").write_text(settings, "utf-8")
    (rules / "user.cedar").write_text(PERMIT, "utf-8")
    (daemon.workspace / "src").mkdir()
    for folder in (daemon.workspace, daemon.workspace / "src"):
        os.chown(folder, SOMEBODY, -1)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.end()
        shutil.rmtree(base)


async def status_problems(client: Client) -> tuple[str, ...]:
    """The daemon's problems after the sandbox test."""
    return (await settled_status(client)).problems


async def settled_status(client: Client, *, wants_problem: bool = False) -> Status:
    """The daemon's status after the sandbox test, or with a problem."""
    with trio.fail_after(WITHIN_S):
        while True:
            names = {tool.name for tool in (await client.list_tools()).tools}
            status = await client.status()
            if status.problems or (not wants_problem and (status.absent or "shell" in names)):
                return status
            await trio.sleep(LOOK_S)


needs_landlock = pytest.mark.skipif(
    find_abi() < SCOPED_ABI,
    reason="the kernel's Landlock is older than version 6 (no level B was tested)",
)


@needs_landlock
async def test_level_b_asks_runs_and_ends_programs() -> None:
    """Permits are not enough; an approved program runs in the jail and dies with its whole tree."""
    marker, left = uuid4().hex, uuid4().hex
    with running("B") as daemon:
        async with daemon.connect() as client:
            assert () == await status_problems(client)
            kept = {"PALYRA_HOME": str(daemon.home), "PATH": os.environ["PATH"]}
            told = await run_forked(("doctor", "--json"), kept)
            checks = {each["name"]: each for each in json.loads(told.out)["checks"]}
            assert "warn" == checks["isolation"]["verdict"]
            assert checks["isolation"]["detail"].startswith("B:seccomp+landlock")
            line = "echo said; echo oops >&2; echo x > src/new; cat /etc/passwd; echo x > top"
            run_id = await allow(client, call("shell", command=line))
            await client.wait_run(run_id)
            tape = await read_whole(client, run_id)
            check_tape(tape)
            ((status, output),) = outcomes(tape)
            assert ("failed", True) == (status, output.startswith("said\noops\n"))
            assert 2 == output.lower().count("permission denied")
            (attested,) = find_events(tape, ev.ToolAttested)
            assert isinstance(attested, ev.ToolAttested)
            assert attested.attestation["enforcement"].startswith("B:seccomp+landlock")
            assert SOMEBODY == (daemon.workspace / "src/new").stat().st_uid
            run_id = await allow(client, sleep_in_background(marker))
            await wait_alive(marker, wanted=True)
            await client.cancel(run_id)
            await wait_alive(marker, wanted=False)
            await allow(client, sleep_in_background(left))
            await wait_alive(left, wanted=True)
        daemon.kill()
        await wait_alive(left, wanted=False)


async def allow(client: Client, text: str) -> str:
    """A run whose only call a person allows, because the level asks for one."""
    asked = await ask_for(client, text)
    assert "sandbox level B" in asked.policy_reason
    await client.resolve_approval(asked.approval_id, "allow", asked.digest)
    return asked.run_id


def sleep_in_background(marker: str) -> str:
    """A call that takes long, with a process that its shell does not wait for."""
    return call("shell", command=f"sleep 600 & sleep 600; : {marker}")


async def test_without_bubblewrap_there_are_no_programs() -> None:
    """Never a plain child: the tools are absent, which is one warning and no failure."""
    marker = uuid4().hex
    with running("A") as daemon:
        async with daemon.connect() as client:
            status = await settled_status(client)
            assert () == status.problems
            assert ("bubblewrap is not installed: apt install bubblewrap",) == status.absent
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert set() == names & {"shell", "process_start"}
            started = await client.start_run(call("shell", command=f"touch {marker}; : {marker}"))
            await client.wait_run(started.run_id)
            tape = await read_whole(client, started.run_id)
        assert [] == find_events(tape, ev.ToolStarted)
        assert [] == find_alive(marker)
        assert not (daemon.workspace / marker).exists()
        async with httpx.AsyncClient() as http:
            ready = await http.get(f"http://127.0.0.1:{daemon.port}/readyz")
        assert "problem" not in ready.text
        kept = {"PALYRA_HOME": str(daemon.home), "PATH": os.environ["PATH"]}
        told = await run_forked(("doctor", "--json"), kept, before=hide_bubblewrap)
        shown = await run_forked(("status",), kept, before=hide_bubblewrap)
        levels = [line.split("[", 1)[1].split()[0] for line in daemon.said.splitlines()]
    assert 1 == levels.count("warning")
    assert set() == set(levels) & {"error", "critical"}
    assert b"apt install bubblewrap" in shown.out
    checks_made = json.loads(told.out)["checks"]
    warned, *others = [check for check in checks_made if check["verdict"] != "ok"]
    # What lies outside of the system's folders on this machine is seen by no program either.
    assert {"toolchains"} >= {check["name"] for check in others}
    assert 0 == told.code
    assert ("sandbox", "warn", "apt install bubblewrap") == (
        warned["name"], warned["verdict"], warned["remedy"],
    )  # fmt: skip
    assert warned["detail"].startswith("bubblewrap is not installed: no shell, no skills (looked")


async def test_a_server_that_needs_a_jail_is_a_problem() -> None:
    """A configured server is not optional: the problem names the package to install."""
    server = '[[mcp.servers]]\nname = "papers"\ncommand = ["/usr/bin/env"]\n'
    with running("A", server) as daemon:
        kept = {"PALYRA_HOME": str(daemon.home), "PATH": os.environ["PATH"]}
        async with daemon.connect() as client:
            (problem,) = (await settled_status(client, wants_problem=True)).problems
        assert "bubblewrap is not installed" in problem
        told = await run_forked(("doctor", "--json"), kept, before=hide_bubblewrap)
    (failed,) = [check for check in json.loads(told.out)["checks"] if check["verdict"] == "fail"]
    assert (1, "apt install bubblewrap") == (told.code, failed["remedy"])
