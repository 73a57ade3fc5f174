"""Ignore files: their patterns compared with git's own reading, and their bounds."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.tools.files import ignores
from palyra.tools.files.cleanup import sweep
from palyra.tools.files.ignores import BadIgnores, PersonalExcludes, Scope, parse_ignores
from palyra.tools.files.read import list_dir
from palyra.tools.files.search import glob, search_text
from palyra.tools.files.walk import WorkspaceWalk
from palyra.tools.files.workspace import Workspace
from tests.optional import needs

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


def kept(workspace: Workspace, path: str = "", personal: PersonalExcludes | None = None) -> list[str]:
    """Return the files that a glob shows, without its notes."""
    shown = glob(workspace, {"pattern": "**", "path": path}, personal).text.split("\n")
    return [line for line in shown if not line.startswith("[")]


def is_ignored(patterns: str, path: str) -> bool | None:
    is_folder = path.endswith("/")
    path = path.rstrip("/")
    rules = parse_ignores(patterns.encode())
    return rules.match(path, path.rpartition("/")[2], is_folder=is_folder)


# --- patterns ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
        ("a\\", "a\\", None),
        ("?", "é", None),
        ("??", "é", True),
    ],
)
def test_patterns_mean_what_git_says(patterns: str, path: str, expected: bool | None) -> None:  # noqa: FBT001 - a table
    """The last match decides; anchors, folders, escapes and bytes are read as in gitignore(5)."""
    assert expected == is_ignored(patterns, path)


def _random_pattern(rng: random.Random) -> str:
    parts = ["".join(rng.choices(PIECES, k=rng.choice((1, 1, 1, 2, 3)))) for _ in range(rng.randint(1, 3))]
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
    tree = {}
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
    walk = WorkspaceWalk(workspace, "", ignores.Ignores(workspace, personal))
    assert sorted(os.fsdecode(each) for each in listed if each) == sorted(
        found.path for found in walk.files()
    )
    checked = _git(root, "check-ignore", "-z", "--stdin", text="\0".join(tree).encode())
    shown = {found.path for found in WorkspaceWalk(workspace, "", ignores.Ignores(workspace, personal)).files()}
    assert {os.fsdecode(each) for each in checked.split(b"\0") if each} == set(tree) - shown
