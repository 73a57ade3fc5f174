"""Folders of toolchains outside of the system's: which one a program lies in, and what may be shown.

Programs in the sandbox see the system's folders and the workspace.  Version managers keep
interpreters elsewhere, mostly below a home.  `find_toolchain` names the folder that has to be shown
for one program; `find_folder_problem` decides whether a folder may be.

Paths are absolute and normal; `home` is that of the daemon's user.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from posixpath import basename, dirname, normpath
from typing import NamedTuple

from palyra.core.tool.paths import PRIVATE_NAMES, is_private

# Where version managers and installers keep programs; `~` is the home, `*` one name.  The first row
# that fits names the folder.  A folder that also holds keys is left out in favour of a part of it.
PLACES = (
    "~/.pyenv", "~/.rbenv", "~/.nodenv", "~/.goenv", "~/.jenv",
    "~/.local/share/uv", "~/.local/share/pipx", "~/.local/pipx", "~/.local/share/mise",
    "~/.local/share/mamba", "~/.local/share/pnpm", "~/.local/bin",
    "~/miniconda*", "~/anaconda*", "~/miniforge*", "~/mambaforge*", "~/micromamba", "~/.conda/envs",
    "~/.nvm", "~/.fnm", "~/.local/share/fnm", "~/.volta", "~/.asdf",
    "~/.rustup/toolchains", "~/.cargo/bin", "~/go/bin", "~/sdk/*", "~/.bun/bin", "~/.deno/bin",
    "~/.sdkman/candidates", "~/.linuxbrew", "/home/linuxbrew/.linuxbrew", "/opt/*", "/snap",
)  # fmt: skip
# Shims that find the program by the environment or the home, which a program does not have, and the
# folders of the programs themselves.
SHIMS = {
    "~/.asdf/shims": "~/.asdf/installs/*/*/bin",
    "~/.local/share/mise/shims": "~/.local/share/mise/installs/*/*/bin",
    "~/.cargo/bin": "~/.rustup/toolchains/*/bin",  # of rustup; others are programs of their own
    "~/.volta/bin": "~/.volta/tools/image/*/*/bin",
}
# Devices, state and settings of the machine, sockets of services; a program has its own of some.
_MACHINE = ("/proc", "/sys", "/dev", "/run", "/var/run", "/etc", "/boot", "/lost+found")
_HOMES = ("/home", "/Users", "/var/home")  # the folders directly in it are homes
_IN_PREFIX = frozenset({"bin", "sbin", "shims", "libexec"})


class Toolchain(NamedTuple):
    """Folders that make one program visible, and the one to search for programs."""

    folders: tuple[str, ...]
    path: str


def find_toolchain(program: str, real: str, home: str, visible: Sequence[str]) -> Toolchain:
    """Return what shows a program that is found as `program` and, links resolved, is `real`.

    `visible`: folders that programs see already.
    """
    found = (_root_of(each, home) for each in (program, real) if not is_below(each, visible))
    folders = tuple(dict.fromkeys(found))
    return Toolchain(
        tuple(each for each in folders if is_outermost(each, folders)), dirname(program)
    )


def find_shimmed(program: str, home: str) -> str | None:
    """Return a glob of the programs that this shim may start; None for a program of its own."""
    for place, programs in SHIMS.items():
        if dirname(program) == _at(place, home):
            return f"{_at(programs, home)}/{basename(program)}"
    return None


def choose_newest(programs: Iterable[str]) -> str | None:
    """Return the program of the highest version by its path; None for none."""
    return max(programs, default=None, key=_version_of)


def is_below(path: str, folders: Iterable[str]) -> bool:
    """True if the path is one of the folders or lies in one."""
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders)


def is_outermost(folder: str, folders: Iterable[str]) -> bool:
    """True if the folder lies in none of the others."""
    return not is_below(folder, [each for each in folders if each != folder])


def find_folder_problem(
    folder: str, home: str, *, apart: Iterable[str] = (), names: Iterable[str] = ()
) -> str:
    """Return why programs may not see this folder; "" if they may.

    `apart`: folders that it must not overlap, such as the daemon's own.  `names`: entries of the
    folder.  A link is judged by both its own path and its target: call it for each.
    """
    if not folder.startswith("/") or normpath(folder) != folder or "\0" in folder:
        return "is not an absolute path without `..` and a slash at its end"
    return next(_problems(folder, home, apart, names), "")


def _problems(folder: str, home: str, apart: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    if is_below(home, [folder]) or folder in {"/root", *_HOMES} or dirname(folder) in _HOMES:
        yield "is a home or holds one: name the folder of the toolchain in it"
    if is_below(folder, _MACHINE) or any(is_below(each, [folder]) for each in _MACHINE):
        yield "holds devices, settings or sockets of the machine"
    if is_private(folder.lstrip("/")):
        yield "is a place for secrets"
    for secret in _secrets_below(home):
        if is_below(secret, [folder]):
            yield f"would show {secret}, a place for secrets: name a folder in it"
    for name in filter(is_private, names):
        yield f"holds {name}, a place for secrets"
    for other in apart:
        if is_below(folder, [other]) or is_below(other, [folder]):
            yield f"overlaps {other}, which is the daemon's own or a workspace"


def _secrets_below(home: str) -> Iterator[str]:
    yield f"{home}/.config"
    yield from (f"{home}/{name.rstrip('*')}" for name in PRIVATE_NAMES if "/" in name)


def _root_of(program: str, home: str) -> str:
    """Return the folder of the toolchain: that of a known place, else the program's prefix."""
    for place in PLACES:
        pattern = _at(place, home).split("/")
        parts = program.split("/")[: len(pattern)]
        if len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern)):
            return "/".join(parts)
    folder = dirname(program)
    prefix = dirname(folder)
    fits = basename(folder) in _IN_PREFIX and not find_folder_problem(prefix, home)
    return prefix if fits else folder


def _at(place: str, home: str) -> str:
    return home + place[1:] if place.startswith("~") else place


def _version_of(path: str) -> tuple[tuple[int, str], ...]:
    """Return a key that orders 3.9 below 3.10, and numbers below words such as `stable`."""
    words = re.findall(r"\d+|[^\d]+", path)
    return tuple((int(word), "") if word.isdecimal() else (1 << 62, word) for word in words)
