"""`palyra mcp`: programs to add, and what a jailed server does not see."""

from pathlib import Path

import msgspec
import pytest

from palyra.cli.command.errors import CommandFailed
from palyra.cli.mcp import find_hidden_folders, find_program, without_defaults
from palyra.config.sections import McpServerConfig


def test_hidden_folders_of_a_server_are_found_through_links(tmp_path: Path) -> None:
    """An environment, the interpreter that it links to and the script's folder are named, each once."""
    real, link = tmp_path / "python" / "bin" / "python3", tmp_path / "venv" / "bin" / "python3"
    script = tmp_path / "servers" / "town.py"
    for each in (real, link, script):
        each.parent.mkdir(parents=True)
    real.touch(mode=0o755)
    script.touch()
    link.symlink_to(real)
    words = [str(script), "--verbose", str(script.parent), "/usr/share"]
    wanted = [str(tmp_path / each) for each in ("venv", "python", "servers")]
    assert wanted == find_hidden_folders(str(link), words, ["/usr"])
    assert not find_hidden_folders(str(link), words, ["/usr", *wanted])


def test_entry_is_written_without_its_defaults() -> None:
    """Adding or removing one server leaves the others as short as they were."""
    whole = msgspec.json.decode(msgspec.json.encode(McpServerConfig(name="files", command=("ls",))))
    assert {"name": "files", "command": ["ls"]} == without_defaults(whole)


def test_program_of_a_server_is_looked_for_before_it_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name in PATH, by path from the present folder; the path that is written is absolute."""
    program = tmp_path / "bin" / "server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.chdir(tmp_path)
    wanted = {
        str(program): "cannot be run",  # not executable yet
        "bin": "no program bin",
        "./bin": "cannot be run",
        "other": "no program other",
        "/no/such/prog": "no program /no/such/prog",
    }
    for name, problem in wanted.items():
        with pytest.raises(CommandFailed, match=problem) as failed:
            find_program(name)
        assert failed.value.remedy
        looked = str(program.parent) if name in {"bin", "other"} else ""
        assert looked in failed.value.remedy
    program.chmod(0o700)
    assert [str(program)] * 3 == [
        find_program(each) for each in ("server", "bin/server", str(program))
    ]
