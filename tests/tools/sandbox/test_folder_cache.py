"""The cache of a folder walk, which hides no secret."""

import errno
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.tools.sandbox import folder_cache as module
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.folder_cache import FolderCache, Listing
from palyra.tools.sandbox.protected_paths import Placeholders, find_masks

LATER_NS = 10_000_000_000
CLOCK_REALTIME_COARSE = 5  # of Linux: what its file systems go by


def later_ns() -> int:
    """So late that everything has settled."""
    return time.time_ns() + LATER_NS


def hidden(root: Path, folders: FolderCache | None = None) -> set[str]:
    """The paths that a program finds empty, below the top."""
    masks = find_masks(str(root), (), folders)
    return {mask.path for mask in masks if mask.kind.startswith("no-") and not mask.is_missing}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were read, by name."""
    names: list[str] = []
    plain = module._list

    def note(folder: int, name: str) -> Listing:
        names.append(name)
        return plain(folder, name)

    monkeypatch.setattr(module, "_list", note)
    return names


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a few folders, and secrets outside it that are moved in later."""
    root = tmp_path / "ws"
    for name in ("a/b/c", "d", "node_modules/x"):
        (root / name).mkdir(parents=True)
    for name in ("a/plain", "a/.env.example", "d/f"):
        (root / name).touch()
    (tmp_path / "out" / "deep").mkdir(parents=True)
    for name in ("out/.env", "out/deep/.env"):
        (tmp_path / name).touch()
    return root


def wait_tick(root: Path) -> None:
    """Return when the file system's clock has advanced since the last change here."""
    last = max(os.lstat(folder).st_ctime_ns for folder, _, _ in os.walk(root))
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= last:
        pass


def swap(one: Path, other: Path) -> None:
    """Each takes the other's name."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def replace_folder(root: Path) -> None:
    shutil.rmtree(root / "d")
    (root / "../out/deep").rename(root / "d")


def replace_file(root: Path) -> None:
    (root / "d/f").unlink()
    (root / "../out").rename(root / "d/f")


# What a program may do to bring in a secret, and where it lies then.
WAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "made": (lambda root: (root / "a/b/.env").write_bytes(b""), "a/b/.env"),
    "renamed": (lambda root: (root / "a/plain").rename(root / "a/.env"), "a/.env"),
    "moved in": (lambda root: (root / "../out/.env").rename(root / "d/.env"), "d/.env"),
    "renamed over": (lambda root: (root / "a/.env.example").replace(root / "d/.env.x"), "d/.env.x"),
    "second name": (lambda root: os.link(root / "a/plain", root / "d/.env"), "d/.env"),
    "folder moved in": (
        lambda root: (root / "../out").rename(root / "a/b/c/new"),
        "a/b/c/new/deep/.env",
    ),
    "folder in the place of another": (replace_folder, "d/.env"),
    "folder in the place of a file": (replace_file, "d/f/.env"),
    "folders swapped": (lambda root: swap(root / "d", root / "../out"), "d/deep/.env"),
}


def bring_in(root: Path, way: str) -> str:
    """The secret comes in, and every time that a program can set is set back; where it lies."""
    times = {folder: Path(folder).stat() for folder, _, _ in os.walk(root)}
    wait_tick(root)
    do, place = WAYS[way]
    do(root)
    for folder, before in times.items():
        if Path(folder).is_dir():
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    return place


@pytest.mark.parametrize("way", WAYS)
def test_no_secret_is_brought_in_unseen(root: Path, way: str, read: list[str]) -> None:
    """Every folder is known, and not read again until its names have changed."""
    folders = FolderCache(later_ns)
    assert set() == hidden(root, folders)
    read.clear()
    assert set() == hidden(root, folders)
    assert [] == read
    place = bring_in(root, way)
    assert place in hidden(root, folders)
    assert hidden(root) == hidden(root, folders)


def test_control_modification_time_misses_a_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs can set the modification time, so the cache uses the change time."""
    monkeypatch.setattr(
        module, "_version", lambda found: (found.st_dev, found.st_ino, found.st_mtime_ns)
    )
    folders = FolderCache(later_ns)
    hidden(root, folders)
    assert bring_in(root, "made") not in hidden(root, folders)


def test_a_recently_changed_folder_is_read_again(root: Path, read: list[str]) -> None:
    """Another change within the same tick of the clock would not show."""
    folders = FolderCache()
    hidden(root, folders)
    first = read.copy()
    hidden(root, folders)
    assert first + first == read


def test_a_clock_that_was_set_back_makes_everything_forgotten(root: Path, read: list[str]) -> None:
    """A time that has been might come again; what is less is drift."""
    back_ns = 0
    folders = FolderCache(lambda: later_ns() - back_ns)
    hidden(root, folders)
    first = read.copy()
    back_ns = 400_000_000
    hidden(root, folders)
    assert first == read
    back_ns = 600_000_000
    hidden(root, folders)
    assert first + first == read


def test_other_file_systems_are_read_each_time(
    root: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their change times may come from another clock."""
    monkeypatch.setattr(module, "TRUSTED_TYPES", frozenset())
    folders = FolderCache(later_ns)
    hidden(root, folders)
    first = read.copy()
    hidden(root, folders)
    assert first + first == read


@pytest.mark.parametrize("most", [0, 3, 6])
def test_folders_above_the_cache_limit_are_read_each_time(
    root: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More folders cost time and hide nothing."""
    monkeypatch.setattr(module, "MAX_REMEMBERED", most)
    folders = FolderCache(later_ns)
    hidden(root, folders)
    place = bring_in(root, "folder moved in")
    assert place in hidden(root, folders)
    assert sum(len(known) for known in folders._known.values()) <= most


def test_a_walk_that_is_broken_off_is_not_remembered(
    root: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace that is too large is looked at again."""
    folders = FolderCache(later_ns)
    hidden(root, folders)
    first = read.copy()
    with monkeypatch.context() as small:
        small.setattr("palyra.tools.sandbox.protected_paths.MAX_LOOKED_AT", 1)
        with pytest.raises(SandboxFailure, match="smaller workspace"):
            hidden(root, folders)
    read.clear()
    hidden(root, folders)
    assert first == read


def test_a_folder_that_cannot_be_read_is_empty_to_programs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose own it is could open it again, and the secrets in it."""
    plain = os.open

    def careful(path: str, flags: int) -> int:
        if path == closed:
            raise PermissionError(13, "no", path)
        return plain(path, flags)

    monkeypatch.setattr("palyra.tools.sandbox.folder_cache.os.open", careful)
    closed = f"{root}/a/b"
    assert {"a/b"} == hidden(root)
    closed = str(root)
    with pytest.raises(SandboxFailure, match="cannot be read"):
        hidden(root)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM])
def test_an_unreadable_folder_is_hidden(
    root: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is unknown, so no program is shown it."""
    plain = module._list

    def fail(folder: int, name: str) -> Listing:
        if name == "b":
            raise OSError(number, "no")
        return plain(folder, name)

    (root / "a/b/c/.env").touch()
    folders = FolderCache(later_ns)
    with monkeypatch.context() as ill:
        ill.setattr(module, "_list", fail)
        assert {"a/b"} == hidden(root, folders)
    assert {"a/b/c/.env"} == hidden(root, folders)


@pytest.mark.parametrize("other", ["gone", "link", "file"])
def test_a_vanished_folder_is_empty(
    root: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed between the listing of its name and its own."""
    plain = os.open

    def late(path: str, flags: int) -> int:
        if path == f"{root}/d" and (root / "d").is_dir() and not (root / "d").is_symlink():
            (root / "d").rename(root / "../away")
            if other == "link":
                (root / "d").symlink_to("../out")
            elif other == "file":
                (root / "d").write_bytes(b"")
        return plain(path, flags)

    monkeypatch.setattr("palyra.tools.sandbox.folder_cache.os.open", late)
    assert set() == hidden(root)


def test_a_folder_without_search_permission_is_hidden(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names can be listed, their types cannot."""
    closed = f"{root}/a"
    monkeypatch.setattr(
        "palyra.tools.sandbox.folder_cache.os.access", lambda path, _mode: path != closed
    )
    assert {"a"} == hidden(root)


def test_a_cached_walk_equals_a_fresh_one(root: Path) -> None:
    """After many changes, in any order."""
    draw, folders = random.Random(7), FolderCache(later_ns)
    names = ("x", ".env", "CLAUDE.md", ".vscode", "y")
    for _ in range(150):
        inside = sorted(path for path in root.rglob("*") if path.is_dir())
        place = draw.choice([root, *inside]) / draw.choice(names)
        wait_tick(root)
        if not place.exists():
            other = draw.choice(inside) if inside and draw.random() < 0.3 else None
            if other is not None and not place.is_relative_to(other):
                other.rename(place)
            elif draw.random() < 0.6:
                place.mkdir()
            else:
                place.touch()
        elif draw.random() < 0.4:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        assert find_masks(str(root)) == find_masks(str(root), (), folders)


def test_jails_of_one_workspace_share_what_is_known(root: Path, read: list[str]) -> None:
    """The second start reads only what the first one changed: its placeholders are at the top."""
    for folder, _, _ in os.walk(root):
        os.utime(folder)
    placeholders = Placeholders()
    placeholders._folders = FolderCache(later_ns)  # nothing has settled so soon
    placeholders.release(placeholders.reserve(str(root))[1])
    first = read.copy()
    placeholders.reserve(str(root))
    assert first == read
    (root / "a/.env").touch()
    assert "a/.env" in {mask.path for mask in placeholders.reserve(str(root))[0]}
