"""Samples of secret formats, drawn with a seed, so that the repository contains no literal secret."""

import re
from collections.abc import Iterator
from functools import cache
from random import Random

from palyra.core.redaction.grammar import units
from palyra.core.redaction.patterns import vendor_rule
from palyra.core.redaction.token_formats import Format

_CHARACTERS = [chr(code) for code in range(32, 127)]
_OPEN = 4  # an open repetition is drawn so much longer than it must be


def sample(regex: str, random: Random) -> str:
    """One text that the expression matches."""
    return "".join(
        _one(unit, random) for unit, quantifier in units(regex)
        for _ in range(_count(quantifier, random))
    )  # fmt: skip


def format_sample(row: Format) -> str:
    """The first sample of the row, for its id, that looks random enough for its check."""
    return next(_accepted(row))


def _accepted(row: Format) -> Iterator[str]:
    random = Random(row.id)
    rule = vendor_rule(row)
    while True:
        text = sample(row.regex, random)
        if rule.accepts(text.encode()):
            yield text


def _one(unit: str, random: Random) -> str:
    if unit == r"\b":
        return ""
    if unit.startswith("(?:"):
        return sample(
            random.choice(re.findall(r"(?:\[[^\]]*\]|\\.|[^\[\\|])+", unit[3:-1])), random
        )
    return random.choice(_matching(unit))


@cache
def _matching(unit: str) -> list[str]:
    return [character for character in _CHARACTERS if re.fullmatch(unit, character)]


def _count(quantifier: str, random: Random) -> int:
    if quantifier in {"", "?", "*"}:
        return 1 if not quantifier else random.randrange(2)
    if quantifier == "+":
        return random.randrange(5, 9)
    least, comma, most = quantifier.strip("{}").partition(",")
    return random.randint(int(least), int(most)) if most else int(least) + (_OPEN if comma else 0)
