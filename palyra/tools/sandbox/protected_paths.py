"""Masks: mounts over the protected paths of a writable workspace.

The command may read existing configuration (`core.tool.paths.is_configuration`) and not change it,
and finds places for secrets empty.  Names that take effect at once (`PLACEHOLDER_NAMES`) cannot be
created at the top either.  A mount needs something to lie on, so a placeholder, an empty folder, lies
there while jails run (`Placeholders`).  It is a folder even where programs look for a file: git
ignores it without a warning, and an empty file system costs less than a mount on a file.  A secret
file is /dev/null in the jail, which git would list and cannot add, so git gets a list of masked paths
to ignore (`ignored_by_git`).

A program in the background may swap folders and links while the next jail is built.  So each jail
pins every folder above a mask: a bind mount cannot be renamed, so the masked entry cannot be moved
away and no other folder can take its place.  And the source of each mask is opened here, without
following links, and passed to bubblewrap as a descriptor.

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
from palyra.tools.sandbox.folder_cache import FolderCache, FolderWalk

Kind = Literal["pinned", "read-only", "no-file", "no-folder"]

# The command may commit in a repository, but not change anything that git runs or reads settings from.
# Source: gitrepository-layout(5).
MASKED_IN_GIT = (
    ".git/config", ".git/config.worktree", ".git/hooks", ".git/modules", ".git/worktrees",
)  # fmt: skip
COMMON_DIR = ".git/commondir"  # git makes none in a repository that is a folder
RESTORED_IN_GIT = (
    COMMON_DIR, ".git/info/attributes", ".git/objects/info/alternates", ".git/remotes",
    ".git/branches",
)  # fmt: skip
# Entries of a workspace.  No program runs in a larger one: a walk that just ended at a bound would
# leave deeper paths unmasked, and a program could create enough files to reach the bound.
MAX_LOOKED_AT = 1_000_000
_SHARE_OF_DESCRIPTORS = 4  # the share of the limit that one start may use
# Installed code: thousands of folders in which nothing reads names of the table.
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class PathMask:
    """A mount on one path of the workspace."""

    path: str  # relative to the workspace
    kind: Kind
    is_missing: bool = False  # needs a placeholder

    @property
    def shows_source(self) -> bool:
        """True if the program sees the entry itself, not an empty one."""
        return self.kind in {"pinned", "read-only"} and not self.is_missing

    def options(self, source_fd: int, inside: str) -> Iterator[str]:
        """Yield bubblewrap's options; `source_fd` is used if the mask shows its source."""
        match self.kind:
            case "pinned":  # writable, but a rename would take the masks below along
                yield from ("--bind-fd", str(source_fd), inside)
            case "read-only":
                yield from ("--ro-bind-fd", str(source_fd), inside)
            case "no-file":
                yield from ("--ro-bind", "/dev/null", inside)
            case "no-folder":
                yield from ("--perms", "0555", "--size", "4096", "--tmpfs", inside)


def find_masks(
    root: str, placeholders: Container[str] = (), folders: FolderCache | None = None
) -> list[PathMask]:
    """Return the masks of a workspace, outer before inner.

    `placeholders`: paths of empty folders that lie there for other jails and count as missing.
    Raises SandboxFailure for a workspace with more than MAX_LOOKED_AT entries, or an unreadable one.
    """
    masks = [_mask_always(root, name, placeholders) for name in sorted(PLACEHOLDER_NAMES)]
    if PathMask(".git", "no-folder", is_missing=True) in masks:
        masks.append(_mask_always(root, BARE_REPOSITORY, placeholders))
    if PathMask(".git", "pinned") in masks:
        masks += (_mask_always(root, path, placeholders) for path in MASKED_IN_GIT)
        masks += (PathMask(path, "read-only") for path in RESTORED_IN_GIT if _is_there(root, path))
        masks += find_sockets(root, ".git")
    known = {mask.path for mask in masks}
    folders = folders or FolderCache()
    tree = folders.walk(root)
    masks += (mask for mask in _present(tree) if mask.path not in known)
    folders.store(tree)
    # A mount cannot cover a link; see `restored_paths`.
    return [mask for mask in masks if not pathlib.Path(f"{root}/{mask.path}").is_symlink()]


def pin_above(masks: Iterable[PathMask]) -> list[PathMask]:
    """Return the masks and pins for all folders above them, outer before inner."""
    masks = list(masks)
    known = {mask.path for mask in masks}
    above = {folder for mask in masks for folder in parents(mask.path)}
    return [*(PathMask(path, "pinned") for path in sorted(above - known)), *masks]


def parents(path: str) -> Iterator[str]:
    """Yield the folders above a path, nearest first, without the workspace itself."""
    while path := path.rpartition("/")[0]:
        yield path


@contextmanager
def open_sources(root: str, masks: Iterable[PathMask]) -> Generator[dict[str, int]]:
    """Open the sources of masks for the length of the block; descriptors by path.

    Raises OSError if one is gone or replaced by a link; SandboxFailure if there are so many that the
    daemon would run out of descriptors.
    """
    paths = [mask.path for mask in masks if mask.shows_source]
    if not paths:
        yield {}
        return
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
    """Return a gitignore file of the masked paths; empty where there is no repository.

    Without it git would list paths it cannot add, and `git clean` would try to remove them.  Source:
    gitignore(5).
    """
    masked = [mask for mask in masks if mask.kind in {"no-file", "no-folder"}]
    if any(mask.path == ".git" for mask in masked):  # repositories below have lists of their own
        return b""
    paths = [mask.path for mask in masked if not mask.path.startswith(".git/")]
    return b"".join(b"/" + _literal(path) + b"\n" for path in paths if "\n" not in path)


def _literal(path: str) -> bytes:
    """Return a gitignore pattern that matches this path alone."""
    return os.fsencode(re.sub(r"([\\*?\[ ])", r"\\\1", path))


def _mask_always(root: str, path: str, placeholders: Container[str]) -> PathMask:
    """Return the mask of a path that is masked even if it is missing; its folder exists."""
    mode = _mode(root, path)
    if mode is None or f"{root}/{path}" in placeholders:
        return PathMask(path, "no-folder", is_missing=True)
    if path == ".git" and stat.S_ISDIR(mode):
        return PathMask(path, "pinned")
    return _mask_of(path, is_folder=stat.S_ISDIR(mode)) or PathMask(path, "read-only")


def _is_there(root: str, path: str) -> bool:
    """True if the path exists, not behind a link.  `commondir` is left to the snapshot."""
    if path == COMMON_DIR or _mode(root, path) is None:
        return False
    return not any(pathlib.Path(f"{root}/{folder}").is_symlink() for folder in parents(path))


def _present(tree: FolderWalk) -> Iterator[PathMask]:
    """Yield masks of existing configuration and secrets at any depth, and of unreadable folders."""
    root, looked_at, folders = tree.root, 0, [""]
    while folders:
        folder = folders.pop()
        listing = tree.list(f"{root}/{folder}".rstrip("/"))
        looked_at += listing.total
        if listing.is_closed:
            if not folder:
                raise SandboxFailure(f"no program can be run in {root}: it cannot be read")
            yield PathMask(folder, "no-folder")  # a program that owns it could open it again
        for entry in listing.entries:
            path = f"{folder}/{entry.name}".lstrip("/")
            mask = _mask_of(path, is_folder=entry.is_folder) if entry.may_be_marked else None
            if entry.is_socket:
                mask = PathMask(path, "no-file")  # a process of the host may listen there
            if mask is not None and mask.kind == "read-only" and not _takes_effect(root, path):
                mask = None
            if mask is not None and not entry.is_link:
                yield mask
            elif mask is None and entry.is_folder and entry.name not in _SKIPPED:
                folders.append(path)
        if looked_at > MAX_LOOKED_AT:
            raise SandboxFailure(
                f"no program can be run in {root}: it has more than {MAX_LOOKED_AT} entries, too "
                "many to find its secrets and configuration each time; use a smaller workspace"
            )


def _mask_of(path: str, *, is_folder: bool) -> PathMask | None:
    if is_private(path):
        return PathMask(path, "no-folder" if is_folder else "no-file")
    return PathMask(path, "read-only") if is_configuration(path) else None


def _takes_effect(root: str, path: str) -> bool:
    """False for CI configuration below a folder that is no repository: a copied project."""
    top = find_repository(path)
    return not top or os.path.lexists(f"{root}/{top}/.git")


def find_sockets(root: str, folder: str) -> Iterator[PathMask]:
    """Yield masks of the sockets in one folder, such as those of git's file system monitor."""
    for path, _ in list_entries(root, folder):
        if stat.S_ISSOCK(_mode(root, path) or 0):
            yield PathMask(path, "no-file")


def list_entries(root: str, folder: str) -> list[tuple[str, bool]]:
    """Return path and is-folder of a folder's entries, without links."""
    with suppress(OSError), os.scandir(f"{root}/{folder}") as entries:
        return [
            (f"{folder}/{entry.name}".lstrip("/"), entry.is_dir(follow_symlinks=False))
            for entry in entries
            if not entry.is_symlink()
        ]
    return []


def _mode(root: str, path: str) -> int | None:
    with suppress(FileNotFoundError):
        return os.lstat(f"{root}/{path}").st_mode
    return None


class Placeholders:
    """Reference counts of the empty folders that lie in workspaces as mount points.

    bubblewrap creates them, so they belong to the workspace's owner.
    """

    def __init__(self) -> None:
        self._users: Counter[str] = Counter()
        self._folders = FolderCache()

    def reserve(self, root: str) -> tuple[list[PathMask], list[str]]:
        """Return the masks of a workspace, and its placeholders, to pass to `release`."""
        masks = pin_above(find_masks(root, self._users, self._folders))
        paths = [f"{root}/{mask.path}" for mask in masks if mask.is_missing]
        self.add(paths)
        return masks, paths

    def add(self, paths: Iterable[str]) -> None:
        """Count one more user of placeholders outside of the workspace."""
        self._users.update(paths)

    def __contains__(self, path: object) -> bool:
        return path in self._users

    def release(self, paths: Iterable[str]) -> None:
        """Remove the placeholders that no jail needs any more, if they are still empty."""
        for path in paths:
            self._users[path] -= 1
            if self._users[path] <= 0:
                del self._users[path]
                remove_placeholder(path)


def remove_placeholder(path: str) -> None:
    """Remove the path if it is an empty folder, or an empty file without write permission."""
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
