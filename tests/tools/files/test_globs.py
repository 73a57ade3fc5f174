"""Globs: which paths a pattern means."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.tools.files.globs import compile_glob, fixed_folder
from palyra.tools.files.line_search import BadQuery
from tests.rows import every_row


def means(pattern: str, path: str) -> bool:
    """True if the pattern matches the path."""
    return compile_glob(pattern).search(path.encode()) is not None


@every_row(
    ("pattern", "path"),
    [
        ("*.py", "a.py"), ("*.py", "deep/er/a.py"), ("a?c", "x/abc"), ("?", "é"),
        ("src/*.py", "src/a.py"), ("src/**/*.py", "src/a.py"), ("src/**/*.py", "src/x/y/a.py"),
        ("**/a", "a"), ("**/a", "x/y/a"), ("src/**", "src/a/b"), ("**", "any/thing"),
        ("./src//a", "src/a"), ("src/", "src"), ("/".join("abc"), "a/b/c"),
        ("*.{py,md}", "x.md"), ("{a,b/{c,d}}/x", "b/d/x"), ("a,b", "a,b"), ("[a-c]x", "bx"),
        ("[!a-c]x", "dx"), ("[]x]", "]"), (r"\*", "*"), (r"\[a]", "[a]"), ("a.b+(c)", "a.b+(c)"),
        ("[&~|]", "~"), ("[^]", "^"), ("[a^]", "^"), (r"[\]", "\\"), (".", "any"), ("**x", "a/x"),
        ("é*", "é1"),
    ],
)  # fmt: skip
def test_matching_paths(pattern: str, path: str) -> None:
    """The pattern matches the path."""
    assert means(pattern, path)


@every_row(
    ("pattern", "path"),
    [
        ("*.py", "a.pyc"), ("src/*.py", "src/x/a.py"), ("src/*.py", "x/src/a.py"), ("a?c", "a/c"),
        ("[!a-c]x", "/x"), ("[!a]", "a"), ("a.c", "abc"), ("{a,b}", "c"), ("**/a", "ba"),
        ("src/**", "src"), ("A", "a"),
    ],
)  # fmt: skip
def test_other_paths_do_not_match(pattern: str, path: str) -> None:
    """The pattern does not match the path."""
    assert not means(pattern, path)


@every_row(
    ("pattern", "said"),
    [
        ("", "1 to 500"), ("x" * 501, "1 to 500"), ("/etc/*", "relative"), ("a/../b", "relative"),
        ("[ab", "bracket"), ("{a", "not closed"), ("a}", "do not match"), ("{" * 5, "too deep"),
        ("[z-a]", "regular expression"), ("\ud800", "UTF-8"),
    ],
)  # fmt: skip
def test_a_pattern_that_means_nothing(pattern: str, said: str) -> None:
    """It is refused, and the text says why."""
    with pytest.raises(BadQuery, match=said):
        compile_glob(pattern)


@every_row(
    ("pattern", "folder"),
    [
        ("*.py", ""), ("src/*.py", "src"), ("./a//b/*/c/x", "a/b"), ("a/b", "a"), ("**/x", ""),
        ("a/{b,c}/d", "a"), (r"a\*/b", ""), ("[a]/b", ""),
    ],
)  # fmt: skip
def test_where_it_can_lie(pattern: str, folder: str) -> None:
    """The search may begin there."""
    assert folder == fixed_folder(pattern)


@given(st.text("ab*?.", min_size=1, max_size=8), st.text("ab.", min_size=1, max_size=8))
def test_names_are_matched_like_fnmatch(pattern: str, name: str) -> None:
    """For one name and one star at a time the standard library says the same."""
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    if pattern not in {".", ".."}:
        assert fnmatch.fnmatchcase(name, pattern) == means(pattern, name)
