"""Two workspaces in one daemon: a session works in one, and reaches nothing of the other."""

import json
import shutil
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.core.preview.blocks import FileBlock
from palyra.core.tape import events as ev
from palyra.errors import IllegalState, InvalidParams
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, find_events, wait_tool, write_call
from tests.e2e.tapes import read_whole
from tests.e2e.wire import WITHIN_S
from tests.tools.sandbox.jails import needs_bubblewrap

pytestmark = pytest.mark.real

RULES = """
permit (principal, action, resource)
when { context.workspace == "site" && resource.capabilities.contains("process") };
"""


@dataclass(frozen=True)
class Two:
    """A daemon with the workspaces `default` and `site`, each with a file `whose.txt`."""

    daemon: DaemonProcess
    site: Path


def configure(home: Path, sites: Mapping[str, Path]) -> None:
    """Write the configuration of a daemon with these further workspaces."""
    home.mkdir(parents=True, exist_ok=True)
    tables = "".join(
        f"[[tools.workspaces]]\nname = {json.dumps(name)}\npath = {json.dumps(str(path))}\n"
        for name, path in sites.items()
    )
    (home / "palyra.toml").write_text(f"[tools]\n{tables}", "utf-8")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Generator[Two]:
    """A daemon whose rules let programs run in `site` alone; tests leave both workspaces as found."""
    base = tmp_path_factory.mktemp("workspaces")
    site = base / "site"
    site.mkdir()
    (site / "whose.txt").write_text("site's", "utf-8")
    (site / "AGENTS.md").write_text("Site rules: call it Sirius.", "utf-8")
    rules = base / "home" / "policies"
    rules.mkdir(parents=True)
    (rules / "user.cedar").write_text(RULES, "utf-8")
    configure(base / "home", {"site": site})
    with running(base) as daemon:
        (daemon.workspace / "whose.txt").write_text("default's", "utf-8")
        yield Two(daemon, site)


async def talk(client: Client, text: str, **options: str) -> list[ev.Event | None]:
    """The events of one run."""
    started = await client.start_run(text, approval_mode="deny", **options)  # type: ignore[arg-type]  # of run.start
    with trio.fail_after(WITHIN_S):
        await client.wait_run(started.run_id)
    return [each.event for each in await read_whole(client, started.run_id)]


def outputs(events: list[ev.Event | None]) -> list[tuple[str, str]]:
    """Status and output of every call."""
    return [(each.status, each.output) for each in events if isinstance(each, ev.ToolCompleted)]


def call(tool: str, **arguments: object) -> str:
    """A line that makes the scripted model call a tool."""
    return f"/call {tool} {json.dumps(arguments)}"


READ = call("read_file", path="whose.txt")


async def test_a_session_works_in_its_workspace(two: Two) -> None:
    """Reading, searching, project files and references are those of the session's folder."""
    async with two.daemon.connect() as client:
        assert [("default", str(two.daemon.workspace), ""), ("site", str(two.site), "")] == [
            (each.name, each.path, each.problem) for each in await client.list_workspaces()
        ]
        everything = READ + "\n" + call("search_text", query="'s")
        here = await talk(client, everything)
        there = await talk(client, everything, workspace="site")
        assert ["default's" in text for _, text in outputs(here)] == [True, True], outputs(here)
        assert ["site's" in text for _, text in outputs(there)] == [True, True], outputs(there)
        assert not any("site's" in text for _, text in outputs(here))
        (accepted,) = (each for each in there if isinstance(each, ev.RunAccepted))
        session = await client.get_session(accepted.session_id)
        assert ("site", "site") == (accepted.workspace, session.workspace)
        for events, has_rules in ((here, False), (there, True)):
            gathered = [each for each in events if isinstance(each, ev.ContextGathered)]
            names = [source.name for each in gathered for source in each.sources]
            assert has_rules == ("AGENTS.md" in names)
        quoted = await client.preview_references("see @file:whose.txt", workspace="site")
        assert 0 < quoted.references[0].tokens
        later = await talk(client, READ, session_id=accepted.session_id)
        assert "site's" in outputs(later)[0][1]


async def test_a_session_keeps_its_workspace(two: Two) -> None:
    """Another name is refused, as is an unknown one; nothing is started."""
    async with two.daemon.connect() as client:
        session = await client.resolve_session(session_key="kept", workspace="site")
        assert session == await client.resolve_session(session_key="kept")
        for wanted in ({"session_key": "kept"}, {"session_id": session.session_id}):
            with pytest.raises(InvalidParams, match="works in 'site'"):
                await client.start_run("hello", workspace="default", **wanted)  # type: ignore[arg-type]
        with pytest.raises(InvalidParams, match="no workspace 'nowhere'; known: default, site"):
            await client.start_run("hello", workspace="nowhere")
        assert not (await client.list_runs(session_id=session.session_id)).runs


async def test_forks_and_delegated_runs_stay_in_the_workspace(two: Two) -> None:
    """A branch of a conversation, a checkpoint's and a child work where their parent did."""
    async with two.daemon.connect() as client:
        started = await client.start_run(READ, workspace="site", approval_mode="deny")
        ended = await client.wait_run(started.run_id)
        fork = await client.fork_run(started.run_id, ended.head_seq, READ)
        assert "site" == (await client.get_session(fork.session_id)).workspace
        restored = await client.restore_session(
            started.session_id,
            (await client.checkpoint_session(started.session_id)).checkpoint_id,
        )
        assert "site" == (await client.get_session(restored.session_id)).workspace
        asked = await client.start_run(call("delegate", task=READ), workspace="site")
        with trio.fail_after(WITHIN_S):
            view = await client.wait_run(asked.run_id, until="attention")
            if view.phase == "awaiting_approval":
                (question,) = await client.list_approvals(run_id=asked.run_id)
                assert "site" == question.workspace
                await client.resolve_approval(question.approval_id, "allow", question.digest)
            await client.wait_run(asked.run_id)
        (child,) = (await client.list_runs(parent_run_id=asked.run_id)).runs
        tape = [each.event for each in await read_whole(client, child.run_id)]
        assert "site's" in outputs(tape)[0][1]


async def test_a_change_is_undone_where_it_was_made(two: Two) -> None:
    """Diff, undo and the checkpoint belong to the workspace; the file of that name elsewhere stays."""
    mine, other = two.site / "note.txt", two.daemon.workspace / "note.txt"
    mine.write_text("old", "utf-8")
    other.write_text("other", "utf-8")
    async with two.daemon.connect() as client:
        question = await ask_for(client, write_call("note.txt", "new"), workspace="site")
        shown = await client.preview_approval(question.approval_id)
        assert "site" == shown.workspace
        (block,) = shown.blocks
        assert isinstance(block, FileBlock)
        assert (1, 1) == (block.added, block.removed)
        await client.resolve_approval(question.approval_id, "allow", question.digest)
        await client.wait_run(question.run_id)
        assert ("new", "other") == (mine.read_text("utf-8"), other.read_text("utf-8"))
        diff = await client.diff_run(question.run_id)
        assert ["left"] == [each.standing for each in diff.files]
        preview = await client.undo_run(question.run_id)
        await client.undo_run(question.run_id, preview.digest)
    assert ("old", "other") == (mine.read_text("utf-8"), other.read_text("utf-8"))


async def test_an_answer_holds_in_one_workspace(two: Two) -> None:
    """A timed answer for a file of `site` asks again in `default`, and not again in `site`."""
    async with two.daemon.connect() as client:
        question = await ask_for(client, write_call("made/a.txt", "a"), workspace="site")
        await client.resolve_approval(
            question.approval_id, "allow", question.digest, scope="timeboxed", ttl_ms=60_000
        )
        with trio.fail_after(WITHIN_S):
            await client.wait_run(question.run_id)
            again = await client.start_run(write_call("made/a.txt", "b"), workspace="site")
            assert "done" == (await client.wait_run(again.run_id)).state
            elsewhere = await client.start_run(write_call("made/a.txt", "b"))
            seen = await client.wait_run(elsewhere.run_id, until="attention")
        assert "awaiting_approval" == seen.phase
        listed = await palyra("approvals", "grants", "--home", str(two.daemon.home))
        assert "workspace site" in listed.out
        await client.cancel(elsewhere.run_id)
    assert not (two.daemon.workspace / "made").exists()
    shutil.rmtree(two.site / "made")


@needs_bubblewrap
async def test_a_program_sees_one_workspace(two: Two) -> None:
    """It starts in its session's folder, and the other's does not exist in its jail."""
    other = two.daemon.workspace / "whose.txt"
    line = f"cat whose.txt; cat {other} || echo unseen; echo x > {other} || echo unwritten"
    async with two.daemon.connect() as client:
        await wait_tool(client, "shell")
        there = await talk(client, call("shell", command=line), workspace="site")
        ((status, output),) = outputs(there)
        assert "succeeded" == status
        assert "site's" in output
        assert "unseen" in output
        assert "unwritten" in output
        assert "default's" not in output
        # The rule names `site`: it allows nothing in the other workspace.
        here = await talk(client, call("shell", argv=["true"]))
        assert [] == outputs(here)
        assert find_denied(here)
    assert "default's" == other.read_text("utf-8")


def find_denied(events: list[ev.Event | None]) -> bool:
    """True if a call was not allowed."""
    return any(isinstance(each, ev.ToolDecided) and each.verdict != "allow" for each in events)


async def test_documents_are_those_of_a_workspace(two: Two) -> None:
    """Each folder has its own entries and versions."""
    block = "<!-- palyra:begin facts -->\n- a fact\n<!-- palyra:end facts -->\n"
    (two.site / "MEMORY.md").write_text(block, "utf-8")
    async with two.daemon.connect() as client:
        await client.sync_document("MEMORY.md", workspace="site")
        there = await client.list_documents(workspace="site")
        here = await client.list_documents()
        assert (str(two.site), str(two.daemon.workspace)) == (there.workspace, here.workspace)
        assert [True, False] == [
            any(each.exists for each in found.documents) for found in (there, here)
        ]
        with pytest.raises(InvalidParams, match="no workspace"):
            await client.list_documents(workspace="nowhere")


async def test_the_command_line_works_where_it_is_called(two: Two) -> None:
    """`palyra run` takes the workspace of the current directory, and says so; --workspace wins."""
    home = ("--home", str(two.daemon.home))
    deep = two.site / "deep"
    deep.mkdir()
    done = await palyra("run", READ, *home, folder=deep)
    assert "site's" in done.out
    assert "workspace site" in done.err
    named = await palyra("run", READ, "--workspace", "default", *home, folder=deep)
    assert "default's" in named.out
    again = await palyra("run", READ, "--continue", *home, folder=deep)
    assert "site's" in again.out
    listed = await palyra("workspaces", *home)
    assert str(two.site) in listed.out
    deep.rmdir()


async def test_a_workspace_that_is_removed(tmp_path: Path) -> None:
    """Its sessions take no message; those of the others go on."""
    base = tmp_path / "base"
    site = tmp_path / "site"
    site.mkdir()
    configure(base / "home", {"site": site})
    with running(base) as daemon:
        async with daemon.connect() as client:
            question = await ask_for(client, write_call("a.txt", "a"), workspace="site")
        configure(daemon.home, {})
        await daemon.restart()
        async with daemon.connect() as client:
            with pytest.raises(IllegalState, match="'site' of the session is not configured"):
                await client.start_run("hello", session_id=question.session_id)
            await client.resolve_approval(question.approval_id, "allow", question.digest)
            with trio.fail_after(WITHIN_S):
                await client.wait_run(question.run_id)
            tape = await read_whole(client, question.run_id)
            (ended,) = find_events(tape, ev.ToolCompleted)
            assert isinstance(ended, ev.ToolCompleted)
            assert "failed" == ended.status
            assert "not configured" in str(ended)
    assert not (site / "a.txt").exists()
    assert not (daemon.workspace / "a.txt").exists()


async def test_a_folder_becomes_a_workspace_by_a_command(tmp_path: Path) -> None:
    """A run outside of all workspaces says where it works; `workspaces add` is checked, and removed again."""
    base, other = tmp_path / "base", tmp_path / "Other Folder"
    (other / "deep").mkdir(parents=True)
    (other / "whose.txt").write_text("other's", "utf-8")
    with running(base) as daemon:
        (daemon.workspace / "whose.txt").write_text("default's", "utf-8")
        home = ("--home", str(daemon.home))
        read = call("read_file", path="whose.txt")
        lost = await palyra("run", read, *home, folder=other)
        assert "default's" in lost.out
        assert f"not a workspace of the daemon; working in {daemon.workspace} (" in lost.err
        inside = await palyra("run", read, *home, folder=daemon.workspace)
        assert "not a workspace" not in inside.err
        added = await palyra("workspaces", "add", *home, folder=other)
        assert added.code == 0, added.err
        assert f"workspace other-folder: {other}" in added.out
        assert "the running daemon uses it now" in added.out
        for refused in (other / "deep", daemon.home, Path("/")):
            assert (await palyra("workspaces", "add", str(refused), *home)).code != 0
        found = await palyra("run", read, *home, folder=other / "deep")
        assert "other's" in found.out
        assert "workspace other-folder" in found.err
        assert (await palyra("workspaces", "remove", "none", *home)).code != 0
        removed = await palyra("workspaces", "remove", "other-folder", *home)
        assert removed.code == 0, removed.err
        assert "other-folder" not in (daemon.home / "palyra.toml").read_text("utf-8")
