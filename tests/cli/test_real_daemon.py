"""Client and command line against the real daemon, killed and restarted under their hands."""

import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from palyra.cli.host import demo
from palyra.client import (
    CaughtUp,
    Client,
    EventsDiscarded,
    Item,
    ProgressItem,
    Subscription,
    TapeEvent,
    connect,
)
from palyra.client import process as client_process
from palyra.client.process import start_daemon, stop_daemon, wait_announced
from palyra.core.tape.events import ApprovalRequested, MessageCompleted, RunDone
from palyra.errors import Unavailable
from tests.cli.command import environment, palyra
from tests.e2e.daemon_process import DaemonProcess

pytestmark = pytest.mark.real

WITHIN_S = 120.0  # a bound against hanging, not a promise
KILLS = 3


@asynccontextmanager
async def real_daemon(directory: Path) -> AsyncGenerator[DaemonProcess]:
    """A daemon with a home and a workspace, which must drain and exit with 0 at the end."""
    daemon = DaemonProcess(directory)
    try:
        with trio.fail_after(WITHIN_S):
            await trio.to_thread.run_sync(daemon.start)
            yield daemon
        daemon.signal(signal.SIGTERM)
        assert 0 == await daemon.ended()
    finally:
        daemon.end()


def see(view: list[TapeEvent], item: Item) -> None:
    """Keep a view as a consumer would: an event out of place would be an error."""
    match item:
        case TapeEvent():
            assert len(view) == item.seq
            view.append(item)
        case EventsDiscarded():
            del view[item.after_seq + 1 :]
        case _:
            pass


async def follow_until(view: list[TapeEvent], items: Subscription, kind: type[object]) -> None:
    """Take items until an event of that kind was seen."""
    async for item in items:
        see(view, item)
        if isinstance(item, TapeEvent) and isinstance(item.event, kind):
            return


async def test_stream_survives_kill_and_restart(tmp_path: Path) -> None:
    """A subscription over three kill -9 ends as the exact tape, and the waiting run is done."""
    view: list[TapeEvent] = []
    call = '/call write_file {"path": "note.txt", "content": "x"}'
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        started = await client.start_run(f"{call}\n/then\n/say done")
        async with client.events(started.run_id, progress=False) as items:
            await follow_until(view, items, ApprovalRequested)
            for _ in range(KILLS):
                await daemon.restart()
            asked = (await client.list_approvals(run_id=started.run_id))[0]
            await client.resolve_approval(asked.approval_id, "allow", asked.digest)
            await follow_until(view, items, RunDone)
        run = await client.wait_run(started.run_id)  # what was seen is news, this is a promise
        committed = (await client.read_tape(started.run_id, limit=1000)).events
        assert "x" == (daemon.workspace / "note.txt").read_text()
    assert committed == view
    assert ("done", "answered") == (run.state, run.reason)


async def test_stream_is_whole_when_killed_while_events_flow(tmp_path: Path) -> None:
    """A daemon killed in the middle of many runs: every view is the tape that was kept."""
    views: dict[str, list[TapeEvent]] = {}
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        await watch_runs_over_a_kill(daemon, client, views)
        kept = {run_id: (await client.read_tape(run_id)).events for run_id in views}
    assert 8 == len(kept)
    assert kept == views


async def watch_runs_over_a_kill(
    daemon: DaemonProcess, client: Client, views: dict[str, list[TapeEvent]]
) -> None:
    """Watch eight runs, with a kill -9 during the first one, to their ends."""
    under_way = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(watch_a_run, client, views, under_way)
        await under_way.wait()
        await daemon.restart()


async def watch_a_run(
    client: Client, views: dict[str, list[TapeEvent]], under_way: trio.Event
) -> None:
    """Start a run of several turns and follow it to its durable end."""
    calls = [f'/call echo {{"text": "x{n}"}}' for n in range(12)]
    started = await client.start_run("\n/then\n".join(calls))
    view = views[started.run_id] = []
    async with client.events(started.run_id) as items:
        async for item in items:
            see(view, item)
            if len(view) > 20:
                under_way.set()


async def test_progress_precedes_the_turn(tmp_path: Path) -> None:
    """Words stream before the turn that contains them is complete, in order."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        started = await client.start_run("/delay 5\n/tokens 30")
        async with client.events(started.run_id) as items:
            got = [item async for item in items]
    words = "".join(item.delta for item in got if isinstance(item, ProgressItem))
    answer = next(
        item.event.text
        for item in got
        if isinstance(item, TapeEvent) and isinstance(item.event, MessageCompleted)
    )
    assert words
    assert words in answer
    assert 1 == sum(isinstance(item, CaughtUp) for item in got)


async def test_run_command_end_to_end(tmp_path: Path) -> None:
    """`palyra run` against the real daemon prints the answer; the tape verifies in and out."""
    file = tmp_path / "run.ndjson"
    async with real_daemon(tmp_path) as daemon:
        home = daemon.home
        done = await palyra("run", '/call echo {"text": "hi"}\n/then\n/say all well', home=home)
        run_id = done.err.partition("● ")[2].split()[0]
        exported = await palyra("tape", "export", run_id, "-o", str(file), home=home)
        online = await palyra("tape", "verify", run_id, home=home)
        doctor = await palyra("doctor", home=home)
    offline = await palyra("tape", "verify", str(file), home=home)
    assert (0, "all well\n") == (done.code, done.out)
    assert (0, 0, 0) == (exported.code, online.code, offline.code)
    assert (0, True) == (doctor.code, "events intact" in doctor.out)


async def test_denied_when_unattended(tmp_path: Path) -> None:
    """`palyra run --deny` never waits: the call is denied, nothing is written, exit code 4."""
    async with real_daemon(tmp_path) as daemon:
        call = '/call write_file {"path": "a.txt", "content": "x"}'
        done = await palyra("run", "--deny", call, home=daemon.home)
    assert 4 == done.code
    assert not (daemon.workspace / "a.txt").exists()


async def test_revoked_token_ends_the_client(tmp_path: Path) -> None:
    """A client whose token is revoked gets an error and does not retry for ever."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as operator:
        made = await operator.create_token(principal="ann", role="client", name="t")
        async with (
            connect(home=daemon.home, token=made.token) as other,
            other.notices() as inbox,
        ):
            await operator.revoke_token(made.token_id)
            with pytest.raises(Exception, match=r"revoked|refused") as caught:
                await anext(inbox)
    assert {"Forbidden", "Unauthenticated"} & {type(caught.value).__name__}


async def test_second_daemon_names_the_first(tmp_path: Path) -> None:
    """A second daemon on the same directory exits with 69 and names the pid of the first."""
    async with real_daemon(tmp_path) as daemon:
        pid = daemon.pid
        second = await palyra("serve", "--port", "0", home=daemon.home)
    assert 69 == second.code
    assert f"pid {pid}" in second.out + second.err


async def test_daemon_that_cannot_start_is_reported(tmp_path: Path) -> None:
    """Waiting for a child that ends at once raises with its last words."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "palyra.toml").write_text("nonsense = 1\n")
    daemon = await start_daemon(home)
    with trio.fail_after(WITHIN_S), pytest.raises(Unavailable, match="nonsense"):
        await wait_announced(daemon)
    await stop_daemon(daemon)


async def test_up_makes_a_home_and_stops_on_interrupt(tmp_path: Path) -> None:
    """`palyra up` creates configuration and token, says where it is, and Ctrl-C ends it with 0."""
    home, work, log = tmp_path / "home", tmp_path / "work", tmp_path / "up.log"
    work.mkdir()
    with log.open("wb") as output:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "palyra", "up", "--home", str(home), "--port", "0", "--workspace", str(work)],
            stdout=output, env=environment(), start_new_session=True,
        )  # fmt: skip
    with trio.fail_after(WITHIN_S):
        found = await wait_announced(client_process.DaemonProcess(home, log, process))
        status = await palyra("status", home=home)
        process.send_signal(signal.SIGINT)
        code = await process.wait()
    assert (0, 0) == (code, status.code)
    said = log.read_text(encoding="utf-8")
    for shown in (found.ws_url, "palyra.toml", "operator.token", "stopped"):
        assert shown in said
    assert "#login=" not in said  # the output is a file, which would keep the code
    assert 0o600 == (home / "keys" / "operator.token").stat().st_mode & 0o777


async def test_up_prints_a_link_at_a_terminal(tmp_path: Path) -> None:
    """At a terminal `palyra up` prints a link to the console, and logs no code."""
    home, work, log = tmp_path / "home", tmp_path / "work", tmp_path / "up.log"
    work.mkdir()
    terminal, given = os.openpty()
    with log.open("wb") as errors:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "palyra", "up", "--home", str(home), "--port", "0", "--workspace", str(work)],
            stdout=given, stderr=errors, env=environment(), start_new_session=True,
        )  # fmt: skip
    os.close(given)
    shown = b""
    with trio.fail_after(WITHIN_S), os.fdopen(terminal, "rb", buffering=0) as screen:
        while b"palyra console prints another" not in shown:
            shown += await trio.to_thread.run_sync(os.read, screen.fileno(), 65_536)
        process.send_signal(signal.SIGINT)
        await process.wait()
    found = re.search(rb"http://127\.0\.0\.1:\d+/#login=(pal_[\w-]{43})", shown)
    assert found is not None
    assert found[1] not in log.read_bytes()


def test_demonstration_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration ends with every claim held and exit code 0."""
    assert 0 == demo.main()
    shown = capsys.readouterr().out
    assert "DOES NOT HOLD" not in shown
    for kind in ("run.accepted", "approval.resolved", "tool.attested", "run.done"):
        assert kind in shown
