"""Own commands of `palyra chat`: which files are commands, and what they send."""

import os
from pathlib import Path

import pytest

from palyra.cli.chat import own_commands
from palyra.cli.chat.own_commands import MAX_BYTES, OwnCommand, find_commands
from palyra.cli.chat.slash import (
    COMMANDS,
    Message,
    Mistake,
    PromptCommand,
    ShellCommand,
    help_lines,
    parse_line,
)


def put(root: Path, name: str, text: str = "Do $ARGUMENTS.") -> Path:
    """A file of commands."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def command(body: str) -> OwnCommand:
    """A command with this text."""
    return OwnCommand("x", "", body, Path("x.md"))


@pytest.mark.parametrize(
    ("body", "typed", "sent"),
    [
        ("Fix $ARGUMENTS now", "a b", "Fix a b now"),
        ("From $1 to $2$3.", "'a b' c", "From a b to c."),
        ("$1", '"open', '"open'),
        ("Do it", "", "Do it"),
        ("Do it", "well", "Do it\n\nwell"),
        ("$ARGUMENTS $1", "$1 $ARGUMENTS", "$1 $ARGUMENTS $1"),
        ("$10 $ARGUMENTS_X $HOME ${1}", "", "$10 $ARGUMENTS_X $HOME ${1}"),
    ],
)
def test_arguments_are_put_in_once(body: str, typed: str, sent: str) -> None:
    """All of them, or words; what was put in is not read again; without a place they are appended."""
    assert sent == command(body).expand(typed)


def test_files_of_the_home_come_first(tmp_path: Path) -> None:
    """No workspace replaces a command of the person, and the file that lost is named."""
    work, home = tmp_path / "work", tmp_path / "home"
    mine = put(home, "commands/fix.md", "mine")
    theirs = put(work, ".claude/commands/fix.md", "theirs")
    put(work, ".palyra/commands/review.md", "---\ndescription: Look at it\n---\n\nReview $1\n")
    put(work, ".palyra/commands/notes.txt")
    put(work, ".claude/commands/deep/inner.md")
    found, refused = find_commands(work, home, COMMANDS)
    assert [
        ("fix", "mine", mine),
        ("review", "Look at it", work / ".palyra/commands/review.md"),
    ] == [(each.name, each.description, each.path) for each in found]
    assert [theirs] == [each.path for each in refused]
    assert [] == find_commands(None, tmp_path / "missing", COMMANDS)[0]


def test_what_is_no_command_is_named(tmp_path: Path) -> None:
    """Names of the conversation, links, second names, pipes, large, empty, binary and broken files."""
    folder = tmp_path / ".claude/commands"
    secret = put(tmp_path.parent, f"{tmp_path.name}-secret", "SECRET")
    put(folder, "help.md")
    put(folder, "two words.md")
    put(folder, "bad\x1b[2J.md")
    put(folder, "empty.md", "---\ndescription: x\n---\n \n")
    put(folder, "large.md", "x" * (MAX_BYTES + 1))
    put(folder, "broken.md", "---\njust text\n---\nx")
    (folder / "binary.md").write_bytes(b"\xff\xfe")
    (folder / "linked.md").symlink_to(secret)
    os.link(secret, folder / "second.md")
    os.mkfifo(folder / "pipe.md")
    (folder / "folder.md").mkdir()
    put(folder, "good.md")
    found, refused = find_commands(tmp_path, tmp_path / "home", COMMANDS)
    assert ["good"] == [each.name for each in found]
    assert 11 == len(refused)
    assert (
        "command of the conversation"
        in {each.path.name: each.reason for each in refused}["help.md"]
    )


def test_a_linked_folder_has_no_commands(tmp_path: Path) -> None:
    """Wherever it leads, at each level, and it is named; a linked workspace is the person's own choice."""
    elsewhere, work = tmp_path / "elsewhere", tmp_path / "work"
    put(elsewhere, "commands/evil.md")
    work.mkdir()
    (work / ".claude").symlink_to(elsewhere)
    (work / ".palyra").mkdir()
    (work / ".palyra/commands").symlink_to(elsewhere / "commands")
    found, refused = find_commands(work, tmp_path / "home", COMMANDS)
    assert [] == found
    linked = {work / ".claude/commands", work / ".palyra/commands"}
    assert linked == {each.path for each in refused}
    assert all("a link leads to the folder" in each.reason for each in refused)
    put(work / "in", ".palyra/commands/good.md")
    (tmp_path / "other").symlink_to(work / "in")
    assert 1 == len(find_commands(tmp_path / "other", tmp_path / "home", COMMANDS)[0])


def test_a_link_that_appears_meanwhile_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the workspace that replaces the folder while it is read gains nothing."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / ".palyra/commands"
    put(elsewhere, "note.md", "SECRET")
    put(folder, "note.md", "good")
    names = own_commands._list_names

    def replace_then_list(fd: int) -> list[str]:
        if folder.exists() and not folder.is_symlink():
            folder.rename(tmp_path / ".palyra/moved")
            folder.symlink_to(elsewhere)
        return names(fd)

    monkeypatch.setattr(own_commands, "_list_names", replace_then_list)
    found, _ = find_commands(tmp_path, tmp_path / "home", COMMANDS)
    assert ["good"] == [each.body for each in found]


def test_a_folder_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """A file in its place is no silent absence of commands."""
    put(tmp_path, ".claude")
    found, refused = find_commands(tmp_path, tmp_path / "home", COMMANDS)
    assert ([], [tmp_path / ".claude/commands"]) == (found, [each.path for each in refused])


def test_typed_lines_use_them() -> None:
    """The text is the message; help lists the command; a mistake is compared with it."""
    own = [OwnCommand("fix", "Fix an issue", "Fix $1", Path("fix.md"))]
    assert PromptCommand("fix", "Fix 7") == parse_line("/fix 7", (), own)
    assert isinstance(found := parse_line("/fxi", (), own), Mistake)
    assert "did you mean /fix?" in found.text
    assert any("/fix" in line and "Fix an issue (fix.md)" in line for line in help_lines((), own))
    assert isinstance(parse_line("/init now"), Mistake)


def test_an_exclamation_mark_is_a_command_of_the_shell() -> None:
    """Two begin a message with one; none within a message counts."""
    assert ShellCommand("ls -l | wc") == parse_line(" ! ls -l | wc ")
    assert ShellCommand("") == parse_line("!")
    assert Message("!x") == parse_line("!!x")
    assert Message("so! !ls") == parse_line("so! !ls")
