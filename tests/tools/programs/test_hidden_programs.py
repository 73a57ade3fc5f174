"""Interpreters of version managers: hidden at first, said to be, shown by the command that is named."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from palyra.actors.kernel.threads import run_sync
from palyra.core.tool.spec import ToolFailure
from palyra.errors import InvalidParams
from palyra.tools.files.workspace import Workspace
from palyra.tools.programs.program import CommandEnvironment
from palyra.tools.programs.shell import Shell
from palyra.tools.sandbox.command import CommandLimits
from palyra.tools.sandbox.toolchains import Toolchains, open_toolchains
from tests.optional import needs
from tests.tools.programs.test_shell import Shop
from tests.tools.sandbox.jails import needs_bubblewrap, open_sandbox

pytestmark = [pytest.mark.real]
_SET = re.compile(r"palyra config set sandbox\.(folders|path) (\S+?)(?=[ `])")


def apply_remedy(text: str) -> Toolchains:
    """The toolchains that the commands in the text configure."""
    found = {key: value.split(",") for key, value in _SET.findall(text)}
    return open_toolchains(found["folders"], found["path"], ())


_PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
_PYTHONS = sorted(_PYENV.glob("versions/3.1[1-9]*/bin/python3"))


@needs_bubblewrap
@needs("pyenv", is_found=bool(_PYTHONS))
async def test_the_tests_of_a_project_with_an_environment_of_pyenv_run(tmp_path: Path) -> None:
    """`make test` says that the sandbox hides the interpreter; the named command makes it pass."""
    python, root = _PYTHONS[0], tmp_path / "project"
    root.mkdir()
    await trio.run_process([python, "-m", "venv", "--without-pip", root / ".venv"])
    (root / "Makefile").write_text("test:\n\t.venv/bin/python -m unittest -q test_it\n")
    (root / "test_it.py").write_text(
        "import ssl, sqlite3, unittest\nclass T(unittest.TestCase):\n def test_it(self): pass\n"
    )
    around = CommandEnvironment(Workspace(root), CommandLimits(), {}, "A")
    async with open_sandbox() as sandbox:
        shop = Shop(Shell(sandbox, around, run_sync, 60), root)
        failed = await shop.run(argv=["make", "test"])
        assert failed.is_failure
        assert "the sandbox is the reason: .venv/bin/python leads to " in failed.text
        with pytest.raises(ToolFailure, match="the sandbox is the reason") as refused:
            await shop.run(argv=[".venv/bin/python", "-V"])
        shown = apply_remedy(failed.text)
        assert shown == apply_remedy(refused.value.message)
        shop = Shop(Shell(sandbox, replace(around, toolchains=shown), run_sync, 60), root)
        passed = await shop.run(argv=["make", "test"])
        assert not passed.is_failure, passed.text
        direct = await shop.run(argv=[".venv/bin/python", "-V"])
        assert direct.text.startswith("Python 3."), direct.text
        folder = shown.folders[0]
        refused_write = await shop.run(command=f"touch {folder}/new; ls -a ~ {folder}/..")
        assert "Read-only file system" in refused_write.text
        assert not await trio.Path(folder, "new").exists()
        assert ".ssh" not in refused_write.text


def make_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolchain with one program, on the PATH of the daemon only."""
    tool = tmp_path / "kit" / "bin" / "hammer"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho struck\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (tmp_path / "work").mkdir()
    return tool


@needs_bubblewrap
@pytest.mark.parametrize(
    "script",
    ["hammer", "make -f it", "/usr/bin/env hammer", "./run"],
)
async def test_a_program_of_the_daemons_path_is_named_with_its_setting(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the program is started: the note has the commands, and with them it runs."""
    make_tool(tmp_path, monkeypatch)
    root = tmp_path / "work"
    (root / "it").write_text("all:\n\thammer\n")
    (root / "run").write_text("#!/usr/bin/env hammer\n")
    (root / "run").chmod(0o755)
    around = CommandEnvironment(Workspace(root), CommandLimits(), {}, "A")
    async with open_sandbox() as sandbox:
        found = await Shop(Shell(sandbox, around, run_sync, 60), root).run(command=script)
        assert f"the sandbox is the reason: hammer is {tmp_path}/kit/bin/hammer" in found.text
        around = replace(around, toolchains=apply_remedy(found.text))
        found = await Shop(Shell(sandbox, around, run_sync, 60), root).run(command=script)
        assert "struck" in found.text


@needs_bubblewrap
async def test_other_failures_do_not_blame_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that this machine lacks, a missing file, and a success that prints an error."""
    make_tool(tmp_path, monkeypatch)
    root = tmp_path / "work"
    around = CommandEnvironment(Workspace(root), CommandLimits(), {}, "A")
    async with open_sandbox() as sandbox:
        shop = Shop(Shell(sandbox, around, run_sync, 60), root)
        for script in ("no-such-tool", "cat missing", "echo hammer: not found", "exit 3"):
            assert "the sandbox is the reason" not in (await shop.run(command=script)).text


def test_a_folder_is_judged_by_its_link_and_by_its_target(tmp_path: Path) -> None:
    """A link to a refused folder, a missing folder and a path outside of the folders are refused."""
    keys = tmp_path / ".ssh"
    keys.mkdir()
    (tmp_path / "tools").symlink_to(keys)
    (tmp_path / "good" / "bin").mkdir(parents=True)
    (tmp_path / "also").symlink_to(tmp_path / "good")
    for folder in (tmp_path / "tools", tmp_path / "none", tmp_path):
        with pytest.raises(InvalidParams, match=r"^sandbox\.folders: "):
            open_toolchains([str(folder)], [], ())
    with pytest.raises(InvalidParams, match=r"^sandbox\.path: "):
        open_toolchains([], [str(tmp_path / "good" / "bin")], ())
    with pytest.raises(InvalidParams, match="overlaps"):
        open_toolchains([str(tmp_path / "good")], [], [tmp_path / "good" / "bin"])
    made = open_toolchains([str(tmp_path / "also")], [str(tmp_path / "also" / "bin")], ())
    places = [bind.place for bind in made.binds("A")]
    assert [str(tmp_path / "good"), str(tmp_path / "also")] == places
    assert [str(tmp_path / "good")] == [bind.place for bind in made.binds("B")]
