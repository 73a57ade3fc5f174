"""glob and search_text as the model meets them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.core.tool.spec import ToolFailure
from palyra.tools.files import line_search, search, walk
from palyra.tools.files.read import EXCERPT_BYTES
from palyra.tools.files.search import glob, search_text, search_tools
from palyra.tools.files.workspace import Workspace

ROOT = Path(__file__).resolve().parents[3]
SECRET = "the-secret-of-the-house"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace with a few files, and a folder outside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text(SECRET)
    root = tmp_path / "work"
    for path, text in {
        "b.py": "one\ntwo needle\n", "a/c.py": "needle\r\nlast", "a/c.md": "no\n", "a-b/d.py": "x\n",
        ".git/config.py": "needle", ".ssh/id.py": SECRET, ".env": SECRET, ".env.example": "needle",
        ".hidden.py": "needle", "bin.py": "needle\0",
    }.items():  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())
    opened = Workspace(root)
    yield opened
    opened.close()


def found(workspace: Workspace, pattern: str, path: str = "") -> list[str]:
    """The lines glob gives."""
    return glob(workspace, {"pattern": pattern, "path": path}).text.split("\n")


def lines(workspace: Workspace, query: str, **arguments: object) -> list[str]:
    """The lines search_text gives."""
    return search_text(workspace, {"query": query, **arguments}).text.split("\n")


# --- glob ----------------------------------------------------------------------------------------


def test_files_are_found_by_name(workspace: Workspace) -> None:
    """Sorted by path; places for secrets and stores of version control are left out."""
    assert [".hidden.py", "a-b/d.py", "a/c.py", "b.py", "bin.py"] == found(workspace, "*.py")
    assert ["a-b/d.py", "a/c.py"] == found(workspace, "*/*.py")
    assert ["a/c.md", "a/c.py"] == found(workspace, "a/**")
    assert ["a/c.md", "a/c.py"] == found(workspace, "c.*", "a")
    assert ["a/c.md"] == found(workspace, "c.md", "./a/")


def test_a_store_can_be_named(workspace: Workspace) -> None:
    """A pattern that names .git searches it."""
    assert [".git/config.py"] == found(workspace, "*", ".git")


def test_no_match_is_reported(workspace: Workspace) -> None:
    """A search without a match says so."""
    assert ["[no file is meant by it]"] == found(workspace, "*.none")


def test_a_bad_glob_is_a_failure(workspace: Workspace) -> None:
    """The text names the pattern and what is wrong."""
    with pytest.raises(ToolFailure, match=r"the glob '\[a': a bracket is not closed"):
        found(workspace, "[a")


def test_a_folder_that_is_missing(workspace: Workspace) -> None:
    """Both say that there is none; outside is refused."""
    for path, said in [("none", "no such file"), ("../outside", "may not"), (".ssh", "may not")]:
        with pytest.raises(ToolFailure, match=said):
            found(workspace, "*", path)
        with pytest.raises(ToolFailure, match=said):
            lines(workspace, "x", path=path)


def test_many_files_are_cut(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of omitted files is reported."""
    for n in range(1500):
        (workspace.root / f"f{n:04}").touch()
    output = glob(workspace, {"pattern": "f????"})
    assert output.text.endswith("\nf0999\n[500 more files are not shown: use a narrower pattern]")
    assert output.is_truncated
    monkeypatch.setattr(search, "PAGE_BYTES", 30)
    assert found(workspace, "f????")[-2:] == [
        "f0004", "[1495 more files are not shown: use a narrower pattern]",
    ]  # fmt: skip


# --- search_text ---------------------------------------------------------------------------------


def test_lines_are_found_by_content(workspace: Workspace) -> None:
    """Path, line number and text, sorted by path; binary files and private places left out."""
    assert [
        ".env.example:1:needle", ".hidden.py:1:needle", "a/c.py:1:needle", "b.py:2:two needle",
    ] == lines(workspace, "needle")  # fmt: skip
    assert ["a/c.py:1:needle"] == lines(workspace, "needle", path="a")
    assert ["b.py:2:two needle"] == lines(workspace, r"^two\b", regex=True)
    assert ["b.py:2:two needle"] == lines(workspace, "TWO", ignore_case=True)
    assert ["b.py-1-one", "b.py:2:two needle"] == lines(workspace, "two", context=1)
    assert ["[nothing was found]"] == lines(workspace, "needle", glob="*.md")
    assert ["a/c.py:1:needle"] == lines(workspace, "needle$", regex=True, glob="a/*.py")


def test_the_first_line_begins_behind_a_byte_order_mark(workspace: Workspace) -> None:
    """An expression for its beginning finds it."""
    (workspace.root / "b.py").write_bytes(b"\xef\xbb\xbfzz\r\n")
    assert ["b.py:1:zz"] == lines(workspace, "^zz$", regex=True)


def test_a_file_can_be_named(workspace: Workspace) -> None:
    """Instead of a folder; not a link, and not one that is private."""
    assert ["a/c.py:1:needle"] == lines(workspace, "needle", path="./a/c.py")
    assert ["a/c.py:1:needle"] == lines(workspace, "needle", path="a/c.py", glob="*.py")
    assert ["[nothing was found]"] == lines(workspace, "needle", path="a/c.py", glob="*.md")
    assert ["b.py"] == found(workspace, "*", "b.py")
    (workspace.root / "link").symlink_to("b.py")
    for path in ("link", ".env", ".ssh/id.py"):
        with pytest.raises(ToolFailure, match="may not be used"):
            lines(workspace, "x", path=path)


def test_nothing_private_is_found(workspace: Workspace) -> None:
    """A file with a secret is not searched; a plain search finds it."""
    assert (workspace.root / ".ssh" / "id.py").read_text() == SECRET
    assert ["[nothing was found]"] == lines(workspace, SECRET)


def test_no_link_is_followed(workspace: Workspace) -> None:
    """Links to files and folders outside, and inside, lead nowhere; plainly they do."""
    outside = workspace.root.parent / "outside"
    (workspace.root / "door").symlink_to(outside)
    (workspace.root / "door.py").symlink_to(outside / "secret.py")
    (workspace.root / "loop").symlink_to(".")
    assert (workspace.root / "door" / "secret.py").read_text() == SECRET
    assert ["[nothing was found]"] == lines(workspace, SECRET)
    assert ["[no file is meant by it]"] == found(workspace, "secret*")
    assert "door.py" not in found(workspace, "*.py")


def test_hard_links_are_not_searched(workspace: Workspace) -> None:
    """A hard link is left out, and the result says so."""
    (workspace.root / "twin").hardlink_to(workspace.root.parent / "outside" / "secret.py")
    assert lines(workspace, SECRET) == [
        "[nothing was found; 1 file not searched (too large, or with a second name)]"
    ]


def test_no_pipe_holds_the_search(workspace: Workspace) -> None:
    """A FIFO is no file."""
    os.mkfifo(workspace.root / "pipe")
    assert ["[nothing was found]"] == lines(workspace, "zzz")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (os.fsdecode(b"\xff.txt"), r"\udcff.txt"),
        ("x\nb.py:1:forged.txt", r"x\u000ab.py:1:forged.txt"),
        (os.fsdecode(b"d\xe9/in\n.txt"), r"d\udce9/in\u000a.txt"),
    ],
)
def test_a_name_that_no_line_can_show_is_escaped(
    workspace: Workspace, name: str, shown: str
) -> None:
    """It is found by globs and searched, and cannot forge a line of the answer."""
    (workspace.root / name).parent.mkdir(exist_ok=True)
    (workspace.root / name).write_text("zzz")
    assert [f"{shown}:1:zzz"] == lines(workspace, "zzz")
    assert [f"{shown}:1:zzz"] == lines(workspace, "zzz", glob="*.txt")
    for pattern in ("*.txt", "**/*.txt", "?*.txt", "*.t?t"):
        assert [shown] == found(workspace, pattern)
    assert shown not in found(workspace, "*.py")


def test_a_private_name_that_is_not_text_stays_private(workspace: Workspace) -> None:
    """Control: the place for secrets above it is left out as ever."""
    folder = workspace.root / ".ssh"
    (folder / os.fsdecode(b"\xff.txt")).write_text("zzz")
    assert ["[nothing was found]"] == lines(workspace, "zzz")
    assert ["[no file is meant by it]"] == found(workspace, "*.txt")


def test_a_bad_query_is_a_failure(workspace: Workspace) -> None:
    """The text says what is wrong."""
    with pytest.raises(ToolFailure, match=r"the query: not a regular expression: missing \)"):
        lines(workspace, "(a", regex=True)


def test_an_expensive_expression_ends_within_its_bounds(workspace: Workspace) -> None:
    """A line too long for it is named as not searched; shorter lines of the file are found."""
    (workspace.root / "long.txt").write_bytes(b"a" * 400_000 + b"\n" + b"ab" * 1000 + b"b\n")
    got = lines(workspace, "(a|b|ab){1000}b", regex=True)
    assert got[0].startswith("long.txt:2:")
    assert "1 file not searched in lines too long for this expression" in got[-1]
    with pytest.raises(ToolFailure, match=r"the query: the expression has \d+ instructions"):
        lines(workspace, r"(\pL|\pN){200}", regex=True)


def test_a_search_that_takes_too_long_says_so(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a file as well, between two pieces of it."""
    monkeypatch.setattr(line_search, "MAX_STEPS", 40)
    (workspace.root / "a" / "0.txt").write_text("x\n" * 9 + "needle\n")
    times = iter([0.0] * 3)
    monkeypatch.setattr(walk, "monotonic", lambda: next(times, 9.0))
    got = lines(workspace, "needle.?", regex=True, path="a/0.txt")
    assert got == ["[nothing was found; the search ended early after 5 s: name a folder]"]


def test_many_hits_are_cut(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is limited by number and bytes, and says how to continue."""
    (workspace.root / "many").write_text("zzz\n" * 5000)
    more = "[there is more: narrow the search with path, glob or a longer query]"
    got = lines(workspace, "zzz", limit=3)
    assert [*(f"many:{n}:zzz" for n in (1, 2, 3)), more] == got
    assert len(lines(workspace, "zzz")) == search.DEFAULT_HITS + 1
    (workspace.root / "many").write_text("z" * 390 + "\n" * 1 + ("z" * 390 + "\n") * 999)
    output = search_text(workspace, {"query": "z", "limit": 1000})
    assert len(output.text.encode()) <= EXCERPT_BYTES
    assert output.text.endswith(more)
    assert output.is_truncated
    monkeypatch.setattr(search, "MAX_TOTAL_BYTES", 10)
    assert lines(workspace, "none at all")[-1].startswith("[nothing was found; there is more")


def test_a_large_file_is_not_searched(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted among what was left out."""
    monkeypatch.setattr(search, "MAX_FILE_BYTES", 5)
    assert "not searched (too large" in lines(workspace, "needle")[-1]


# --- bounds of the walk --------------------------------------------------------------------------


def test_the_walk_ends_in_time(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time, or too many entries, it stops and says so."""
    monkeypatch.setattr(walk, "TIME_S", 0.0)
    output = glob(workspace, {"pattern": "*"})
    assert output.is_truncated
    assert output.text.endswith("the search ended early after 0 s: name a folder]")
    monkeypatch.undo()
    monkeypatch.setattr(walk, "MAX_ENTRIES", 3)
    assert "the search ended early after 3 entries: name a folder]" in lines(workspace, "x")[-1]


def test_the_walk_is_not_too_deep(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the bound there are no folders, and the result says how many it left out."""
    monkeypatch.setattr(walk, "MAX_DEPTH", 0)
    note = "[2 folders not entered (without permission, or too deep)]"
    assert [".hidden.py", "b.py", "bin.py", note] == found(workspace, "*.py")


def test_a_folder_without_permission_is_counted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that cannot enter it does not claim that nothing is there."""
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a-b":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    note = "1 folder not entered (without permission, or too deep)"
    assert [f"[nothing was found; {note}]"] == lines(workspace, "nowhere to be found")
    assert [f"[no file is meant by it; {note}]"] == found(workspace, "d.py")


def test_vanishing_entries_are_skipped(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that becomes a link, and a file that is deleted, are left out."""
    real = walk.WorkspaceWalk._entries

    def entries_then_change(self: walk.WorkspaceWalk, fd: int) -> walk._Listing:
        listed = real(self, fd)
        if (workspace.root / "a").is_dir() and not (workspace.root / "a").is_symlink():
            shutil.move(workspace.root / "a", workspace.root.parent / "moved")
            (workspace.root / "a").symlink_to(workspace.root.parent / "moved")
            (workspace.root / "b.py").unlink()
        return listed

    monkeypatch.setattr(walk.WorkspaceWalk, "_entries", entries_then_change)
    assert [".env.example:1:needle", ".hidden.py:1:needle"] == lines(workspace, "needle")[:-1]


def test_the_repository_is_searched_like_grep(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this repository's own source grep finds the same lines."""
    monkeypatch.setattr(search, "PAGE_BYTES", 1_000_000_000)
    workspace = Workspace(ROOT / "palyra")
    grep = shutil.which("grep") or pytest.skip("no grep here")
    for query in [r"class \w+Failure", r"^import re$", "# noqa"]:
        wanted = subprocess.run(
            [grep, "-rnE", "--include=*.py", query, "."],
            cwd=ROOT / "palyra", capture_output=True, text=True, check=False,
        ).stdout.splitlines()  # fmt: skip
        got = lines(workspace, query, regex=True, glob="*.py", limit=1_000_000)
        assert sorted(line.removeprefix("./") for line in wanted) == sorted(got)
    workspace.close()


def test_the_specs_declare_safe_searches(workspace: Workspace) -> None:
    """Both are harmless and repeatable, and name their isolation."""
    for tool in search_tools(workspace):
        assert tool.spec.may_rerun
        assert (tool.spec.enforcement, tool.spec.executor) == (workspace.enforcement, "thread")
