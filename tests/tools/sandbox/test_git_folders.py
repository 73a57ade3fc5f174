"""git where `.git` is a file: linked worktrees and submodules, and what stays closed there."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from palyra.actors.kernel.threads import run_sync
from palyra.core.tool.spec import ToolCall, ToolFailure
from palyra.tools.files.workspace import Workspace
from palyra.tools.programs.git_diff import GitDiff
from palyra.tools.programs.program import CommandEnvironment
from palyra.tools.programs.shell import Shell, shell_spec
from palyra.tools.sandbox.command import Command, CommandLimits
from palyra.tools.sandbox.git_folders import find_git_folder, find_git_obstacle
from tests.optional import needs
from tests.tools.sandbox.jails import needs_bubblewrap, open_sandbox

pytestmark = [pytest.mark.real, needs_bubblewrap, needs("git")]
ANN = (
    "-c",
    "user.name=ann",
    "-c",
    "user.email=ann@example.org",
    "-c",
    "protocol.file.allow=always",
)
COMMIT = "git -c user.name=ann -c user.email=ann@example.org commit -qm second"
RESTORED: list[str] = []


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *ANN, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def new_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("a\n", "utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def linked(tmp_path: Path) -> Path:
    """A worktree beside its repository, which has another one."""
    main = new_repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "other"))
    git(main, "worktree", "add", "-q", str(tmp_path / "feature"))
    return tmp_path / "feature"


def linked_to_bare(tmp_path: Path) -> Path:
    """A worktree of a repository without a working tree, beside it."""
    main = new_repository(tmp_path / "origin")
    git(tmp_path, "clone", "-q", "--bare", str(main), str(tmp_path / "all" / ".bare"))
    git(tmp_path / "all" / ".bare", "worktree", "add", "-q", "../feature", "-b", "feature")
    return tmp_path / "all" / "feature"


def inside(tmp_path: Path) -> Path:
    """A worktree in a folder of its own repository."""
    main = new_repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(main / ".trees" / "feature"))
    return main / ".trees" / "feature"


def submodule(tmp_path: Path) -> Path:
    part = new_repository(tmp_path / "part")
    whole = new_repository(tmp_path / "whole")
    git(whole, "submodule", "--quiet", "add", str(part), "lib/part")
    return whole / "lib" / "part"


KINDS = [linked, linked_to_bare, inside, submodule]
Make = Callable[[Path], Path]


async def sh(root: Path, line: str, *, code: int | None = 0) -> str:
    """The output of a line for /bin/sh, in a jail over that folder."""
    for folder in root.parents[:3]:
        folder.chmod(0o755)
    command = Command(
        argv=("/bin/sh", "-c", line), workspace=root, is_writable=True, cwd=str(root),
        merges_errors=True,
    )  # fmt: skip
    output = b""
    async with open_sandbox() as sandbox, sandbox.open(command) as child:
        async for piece in child.stdout:
            output += piece
        ending = await child.wait()
    RESTORED[:] = child.restored
    assert code in {None, ending.exit_code}, output
    return output.decode()


@pytest.mark.parametrize("make", KINDS)
async def test_a_program_works_with_git(make: Make, tmp_path: Path) -> None:
    """It reads, commits, branches and stashes, and the host sees the same repository."""
    root = make(tmp_path)
    (root / "b.txt").write_text("b\n", "utf-8")
    assert "?? b.txt\n" == await sh(root, "git status --short")
    line = f"git add -A && {COMMIT} && git log --format=%s && git branch new && git tag v1"
    assert "second\nfirst\n" == await sh(root, line)
    assert "second\nfirst\n" == git(root, "log", "--format=%s")
    assert "new" in git(root, "branch", "--format=%(refname:short)")
    who = "-c user.name=ann -c user.email=ann@example.org"
    await sh(
        root, f"echo c >> b.txt && git {who} stash -q && git diff --exit-code && git stash pop -q"
    )
    assert " M b.txt\n" == git(root, "status", "--short")
    git(root, "fsck", "--strict")


@pytest.mark.parametrize("make", KINDS)
async def test_a_diff_for_a_prompt_is_read(make: Make, tmp_path: Path) -> None:
    """With the workspace and its git folder read-only."""
    root = make(tmp_path)
    (root / "a.txt").write_text("changed\n", "utf-8")
    async with open_sandbox() as sandbox:
        read = GitDiff(Workspace(root), sandbox, run_sync, CommandLimits())
        sections = await read("", is_staged=False)
    assert ["a.txt"] == [section.path for section in sections]


CLOSED = [
    "$common/config", "$common/hooks/pre-commit", "$common/objects/info/alternates",
    "$own/commondir", "$own/gitdir", "$own/config.worktree", "$own/config.worktree/x",
    "$own/modules/x", "$common/info/attributes", "$common/worktrees/other/HEAD",
    "$common/worktrees/new/HEAD", "$common/remotes/x", "$common/branches/x", "$common/modules/x",
    "$common/config.worktree", ".git",
]  # fmt: skip
TRY = """
own=$(git rev-parse --absolute-git-dir); common=$(cd "$(git rev-parse --git-common-dir)" && pwd)
for path in {paths}; do
  mkdir -p "$(dirname "$path")" 2> /dev/null
  if (echo evil > "$path") 2> /dev/null || mv "$path" "$path.x" 2> /dev/null || rm -r "$path" 2> /dev/null
  then echo "$path"; fi
done
for folder in hooks info objects/info worktrees . ; do
  if mv "$common/$folder" "$common/moved" 2> /dev/null; then echo "$folder"; fi
done
"""


@pytest.mark.parametrize("make", KINDS)
async def test_nothing_that_git_obeys_can_be_changed(make: Make, tmp_path: Path) -> None:
    """Configuration, hooks, links to other folders, other worktrees; the host's files are as before."""
    root = make(tmp_path)
    common = Path(git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
    (common / "hooks").mkdir(exist_ok=True)
    before = _content(common)
    free = {"$own/commondir", "$own/gitdir"} if make is submodule else set()  # see below
    line = TRY.format(paths=" ".join(f'"{path}"' for path in CLOSED if path not in free))
    assert [] == (await sh(root, line)).splitlines()
    assert before == _content(common)


@pytest.mark.parametrize("make", KINDS)
async def test_control_without_a_jail_all_of_it_can_be_changed(make: Make, tmp_path: Path) -> None:
    """The control: the same line as a plain child reaches the configuration and the hooks."""
    root = make(tmp_path)
    line = TRY.format(paths=" ".join(f'"{path}"' for path in CLOSED))
    done = await trio.run_process(["/bin/sh", "-c", line], cwd=root, capture_stdout=True)
    assert b"/config\n" in done.stdout
    assert b"/hooks/pre-commit\n" in done.stdout


def _content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        # The index is refreshed by a look, logs are made, and mv may leave a copy.
        if not {"index", "logs", "moved"} & set(path.relative_to(folder).parts)
    }


async def test_a_common_folder_of_a_submodule_is_set_aside(tmp_path: Path) -> None:
    """It would make git read its configuration elsewhere; it cannot be covered, so it is renamed."""
    root = submodule(tmp_path)
    folder = Path(git(root, "rev-parse", "--absolute-git-dir").strip())
    await sh(root, f"mkdir -p evil; echo {root}/evil > {folder}/commondir")
    assert [f"{folder}/commondir"] == RESTORED
    assert not (folder / "commondir").exists()
    assert "a.txt\nevil\n" not in git(root, "status", "--short")


async def test_a_folder_that_does_not_name_the_workspace_is_not_shown(tmp_path: Path) -> None:
    """`.git` came with the content, so it may name any folder: another's repository stays unseen."""
    victim = linked(tmp_path)
    own = git(victim, "rev-parse", "--absolute-git-dir").strip()
    thief = tmp_path / "thief"
    thief.mkdir()
    for target in (own, str(tmp_path / "main" / ".git"), "../main/.git/worktrees/feature", "/etc"):
        (thief / ".git").write_text(f"gitdir: {target}\n", "utf-8")
        assert find_git_folder(str(thief), is_writable=True) is None
    assert "not a git repository" in await sh(thief, "git status", code=128)
    assert not await sh(thief, f"ls {tmp_path}/main 2> /dev/null; true")


@pytest.mark.parametrize("part", ["logs", "objects", "refs", "worktrees/feature/modules"])
async def test_links_in_the_folder_are_not_followed(tmp_path: Path, part: str) -> None:
    """A part that was replaced by a link is not mounted as what the link leads to."""
    root = linked(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    common = tmp_path / "main" / ".git"
    if (common / part).exists():
        (common / part).rename(common / f"{part}-before")
    (common / part).symlink_to(outside)
    await sh(root, f"echo evil > {common}/{part}/x; echo evil > {outside}/x", code=None)
    assert [] == list(outside.iterdir())


async def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    """The empty folders that masks need are gone after the jail."""
    root = linked(tmp_path)
    own = Path(git(root, "rev-parse", "--absolute-git-dir").strip())
    before = sorted(os.listdir(own))  # noqa: PTH208 - names
    await sh(root, "true")
    assert before == sorted(os.listdir(own))  # noqa: PTH208 - names


async def test_without_a_repository_the_reason_is_given(tmp_path: Path) -> None:
    """Below the top of a repository, or with a `.git` file nothing answers to; else nothing is said."""
    main = linked(tmp_path).parent / "main"
    part, plain = main / "deep" / "part", tmp_path / "plain"
    for folder in (part, plain):
        folder.mkdir(parents=True)
    lone = tmp_path / "lone"
    lone.mkdir()
    (lone / ".git").write_text("gitdir: ../nowhere\n", "utf-8")
    below = (
        f"the workspace lies below the top of a git repository, {main}, and programs see nothing"
    )
    unanswered = "does not name the workspace in turn (git worktree repair)"
    for folder, why in ((part, below), (lone, unanswered)):
        assert why in find_git_obstacle(str(folder), "A")
        assert (
            why in shell_spec("A", 60, git_obstacle=find_git_obstacle(str(folder), "A")).description
        )
        assert why in await shell_result(folder, "git status")
        async with open_sandbox() as sandbox:
            read = GitDiff(Workspace(folder), sandbox, run_sync, CommandLimits())
            with pytest.raises(ToolFailure, match="this is not a git repository: the workspace"):
                await read("", is_staged=False)
    for folder in (main, tmp_path / "feature", plain):
        assert not find_git_obstacle(str(folder), "A")
    assert "needs level A" in find_git_obstacle(str(tmp_path / "feature"), "B")
    assert (await shell_result(plain, "git status")).count("\n[") == 1


async def shell_result(root: Path, line: str) -> str:
    """The result of the tool."""
    around = CommandEnvironment(Workspace(root), CommandLimits(), {}, "A")
    call = ToolCall(
        call_id="call", run_id="run", session_id="ses", principal="alice", tool="shell",
        tool_version="1", arguments={"command": line},
    )  # fmt: skip
    async with open_sandbox() as sandbox:
        return (await Shell(sandbox, around, run_sync, 60).run(call, lambda _text: None)).text
