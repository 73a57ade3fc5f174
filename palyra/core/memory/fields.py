"""Columns of a memory in the full-text index.

The index splits text at everything that is no letter or digit, drops accents and stems English
words.  Two kinds of text need more: identifiers (`parseHttpHead`) are indexed with their parts,
too, and runs of Chinese, Japanese and Thai, which have no blanks, as overlapping pairs of
characters.

The texts of the neighbours of an item and the date of its statement are not in its entry.  Search
adds the neighbours' scores and compares dates itself (`store.vectors`, `ranking`), so an item is
indexed once, and a new neighbour changes nothing but links.

Dates that the text names ("yesterday") are indexed as words of their own, resolved against the
time of the statement: a day is `d20230507 in202305 in2023`, a month `m202305 in2023`, a year
`y2023`.  `date_words` gives the words that overlap with a span of a question.
"""

import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from palyra.core.memory.dates import DateSpan, day_of, find_spans

WEEK_DAYS, MONTH_DAYS = 7, 31  # a longer span is a month, and a year
MAX_DATE_WORDS = 64  # of one question
_RUN = re.compile(r"[A-Za-z0-9]+")
_HUMP = re.compile(r"[a-z0-9][A-Z]")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0002fa1f]+"
)


class SearchFields(NamedTuple):
    """Columns of the full-text index, in the order of the table."""

    text: str
    when: str  # words of the dates that the text names


def search_fields(text: str, at_ms: int) -> SearchFields:
    """Return the columns of an item whose statement was made at `at_ms`."""
    spans = find_spans(text, day_of(at_ms))
    return SearchFields(searchable(text), " ".join(dict.fromkeys(_indexed(spans))))


def searchable(text: str) -> str:
    """Return the text with the parts of identifiers appended and unspaced runs cut into pairs."""
    if not text.isascii():
        text = _UNSPACED.sub(lambda match: f" {_pairs(match[0])} ", text)
    parts = [" ".join(_PART.findall(run)) for run in _RUN.findall(text) if _HUMP.search(run)]
    return f"{text} {' '.join(parts)}" if parts else text


def date_words(spans: tuple[DateSpan, ...]) -> tuple[str, ...]:
    """Return the index words of dates that overlap with one of the spans; at most 64."""
    return tuple(dict.fromkeys(_asked(spans)))[:MAX_DATE_WORDS]


def _pairs(run: str) -> str:
    return " ".join(run[at : at + 2] for at in range(max(1, len(run) - 1)))


def _indexed(spans: tuple[DateSpan, ...]) -> Iterator[str]:
    for span in spans:
        year, month = _names(span.first)
        if span.days > MONTH_DAYS:
            yield f"y{year}"
        elif span.days > WEEK_DAYS:
            yield from (f"m{month}", f"in{year}")
        else:
            for day in span:
                year, month = _names(day)
                yield from (f"d{month}{day.day:02}", f"in{month}", f"in{year}")


def _asked(spans: tuple[DateSpan, ...]) -> Iterator[str]:
    for span in spans:
        year, month = _names(span.first)
        if span.days > MONTH_DAYS:
            yield from (f"y{year}", f"in{year}")
        elif span.days > WEEK_DAYS:
            yield from (f"m{month}", f"in{month}")
        else:
            for day in span:
                _, month = _names(day)
                yield from (f"d{month}{day.day:02}", f"m{month}")


def _names(day: date) -> tuple[str, str]:
    return f"{day.year:04}", f"{day.year:04}{day.month:02}"
