"""Paths as text: one spelling, and the names nobody may touch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.tool.paths import (
    CONFIGURATION_NAMES,
    PRIVATE_NAMES,
    find_repository,
    is_configuration,
    is_private,
    may_be_marked,
    normal_path,
)
from tests.rows import every_row


@every_row(
    ("path", "expected"),
    [
        ("", ""), (".", ""), ("./", ""), ("a", "a"), ("a/b", "a/b"), ("./a//b/./c/", "a/b/c"),
        ("-rf", "-rf"), ("a b", "a b"), ("...", "..."), ("..a/b..", "..a/b.."), ("é", "é"),
        ("..", None), ("a/..", None), ("a/../b", None), ("../a", None), ("a/b/../../..", None),
        ("/", None), ("/etc/passwd", None), ("//a", None), ("a\0", None), ("\0", None),
        ("\ud800", None), ("a" * 255, "a" * 255), ("a" * 256, None), ("é" * 128, None),
        ("a/" * 2048 + "a", None),
    ],
)  # fmt: skip
def test_normal_path(path: str, expected: str | None) -> None:
    """A path has one spelling or none."""
    assert expected == normal_path(path)


@settings(derandomize=True, max_examples=300)
@given(st.text(st.sampled_from("./a\0é-"), max_size=12))
def test_normal_paths_stay_below(path: str) -> None:
    """A normal path is relative, has no way up and is its own normal path."""
    normal = normal_path(path)
    if normal is not None:
        names = normal.split("/")
        assert not normal.startswith("/")
        assert ".." not in names
        assert normal == normal_path(normal)


@every_row(
    "path",
    [
        ".ssh", ".ssh/id_ed25519", "home/.ssh/config", ".aws/credentials", ".gnupg", ".netrc",
        ".env", ".env.local", ".envrc", "app/.env", ".env/bin", ".git-credentials", ".kube/config",
        ".SSH/id_rsa", ".Env", ".\uff53sh", ".\u017fsh", ".config/google-chrome/Default",
        ".config/google-chrome-beta", ".config/chromium", ".mozilla/firefox", ".config/gcloud/x",
        ".config/gh/hosts.yml", ".env.example.local", ".env.examples",
    ],
)  # fmt: skip
def test_places_for_secrets(path: str) -> None:
    """Credential folders and files are private, in every spelling and at every depth."""
    assert is_private(path)


@every_row(
    "path",
    [
        "", "ssh", "a.ssh", ".sshx", "src/ssh/client.py", ".env.example", "x/.env.sample",
        ".env.template", "environment", "my.env", ".netrc.md", ".config/app", "config/chromium",
        ".configuration/gh", ".gitignore", ".awsx",
    ],
)  # fmt: skip
def test_near_misses_are_ordinary(path: str) -> None:
    """A name that only resembles a private one is an ordinary name."""
    assert not is_private(path)
    assert not is_configuration(path)


@every_row("path", [".git/hooks/pre-commit", "sub/.git", ".vscode/tasks.json"])
def test_places_that_give_orders(path: str) -> None:
    """What git and editors obey is configuration."""
    assert is_configuration(path)
    assert not is_private(path)


def test_every_private_place_begins_with_a_dot() -> None:
    """What `is_private` decides by, before it looks any closer."""
    assert all(name.startswith(".") for name in PRIVATE_NAMES)
    assert not is_private("ssh/id")
    assert is_private("\uff0essh/id")


@settings(derandomize=True, max_examples=300)
@given(st.sampled_from([*PRIVATE_NAMES, *CONFIGURATION_NAMES]), st.text("ab.-", max_size=4))
def test_a_walk_that_asks_for_names_only_misses_nothing(name: str, filling: str) -> None:
    """Whatever is marked first on the way down may be, by its name and its folder's."""
    names = name.replace("*", filling).split("/")
    for depth in range(1, len(names) + 1):
        above = "/".join(names[:depth])
        if is_private(above) or is_configuration(above):
            assert may_be_marked(names[depth - 2] if depth > 1 else "", names[depth - 1])
            return


def test_no_folder_can_become_a_repository() -> None:
    """`HEAD` is what git needs to take a folder for one; at the top in any spelling."""
    assert is_configuration("HEAD")
    assert is_configuration("head")
    assert is_configuration("src/HEAD")
    assert may_be_marked("src", "HEAD")
    assert not is_configuration("src/head")
    assert not is_configuration("HEADER")


def test_ci_of_a_copy_is_obeyed_at_its_own_top_only() -> None:
    """Which folder must be a repository's top; other orders are obeyed in any folder."""
    assert not find_repository(".github/workflows/x.yml")
    assert "vendor/x" == find_repository("vendor/x/.GitHub/workflows/x.yml")
    assert "a/b" == find_repository("a/b/.travis.yml")
    assert find_repository("a/.npmrc") is None
    assert find_repository("a/.vscode/.travis.yml") is None
    assert find_repository("a/plain.txt") is None


@every_row("name", ["main.py", "README", "agents", "md", "a.markdown"])
def test_an_ordinary_name_is_passed_over(name: str) -> None:
    """The control of the one above; beside a dot, a stranger's letter or an end it is asked for."""
    assert not may_be_marked("src", name)
    assert may_be_marked(".github", name)
    assert may_be_marked("\u017frc", name)
    assert may_be_marked("src", f"{name}.Code-Workspace")
