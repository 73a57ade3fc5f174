"""Artifacts: what was cut is kept whole, and a model reads it page by page."""

import hashlib
import re
from typing import Any

import pytest
from trio.testing import MockClock

from palyra.core.model.messages import ToolMessage
from palyra.core.session.commands import Forked
from palyra.core.tool.artifacts import MAX_ARTIFACT_BYTES, NAME_CHARS, Artifact
from palyra.core.tool.spec import ToolCall, ToolOutput
from palyra.errors import Unavailable
from palyra.tools.toolbox import InlineTool
from tests.actors.run.office_kit import OPERATOR, OTHER, SECRET, Kit, call, running, say, spec
from tests.store.memory.journal import MemoryJournal

LINES = "".join(f"{number:05}: {'é' * (number % 53)}\n" for number in range(4_000))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    """A journal for one test, of a daemon with a tool of long outputs."""

    def flood(called: ToolCall) -> ToolOutput:
        text: str = called.arguments["text"]
        repeated, _, times = text.rpartition(" times ")
        whole = repeated * int(times) if repeated else LINES
        return ToolOutput(text=whole, trust="external_untrusted")

    built_in = Kit.tools
    more = [InlineTool(spec("flood"), flood)]
    monkeypatch.setattr(Kit, "tools", lambda kit: [*built_in(kit), *more])
    journal = MemoryJournal()
    journal.open()
    return journal


async def play(kit: Kit, *calls: tuple[str, Any], **fields: Any) -> list[Any]:
    """Run these calls, one a turn; what became of them."""
    kit.model.turns = [*map(call, calls), say("done")]
    run_id = await kit.start(**fields)
    assert await kit.end(run_id) == "done"
    return kit.events(run_id, "tool.completed")


async def test_all_of_a_long_output_can_be_read(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """200 KiB, page by page, through the model's own tool; no byte is lost or doubled."""
    assert len(LINES.encode()) > 200 * 1024
    async with running(store) as kit:
        (cut,) = await play(kit, ("flood", {"text": "lines"}), session_key="s")
        assert cut.artifact == hashlib.sha256(LINES.encode()).hexdigest()
        told = re.search(r"\[all of it: artifact_read with artifact ([0-9a-f]+)\]$", cut.output)
        assert told is not None
        assert cut.artifact[:NAME_CHARS] == told.group(1)
        pages, offset = [], "0"
        while offset:
            asked = {"artifact": told.group(1), "offset": int(offset)}
            (page,) = await play(kit, ("artifact_read", asked), session_key="s")
            assert page.artifact is None, "a page is shown whole"
            text, _, note = page.output.rpartition("[bytes ")
            pages.append(text)
            offset = note.partition("go on with offset ")[2].rstrip("]")
        assert LINES == "".join(pages)
        assert len(pages) > 12


async def test_a_page_is_as_trusted_as_its_output(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Reading it again raises nothing; the model sees it behind the same fence."""
    async with running(store) as kit:
        (cut,) = await play(kit, ("flood", {"text": "lines"}), session_key="s")
        asked = {"artifact": cut.artifact, "line": 3_999}
        (page,) = await play(kit, ("artifact_read", asked), session_key="s")
        assert ("external_untrusted", True) == (page.trust, page.output.startswith("03998: "))
        shown = [
            message.output
            for message in kit.model.requests[-1].messages
            if isinstance(message, ToolMessage)
        ]
        assert 'trust="external_untrusted"' in shown[-1]


async def test_another_session_cannot_read_an_artifact(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Neither another session of the owner nor one of another principal with the same key can."""
    async with running(store) as kit:
        (cut,) = await play(kit, ("flood", {"text": "lines"}), session_key="s")
        asked = {"artifact": cut.artifact}
        for fields in ({"session_key": "t"}, {"session_key": "s", "caller": OTHER}):
            (page,) = await play(kit, ("artifact_read", asked), **fields)
            assert page.status == "failed"
            assert "the session has no artifact" in page.error


async def test_an_artifact_contains_no_secret(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An artifact is redacted like a tape."""
    async with running(store) as kit:
        (cut,) = await play(kit, ("flood", {"text": f"{SECRET}\n times 3000"}), session_key="s")
        ((_, data),) = kit.artifacts._held.values()
        assert SECRET.encode() not in data
        assert b"[redacted:" in data
        assert cut.artifact == hashlib.sha256(data).hexdigest()


async def test_output_that_fits_has_no_artifact(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Up to exactly the limit of the excerpt."""
    async with running(store) as kit:
        ends = await play(
            kit, ("flood", {"text": "x times 1"}), ("flood", {"text": "x times 8192"}),
            ("flood", {"text": "x times 8193"}),
        )  # fmt: skip
        assert [False, False, True] == [end.artifact is not None for end in ends]


async def test_an_output_that_cannot_be_kept_is_still_an_output(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a size beyond reason, costs the rest of the output and nothing else."""

    def full(_artifact: Artifact, _data: bytes) -> None:
        raise Unavailable("no space left on device")

    async with running(store) as kit:
        (vast,) = await play(kit, ("flood", {"text": f"x times {MAX_ARTIFACT_BYTES + 1}"}))
        monkeypatch.setattr(kit.artifacts, "put", full)
        (cut,) = await play(kit, ("flood", {"text": "lines"}))
        for end in (vast, cut):
            assert ("succeeded", None, True) == (end.status, end.artifact, end.truncated)
            assert "artifact_read" not in end.output


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"offset": 999_999_999}, "past the end: it has "),
        ({"line": 5_000}, "past the end: it has "),
        ({"artifact": "0" * 16}, "no artifact '0000000000000000'"),
    ],
)
async def test_a_missing_artifact_is_an_error_with_the_known_ones(
    store: MemoryJournal, autojump_clock: MockClock, asked: dict[str, Any], said: str
) -> None:
    """The model gets the names of the existing artifacts."""
    async with running(store) as kit:
        (cut,) = await play(kit, ("flood", {"text": "lines"}), session_key="s")
        call_ = ("artifact_read", {"artifact": cut.artifact, **asked})
        (page,) = await play(kit, call_, session_key="s")
        assert page.status == "failed"
        assert said in page.error


async def test_a_damaged_artifact_fails_the_call(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure has the reason."""

    def damaged(_session_id: str, _name: str) -> None:
        raise Unavailable("the artifact is damaged on the disk")

    async with running(store) as kit:
        monkeypatch.setattr(kit.artifacts, "find", damaged)
        (page,) = await play(kit, ("artifact_read", {"artifact": "0" * 16}))
        assert "damaged on the disk" in page.error


async def test_a_fork_reads_what_it_inherited_and_nothing_else(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Of the run's outputs those before its place; neither later ones nor those of other runs."""
    async with running(store) as kit:
        (other,) = await play(kit, ("flood", {"text": "other\n times 3000"}), session_key="s")
        kit.model.turns = [
            call(("flood", {"text": "lines"})),
            call(("flood", {"text": "later\n times 3000"})),
            say("done"),
        ]
        run_id = await kit.start(session_key="s")
        assert await kit.end(run_id) == "done"
        before, later = kit.events(run_id, "tool.completed")
        at_seq = next(row.seq for row in kit.rows(run_id) if row.kind == "tool.attested")
        forked = await fork(kit, run_id, at_seq)
        assert ["succeeded", "failed", "failed"] == await reading(
            kit, forked, before.artifact, later.artifact, other.artifact
        )
        # And so does a fork of the fork, which inherited them from it.
        again = await fork(kit, forked.run_id, kit.rows(forked.run_id)[-1].seq)
        assert ["succeeded", "failed"] == await reading(kit, again, before.artifact, later.artifact)
        # From before there was anything: nothing.
        early = await fork(kit, run_id, 1)
        assert ["failed"] == await reading(kit, early, before.artifact)


async def test_a_page_in_a_fork_is_as_trusted_and_as_whole(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It is the same artifact, and its owner reads it over the wire in the new session, too."""
    async with running(store) as kit:
        run_id = await end_with(kit, ("flood", {"text": "lines"}))
        (cut,) = kit.events(run_id, "tool.completed")
        forked = await fork(kit, run_id, kit.rows(run_id)[-1].seq)
        found = kit.artifacts.find(forked.session_id, cut.artifact)
        assert found is not None
        artifact, data = found
        assert LINES.encode() == data
        assert (cut.call_id, run_id, "external_untrusted") == (
            artifact.call_id, artifact.run_id, artifact.trust,
        )  # fmt: skip


async def test_a_fork_does_not_need_its_artifacts(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without stored outputs, or space for them, the fork has its conversation all the same."""

    def full(_artifact: Artifact, _data: bytes) -> None:
        raise Unavailable("no space left on device")

    async with running(store) as kit:
        run_id = await end_with(kit, ("flood", {"text": "lines"}))
        (cut,) = kit.events(run_id, "tool.completed")
        monkeypatch.setattr(kit.artifacts, "put", full)
        head_seq = kit.rows(run_id)[-1].seq
        assert ["failed"] == await reading(kit, await fork(kit, run_id, head_seq), cut.artifact)
        kit.artifacts._held.clear()
        assert ["failed"] == await reading(kit, await fork(kit, run_id, head_seq), cut.artifact)


async def end_with(kit: Kit, made: tuple[str, Any]) -> str:
    """A run of one call; its id."""
    kit.model.turns = [call(made), say("done")]
    run_id = await kit.start(session_key="s")
    assert await kit.end(run_id) == "done"
    return run_id


async def fork(kit: Kit, run_id: str, at_seq: int) -> Forked:
    """The fork, at its end."""
    kit.model.turns = [say("forked")]
    forked = await kit.gateway.fork_run(OPERATOR, run_id, at_seq, "go on")
    assert await kit.end(forked.run_id) == "done"
    return forked


async def reading(kit: Kit, forked: Forked, *names: str) -> list[str]:
    """The outcomes of reading each artifact in the fork's session."""
    asked = [("artifact_read", {"artifact": name}) for name in names]
    pages = await play(kit, *asked, session_id=forked.session_id)
    return [page.status for page in pages]
