"""Policy text before the native parser sees it.

Cedar's parser, evaluator and destructor recurse with the expression, and running out of stack ends
the process: about 660 nested parentheses do, and so do 3 000 terms of one `||` chain or 3 000
`.attribute` steps.  The limits below keep a factor of three or more from every such form (held by
a test in a child process).
"""

import re
from collections.abc import Iterator

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
    """Raise BrokenPolicy unless the text is safe to parse."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        raise BrokenPolicy(f"{name}: {size} bytes; a policy file has at most {MAX_TEXT_BYTES}")
    opened: list[str] = []
    links = 0
    for piece in _tokens(text):
        links += piece in _LINKS
        if piece in _CLOSES.values():
            opened.append(piece)
        elif piece in _CLOSES and (not opened or opened.pop() != _CLOSES[piece]):
            raise BrokenPolicy(f"{name}: {piece!r} closes nothing")
        elif piece == ";" and not opened:
            links = 0
        _check_limits(name, len(opened), links)


def _tokens(text: str) -> Iterator[str]:
    return (match.group() for match in _TOKEN.finditer(text))


def _check_limits(name: str, nesting: int, links: int) -> None:
    if nesting > MAX_NESTING:
        raise BrokenPolicy(f"{name}: brackets are nested deeper than {MAX_NESTING}")
    if links > MAX_LINKS:
        raise BrokenPolicy(
            f"{name}: one rule has more than {MAX_LINKS} operators, dots and brackets; "
            "use a set or several rules"
        )
