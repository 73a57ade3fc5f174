"""Files of applied suggestions: written once and whole, removed only as they were written."""

from pathlib import Path

import pytest

from palyra.errors import Conflict, NotFound
from palyra.tools.policy.cases import check_policies
from palyra.tools.policy.suggested_files import SuggestedPolicyFiles

RULE = '@id("sug_0123456789abcdef")\npermit (principal, action, resource == Tool::"echo");\n'
ONE, TWO = "sug_0123456789abcdef", "sug_fedcba9876543210"


def test_an_undo_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    """The newest suggestion is removed first; files of a person stay."""
    (tmp_path / "mine.cedar").write_text("")
    files = SuggestedPolicyFiles(tmp_path)
    files.apply(ONE, RULE, ["one"], 1)
    files.apply(TWO, RULE, ["two"], 2)
    assert [TWO, ONE] == [each.suggestion_id for each in files.list_applied()]
    assert TWO == files.undo(None).suggestion_id
    assert ONE == files.undo(ONE).suggestion_id
    assert ["mine.cedar"] == [each.name for each in tmp_path.iterdir()]
    with pytest.raises(NotFound, match="no suggestion is applied"):
        files.undo(None)


def test_an_edited_file_is_left_alone(tmp_path: Path) -> None:
    """An undo never removes what a person wrote."""
    files = SuggestedPolicyFiles(tmp_path)
    path = Path(files.apply(ONE, RULE, [], 1).file)
    path.write_bytes(path.read_bytes() + b"// mine\n")
    assert [True] == [each.is_edited for each in files.list_applied()]
    with pytest.raises(Conflict, match="was edited"):
        files.undo(None)
    assert path.exists()


def test_only_the_bytes_that_were_written_are_unedited(tmp_path: Path) -> None:
    """Other line ends, and the first line of another kind of file, count as an edit."""
    files = SuggestedPolicyFiles(tmp_path)
    path = Path(files.apply(ONE, RULE, [], 1).file)
    written = path.read_bytes()
    for edited in (written.replace(b"\n", b"\r\n"), written.replace(b"suggestion, applied", b"x")):
        path.write_bytes(edited)
        with pytest.raises(Conflict, match="was edited"):
            files.undo(ONE)
    path.write_bytes(written)
    assert [ONE] == [files.undo(ONE).suggestion_id]


def test_a_note_stays_a_comment(tmp_path: Path) -> None:
    """A line break in a note starts no rule."""
    files = SuggestedPolicyFiles(tmp_path / "new")
    files.apply(ONE, RULE, ["x\npermit (principal, action, resource);", "y\u2028z\r"], 1)
    assert len(check_policies(tmp_path / "new").rules) == 1


def test_a_suggestion_is_applied_once(tmp_path: Path) -> None:
    """The second application is a conflict and changes nothing; a name with a path is refused."""
    files = SuggestedPolicyFiles(tmp_path)
    before = files.apply(ONE, RULE, [], 1)
    with pytest.raises(Conflict, match="applied already"):
        files.apply(ONE, "other", [], 2)
    assert [before] == files.list_applied()
    with pytest.raises(NotFound, match="no id"):
        files.apply("../x", RULE, [], 1)
