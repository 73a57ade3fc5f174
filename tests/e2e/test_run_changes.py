"""What a run changed, shown and undone over a real daemon."""

import json

import pytest

from palyra.client import RunView
from palyra.client.client import Client
from palyra.client.tapes import export_run
from palyra.core.tape import events as ev
from palyra.errors import Conflict, Forbidden, IllegalState, InvalidParams, NotFound, PalyraError
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, find_events, somebody, wait_tool, write_call
from tests.e2e.tapes import read_whole
from tests.e2e.test_files import the_call
from tests.e2e.test_session_checkpoints import talk
from tests.tools.sandbox.jails import needs_bubblewrap

pytestmark = pytest.mark.real

PATCH = (
    "*** Begin Patch\n*** Update File: old.txt\n-2\n+zwei\n*** Add File: new/n.txt\n+n\n"
    "*** Delete File: gone.txt\n*** End Patch"
)


async def patched(daemon: DaemonProcess, client: Client) -> RunView:
    """Return an ended run that changed, created and deleted a file."""
    (daemon.workspace / "old.txt").write_text("1\n2\n", encoding="utf-8")
    (daemon.workspace / "old.txt").chmod(0o640)
    (daemon.workspace / "gone.txt").write_text("here", encoding="utf-8")
    return await talk(client, the_call("apply_patch", patch=PATCH))


async def test_a_run_is_shown_and_undone(daemon: DaemonProcess) -> None:
    """Every kind of change goes back; the tape says so and verifies; a restart keeps it all."""
    old, new, gone = (daemon.workspace / name for name in ("old.txt", "new/n.txt", "gone.txt"))
    async with daemon.connect() as client:
        run = await patched(daemon, client)
        shown = await client.diff_run(run.run_id)
        assert [("old.txt", "updated", 1, 1), ("new/n.txt", "created", 1, 0),
                ("gone.txt", "deleted", 0, 1)] == [
            (block.path, block.change, block.added, block.removed) for block in shown.blocks
        ]  # fmt: skip
        assert ["left"] * 3 == [file.standing for file in shown.files]
        preview = await client.undo_run(run.run_id)
        assert (("old.txt", "new/n.txt", "gone.txt"), ()) == (preview.files, preview.conflicts)
        assert "zwei" in old.read_text(encoding="utf-8")
        done = await client.undo_run(run.run_id, preview.digest, idempotency_key="once")
        assert done == await client.undo_run(run.run_id, preview.digest, idempotency_key="once")
        assert ("undone", preview.files) == (done.state, done.files)
        assert ("1\n2\n", 0o640) == (old.read_text(encoding="utf-8"), old.stat().st_mode & 0o777)
        assert (False, "here") == (new.exists(), gone.read_text(encoding="utf-8"))
        tape = await read_whole(client, run.run_id)
        (event,) = find_events(tape, ev.RunUndone)
        assert isinstance(event, ev.RunUndone)
        assert (done.checkpoint_id, preview.files) == (event.checkpoint_id, event.files)
        report = await client.verify_tape(run.run_id)
        assert 0 == report.breaks, report
        assert await export_run(client, run.run_id)
        assert (await client.replay_run(run.run_id)).matched
        again = await client.undo_run(run.run_id)
        assert ((), ()) == (again.files, again.conflicts)
    await daemon.restart()
    async with daemon.connect() as client:
        assert "done" == (await client.get_run(run.run_id)).state
        later = await client.start_run("hello", session_id=run.session_id)
        assert "done" == (await client.wait_run(later.run_id)).state
        assert done.checkpoint_id is not None
        await client.restore_checkpoint(done.checkpoint_id)
        assert ("1\nzwei\n", True, False) == (
            old.read_text(encoding="utf-8"), new.exists(), gone.exists()
        )  # fmt: skip
        preview = await client.undo_run(run.run_id)
        assert 3 == len(preview.files)
        await client.undo_run(run.run_id, preview.digest)
        tape = await read_whole(client, run.run_id)
        assert 2 == len(find_events(tape, ev.RunUndone))
        assert 0 == (await client.verify_tape()).breaks
        await client.purge_session(run.session_id)
        assert 0 == (await client.verify_tape()).breaks
        with pytest.raises(PalyraError, match="purged"):
            await client.diff_run(run.run_id)


async def test_changes_of_others_are_kept(daemon: DaemonProcess) -> None:
    """A file that changed since is left alone, unless forced; the preview shows its content now."""
    old, gone = daemon.workspace / "old.txt", daemon.workspace / "gone.txt"
    async with daemon.connect() as client:
        run = await patched(daemon, client)
        stale = await client.undo_run(run.run_id)
        old.write_text("theirs\n", encoding="utf-8")
        with pytest.raises(Conflict, match="not as the preview showed"):
            await client.undo_run(run.run_id, stale.digest, force=True)
        with pytest.raises(InvalidParams, match="digest of its preview"):
            await client.call("run.undo", {"run_id": run.run_id})
        code, out, err = await palyra("undo", run.run_id, "--yes", home=daemon.home)
        assert (1, True) == (code, "1 file left alone" in err), err
        assert "old.txt: changed since by other means; left alone" in out
        assert "gone.txt is as before the run" in out
        assert ("theirs\n", True) == (old.read_text(encoding="utf-8"), gone.exists())
        code, out, err = await palyra("undo", run.run_id, "--yes", home=daemon.home)
        assert (1, True) == (code, "--force overwrites" in out + err), (code, out, err)
        code, out, _ = await palyra("undo", run.run_id, "--dry-run", "--force", home=daemon.home)
        assert (0, True) == (code, "-theirs" in out.replace("- theirs", "-theirs")), out
        assert "theirs\n" == old.read_text(encoding="utf-8")
        code, out, err = await palyra("undo", run.run_id, "--force", home=daemon.home)
        assert 2 == code, (out, err)
        await palyra("undo", run.run_id, "--force", "--yes", home=daemon.home)
        assert "1\n2\n" == old.read_text(encoding="utf-8")
        code, out, _ = await palyra("diff", run.run_id, home=daemon.home)
        assert (0, True) == (code, "old.txt: as before the run again" in out), out


async def test_only_the_owner_undoes_an_ended_run(daemon: DaemonProcess) -> None:
    """Others see the difference if they see the run; a run that works on is not undone."""
    async with daemon.connect() as client:
        run = await patched(daemon, client)
        async with somebody(daemon, "client", "eve") as eve:
            with pytest.raises(NotFound):
                await eve.diff_run(run.run_id)
            with pytest.raises(NotFound):
                await eve.undo_run(run.run_id)
        async with somebody(daemon, "observer", "oda") as oda:
            assert 3 == len((await oda.diff_run(run.run_id)).files)
            with pytest.raises(Forbidden):
                await oda.undo_run(run.run_id)
        async with somebody(daemon, "operator", "bob") as bob:
            with pytest.raises(Forbidden, match="only its owner"):
                await bob.undo_run(run.run_id)
        asked = await ask_for(client, write_call("w.txt"))
        assert () == (await client.diff_run(asked.run_id)).files
        with pytest.raises(IllegalState, match="has not ended"):
            await client.undo_run(asked.run_id)
        await client.cancel(asked.run_id)
    for arguments in (("diff", "run_none"), ("undo", "run_none")):
        code, _, err = await palyra(*arguments, home=daemon.home)
        assert (True, True) == (code != 0, "run_none" in err)


@needs_bubblewrap
async def test_changes_by_programs_are_named_as_unknown(daemon: DaemonProcess) -> None:
    """A command leaves no checkpoint, and the difference says so; one that only reads is left out."""
    async with daemon.connect() as client:
        await wait_tool(client, "shell")
        run = await talk(client, the_call("shell", command="echo x > made.txt"))
        shown = await client.diff_run(run.run_id)
        assert () == shown.files
        assert any("1 call of programs" in note and "(shell " in note for note in shown.unknown)
        read = await talk(client, the_call("shell", command="ls -l && cat made.txt | grep x"))
        assert () == (await client.diff_run(read.run_id)).unknown
        code, out, _ = await palyra("diff", run.run_id, "--json", home=daemon.home)
        assert (0, [*shown.unknown]) == (code, json.loads(out)["unknown"])
