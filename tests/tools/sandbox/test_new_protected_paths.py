"""New configuration of other programs, created by a program at protected names."""

import subprocess
from pathlib import Path

import pytest
import trio

from palyra.tools.sandbox.command import Command
from palyra.tools.sandbox.restored_paths import RestoredPaths
from tests.optional import needs
from tests.tools.sandbox.jails import needs_bubblewrap, open_sandbox, run

pytestmark = [
    pytest.mark.real,
    needs_bubblewrap,
    needs("git"),
]
# By hand, not from the rules: what they forget is found here.
AT_THE_TOP = (
    ".github/workflows/x.yml", ".github/copilot-instructions.md", ".gitlab-ci.yml",
    ".circleci/config.yml", ".gitmodules", ".gitattributes", ".gitconfig",
    ".pre-commit-config.yaml", ".husky/pre-push", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".pnpmfile.cjs", ".bashrc", ".bash_profile", ".zshenv", ".profile", ".editorconfig", ".netrc",
    ".git-credentials", ".ssh/authorized_keys", ".aws/credentials", ".config/gh/hosts.yml", ".env",
    ".env.local", ".envrc", ".vscode/tasks.json", ".mcp.json", "AGENTS.md", "PALYRA.md",
)  # fmt: skip
IN_GIT = (
    "config.worktree", "commondir", "hooks/pre-push", "info/attributes", "objects/info/alternates",
    "remotes/origin", "branches/origin", "modules/x/config", "worktrees/x/gitdir",
)  # fmt: skip
PATHS = (*AT_THE_TOP, *(f".git/{path}" for path in IN_GIT))
MAKE = 'for path do mkdir -p "${path%/*}"; echo evil > "$path"; done'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One that has nothing of all that."""
    tmp_path.chmod(0o755)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


async def make_all(root: Path, *, is_jailed: bool) -> tuple[str, ...]:
    """A program tries every path; what the sandbox had to put back."""
    argv = ("/bin/sh", "-c", MAKE, "sh", *(f"./{path}" for path in PATHS))
    if not is_jailed:
        await trio.run_process(argv, cwd=root)
        return ()
    command = Command(argv=argv, workspace=root, is_writable=True, cwd=str(root))
    async with open_sandbox() as sandbox, sandbox.open(command) as child:
        await child.wait()
    return child.restored


def all_below(root: Path) -> set[str]:
    """Everything but what was set aside."""
    found = (str(path.relative_to(root)) for path in root.rglob("*"))
    return {path for path in found if ".set-aside-" not in path}


def evil_below(root: Path) -> set[str]:
    """Where the orders are found now."""
    return {path for path in PATHS if (root / path).is_file()}


@pytest.mark.parametrize("has_parents", [False, True], ids=["nothing there", "folders there"])
async def test_no_protected_configuration_can_be_created(
    repository: Path, *, has_parents: bool
) -> None:
    """Also in an existing `.github`; other names are set aside and reported."""
    if has_parents:
        (repository / ".github").mkdir()
        (repository / ".config").mkdir()
    before = all_below(repository) - {".github", ".config"}
    restored = await make_all(repository, is_jailed=True)
    assert set() == evil_below(repository)
    assert {
        ".git/commondir", ".git/info/attributes", ".github/workflows", ".npmrc", ".ssh",
    } <= set(restored)  # fmt: skip
    assert {".vscode", ".mcp.json", "AGENTS.md"}.isdisjoint(restored), "these cannot even be made"
    assert before == all_below(repository) - {".github", ".config"}


SWAPS = {
    ".git/info": "mv .git/info was; mkdir x; echo evil > x/attributes; ln -s ../x .git/info",
    ".github": "mkdir -p x/workflows; echo evil > x/workflows/x.yml; ln -s x .github",
}


@pytest.mark.parametrize("path", SWAPS)
async def test_a_link_on_the_way_is_set_aside_too(repository: Path, path: str) -> None:
    """A program that may make folders can have its orders found behind one."""
    command = Command(
        argv=("/bin/sh", "-c", SWAPS[path]),
        workspace=repository,
        is_writable=True,
        cwd=str(repository),
    )
    async with open_sandbox() as sandbox, sandbox.open(command) as child:
        await child.wait()
    assert (path,) == child.restored
    assert set() == evil_below(repository)


async def test_a_read_only_program_keeps_no_state_to_restore(repository: Path) -> None:
    """Changes of a person after it ended are not reverted."""
    link = repository / ".vscode"
    link.symlink_to("mine")
    argv = ("/bin/true",)
    async with open_sandbox() as sandbox:
        await run(sandbox, Command(argv=argv, workspace=repository, cwd=str(repository)))
        await run(sandbox, Command(argv=argv))
        link.unlink()
        link.symlink_to("other")
        writes = Command(argv=argv, workspace=repository, cwd=str(repository), is_writable=True)
        async with sandbox.open(writes) as child:
            await child.wait()
    assert () == child.restored
    assert Path("other") == link.readlink()


@pytest.mark.parametrize("lasts", [True, False], ids=["a server", "the control"])
def test_files_created_during_a_server_stay(tmp_path: Path, *, lasts: bool) -> None:
    """They existed when the next program started, and their author is unknown."""
    restored, root = RestoredPaths(), str(tmp_path)
    server = restored.snapshot(root, lasts=lasts)
    (tmp_path / ".npmrc").touch()
    program = restored.snapshot(root)
    (tmp_path / ".env").touch()
    assert [".env"] == restored.restore(root, program)
    assert ([] if lasts else [".npmrc"]) == restored.restore(root, server)
    assert (tmp_path / ".npmrc").exists() is lasts


async def test_control_without_a_jail_everything_is_made(repository: Path) -> None:
    """Every path of the list can be made."""
    await make_all(repository, is_jailed=False)
    assert set(PATHS) == evil_below(repository)


async def test_other_files_can_be_created(repository: Path) -> None:
    """Only names of the table are held, in folders that existed."""
    (repository / ".github").mkdir()
    line = (
        "mkdir .github/ISSUE_TEMPLATE && echo x > .github/ISSUE_TEMPLATE/bug && echo x > .gitignore"
    )
    command = Command(
        argv=("/bin/sh", "-c", line), workspace=repository, is_writable=True, cwd=str(repository)
    )
    async with open_sandbox() as sandbox:
        output, ending = await run(sandbox, command)
    assert (0, "") == (ending.exit_code, output)
    assert (repository / ".github/ISSUE_TEMPLATE/bug").is_file()


async def test_git_says_nothing_of_what_is_held(repository: Path) -> None:
    """No warning, no new file, no failure, in what people do every day."""
    (repository / "a.txt").write_text("a", "utf-8")
    line = (
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x.org GIT_COMMITTER_NAME=a"
        " GIT_COMMITTER_EMAIL=a@x.org; git add -A && git commit -qm x && git gc -q && git fsck"
        " && git clean -qfd && git switch -qc y && git stash list && git status --short"
        " && git submodule status && git ls-files"
    )
    command = Command(
        argv=("/bin/sh", "-c", line), workspace=repository, is_writable=True, cwd=str(repository)
    )
    async with open_sandbox() as sandbox:
        output, ending = await run(sandbox, command)
    assert (0, "a.txt\n") == (ending.exit_code, output)
