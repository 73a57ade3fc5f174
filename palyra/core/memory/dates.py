"""Dates in text: spans of days named absolutely, or relative to the time of the text.

"yesterday" in a message of 8 May 2023 is 7 May 2023.  Without its resolution a search for that day
cannot find the message.  English and German.  Days are those of UTC.  Weeks, months and years are
spans of their days.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

DAY_MS = 86_400_000
MAX_SPANS = 8  # of one text; more dates than that are a table, not a statement
MAX_DATED_CHARS = 4_096  # from the beginning, about 50 ms; dates behind it are not read
_CACHED = 4_096
_EPOCH = date(1970, 1, 1)

_MONTHS = (
    "january|januar|jan",
    "february|februar|feb",
    "march|märz|maerz|mar|mrz",
    "april|apr",
    "may|mai",
    "june|juni|jun",
    "july|juli|jul",
    "august|aug",
    "september|sept|sep",
    "october|oktober|oct|okt",
    "november|nov",
    "december|dezember|dec|dez",
)
_WEEKDAYS = (
    "monday|montag",
    "tuesday|dienstag",
    "wednesday|mittwoch",
    "thursday|donnerstag",
    "friday|freitag",
    "saturday|samstag|sonnabend",
    "sunday|sonntag",
)
_MONTH_NUMBER = {name: at for at, names in enumerate(_MONTHS, 1) for name in names.split("|")}
_WEEKDAY_NUMBER = {name: at for at, names in enumerate(_WEEKDAYS) for name in names.split("|")}
_AMBIGUOUS = frozenset({"may", "mar", "march", "sep", "dec", "jun", "jul", "jan", "mai"})
_NUMBERS = {
    **dict.fromkeys(("a", "an", "one", "ein", "einem", "einen", "einer", "eine"), 1),
    **dict.fromkeys(("two", "zwei"), 2),
    **dict.fromkeys(("a couple of", "a couple", "couple of", "ein paar"), 2),
    **dict.fromkeys(("three", "drei", "a few", "few", "einige", "einigen"), 3),
    **dict.fromkeys(("four", "vier"), 4),
    **dict.fromkeys(("five", "fünf"), 5),
    **dict.fromkeys(("six", "sechs"), 6),
    **dict.fromkeys(("seven", "sieben"), 7),
    **dict.fromkeys(("eight", "acht"), 8),
    **dict.fromkeys(("nine", "neun"), 9),
    **dict.fromkeys(("ten", "zehn"), 10),
    **dict.fromkeys(("twelve", "zwölf"), 12),
}
_UNITS = {
    **dict.fromkeys(("day", "days", "tag", "tage", "tagen"), "day"),
    **dict.fromkeys(("night", "evening", "morning", "nacht", "abend"), "day"),
    **dict.fromkeys(("week", "weeks", "woche", "wochen"), "week"),
    **dict.fromkeys(("weekend", "weekends", "wochenende"), "weekend"),
    **dict.fromkeys(("month", "months", "monat", "monate", "monaten"), "month"),
    **dict.fromkeys(("year", "years", "jahr", "jahre", "jahren"), "year"),
}
_DIRECTIONS = {
    **dict.fromkeys(("last", "past", "previous", "letzte", "letzten", "letztes", "letzter"), -1),
    **dict.fromkeys(("vorige", "vorigen", "voriges", "vergangene", "vergangenen"), -1),
    **dict.fromkeys(("this", "diese", "diesen", "dieses", "dieser", "diesem"), 0),
    **dict.fromkeys(("next", "coming", "nächste", "nächsten", "nächstes", "kommende"), 1),
    **dict.fromkeys(("kommenden", "kommendes"), 1),
}
_FIXED = {
    **dict.fromkeys(("yesterday", "last night", "gestern"), -1),
    **dict.fromkeys(("the day before yesterday", "vorgestern"), -2),
    **dict.fromkeys(("today", "tonight", "this morning", "heute"), 0),
    **dict.fromkeys(("tomorrow", "morgen"), 1),
    **dict.fromkeys(("the day after tomorrow", "übermorgen"), 2),
}


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_MONTH, _WEEKDAY = _any(_MONTH_NUMBER), _any(_WEEKDAY_NUMBER)
_COUNT = rf"\d{{1,3}}|{_any(_NUMBERS)}"
_UNIT, _DIRECTION = _any(_UNITS), _any(_DIRECTIONS)
_YEAR = r"(?:19|20)\d\d"


@dataclass(frozen=True, slots=True, order=True)
class DateSpan:
    """Days from `first` to `last`, both included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    def __iter__(self) -> Iterator[date]:
        return (self.first + timedelta(offset) for offset in range(self.days))


def day_of(at_ms: int) -> date:
    """Return the day of a time in UTC; of a time outside the calendar the first or last day."""
    try:
        return _EPOCH + timedelta(at_ms // DAY_MS)
    except OverflowError:
        return date.min if at_ms < 0 else date.max


def start_ms(day: date) -> int:
    """Return the first millisecond of a day in UTC."""
    return (day - _EPOCH).days * DAY_MS


def find_spans(text: str, day: date) -> tuple[DateSpan, ...]:
    """Return the spans that the text names, of a text written on `day`; sorted, at most 8."""
    return tuple(sorted({span for _, _, span in _find_all(text, day)})[:MAX_SPANS])


def without_dates(text: str, day: date) -> str:
    """Return the text without the dates that `find_spans` reads."""
    kept, at = [], 0
    for start, end, _ in sorted(_find_all(text, day)):
        kept.append(text[at:start])
        at = end
    return " ".join([*kept, text[at:]])


@lru_cache(_CACHED)
def _find_all(text: str, day: date) -> tuple[tuple[int, int, DateSpan], ...]:
    """Return start, end and span of each date; a more specific rule takes its text first."""
    found: list[tuple[int, int, DateSpan]] = []
    for pattern, resolve in _RULES:
        for match in pattern.finditer(text, 0, MAX_DATED_CHARS):
            start, end = match.span()
            if any(start < other_end and other_start < end for other_start, other_end, _ in found):
                continue
            span = _try(resolve, match, day)
            if span is not None:
                found.append((start, end, span))
    return tuple(found)


def _try(resolve: "_Resolve", match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve a match; None for what is no date (31 February, a year beyond the calendar)."""
    try:
        return resolve(match, day)
    except (ValueError, OverflowError):
        return None


# --- rules, the most specific first --------------------------------------------------------------

_Resolve = Callable[[re.Match[str], date], DateSpan | None]


def _one_day(at: date) -> DateSpan:
    return DateSpan(at, at)


def _month(year: int, month: int) -> DateSpan:
    first = date(year, month, 1)
    following = date(year + month // 12, month % 12 + 1, 1)
    return DateSpan(first, following - timedelta(1))


def _year(year: int) -> DateSpan:
    return DateSpan(date(year, 1, 1), date(year, 12, 31))


def _week(at: date) -> DateSpan:
    monday = at - timedelta(at.weekday())
    return DateSpan(monday, monday + timedelta(6))


def _add_months(day: date, months: int) -> DateSpan:
    at = day.year * 12 + day.month - 1 + months
    return _month(at // 12, at % 12 + 1)


def _by_unit(day: date, unit: str, count: int) -> DateSpan:
    """Return the span of `count` units from `day`; negative is the past."""
    match unit:
        case "day":
            return _one_day(day + timedelta(count))
        case "week":
            return _week(day + timedelta(7 * count))
        case "weekend":
            saturday = _week(day + timedelta(7 * count)).last - timedelta(1)
            return DateSpan(saturday, saturday + timedelta(1))
        case "month":
            return _add_months(day, count)
        case _:
            return _year(day.year + count)


def _iso(match: re.Match[str], _day: date) -> DateSpan:
    return _one_day(date(int(match[1]), int(match[2]), int(match[3])))


def _dotted(match: re.Match[str], _day: date) -> DateSpan:
    return _one_day(date(int(match[3]), int(match[2]), int(match[1])))


def _day_month(match: re.Match[str], day: date) -> DateSpan:
    return _named_day(match["month"], match["day"], match["year"], day)


def _named_day(month: str, number: str, year: str | None, day: date) -> DateSpan:
    at_month, at_day = _MONTH_NUMBER[month.lower()], int(number)
    if year:
        return _one_day(date(int(year), at_month, at_day))
    # Without a year: the nearest such day.
    near = [date(day.year + step, at_month, at_day) for step in (-1, 0, 1)]
    return _one_day(min(near, key=lambda each: abs(each - day)))


def _month_year(match: re.Match[str], _day: date) -> DateSpan:
    return _month(int(match["year"]), _MONTH_NUMBER[match["month"].lower()])


def _bare_month(match: re.Match[str], day: date) -> DateSpan | None:
    name = match["month"]
    is_introduced = match["in"] is not None
    if not name[0].isupper() or (name.lower() in _AMBIGUOUS and not is_introduced):
        return None  # "may", "march"
    month = _MONTH_NUMBER[name.lower()]
    near = [_month(day.year + step, month) for step in (-1, 0, 1)]
    return min(near, key=lambda each: abs(each.first - day))


def _bare_year(match: re.Match[str], _day: date) -> DateSpan:
    return _year(int(match[1]))


def _ago(match: re.Match[str], day: date) -> DateSpan:
    return _by_unit(day, _UNITS[match["unit"].lower()], -_count(match["count"]))


def _ahead(match: re.Match[str], day: date) -> DateSpan:
    return _by_unit(day, _UNITS[match["unit"].lower()], _count(match["count"]))


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else _NUMBERS[" ".join(text.lower().split())]


def _fixed(match: re.Match[str], day: date) -> DateSpan | None:
    if match[1] == "Morgen":  # German: the time of the day
        return None
    return _one_day(day + timedelta(_FIXED[" ".join(match[1].lower().split())]))


def _directed(match: re.Match[str], day: date) -> DateSpan | None:
    step, noun = _DIRECTIONS[match["direction"].lower()], match["noun"].lower()
    if noun in _UNITS:
        return None if _UNITS[noun] == "day" else _by_unit(day, _UNITS[noun], step)
    if noun in _WEEKDAY_NUMBER:
        return _one_day(_weekday(day, _WEEKDAY_NUMBER[noun], step))
    month = _MONTH_NUMBER[noun]
    year = day.year
    if step < 0 and month >= day.month:
        year -= 1
    elif step > 0 and month <= day.month:
        year += 1
    return _month(year, month)


def _weekday(day: date, weekday: int, step: int) -> date:
    """Return the nearest such weekday before (-1), in the week of (0) or after (1) the day."""
    if step == 0:
        return _week(day).first + timedelta(weekday)
    if step > 0:
        return day + timedelta((weekday - day.weekday() - 1) % 7 + 1)
    return day - timedelta((day.weekday() - weekday - 1) % 7 + 1)


def _bare_weekday(match: re.Match[str], day: date) -> DateSpan:
    """Take the most recent such weekday: people report more than they announce."""
    return _one_day(_weekday(day, _WEEKDAY_NUMBER[match["weekday"].lower()], -1))


def _rule(pattern: str, resolve: _Resolve) -> tuple[re.Pattern[str], _Resolve]:
    return re.compile(pattern, re.IGNORECASE), resolve


_ORDINAL = r"(?:st|nd|rd|th|\.)?"
_RULES: tuple[tuple[re.Pattern[str], _Resolve], ...] = (
    _rule(rf"\b({_YEAR})-(\d\d)-(\d\d)", _iso),
    _rule(rf"\b(\d{{1,2}})\.\s?(\d{{1,2}})\.\s?({_YEAR})\b", _dotted),
    _rule(
        rf"\b(?P<day>\d{{1,2}}){_ORDINAL}\s+(?:of\s+)?(?P<month>{_MONTH})\b\.?"
        rf"(?:,?\s+(?P<year>{_YEAR})\b)?",
        _day_month,
    ),
    _rule(
        rf"\b(?P<month>{_MONTH})\b\.?\s+(?P<day>\d{{1,2}}){_ORDINAL}(?!\d)"
        rf"(?:,?\s+(?P<year>{_YEAR})\b)?",
        _day_month,
    ),
    _rule(rf"\b(?P<month>{_MONTH})\b\.?,?\s+(?:of\s+)?(?P<year>{_YEAR})\b", _month_year),
    _rule(rf"\b({_any(_FIXED)})\b", _fixed),
    _rule(rf"\b(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\s+(?:ago|back|before|earlier)\b", _ago),
    _rule(rf"\bvor\s+(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\b", _ago),
    _rule(rf"\bin\s+(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})(?:\s+time)?\b", _ahead),
    _rule(rf"\b(?P<direction>{_DIRECTION})\s+(?P<noun>{_UNIT}|{_WEEKDAY}|{_MONTH})\b", _directed),
    _rule(rf"\b(?P<weekday>{_WEEKDAY})s?\b", _bare_weekday),
    _rule(
        rf"\b(?P<in>(?:in|since|until|by|during|seit|bis|im|of)\s+)?(?P<month>{_MONTH})\b",
        _bare_month,
    ),
    _rule(rf"(?<![\w.:/-])({_YEAR})(?![\w:/-]|\.\d)", _bare_year),
)
