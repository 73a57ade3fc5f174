"""Completion of words in `palyra chat`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from palyra.cli.chat.completion import complete_word, price_references
from palyra.cli.chat.session import Conversation
from palyra.cli.command.talk import Options


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a folder, a hidden file, and names that must not be offered."""
    (tmp_path / "src").mkdir()
    for name in ("src/main.py", "README.md", ".env", "with blank", "bad\x1b[2J"):
        (tmp_path / name).touch()
    (tmp_path / "out").symlink_to("/etc")
    return tmp_path


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("@fi", ["@file:"]),
        ("@file:", ["@file:README.md", "@file:out", "@file:src/"]),
        ("@file:src/m", ["@file:src/main.py"]),
        ("@file:.e", ["@file:.env"]),
        ("@folder:", ["@folder:src/"]),
        ("@file:/etc/", []),
        ("@file:../", []),
        ("@file:src/../../", []),
        ("@file:missing/", []),
        ("/mo", ["/model", "/mode"]),
        ("/do", ["/docs.quit"]),
        ("@mc", ["@mcp:"]),
        ("@mcp:docs/", ["@mcp:docs/note://today"]),
        ("@prompt:", ["@prompt:docs/review"]),
        ("@url:", []),
    ],
)
def test_words_are_completed_inside_of_the_workspace(
    workspace: Path, word: str, expected: list[str]
) -> None:
    """Names of the workspace are offered, never ones outside of it or with control characters."""
    offers = ["/docs.quit", "@mcp:docs/note://today", "@prompt:docs/review"]
    assert expected == complete_word(word, workspace, offers)


def test_without_a_workspace_there_are_no_names() -> None:
    """A daemon elsewhere, or a role that may not see its workspace, has no files to offer."""
    assert [] == complete_word("@file:", None)


async def test_a_new_chat_prices_files_of_its_workspace() -> None:
    """Until there is a session, the workspace is named; afterwards the session decides."""
    asked: list[dict[str, Any]] = []

    async def preview_references(_text: str, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        asked.append(options)
        return SimpleNamespace(references=[])

    client: Any = SimpleNamespace(preview_references=preview_references)
    chat = Conversation(client, Options(), workspace="infl")
    await price_references(chat, ["@file:a"])
    chat.session_id = "ses_1"
    await price_references(chat, ["@file:a"])
    assert [("infl", None), (None, "ses_1")] == [
        (each["workspace"], each["session_id"]) for each in asked
    ]
