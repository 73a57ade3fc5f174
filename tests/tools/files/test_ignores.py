"""Ignore files: their patterns compared with git's own reading, and their bounds."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.tools.files import ignores, read, walk
from palyra.tools.files.cleanup import sweep
from palyra.tools.files.ignores import BadIgnores, PersonalExcludes, Scope, parse_ignores
from palyra.tools.files.read import list_dir
from palyra.tools.files.search import glob, search_text
from palyra.tools.files.walk import WorkspaceWalk
from palyra.tools.files.workspace import Workspace
from tests.optional import needs
from tests.rows import every_row

Tree = dict[str, str]
# Names and patterns of a small alphabet, so that they meet often.
NAMES = ("a", "b", "ab", "a.o", "b.o", ".a", "a b", "a ", "é", "a]", "A", "#a", "!b", "a-b", "\\a")
PIECES = (
    "a", "b", "*", "**", "***", "?", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[a-]", "[[:alpha:]]",
    "[[:bad:]]", "[", "\\*", "\\a", "\\\\", "*.o", "a*", ".", "a b", "é", "[.-0]", "!", "#", " ", "\\ ",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty workspace."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def workspace(root: Path) -> Iterator[Workspace]:
    opened = Workspace(root)
    yield opened
    opened.close()


def fill(root: Path, tree: Tree) -> None:
    for path, text in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())


def kept(
    workspace: Workspace, path: str = "", personal: PersonalExcludes | None = None
) -> list[str]:
    """Return the files that a glob shows, without its notes."""
    shown = glob(workspace, {"pattern": "**", "path": path}, personal).text.split("\n")
    return [line for line in shown if not line.startswith("[")]


def is_ignored(patterns: str, path: str) -> bool | None:
    is_folder = path.endswith("/")
    path = path.rstrip("/")
    rules = parse_ignores(patterns.encode())
    return rules.match(path, path.rpartition("/")[2], is_folder=is_folder)


# --- patterns ------------------------------------------------------------------------------------


@every_row(
    ("patterns", "path", "expected"),
    [
        ("a", "x/a", True),
        ("/a", "x/a", None),
        ("x/a", "y/x/a", None),
        ("**/x/a", "y/x/a", True),
        ("a/", "a", None),
        ("a/", "a/", True),
        ("*.o", "x/.o", True),
        ("*.o\n!a.o", "a.o", False),
        ("!a.o\n*.o", "a.o", True),
        ("a/**", "a", None),
        ("a/**", "a/b/c", True),
        ("a/*", "a/b/c", None),
        ("# a\n\\#a", "#a", True),
        ("a  ", "a", True),
        ("a\\ ", "a ", True),
        ("a\r\nb", "a", True),
        ("\ufeffa", "a", True),
        ("[a", "[a", None),
        ("[[:bad:]]x", "bx", None),
        ("a**/b", "ax/y/b", True),
        ("a\\", "a\\", None),
        ("?", "é", None),
        ("??", "é", True),
    ],
)
def test_patterns_mean_what_git_says(patterns: str, path: str, expected: bool | None) -> None:  # noqa: FBT001 - a table
    """The last match decides; anchors, folders, escapes and bytes are read as in gitignore(5)."""
    assert expected == is_ignored(patterns, path)


def _random_pattern(rng: random.Random) -> str:
    parts = [
        "".join(rng.choices(PIECES, k=rng.choice((1, 1, 1, 2, 3))))
        for _ in range(rng.randint(1, 3))
    ]
    text = rng.choice(("", "", "", "!", "/")) + "/".join(parts)
    return text + rng.choice(("", "", "/", "/**", " ", "\r"))


def _random_path(rng: random.Random, depth: int) -> str:
    return "/".join(rng.choices(NAMES, k=depth))


def _git(root: Path, *words: str, text: bytes = b"") -> bytes:
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(root.parent)}
    environment["XDG_CONFIG_HOME"] = str(root.parent / "config")
    done = subprocess.run(
        ["git", *words], cwd=root, input=text, capture_output=True, check=False, env=environment
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


@needs("git")
@pytest.mark.real
@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", "12"))))
def test_walks_agree_with_git(root: Path, workspace: Workspace, seed: int) -> None:
    """Every file of a random tree with nested ignore files is shown exactly if git would show it."""
    rng = random.Random(seed)
    tree: Tree = {}
    for _ in range(60):
        path = _random_path(rng, rng.randint(1, 4))
        if not any(path.startswith(f"{each}/") or each.startswith(f"{path}/") for each in tree):
            tree[path] = ""
    fill(root, tree)
    _git(root, "init", "-q")
    folders = ["", *{path.rpartition("/")[0] for path in tree}]
    for folder in rng.sample(sorted(folders), min(4, len(folders))):
        lines = [_random_pattern(rng) for _ in range(rng.randint(1, 5))]
        (root / folder / ".gitignore").write_bytes("\n".join(lines).encode())
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text(_random_pattern(rng))
    (root.parent / "config/git").mkdir(parents=True)
    (root.parent / "config/git/ignore").write_text(_random_pattern(rng))
    listed = _git(root, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
    personal = PersonalExcludes(root.parent, root.parent / "config")
    files = WorkspaceWalk(workspace, "", ignores.Ignores(workspace, personal)).files()
    assert sorted(os.fsdecode(each) for each in listed if each) == sorted(
        found.path for found in files
    )
    checked = _git(root, "check-ignore", "-z", "--stdin", text="\0".join(tree).encode())
    shown = {
        found.path
        for found in WorkspaceWalk(workspace, "", ignores.Ignores(workspace, personal)).files()
    }
    assert {os.fsdecode(each) for each in checked.split(b"\0") if each} == set(tree) - shown


# --- walks ---------------------------------------------------------------------------------------


def test_ignored_files_are_counted_and_can_be_included(root: Path, workspace: Workspace) -> None:
    """Search, glob and listing leave them out, say so, and show them on request."""
    fill(root, {".gitignore": "*.log\nbuild/\n", "a.log": "x", "a.py": "x", "build/b.py": "x"})
    note = "[1 file and 1 folder ignored by .gitignore; pass include_ignored to see them]"
    assert [".gitignore", "a.py", note] == glob(workspace, {"pattern": "**"}).text.split("\n")
    assert ["a.py:1:x", note] == search_text(workspace, {"query": "x"}).text.split("\n")
    assert [".gitignore  13 bytes", "a.py  1 byte", note] == list_dir(workspace, {}).text.split(
        "\n"
    )
    asked = {"include_ignored": True}
    every = [".gitignore", "a.log", "a.py", "build/b.py"]
    assert every == glob(workspace, {"pattern": "**", **asked}).text.split("\n")
    found = search_text(workspace, {"query": "x", **asked}).text
    assert "a.log:1:x\na.py:1:x\nbuild/b.py:1:x" == found
    assert "build/" in list_dir(workspace, asked).text.split("\n")


def test_only_ignored_files_are_no_empty_folder(root: Path, workspace: Workspace) -> None:
    """A listing without entries names the reason."""
    assert "[the folder is empty]" == list_dir(workspace, {}).text
    fill(root, {"a/.gitignore": "*", ".git/config": ""})
    assert list_dir(workspace, {"path": "a"}).text.startswith("[nothing to show; 1 file ignored")
    assert "a/" == list_dir(workspace, {}).text
    assert [".git/", "a/"] == list_dir(workspace, {"include_ignored": True}).text.split("\n")
    assert "config  0 bytes" == list_dir(workspace, {"path": ".git"}).text


def test_the_nearest_file_and_the_strongest_kind_decide(root: Path, workspace: Workspace) -> None:
    """`.ignore` beats `.gitignore`, a nested file beats one above it, the excludes come last."""
    fill(root, {
        ".git/info/exclude": "*.e\n!*.g", ".gitignore": "*.o\n*.x\n!k.e\n*.g", ".ignore": "!y.x",
        "a/.gitignore": "!a.o", "a/a.o": "", "b.o": "", "y.x": "", "z.x": "", "k.e": "", "l.e": "",
        "m.g": "",
    })  # fmt: skip
    shown = [each for each in kept(workspace) if not each.endswith("ignore")]
    assert ["a/a.o", "k.e", "y.x"] == shown


def test_nothing_below_an_ignored_folder_is_named_again(root: Path, workspace: Workspace) -> None:
    """A negated pattern does not reach into a folder that is not entered."""
    fill(root, {".ignore": "a\n!a/b", "a/b": "", "a/.ignore": "!b", "c": ""})
    assert [".ignore", "c"] == kept(workspace)


def test_a_named_folder_is_searched(root: Path, workspace: Workspace) -> None:
    """The call's own path is searched although it is ignored, with the rules above it."""
    fill(root, {".gitignore": "lib/\n*.o\n", "lib/a": "", "lib/b.o": "", "lib/c/d": ""})
    assert ["lib/a", "lib/c/d"] == kept(workspace, "lib")
    assert ["lib/b.o"] == kept(workspace, "lib/b.o")


def test_a_nested_repository_has_its_own_rules(root: Path, workspace: Workspace) -> None:
    """The rules of git end at a `.git` below, those of `.ignore` do not."""
    fill(root, {
        ".gitignore": "*.o", ".ignore": "*.i", "n/.git/info/exclude": "*.e", "n/a.o": "",
        "n/b.e": "", "n/c.i": "", "w/.git": "gitdir: /elsewhere", "w/d.o": "",
    })  # fmt: skip
    assert ["n/a.o", "w/d.o"] == [each for each in kept(workspace) if each[0] in "nw"]


@pytest.mark.parametrize(
    "config", ["[core]\n\texcludesFile = ~/mine # x\n", '[CORE]\nexcludesfile="mine"']
)
def test_global_excludes_are_found(root: Path, workspace: Workspace, config: str) -> None:
    """In the default place of git, or where its configuration says."""
    home = root.parent / "home"
    personal = PersonalExcludes(home, home / ".config")
    fill(root, {"a.o": "", "b.x": ""})
    assert ["a.o", "b.x"] == kept(workspace, personal=personal)
    fill(home, {".config/git/ignore": "*.o", "mine": "*.x"})
    assert ["b.x"] == kept(workspace, personal=personal)
    fill(home, {".gitconfig": config})
    assert ["a.o"] == kept(workspace, personal=personal)
    note = "[1 file ignored by the global excludes; pass include_ignored to see them]"
    assert glob(workspace, {"pattern": "**"}, personal).text.endswith(note)


def test_global_excludes_that_are_no_file(root: Path, workspace: Workspace) -> None:
    """A pipe, a folder or a broken configuration excludes nothing and holds nothing up."""
    home = root.parent / "home"
    fill(
        home,
        {".gitconfig": "no section\n[core\n", ".config/git/config": "[core]\nexcludesFile = pipe"},
    )
    fill(root, {"a": ""})
    os.mkfifo(home / "pipe")
    assert ["a"] == kept(workspace, personal=PersonalExcludes(home, home / ".config"))
    fill(home, {".config/git/config": "[core]\nexcludesFile = .config"})
    assert ["a"] == kept(workspace, personal=PersonalExcludes(home, home / ".config"))
    assert PersonalExcludes.of({}) is None
    assert PersonalExcludes(Path("/h"), Path("/h/.config")) == PersonalExcludes.of({"HOME": "/h"})


# --- hostile files -------------------------------------------------------------------------------


def test_a_linked_ignore_file_is_not_followed(root: Path, workspace: Workspace) -> None:
    """Neither out of the workspace nor within it; a second name is refused as well."""
    fill(root.parent, {"outside": "a"})
    fill(root, {"a": "", "b/real": "a", "b/a": "", "c/a": ""})
    (root / ".gitignore").symlink_to(root.parent / "outside")
    (root / "b/.ignore").symlink_to("real")
    os.link(root.parent / "outside", root / "c/.gitignore")
    text = glob(workspace, {"pattern": "a"}).text
    assert ["a", "b/a", "c/a"] == text.split("\n")[:3]
    for path in (".gitignore", "b/.ignore", "c/.gitignore"):
        assert f"{path} cannot be read, or is a link: not used" in text


def test_an_ignore_file_that_is_no_file(root: Path, workspace: Workspace) -> None:
    """A folder or a pipe of that name is a note."""
    fill(root, {"a": "", ".gitignore/x": ""})
    os.mkfifo(root / ".ignore")
    text = glob(workspace, {"pattern": "a"}).text
    assert text.startswith("a\n[.gitignore cannot be read"), text
    assert ".ignore cannot be read, or is a link: not used" in text


def test_bounds_of_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, number of patterns and size of wildcards are bounded; each refusal names its bound."""
    with pytest.raises(BadIgnores, match="more than 524288 bytes"):
        parse_ignores(b"#" * (ignores.MAX_IGNORE_BYTES + 1))
    with pytest.raises(BadIgnores, match="more than 10000 patterns"):
        parse_ignores(b"a\n" * (ignores.MAX_PATTERNS + 1))
    with pytest.raises(BadIgnores, match="wildcards need more than 32768 bytes"):
        parse_ignores(b"".join(b"a?%d\n" % number for number in range(9_000)))
    assert parse_ignores(b"a\n" * ignores.MAX_PATTERNS).match("a", "a", is_folder=False)
    monkeypatch.setattr(ignores, "_SET_BYTES", 1_000)
    with pytest.raises(BadIgnores, match="too large together"):
        parse_ignores(b"\n".join(b"[a-z]*" * number for number in range(1, 40)))


def test_too_many_or_too_large_files_are_a_note(
    root: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk shows what it found without them."""
    monkeypatch.setattr(ignores, "MAX_FILES", 3)
    fill(root, {".gitignore": "#" * (ignores.MAX_IGNORE_BYTES + 1)})
    fill(root, {f"f{number}/{name}": name for number in range(5) for name in (".ignore", "x")})
    fill(root, {f"f{number}/.ignore": "x" for number in range(5)})
    text = glob(workspace, {"pattern": "x"}).text
    assert ["f2/x", "f3/x", "f4/x"] == text.split("\n")[:3]
    assert ".gitignore is not used: more than 524288 bytes" in text
    assert text.count("only the first 3 ignore files are used") == 1


@pytest.mark.real
@pytest.mark.parametrize(
    "pattern",
    [
        "**/" * 60 + "x",
        "*a" * 120,
        "a*" * 120 + "[",
        "/" + "**/a*/" * 40,
        "?*" * 150,
        "[a-z]*" * 60,
    ],
)
def test_no_pattern_backtracks(pattern: str) -> None:
    """Matching a hostile pattern takes time that grows with the name, not with its parts' choices."""
    rules = parse_ignores(pattern.encode())
    path = "/".join(["a" * 200] * 19) + "/b"
    began = time.process_time()
    for _ in range(20):
        rules.match(path, "b", is_folder=False)
    assert time.process_time() - began < 5  # exponential or of high degree: hours


def test_slow_ignore_files_do_not_outlast_the_walk(
    root: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound on time holds in a folder of ignored names alone; a listing ends the use of rules."""
    fill(root, {".gitignore": "f*", **{f"f{number:03}": "" for number in range(300)}})
    now = iter(range(1_000_000))
    monkeypatch.setattr(walk, "monotonic", lambda: float(next(now)))
    text = glob(workspace, {"pattern": "**"}).text
    assert "the search ended early after 5 s" in text
    assert "[.gitignore" not in text
    monkeypatch.setattr(read, "monotonic", lambda: float(next(now)))
    listed = list_dir(workspace, {}).text
    assert "the ignore files took 5 s: not used from here on" in listed
    assert "f299" in listed


def test_a_walk_for_upkeep_ignores_nothing(root: Path, workspace: Workspace) -> None:
    """The cleanup finds spare files in ignored folders."""
    spare = f"build/.palyra-{'0' * 16}.tmp"
    fill(root, {".gitignore": "build/\n*.tmp", spare: ""})
    assert 1 == sweep(workspace, time.time() + 10_000)
    assert not (root / spare).exists()
    assert ignores.Ignores(workspace).above("build/deep") != Scope()


def test_names_that_are_not_utf8_are_matched(root: Path, workspace: Workspace) -> None:
    """A listing with such a name has no error."""
    fill(root, {".gitignore": "*a*"})
    (root / os.fsdecode(b"\xff")).touch()
    (root / os.fsdecode(b"a\xff")).touch()
    assert "[1 file ignored" in list_dir(workspace, {}).text
