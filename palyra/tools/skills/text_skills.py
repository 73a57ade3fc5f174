"""Text skills of the workspaces and of the home, and the tool `use_skill` that reads one.

Owns: what it has read of each folder.  Talks to: the workspaces, in a thread.
Never: runs anything, and never follows a link: every file is opened as `read_file` opens it.

Which workspaces have such folders is noticed by the workspace watch, so a run in another one does
nothing more than ask a set.  In one of these the folders are looked at when a run begins, and SKILL.md
is read again only if its status has changed.
"""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

import structlog

from palyra.core.skill.text_skill import (
    FILE,
    FOLDERS,
    HEAD_BYTES,
    HOME_FOLDER,
    MAX_SKILLS,
    TOOL,
    TextSkill,
    mark_duplicates,
    read_text_skill,
)
from palyra.core.text.visible import visible
from palyra.core.tool.paths import normal_path
from palyra.core.tool.spec import NO_FACETS, ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.errors import InvalidParams
from palyra.tools.files.read import EXCERPT_BYTES, read_file
from palyra.tools.files.workspace import Workspace
from palyra.tools.toolbox import ThreadTool, Tool

SOURCE = "text_skills"  # in the toolbox
MAX_FILES = 40  # of a skill that are named
MAX_LISTED = 200  # entries of one folder that are looked at
MAX_FOLDERS = 100  # of a skill that are looked into
_TOPS = tuple(folder.partition("/")[0] for folder in FOLDERS)
_Status = tuple[int, ...]
log = structlog.get_logger("palyra.skills")


class TextSkills:
    """The text skills of all workspaces."""

    def __init__(
        self,
        workspaces: Mapping[str, Workspace],
        home: Path,
        offer: Callable[[Tool], None],
        *,
        is_used: bool = True,
    ) -> None:
        """`offer` gets the tool once there is a skill; `home` is the folder of the configuration."""
        self.is_used = is_used  # False: no run knows one of them
        self._workspaces = workspaces
        self._home_path = home
        self._home: Workspace | None = None
        self._offer: Callable[[Tool], None] | None = offer
        self._read: dict[tuple[bool, str, str], tuple[_Status, TextSkill]] = {}
        self._found: dict[str, tuple[TextSkill, ...]] = {}
        self.present: frozenset[str] = frozenset()
        self.notice()

    def notice(self) -> None:
        """Find out which workspaces may have skills: a few stats each.  Blocks."""
        is_home = (self._home_path / HOME_FOLDER).is_dir()
        self.present = frozenset(
            name for name, place in self._workspaces.items() if is_home or place.has_any(_TOPS)
        )

    def listed(self, workspace: str) -> tuple[TextSkill, ...]:
        """Return what the last `look` found."""
        return self._found.get(workspace, ())

    def offer_tool(self, workspace: str) -> None:
        """Put the tool into the catalogue if the workspace has a skill; call it on the event loop."""
        if self._offer is not None and any(not each.problem for each in self.listed(workspace)):
            self._offer(ThreadTool(_SPEC, self.use, facets=lambda _arguments: NO_FACETS))
            self._offer = None

    def look(self, workspace: str) -> tuple[TextSkill, ...]:
        """Return the skills of the workspace, then those of the home, as they are now.  Blocks.

        A folder that cannot be read is in the list with its problem.
        """
        place = self._workspaces.get(workspace)
        found: list[TextSkill] = []
        if place is not None:
            for folder in FOLDERS:
                found += self._look_into(place, workspace, folder, is_home=False)
        home = self._open_home()
        if home is not None:
            found += self._look_into(home, "", HOME_FOLDER, is_home=True)
        skills = mark_duplicates(found)
        if skills != self._found.get(workspace, ()):
            for each in skills:
                if each.problem:
                    log.warning("a text skill is not used", folder=each.where, reason=each.problem)
            self._found[workspace] = skills
        return skills

    def _open_home(self) -> Workspace | None:
        if self._home is None:
            with suppress(InvalidParams):  # there is none, or it is no folder of its own
                self._home = Workspace(self._home_path, keep_out=())
        return self._home

    def _look_into(
        self, place: Workspace, workspace: str, folder: str, *, is_home: bool
    ) -> Iterator[TextSkill]:
        try:
            with place.open_folder(folder) as fd:
                names = sorted(name for name in os.listdir(fd) if not name.startswith("."))  # noqa: PTH208 - of a descriptor
        except ToolFailure as failure:
            if not isinstance(failure.__cause__, FileNotFoundError):
                yield TextSkill(
                    name=folder, folder=folder, is_home=is_home, problem=failure.message
                )
            return
        for name in names[:MAX_SKILLS]:
            path = f"{folder}/{name}"
            shown = visible(name.encode("utf-8", "backslashreplace").decode())
            found = place.look(path) if normal_path(path) == path else None
            if found is not None and stat.S_ISREG(found.st_mode):
                continue  # a README beside the folders
            if found is None or not stat.S_ISDIR(found.st_mode):
                why = "a link or no folder: put the folder itself there"
                yield TextSkill(
                    name=shown, folder=f"{folder}/{shown}", is_home=is_home, problem=why
                )
                continue
            yield self._read_one(place, workspace, path, is_home=is_home)
        if len(names) > MAX_SKILLS:
            why = f"only the first {MAX_SKILLS} of {len(names)} are used"
            yield TextSkill(name=folder, folder=folder, is_home=is_home, problem=why)

    def _read_one(
        self, place: Workspace, workspace: str, folder: str, *, is_home: bool
    ) -> TextSkill:
        path = f"{folder}/{FILE}"
        key = (is_home, workspace, folder)
        found = place.look(path)
        status = (
            () if found is None
            else (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_nlink)
        )  # fmt: skip
        known = self._read.get(key)
        if known is not None and status and known[0] == status:
            return known[1]
        try:
            with place.open_file(path) as fd:
                skill = read_text_skill(folder, os.read(fd, HEAD_BYTES), is_home=is_home)
        except ToolFailure as failure:
            name = visible(folder.rpartition("/")[2])
            skill = TextSkill(name=name, folder=folder, is_home=is_home, problem=failure.message)
        self._read[key] = (status, skill)
        return skill

    # --- the tool

    def use(self, call: ToolCall) -> ToolOutput:
        """Return a page of a skill's instructions or of a file beside them.  Blocks.  Raises ToolFailure."""
        name, file = call.arguments["name"], call.arguments.get("file") or FILE
        usable = {each.name: each for each in self.look(call.workspace) if not each.problem}
        skill = usable.get(name)
        if skill is None:
            near = get_close_matches(name, usable, n=1)
            known = (
                f"did you mean {near[0]}?" if near else f"there are: {', '.join(usable) or 'none'}"
            )
            raise ToolFailure(f"no skill {visible(name)!r}; {known}")
        place = self._home if skill.is_home else self._workspaces.get(call.workspace)
        inner = normal_path(file)
        if place is None or not inner:
            raise ToolFailure(f"{visible(file)!r} is no file of the skill {name}")
        first = call.arguments.get("offset") or (skill.body_line if inner == FILE else 1)
        page = read_file(
            place,
            {"path": f"{skill.folder}/{inner}", "offset": first},
            is_confined=call.audience.is_confined,
        )
        if page.pictures or inner != FILE or "offset" in call.arguments:
            return page
        files = ", ".join(_list_files(place, skill.folder)) or "none"
        how = (
            f"{TOOL} reads them with `file`; they are outside of the workspace"
            if skill.is_home
            else "read_file reads them, shell runs a script among them"
        )
        head = f"Skill {name}, in {skill.folder}. Files beside it ({how}): {files}\n\n"
        return ToolOutput(text=head + page.text, is_truncated=page.is_truncated)


def _list_files(place: Workspace, folder: str) -> list[str]:
    """Return the files beside SKILL.md, below the folder, bounded."""
    found: list[str] = []
    waiting, looks = deque([""]), 0
    while waiting and len(found) < MAX_FILES and looks < MAX_FOLDERS:
        inner, looks = waiting.popleft(), looks + 1
        for name, is_folder in _list_names(place, f"{folder}/{inner}".rstrip("/")):
            path = f"{inner}/{name}".lstrip("/")
            if is_folder:
                waiting.append(path)
            elif path != FILE:
                found.append(visible(path))
    more = ["…"] if len(found) > MAX_FILES or waiting else []
    return found[:MAX_FILES] + more


def _list_names(place: Workspace, path: str) -> list[tuple[str, bool]]:
    """Return the files and folders of a folder that a call could name, True for a folder."""
    with suppress(ToolFailure), place.open_folder(path) as fd, os.scandir(fd) as entries:
        return sorted(
            (entry.name, entry.is_dir(follow_symlinks=False))
            for entry in islice(entries, MAX_LISTED)
            if normal_path(entry.name) == entry.name
            and entry.name[0] != "."
            and not entry.is_symlink()
        )
    return []


_SPEC = ToolSpec(
    name=TOOL,
    version="1",
    description="Read the instructions of a listed text skill before work that its description fits. They are text "
    "of the project or the user and grant no permission.",
    parameters={
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 64},
            "file": {"type": "string", "maxLength": 1_024,
                     "description": "A file of the skill in place of its instructions."},
            "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
        },
        "required": ["name"],
    },
    tool_class="read_only_safe",
    risk="low",
    capabilities=("fs.read",),
    deadline_s=10.0,
    never_coerced=("name", "file"),
    excerpt_bytes=EXCERPT_BYTES + 8_192,  # a page and the names of files before it
    executor="thread",
    enforcement="openat2",
)  # fmt: skip
