"""Workspace documents on real files: versions, restores, crashes, other programs, hostile files."""

import os
import resource
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio

from palyra.core.journal.changes import Change
from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.document_views import DocumentChanged
from palyra.core.tool.checkpoints import CheckpointFilter
from palyra.core.tool.spec import ToolCall, ToolFailure
from palyra.errors import (
    Conflict,
    Forbidden,
    IllegalState,
    InvalidParams,
    NotFound,
    PalyraError,
    TooLarge,
    Unavailable,
)
from palyra.services.memory import documents
from palyra.tools.files import changes as changes_module
from palyra.tools.files.write import write_tools
from tests.forked import call_forked
from tests.services.document_kit import CLIENT, OPERATOR, SECRET, Kit, apply_and_die
from tests.store.kit import document, memory, memory_journal, sqlite_journal

pytestmark = pytest.mark.real

BEGIN, END = "<!-- palyra:begin facts -->\n", "<!-- palyra:end facts -->\n"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    """A workspace without documents."""
    store = memory_journal()
    store.open()
    opened = Kit(tmp_path, store)
    yield opened
    opened.workspace.close()


def body(*lines: str) -> str:
    return BEGIN + "".join(f"{line}\n" for line in lines) + END


def names(kit: Kit) -> list[str]:
    """The files of the workspace."""
    return sorted(path.name for path in kit.root.iterdir())


def spares(kit: Kit) -> list[str]:
    """Drafts that were left in the workspace."""
    return [name for name in names(kit) if name.startswith(".palyra-")]


# --- who may


async def test_nothing_is_written_unless_it_is_enabled(tmp_path: Path) -> None:
    """By default only a person's command changes a workspace; the error names the setting."""
    store = memory_journal()
    store.open()
    kit = Kit(tmp_path, store, writes=False)
    with pytest.raises(IllegalState, match=r"write = true in the section \[documents\]"):
        await kit.apply(mem_1="a")
    assert names(kit) == []
    entries = {"mem_1": "a"}
    await kit.documents.apply("MEMORY.md", "facts", entries, principal="ann", by_hand=True)
    assert kit.memory.read_text() == body("- a <!-- mem_1 -->")
    kit.workspace.close()


async def test_only_operators_see_documents(kit: Kit) -> None:
    """The scope is checked by every method for clients."""
    documents = kit.documents
    for call in (
        lambda: documents.list_all(CLIENT),
        lambda: documents.get(CLIENT, "MEMORY.md"),
        lambda: documents.history(CLIENT, "MEMORY.md"),
        lambda: documents.sync(CLIENT, "MEMORY.md"),
        lambda: documents.restore(CLIENT, "MEMORY.md", 1),
    ):
        with pytest.raises(Forbidden):
            await call()


@pytest.mark.parametrize("name", ["MEMORY.md", "USER.md", "PALYRA.md", "docs/MEMORY.md"])
def test_tools_do_not_write_documents(kit: Kit, name: str) -> None:
    """So no model writes an entry that would count as a person's; other files are written."""
    call = ToolCall(
        call_id="c", run_id="r", session_id="s", principal="ann", tool="write_file",
        tool_version="1", arguments={"path": name, "content": body("- obey me")},
    )  # fmt: skip
    write = cast("Any", write_tools(kit.workspace, kit.checkpoints.keep_for)[0])
    with pytest.raises(ToolFailure, match="may not be used"):
        write.run(call)
    other = msgspec.structs.replace(call, arguments={"path": "NOTES.md", "content": "x"})
    write.run(other)
    assert names(kit) == ["NOTES.md"]


# --- versions


async def test_each_change_is_a_version_with_a_checkpoint(kit: Kit) -> None:
    """The history names cause and author; the checkpoint restores the file byte for byte."""
    kit.memory.write_bytes(b"# Mine\r\n")
    kit.memory.chmod(0o640)
    first = await kit.apply(mem_1="a")
    second = await kit.apply(mem_1="b")
    same = await kit.apply(mem_1="b")
    assert (first.version, second.version, same.version) == (1, 2, 2)
    assert (second.is_written, same.is_written) == (True, False)
    assert [(each.before, each.after) for each in second.changes] == [("a", "b")]
    history = await kit.documents.history(OPERATOR, "MEMORY.md", limit=2)
    assert [(each.version, each.cause, each.by, each.is_pending) for each in history.versions] == [
        (2, "apply", "ann", False),
        (1, "apply", "ann", False),
    ]
    assert history.next_before == 1
    assert stat.S_IMODE(kit.memory.stat().st_mode) == 0o640
    assert [each.version for each in kit.hub.notices if isinstance(each, DocumentChanged)] == [1, 2]
    kept = kit.checkpoints.find(second.checkpoint_id)
    assert kept is not None
    assert (kept.principal, kept.tool) == ("ann", "document")
    kit.checkpoints.restore(kept, "before", is_forced=False)
    eol = "\r\n"
    assert kit.memory.read_bytes().decode() == "# Mine\r\n" + body("- a <!-- mem_1 -->").replace(
        "\n", eol
    )
    assert spares(kit) == []


async def test_a_restore_changes_the_blocks_alone(kit: Kit) -> None:
    """Entries and their authors come back, also deleted ones; text outside and the preview stay."""
    kit.memory.write_text("top\n" + body("- typed"))
    await kit.documents.sync(OPERATOR, "MEMORY.md")
    await kit.apply(mem_1="a", mem_2="b")
    wanted = kit.memory.read_text()
    kit.memory.write_text("new top\n" + body("- mine <!-- mem_1 -->", "- more"))
    await kit.documents.sync(OPERATOR, "MEMORY.md")
    now = kit.memory.read_text()
    preview = await kit.documents.restore(OPERATOR, "MEMORY.md", 2, dry_run=True)
    assert (kit.memory.read_text(), preview.is_preview, preview.is_written) == (now, True, True)
    done = await kit.documents.restore(OPERATOR, "MEMORY.md", 2)
    assert (
        {(each.before, each.after) for each in done.changes}
        == {(each.before, each.after) for each in preview.changes}
        == {("mine", "a"), ("more", None), (None, "typed"), (None, "b")}
    )
    assert sorted(kit.memory.read_text().splitlines()[1:]) == sorted(wanted.splitlines()[1:])
    assert kit.memory.read_text().startswith("new top\n")
    view = await kit.documents.get(OPERATOR, "MEMORY.md")
    assert (view.adopted, view.deleted, view.flags) == ((), (), ())
    assert {entry.text: entry.by for entry in view.blocks[0].entries} == {
        "typed": "ann", "a": "", "b": "",
    }  # fmt: skip
    with pytest.raises(NotFound, match="no version 9"):
        await kit.documents.restore(OPERATOR, "MEMORY.md", 9)


async def test_all_documents_go_back_to_a_time(kit: Kit) -> None:
    """Each to its newest complete version by then; one without a version that old stays."""
    user = kit.memory.with_name("USER.md")
    await kit.apply(mem_1="a")
    kit.clock_ms += 10
    at_ms = kit.clock_ms
    await kit.apply(mem_1="b")
    kit.clock_ms += 1
    user.write_text(body("- later"))
    await kit.documents.sync(OPERATOR, "USER.md")
    await kit.apply(mem_1="c")
    before = kit.memory.read_text(), user.read_text()
    assert {"MEMORY.md": 2} == await kit.documents.restore_all(OPERATOR, at_ms, dry_run=True)
    assert before == (kit.memory.read_text(), user.read_text())
    assert {"MEMORY.md": 2} == await kit.documents.restore_all(OPERATOR, at_ms)
    assert (before[0].replace("- c", "- b"), before[1]) == (
        kit.memory.read_text(), user.read_text(),
    )  # fmt: skip
    assert {} == await kit.documents.restore_all(OPERATOR, at_ms)
    assert {} == await kit.documents.restore_all(OPERATOR, -1)
    with pytest.raises(Forbidden):
        await kit.documents.restore_all(CLIENT, at_ms)


async def test_a_sync_adopts_and_a_preview_does_not(kit: Kit) -> None:
    """The preview lists the same edits and leaves file and history alone."""
    text = body("- typed")
    kit.memory.write_text(text)
    seen = await kit.documents.read("MEMORY.md")
    preview = await kit.documents.sync(OPERATOR, "MEMORY.md", dry_run=True)
    assert kit.memory.read_text() == text
    done = await kit.documents.sync(OPERATOR, "MEMORY.md")
    assert {each.adopted[0].text for each in (seen, preview, done)} == {"typed"}
    assert (preview.version, done.version) == (0, 1)
    entry_id = done.adopted[0].entry_id
    assert kit.memory.read_text() == body(f"- typed <!-- {entry_id} -->")
    again = await kit.documents.sync(OPERATOR, "MEMORY.md")
    assert (again.version, again.adopted) == (1, ())


async def test_edits_found_in_passing_are_not_trusted_before_a_sync(kit: Kit) -> None:
    """A repository may have brought them; a person's sync confirms them."""
    kit.memory.write_text(body("- brought by a clone <!-- mem_9 -->"))
    await kit.apply(mem_1="a")

    async def trust() -> dict[str, tuple[str, str]]:
        found = (await kit.documents.get(OPERATOR, "MEMORY.md", None)).blocks[0].entries
        return {entry.entry_id: (entry.trust, entry.by) for entry in found}

    assert await trust() == {"mem_9": ("workspace", ""), "mem_1": ("trusted_local", "")}
    done = await kit.documents.sync(OPERATOR, "MEMORY.md")
    assert [each.entry_id for each in done.adopted] == ["mem_9"]
    assert (await trust())["mem_9"] == ("trusted_local", "ann")


async def test_a_secret_is_not_written_or_recorded(kit: Kit) -> None:
    """Asked for, it is refused; typed by hand, it is flagged and stays out of the versions."""
    with pytest.raises(InvalidParams, match="mem_1 contains a secret"):
        await kit.apply(mem_1=f"the password is {SECRET}")
    kit.memory.write_text(body(f"- {SECRET}"))
    done = await kit.documents.sync(OPERATOR, "MEMORY.md")
    assert [flag.kind for flag in done.flags] == ["refused"]
    versions = kit.journal.store.list_document_versions(str(kit.root), "MEMORY.md")
    assert SECRET.encode() not in msgspec.json.encode(versions)


async def test_concurrent_changes_are_all_written(kit: Kit) -> None:
    """Each change of a document sees the one before; none is merged with an outdated file."""
    async with trio.open_nursery() as nursery:
        for number in range(5):
            block, entries = f"block-{number}", {f"mem_{number}": "x"}
            nursery.start_soon(
                partial(kit.documents.apply, "MEMORY.md", block, entries, principal="ann")
            )
    view = await kit.documents.get(OPERATOR, "MEMORY.md")
    assert (view.version, len(view.blocks), view.adopted, view.flags) == (5, 5, (), ())
    assert kit.memory.read_text().count("palyra:begin") == 5


# --- forgetting


async def test_forgetting_leaves_no_text(kit: Kit) -> None:
    """Gone from files, versions and checkpoints; it does not come back with an old file."""
    await kit.apply(mem_1="hush", mem_2="kept")
    await kit.apply(mem_1="hush hush", mem_2="kept")
    old = kit.memory.read_text()
    kit.memory.write_text(old.replace("- hush hush", "- hush, edited"))
    done = await kit.documents.forget({"mem_1"}, principal="ann")
    assert [(each.document, each.problem) for each in done] == [("MEMORY.md", "")]
    versions = kit.journal.store.list_document_versions(str(kit.root), "MEMORY.md")
    kept = kit.checkpoints.list(CheckpointFilter())
    data = [
        each for one in kept for each in kit.checkpoints.store.contents(one.checkpoint_id).values()
    ]
    assert b"hush" not in b"".join([msgspec.json.encode(versions), kit.memory.read_bytes(), *data])
    assert kit.memory.read_text() == body("- kept <!-- mem_2 -->")
    kit.memory.write_text(old)
    await kit.documents.sync(OPERATOR, "MEMORY.md")
    assert kit.memory.read_text() == body("- kept <!-- mem_2 -->")
    assert await kit.documents.forget({"mem_7"}, principal="ann") == []
    await kit.documents.restore(OPERATOR, "MEMORY.md", 1)
    assert kit.memory.read_text() == body("- kept <!-- mem_2 -->")


@pytest.mark.parametrize("at", [0, -1])
async def test_a_damaged_checkpoint_does_not_survive_forgetting(kit: Kit, at: int) -> None:
    """Neither its description nor its contents can be read, so it may hold the text."""
    kit.memory.write_text("mine\n")
    await kit.apply(mem_1="forget me")
    await kit.apply(mem_1="forget me", mem_2="stays")
    folder = kit.root.parent / "kept"
    for path in folder.iterdir():
        content = bytearray(path.read_bytes())
        content[at] ^= 0xFF
        path.write_bytes(content)
    await kit.documents.forget({"mem_1"}, principal="ann")
    assert "forget me" not in kit.memory.read_text()
    assert not [path for path in folder.iterdir() if b"forget" in path.read_bytes()]


async def test_forgetting_in_a_damaged_file_is_completed_later(kit: Kit) -> None:
    """The versions lose the text at once, the file when its markers are mended."""
    await kit.apply(mem_1="hush")
    whole = kit.memory.read_text()
    kit.memory.write_text(whole + END)
    (done,) = await kit.documents.forget({"mem_1"}, principal="ann")
    assert "line 4" in done.problem
    versions = kit.journal.store.list_document_versions(str(kit.root), "MEMORY.md")
    assert b"hush" not in msgspec.json.encode(versions)
    kit.memory.write_text(whole)
    await kit.apply()
    assert kit.memory.read_text() == body()


# --- crashes and failures


@pytest.mark.parametrize("instant", range(12))
def test_a_killed_process_leaves_a_state_that_is_no_edit(tmp_path: Path, instant: int) -> None:
    """Killed at any instant of the write: the file is as before or as after, and a retry completes it."""
    store = sqlite_journal(tmp_path)
    store.open()
    kit = Kit(tmp_path, store)
    trio.run(lambda: kit.apply(mem_1="a", mem_2="b"))
    before = kit.memory.read_text()
    store.close()
    new = {"mem_1": "A", "mem_3": "c"}
    assert call_forked(apply_and_die, tmp_path, instant, new) in {(-9, ""), (0, "done\n")}
    after = body("- A <!-- mem_1 -->", "- c <!-- mem_3 -->")
    assert kit.memory.read_text() in {before, after}
    store.open()
    seen = trio.run(lambda: kit.documents.read("MEMORY.md"))
    assert (seen.adopted, seen.deleted, seen.flags) == ((), (), ())
    done = trio.run(lambda: kit.apply(**new))
    assert (kit.memory.read_text(), done.adopted, done.deleted) == (after, (), ())
    store.close()
    kit.workspace.close()


async def test_a_full_disk_changes_nothing(kit: Kit) -> None:
    """Unavailable; the file is as before, without a draft beside it, and a retry succeeds."""
    await kit.apply(mem_1="a")
    before = kit.memory.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises((Unavailable, IllegalState)) as caught:
            await kit.apply(mem_1="b" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "too large" in caught.value.message.lower()
    assert (kit.memory.read_bytes(), spares(kit)) == (before, [])
    seen = await kit.documents.read("MEMORY.md")
    assert (seen.adopted, seen.deleted, seen.flags) == ((), (), ())
    await kit.apply(mem_1="b" * 200)
    assert kit.memory.read_text() == body(f"- {'b' * 200} <!-- mem_1 -->")


# --- other programs


def meddle(kit: Kit, monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Let another program act right before one step of the change."""
    real = getattr(changes_module, name)

    def step(*arguments: object) -> object:
        act()
        return real(*arguments)

    monkeypatch.setattr(changes_module, name, step)


@pytest.mark.parametrize("step", ["_stage", "swap"])
@pytest.mark.parametrize("how", ["in place", "by rename", "same size and time"])
async def test_an_editor_that_saves_meanwhile_loses_nothing(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, step: str, how: str
) -> None:
    """Between read and rename, in one tick of the clock or not: both changes are in the file."""
    await kit.apply(mem_1="a", mem_2="b")
    saves = iter([1])

    def save() -> None:
        if next(saves, None) is None:
            return
        edited = kit.memory.read_text().replace("- a <", "- X <")
        found = kit.memory.stat()
        if how == "by rename":
            (kit.root / "draft").write_text(edited)
            (kit.root / "draft").rename(kit.memory)
        else:
            kit.memory.write_text(edited)
        if how == "same size and time":
            os.utime(kit.memory, ns=(found.st_atime_ns, found.st_mtime_ns))

    meddle(kit, monkeypatch, step, save)
    done = await kit.apply(mem_1="a", mem_2="B")
    assert kit.memory.read_text() == body("- X <!-- mem_1 -->", "- B <!-- mem_2 -->")
    assert [each.text for each in done.adopted] == ["X"]
    assert spares(kit) == []


async def test_an_editor_that_never_stops_is_a_conflict(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After eight merges the change is refused, and the file is as the editor left it."""
    await kit.apply(mem_1="a")
    saves: list[str] = []

    def save() -> None:
        saves.append(kit.memory.read_text() + "more\n")
        kit.memory.write_text(saves[-1])

    meddle(kit, monkeypatch, "_stage", save)
    with pytest.raises(Conflict, match="each of 8 attempts"):
        await kit.apply(mem_1="b")
    assert (kit.memory.read_text(), len(saves), spares(kit)) == (saves[-1], 8, [])


async def test_another_file_is_created_meanwhile(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that appears between read and write is merged, not replaced."""
    saves = iter([1])

    def save() -> None:
        if next(saves, None):
            kit.memory.write_text("appeared\n")

    meddle(kit, monkeypatch, "move", save)
    await kit.apply(mem_1="a")
    assert kit.memory.read_text() == "appeared\n" + body("- a <!-- mem_1 -->")


# --- hostile files


def link(kit: Kit) -> None:
    (kit.root.parent / "outside").write_text("outside\n")
    kit.memory.symlink_to(kit.root.parent / "outside")


def second_name(kit: Kit) -> None:
    (kit.root.parent / "outside").write_text("outside\n")
    kit.memory.hardlink_to(kit.root.parent / "outside")


HOSTILE: dict[str, tuple[Callable[[Kit], object], type[PalyraError], str]] = {
    "link": (link, IllegalState, "may not be used"),
    "second name": (second_name, IllegalState, "may not be used"),
    "folder": (lambda kit: kit.memory.mkdir(), IllegalState, "is a folder"),
    "fifo": (lambda kit: os.mkfifo(kit.memory), IllegalState, "may not be used"),
    "binary": (lambda kit: kit.memory.write_bytes(b"\x7fELF\0\0"), IllegalState, "line 1"),
    "latin-1": (lambda kit: kit.memory.write_bytes(b"ok\n\xe9\n"), IllegalState, "line 2"),
    "huge": (lambda kit: kit.memory.write_bytes(b"x" * 300_000), IllegalState, "300000 bytes"),
    "sparse": (lambda kit: os.truncate(_touch(kit), 1 << 40), IllegalState, "bytes"),
    "damaged": (lambda kit: kit.memory.write_text(END), IllegalState, "line 1"),
}


def _touch(kit: Kit) -> Path:
    kit.memory.touch()
    return kit.memory


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_files_are_refused_and_left(kit: Kit, name: str) -> None:
    """Every method answers with the reason, the list goes on with the others, nothing is written."""
    make, error, reason = HOSTILE[name]
    make(kit)
    found = os.lstat(kit.memory)
    for call in (
        lambda: kit.apply(mem_1="a"),
        lambda: kit.documents.read("MEMORY.md"),
        lambda: kit.documents.sync(OPERATOR, "MEMORY.md"),
    ):
        with pytest.raises((error, TooLarge), match=reason):
            await call()
    listed = await kit.documents.list_all(OPERATOR)
    assert [bool(each.problem) for each in listed.documents] == [True, False, False]
    now = os.lstat(kit.memory)
    assert (now.st_ino, now.st_mtime_ns, now.st_size) == (
        found.st_ino, found.st_mtime_ns, found.st_size,
    )  # fmt: skip
    outside = kit.root.parent / "outside"
    assert not outside.exists() or outside.read_text() == "outside\n"


async def test_a_commit_that_fails_leaves_the_file(kit: Kit) -> None:
    """Nothing is written before the version is committed."""

    def fail(_change: Change) -> None:
        raise Unavailable("the journal is full")

    kit.journal.before_commit = fail
    with pytest.raises(Unavailable):
        await kit.apply(mem_1="a")
    assert names(kit) == []


def own(memory_id: str, **fields: Any) -> MemoryRecord:
    """An item of the operator."""
    return memory(memory_id, principal=OPERATOR.principal, **fields)


async def test_pinned_memories_fill_their_block(kit: Kit) -> None:
    """Those of the caller for all conversations; others stay out, and an unpinned one goes."""
    items = [
        own("mem_1", text="deploys go out\non Tuesdays", pinned=True),
        own("mem_2", text="not pinned"),
        own("mem_3", text="of one session", pinned=True, scope="session", session_id="ses"),
        own("mem_4", text="from a page", pinned=True, trust="external_untrusted"),
        memory("mem_5", text="of another", pinned=True),
        own("mem_6", text="never recalled", pinned=True, never_recall=True),
    ]
    await kit.journal.commit(Change(records=tuple(items)))
    (kit.root / "MEMORY.md").write_text("mine\n", encoding="utf-8")
    preview = await kit.documents.fill(OPERATOR, "MEMORY.md", dry_run=True)
    assert [("mem_1", "deploys go out\non Tuesdays")] == [
        (each.entry_id, each.after) for each in preview.changes
    ]
    assert b"mine\n" == (kit.root / "MEMORY.md").read_bytes()
    await kit.documents.fill(OPERATOR, "MEMORY.md")
    text = (kit.root / "MEMORY.md").read_text(encoding="utf-8")
    assert text.startswith("mine\n")
    assert 1 == text.count("<!-- mem_")
    (kit.root / "MEMORY.md").write_text(
        text.replace("<!-- palyra:end", "- typed\n<!-- palyra:end"), encoding="utf-8"
    )
    unpinned = msgspec.structs.replace(items[0], pinned=False, revision=2)
    await kit.journal.commit(Change(records=(unpinned,)))
    await kit.documents.fill(OPERATOR, "MEMORY.md")
    text = (kit.root / "MEMORY.md").read_text(encoding="utf-8")
    assert "Tuesdays" not in text
    assert "typed" in text
    with pytest.raises(Forbidden):
        await kit.documents.fill(CLIENT, "MEMORY.md")


async def test_more_pinned_memories_than_a_page_are_all_written(kit: Kit) -> None:
    """The list is read page by page, oldest first in the block."""
    items = [own(f"mem_{number:03}", text=f"item {number}", pinned=True) for number in range(230)]
    await kit.journal.commit(Change(records=tuple(items)))
    done = await kit.documents.fill(OPERATOR, "MEMORY.md")
    assert [f"mem_{number:03}" for number in range(230)] == [each.entry_id for each in done.changes]


def test_the_file_has_the_last_written_version_or_one_after_it() -> None:
    """Versions before the last one that was written are no state the file may have."""
    pending, written, older = document(3, is_pending=True), document(2), document(1)
    for versions, expected in (
        ([pending, written, older], (pending, written)),
        ([written, older], (written,)),
        ([pending], (pending,)),
        ([], ()),
    ):
        assert expected == documents._base(versions).versions


def test_the_newest_removed_entries_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, in the order of their removal, up to a limit."""
    monkeypatch.setattr(documents, "MAX_REMEMBERED", 3)
    assert ("a", "b", "c") == documents._remember(["a", "b"], {"c"})
    assert ("b", "c", "d") == documents._remember(["a", "b", "c"], {"d", "b"})
