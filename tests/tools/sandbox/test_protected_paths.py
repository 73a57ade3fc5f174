"""The masked paths of a workspace, and the kind of each mask."""

from pathlib import Path

import pytest

from palyra.core.tool.paths import (
    BARE_REPOSITORY,
    CONFIGURATION_NAMES,
    PLACEHOLDER_NAMES,
    PRIVATE_NAMES,
    is_configuration,
    is_private,
)
from palyra.tools.sandbox import protected_paths as masking
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.protected_paths import Placeholders, find_masks, ignored_by_git


def kinds(root: Path) -> dict[str, str]:
    return {mask.path: mask.kind for mask in find_masks(str(root))}


def test_every_mask_is_a_place_that_file_tools_refuse_too(tmp_path: Path) -> None:
    """One notion of configuration, whichever tool is used."""
    for path in kinds(tmp_path):
        assert is_configuration(path) or is_private(path), path


def test_a_missing_name_gets_a_placeholder(tmp_path: Path) -> None:
    """A program cannot turn an empty workspace into a repository."""
    masks = {mask.path: mask for mask in find_masks(str(tmp_path))}
    assert {*PLACEHOLDER_NAMES, BARE_REPOSITORY} == masks.keys()
    assert {(True, "no-folder")} == {(mask.is_missing, mask.kind) for mask in masks.values()}


def test_every_held_name_is_one_of_the_rules() -> None:
    """One table: nothing is held that tools could write, and few names cost each start."""
    assert set(CONFIGURATION_NAMES) | set(PRIVATE_NAMES) >= PLACEHOLDER_NAMES
    assert len(PLACEHOLDER_NAMES) <= 20, "each costs every start a quarter of a millisecond"


def test_ci_is_masked_in_repositories_only(tmp_path: Path) -> None:
    """It is read at the top of a repository only; next to a nested `.git` it is masked."""
    for folder in ("", "vendor/copy/", "vendor/clone/"):
        (tmp_path / folder / ".github/workflows").mkdir(parents=True)
        (tmp_path / folder / ".travis.yml").touch()
        (tmp_path / folder / ".npmrc").touch()
    (tmp_path / "vendor/clone/.git").mkdir()
    found = {path for path in kinds(tmp_path) if path not in PLACEHOLDER_NAMES}
    assert {
        "HEAD", ".github/workflows", ".travis.yml", ".npmrc", "vendor/copy/.npmrc",
        "vendor/clone/.git", "vendor/clone/.github/workflows", "vendor/clone/.travis.yml",
        "vendor/clone/.npmrc",
    } == found  # fmt: skip


def test_a_repository_can_be_committed_to_but_not_configured(tmp_path: Path) -> None:
    """`.git` stays writable and cannot be renamed; what git runs or obeys is read-only."""
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".git" / "config").touch()
    found = kinds(tmp_path)
    assert "pinned" == found[".git"]
    assert {"read-only"} == {found[".git/config"], found[".git/hooks"]}
    assert "no-folder" == found[".git/modules"]


def test_nested_paths_are_masked(tmp_path: Path) -> None:
    """Configuration is read-only and secrets are empty, also in folders below."""
    (tmp_path / "part" / ".vscode").mkdir(parents=True)
    (tmp_path / "part" / ".ssh").mkdir()
    for name in ("part/CLAUDE.md", "part/.env", "part/plain.txt", "part/.env.example"):
        (tmp_path / name).touch()
    found = {path: kind for path, kind in kinds(tmp_path).items() if path.startswith("part")}
    assert {
        "part/.vscode": "read-only",
        "part/.ssh": "no-folder",
        "part/CLAUDE.md": "read-only",
        "part/.env": "no-file",
    } == found


def test_many_files_hide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan covers any number of files, or no program is run."""
    (tmp_path / "app" / "deep").mkdir(parents=True)
    (tmp_path / "app" / "deep" / ".env").touch()
    for number in range(4_100):
        (tmp_path / f"{number}").touch()
    assert "no-file" == kinds(tmp_path)["app/deep/.env"]
    monkeypatch.setattr(masking, "MAX_LOOKED_AT", 4_000)
    with pytest.raises(SandboxFailure, match="smaller workspace"):
        kinds(tmp_path)


def test_too_many_masks_for_the_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No program is run and the daemon continues; the failure has a remedy."""
    for number in range(5):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "CLAUDE.md").touch()
    masks = masking.pin_above(find_masks(str(tmp_path)))
    with masking.open_sources(str(tmp_path), masks) as fds:
        assert 10 == len(fds)
    monkeypatch.setattr(
        "palyra.tools.sandbox.protected_paths.resource.getrlimit", lambda _: (39, 39)
    )
    with (
        pytest.raises(SandboxFailure, match="ulimit"),
        masking.open_sources(str(tmp_path), masks),
    ):
        pass


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link out of the workspace does not make the walk leave it."""
    outside = tmp_path / "outside"
    (outside / ".vscode").mkdir(parents=True)
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "link").symlink_to(outside)
    assert not any(path.startswith("link") for path in kinds(workspace))


def test_placeholders_stay_while_a_jail_needs_them(tmp_path: Path) -> None:
    """Of two jails of one workspace the last one removes them."""
    placeholders, root = Placeholders(), str(tmp_path)
    masks, first = placeholders.reserve(root)
    for path in map(Path, first):
        path.mkdir()
    again, second = placeholders.reserve(root)
    assert (masks, first) == (again, second)
    placeholders.release(first)
    assert len(first) == len(list(tmp_path.iterdir()))
    placeholders.release(second)
    assert [] == list(tmp_path.iterdir())


def test_git_ignores_what_is_masked(tmp_path: Path) -> None:
    """Names that are masked although absent, at the top, and secrets; nothing without a repository."""
    assert b"" == ignored_by_git(find_masks(str(tmp_path)))
    (tmp_path / ".git").mkdir()
    for name in ("AGENTS.md", ".env"):
        (tmp_path / name).touch()
    ignored = ignored_by_git(find_masks(str(tmp_path))).decode().split()
    absent = {*PLACEHOLDER_NAMES, ".env"} - {".git", "AGENTS.md"}
    assert sorted(f"/{name}" for name in absent) == sorted(ignored)
