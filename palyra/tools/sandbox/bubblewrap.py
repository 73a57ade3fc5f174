"""Options with which bubblewrap builds a jail.  Pure except for reading the host's system folders.

The options give the jail its own namespaces for users, processes, network, messages, host name and
control groups; no capability (without `--cap-drop ALL` a jail started by root can make its read-only
binds writable); no further user namespace; death with its parent; its own session; an environment of
listed names only.  Source: bwrap(1).
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from palyra.tools.sandbox.command import Command
from palyra.tools.sandbox.git_folders import GitFolder
from palyra.tools.sandbox.inside import HOME, PRIVATE_FOLDERS, TEMPORARY, lies_below
from palyra.tools.sandbox.protected_paths import PathMask

LAUNCHER = "/run/launch"  # see `launcher`
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
JAILED_ID = 65_534  # the unprivileged id inside the jail

_ISOLATION = (
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
    "--unshare-cgroup-try", "--uid", str(JAILED_ID), "--gid", str(JAILED_ID), "--cap-drop", "ALL",
    "--disable-userns", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "jail",
)  # fmt: skip
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
# Of /etc only what programs need; accounts and hosts are replaced below.
_ETC = ("/etc/alternatives",)
_ETC_NETWORK = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted")
_ETC_COPIED = ("/etc/ld.so.cache", "/etc/localtime")  # a copy is cheaper than a mount
REPLACED_FILES: Mapping[str, bytes] = {
    "/etc/passwd": f"palyra:x:{JAILED_ID}:{JAILED_ID}::{HOME}:/bin/sh\n".encode(),
    "/etc/group": f"palyra:x:{JAILED_ID}:\n".encode(),
    "/etc/hosts": b"127.0.0.1 localhost jail\n::1 localhost ip6-localhost ip6-loopback\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Paths of the command's folders for the user who starts the jail."""

    workspace: str
    binds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Descriptors passed to bubblewrap by number."""

    info: int  # it writes the id of the jail's first process here
    gate: int  # it waits until this is readable before it starts the command
    filter: int
    copies: Sequence[tuple[str, int]]  # path in the jail, content of a new file there
    files: Sequence[tuple[str, int]]  # the same, mounted over an existing file
    sources: Mapping[str, int]  # of masks, by path
    git: Mapping[str, int] = field(default_factory=dict)  # of those of the git folder


def render_options(
    command: Command,
    sources: Sources,
    masks: Iterable[PathMask],
    fds: Descriptors,
    git: GitFolder | None = None,
) -> list[str]:
    """Return all options, to be passed by `--args` so that no process list shows the environment."""
    words = [*_ISOLATION, *_system(has_network=command.network is not None)]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path, fd in fds.copies:
        words += ["--perms", "0555", "--file", str(fd), path]
    size = str(command.limits.temporary_bytes)
    for place in PRIVATE_FOLDERS:
        words += ["--perms", "1777" if place != HOME else "0700", "--size", size, "--tmpfs", place]
    for bind, source in zip(command.binds, sources.binds, strict=True):
        words += ["--ro-bind", source, bind.place]
    if command.workspace is not None:
        words += ["--bind" if command.is_writable else "--ro-bind", sources.workspace,
                  str(command.workspace)]  # fmt: skip
        words += _masks(str(command.workspace), masks, fds.sources)
    if git is not None:
        words += _masks(git.place, git.masks, fds.git)
    for path, fd in fds.files:
        words += ["--perms", "0555", "--ro-bind-data", str(fd), path]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", command.cwd]
    for name, value in environment_of(command).items():
        words += ["--setenv", name, value]
    return [*words, "--info-fd", str(fds.info), "--block-fd", str(fds.gate),
            "--seccomp", str(fds.filter)]  # fmt: skip


# Python leaves no `__pycache__` beside the sources of a project, and still reads one that is there.
KEEPS_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}


def environment_of(command: Command) -> dict[str, str]:
    """Return all environment variables of the program."""
    known = {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", "TERM": "dumb", **KEEPS_NO_BYTECODE}
    if command.has_loopback and lies_below(TEMPORARY)(str(command.workspace)):
        known["TMPDIR"] = HOME  # local sockets can be made there; see `inside.rights_of`
    proxy = command.network.environment if command.network else {}
    return {**known, **proxy, **command.environment}


def _masks(place: str, masks: Iterable[PathMask], sources: Mapping[str, int]) -> Iterator[str]:
    for mask in masks:
        yield from mask.options(sources.get(mask.path, -1), f"{place}/{mask.path}".rstrip("/"))


@cache
def _system(*, has_network: bool) -> tuple[str, ...]:
    """Return options for the host's programs and libraries, read-only."""
    words: list[str] = []
    for path in SYSTEM_FOLDERS:
        if os.path.islink(path):  # noqa: PTH114 - as text
            words += ["--symlink", os.readlink(path), path]  # noqa: PTH115
        elif Path(path).is_dir():
            words += ["--ro-bind", path, path]
    for path in _ETC + _ETC_NETWORK * has_network:
        if Path(path).exists():
            words += ["--ro-bind", path, path]
    return ("--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/home", *words)


@cache
def system_copies() -> Mapping[str, bytes]:
    """Return the contents of small system files, replaced or copied."""
    found = {path: Path(path).read_bytes() for path in _ETC_COPIED if Path(path).is_file()}
    return {**REPLACED_FILES, **found}
