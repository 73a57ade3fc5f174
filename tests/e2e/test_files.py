"""Files over a real daemon: a patch is approved, done, and undone; a long output is read whole."""

import json
import os
import re

import pytest

from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.errors import Conflict, NotFound
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, find_events, somebody, wait_tool
from tests.e2e.tapes import check_tape, read_whole
from tests.tools.sandbox.jails import needs_bubblewrap

pytestmark = pytest.mark.real

LONG = "".join(f"{number:05}€€\n" for number in range(2_000))


def the_call(tool: str, **arguments: object) -> str:
    """A message whose run makes that call."""
    return f"/call {tool} {json.dumps(arguments, ensure_ascii=False)}"


async def completed(client: Client, run_id: str) -> ev.ToolCompleted:
    """The outcome of the run's only call."""
    await client.wait_run(run_id)
    tape = await read_whole(client, run_id)
    check_tape(tape)
    (found,) = find_events(tape, ev.ToolCompleted)
    assert isinstance(found, ev.ToolCompleted)
    return found


async def test_a_patch_is_done_and_undone(daemon: DaemonProcess) -> None:
    """A person sees the patch and allows it; only its owner can restore the files."""
    (daemon.workspace / "old.txt").write_text("1\r\n2\r\n", encoding="utf-8", newline="")
    (daemon.workspace / "old.txt").chmod(0o640)
    patch = (
        "*** Begin Patch\n*** Update File: old.txt\n-2\n+zwei\n*** Add File: new/n.txt\n+n\n"
        "*** End Patch"
    )
    async with daemon.connect() as client:
        asked = await ask_for(client, the_call("apply_patch", patch=patch))
        assert patch in json.loads(bytes(asked.arguments))["patch"]
        assert not (daemon.workspace / "new").exists()
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        done = await completed(client, asked.run_id)
        assert ("succeeded", True) == (done.status, "created new/n.txt" in done.output)
        assert (daemon.workspace / "old.txt").read_bytes() == b"1\r\nzwei\r\n"
        (kept,) = (await client.list_checkpoints(run_id=asked.run_id)).checkpoints
        assert ["old.txt", "new/n.txt"] == [file.path for file in kept.files]
        async with somebody(daemon, "client", "eve") as eve:
            assert [] == (await eve.list_checkpoints()).checkpoints
            with pytest.raises(NotFound):
                await eve.restore_checkpoint(kept.checkpoint_id)
        (daemon.workspace / "new" / "n.txt").write_text("theirs", encoding="utf-8")
        with pytest.raises(Conflict, match="changed since"):
            await client.restore_checkpoint(kept.checkpoint_id)
        restored = await client.restore_checkpoint(kept.checkpoint_id, force=True)
        assert ("old.txt", "new/n.txt") == restored.files
    assert (daemon.workspace / "old.txt").read_bytes() == b"1\r\n2\r\n"
    assert (daemon.workspace / "old.txt").stat().st_mode & 0o777 == 0o640
    assert not (daemon.workspace / "new" / "n.txt").exists()


async def test_a_patch_that_does_not_match_asks_no_approval(daemon: DaemonProcess) -> None:
    """The model gets the place that does not match."""
    patch = "*** Begin Patch\n*** Update File: none.txt\n-1\n+2\n*** End Patch"
    async with daemon.connect() as client:
        started = await client.start_run(the_call("apply_patch", patch=patch))
        await client.wait_run(started.run_id)
        tape = await read_whole(client, started.run_id)
    assert [] == find_events(tape, ev.ApprovalRequested)
    assert "line 2, column 1: none.txt: there is no such file" in repr(
        [item.event for item in tape]
    )


async def test_a_file_changed_after_the_approval_is_not_overwritten(daemon: DaemonProcess) -> None:
    """An approval is for the file as it was."""
    (daemon.workspace / "seen.txt").write_text("seen", encoding="utf-8")
    async with daemon.connect() as client:
        asked = await ask_for(client, the_call("write_file", path="seen.txt", content="mine"))
        (daemon.workspace / "seen.txt").write_text("changed", encoding="utf-8")
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        done = await completed(client, asked.run_id)
    assert "failed" == done.status
    assert "not what was approved" in (done.error or "")
    assert (daemon.workspace / "seen.txt").read_text(encoding="utf-8") == "changed"


async def read_whole_output(client: Client, cut: ev.ToolCompleted, session_key: str) -> str:
    """All of an output that was cut, through the model's own tool, page by page."""
    told = re.search(r"artifact_read with artifact ([0-9a-f]+)", cut.output)
    assert told is not None
    shown, offset = "", "0"
    while offset:
        call = the_call("artifact_read", artifact=told.group(1), offset=int(offset))
        started = await client.start_run(call, session_key=session_key)
        page = await completed(client, started.run_id)
        text, _, note = page.output.rpartition("[bytes ")
        shown, offset = shown + text, note.partition("go on with offset ")[2].rstrip("]")
    return shown


async def test_a_long_output_is_read_whole(daemon: DaemonProcess) -> None:
    """Through the model's own tool and through a client; not from another session."""
    async with daemon.connect() as client:
        first = await client.start_run(the_call("echo", text=LONG), session_key="long")
        cut = await completed(client, first.run_id)
        assert cut.artifact is not None
        assert len(cut.output.encode()) < len(LONG.encode())
        pages = [text async for text in client.artifact_pages(first.session_id, cut.artifact)]
        assert LONG == "".join(pages)
        assert LONG == await read_whole_output(client, cut, "long")
        call = the_call("artifact_read", artifact=cut.artifact)
        other = await completed(client, (await client.start_run(call)).run_id)
        assert "the session has no artifact" in (other.error or "")
        kept = list((daemon.home / "artifacts").rglob(cut.artifact))
        assert [0o600] == [path.stat().st_mode & 0o777 for path in kept]
        kept[0].unlink()
        with pytest.raises(NotFound, match=f"is missing: restore {kept[0]} from a backup"):
            await client.read_artifact(first.session_id, cut.artifact)
        lost = await completed(client, (await client.start_run(call, session_key="long")).run_id)
        assert "is missing: restore" in (lost.error or "")
        with pytest.raises(NotFound, match="has no artifact"):
            await client.read_artifact(first.session_id, "0" * 64)


@needs_bubblewrap
async def test_200_kib_of_a_command_are_read_completely(daemon: DaemonProcess) -> None:
    """Every line of a program's output is read through the model's own tool."""
    async with daemon.connect() as client:
        await wait_tool(client, "shell")
        call = the_call("shell", argv=["seq", "1", "40000"])
        started = await client.start_run(call, session_key="shell")
        await client.wait_run(started.run_id, until="attention")
        (asked,) = await client.list_approvals(run_id=started.run_id)
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        cut = await completed(client, started.run_id)
        shown = await read_whole_output(client, cut, "shell")
    assert len(shown) > 200 * 1024
    assert [*map(str, range(1, 40_001))] == shown.split()[:40_000]


def test_stored_files_are_private(daemon: DaemonProcess) -> None:
    """Folders have mode 0700, files 0600, like the journal."""
    for name in ("artifacts", "checkpoints"):
        for folder, _, files in os.walk(daemon.home / name):
            assert os.stat(folder).st_mode & 0o077 == 0  # noqa: PTH116 - a text from os.walk
            assert all(os.stat(os.path.join(folder, each)).st_mode & 0o077 == 0 for each in files)  # noqa: PTH116, PTH118 - as above
