"""Context over a real socket: project files, references, explanation, preview, kill and replay."""

import json
import subprocess
import sys
from collections.abc import Generator

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.core.tape import events as ev
from palyra.errors import Forbidden, NotFound
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events, somebody
from tests.e2e.tapes import check_tape, kinds, read_whole
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon whose workspace is a small project."""
    with running(tmp_path_factory.mktemp("project")) as process:
        (process.workspace / "AGENTS.md").write_text("Run make check first.\n", encoding="utf-8")
        (process.workspace / ".env").write_text("TOKEN=hidden-value\n", encoding="utf-8")
        source = process.workspace / "src"
        source.mkdir()
        (source / "a.py").write_text("answer = 42\n" * 3, encoding="utf-8")
        (source / "b c.py").write_text("x = 1\n", encoding="utf-8")
        yield process


async def finish(client: Client, run_id: str) -> list[TapeEvent]:
    """The tape of an ended run, checked."""
    with trio.fail_after(WITHIN_S):
        await client.wait_run(run_id)
    tape = await read_whole(client, run_id)
    check_tape(tape)
    return tape


async def test_all_kinds_in_one_message(project: DaemonProcess) -> None:
    """Each resolves on its own; the prompt, the tape, the explanation and the preview agree."""
    async with project.connect() as client:
        first = await client.start_run("/say remembered", session_key="earlier")
        await finish(client, first.run_id)
        text = (
            f"look at @file:src/a.py#L1-2, @file:'src/b c.py' and @folder:src; also @file:none.py, "
            f"@file:.env, @run:{first.run_id} and @session:earlier. Ask me@file:x or @todo:y, "
            "literally @@file:z"
        )
        preview = await client.preview_references(text)
        run = await client.start_run(text)
        tape = await finish(client, run.run_id)
        gathered = [
            e for e in find_events(tape, ev.ContextGathered) if isinstance(e, ev.ContextGathered)
        ]
        files, references = gathered
        assert [("AGENTS.md", "Run make check first.\n")] == [
            (s.name, s.text) for s in files.sources
        ]
        found = {source.name: source for source in references.sources}
        assert list(found) == [each.reference for each in preview.references]
        assert list(found) == [
            "@file:src/a.py#L1-2", "@file:src/b c.py", "@folder:src", "@file:none.py", "@file:.env",
            f"@run:{first.run_id}", "@session:earlier",
        ]  # fmt: skip
        assert found["@file:src/a.py#L1-2"].text.startswith(
            "answer = 42\nanswer = 42\n[lines 1 to 2"
        )
        assert "--- src/a.py" in found["@folder:src"].text
        assert "no such file" in found["@file:none.py"].error
        assert "places for keys" in found["@file:.env"].error
        assert "remembered" in found["@session:earlier"].text
        assert [bool(s.error) for s in found.values()] == [
            bool(p.error) for p in preview.references
        ]
        assert ["AGENTS.md"] == [each.reference for each in preview.project_files]
        assert "hidden-value" not in repr(tape)
        explained = await client.explain_context(run.run_id)
        shown = {each.name: each for each in explained.segments if each.name}
        assert shown.keys() == {*found, "AGENTS.md"}
        assert not shown["@file:none.py"].kept
        assert (96, True) == (
            shown["@folder:src"].priority, shown["@folder:src"].protected,
        )  # fmt: skip
        for strict in (False, True):
            report = await client.replay_run(run.run_id, strict=strict)
            assert report.matched, report.first_divergence


async def test_a_killed_run_goes_on_with_the_texts_of_its_tape(project: DaemonProcess) -> None:
    """After kill -9 the file is another one; the prompt of the next attempt is the same."""
    place = project.workspace / "changing.txt"
    place.write_text("before", encoding="utf-8")
    async with project.connect() as client:
        text = "/delay 3600000 1\n/say done\nsee @file:changing.txt"
        run_id = (await client.start_run(text)).run_id
        await project.reach(run_id, "turn.started")
        first = await client.explain_context(run_id)
    place.write_text("after, and much longer than before " * 50, encoding="utf-8")
    (project.workspace / "PALYRA.md").write_text("New rules.\n", encoding="utf-8")
    await project.restart()
    async with project.connect() as client:
        tape = await finish(client, run_id)
        again = await client.explain_context(run_id)
        assert (1, 1, 2) == (
            kinds(tape).count("run.recovered"), first.attempt, again.attempt,
        )  # fmt: skip
        assert (first.segments, first.input_tokens) == (again.segments, again.input_tokens)
        texts = [s.text for e in find_events(tape, ev.ContextGathered) for s in e.sources]  # type: ignore[attr-defined]
        assert ["Run make check first.\n", "before"] == texts
        assert (await client.replay_run(run_id, strict=True)).matched
    (project.workspace / "PALYRA.md").unlink()


async def test_the_prefix_is_the_same_in_every_run_of_a_session(project: DaemonProcess) -> None:
    """Instructions and tools by hash; the project file by its text."""
    async with project.connect() as client:
        seen = []
        for number in range(3):
            run = await client.start_run(f"/say {number}", session_key="stable")
            tape = await finish(client, run.run_id)
            (files,) = find_events(tape, ev.ContextGathered)
            seen.append((files, (await client.explain_context(run.run_id)).prefix_hash))
        assert [seen[0]] * 3 == seen


async def test_others_see_no_prompt_and_no_preview(project: DaemonProcess) -> None:
    """A run of another principal is not there; without the right to start runs no preview."""
    async with project.connect() as client:
        run = await client.start_run("/say mine")
        await finish(client, run.run_id)
        with pytest.raises(NotFound, match="does not have a turn 9"):
            await client.explain_context(run.run_id, 9)
        async with somebody(project, "client", "eve") as eve:
            with pytest.raises(NotFound):
                await eve.explain_context(run.run_id)
            (found,) = (await eve.preview_references(f"@run:{run.run_id}")).references
            assert "there is no such run of yours" == found.error
            (page,) = (await eve.preview_references("@url:https://example.org")).references
            assert "a reference cannot request" in page.error
        async with somebody(project, "observer", "olaf") as olaf:
            assert (await olaf.explain_context(run.run_id)).segments
            with pytest.raises(Forbidden):
                await olaf.preview_references("@file:src/a.py")


def test_the_command_line_shows_both(project: DaemonProcess) -> None:
    """`palyra run --preview` sends nothing; `palyra context RUN` has a row for each segment."""

    def palyra(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "palyra", "--home", str(project.announcement.parent), *words],
            capture_output=True, text=True, check=True, cwd=project.workspace,
        )  # fmt: skip
        return done.stdout

    shown = palyra("run", "--preview", "see @file:src/a.py and @file:none.py")
    assert "@file:src/a.py" in shown
    assert "no such file" in shown
    run_id = palyra("run", "--detach", "/say hi").strip()
    palyra("runs", "wait", run_id)
    table = palyra("context", run_id)
    for word in ("instructions", "AGENTS.md", "user_input", "100, protected"):
        assert word in table
    explained = json.loads(palyra("context", run_id, "--turn", "1", "--json"))
    assert run_id == explained["run_id"]
