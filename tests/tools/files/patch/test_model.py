"""Patches in both formats: their effects, and the errors of invalid ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.tool.checkpoints import Content
from palyra.tools.files.patch import apply
from palyra.tools.files.patch.apply import PatchPlan, parse_patch, plan_patch
from palyra.tools.files.patch.model import MAX_PATCH_BYTES, PatchError
from tests.rows import every_row

FILES = {
    "a.py": "def one():\n    x = 1\n    return x\n\n\ndef two():\n    x = 1\n    return x\n",
    "b.txt": "1\n2\n3\n",
    "dos.txt": "1\r\n2\r\n3\r\n",
    "open.txt": "1\n2\n3",
    "mixed.txt": "1\r\n2\n3\r\n",
    "empty.txt": "",
    "blank.txt": "a  \nb\t\nc\n",
}


def plan(patch: str) -> PatchPlan:
    """The plan of the patch for the files above."""
    held = {path: Content(text.encode(), 0o640) for path, text in FILES.items()}
    return plan_patch(parse_patch(patch), held.get)


def after(patch: str) -> dict[str, str | None]:
    """The text of each file after the patch, None for none."""
    found = plan(patch).after
    return {path: None if each is None else each.data.decode() for path, each in found.items()}


def sections(*lines: str) -> str:
    """A patch in sections."""
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


def update(path: str, *lines: str) -> str:
    """A patch in sections that updates one file."""
    return sections(f"*** Update File: {path}", *lines)


def unified(path: str, *lines: str) -> str:
    """A unified diff of one file."""
    return "\n".join([f"--- a/{path}", f"+++ b/{path}", *lines, ""])


# --- sections ------------------------------------------------------------------------------------


def test_many_files_at_once() -> None:
    """Files are made, deleted, changed and renamed by one patch."""
    patch = sections(
        "*** Add File: new/x.py", "+one", "+", "+two",
        "*** Delete File: b.txt",
        "*** Update File: open.txt", "*** Move to: shut.txt", "@@", " 1", "-2", "+two", " 3",
        "*** Add File: nothing",
    )  # fmt: skip
    assert after(patch) == {
        "new/x.py": "one\n\ntwo\n", "b.txt": None, "open.txt": None, "shut.txt": "1\ntwo\n3",
        "nothing": "",
    }  # fmt: skip


def test_a_place_is_found_by_its_lines() -> None:
    """Without numbers; the hunk may leave out its first mark, blank lines count as context."""
    assert {"b.txt": "1\ntwo\n3\n"} == after(update("b.txt", "-2", "+two"))
    expected = FILES["a.py"].replace("    return x\n\n\ndef two", "    return x\n\n\n\ndef two")
    assert {"a.py": expected} == after(update("a.py", " ", "", "+", " def two():"))


def test_an_anchor_line_selects_the_place() -> None:
    """`@@ LINE` starts below that line; lines that occur twice are refused without one."""
    with pytest.raises(PatchError, match=r"line 3, column 1: a\.py: .* \(lines 2, 7…\): add lines"):
        after(update("a.py", "-    x = 1", "+    x = 2"))
    expected = FILES["a.py"].replace("two():\n    x = 1", "two():\n    x = 2")
    assert {"a.py": expected} == after(update("a.py", "@@ def two():", "-    x = 1", "+    x = 2"))
    narrowed = ("@@ def one():", "@@ x = 1 @@", "@@ def two():", "-    x = 1", "+    x = 2")
    assert {"a.py": expected} == after(update("a.py", *narrowed))
    with pytest.raises(PatchError, match=r"line 3, .*a\.py: no line `def three\(\):` to begin"):
        after(update("a.py", "@@ def three():", "-    x = 1", "+    x = 2"))


def test_with_an_anchor_the_first_place_counts() -> None:
    """The anchor decides, also if the lines occur again further down."""
    patch = update("a.py", "@@ def one():", "-    x = 1", "+    x = 2")
    assert {"a.py": FILES["a.py"].replace("1", "2", 1)} == after(patch)


def test_only_whole_lines_are_found() -> None:
    """The end of another line is not the line."""
    patch = parse_patch(update("f", "-b", "+x"))
    found = plan_patch(patch, lambda _: Content(b"ab\nc\nb\n")).after["f"]
    assert found == Content(b"ab\nc\nx\n")


def test_several_hunks_follow_each_other() -> None:
    """Each begins below the one before."""
    patch = update("a.py", " def one():", "-    x = 1", "+    y", "@@", "-    x = 1", "+    z")
    assert FILES["a.py"].replace("x = 1", "y", 1).replace("x = 1", "z") == after(patch)["a.py"]
    with pytest.raises(PatchError, match="but not like this below what is done"):
        after(update("b.txt", "-3", "+x", "@@", "-1", "+y"))


def test_the_end_of_the_file() -> None:
    """`*** End of File` means its last lines; lines that are only added come there anyway."""
    last = update("a.py", "@@", "     x = 1", "-    return x", "+    return 2", "*** End of File")
    assert (after(last)["a.py"] or "").endswith("def two():\n    x = 1\n    return 2\n")
    with pytest.raises(PatchError, match="not like this"):
        after(update("b.txt", "-2", "*** End of File"))
    with pytest.raises(PatchError, match="not like this"):
        after(update("b.txt", " 1", " 2", " 3", " 1", "-2", "*** End of File"))
    assert {"b.txt": "1\n2\n3\n4\n"} == after(update("b.txt", "+4"))
    assert {"b.txt": "1\n2\n3\n4\n"} == after(update("b.txt", "@@ 1", "+4", "*** End of File"))
    assert {"b.txt": "1\n4\n2\n3\n"} == after(update("b.txt", "@@ 1", "+4"))
    assert {"blank.txt": "a  \nb\t\n"} == after(update("blank.txt", " b", "-c", "*** End of File"))


def test_blank_lines_between_sections_are_not_context() -> None:
    """A section may be set apart; at the end of the file a blank line is one."""
    patch = sections("*** Update File: b.txt", "-2", "+two", "", "*** Delete File: dos.txt", "")
    assert {"b.txt": "1\ntwo\n3\n", "dos.txt": None} == after(patch)
    with pytest.raises(PatchError, match=r"not like this|no line"):
        after(update("b.txt", "-3", "+x", "", "*** End of File"))


def test_line_ends_are_kept() -> None:
    """CR LF, no last line feed, and lines of a mixed file that are not touched."""
    change = ("-2", "+two", "+more")
    assert {"dos.txt": "1\r\ntwo\r\nmore\r\n3\r\n"} == after(update("dos.txt", *change))
    assert {"open.txt": "1\ntwo\nmore\n3"} == after(update("open.txt", *change))
    assert {"mixed.txt": "1\r\ntwo\nmore\n3\r\n"} == after(update("mixed.txt", *change))
    assert {"open.txt": "1\n2\nthree"} == after(update("open.txt", "-3", "+three"))
    assert {"open.txt": "1\n2"} == after(update("open.txt", "-3"))
    assert {"dos.txt": "1\r\ntwo\n3\r\n"} == after(update("dos.txt", "-2\r", "+two"))


@pytest.mark.parametrize(
    ("before", "change", "expected"),
    [
        ("1\n2\r\n3\n", "-2 +two", "1\ntwo\r\n3\n"),  # the edited line keeps its end
        ("1\r\n2\n3\r\n", "-2 +two +more", "1\r\ntwo\nmore\n3\r\n"),
        ("1\n2\r\n3\n", "-1 -2 +one +two", "one\ntwo\r\n3\n"),  # each its own
        ("1\n2\r\n3\n", "\u00b71 +new \u00b72 -3 +three", "1\nnew\n2\r\nthree\n"),  # the line above
        ("1\r\n2\n3\n", "+new -1 +one", "new\r\none\r\n2\n3\n"),
        ("1\n2\r\n3", "-3 +three +end", "1\n2\r\nthree\r\nend"),  # the last one has none
        ("1\n2\r\n3", "-2 -3 +two", "1\ntwo"),
        ("1\r\n2\nlast\r", "-2 +two", "1\r\ntwo\nlast\r"),  # a CR alone is text
        ("1\r\n2\r\r\n3\n", "-3 +three", "1\r\n2\r\r\nthree\n"),
    ],
)
def test_mixed_line_ends_are_kept(before: str, change: str, expected: str) -> None:
    """A patch without CR fits any line end, and changes none of a line that it does not remove."""
    patch = update("f", *(line.replace("\u00b7", " ") for line in change.split(" ")))
    found = plan_patch(parse_patch(patch), lambda _: Content(before.encode()))
    assert expected.encode() == (found.after["f"] or Content(b"")).data
    assert [] == found.notes


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["-one", "+1"], "\ufeff1\r\ntwo\r\n"),
        (["+zero", " one"], "\ufeffzero\r\none\r\ntwo\r\n"),
        (["-one", "-two"], ""),
        (["-\ufeffone", "+1"], "1\r\ntwo\r\n"),  # a patch that names the mark removes it
    ],
)
def test_a_byte_order_mark_is_kept(change: list[str], expected: str) -> None:
    """The first line is found behind the mark, which stays unless the patch removes it."""
    held = Content("\ufeffone\r\ntwo\r\n".encode())
    found = plan_patch(parse_patch("\ufeff" + update("f", *change)), lambda _: held)
    assert expected == (found.after["f"] or Content(b"")).data.decode()


def test_a_file_with_a_mark_is_deleted() -> None:
    """The mark is no content that a deletion would have to name."""
    patch = "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
    found = plan_patch(parse_patch(patch), lambda _: Content("\ufeffone\n".encode()))
    assert {"f": None} == found.after


def test_a_patch_sent_with_windows_line_ends() -> None:
    """As a whole: then the line ends say nothing."""
    patch = update("b.txt", "-2", "+two").replace("\n", "\r\n")
    assert {"b.txt": "1\ntwo\n3\n"} == after(patch)


def test_blanks_at_line_ends_are_tolerated_and_reported() -> None:
    """Kept lines keep theirs; exact matches have precedence; nothing else is tolerated."""
    found = plan(update("blank.txt", " a", "-b", "+x"))
    assert found.after["blank.txt"] == Content(b"a  \nx\nc\n", 0o640)
    assert ["blank.txt: blanks at line ends differ from line 1 on"] == found.notes
    with pytest.raises(PatchError, match=r"line 3, column 1: blank\.txt has no line `A`: read"):
        plan(update("blank.txt", " A", "-b", "+x"))


def test_two_sections_on_one_file_compose() -> None:
    """The second sees what the first did."""
    patch = sections(
        "*** Update File: b.txt", "-2", "+two", "*** Update File: ./b.txt", "-two", "+zwei",
        "*** Add File: n", "+1", "*** Update File: n", "-1", "+2",
    )  # fmt: skip
    found = plan(patch)
    assert {"b.txt": "1\nzwei\n3\n", "n": "2\n"} == after(patch)
    assert found.before["b.txt"] == Content(b"1\n2\n3\n", 0o640)
    assert found.before["n"] is None


@every_row(
    ("lines", "said"),
    [
        (("*** Add File: b.txt", "+x"), "line 2, column 1: b.txt exists already"),
        (("*** Delete File: no",), "line 2, column 1: no: there is no such file"),
        (("*** Delete File: b.txt", "*** Update File: b.txt", "+x"), "line 3, .*no such file"),
        (("*** Update File: b.txt", "*** Move to: a.py"), "line 2, .*a.py exists already"),
        (("*** Add File: ../x", "+x"), r"line 2, .*'\.\./x' is no path in the workspace"),
        (("*** Update File: b.txt", "*** Move to: /x"), "line 2, .*'/x' is no path"),
    ],
)  # fmt: skip
def test_a_section_that_does_not_match_is_named(lines: tuple[str, ...], said: str) -> None:
    """The error has the line of the section."""
    with pytest.raises(PatchError, match=said):
        plan(sections(*lines))


def test_a_rename_to_itself_is_no_rename() -> None:
    """The file stays where it is."""
    assert {"b.txt": "1\n2\n3\n"} == after(update("b.txt", "*** Move to: ./b.txt"))


@every_row(
    ("patch", "said"),
    [
        ("", r"line 1, column 1: expected `\*\*\* Begin Patch`"),
        ("\n\nhello", "line 3, column 1: expected"),
        ("*** Begin Patch\n*** End Patch", "names no file"),
        ("*** Begin Patch\n*** Add File: x\n+1", r"line 4, .*does not end with `\*\*\* End Patch`"),
        ("*** Begin Patch\n*** Update File: x\n+1", r"line 4, .*does not end with"),
        (sections("*** Add File: x", "+1") + "more", "line 5, .*nothing may follow"),
        (sections("*** Frobnicate: x"), "line 2, .*expected `.*Add File"),
        (sections("*** Add File: x", "1"), r"line 3, .*begins with `\+`"),
        (sections("*** Add File:  "), "line 2, column 15: a path has 1 to"),
        (sections("*** Add File: a\0b"), "line 2, column 15: a path has"),
        (sections("*** Add File: x", "+a\ud800"), "line 3, column 3: half of a surrogate"),
        (update("b.txt"), "line 3, .*changes nothing: expected a hunk"),
        (update("b.txt", "@@", "2"), "line 4, .*begins with a blank, `-`"),
        (update("b.txt", " 1", " 2"), "line 3, .*the hunk changes nothing"),
        (update("b.txt", "@@ 1"), "line 3, .*the hunk changes nothing"),
        ("x" * (MAX_PATCH_BYTES + 1), "at most 262144 bytes"),
        (sections("*** Add File: a", *["+"] * 10_000), "line 10001, .*at most 10000 lines"),
        (sections(*(f"*** Delete File: {n}" for n in range(65))), "line 66, .*at most 64 files"),
        (update("b.txt", *["@@", "+1"] * 1001), "line 2003, .*at most 1000 hunks"),
    ],
)  # fmt: skip
def test_an_invalid_patch_is_refused(patch: str, said: str) -> None:
    """The error has the place in the patch and the expected syntax."""
    with pytest.raises(PatchError, match=said):
        parse_patch(patch)


def test_a_file_that_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size and the limit are named."""
    monkeypatch.setattr(apply, "MAX_FILE_BYTES", 4)
    with pytest.raises(PatchError, match=r"b\.txt would have 8 bytes, at most 4"):
        plan(update("b.txt", "+4"))


# --- unified -------------------------------------------------------------------------------------


def test_a_unified_diff() -> None:
    """Numbers name the place, and its lines must match."""
    assert {"b.txt": "1\ntwo\n3\n"} == after(
        unified("b.txt", "@@ -1,3 +1,3 @@ f", " 1", "-2", "+two", " 3")
    )
    assert {"b.txt": "1\n2\n3\n4\n"} == after(unified("b.txt", "@@ -3,0 +4 @@", "+4"))
    assert {"b.txt": "0\n1\n2\n3\n"} == after(unified("b.txt", "@@ -0,0 +1 @@", "+0"))
    assert {"b.txt": "2\n3\n"} == after(unified("b.txt", "@@ -1 +0,0 @@", "-1"))
    with pytest.raises(PatchError, match="nothing can be inserted after line 9"):
        after(unified("b.txt", "@@ -9,0 +10 @@", "+4"))
    with pytest.raises(PatchError, match=r"line 4, .*has no line `x`"):
        after(unified("b.txt", "@@ -1 +1 @@", "-x", "+y"))


def test_a_diff_made_without_prefixes() -> None:
    """Names without a/ and b/ are taken as they are, and what follows a tab is not a name."""
    patch = "--- b.txt\t2020-01-01\n+++ b.txt\t2021-01-01\n@@ -2 +2 @@\n-2\n+two\n"
    assert {"b.txt": "1\ntwo\n3\n"} == after(patch)
    assert {"a/new": "x\n"} == after("--- /dev/null\n+++ a/new\n@@ -0,0 +1 @@\n+x\n")


def test_new_and_deleted_files() -> None:
    """As /dev/null says it."""
    assert {"n": "x"} == after(
        "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    )
    gone = "--- a/b.txt\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-1\n-2\n-3\n"
    assert {"b.txt": None} == after(gone)
    with pytest.raises(PatchError, match="more than the patch takes away"):
        after("--- a/b.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n")
    with pytest.raises(PatchError, match="a new file has added lines only"):
        after("--- /dev/null\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\n")
    with pytest.raises(PatchError, match="neither side"):
        after("--- /dev/null\n+++ /dev/null\n")


def test_git_headers_are_understood() -> None:
    """Modes, renames, empty files, quoted names; several files in one diff."""
    patch = (
        "diff --git a/b.txt b/c d.txt\nold mode 100644\nnew mode 100755\nsimilarity index 60%\n"
        "rename from b.txt\nrename to c d.txt\nindex 01e79c3..e0d0d0c\n--- a/b.txt\n"
        "+++ b/c d.txt\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n\n"
        "diff --git a/empty.txt b/empty.txt\ndeleted file mode 100644\nindex e69de29..0000000\n"
        'diff --git "a/q\\303\\251\\t\\"" "b/q\\303\\251\\t\\""\nnew file mode 100755\nindex 0..1\n'
        "diff --git a/dos.txt b/dos.txt\nold mode 100644\nnew mode 100755\n"
        "diff --git a/open.txt b/open.txt\nold mode 100755\nnew mode 100644\n"
    )
    found = plan(patch).after
    assert found == {
        "b.txt": None, "c d.txt": Content(b"1\ntwo\n3\n", 0o750), "empty.txt": None,
        'qé\t"': Content(b"", None, is_executable=True),
        "dos.txt": Content(FILES["dos.txt"].encode(), 0o750),
        "open.txt": Content(FILES["open.txt"].encode(), 0o640),
    }  # fmt: skip
    both = patch + "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n"
    assert plan(both + "@@ -0,0 +1 @@\n+1\n").after["x"] == Content(b"1\n")
    renamed = 'diff --git a/b.txt "b/\\\\"\nrename from b.txt\nrename to "\\\\"\n'
    assert {"b.txt": None, "\\": "1\n2\n3\n"} == after(renamed)


def test_a_new_file_becomes_executable_in_a_second_section() -> None:
    """A file that an earlier section made has no mode yet."""
    patch = (
        "diff --git a/x b/x\nnew file mode 100644\n"
        "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"
    )
    assert {"x": Content(b"", None, is_executable=True)} == plan(patch).after


@every_row(
    ("lines", "said"),
    [
        (("@@ -1,3 +1,3 @@", " 1", "-2", "+two"), "line 7, .*promises 1 more old and 1 more new"),
        (("@@ -1,2 +1,1 @@", " 1", "-2", "-3"), "line 6, .*more lines than its header says"),
        (("@@ -1,1 +1,2 @@", " 1", "-2"), "line 5, .*more old lines than its header"),
        (("@@ -1,2 +1,1 @@", " 1", "+2"), "line 5, .*more new lines than its header"),
        (("@@ -1,2 +1,1 @@", " 1", "x"), "line 5, .*promises 1 more old and 0 more new.*begins"),
        (("@@ -1,1 +1,1 @@", " 1"), "line 3, .*the hunk changes nothing"),
        (("@@ nonsense @@",), "line 3, .*expected `@@ -LINE"),
        ((), "line 1, .*nothing is said to change"),
        (("@@ -2 +2 @@", "-2", "+two", "garbage"), "line 6, .*expected `diff --git"),
    ],
)  # fmt: skip
def test_an_invalid_unified_diff_is_refused(lines: tuple[str, ...], said: str) -> None:
    """The error has the place in the patch and the expected syntax."""
    with pytest.raises(PatchError, match=said):
        parse_patch(unified("b.txt", *lines))


@every_row(
    ("patch", "said"),
    [
        ("--- a/x\nnonsense", r"line 2, .*expected `\+\+\+ …`"),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b", "line 1, .*different files"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 0", "line 2, .*binary patches are refused"),
        ("diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ", "line 3, .*binary"),
        ("diff --git a/x b/y\ncopy from x\ncopy to y", "line 2, .*copies are not done"),
        ("diff --git a/x b/x\nnew file mode 120000", "line 2, column 15: mode '120000': only plain"),
        ("diff --git a/x b/x\nold mode 160000", "line 2, column 10: mode '160000'"),
        ("diff --git x y z\n", "line 1, .*neither side"),
        ("diff --git x x\n", "line 1, .*neither side"),
        ('diff --git "a/x b/x\n', "line 1, column 12: a quoted name does not end"),
        ('diff --git a/x "b/\\377"\n', "line 1, column 16: a quoted name is no UTF-8"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+\ud800\n", "line 5, column 2: half of a surrogate"),
        ('--- "a/x\\"\n+++ b/x\n', "line 1, column 5: a quoted name does not end"),
    ],
)  # fmt: skip
def test_an_invalid_header_is_refused(patch: str, said: str) -> None:
    """The error has the place and the reason."""
    with pytest.raises(PatchError, match=said):
        parse_patch(patch)


# --- both ----------------------------------------------------------------------------------------


def test_every_path_is_listed() -> None:
    """The paths that are read, written, deleted and renamed, as the patch spells them."""
    patch = sections(
        "*** Add File: ../x",
        "+1",
        "*** Update File: .ssh/id",
        "*** Move to: y",
        "*** Delete File: z",
    )
    assert [["../x"], [".ssh/id", "y"], ["z"]] == [list(file.paths) for file in parse_patch(patch)]


def test_a_hostile_patch_takes_no_time() -> None:
    """Lines that repeat, in patch and file, are still found in linear time."""
    held = Content(b"a\n" * 500_000)
    many = "\n".join(["@@", *["-a"] * 100] * 90)
    with pytest.raises(PatchError, match=r"several places \(lines 1, 2, 3, 4…\)"):
        plan_patch(parse_patch(update("f", many)), lambda _: held)
    anchored = update("f", *["@@ a", "-a", "+b"] * 900)
    found = plan_patch(parse_patch(anchored), lambda _: held).after["f"]
    assert found is not None
    assert found.data.startswith(b"a\nb\na\nb\n")


@given(st.text("*-+ @\\ab/\n\r", max_size=60), st.booleans())
def test_nonsense_is_refused_with_its_place(text: str, is_unified: bool) -> None:  # noqa: FBT001 - drawn
    """After any valid start, the result is a plan or an error with a place in the patch."""
    start = (
        "--- a/b.txt\n+++ b/b.txt\n@@ -1,3"
        if is_unified
        else "*** Begin Patch\n*** Update File: b.txt\n"
    )
    with suppress(PatchError):
        plan(start + text)
        return
    with pytest.raises(PatchError, match=r"line [1-9]\d*, column [1-9]"):
        plan(start + text)


def test_moved_lines_are_found() -> None:
    """Lines at another place are found if it is the only one; later hunks move along."""
    patch = unified("b.txt", "@@ -5 +5 @@", "-2", "+two", "@@ -6,0 +7 @@", "+4")
    found = plan(patch)
    assert found.after["b.txt"] == Content(b"1\ntwo\n3\n4\n", 0o640)
    assert ["b.txt: line 5 is at 2"] == found.notes


def test_blanks_are_tolerated_in_a_place_that_is_named() -> None:
    """Also in several hunks of one file, and never instead of an exact place."""
    patch = unified("blank.txt", "@@ -1 +1 @@", "-a", "+x", "@@ -2 +2 @@", "-b", "+y")
    assert {"blank.txt": "x\ny\nc\n"} == after(patch)
    assert {"blank.txt": "x\ny\nc\n"} == after(update("blank.txt", "-a", "+x", "@@", "-b", "+y"))
