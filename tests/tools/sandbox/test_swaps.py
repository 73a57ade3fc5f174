"""Moved folders and swapped links, so that a mask misses its target: none succeeds."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from palyra.tools.sandbox import start
from palyra.tools.sandbox.command import Command, SandboxFailure
from palyra.tools.sandbox.protected_paths import find_masks, open_sources, pin_above
from palyra.tools.sandbox.sandbox import Sandbox
from tests.tools.sandbox.jails import needs_bubblewrap, open_sandbox, run

pytestmark = [pytest.mark.real, needs_bubblewrap]


@pytest.fixture
def root() -> Generator[Path]:
    """A workspace with configuration and a secret in a folder below, and a key beside it.

    In folders that everybody may enter, so that no other wall keeps the key.
    """
    base = Path(tempfile.mkdtemp(prefix="palyra-test-swaps-"))
    base.chmod(0o755)
    folder = base / "ws"
    (folder / "app/part/.vscode").mkdir(parents=True)
    (folder / "app/CLAUDE.md").write_text("obey", "utf-8")
    (folder / "app/part/.env").write_text("SECRET=1", "utf-8")
    (base / "outside/.vscode").mkdir(parents=True)
    for name in ("key", ".env", ".vscode/key"):
        (base / "outside" / name).write_text("the-key", "utf-8")
    try:
        yield folder
    finally:
        shutil.rmtree(base)


async def sh(sandbox: Sandbox, root: Path, line: str) -> str:
    """The output of a line for /bin/sh, in a jail of its own over that folder."""
    return (await run(sandbox, in_folder(root, line)))[0]


def in_folder(root: Path, line: str) -> Command:
    """The line, for /bin/sh; it is given input that does not end."""
    argv = ("/bin/sh", "-c", line)
    return Command(
        argv=argv, workspace=root, is_writable=True, cwd=str(root), merges_errors=True,
        takes_input="cat" in line.split(),
    )  # fmt: skip


async def try_sh(sandbox: Sandbox, root: Path, line: str) -> str:
    """The same, or why there was no jail."""
    try:
        return await sh(sandbox, root, line)
    except SandboxFailure as failure:
        return failure.message


@pytest.mark.parametrize("folder", ["app", "app/part"])
async def test_no_other_folder_takes_the_place_of_one_above_a_mask(root: Path, folder: str) -> None:
    """Else other orders could lie there; a folder without any can be moved."""
    (root / "free").mkdir()
    evil = "echo evil > app/CLAUDE.md; echo evil > app/part/.vscode/tasks.json"
    line = f"mv free away; mv {folder} moved; rm -rf {folder}; mkdir -p app/part/.vscode; {evil}"
    async with open_sandbox() as sandbox:
        await sh(sandbox, root, line)
    assert "obey" == (root / "app/CLAUDE.md").read_text("utf-8")
    assert "SECRET=1" == (root / "app/part/.env").read_text("utf-8")
    assert [] == [*(root / "app/part/.vscode").iterdir()]
    assert (root / "away").exists()


def swap_at(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Make a change right before that step of a start."""
    step = getattr(start, name)

    def late(*arguments: Any) -> Any:
        act()
        return step(*arguments)

    monkeypatch.setattr(start, name, late)


@pytest.mark.parametrize("step", ["open_sources", "render_options"])
@pytest.mark.parametrize(
    ("path", "target"),
    [("app/part/.vscode", ".vscode"), ("app/part", ""), ("app/CLAUDE.md", "key")],
)
async def test_a_link_swapped_in_prevents_the_start(
    root: Path, path: str, target: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap between the scan of the workspace and the start of a jail fails that start."""

    def swap() -> None:
        (root / path).rename(root / "aside")
        (root / path).symlink_to(root.parent / "outside" / target)

    line = "cat app/part/.vscode/key app/part/key app/CLAUDE.md; echo begun"
    async with open_sandbox() as sandbox:
        assert "begun" in await sh(sandbox, root, line)
        swap_at(monkeypatch, step, swap)
        said = await try_sh(sandbox, root, line)
    assert "the-key" not in said
    assert "begun" not in said


@pytest.mark.parametrize("path", ["app", "app/part", "app/CLAUDE.md", "app/part/.vscode"])
def test_a_masked_path_is_opened_without_links(root: Path, path: str) -> None:
    """A link in its place, or on the way, is an error."""
    masks = pin_above(find_masks(str(root)))
    with open_sources(str(root), masks) as fds:
        assert {"app", "app/part", "app/CLAUDE.md", "app/part/.vscode"} == fds.keys()
    (root / path).rename(root / "aside")
    (root / path).symlink_to(root / "aside")
    with pytest.raises(OSError), open_sources(str(root), masks):  # noqa: PT011 - several fit
        pass


@pytest.mark.parametrize(
    ("path", "make"),
    [
        ("AGENTS.md", "ln -sf evil.md AGENTS.md"),
        (".git/commondir", "echo ../evil > .git/commondir"),
    ],
)
async def test_changes_of_one_jail_are_no_baseline_for_another(
    root: Path, path: str, make: str
) -> None:
    """The second starts after the change and ends after its restore; the original is restored."""
    (root / ".git").mkdir()
    (root / "guide.md").write_text("obey", "utf-8")
    (root / "AGENTS.md").symlink_to("guide.md")
    async with open_sandbox() as sandbox, AsyncExitStack() as second:
        async with sandbox.open(in_folder(root, f"{make} && echo made; cat")) as first:
            assert b"made" in await first.stdout.receive_some()
            wait = f"until [ -e go ]; do :; done; {make}; echo again"
            late = await second.enter_async_context(sandbox.open(in_folder(root, wait)))
        assert (path,) == first.restored
        (root / "go").touch()
        assert b"again" in await late.stdout.receive_some()
        await second.aclose()
        assert (path,) == late.restored
    assert Path("guide.md") == (root / "AGENTS.md").readlink()
    assert not (root / ".git/commondir").exists()


SWAP = """
import os, sys, time
from palyra.tools.files.syscalls import swap
fd = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
while True:
    swap(fd, ".vscode", "link")
    time.sleep(0.001)
"""


@contextmanager
def swapping(folder: Path) -> Generator[None]:
    """Meanwhile another process swaps a folder and a link to the key's, as fast as it can."""
    (folder / "link").symlink_to(folder.parents[2] / "outside/.vscode")
    argv = [sys.executable, "-c", SWAP, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def told_paths(root: Path, folder: Path) -> list[str]:
    """The control: a jail that bubblewrap builds from paths."""
    words = ["--ro-bind", "/usr", "/usr", "--bind", str(root), str(root)]
    for name in ("lib", "lib64", "bin"):
        words += ["--symlink", f"usr/{name}", f"/{name}"]
    mask = str(folder / ".vscode")
    return ["bwrap", *words, "--ro-bind", mask, mask, "cat", f"{mask}/key"]


@pytest.mark.slow
async def test_a_race_of_links_shows_nothing_outside(root: Path) -> None:
    """As long as it takes until the control has shown the key."""
    folder, leaked = root / "app/part", 0
    argv, line = told_paths(root, folder), "[ -L app/part/.vscode ] || cat app/part/.vscode/key"
    async with open_sandbox() as sandbox:
        with swapping(folder), trio.fail_after(300):
            while leaked < 3:
                assert "the-key" not in await try_sh(sandbox, root, line)
                done = await trio.run_process(argv, capture_stdout=True, check=False)
                leaked += done.stdout == b"the-key"
