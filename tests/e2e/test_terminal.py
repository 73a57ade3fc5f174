"""The commands of a terminal against the real daemon with the scripted model."""

from pathlib import Path

import msgspec
import pytest

from palyra.client import connect
from tests.cli.command import palyra
from tests.cli.test_real_daemon import real_daemon

pytestmark = pytest.mark.real

WRITE = '/call write_file {"path": "note.txt", "content": "x"}'


async def test_answer_that_does_not_fit_the_schema_ends_in_part(tmp_path: Path) -> None:
    """--json-schema accepts an answer that fits, and rejects one that does not, once."""
    schema = tmp_path / "answer.json"
    schema.write_bytes(msgspec.json.encode({"type": "object", "required": ["name"]}))
    async with real_daemon(tmp_path) as daemon:
        fits = await palyra(
            "run", '/say {"name": "x"}', "--json-schema", str(schema), home=daemon.home
        )
        fails = await palyra("run", '/say {"n": 1}', "--json-schema", str(schema), home=daemon.home)
        schema.write_bytes(b'{"type": "no type"}')
        refused = await palyra("run", "hello", "--json-schema", str(schema), home=daemon.home)
    assert (0, {"name": "x"}) == (fits.code, fits.json)
    assert 4 == fails.code
    assert (2, "answer_schema" in refused.err) == (refused.code, True)


async def test_continue_goes_on_with_the_last_conversation(tmp_path: Path) -> None:
    """--continue takes the session of the newest interactive run, not that of a background run."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        nothing = await palyra("run", "again", "--continue", home=daemon.home)
        first = await client.start_run("/say one")
        await client.wait_run(first.run_id)
        other = await client.start_run("/say two", origin="background")
        await client.wait_run(other.run_id)
        done = await palyra("run", "again", "--continue", home=daemon.home)
        again = await client.get_run(done.err.split()[1])
    assert (2, 0) == (nothing.code, done.code)
    assert first.session_id == again.session_id


async def test_listed_tool_is_allowed_without_a_terminal(tmp_path: Path) -> None:
    """--approve write_file writes the file; without it the command exits with 6 and leaves the run open."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        left = await palyra("run", WRITE, home=daemon.home)
        waiting = await client.list_runs()
        assert not (daemon.workspace / "note.txt").exists()
        allowed = await palyra("run", WRITE, "--approve", "write_file", home=daemon.home)
        assert "x" == (daemon.workspace / "note.txt").read_text()
    assert (6, "awaiting_approval") == (left.code, waiting.runs[0].phase)
    assert 0 == allowed.code
