"""`palyra checkpoints` and `palyra artifacts`, against a fake daemon."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from palyra.cli.command.errors import FAILED
from tests.cli.command import palyra
from tests.client.fake_daemon import Connection, FakeDaemon, Json, Refusal, fake_daemon

pytestmark = pytest.mark.real

CHECKPOINT: Json = {
    "checkpoint_id": "ckp_1",
    "principal": "ann",
    "session_id": "ses_1",
    "run_id": "run_1",
    "call_id": "call_1",
    "tool": "apply_patch",
    "workspace": "/w",
    "created_ms": 1,
    "files": [
        {"path": "a.py", "before_sha256": "0" * 64, "after_sha256": "1" * 64},
        {"path": "new\u202e.py", "after_sha256": "2" * 64},
        {"path": "old.py", "before_sha256": "3" * 64},
    ],
}
RESTORED: Json = {
    "restored": "ckp_1",
    "side": "before",
    "files": ["a.py"],
    "checkpoint_id": "ckp_2",
}


@asynccontextmanager
async def answering(method: str, answer: Json | Refusal) -> AsyncGenerator[FakeDaemon]:
    """A fake daemon that has one answer."""

    def reply(_connection: Connection, _params: Json) -> Json:
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async with fake_daemon() as daemon:
        daemon.answers[method] = reply
        yield daemon


async def test_checkpoints_are_listed() -> None:
    """Every file of each, and what became of it; names are made safe to show."""
    answer: Json = {"checkpoints": [CHECKPOINT], "next_cursor": "ckp_1"}
    async with answering("checkpoint.list", answer) as daemon:
        shown = await palyra("checkpoints", "list", "--run", "run_1", url=daemon.url)
        as_json = await palyra("checkpoints", "list", "--json", url=daemon.url)
    for text in ("ckp_1", "apply_patch", "a.py", "changed", r"new\u202e.py", "created", "deleted"):
        assert text in shown.out
    assert "--after ckp_1" in shown.out + shown.err
    assert as_json.json["checkpoints"][0]["files"][2]["path"] == "old.py"


async def test_files_are_restored() -> None:
    """The output lists the files and the command that undoes the restore."""
    async with answering("checkpoint.restore", RESTORED) as daemon:
        done = await palyra("checkpoints", "restore", "ckp_1", url=daemon.url)
        as_json = await palyra("checkpoints", "restore", "ckp_1", "--json", url=daemon.url)
    assert (0, True) == (done.code, "a.py is as before" in done.out)
    assert "palyra checkpoints restore ckp_2" in done.out + done.err
    assert as_json.json == RESTORED


async def test_nothing_to_restore() -> None:
    """The output says so."""
    nothing: Json = {"restored": "ckp_1", "side": "after", "files": [], "checkpoint_id": None}
    async with answering("checkpoint.restore", nothing) as daemon:
        done = await palyra("checkpoints", "restore", "ckp_1", "--to", "after", url=daemon.url)
    assert "nothing to do" in done.out


async def test_a_conflict_has_its_reason_and_exit_code() -> None:
    """Scripts recognise a conflict by its exit code."""
    refusal = Refusal("conflict", "a.py: changed since")
    async with answering("checkpoint.restore", refusal) as daemon:
        done = await palyra("checkpoints", "restore", "ckp_1", url=daemon.url)
    assert done.code != 0
    assert "changed since" in done.err


async def test_an_output_is_printed_whole() -> None:
    """Page after page, and nothing but the output."""
    piece: Json = {
        "artifact": "a" * 64, "run_id": "run_1", "call_id": "call_1", "tool": "shell",
        "trust": "workspace", "created_ms": 1, "size_bytes": 8, "offset": 0, "line": 1,
        "text": "one\ntwo\n",
    }  # fmt: skip
    async with answering("artifact.read", piece) as daemon:
        printed = await palyra("artifacts", "print", "ses_1", "a" * 64, url=daemon.url)
    assert (0, "one\ntwo\n") == (printed.code, printed.out)


async def test_a_deleted_artifact_is_an_error() -> None:
    """The error says that it is no longer stored."""
    async with answering("artifact.read", Refusal("not_found", "no artifact")) as daemon:
        printed = await palyra("artifacts", "print", "ses_1", "a" * 64, url=daemon.url)
    assert (FAILED, True) == (printed.code, "no artifact" in printed.err)
