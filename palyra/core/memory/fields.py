"""Columns of a memory in the full-text index.

The index splits text at everything that is no letter or digit, drops accents and stems English
words.  Three kinds of text need more: identifiers (`parseHttpHead`) are indexed with their parts,
too; runs of Chinese, Japanese and Thai, which have no blanks, as overlapping pairs of characters
and the last one, so that every character begins a word; symbols and emoji as words of their code
points (`u128512`), without the tone of a skin.

The texts of the neighbours of an item and the date of its statement are not in its entry.  Search
adds the neighbours' scores and compares dates itself (`store.vectors`, `ranking`), so an item is
indexed once, and a new neighbour changes nothing but links.

Dates that the text names ("yesterday") are indexed as words of their own, resolved against the
time of the statement: a day is `d20230507 in202305 in2023`, a month `m202305 in2023`, a year
`y2023`; a season is its months, a decade its years.  `date_words` gives the words that overlap with a span of a question.

The same column has the words by which an item is found as a duplicate: a number made of a term
of its text and of the place, kind and author that a duplicate shares.  Its postings are those of one
principal, so a search for duplicates reads none of others, however many these are.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import date
from hashlib import blake2b
from typing import NamedTuple

from palyra.core.memory.dates import DateSpan, day_of, find_spans

PART_DAYS, YEAR_DAYS = 11, 366  # a longer span is its months, and its years
MAX_DATE_WORDS = 64  # of one question
_RUN = re.compile(r"[A-Za-z0-9]+")
_HUMP = re.compile(r"[a-z0-9][A-Z]")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0002fa1f\U00030000-\U000323af]+"
)
_SYMBOL = re.compile(
    r"[\U0001f1e6-\U0001f1ff]{2}|[\u00a2-\u00a7\u00a9\u00ae\u00b0\u00b1\u20a0-\u20cf\u2122\u2139\u2190-\u2bff"
    r"\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
)
INDEXED_KEYS, ASKED_KEYS = 12, 8  # terms of a text
_STEM_CHARS = 6  # of a word without a digit: its forms differ behind them


class SearchFields(NamedTuple):
    """Columns of the full-text index, in the order of the table."""

    text: str
    when: str  # words of the dates that the text names


def search_fields(text: str, at_ms: int) -> SearchFields:
    """Return the columns of an item whose statement was made at `at_ms`."""
    spans = find_spans(text, day_of(at_ms))
    words = searchable(text, is_indexed=True)
    return SearchFields(words, " ".join(dict.fromkeys(_indexed(spans))))


def duplicate_keys(place: tuple[str | None, ...], terms: Iterable[str]) -> tuple[str, ...]:
    """Return index words of the first terms, for the search for duplicates.

    `place` is what a duplicate has in common: principal, scope and its place, kind, author.
    """
    stems = dict.fromkeys(term if _has_digit(term) else term[:_STEM_CHARS] for term in terms)
    base = blake2b("\0".join(each or "" for each in place).encode(), digest_size=6)
    keys = []
    for stem in list(stems)[:INDEXED_KEYS]:
        digest = base.copy()
        digest.update(b"\0" + stem.encode())
        keys.append(f"k{int.from_bytes(digest.digest())}")
    return tuple(keys)


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def is_unspaced_character(word: str) -> bool:
    """True for one character of a script without blanks: it is the beginning of words of the index."""
    return len(word) == 1 and not word.isascii() and _UNSPACED.match(word) is not None


def searchable(text: str, *, is_indexed: bool = False) -> str:
    """Return the text with parts of identifiers, pairs of unspaced runs and words of symbols.

    A text that is indexed also gets the last character of each run.
    """
    if not text.isascii():
        text = _UNSPACED.sub(lambda match: f" {_pairs(match[0], is_indexed)} ", text)
        text = _SYMBOL.sub(_name_symbol, text)
    parts = [" ".join(_PART.findall(run)) for run in _RUN.findall(text) if _HUMP.search(run)]
    return f"{text} {' '.join(parts)}" if parts else text


def date_words(spans: tuple[DateSpan, ...]) -> tuple[str, ...]:
    """Return the index words of dates that overlap with one of the spans; at most 64."""
    return tuple(dict.fromkeys(_asked(spans)))[:MAX_DATE_WORDS]


def _pairs(run: str, has_last: bool) -> str:  # noqa: FBT001 - of this file
    return " ".join(run[at : at + 2] for at in range(max(1, len(run) - 1 + has_last)))


def _name_symbol(match: re.Match[str]) -> str:
    return f" u{''.join(str(ord(char)) for char in match[0])} "


def _indexed(spans: tuple[DateSpan, ...]) -> Iterator[str]:
    for span in spans:
        if _is_years(span):
            yield from (f"y{year:04}" for year in range(span.first.year, span.last.year + 1))
        elif span.days > PART_DAYS:
            for year, month in _months(span):
                yield from (f"m{month}", f"in{year}")
        else:
            for day in span:
                year, month = _names(day)
                yield from (f"d{month}{day.day:02}", f"in{month}", f"in{year}")


def _asked(spans: tuple[DateSpan, ...]) -> Iterator[str]:
    for span in spans:
        if _is_years(span):
            for year in range(span.first.year, span.last.year + 1):
                yield from (f"y{year:04}", f"in{year:04}")
        elif span.days > PART_DAYS:
            for _, month in _months(span):
                yield from (f"m{month}", f"in{month}")
        else:
            for day in span:
                _, month = _names(day)
                yield from (f"d{month}{day.day:02}", f"m{month}")


def _is_years(span: DateSpan) -> bool:
    return span.days >= YEAR_DAYS - 1


def _months(span: DateSpan) -> Iterator[tuple[str, str]]:
    """Yield year and month of each month of a span."""
    first, last = (each.year * 12 + each.month - 1 for each in (span.first, span.last))
    for at in range(first, last + 1):
        yield f"{at // 12:04}", f"{at // 12:04}{at % 12 + 1:02}"


def _names(day: date) -> tuple[str, str]:
    return f"{day.year:04}", f"{day.year:04}{day.month:02}"
