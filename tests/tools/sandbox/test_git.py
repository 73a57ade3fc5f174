"""git in a jail: a repository can be committed to, and the masks are no files of it."""

import subprocess
from pathlib import Path

import pytest
import trio

from palyra.tools.sandbox.command import Command
from tests.optional import needs
from tests.tools.sandbox.jails import needs_bubblewrap, open_sandbox, run

pytestmark = [
    pytest.mark.real,
    needs_bubblewrap,
    needs("git"),
]
COMMIT = "git -c user.name=ann -c user.email=ann@example.org commit -qm first"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A new one, with one file."""
    tmp_path.chmod(0o755)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("a", "utf-8")
    return tmp_path


async def sh(root: Path, line: str) -> str:
    """The output of a successful line for /bin/sh, in a jail of its own over that folder."""
    argv = ("/bin/sh", "-c", line)
    command = Command(argv=argv, workspace=root, is_writable=True, cwd=str(root))
    async with open_sandbox() as sandbox:
        output, ending = await run(sandbox, command)
    assert 0 == ending.exit_code, output
    return output


def names(folder: Path) -> set[str]:
    """The entries of a folder of the host."""
    return {path.name for path in folder.iterdir()}


async def test_everything_can_be_added_and_committed(repository: Path) -> None:
    """And of the masks nothing is listed, added or left."""
    assert "?? a.txt\n" == await sh(repository, "git status --short")
    listed = await sh(repository, f"git add -A && {COMMIT} && git ls-tree -r --name-only HEAD")
    assert "a.txt\n" == listed
    assert not await sh(repository, "git status --short")
    assert {".git", "a.txt"} == names(repository)


async def test_instructions_that_are_there_are_seen(repository: Path) -> None:
    """As git sees them: what is not tracked is listed, what was changed too."""
    (repository / "AGENTS.md").write_text("first", "utf-8")
    assert "?? AGENTS.md\n?? a.txt\n" == await sh(repository, "git status --short")
    await sh(repository, f"git add -A && {COMMIT}")
    (repository / "AGENTS.md").write_text("second", "utf-8")
    assert " M AGENTS.md\n" == await sh(repository, "git status --short")


async def test_the_list_cannot_be_changed(repository: Path) -> None:
    """The list is read-only, and files can be created next to it."""
    ignore = "$HOME/.config/git/ignore"
    await sh(repository, f"! echo x >> {ignore} && ! rm -f {ignore} && touch $HOME/.config/x")


async def test_git_ignores_places_for_secrets(repository: Path) -> None:
    """They look empty and do not disturb git, at any depth."""
    (repository / "part").mkdir()
    for name in (".env", "part/.env.[x]", "part/b.txt", "part/.env.x"):
        (repository / name).write_text("SECRET=1", "utf-8")
    listed = await sh(repository, f"git add -A && {COMMIT} && git ls-tree -r --name-only HEAD")
    assert "a.txt\npart/b.txt\n" == listed
    assert not await sh(repository, "git status --short")
    assert "SECRET=1" == (repository / ".env").read_text("utf-8")


async def test_a_tracked_secret_is_not_committed_empty(repository: Path) -> None:
    """Git refuses the mask as a file; with an exclusion it commits the rest."""
    (repository / ".env").write_text("SECRET=1", "utf-8")
    await trio.run_process(["git", "-C", repository, "add", "-A"])
    await sh(repository, COMMIT)
    (repository / "a.txt").write_text("changed", "utf-8")
    refused = await sh(repository, "! git add -A")
    assert "error: .env: can only add regular files" in refused
    without = "git add -A -- . ':(exclude,glob)**/.env'"
    assert "a.txt\n" == await sh(
        repository, f"{without} && {COMMIT} && git show --name-only --format= HEAD"
    )
    assert " M .env\n" == await sh(repository, "git status --short")
    done = await trio.run_process(
        ["git", "-C", repository, "status", "--short"], capture_stdout=True
    )
    assert b"" == done.stdout


BARE = """
mkdir -p objects refs; echo ref: refs/heads/x > HEAD
git config -f config core.repositoryformatversion 0
git config -f config core.bare false; git config -f config core.worktree $PWD
git config -f config core.fsmonitor "touch $PWD/obeyed; :"
"""


@pytest.mark.parametrize("is_jailed", [True, False], ids=["jail", "the control"])
async def test_the_workspace_is_not_made_a_repository(tmp_path: Path, *, is_jailed: bool) -> None:
    """Also not by what git takes for a bare one, whose configuration it would obey."""
    if is_jailed:
        await sh(tmp_path, f"{BARE} true")
    else:
        await trio.run_process(["/bin/sh", "-c", BARE], cwd=tmp_path)
    await trio.run_process(["git", "status"], cwd=tmp_path, capture_stderr=True, check=False)
    assert (tmp_path / "obeyed").exists() is not is_jailed
    assert (tmp_path / "HEAD").exists() is not is_jailed
