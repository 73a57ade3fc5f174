"""The git folder of a workspace that is a linked worktree or a submodule: found, checked, mounted.

There `.git` is a file that names a folder elsewhere.  A program may read that folder and commit, and
may change nothing that git runs or reads settings from, as in a workspace with a `.git` of its own.

- *Linked worktree*: the common folder is read-only but for objects, references and logs.  The folder
  of this worktree in it is writable but for its links to the two others, its settings and its
  submodules.  Those of other worktrees stay read-only.
- *Submodule*: its folder is writable but for the masks of `.git`; `commondir` must not appear in it.

`.git` came with the content of the workspace, so a folder it names is mounted only if that folder names
this workspace in turn, which only its owner can have written.  All places are opened without
following links.

All functions block.  Source: gitrepository-layout(5), git-worktree(1).
"""

import os
import stat
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass

from palyra.core.text.visible import visible
from palyra.tools.files.workspace import walk
from palyra.tools.sandbox.command import Level
from palyra.tools.sandbox.protected_paths import MASKED_IN_GIT, PathMask, find_sockets

_LINK = "gitdir: "
_MAX_BYTES = 65_536  # of a file that is read here
_WORKTREES = "worktrees"
_WRITABLE = ("objects", "refs", "logs")  # of the common folder
_IN_WORKTREE = ("commondir", "gitdir", "config.worktree", "modules")
_IN_SUBMODULE = (
    *(path.removeprefix(".git/") for path in MASKED_IN_GIT), "info", "remotes", "branches",
)  # fmt: skip
_OBJECTS_INFO = "objects/info"  # with `alternates`; every repository has it
_ABSENT = "commondir"  # git makes none in the folder of a submodule
# Where a jail has mounts of its own.
_RESERVED = ("/usr", "/bin", "/sbin", "/lib", "/etc", "/proc", "/dev", "/sys", "/run", "/nix")


@dataclass(frozen=True, slots=True)
class GitFolder:
    """A git folder outside of its workspace, and what a program may not do to it."""

    place: str  # as the workspace names it: a program sees it there
    source: str  # for the user who starts the jail
    writable: tuple[str, ...]  # parts a program may write
    masks: tuple[PathMask, ...]  # outer before inner; "" is the folder itself
    absent: tuple[str, ...] = ()  # names that must not appear, as full paths

    @property
    def placeholders(self) -> list[str]:
        """Paths of the folders that the masks need and that do not exist."""
        return [f"{self.place}/{mask.path}" for mask in self.masks if mask.is_missing]


def find_git_folder(
    root: str, *, is_writable: bool, placeholders: Container[str] = ()
) -> GitFolder | None:
    """Return the folder that the workspace's `.git` file names; None if it may not be mounted.

    `placeholders`: paths of empty folders that lie there for other jails and count as missing.
    """
    place = _read_link(root)
    if place is None or not _is_apart(place, root):
        return None
    with suppress(OSError, ValueError):
        folder, _, name = place.rpartition("/")
        common, _, kind = folder.rpartition("/")
        if kind == _WORKTREES and _names_worktree(place, common, root):
            return _worktree(common, name, placeholders, is_writable=is_writable)
        if _names_submodule(place, root):
            return _submodule(place, placeholders, is_writable=is_writable)
    return None


def _read_link(root: str) -> str | None:
    """Return the folder that the `.git` file names, as an absolute path."""
    with suppress(OSError, ValueError):
        text = _read(f"{root}/.git")
        if text.startswith(_LINK):
            path = os.path.join(root, text.removeprefix(_LINK).rstrip("\n"))  # noqa: PTH118 - as text
            normal = os.path.normpath(path)
            same = os.path.realpath(normal) == os.path.realpath(path)
            return normal if same and "\0" not in normal else None
    return None


def _is_apart(place: str, root: str) -> bool:
    """True if neither lies in the other, and a jail has nothing else there."""
    real = os.path.realpath(place)
    apart = (f"{a}/".startswith(f"{b}/") for a in (place, real) for b in (root, *_RESERVED))
    return not any(apart) and not f"{root}/".startswith((f"{place}/", f"{real}/"))


def _names_worktree(place: str, common: str, root: str) -> bool:
    back = os.path.join(place, _read(f"{place}/gitdir").rstrip("\n"))  # noqa: PTH118 - as text
    to_common = os.path.join(place, _read(f"{place}/commondir").rstrip("\n"))  # noqa: PTH118 - as text
    return (
        os.path.realpath(back) == os.path.realpath(f"{root}/.git")
        and os.path.realpath(to_common) == os.path.realpath(common)
        and not os.path.lexists(f"{common}/{_ABSENT}")
        and f"{root}/" != f"{common}/"
        and not f"{root}/".startswith(f"{common}/")
    )


def _names_submodule(place: str, root: str) -> bool:
    if os.path.lexists(f"{place}/{_ABSENT}"):
        return False
    section, key = "", ""
    for line in _read(f"{place}/config").splitlines():
        text = line.strip()
        section = text if text.startswith("[") else section
        name, _, value = text.partition("=")
        if section == "[core]" and name.strip().lower() == "worktree":
            key = value.strip().strip('"')
    target = os.path.join(place, key)  # noqa: PTH118 - as text
    return bool(key) and os.path.realpath(target) == os.path.realpath(root)


def _worktree(
    common: str, name: str, placeholders: Container[str], *, is_writable: bool
) -> GitFolder | None:
    own = f"{_WORKTREES}/{name}"
    _require_folders(common, (own, "objects", "refs", _OBJECTS_INFO))
    top = PathMask("", "read-only")
    if not is_writable:
        return GitFolder(common, common, (), (top,))
    _make_logs(common)
    writable = [each for each in _WRITABLE if _is_folder(common, each)]
    masks = [
        top,
        *(PathMask(path, "pinned") for path in writable),
        PathMask(_OBJECTS_INFO, "read-only"),
        *find_sockets(common, ""),
        PathMask(own, "pinned"),
        *_masks(common, (f"{own}/{path}" for path in _IN_WORKTREE), placeholders),
        *find_sockets(common, own),
    ]
    return GitFolder(common, common, (*writable, own), tuple(masks))


def _make_logs(common: str) -> None:
    """Make the folder of logs, which git makes with the first one, for the folder's owner."""
    fd = os.open(common, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            os.mkdir("logs", 0o755, dir_fd=fd)
            owner = os.fstat(fd)
            os.chown("logs", owner.st_uid, owner.st_gid, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(fd)


def _submodule(place: str, placeholders: Container[str], *, is_writable: bool) -> GitFolder:
    _require_folders(place, ("objects", "refs", _OBJECTS_INFO))
    if not is_writable:
        return GitFolder(place, place, (), (PathMask("", "read-only"),))
    masks = [
        PathMask("", "pinned"),
        PathMask("objects", "pinned"),
        PathMask(_OBJECTS_INFO, "read-only"),
        *_masks(place, iter(_IN_SUBMODULE), placeholders),
        *find_sockets(place, ""),
    ]
    return GitFolder(place, place, ("",), tuple(masks), absent=(f"{place}/{_ABSENT}",))


def _masks(folder: str, paths: Iterator[str], placeholders: Container[str]) -> Iterator[PathMask]:
    for path in paths:
        full = f"{folder}/{path}"
        if os.path.islink(full):  # noqa: PTH114 - git makes none, and a mask would not lie on it
            raise ValueError(path)
        if os.path.lexists(full) and full not in placeholders:
            yield PathMask(path, "read-only")
        else:
            yield PathMask(path, "no-folder", is_missing=True)


def _require_folders(folder: str, paths: tuple[str, ...]) -> None:
    """Raise ValueError if one is missing, or reached over a link."""
    for path in paths:
        if not _is_folder(folder, path):
            raise ValueError(path)


def _is_folder(folder: str, path: str) -> bool:
    with suppress(OSError):
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            inner = walk(fd, path, os.O_PATH | os.O_CLOEXEC)
        finally:
            os.close(fd)
        is_folder = stat.S_ISDIR(os.fstat(inner).st_mode)
        os.close(inner)
        return is_folder
    return False


def _read(path: str) -> str:
    """Read a small regular file, not over a link at its end.  Raises OSError, ValueError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(path)
        return os.fsdecode(file.read(_MAX_BYTES))


def find_git_obstacle(root: str, level: Level) -> str:
    """Return why a program in the workspace finds no repository although a person does; "" if none.

    The folder above is not shown, because the whole repository is more than the workspace, and git
    would take all files outside of it for deleted.
    """
    found = next((each for each in (root, *_above(root)) if os.path.lexists(f"{each}/.git")), None)
    if found is None or os.path.isdir(f"{root}/.git"):  # noqa: PTH112 - also without permission
        return ""
    if found != root:
        return (
            f"the workspace lies below the top of a git repository, {visible(found)}, and programs see "
            "nothing above the workspace: make that folder the workspace, or a worktree of it (git "
            "worktree add) with a sparse checkout"
        )
    if level == "B":
        return "the workspace's .git is a file that names a folder elsewhere, which needs level A"
    if find_git_folder(root, is_writable=False) is None:
        return (
            "the workspace's .git is a file, and the git folder it names does not name the workspace "
            "in turn (git worktree repair), or is not shown to programs"
        )
    return ""


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
