"""What a writable workspace still does not let go: configuration and places for secrets.

What other programs take their orders from (`core.paths.is_configuration`) the command may read and
not change; places for secrets it finds empty.  What would be obeyed at once it may not make at the
top either (`PLACEHOLDER_NAMES`): a mount can only lie on something, so an empty folder is put there for as
long as jails run, and taken away afterwards (`Placeholders`).  It is a folder also where programs look for a
file: git passes over it without a word, and an empty file system is cheaper than a mount on a file.
Secrets that are files are the device /dev/null in the jail, which git would list and could not add:
it is told to ignore what is masked (`ignored_by_git`).

A program in the background may swap folders and links while the next jail is built.  So every
folder above a mask is pinned, in each jail: what lies masked in it cannot go elsewhere, and nothing
else can take its place.  And what a jail is to find at a mask is opened here, following no link.

All functions block.
"""

import errno
import os
import pathlib
import re
import resource
import stat
from collections import Counter
from collections.abc import Container, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from palyra.core.text.visible import visible
from palyra.core.tool.paths import (
    BARE_REPOSITORY,
    PLACEHOLDER_NAMES,
    find_repository,
    is_configuration,
    is_private,
)
from palyra.tools.files.workspace import walk
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.folder_cache import Folders, FolderWalk

Kind = Literal["pinned", "read-only", "no-file", "no-folder"]

# Within a repository of its own the command may commit; what git runs or obeys it may not change.
# Source: gitrepository-layout(5).
HELD_IN_GIT = (
    ".git/config", ".git/config.worktree", ".git/hooks", ".git/modules", ".git/worktrees",
)  # fmt: skip
COMMON_DIR = ".git/commondir"  # git makes none in a repository that is a folder
WATCHED_IN_GIT = (
    COMMON_DIR, ".git/info/attributes", ".git/objects/info/alternates", ".git/remotes",
    ".git/branches",
)  # fmt: skip
# Entries of a workspace.  In a larger one no program is run: a bound that only ended the look would
# be reached by whoever makes that many files, and then nothing deeper would be masked.
MAX_LOOKED_AT = 1_000_000
_SHARE_OF_DESCRIPTORS = 4  # the part of all that one start may use
# Thousands of folders of installed code, where no name of the table is obeyed.
_ALWAYS_ASIDE = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class PathMask:
    """One path of the workspace, and what the program finds there."""

    path: str  # relative to the workspace
    kind: Kind
    is_missing: bool = False  # needs a placeholder

    @property
    def shows_source(self) -> bool:
        """Whether the program finds there what is there."""
        return self.kind in {"pinned", "read-only"} and not self.is_missing

    def words(self, source_fd: int, inside: str) -> Iterator[str]:
        """What bubblewrap is told; `source_fd` is for what shows its source."""
        match self.kind:
            case "pinned":  # writable, but cannot be renamed: masks below it would go with it
                yield from ("--bind-fd", str(source_fd), inside)
            case "read-only":
                yield from ("--ro-bind-fd", str(source_fd), inside)
            case "no-file":
                yield from ("--ro-bind", "/dev/null", inside)
            case "no-folder":
                yield from ("--perms", "0555", "--size", "4096", "--tmpfs", inside)


def find_masks(
    root: str, held: Container[str] = (), folders: Folders | None = None
) -> list[PathMask]:
    """The masks of a workspace, outer before inner; `held`: placeholders, which are not there.

    `folders` remembers what was read before.  Raises SandboxFailure for a workspace that is too
    large to be looked at, or cannot be read.
    """
    masks = [_hold(root, name, held) for name in sorted(PLACEHOLDER_NAMES)]
    if PathMask(".git", "no-folder", is_missing=True) in masks:
        masks.append(_hold(root, BARE_REPOSITORY, held))
    if PathMask(".git", "pinned") in masks:
        masks += (_hold(root, path, held) for path in HELD_IN_GIT)
        masks += (PathMask(path, "read-only") for path in WATCHED_IN_GIT if _is_there(root, path))
    known = {mask.path for mask in masks}
    folders = folders or Folders()
    names = folders.begin(root)
    masks += (mask for mask in _present(names) if mask.path not in known)
    folders.keep(names)
    return [
        mask for mask in masks if not pathlib.Path(f"{root}/{mask.path}").is_symlink()
    ]  # see `guard`


def pin_above(masks: Iterable[PathMask]) -> list[PathMask]:
    """Pins for the folders above what is masked, and the masks; outer before inner."""
    masks = list(masks)
    known = {mask.path for mask in masks}
    above = {folder for mask in masks for folder in parents(mask.path)}
    return [*(PathMask(path, "pinned") for path in sorted(above - known)), *masks]


def parents(path: str) -> Iterator[str]:
    """The folders above, nearest first, without the workspace itself."""
    while path := path.rpartition("/")[0]:
        yield path


@contextmanager
def open_sources(root: str, masks: Iterable[PathMask]) -> Generator[dict[str, int]]:
    """Descriptors of what masks show, by path, for the length of the block.

    Raises OSError when one is not there any more, or a link is in its place; SandboxFailure when
    there are so many that the daemon would be short of descriptors.
    """
    paths = [mask.path for mask in masks if mask.shows_source]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE_OF_DESCRIPTORS
    if len(paths) > most:
        raise SandboxFailure(
            f"{root} has {len(paths)} places of configuration and folders above them, such as "
            f"{visible(paths[-1])}, and the daemon may hold {most}: raise its limit on open files "
            "(ulimit -n), or use a smaller workspace"
        )
    fds: dict[str, int] = {}
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with ExitStack() as stack:
        stack.callback(os.close, folder)
        for path in paths:
            fds[path] = walk(folder, path, os.O_PATH | os.O_CLOEXEC)
            stack.callback(os.close, fds[path])
            if stat.S_ISLNK(os.fstat(fds[path]).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield fds


def ignored_by_git(masks: Iterable[PathMask]) -> bytes:
    """A list for git of what it finds masked and cannot add; "" where there is no repository.

    That is what only the masks put there, which `git clean` would try to remove, and the places for
    secrets, which are there and look empty.  Source: gitignore(5).
    """
    masked = [mask for mask in masks if mask.kind in {"no-file", "no-folder"}]
    if any(mask.path == ".git" for mask in masked):  # repositories below have tops of their own
        return b""
    paths = [mask.path for mask in masked if not mask.path.startswith(".git/")]
    return b"".join(b"/" + _literal(path) + b"\n" for path in paths if "\n" not in path)


def _literal(path: str) -> bytes:
    """The path as a pattern that matches nothing else."""
    return os.fsencode(re.sub(r"([\\*?\[ ])", r"\\\1", path))


def _hold(root: str, path: str, held: Container[str]) -> PathMask:
    """The mask of a path that may be there or not, in a folder that is."""
    mode = _mode(root, path)
    if mode is None or f"{root}/{path}" in held:
        return PathMask(path, "no-folder", is_missing=True)
    if path == ".git" and stat.S_ISDIR(mode):
        return PathMask(path, "pinned")
    return _mask_of(path, is_folder=stat.S_ISDIR(mode)) or PathMask(path, "read-only")


def _is_there(root: str, path: str) -> bool:
    """In folders, not behind links.  Of a `commondir` only the guard knows who made it."""
    if path == COMMON_DIR or _mode(root, path) is None:
        return False
    return not any(pathlib.Path(f"{root}/{folder}").is_symlink() for folder in parents(path))


def _present(names: FolderWalk) -> Iterator[PathMask]:
    """Configuration and secrets further down; what nobody can look into, nobody finds anything in."""
    root, looked_at, folders = names.root, 0, [""]
    while folders:
        folder = folders.pop()
        listing = names.look(f"{root}/{folder}".rstrip("/"))
        looked_at += listing.total
        if listing.is_closed:
            yield _closed(root, folder)
        for entry in listing.entries:
            path = f"{folder}/{entry.name}".lstrip("/")
            mask = _mask_of(path, is_folder=entry.is_folder) if entry.may_be_marked else None
            if mask is not None and mask.kind == "read-only" and not _is_obeyed(root, path):
                mask = None
            if mask is not None and not entry.is_link:
                yield mask
            elif mask is None and entry.is_folder and entry.name not in _ALWAYS_ASIDE:
                folders.append(path)
        if looked_at > MAX_LOOKED_AT:
            raise SandboxFailure(
                f"no program can be run in {root}: it has more than {MAX_LOOKED_AT} entries, too "
                "many to find its secrets and configuration each time; use a smaller workspace"
            )


def _closed(root: str, folder: str) -> PathMask:
    """Of a folder that cannot be read: a program whose own it is could open it again."""
    if not folder:
        raise SandboxFailure(f"no program can be run in {root}: it cannot be read")
    return PathMask(folder, "no-folder")


def _mask_of(path: str, *, is_folder: bool) -> PathMask | None:
    if is_private(path):
        return PathMask(path, "no-folder" if is_folder else "no-file")
    return PathMask(path, "read-only") if is_configuration(path) else None


def _is_obeyed(root: str, path: str) -> bool:
    """Copies of other projects bring their CI along, which is read at a repository's top only."""
    top = find_repository(path)
    return not top or os.path.lexists(f"{root}/{top}/.git")


def _list(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def list_entries(root: str, folder: str) -> list[tuple[str, bool]]:
    """The entries that are files or folders; links lead elsewhere and are not followed."""
    return [
        (f"{folder}/{entry.name}".lstrip("/"), entry.is_dir(follow_symlinks=False))
        for entry in _list(f"{root}/{folder}")
        if not entry.is_symlink()
    ]


def _mode(root: str, path: str) -> int | None:
    with suppress(FileNotFoundError):
        return os.lstat(f"{root}/{path}").st_mode
    return None


class Placeholders:
    """What lies in workspaces only to be mounted on, and how many jails need it.

    bubblewrap makes them, so they belong to whom the workspace belongs to.
    """

    def __init__(self) -> None:
        self._users: Counter[str] = Counter()
        self._folders = Folders()

    def take(self, root: str) -> tuple[list[PathMask], list[str]]:
        """The masks of a workspace, and what is there only because of them: for `leave`."""
        masks = pin_above(find_masks(root, self._users, self._folders))
        paths = [f"{root}/{mask.path}" for mask in masks if mask.is_missing]
        self._users.update(paths)
        return masks, paths

    def leave(self, paths: Iterable[str]) -> None:
        """Remove those that no jail needs any more, if they are still empty."""
        for path in paths:
            self._users[path] -= 1
            if self._users[path] <= 0:
                del self._users[path]
                remove_placeholder(path)


def remove_placeholder(path: str) -> None:
    """Remove it if it is an empty folder or an empty file that nobody may write."""
    with suppress(OSError):
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)  # noqa: PTH120
        try:
            _remove_empty(folder, os.path.basename(path))  # noqa: PTH119 - as text
        finally:
            os.close(folder)


def _remove_empty(folder: int, name: str) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        os.rmdir(name, dir_fd=folder)
    elif stat.S_ISREG(found.st_mode) and not found.st_size and not found.st_mode & 0o222:
        os.unlink(name, dir_fd=folder)
