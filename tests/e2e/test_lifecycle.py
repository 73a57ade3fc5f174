"""The daemon as a process: announcement, files, second daemon, drain, exit codes."""

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
import trio

from palyra.errors import Draining, Suspended
from tests.e2e.daemon_process import PALYRA, DaemonProcess, running
from tests.e2e.people import ask_for, write_call
from tests.e2e.tapes import check_tape, kinds, read_whole
from tests.e2e.wire import WITHIN_S, connected
from tests.forked import run_forked

pytestmark = pytest.mark.real

EX_UNAVAILABLE = 69
EX_USAGE = 2


async def test_a_whole_life(tmp_path: Path) -> None:
    """Announced when ready, private on disk, and drained by SIGTERM without a trace."""
    with running(tmp_path) as daemon:
        announced = json.loads(daemon.announcement.read_text(encoding="utf-8"))
        assert {"url", "ws_url", "pid", "instance_id", "version"} == announced.keys()
        assert daemon.pid == announced["pid"]
        _check_private(daemon.home)
        async with daemon.connect() as client, connected(daemon.port, daemon.token) as wire:
            assert announced["instance_id"] == client.hello.instance_id
            under_way = await client.start_run("/delay 500\n/say to the end")
            asked = await ask_for(client, write_call("waiting.txt"))
            daemon.signal(signal.SIGTERM)
            assert (await wire.named("system.draining"))["restart_expected"]
            with pytest.raises(Draining):
                await client.start_run("too late")
            assert "done" == (await client.wait_run(under_way.run_id)).state
            assert 1001 == (await wire.closed()).code
        assert 0 == await daemon.ended()
        assert not daemon.announcement.exists()
        await trio.to_thread.run_sync(daemon.start)
        (*_, opened) = (line for line in daemon.said.splitlines() if "journal opened" in line)
        assert "was_clean=True" in opened
        async with daemon.connect() as client:
            tape = await read_whole(client, under_way.run_id)
            (again,) = await client.list_approvals(run_id=asked.run_id)
            assert asked == again
        check_tape(tape)
        assert "run.recovered" not in kinds(tape)


async def test_suspended_restarted_resumed_and_drained_by_method(tmp_path: Path) -> None:
    """An accepted run goes on, a new one is refused also after a restart; a drain exits with 0."""
    with running(tmp_path) as daemon:
        async with daemon.connect() as client:
            asked = await ask_for(client, write_call("waiting.txt"))
            await client.suspend("upgrade")
            with pytest.raises(Suspended, match="by operator since"):
                await client.start_run("too late")
            await client.resolve_approval(asked.approval_id, "allow", asked.digest)
            assert "done" == (await client.wait_run(asked.run_id)).state
        await daemon.restart()
        async with daemon.connect() as client:
            suspension = (await client.status()).suspension
            assert suspension is not None
            assert ("operator", "upgrade") == (suspension.by, suspension.reason)
            with pytest.raises(Suspended):
                await client.start_run("still too late")
            assert (await client.resume()).suspension is None
            under_way = await client.start_run("/delay 300\n/say to the end")
            lines = (await client.tail_log(level="info")).lines
            assert any("resumed" in line.text for line in lines)
            async with connected(daemon.port, daemon.token) as wire:
                await client.drain()
                assert not (await wire.named("system.draining"))["restart_expected"]
            with pytest.raises(Draining):
                await client.start_run("too late")
            assert "done" == (await client.wait_run(under_way.run_id)).state
        assert 0 == await daemon.ended()


def _check_private(home: Path) -> None:
    """Directories 0700, files 0600, owned by who runs the daemon."""
    for path in [home, *home.rglob("*")]:
        found = path.stat()
        wanted = 0o700 if path.is_dir() else 0o600
        assert (wanted, os.getuid()) == (stat.S_IMODE(found.st_mode), found.st_uid), path


def test_loose_modes_are_tightened_or_refused(tmp_path: Path) -> None:
    """A directory others may enter is closed to them; a key others may read stops the start."""
    daemon = DaemonProcess(tmp_path)
    daemon.home.mkdir(mode=0o755)
    daemon.start()
    assert 0o700 == stat.S_IMODE(daemon.home.stat().st_mode)
    assert 0 == daemon.stop()
    (daemon.home / "keys" / "signing.key").chmod(0o644)
    daemon.launch()
    assert EX_UNAVAILABLE == daemon.wait()
    assert "chmod 600" in daemon.said


def test_second_daemon(tmp_path: Path) -> None:
    """A second daemon on the same directory exits 69, names the pid, and harms nothing."""
    with running(tmp_path) as daemon:
        ended = subprocess.run(
            [*PALYRA, *daemon.arguments()], capture_output=True, text=True, check=False
        )
        assert EX_UNAVAILABLE == ended.returncode
        assert str(daemon.pid) in ended.stderr
        assert not ended.stdout
        assert daemon.announcement.exists()
        assert 0 == daemon.stop()


async def test_a_second_up_is_one_line(tmp_path: Path) -> None:
    """It has the process, the directory and a remedy, no log line, and exit code 69."""
    with running(tmp_path) as daemon:
        kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PALYRA_HOME": str(daemon.home)}
        code, out, err = await run_forked(("up", "--port", "0"), kept)
        pid = daemon.pid
    assert (EX_UNAVAILABLE, b"") == (code, out)
    (line,) = err.decode().splitlines()
    assert line.startswith(f"error: a daemon (pid {pid}) already runs with the data directory ")
    assert str(daemon.home) in line
    assert f"`kill {pid}` stops it" in line


async def test_an_up_at_a_taken_port_is_a_sentence_and_a_remedy(tmp_path: Path) -> None:
    """The port is named, and how to choose another; no line of a log."""
    with running(tmp_path / "first") as first:
        kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        code, out, err = await run_forked(("up", "--port", str(first.port)), kept)
        port = first.port
    assert (EX_UNAVAILABLE, b"") == (code, out)
    said = err.decode().splitlines()
    assert said[0].startswith("error: ")
    assert str(port) in said[0]
    assert {"error:", "remedy:"} >= {line.split()[0] for line in said}


def test_taken_port(tmp_path: Path) -> None:
    """A port that is taken ends the start with 69 and says which port."""
    with running(tmp_path / "first") as first:
        second = DaemonProcess(tmp_path / "second")
        command = [part if part != "0" else str(first.port) for part in second.arguments()]
        ended = subprocess.run([*PALYRA, *command], capture_output=True, text=True, check=False)
    assert EX_UNAVAILABLE == ended.returncode
    assert str(first.port) in ended.stderr
    assert not second.announcement.exists()


def test_bad_configuration(tmp_path: Path) -> None:
    """A setting that is unknown or out of range is named, before anything is touched."""
    daemon = DaemonProcess(tmp_path, PALYRA_RUNS__QUEUE_CAPS="1")
    daemon.launch()
    assert EX_USAGE == daemon.wait()
    assert "queue_cap" in daemon.said
    assert not daemon.home.exists()


async def test_second_signal_cuts_the_drain_short(tmp_path: Path) -> None:
    """A drain waits for runs; a second signal does not, and loses nothing."""
    with running(tmp_path) as daemon:
        async with daemon.connect() as client, connected(daemon.port, daemon.token) as wire:
            started = await client.start_run("/delay 3600000\n/say late")
            daemon.signal(signal.SIGTERM)
            await wire.named("system.draining")
            assert "draining" == (await client.status()).state
            daemon.signal(signal.SIGTERM)
            assert 1001 == (await wire.closed()).code
        assert 0 == await daemon.ended()
        await trio.to_thread.run_sync(daemon.start)
        await daemon.reach(started.run_id, "run.recovered")


async def test_drain_ends_at_its_grace(tmp_path: Path) -> None:
    """Runs that take longer than the grace are left to the next daemon."""
    with running(tmp_path, PALYRA_RUNS__DRAIN_MS="200") as daemon:
        async with daemon.connect() as client:
            started = await client.start_run("/delay 3600000\n/say late")
            daemon.signal(signal.SIGTERM)
            assert 0 == await daemon.ended()
        await trio.to_thread.run_sync(daemon.start)
        await daemon.reach(started.run_id, "run.recovered")


async def test_http_pages(daemon: DaemonProcess) -> None:
    """Liveness and readiness need no token; there are no other open pages."""
    for path, status in {"/healthz": 200, "/readyz": 200, "/nothing": 404}.items():
        assert status == await _status(daemon, path)


async def _status(daemon: DaemonProcess, path: str) -> int:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\nConnection: close\r\n\r\n"
    with trio.fail_after(WITHIN_S):
        stream = await trio.open_tcp_stream("127.0.0.1", daemon.port)
        async with stream:
            await stream.send_all(request.encode())
            answer = b"".join([bytes(part) async for part in stream])
    return int(answer.split(b" ", 2)[1])
