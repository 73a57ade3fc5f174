"""Glob patterns, compiled to linear-time expressions over workspace paths.

`*` and `?` match within one name, `**` as a whole name matches any number of folders, `[a-c]` and
`[!a-c]` are sets, `{a,b}` are alternatives.  A pattern without a slash matches the name in every
folder, one with a slash the whole path, as in .gitignore files.
"""

import re
from collections.abc import Iterator

from palyra.core.redaction.scanner import Expression
from palyra.tools.files.line_search import BadQuery, compile_text

MAX_PATTERN_CHARS = 500
MAX_DEPTH = 4  # of nested braces
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[|\{|\}|,|\\.|.", re.DOTALL)
_SET = re.compile(r"\[(!?)(\]?[^\]/]*)\]")


class BadGlob(BadQuery):
    """A malformed pattern; the text describes the error."""


def compile_glob(pattern: str) -> Expression:
    """Return an expression that matches exactly the pattern's paths.  Raises BadGlob."""
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise BadGlob(f"a pattern has 1 to {MAX_PATTERN_CHARS} characters")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise BadGlob("a pattern is relative and has no `..`")
    body = "".join(_pieces(pattern))
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    return compile_text(rf"\A{anywhere}(?:{body})\z")


def fixed_folder(pattern: str) -> str:
    """Return the deepest folder that contains every possible match; "" for the root."""
    names = pattern.split("/")[:-1]
    fixed: list[str] = []
    for name in names:
        if set(name) & set("*?[{}\\"):
            break
        fixed.append(name)
    return "/".join(name for name in fixed if name not in {"", "."})


def _pieces(pattern: str) -> Iterator[str]:
    depth, at = 0, 0
    pattern = _plain(pattern)
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        assert token is not None  # noqa: S101 - any character is a token
        text, at = token.group(), token.end()
        if text == "[":
            piece, at = _set(pattern, at - 1)
            yield piece
            continue
        depth += {"{": 1, "}": -1}.get(text, 0)
        if not 0 <= depth <= MAX_DEPTH:
            raise BadGlob("braces do not match, or are nested too deep")
        yield _piece(text, is_inside=depth > 0)
    if depth:
        raise BadGlob("a brace is not closed")


def _plain(pattern: str) -> str:
    """Remove empty and `.` components: `./a//b` becomes `a/b`."""
    names = [name for name in pattern.split("/") if name not in {"", "."}]
    return "/".join(names) or "**"


_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


def _piece(text: str, *, is_inside: bool) -> str:
    if text == "," and is_inside:
        return "|"
    if text in _WILD:
        return _WILD[text]
    return re.escape(text[-1])  # the escaped character


def _set(pattern: str, at: int) -> tuple[str, int]:
    found = _SET.match(pattern, at)
    if found is None:
        raise BadGlob("a bracket is not closed")
    negated, members = found.groups()
    safe = re.sub(r"[\\\[\]^&|~]", lambda m: "\\" + m.group(), members)
    return f"[{'^/' if negated else ''}{safe}]", found.end()
