"""Front matter of Markdown files: the lines between `---` at the top.  Pure.

It looks like YAML and is read as a small part of it, which cannot build objects, follow references or
grow: one `key: value` a line.  A value may be quoted, go on in indented lines, or be a block (`|`, `>`).
Lists and nested keys are skipped as text of their key, so files of other programs can be read.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

MAX_LINES = 200  # of front matter
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63})[ \t]*:(?:[ \t]+(.*))?\Z")
_BLOCK = re.compile(r"[|>][-+0-9]{0,2}\Z")
_COMMENT = re.compile(r"(?:^|[ \t])#.*\Z")
_ESCAPES = {"n": " ", "t": " ", "r": " "}  # a value is used as one line
_ESCAPE = re.compile(r"\\(.)")


class FrontMatter(NamedTuple):
    """The fields of a file and what follows them."""

    fields: Mapping[str, str]  # by key in lower case
    body: str
    body_line: int = 1  # number of the body's first line in the file
    problem: str = ""  # why the fields cannot be read


def read_front_matter(text: str) -> FrontMatter:
    """Return the fields and the body; all of the text is the body if it begins with none.

    Time is linear in the length of a hostile text as well.
    """
    lines = text.removeprefix("\ufeff").split("\n", MAX_LINES + 2)
    if lines[0].rstrip() != "---":
        return FrontMatter({}, text)
    end = next(
        (
            at
            for at, line in enumerate(lines[: MAX_LINES + 2])
            if at and line.rstrip() in {"---", "..."}
        ),
        None,
    )
    if end is None:
        return FrontMatter(
            {}, text, problem=f"no line --- ends its front matter within {MAX_LINES}"
        )
    body = "\n".join(lines[end + 1 :])
    fields: dict[str, list[str]] = {}
    key = ""
    for number, line in enumerate((each.rstrip() for each in lines[1:end]), 2):
        found = _KEY.match(line)
        is_part = not line or line[0] in " \t-"
        if found is not None:
            key = found[1].lower()
            if key in fields:
                return FrontMatter({}, body, end + 2, f"line {number} has {key} a second time")
            fields[key] = [found[2] or ""]
        elif is_part and key:
            fields[key].append(line)
        elif line and not line.startswith("#"):
            return FrontMatter({}, body, end + 2, f"line {number} is no `key: value`")
    return FrontMatter({name: _value(value) for name, value in fields.items()}, body, end + 2)


def _value(lines: list[str]) -> str:
    """Return the value of a key as one line."""
    first, *more = (line.strip() for line in lines)
    if _BLOCK.match(first):
        return " ".join(" ".join(more).split())
    whole = " ".join(" ".join([first, *more]).split())
    mark = whole[:1]
    if mark and mark in "\"'":
        end = _closing(whole, mark)
        if end > 0:
            inner = whole[1:end]
            return inner.replace("''", "'") if mark == "'" else _ESCAPE.sub(_plain, inner)
    return " ".join(_COMMENT.sub("", line).strip() for line in [first, *more]).strip()


def _closing(text: str, mark: str) -> int:
    """Return the index of the quotation mark that ends a text; -1 without one."""
    at = 1
    while at < len(text):
        if text[at] == "\\" and mark == '"':
            at += 1
        elif text[at] == mark:
            if mark == '"' or text[at + 1 : at + 2] != mark:
                return at
            at += 1
        at += 1
    return -1


def _plain(escape: re.Match[str]) -> str:
    return _ESCAPES.get(escape[1], escape[1])
