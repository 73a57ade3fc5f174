"""Workspace files, confined by the way they are opened, never by comparing paths.

Every open starts at a descriptor of the root and follows no link: by openat2 where the kernel has
it, else name by name with O_NOFOLLOW.  What was opened is then looked at: only regular files with
a single name (a second hard link may lie outside).  Whatever is refused is refused in the same
words, so a caller cannot tell what exists outside.  Source: openat2(2), path_resolution(7).

The workspace is the folder that lies at its path now, because programs find it by that path.  If the
folder is missing, calls fail instead of finding it empty.  If another one lies there, it is opened
again, with the checks of a start and without
following links.

All functions block; they are called from a thread.
"""

import errno
import os
import stat
import weakref
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from palyra.core.text.visible import visible
from palyra.core.tool.paths import composed, is_private, normal_path
from palyra.core.tool.spec import ToolFailure
from palyra.errors import InvalidParams
from palyra.tools.files import syscalls

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_PLACE = os.O_PATH | os.O_DIRECTORY  # a folder that is not listed
# O_NONBLOCK: a FIFO without a writer, or a device, must not hold the thread.
_ENTERED = stat.S_IRUSR | stat.S_IXUSR  # a root that its owner can list and enter
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
READ_FLAGS = _READ | os.O_NOFOLLOW | os.O_CLOEXEC  # for one name below an open descriptor
_RETRIES = 8  # of an open that failed because of a concurrent rename
_REFUSED = frozenset({errno.ELOOP, errno.EXDEV, errno.ENXIO, errno.EAGAIN})
_EQUAL_SHOWN, _EQUAL_CHARS = 3, 80  # names in a note, which must fit beside a page
_PATH_CHARS = 200  # of a path, in a failure


class Workspace:
    """A folder whose files tools may touch."""

    def __init__(
        self,
        root: Path,
        *,
        keep_out: Sequence[Path] = (),
        setting: str = "--workspace",
        use_openat2: bool | None = None,
    ) -> None:
        """Open the root.  `keep_out`: the daemon's own folders, which must lie elsewhere.

        `setting` is named in remedies.  Raises InvalidParams for a root that contains too much, or
        cannot be opened.
        """
        self._keep_out = keep_out
        self._setting = setting
        try:
            self.root = root.resolve(strict=True)
            self._fd = self._open_root()
        except OSError as error:
            raise InvalidParams(
                f"the workspace {str(root)!r} cannot be opened ({error.strerror}): "
                f"choose another one with {setting}",
                field="tools.workspace",
            ) from None
        self._close = weakref.finalize(self, os.close, self._fd)
        supported = syscalls.is_supported(self._fd)
        self._has_openat2 = supported if use_openat2 is None else use_openat2

    @property
    def enforcement(self) -> str:
        """Confinement of opens, as named in attestations."""
        return "openat2" if self._has_openat2 else "nofollow"

    def close(self) -> None:
        """Close the root's descriptor; so does the end of the object."""
        self._close()

    def resolve(self, path: str, *, for_write: bool = False) -> str:
        """Return the normal path with the names that its folders have; names equal in NFC are one.

        The exact name comes first, and a name that no entry equals stays as it is.  Text only: the path
        is opened as confined as any other.  Blocks.  Raises ToolFailure for a path that may not be
        used, and for a name that several entries equal, `for_write` also if one of them is exact.
        """
        normal = usable(path)
        if normal.isascii():
            return normal
        folder = ""
        for name in normal.split("/"):
            equal = [] if name.isascii() else self._equal_names(folder, name)
            if len(equal) > 1 and (for_write or name not in equal):
                raise ToolFailure(
                    f"{_shown(path)} is ambiguous: {equal_names_note(equal)[0]}; rename or remove all but one"
                )
            found = name if name in equal or not equal else equal[0]
            folder = f"{folder}/{found}" if folder else found
        return folder

    def find_equals(self, path: str) -> list[str]:
        """Return all entries that the last name of a resolved path equals in NFC.  Blocks."""
        folder, _, name = path.rpartition("/")
        return [] if name.isascii() else self._equal_names(folder, name)

    def _equal_names(self, folder: str, name: str) -> list[str]:
        """Return the entries of the folder that the name equals in NFC; [] for one that cannot be listed."""
        wanted = composed(name)
        with suppress(OSError), _closing(self._open(folder, _FOLDER)) as fd:
            return sorted(each for each in os.listdir(fd) if composed(each) == wanted)  # noqa: PTH208 - of a descriptor
        return []

    @contextmanager
    def open_file(self, path: str) -> Generator[int]:
        """Open a regular file for reading.  Raises ToolFailure."""
        with as_failure(path), _closing(self._open(self.resolve(path), _READ)) as fd:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                raise ToolFailure(f"{_shown(path)} is a folder: list it instead")
            if not (stat.S_ISREG(found.st_mode) and found.st_nlink <= 1):
                raise refusal(path)
            yield fd

    @contextmanager
    def open_folder(self, path: str) -> Generator[int]:
        """Open a folder for listing.  Raises ToolFailure."""
        with as_failure(path), _closing(self._open(self.resolve(path), _FOLDER)) as fd:
            yield fd

    @contextmanager
    def find_file(self, path: str) -> Generator[int | None]:
        """Open as `open_file` does, but yield None for a missing path.  Raises ToolFailure."""
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(self.open_file(path))
            except ToolFailure as failure:
                if not isinstance(failure.__cause__, FileNotFoundError):
                    raise
                fd = None
            yield fd

    def has_any(self, names: Iterable[str]) -> bool:
        """True if one of these names lies at the top of the workspace.

        For the event loop: one stat each below the open root, answered from the kernel's cache, about
        a microsecond.
        """
        for name in names:
            with suppress(OSError):
                os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                return True
        return False

    def look(self, path: str) -> os.stat_result | None:
        """Return the status of a path without opening it or following links; None if unavailable."""
        folder, _, name = path.rpartition("/")
        if normal_path(path) != path or is_private(path):
            return None
        with suppress(OSError), _closing(self._open(folder, _PLACE)) as fd:
            return os.stat(name or ".", dir_fd=fd, follow_symlinks=False)
        return None

    def read_link(self, path: str) -> str | None:
        """Return the target of a link as text; None if it is no link, or cannot be read."""
        folder, _, name = path.rpartition("/")
        with suppress(OSError), _closing(self._open(folder, _PLACE)) as fd:
            return os.readlink(name, dir_fd=fd)
        return None

    def find_problem(self) -> str:
        """Return why the workspace is unusable, with the remedy; "" if it is usable.  Blocks."""
        try:
            self._find_again()
        except ToolFailure as failure:
            return failure.message
        mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
        if mode & _ENTERED == _ENTERED:
            return ""
        return (
            f"the workspace {self.root} is closed to its owner (mode {mode:04o}): chmod u+rwx opens "
            "it again"
        )

    def _open_root(self) -> int:
        """Open the folder at the root's path without following links.  Raises OSError, InvalidParams."""
        _check_root(self.root, self._keep_out)
        top = os.open(self.root.anchor, _PLACE | os.O_CLOEXEC)
        try:
            return walk(top, str(self.root).lstrip("/"), _FOLDER | os.O_CLOEXEC)
        finally:
            os.close(top)

    def _find_again(self) -> None:
        """Reopen the root if another folder lies at its path now.  Raises ToolFailure if there is none.

        The inode of an open folder is not reused, so the comparison cannot be mistaken.
        """
        try:
            if os.path.samestat(self.root.lstat(), os.fstat(self._fd)):
                return
            fd = self._open_root()
        except OSError as error:
            raise _unusable(self.root, _why(error), self._setting) from None
        except InvalidParams as error:
            raise _unusable(self.root, error.message, self._setting) from None
        with _closing(fd):
            os.dup2(fd, self._fd, inheritable=False)  # atomic, because other threads open below it

    def _open(self, normal: str, flags: int) -> int:
        self._find_again()
        if not self._has_openat2:
            return walk(self._fd, normal, flags)
        for _ in range(_RETRIES):
            with suppress(BlockingIOError, InterruptedError):
                return syscalls.open_beneath(self._fd, normal or ".", flags)
        raise OSError(errno.EAGAIN, "renamed while it was opened")


def refusal(path: str) -> ToolFailure:
    """Return the same failure for every path that may not be used, existing or not."""
    return ToolFailure(
        f"{_shown(path)} may not be used: a path must be relative to the workspace, stay inside "
        "it, name a regular file or folder without links, and not be a place for secrets or "
        "configuration"
    )


# --- paths ---------------------------------------------------------------------------------------


def equal_names_note(names: Iterable[str]) -> list[str]:
    """Return the note that some names differ in their Unicode form only; [] if none do."""
    forms: dict[str, list[str]] = {}
    for name in names:
        forms.setdefault(composed(name), []).append(name)
    equal = [
        ascii(name)[:_EQUAL_CHARS] for group in forms.values() if len(group) > 1 for name in group
    ]
    more = f" and {len(equal) - _EQUAL_SHOWN} more" if len(equal) > _EQUAL_SHOWN else ""
    shown = ", ".join(equal[:_EQUAL_SHOWN])
    return [f"{shown}{more} differ in their Unicode form only"] if equal else []


def _check_root(root: Path, keep_out: Sequence[Path]) -> None:
    if root == Path(root.anchor) or root == Path("~").expanduser().resolve():
        raise InvalidParams(
            f"workspace {root}: the root and home folders are not workspaces", field="workspace"
        )
    for folder in (path.resolve() for path in keep_out):
        if folder.is_relative_to(root) or root.is_relative_to(folder):
            raise InvalidParams(
                f"workspace {root} overlaps {folder}, which the daemon keeps for itself; "
                "choose a workspace beside it",
                field="workspace",
            )


def _unusable(root: Path, why: str, setting: str) -> ToolFailure:
    return ToolFailure(
        f"the workspace {root} cannot be used: {why}; make the folder again, or start the daemon "
        f"with another {setting}"
    )


def _why(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "it is not there any more"
    if error.errno == errno.ELOOP:
        return "a link or another thing lies there, or on the way"
    return os.strerror(error.errno or 0).lower()


def usable(path: str) -> str:
    """Return the normal path.  Raises ToolFailure for a path that may not be used."""
    normal = normal_path(path)
    if normal is None or is_private(normal):
        raise refusal(path)
    return normal


def walk(root_fd: int, normal: str, flags: int) -> int:
    """Open a path name by name without following links; no name is `..`, so no step leads up.

    Raises OSError: ELOOP for a link on the way.
    """
    names = normal.split("/") if normal else ["."]
    fd = os.dup(root_fd)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        return os.open(names[-1], flags | os.O_NOFOLLOW, dir_fd=fd)
    except NotADirectoryError:  # a link and a file give the same error here
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
    finally:
        os.close(fd)


# --- checks after opening -----------------------------------------------------------------------------


# --- descriptors and failures --------------------------------------------------------------------


@contextmanager
def _closing(fd: int) -> Generator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def as_failure(path: str) -> Generator[None]:
    """Convert OSError into a ToolFailure that names the path."""
    try:
        yield
    except OSError as error:
        raise _failure(path, error) from error


def _failure(path: str, error: OSError) -> ToolFailure:
    if error.errno in _REFUSED:
        return refusal(path)
    text = os.strerror(error.errno) if error.errno is not None else str(error)
    return ToolFailure(f"{_shown(path)}: {text.lower()}")


def _shown(path: str) -> str:
    return visible(path[:_PATH_CHARS]) or "the workspace itself"
