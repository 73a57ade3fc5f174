"""Limits on policy text, checked before Cedar's native parser runs.

Cedar's parser, evaluator and destructor recurse with the depth of an expression, and a stack
overflow ends the process.  About 660 nested parentheses, 3 000 terms of one `||` chain or 3 000
`.attribute` steps are enough.  The limits below are at least a factor of three under each of these
values; a test in a child process verifies the margin.
"""

import re
from collections.abc import Iterator

from palyra.errors import Rejected

MAX_TEXT_BYTES = 65_536  # per file
MAX_NESTING = 32
MAX_LINKS = 200  # tokens per rule that add depth to its expression

_TOKEN = re.compile(r'//[^\n\r]*|"(?:\\.|[^"\\])*"|\w+|&&|\|\||\S')
_LINKS = frozenset({"(", "[", "{", ".", "&&", "||", "+", "-", "*", "!", "if", "has"})
_CLOSES = {")": "(", "]": "[", "}": "{"}


class BrokenPolicy(Rejected):
    """Policy text is unusable; the message names the file and the reason."""

    code = "invalid_params"


def check_policy_text(name: str, text: str) -> None:
    """Raise BrokenPolicy unless the text is safe to parse; `name` is the file name in messages."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        raise BrokenPolicy(f"{name}: {size} bytes; a policy file has at most {MAX_TEXT_BYTES}")
    opened: list[str] = []
    links = 0
    for match in _TOKEN.finditer(text):
        piece = match.group()
        links += piece in _LINKS
        if piece in _CLOSES.values():
            opened.append(piece)
        elif piece in _CLOSES and (not opened or opened.pop() != _CLOSES[piece]):
            line = line_at(text, match.start())
            raise BrokenPolicy(f"{name}:{line}: {piece!r} has no opening bracket")
        elif piece == ";" and not opened:
            links = 0
        if len(opened) > MAX_NESTING:
            line = line_at(text, match.start())
            raise BrokenPolicy(f"{name}:{line}: brackets are nested deeper than {MAX_NESTING}")
        if links > MAX_LINKS:
            raise BrokenPolicy(
                f"{name}:{line_at(text, match.start())}: one rule has more than {MAX_LINKS} "
                "operators, dots and brackets; use a set or several rules"
            )


def line_at(text: str, position: int) -> int:
    """Return the 1-based line number of a character position."""
    return text.count("\n", 0, position) + 1


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the start line and text of each rule; best effort for invalid text."""
    depth, begin = 0, -1
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if piece.startswith("//"):
            continue
        begin = match.start() if begin < 0 else begin
        depth += (piece in _CLOSES.values()) - (piece in _CLOSES)
        if piece == ";" and depth == 0:
            yield line_at(text, begin), text[begin : match.end()]
            begin = -1
    if begin >= 0:
        yield line_at(text, begin), text[begin:]
