"""Toolchain folders on this machine: checked as configured, and found for a program that is not seen.

Owns: nothing.  Talks to: the file system.  The decisions are in `core.tool.toolchains`.
All functions block.
"""

import glob
import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from palyra.core.text.visible import visible
from palyra.core.tool.toolchains import (
    Toolchain,
    choose_newest,
    find_folder_problem,
    find_shimmed,
    find_toolchain,
    is_below,
    is_outermost,
)
from palyra.errors import InvalidParams
from palyra.tools.sandbox.bubblewrap import PATH, SYSTEM_FOLDERS
from palyra.tools.sandbox.command import Bind, Level


@dataclass(frozen=True)
class Toolchains:
    """The folders that every program sees besides the system's, and where it looks for programs."""

    folders: tuple[str, ...] = ()
    path: tuple[str, ...] = ()  # searched before the system's folders

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """All folders of programs, links resolved too."""
        return (*SYSTEM_FOLDERS, *self.folders, *map(os.path.realpath, self.folders))

    @property
    def search_path(self) -> str:
        """PATH of a program."""
        return ":".join([*self.path, PATH])

    def binds(self, level: Level) -> tuple[Bind, ...]:
        """Return what shows the folders.  At level B, links are followed on the host itself."""
        real = {folder: os.path.realpath(folder) for folder in self.folders}
        shown = [Bind(Path(target)) for target in dict.fromkeys(real.values())]
        linked = [Bind(Path(to), folder) for folder, to in real.items() if folder != to]
        return tuple(shown if level == "B" else shown + linked)

    def shows(self, path: str) -> bool:
        """True if programs see the path, and what it leads to."""
        return is_below(path, self.visible) and is_below(os.path.realpath(path), self.visible)

    def find_hidden(self, name: str) -> str:
        """Return where the daemon's PATH has a program that no program sees; "" for none.

        A program of that name that is seen makes no difference: it is another one.
        """
        found = shutil.which(name)
        return "" if found is None or self.shows(found) else found

    def find_remedy(self, program: str) -> str:
        """Return the commands that show this program; "" if its folder may not be shown."""
        return self.find_remedy_for([program])

    def find_remedy_for(self, programs: Iterable[str]) -> str:
        """Return the commands that show all of these that may be shown; "" for none."""
        found = [
            each for each in map(self._find, programs) if not any(map(find_problem, each.folders))
        ]
        new = [folder for each in found for folder in each.folders]
        folders = [each for each in dict.fromkeys((*self.folders, *new)) if is_outermost(each, new)]
        path = dict.fromkeys((*(each.path for each in found), *self.path))
        if not found:
            return ""
        return f"{_command('sandbox.folders', folders)} && {_command('sandbox.path', [*path])}"

    def _find(self, program: str) -> Toolchain:
        home = os.path.expanduser("~")  # noqa: PTH111 - as text
        meant = find_shimmed(program, home)
        program = (meant and choose_newest(glob.glob(meant))) or program  # noqa: PTH207 - as text
        return find_toolchain(program, os.path.realpath(program), home, self.visible)


def _command(key: str, values: Sequence[str]) -> str:
    return f"palyra config set {key} {shlex.quote(','.join(values))}"


def find_problem(folder: str, apart: Iterable[Path] = ()) -> str:
    """Return why programs may not see this folder, or what it leads to; "" if they may."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - as text
    others = [os.path.realpath(each) for each in apart]
    if not os.path.isdir(folder):  # noqa: PTH112 - False for an unreadable one
        return "is no folder that the daemon can read"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names only
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    for path in dict.fromkeys((folder, os.path.realpath(folder))):
        if problem := find_folder_problem(path, home, apart=others, names=names):
            return problem
    return ""


def open_toolchains(
    folders: Sequence[str], path: Sequence[str], apart: Iterable[Path]
) -> Toolchains:
    """Return the configured toolchains.  Raises InvalidParams for a folder that may not be shown.

    `apart`: the daemon's own folders and the workspaces.
    """
    apart = tuple(apart)
    for folder in folders:
        if problem := find_problem(folder, apart):
            raise InvalidParams(
                f"sandbox.folders: {visible(folder)} {problem}", field="sandbox.folders"
            )
    made = Toolchains(tuple(dict.fromkeys(folders)), tuple(dict.fromkeys(path)))
    for each in path:
        if ":" in each or not os.path.isabs(each) or not made.shows(each):  # noqa: PTH117 - text
            raise InvalidParams(
                f"sandbox.path: {visible(each)} is no folder that programs see: add its toolchain to "
                "sandbox.folders",
                field="sandbox.path",
            )
    return made
