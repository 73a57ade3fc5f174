"""`palyra documents`, against a fake daemon."""

import msgspec
import pytest

from tests.cli.command import palyra
from tests.cli.test_command import answering
from tests.client.fake_daemon import Json
from tests.net.api.fake_documents import FULL

pytestmark = pytest.mark.real

CHANGE: Json = msgspec.to_builtins(FULL)
LIST: Json = {
    "workspace": "/w",
    "writes": False,
    "documents": [
        {
            "document": "MEMORY.md",
            "exists": True,
            "size_bytes": 9,
            "problem": "line 3: \u202edamaged",
        },
        {"document": "USER.md", "exists": False},
    ],
}
VIEW: Json = {
    "document": "MEMORY.md",
    "version": 2,
    "sha256": "00",
    "size_bytes": 9,
    "blocks": [
        {
            "block": "facts",
            "entries": [
                {"entry_id": "mem_1", "text": "by the daemon", "asked": "by the daemon"},
                {"entry_id": "ent_1", "text": "by ann\u202e", "by": "ann"},
                {"entry_id": "ent_2", "text": "by a clone", "trust": "workspace"},
                {"entry_id": "mem_2", "text": ""},
            ],
        }
    ],
    "flags": CHANGE["flags"],
}
HISTORY: Json = {
    "document": "MEMORY.md",
    "versions": [
        {"version": 2, "at_ms": 1, "cause": "sync", "by": "ann", "sha256": "00", "size_bytes": 9,
         "entries": 4, "is_pending": True},
        {"version": 1, "at_ms": 1, "cause": "apply", "by": "", "sha256": "00", "size_bytes": 9,
         "entries": 3, "checkpoint_id": "ckp_1"},
    ],
    "next_before": 1,
}  # fmt: skip


async def test_documents_are_listed() -> None:
    """With the problem of one that cannot be read, safe to show, and the setting."""
    async with answering("document.list", LIST) as daemon:
        shown = await palyra("documents", "list", url=daemon.url)
        as_json = await palyra("documents", "list", "--json", url=daemon.url)
    assert r"problem: line 3: \u202edamaged" in shown.out
    assert "no file" in shown.out
    assert "documents.write" in shown.out + shown.err
    assert as_json.json["documents"][0]["document"] == "MEMORY.md"


async def test_a_document_is_shown() -> None:
    """Every entry with its author, and what was forgotten; texts are made safe to show."""
    async with answering("document.get", VIEW) as daemon:
        shown = await palyra("documents", "show", "MEMORY.md", "--version", "2", url=daemon.url)
    rows = [line.split(maxsplit=3)[1:] for line in shown.out.splitlines()[1:5]]
    assert rows == [
        ["mem_1", "daemon", "by the daemon"],
        ["ent_1", "ann", r"by ann\u202e"],
        ["ent_2", "file", "by a clone"],
        ["mem_2", "daemon", "(forgotten)"],
    ]
    assert "flagged facts: line 3: edited (not written: x)" in shown.out
    asked = [params for method, params in daemon.requests if method == "document.get"]
    assert asked == [{"document": "MEMORY.md", "version": 2}]


async def test_a_history_is_listed() -> None:
    """With a version whose write is not known, and the way to the next page."""
    async with answering("document.history", HISTORY) as daemon:
        shown = await palyra("documents", "history", "MEMORY.md", url=daemon.url)
    assert "sync (not completed)" in shown.out
    assert "ckp_1" in shown.out
    assert "--before 1" in shown.out + shown.err


async def test_a_sync_says_what_was_adopted() -> None:
    """Additions, deletions, flags with the pending text, and the command that undoes it."""
    async with answering("document.sync", CHANGE) as daemon:
        shown = await palyra("documents", "sync", "MEMORY.md", url=daemon.url)
        preview = await palyra("documents", "sync", "MEMORY.md", "--dry-run", url=daemon.url)
    for line in (
        "added facts/ent_1: typed",
        "deleted facts/mem_2: gone",
        "flagged facts: line 3: edited (not written: x)",
        "MEMORY.md: 1 edit adopted, 1 deleted, 1 flagged (version 2)",
    ):
        assert line in shown.out
    assert "palyra checkpoints restore ckp_1" in shown.out + shown.err
    assert preview.code == 0
    asked = [params["dry_run"] for method, params in daemon.requests if method == "document.sync"]
    assert asked == [False, True]


async def test_filling_shows_the_entries() -> None:
    """Of MEMORY.md unless another document is named; a preview asks for one."""
    async with answering("document.fill", CHANGE) as daemon:
        shown = await palyra("documents", "fill", url=daemon.url)
        await palyra("documents", "fill", "USER.md", "--dry-run", url=daemon.url)
    assert "MEMORY.md is at version 2" in shown.out
    asked = [params for method, params in daemon.requests if method == "document.fill"]
    assert [("MEMORY.md", False), ("USER.md", True)] == [
        (params["document"], params["dry_run"]) for params in asked
    ]


async def test_a_restore_shows_the_differences() -> None:
    """Old and new text of each entry; a preview says that it is one."""
    async with answering("document.restore", {**CHANGE, "is_preview": True}) as daemon:
        shown = await palyra("documents", "restore", "MEMORY.md", "1", "--dry-run", url=daemon.url)
    assert "- facts/mem_1: old\n+ facts/mem_1: new\n" in shown.out
    assert "preview, nothing changed" in shown.out + shown.err
