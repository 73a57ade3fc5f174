"""read_file and list_dir as the model meets them."""

import os
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.core.tool.spec import ToolFailure, ToolOutput
from palyra.tools.files import read
from palyra.tools.files.read import (
    EXCERPT_BYTES,
    MAX_READ_BYTES,
    PAGE_BYTES,
    file_tools,
    list_dir,
    read_file,
)
from palyra.tools.files.workspace import Workspace
from tests.pictures import GIF, JPEG, PNG, WEBP


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """An empty workspace."""
    opened = Workspace(tmp_path)
    yield opened
    opened.close()


def page(workspace: Workspace, content: bytes, **arguments: int) -> ToolOutput:
    """The result of read_file for a file with that content."""
    (workspace.root / "file").write_bytes(content)
    return read_file(workspace, {"path": "file", **arguments})


@pytest.mark.parametrize(
    "content", ["one", "one\n", "one\ntwo\n", "a\r\nb", "\n\n", "é\u2028ü\x0bz"]
)
def test_a_short_file_comes_as_it_is(workspace: Workspace, content: str) -> None:
    """A file that fits a page is given unchanged, without any note."""
    assert ToolOutput(text=content) == page(workspace, content.encode())


def test_an_empty_file_says_so(workspace: Workspace) -> None:
    """Nothing is not mistaken for something."""
    assert ToolOutput(text="[the file is empty]") == page(workspace, b"")


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (1, 2, "1\n2\n[lines 1 to 2 of 5; go on with offset 3]"),
        (3, 2, "3\n4\n[lines 3 to 4 of 5; go on with offset 5]"),
        (5, 9, "5"),
        (4, 2, "4\n5"),
    ],
)
def test_a_page_of_lines(workspace: Workspace, offset: int, limit: int, expected: str) -> None:
    """A page has its range and the next offset."""
    output = page(workspace, b"1\n2\n3\n4\n5", offset=offset, limit=limit)
    assert (expected, "go on" in expected) == (output.text, output.is_truncated)


def test_past_the_end(workspace: Workspace) -> None:
    """An offset past the end says how long the file is."""
    with pytest.raises(ToolFailure, match="offset 3 is past the end: the file has 2 lines"):
        page(workspace, b"1\n2\n", offset=3)


def test_pages_together_are_the_file(workspace: Workspace) -> None:
    """Going on from page to page reads a long file completely."""
    lines = [f"{n}: {'x' * (n % 97)}\n" for n in range(2000)]
    got: list[str] = []
    output = page(workspace, "".join(lines).encode())
    while output.is_truncated:
        assert len(output.text.encode()) <= EXCERPT_BYTES
        text, _, note = output.text.rpartition("[")
        got.append(text)
        offset = int(note.rpartition(" ")[2].rstrip("]"))
        output = read_file(workspace, {"path": "file", "offset": offset})
    assert "".join(lines) == "".join([*got, output.text])
    assert len(got) > 3


def test_an_overlong_line_is_cut_and_passed(workspace: Workspace) -> None:
    """A line longer than a page is cut at a character, and the next lines can be reached."""
    output = page(workspace, "é".encode() * PAGE_BYTES + b"\nnext\n")
    text, _, note = output.text.partition("\n")
    assert ("é" * (PAGE_BYTES // 2), True) == (text, output.is_truncated)
    assert note == (
        f"[line 1 is longer than {PAGE_BYTES} bytes and was cut; "
        "lines 1 to 1 of 2; go on with offset 2]"
    )
    assert read_file(workspace, {"path": "file", "offset": 2}).text == "next\n"


def test_broken_text_still_fits(workspace: Workspace) -> None:
    """Bytes that are no UTF-8 are replaced, and the page stays within its bound."""
    output = page(workspace, (b"\xff" * 99 + b"\n") * 200)
    assert len(output.text.encode()) <= EXCERPT_BYTES
    assert output.text.startswith("\ufffd" * 99 + "\n")


@pytest.mark.parametrize("data", [PNG, JPEG, GIF, WEBP])
def test_a_picture_is_returned_to_be_shown(workspace: Workspace, data: bytes) -> None:
    """Whatever its name; a text that begins like one stays a text."""
    assert ToolOutput(text="", pictures=(data,)) == page(workspace, data)
    assert "GIF89a is a format\n" == page(workspace, b"GIF89a is a format\n").text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (PNG[:-1], "a picture that cannot be shown: it is truncated"),
        (PNG.ljust(5_242_881), "a picture of 5242881 bytes; at most 5242880 are shown"),
    ],
)
def test_a_picture_that_cannot_be_shown(workspace: Workspace, data: bytes, said: str) -> None:
    """The call fails, and says why."""
    with pytest.raises(ToolFailure, match=said):
        page(workspace, data)


def test_a_binary_file_is_not_text(workspace: Workspace) -> None:
    """A file with NULs is not shown."""
    with pytest.raises(ToolFailure, match="a binary file of 3 bytes"):
        page(workspace, b"a\0b")


def test_a_huge_file_is_read_in_parts(workspace: Workspace) -> None:
    """Without a part the failure names both arguments; the parts are those of a small file."""
    line = b"0123456789abcde\n"
    (workspace.root / "file").write_bytes(line * (MAX_READ_BYTES // 16) + b"last")
    size_bytes = MAX_READ_BYTES + 4
    with pytest.raises(ToolFailure, match=f"{size_bytes} bytes.*give `offset` and `limit`"):
        read_file(workspace, {"path": "file"})
    total = MAX_READ_BYTES // 16 + 1
    got = read_file(workspace, {"path": "file", "offset": total - 1, "limit": 2})
    assert got.text == "0123456789abcde\nlast"
    got = read_file(workspace, {"path": "file", "limit": 1})
    assert got.text == f"0123456789abcde\n[lines 1 to 1 of {total}; go on with offset 2]"
    with pytest.raises(ToolFailure, match=f"past the end: the file has {total} lines"):
        read_file(workspace, {"path": "file", "offset": total + 1})


def test_a_huge_file_takes_little_memory(workspace: Workspace) -> None:
    """Even if it is one line, or nothing but line ends."""
    for name, piece in (("one", b"x"), ("ends", b"\n")):
        (workspace.root / name).write_bytes(piece * (2 * MAX_READ_BYTES))
    tracemalloc.start()
    one = read_file(workspace, {"path": "one", "limit": 5})
    ends = read_file(workspace, {"path": "ends", "offset": MAX_READ_BYTES, "limit": 1})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "[line 1 is longer than" in one.text
    assert "x\n[line 1 is longer than 16000 bytes and was cut]" in one.text
    assert f"of {2 * MAX_READ_BYTES}; go on" in ends.text
    assert peak_bytes < MAX_READ_BYTES


def test_a_part_that_takes_too_long_is_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line deep in the file is a failure; lines that cannot be counted are a note."""
    times = iter([0.0])
    monkeypatch.setattr(read, "monotonic", lambda: next(times, 9.0))
    with pytest.raises(ToolFailure, match="line 3 was not reached within 5 s"):
        page(workspace, b"1\n2\n3\n", offset=3)
    times = iter([0.0])
    got = page(workspace, b"1\n2\n3\n", limit=1)
    assert got.text == "1\n[lines 1 to 1 and more; go on with offset 2]"


# --- list_dir ------------------------------------------------------------------------------------


def test_a_folder_is_listed(workspace: Workspace) -> None:
    """Entries are sorted, with kind and size; private ones show their name only."""
    root = workspace.root
    (root / "b.txt").write_text("12345")
    (root / "a").mkdir()
    (root / ".env").write_text("SECRET=1")
    (root / "c\u202e\n").touch()
    (root / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    expected = [
        ".env  private", "a/", "b.txt  5 bytes", r"c\u202e\u000a  0 bytes", "link  link",
        "pipe  pipe",
    ]  # fmt: skip
    assert ToolOutput(text="\n".join(expected)) == list_dir(workspace, {})


def test_a_private_entry_below_a_folder(workspace: Workspace) -> None:
    """An entry that is private because of its folder is marked in the listing."""
    (workspace.root / ".config" / "gh").mkdir(parents=True)
    assert list_dir(workspace, {"path": "./.config/"}).text == "gh  private"


def test_an_empty_folder_says_so(workspace: Workspace) -> None:
    """Nothing is not mistaken for something."""
    assert ToolOutput(text="[the folder is empty]") == list_dir(workspace, {"path": "."})


def test_a_large_folder_is_cut(workspace: Workspace) -> None:
    """As many entries as fit are shown, and the rest is counted."""
    for n in range(1200):
        (workspace.root / f"{n:04}").touch()
    output = list_dir(workspace, {})
    shown = output.text.split("\n")
    assert len(output.text.encode()) <= EXCERPT_BYTES
    rest = f"[{1200 - len(shown) + 1} more entries are not shown; go on with offset {len(shown)}]"
    assert rest == shown[-1]
    assert [f"{n:04}  0 bytes" for n in range(len(shown) - 1)] == shown[:-1]
    assert output.is_truncated


def test_a_large_folder_is_read_page_by_page(workspace: Workspace) -> None:
    """Each page begins where the note of the one before says, and every entry is shown once."""
    for n in range(1200):
        (workspace.root / f"{n:04}").touch()
    listed: list[str] = []
    offset = 1
    while offset:
        output = list_dir(workspace, {"offset": offset, "limit": 700})
        lines = output.text.split("\n")
        more = re.search(r"go on with offset (\d+)", lines[-1])
        listed += lines[:-1] if more else lines
        assert output.is_truncated == (more is not None)
        offset = int(more[1]) if more else 0
    assert [f"{n:04}  0 bytes" for n in range(1200)] == listed
    with pytest.raises(ToolFailure, match="past the end"):
        list_dir(workspace, {"offset": 1201})


def test_a_vast_folder_is_not_counted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit of entries the listing says only that there are more."""
    monkeypatch.setattr(read, "MAX_ENTRIES", 10)
    for n in range(900):
        (workspace.root / f"{'x' * 200}{n:04}").touch()
    monkeypatch.setattr(read, "PAGE_BYTES", 500)
    assert list_dir(workspace, {}).text.endswith(
        "[at least 9 more entries are not shown; go on with offset 3]"
    )


def test_an_entry_that_vanishes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file removed while the folder is read is marked as gone."""
    (workspace.root / "a").touch()
    real = os.scandir

    def scandir_then_remove(fd: int) -> "os._ScandirIterator[str]":
        found = real(fd)
        entries = list(found)
        (workspace.root / "a").unlink()

        class Vanished:
            def __enter__(self) -> Iterator["os.DirEntry[str]"]:
                return iter(entries)

            def __exit__(self, *_: object) -> None:
                found.close()

        return Vanished()  # type: ignore[return-value]  # as much of it as list_dir uses

    monkeypatch.setattr(os, "scandir", scandir_then_remove)
    assert list_dir(workspace, {}).text == "a  gone"


def test_the_specs_declare_safe_reads(workspace: Workspace) -> None:
    """Both are harmless and repeatable, and each names its isolation."""
    specs = {tool.spec.name: tool.spec for tool in file_tools(workspace)}
    assert [True, True] == [specs[name].may_rerun for name in ("read_file", "list_dir")]
    assert {spec.enforcement for spec in specs.values()} == {workspace.enforcement}
    assert {spec.executor for spec in specs.values()} == {"thread"}
    assert {spec.path_argument for spec in specs.values()} == {"path"}
