"""Replay, fork and proof through every door: a real daemon, its rules, the command line."""

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from palyra.client import Client, RunView
from palyra.errors import NotFound
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import somebody, write_call

pytestmark = pytest.mark.real

RULE = 'forbid (principal, action, resource == Tool::"echo");'


@pytest.fixture
def daemon(tmp_path: Path) -> Generator[DaemonProcess]:
    """A daemon of the test's own: its rules are changed and it is killed."""
    with running(tmp_path) as process:
        yield process


async def tell(client: Client) -> RunView:
    """A run with a harmless call and one that a person approved."""
    text = f'/call echo {{"text": "evidence"}}\n{write_call("a.txt")}'
    started = await client.start_run(text)
    await client.wait_run(started.run_id, until="attention")
    (asked,) = await client.list_approvals(run_id=started.run_id, pending_only=True)
    await client.resolve_approval(asked.approval_id, "allow", asked.digest)
    return await client.wait_run(started.run_id)


async def test_a_run_is_replayed_and_proved_without_its_daemon(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Online strictly and leniently, then from the file alone, with the public key alone."""
    async with daemon.connect() as client:
        run = await tell(client)
        strict = await client.replay_run(run.run_id, strict=True)
        lenient = await client.replay_run(run.run_id)
    assert (run.state, strict.first_divergence, strict.matched) == ("done", None, True)
    assert strict.replayed_digest == lenient.replayed_digest == lenient.recorded_digest
    home, nobody, file = daemon.home, tmp_path / "nobody", tmp_path / "run.ndjson"
    online = await palyra("tape", "replay", run.run_id, "--strict", home=home)
    assert (0, f"matches: {strict.events} events of {run.run_id}") == (
        online[0],
        online[1].splitlines()[0],
    )
    assert 0 == (await palyra("tape", "export", run.run_id, "-o", str(file), home=home))[0]
    key = (home / "keys" / "signing.pub").read_text(encoding="ascii").strip()
    daemon.kill()
    offline = await palyra("tape", "replay", str(file), "--json", home=nobody)
    assert (0, strict.replayed_digest) == (
        offline[0],
        msgspec.json.decode(offline[1])["replayed_digest"],
    )
    proved = await palyra("tape", "verify", str(file), "--key", key, home=nobody)
    assert (0, True) == (proved[0], "2 attestations" in proved[1])
    file.write_bytes(file.read_bytes().replace(b'"text":"evidence"', b'"text":"fabulous"'))
    forged = await palyra("tape", "verify", str(file), "--key", key, home=nobody)
    assert (1, True) == (forged[0], "NOT INTACT at seq" in forged[1])


async def test_rules_of_another_day_are_named(daemon: DaemonProcess) -> None:
    """After a rule was added a strict replay names the first decision it changes."""
    async with daemon.connect() as client:
        run = await tell(client)
    rules = daemon.home / "policies"
    rules.mkdir(exist_ok=True)
    (rules / "mine.cedar").write_text(RULE, encoding="utf-8")
    await daemon.restart()
    async with daemon.connect() as client:
        found = (await client.replay_run(run.run_id, strict=True)).first_divergence
        lenient = await client.replay_run(run.run_id)
    assert found is not None
    assert (found.kind, found.field, found.found) == ("tool.decided", "verdict", "deny")
    assert lenient.matched


async def test_a_run_over_a_kill_is_replayed(daemon: DaemonProcess) -> None:
    """A run over two starts of the daemon follows from its inputs, the restart included."""
    async with daemon.connect() as client:
        started = await client.start_run('/call sleep {"seconds": 3}')
    await daemon.reach(started.run_id, "tool.started")
    await daemon.restart()
    async with daemon.connect() as client:
        assert "done" == (await client.wait_run(started.run_id)).state
        report = await client.replay_run(started.run_id, strict=True)
        page = await client.read_tape(started.run_id)
    assert report.first_divergence is None
    assert "run.recovered" in [event.kind for event in page.events]


async def test_a_fork_from_the_command_line(daemon: DaemonProcess) -> None:
    """The branch has the conversation up to the place, and nothing of the original changes."""
    async with daemon.connect() as client:
        run = await tell(client)
        before = await client.read_tape(run.run_id)
        code, out, _ = await palyra(
            "runs", "fork", run.run_id, "/say hello", "--at", "1", "--json", home=daemon.home
        )
        forked = msgspec.json.decode(out)
        assert (0, run.run_id, 1) == (code, forked["parent_run_id"], forked["at_seq"])
        branch = await client.wait_run(forked["run_id"])
        assert ("done", run.run_id) == (branch.state, branch.parent_run_id)
        assert (await client.replay_run(branch.run_id, strict=True)).matched
        assert before == await client.read_tape(run.run_id)
        code, _, err = await palyra("runs", "fork", run.run_id, home=daemon.home)
        assert (2, True) == (code, "give a text" in err)


async def test_the_same_key_forks_once(daemon: DaemonProcess) -> None:
    """A repeated request gets the first fork, also from the next daemon."""
    async with daemon.connect() as client:
        run = await tell(client)
        first = await client.fork_run(run.run_id, 1, "again", idempotency_key="k")
        assert first == await client.fork_run(run.run_id, 1, "again", idempotency_key="k")
    await daemon.restart()
    async with daemon.connect() as client:
        assert first == await client.fork_run(run.run_id, 1, "again", idempotency_key="k")
        assert 2 == len((await client.list_runs()).runs)


async def test_replays_and_forks_do_not_cross_principals(daemon: DaemonProcess) -> None:
    """Only a principal that sees a run can replay it, and only its owner can fork it."""
    async with daemon.connect() as operator:
        run = await tell(operator)
    async with somebody(daemon, "client", "eve") as eve:
        for request in (eve.replay_run(run.run_id), eve.fork_run(run.run_id, 1, "mine")):
            with pytest.raises(NotFound):
                await request
        mine = await eve.start_run("/say mine")
    async with daemon.connect() as operator:
        assert (await operator.replay_run(mine.run_id)).matched
        with pytest.raises(NotFound):
            await operator.fork_run(mine.run_id, 1, "ours")
