"""ID-mapped mounts that give the unprivileged user of a jail access to the host's folders.

A daemon that is root starts jails as a user without any rights, so that an escape gains nothing.
That user may enter neither /root nor a workspace of mode 0700, and could write to neither.  So one
thread gets its own mount namespace with an empty file system over /sys, and each source is mounted a
second time on it.  The workspace is mounted with its owner's id mapped to the jail's user: the
program acts as the owner, and its new files belong to the owner.  The host sees none of these
mounts.  Source: mount_namespaces(7), open_tree(2), mount_setattr(2) on ID-mapped mounts.

All of it runs in that one thread.
"""

import ctypes
import json
import os
import subprocess  # noqa: S404 - bubblewrap alone is started
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from palyra.tools.sandbox.command import SandboxFailure

_PLACE = Path("/sys")  # no source of a bind lies below it
_NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS
_RECURSIVE, _SLAVE = 0x4000, 0x80000  # MS_REC, MS_SLAVE
_DETACH = 0x2  # MNT_DETACH
_SAFE = 0x6  # MS_NOSUID | MS_NODEV
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same numbers everywhere
_CLONE, _CLOEXEC, _EMPTY_PATH = 0x1, 0x80000, 0x1000  # OPEN_TREE_CLONE, …, AT_EMPTY_PATH
_FROM_EMPTY_PATH = 0x4  # MOVE_MOUNT_F_EMPTY_PATH
_IDMAP = 0x00100000  # MOUNT_ATTR_IDMAP
_HERE = -100  # AT_FDCWD
_LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class IdMappedMounts:
    """Second mounts in the mount namespace of one thread."""

    def __init__(self, bubblewrap: str, uid: int) -> None:
        """Leave the host's mount namespace for good.  Raises OSError if that is not permitted."""
        self._bubblewrap, self._uid = bubblewrap, uid
        self._mounts: dict[tuple[str, int, int, bool], str] = {}
        _check(_LIBC.unshare(_NEW_NAMESPACE))
        _mount(None, "/", None, _RECURSIVE | _SLAVE)
        _LIBC.umount2(os.fsencode(_PLACE), _DETACH)  # each mount slows down each start of a jail
        _mount("tmpfs", str(_PLACE), "tmpfs", _SAFE, "mode=0755,size=1m")

    def bind(self, source: Path, *, as_owner: bool) -> str:
        """Return a path at which the jail's user can read the source.

        `as_owner`: that user acts as the source's owner.  Raises SandboxFailure.
        """
        try:
            found = source.stat()
            key = (str(source), found.st_dev, found.st_ino, as_owner)
            if key not in self._mounts:
                self._mounts[key] = self._add(source, found, as_owner=as_owner)
            return self._mounts[key]
        except OSError as error:
            raise SandboxFailure(f"{source} cannot be put into a sandbox: {error}") from None

    def _add(self, source: Path, found: os.stat_result, *, as_owner: bool) -> str:
        place = _PLACE / str(len(self._mounts))
        place.mkdir() if source.is_dir() else place.touch()
        with _cloned(source) as tree:
            if as_owner:
                with self._mapped_to_jail(found) as namespace:
                    _set_idmap(tree, namespace)
            _attach(tree, place)
        return str(place)

    @contextmanager
    def _mapped_to_jail(self, owner: os.stat_result) -> Generator[int]:
        """Open a user namespace that maps the owner's ids to the jail's user outside.

        bubblewrap creates such a namespace if the jail's user requests the owner's ids.
        """
        read, write = os.pipe()
        holder = subprocess.Popen(  # noqa: S603 - our own words
            [self._bubblewrap, "--unshare-user", "--uid", str(owner.st_uid), "--gid",
             str(owner.st_gid), "--die-with-parent", "--ro-bind", "/", "/", "--info-fd",
             str(write), "--", "/bin/sh", "-c", "echo && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=[write], env={}, user=self._uid, group=self._uid, extra_groups=[],
        )  # fmt: skip
        os.close(write)
        with holder, os.fdopen(read, "rb") as info:
            try:
                assert holder.stdout  # noqa: S101 - a pipe was asked for
                holder.stdout.readline()  # running, it has its ids mapped
                pid = json.loads(info.read() or b"{}").get("child-pid", 0)
                fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    yield fd
                finally:
                    os.close(fd)
            finally:
                holder.kill()


@contextmanager
def _cloned(source: Path) -> Generator[int]:
    """Open a detached clone of the mount tree at the source."""
    fd = _check(_syscall(_OPEN_TREE, _HERE, os.fsencode(source), _CLONE | _CLOEXEC))
    try:
        yield fd
    finally:
        os.close(fd)


def _set_idmap(tree: int, namespace: int) -> None:
    how = _MountAttributes(set=_IDMAP, userns_fd=namespace)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    _check(_syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, ctypes.byref(how), size))


def _attach(tree: int, place: Path) -> None:
    _check(_syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(place), _FROM_EMPTY_PATH))


def _mount(source: str | None, target: str, kind: str | None, flags: int, more: str = "") -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(_LIBC.mount(*texts, ctypes.c_ulong(flags), os.fsencode(more)))


def _syscall(number: int, *arguments: object) -> int:
    whole = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return int(_LIBC.syscall(ctypes.c_long(number), *whole))


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
