"""`palyra mcp`: what a jailed server does not see."""

from pathlib import Path

import msgspec

from palyra.cli.mcp import find_hidden_folders, without_defaults
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
