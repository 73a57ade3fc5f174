"""Policy text before the native parser sees it.

Cedar's parser, evaluator and destructor recurse with the expression, and running out of stack ends
the process: about 660 nested parentheses do, and so do 3 000 terms of one `||` chain or 3 000
`.attribute` steps.  The limits below keep a factor of three or more from every such form (held by
a test in a child process).
"""

import re
from collections.abc import Iterator
from typing import NoReturn

from palyra.errors import Rejected

MAX_TEXT_BYTES = 65_536  # one file
MAX_NESTING = 32
MAX_LINKS = 200  # tokens of one rule that make its expression deeper

_TOKEN = re.compile(r'//[^\n\r]*|"(?:\\.|[^"\\])*"|\w+|&&|\|\||\S')
_LINKS = frozenset({"(", "[", "{", ".", "&&", "||", "+", "-", "*", "!", "if", "has"})
_CLOSES = {")": "(", "]": "[", "}": "{"}


class BrokenPolicy(Rejected):
    """Policy text that cannot be used; the message names file and reason."""

    code = "invalid_params"


def check_policy_text(name: str, text: str) -> None:
    """Raise BrokenPolicy unless the text is safe to parse; `name` is how its file is called."""
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
            raise BrokenPolicy(f"{name}:{line}: {piece!r} closes nothing")
        elif piece == ";" and not opened:
            links = 0
        if len(opened) > MAX_NESTING or links > MAX_LINKS:
            _refuse(f"{name}:{line_at(text, match.start())}", len(opened))


def line_at(text: str, position: int) -> int:
    """The number of the line that a character stands in, from 1."""
    return text.count("\n", 0, position) + 1


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Each rule of the text, as far as it can be told, and the line it begins in."""
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


def _refuse(place: str, nesting: int) -> NoReturn:
    if nesting > MAX_NESTING:
        raise BrokenPolicy(f"{place}: brackets are nested deeper than {MAX_NESTING}")
    raise BrokenPolicy(
        f"{place}: one rule has more than {MAX_LINKS} operators, dots and brackets; "
        "use a set or several rules"
    )
