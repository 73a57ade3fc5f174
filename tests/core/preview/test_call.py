"""Previews of approvals: blocks from records and targets, and their text."""

from collections.abc import Mapping
from typing import Any

import msgspec

from palyra.core.journal.records import ApprovalRecord
from palyra.core.preview.blocks import (
    FieldsBlock,
    FileBlock,
    Preview,
    TextBlock,
    WordsBlock,
)
from palyra.core.preview.call import build_preview
from palyra.core.preview.text import render_preview
from palyra.core.tape.taint import TaintSource
from palyra.core.tool.checkpoints import Content
from palyra.core.tool.targets import CallTargets, FileTarget
from tests.rows import every_row


def record(tool: str, arguments: Mapping[str, Any], **more: Any) -> ApprovalRecord:
    """A pending approval of that call."""
    given: dict[str, Any] = {
        "approval_id": "apr_1", "run_id": "run_1", "session_id": "ses_1", "call_id": "c1",
        "principal": "op", "tool": tool, "risk": "high", "summary": tool,
        "arguments": msgspec.Raw(msgspec.json.encode(arguments)), "digest": "ab" * 32,
        "scopes": ("once",), "policy_reason": "asks", "requested_ms": 0, "expires_ms": 1,
    }  # fmt: skip
    return ApprovalRecord(**given | more)


def preview(
    tool: str, arguments: Mapping[str, Any], targets: CallTargets | None = None, **more: Any
) -> Preview:
    """The preview of that call."""
    return build_preview(
        record(tool, arguments), targets, redact=lambda text: (text, False), **more
    )


def text(found: Preview, width: int = 80) -> list[str]:
    """The lines of its text."""
    return ["".join(part.text for part in line) for line in render_preview(found, width)]


def test_words_of_a_command_are_shown_one_by_one() -> None:
    """A word with a blank is one word, and no word is joined with the next."""
    found = preview("shell", {"argv": ["git", "commit", "-m", "a b"]})
    assert (WordsBlock(title="argv", words=("git", "commit", "-m", "a b")),) == found.blocks
    assert "   3 a b" in text(found)


def test_choices_have_the_numbers_that_answer() -> None:
    """The preview of a question numbers its choices as the prompt does, from 1, below the question."""
    shown = text(preview("ask_user", {"question": "Which?", "choices": ["red", "green"]}))
    assert ["── choices", "1: red", "2: green"] == [line.strip() for line in shown[-3:]]
    assert any("Which?" in line for line in shown[:-3])


def test_a_line_for_the_shell_is_shown_whole() -> None:
    """A shell text is never taken apart."""
    found = preview("shell", {"command": "make && rm -r build"})
    (block,) = found.blocks
    assert isinstance(block, TextBlock)
    assert ("make && rm -r build",) == block.lines


def test_a_request_has_its_final_address() -> None:
    """The address is the tool's normal form, with method, headers and body."""
    arguments = {"url": "HTTPS://Example.COM", "headers": {"X-A": "1"}, "body": "a\nb"}
    found = preview("http_send", arguments, CallTargets(address="https://example.com/"))
    assert FieldsBlock(title="request", rows=(("address", "https://example.com/"),)) in found.blocks
    assert FieldsBlock(title="headers", rows=(("X-A", "1"),)) in found.blocks
    assert TextBlock(title="body", lines=("a", "b"), size_bytes=3) in found.blocks


def test_hidden_characters_are_spelled_out_and_counted() -> None:
    """Each is named once with its count, wherever it is."""
    found = preview("shell", {"argv": ["p\u0430y", "a\u202eb", "\u202e\x1b["]})
    counts = {each.character: (each.name, each.count) for each in found.hidden}
    assert ("RIGHT-TO-LEFT OVERRIDE", 2) == counts["U+202E"]
    assert ("CYRILLIC SMALL LETTER A", 1) == counts["U+0430"]
    assert ("ESCAPE", 1) == counts["U+001B"]
    shown = "\n".join(text(found, 200))
    assert not {"\u202e", "\x1b", "\u0430"} & set(shown)
    assert "4 characters spelled out" in shown


def test_a_character_of_a_changed_line_is_counted_once() -> None:
    """Marks of words in a line do not count its characters again."""
    sides = (Content(b"a b\n"), Content("a \u202eb c\n".encode()))
    found = preview("apply_patch", {"patch": ""}, CallTargets((FileTarget("a", *sides),)))
    assert [1] == [each.count for each in found.hidden]


def test_plain_text_hides_nothing() -> None:
    """A literal escape and accents are not counted."""
    assert () == preview("shell", {"argv": [r"\u202e", "café", "a\tb"]}).hidden


def test_contents_of_files_are_not_repeated() -> None:
    """A write is shown as a diff, without its arguments."""
    targets = CallTargets((FileTarget("a", None, Content(b"x\n")),))
    found = preview("write_file", {"path": "a", "content": "x\n"}, targets)
    assert [FileBlock] == [type(block) for block in found.blocks]
    alone = preview("write_file", {"path": "a", "content": "x\n"})
    assert [TextBlock, FieldsBlock] == [type(block) for block in alone.blocks]


def test_a_stale_preview_says_so_first() -> None:
    """A file that changed since the question is the first line; a settled question has no such line."""
    asked = record("write_file", {}, inspection={"operands": {"a": "missing"}})
    targets = CallTargets((FileTarget("a", Content(b"now\n"), Content(b"x\n")),))
    found = build_preview(asked, targets, redact=lambda text: (text, False))
    assert found.stale
    assert text(found)[0].startswith("! a is not as it was")
    settled = msgspec.structs.replace(asked, state="denied")
    assert () == build_preview(settled, targets, redact=lambda text: (text, False)).stale


def test_the_bound_holds_for_all_blocks_together() -> None:
    """Lines left out of any block are counted in the preview, with the command that shows them."""
    arguments = {"argv": ["x"] * 5, "body": "a\nb\nc", "n": 1}
    found = preview("shell", arguments, max_lines=6)
    assert 3 == found.cut
    assert any("palyra approvals show --all apr_1" in line for line in text(found, 120))
    assert 0 == preview("shell", arguments).cut


def test_taint_names_its_events() -> None:
    """Tool, event and findings of each source are shown."""
    source = TaintSource(
        seq=88, kind="tool.completed", findings=("spoofed_role",), tool="http_fetch"
    )
    found = preview("shell", {"argv": ["x"]}, taint=(source,))
    assert "! tainted by http_fetch (event 88): spoofed_role" in text(found)


@every_row("width", [10, 40, 77])
def test_wide_lines_continue_and_nothing_is_cut(width: int) -> None:
    """No line is wider than the terminal, and a continued line cannot look like a title."""
    word = "x" * 90 + "── other.md  created" + "字" * 30
    shown = text(preview("shell", {"argv": [word]}), width)
    assert all(
        len(line) + line.count("字") + line.count("\u5b57") * 0 <= max(width, 40) for line in shown
    )
    assert word in "".join(line.removeprefix("  ↪ ") for line in shown)
    assert ["── argv, one word a line"] == [line for line in shown if line.startswith("──")]


def test_tolerance_of_a_patch_and_lists_are_shown() -> None:
    """What a patch needed is numbered; a list is shown word by word."""
    targets = CallTargets(notes=("line 3 moved by 2", "blanks at the end ignored"))
    found = preview("apply_patch", {"patch": "x", "names": ["a b", 1]}, targets)
    assert (
        FieldsBlock(
            title="notes", rows=(("1", "line 3 moved by 2"), ("2", "blanks at the end ignored"))
        )
        in found.blocks
    )
    assert WordsBlock(title="names", words=("a b", "1")) in found.blocks
