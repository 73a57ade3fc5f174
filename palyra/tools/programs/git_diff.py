"""Changes of a git repository in the workspace, as text for a prompt.

A repository is not trusted: its configuration and attributes name programs that git runs (filters,
text conversions, hooks, a file system monitor).  So git runs in the sandbox like any other program,
with the workspace read-only and without network, and with all of these switched off that a command
line can switch off.  Source: git-diff(1), git-config(1), githooks(5), gitattributes(5).

The output is split into one section a file, by the list of changed files that git prints before the
patch.  So the caller can leave out the sections of private files: their content is in the repository
even where the sandbox hides the file itself.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from palyra.core.ports import DiffSection, RunBlocking
from palyra.core.tool.paths import is_private, normal_path
from palyra.core.tool.spec import ToolFailure
from palyra.tools.files.workspace import Workspace
from palyra.tools.programs.command_line import CommandLine
from palyra.tools.programs.disk_watch import DiskWatch
from palyra.tools.programs.output import OutputBuffer, read_until_exit
from palyra.tools.programs.program import find_binary
from palyra.tools.sandbox.command import Command, CommandLimits, SandboxFailure
from palyra.tools.sandbox.git_folders import find_git_obstacle
from palyra.tools.sandbox.sandbox import Sandbox

MAX_BYTES = 1_048_576  # of git's output; the rest is left out
_ERROR_BYTES = 4_096
_OPTIONS = (
    "--no-optional-locks",
    "--no-pager",
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.attributesFile=/dev/null"),
    *("-c", "core.safecrlf=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "safe.directory=*"),  # the sandbox's user is not the owner of the files
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--no-relative",
    "--ignore-submodules=all",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--patch-with-raw",
    "-z",
)
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ATTR_NOSYSTEM": "1",
}
_SECTION = re.compile(r"^diff --(?:git|cc|combined) ", re.MULTILINE)
_RAW = re.compile(r":[^\0]*\0([^\0]*)\0")
_GIT = CommandLine(argv=("git",), words=("git",), is_line=False, cwd="")
NO_REPOSITORY = "this is not a git repository"
UNREADABLE = "git's list of changed files cannot be read"


@dataclass(frozen=True, slots=True)
class GitDiff:
    """`core.ports.ReadDiff` for one workspace."""

    workspace: Workspace
    sandbox: Sandbox
    run_blocking: RunBlocking
    limits: CommandLimits

    async def __call__(self, path: str, *, is_staged: bool) -> Sequence[DiffSection]:
        """Return the changes of a file or folder, of the whole workspace for "".

        Raises ToolFailure.  Cancellation: git is killed.
        """
        command = await self.run_blocking(self._build, path, is_staged)
        output = OutputBuffer(head_bytes=MAX_BYTES, tail_bytes=0)
        try:
            error = await self._run(command, output)
        except SandboxFailure as failure:
            raise ToolFailure(failure.message) from failure
        if error == NO_REPOSITORY:
            root, level = str(self.workspace.root), self.sandbox.level
            why = await self.run_blocking(find_git_obstacle, root, level)
            raise ToolFailure(f"{error}: {why}" if why else error)
        if error:
            raise ToolFailure(error)
        is_cut = output.total_bytes > MAX_BYTES
        return split_diff(output.read(0, MAX_BYTES).text, is_cut=is_cut)

    async def _run(self, command: Command, output: OutputBuffer) -> str:
        """Run git and return the first line of its error; "" for success."""
        error = b""
        async with self.sandbox.open(command) as child:
            limit = await read_until_exit(child, output, DiskWatch())
            if child.stderr is not None and not limit:
                error = bytes(await child.stderr.receive_some(_ERROR_BYTES))
        child.check_started()
        if limit:
            return "the changes are too large: name a path"
        if child.ending is not None and child.ending.exit_code == 0:
            return ""
        return _explain(error, None if child.ending is None else child.ending.exit_code)

    def _build(self, path: str, is_staged: bool) -> Command:  # noqa: FBT001 - called in a thread
        normal = self.workspace.resolve(path)
        git = find_binary(self.workspace, _GIT)
        root = str(self.workspace.root)
        return Command(
            argv=(git, *_OPTIONS, *(["--cached"] if is_staged else []), "--", normal or "."),
            cwd=root,
            environment={**_ENVIRONMENT, "GIT_WORK_TREE": root},  # above core.worktree
            workspace=self.workspace.root,
            limits=self.limits,
        )


def _explain(error: bytes, exit_code: int | None) -> str:
    """Return why git failed, in words of ours: programs of the repository write to its error stream."""
    if b"not a git repository" in error.lower():
        return NO_REPOSITORY
    return "git failed" if exit_code is None else f"git failed with exit code {exit_code}"


def split_diff(text: str, *, is_cut: bool) -> list[DiffSection]:
    """Split git's output into sections by file, without those of private files.

    Raises ToolFailure if list and patch do not belong together, as for a file name that imitates
    the beginning of a section.
    """
    paths: list[str] = []
    at = 0
    while (entry := _RAW.match(text, at)) is not None:
        paths.append(entry[1])
        at = entry.end()
    if not text:
        return []
    text = text[at:].removeprefix("\0")
    starts = [found.start() for found in _SECTION.finditer(text)]
    if is_cut and starts:
        paths = paths[: len(starts)]
    if not starts or len(starts) != len(paths):
        raise ToolFailure(UNREADABLE)
    ends = [*starts[1:], len(text)]
    sections = []
    for path, start, end in zip(paths, starts, ends, strict=True):
        header = text[start:end].partition("\n")[0]
        if not header.endswith(path):
            raise ToolFailure(UNREADABLE)
        normal = normal_path(path)
        if normal is not None and not is_private(normal):
            sections.append(DiffSection(normal, text[start:end]))
    return sections
