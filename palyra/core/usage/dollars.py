"""Amounts of money as a person writes them: dollars, as in `$3.00`.

The journal and the wire have micro-dollars, which are whole numbers.  The configuration takes both.
"""

import re

MICROS = 1_000_000
# At most a million dollars a thousand times, and no more digits than a micro-dollar has.
PATTERN = r"^\$[0-9]{1,9}(\.[0-9]{1,6})?$"
WORDS = 'dollars such as "$3.00"'
_AMOUNT = re.compile(PATTERN)


def to_micros(amount: int | str) -> int:
    """Return the amount in micro-dollars; a whole number is already one.

    Raises ValueError for a text that does not match `PATTERN`.
    """
    if isinstance(amount, int):
        return amount
    if _AMOUNT.fullmatch(amount) is None:
        raise ValueError(f"{amount!r}: expected {WORDS}")
    whole, _, part = amount.removeprefix("$").partition(".")
    return int(whole) * MICROS + int(part.ljust(6, "0"))


def to_dollars(micros: int) -> str:
    """Return the amount as `to_micros` reads it, with at least two places: `$0.075`, `$3.00`."""
    whole, part = divmod(micros, MICROS)
    places = f"{part:06}".rstrip("0").ljust(2, "0")
    return f"${whole}.{places}"
