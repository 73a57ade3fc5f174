"""Words of a command as facts for the rules: each with its position, so that none matches by chance.

Cedar has sets and no lists.  A word is therefore written with its position, `0:pytest`, `1:-q`, and
a rule compares whole words: `context.argv.contains("1:-q")`.  A rule that names every position and
`argc` matches exactly one command.  `argv_under` has the folders above the words that are plain
relative paths, `2:tests` for the third word `tests/unit/test_a.py`, so a rule can match a folder
without a pattern that a longer word could satisfy.  `odd_words` counts the words that may mean
anything: a rule with `odd_words == 0` and a list of flags leaves options of that list, plain names and
paths inside of the workspace.
"""

import re
from collections.abc import Sequence
from posixpath import dirname
from typing import NamedTuple

from palyra.core.tool.paths import normal_path

MAX_WORDS = 64  # of a command whose words rules can see
MAX_CHARS = 8_192  # of these words together
MAX_DEPTH = 16  # folders above one path
# A relative path of ordinary characters, optionally with the id of a test after it.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.+-]+(?:/[A-Za-z0-9_.+-]+)*/?(?:::[A-Za-z0-9_]+)*")


class WordFacts(NamedTuple):
    """Facts about the words of a command; empty sets for a command that is too long to be seen."""

    argv: tuple[str, ...] = ()
    argv_under: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # options without their values
    odd_words: int = 0  # after the first, neither options nor plain paths; all words if not seen


NO_WORDS = WordFacts()


def read_words(argv: Sequence[str]) -> WordFacts:
    """Return the facts about a command; each tuple sorted and without duplicates."""
    if not argv or len(argv) > MAX_WORDS or sum(map(len, argv)) > MAX_CHARS:
        return WordFacts(odd_words=len(argv))
    under = {
        f"{at}:{folder}" for at, word in enumerate(argv) if at for folder in folders_above(word)
    }
    flags = {word.partition("=")[0] for word in argv[1:] if word.startswith("-")}
    return WordFacts(
        argv=tuple(sorted({f"{at}:{word}" for at, word in enumerate(argv)})),
        argv_under=tuple(sorted(under)),
        flags=tuple(sorted(flags)),
        odd_words=sum(map(_is_odd, argv[1:])),
    )


def _is_odd(word: str) -> bool:
    """True for a word that is no option and no plain relative path inside of the workspace."""
    if word.startswith("-"):
        return False
    return _PLAIN_PATH.fullmatch(word) is None or normal_path(word) is None


def folders_above(word: str) -> tuple[str, ...]:
    """Return the folders above a plain relative path, the nearest first; () for any other word.

    The top of the workspace is not among them.
    """
    if word.startswith("-") or _PLAIN_PATH.fullmatch(word) is None:
        return ()
    normal = normal_path(word)
    return () if normal is None else _above(normal)


def folders_of(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that contain all of these normal paths, the nearest first."""
    if not paths:
        return ()
    first, *rest = (_above(path) for path in paths)
    return tuple(folder for folder in first if all(folder in above for above in rest))


def _above(normal: str) -> tuple[str, ...]:
    found: list[str] = []
    folder = dirname(normal)
    while folder and len(found) <= MAX_DEPTH:
        found.append(folder)
        folder = dirname(folder)
    return tuple(found) if len(found) <= MAX_DEPTH else ()
