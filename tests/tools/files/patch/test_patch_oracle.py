"""Patches against git: what git writes as a difference makes the one file out of the other."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.core.tool.checkpoints import Content
from palyra.tools.files.patch.apply import parse_patch, plan_patch
from tests.examples import examples
from tests.optional import needs

pytestmark = needs("git")

_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
_LINES = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "c", " a", "a ", "-- x", "++ y", "é", "\\ z", "@@ 1"]), _ENDS),
    max_size=12,
)  # fmt: skip


def _text(lines: list[tuple[str, str]], *, has_end: bool) -> bytes:
    text = "".join(line + end for line, end in lines)
    return (text if has_end else text.removesuffix("\n")).encode()


_TEXTS = st.builds(_text, _LINES, has_end=st.booleans())
_NATURAL = st.builds(
    lambda lines, has_end: _text([(line, "\n") for line, _ in lines], has_end=has_end),
    _LINES,
    st.booleans(),
)


def difference(folder: Path, before: bytes, after: bytes, context: int) -> str:
    """The difference according to git."""
    (folder / "a").write_bytes(before)
    (folder / "b").write_bytes(after)
    found = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "diff", "--no-index", "--no-ext-diff", "--text",
         f"-U{context}", "a", "b"],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    assert found.returncode in {0, 1}, found.stderr
    return (
        found.stdout.decode()
        .replace("a/a b/b", "a/f b/f")
        .replace("a/a\n", "a/f\n")
        .replace("b/b\n", "b/f\n")
    )


def patched(patch: str, before: bytes) -> bytes | None:
    """The file after the patch."""
    plan = plan_patch(parse_patch(patch), lambda path: Content(before) if path == "f" else None)
    assert plan.notes == []
    content = plan.after["f"]
    return None if content is None else content.data


@pytest.mark.parametrize("context", [1, 3])
@given(before=_TEXTS, after=_TEXTS)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_diff_of_git_is_applied(
    tmp_path: Path, before: bytes, after: bytes, context: int
) -> None:
    """Any text becomes any other, in both directions, with any line ends."""
    if before == after:
        return
    assert after == patched(difference(tmp_path, before, after, context), before)
    assert before == patched(difference(tmp_path, after, before, context), after)


@given(before=_NATURAL, after=_NATURAL)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
def test_without_context_too(tmp_path: Path, before: bytes, after: bytes) -> None:
    """A difference without context is placed by its numbers alone."""
    if before != after:
        assert after == patched(difference(tmp_path, before, after, 0), before)


@given(before=_NATURAL.filter(bool), after=_NATURAL.filter(bool))
@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
def test_crlf_files_accept_lf_patches(tmp_path: Path, before: bytes, after: bytes) -> None:
    """A file with CR LF accepts the patch of the same text with LF, and keeps its line ends."""
    if before == after or b"\n" not in before:
        return
    patch = difference(tmp_path, before, after, 3)
    got = patched(patch, before.replace(b"\n", b"\r\n"))
    assert after.replace(b"\n", b"\r\n") == got


@given(st.lists(st.sampled_from("abcdefghij"), min_size=8, max_size=30, unique=False), st.data())
@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_moved_place_is_found_and_reported(
    tmp_path: Path, lines: list[str], data: st.DataObject
) -> None:
    """With lines added above, the only matching place is used."""
    before = [f"{line}{number}\n" for number, line in enumerate(lines)]
    at = data.draw(st.integers(0, len(before) - 1))
    after = [*before[:at], "new\n", *before[at + 1 :]]
    patch = difference(tmp_path, "".join(before).encode(), "".join(after).encode(), 3)
    shift = data.draw(st.integers(1, 5))
    moved = "".join([*(f"top{n}\n" for n in range(shift)), *before]).encode()
    plan = plan_patch(parse_patch(patch), lambda path: Content(moved) if path == "f" else None)
    expected = "".join([*(f"top{n}\n" for n in range(shift)), *after]).encode()
    assert plan.after["f"] == Content(expected)
    assert len(plan.notes) == 1
    assert f"is at {max(0, at - 3) + 1 + shift}" in plan.notes[0]
