"""Search columns of an item: its text, its neighbours' texts, and its date in words."""

from datetime import UTC, datetime
from typing import NamedTuple

_LAST_MS = 253_402_300_799_999  # the end of the year 9999, the last that `datetime` knows


class SearchFields(NamedTuple):
    """Columns of the full-text index, in the order of the table."""

    text: str
    prev: str  # text of the item before it in its conversation
    next: str
    date: str  # of the statement, in words
    when: str  # dates that the text names, resolved against its own time


def search_fields(text: str, at_ms: int, *, previous: str, following: str) -> SearchFields:
    """Return the columns of one item; a missing neighbour is an empty text."""
    return SearchFields(text, previous, following, _date_words(at_ms), "")


def _date_words(at_ms: int) -> str:
    at = datetime.fromtimestamp(min(max(at_ms, 0), _LAST_MS) / 1000, UTC)
    return f"{at:%Y-%m-%d} {at.day} {at:%B} {at:%Y} {at:%A}"
