"""Dates in text: spans of days named absolutely, or relative to the time of the text.

"yesterday" in a message of 8 May 2023 is 7 May 2023.  Without its resolution a search for that day
cannot find the message.  English and German.  Days are those of UTC.  Weeks, months, quarters, seasons
and years are spans of their days.

A memory is about the past: a day or a month without a year is the latest one that has begun, unless the
text looks ahead ("the rent is due on 3 May").  A name of a month, a season or a year needs a word that
introduces it, because it is also a verb, a person or a number: "in March", and not "we march on".
Habits ("on Mondays") are no dates.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import NamedTuple

DAY_MS = 86_400_000
MAX_SPANS = 8  # of one text; more dates than that are a table, not a statement
MAX_DATED_CHARS = 4_096  # from the beginning; dates behind it are not read
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
# Names of months that are verbs, people or adjectives, too; others may stand alone with a capital.
_AMBIGUOUS = frozenset(
    {
        "may",
        "mar",
        "march",
        "sep",
        "dec",
        "jun",
        "jul",
        "jan",
        "mai",
        "april",
        "june",
        "august",
        "aug",
    }
)
_VERBS = frozenset({"may", "march", "mar"})
_LOOSE = frozenset({"of", "by", "before", "after", "around", "from", "vor", "nach"})  # people, too
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
    **dict.fromkeys(("eleven", "elf"), 11),
    **dict.fromkeys(("twelve", "zwölf", "a dozen"), 12),
    **dict.fromkeys(("fourteen", "vierzehn"), 14),
}
_UNITS = {
    **dict.fromkeys(("day", "days", "tag", "tage", "tagen"), "day"),
    **dict.fromkeys(
        ("night", "nights", "evening", "morning", "afternoon", "nacht", "abend"), "day"
    ),
    **dict.fromkeys(("week", "weeks", "woche", "wochen", "fortnight"), "week"),
    **dict.fromkeys(("quarter", "quartal"), "quarter"),
    **dict.fromkeys(("weekend", "weekends", "wochenende"), "weekend"),
    **dict.fromkeys(("month", "months", "monat", "monate", "monaten"), "month"),
    **dict.fromkeys(("year", "years", "jahr", "jahre", "jahren"), "year"),
}
_DIRECTIONS = {
    **dict.fromkeys(("last", "past", "previous", "letzte", "letzten", "letztes", "letzter"), -1),
    **dict.fromkeys(("vorige", "vorigen", "voriges", "vergangene", "vergangenen"), -1),
    **dict.fromkeys(("vergangenes", "voriger", "vergangener", "letztem", "vorigem"), -1),
    **dict.fromkeys(("vorletzte", "vorletzten", "vorletztes", "vorletzter"), -2),
    **dict.fromkeys(("this", "diese", "diesen", "dieses", "dieser", "diesem"), 0),
    **dict.fromkeys(("next", "coming", "nächste", "nächsten", "nächstes", "kommende"), 1),
    **dict.fromkeys(("kommenden", "kommendes"), 1),
}
_FIXED = {
    **dict.fromkeys(("yesterday", "last night", "gestern"), -1),
    **dict.fromkeys(("the day before yesterday", "vorgestern", "the night before last"), -2),
    **dict.fromkeys(("vorvorgestern",), -3),
    **dict.fromkeys(("today", "tonight", "this morning", "heute", "heute morgen"), 0),
    **dict.fromkeys(("this afternoon", "this evening"), 0),
    **dict.fromkeys(("gestern morgen",), -1),
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
    """Resolve a match; None for what is no date (31 February, a year beyond the calendar).

    A word in letters that only fold to ours, such as a long s, is matched and unknown.
    """
    try:
        return resolve(match, day)
    except (ValueError, OverflowError, LookupError):
        return None


# --- points: a day, month or year, with what is left out taken from the day of the text --------------

_Resolve = Callable[[re.Match[str], date], DateSpan | None]


class _Point(NamedTuple):
    """Parts of a date that a text names."""

    day: int | None = None
    month: int | None = None
    year: int | None = None


_AHEAD = re.compile(
    r"\b(?:will|shall|going to|due|deadline|upcoming|scheduled|booked for|(?:is|are) on|wird|werden|findet|fällig"
    r"|frist|geplant|steht an|kommende\w*|planned)\b",
    re.IGNORECASE,
)
_BEHIND = re.compile(
    r"\b(?:was|were|had|did|went|got|came|war|waren|hatte\w*|wurde\w*|hab|habe|haben|hat|\w{2,}ed)\b",
    re.IGNORECASE,
)


@lru_cache(_CACHED)
def _looks_ahead(text: str) -> bool:
    return _AHEAD.search(text) is not None and not _looks_behind(text)


@lru_cache(_CACHED)
def _looks_behind(text: str) -> bool:
    return _BEHIND.search(text) is not None


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


def _months(year: int, first: int, count: int) -> DateSpan:
    """Return the span of some months; the first may be beyond the year."""
    begin = _add_months(date(year, 1, 1), first - 1).first
    return DateSpan(begin, _add_months(begin, count - 1).last)


def _latest(spans: Iterable[DateSpan], day: date, text: str = "") -> DateSpan | None:
    """Return the latest span that has begun; the nearest one if the text looks ahead."""
    found = sorted(spans)
    if _looks_ahead(text):
        return min(found, key=lambda each: abs(each.first - day))
    return next((each for each in reversed(found) if each.first <= day), None)


def _span_of(point: _Point, day: date, text: str) -> DateSpan | None:
    """Return the span of a point, with its missing year, or month, chosen by the day of the text."""
    number, month, year = point
    if month is None:
        if year is not None:
            return _year(year)
        near = (_add_months(day, step).first for step in (-2, -1, 0, 1))
        return _latest(
            filter(None, (_try_day(each.year, each.month, number or 0) for each in near)), day, text
        )
    years = (year,) if year is not None else range(day.year - 4, day.year + 2)
    if number is None:
        spans = [_month(each, month) for each in years]
    else:
        spans = [found for each in years if (found := _try_day(each, month, number)) is not None]
    return spans[0] if year is not None and spans else _latest(spans, day, text)


def _try_day(year: int, month: int, number: int) -> DateSpan | None:
    try:
        return _one_day(date(year, month, number))
    except ValueError:
        return None


# --- words ---------------------------------------------------------------------------------------

_ORDINAL = r"(?:st|nd|rd|th|\.)?"
_NUMBER = rf"\d{{1,2}}{_ORDINAL}"
_YEAR_WORDS = {
    **dict.fromkeys(("last year", "the previous year", "letzten jahres", "vorigen jahres"), -1),
    **dict.fromkeys(("vergangenen jahres", "letztes jahr", "voriges jahr", "vergangenes jahr"), -1),
    **dict.fromkeys(("im letzten jahr", "im vorigen jahr", "im vergangenen jahr"), -1),
    **dict.fromkeys(("this year", "dieses jahres", "dieses jahr"), 0),
    **dict.fromkeys(("next year", "nächsten jahres", "nächstes jahr"), 1),
    **dict.fromkeys(("vorletzten jahres", "vorletztes jahr", "the year before last"), -2),
}
_WHICH_YEAR = rf"(?:{_YEAR}|{_any(_YEAR_WORDS)})"
_OF_YEAR = rf"(?:,?\s+(?:of\s+|in\s+|von\s+|des\s+jahres\s+)?(?P<year>{_WHICH_YEAR}))"
_IN_YEAR = _OF_YEAR.replace("?P<year>", "?:")
_THE = r"(?:the\s+|dem\s+|den\s+|der\s+)?"
_NAMED_DAYS = {
    **dict.fromkeys(("new year's eve", "new years eve", "silvester"), (12, 31)),
    **dict.fromkeys(("new year's day", "new years day", "new year's", "neujahr"), (1, 1)),
    **dict.fromkeys(("christmas eve", "heiligabend", "heilig abend"), (12, 24)),
    **dict.fromkeys(("christmas day", "christmas", "xmas", "weihnachten"), (12, 25)),
    **dict.fromkeys(("boxing day",), (12, 26)),
    **dict.fromkeys(("valentine's day", "valentinstag"), (2, 14)),
    **dict.fromkeys(("halloween",), (10, 31)),
    **dict.fromkeys(("nikolaus",), (12, 6)),
}
_DAY_WORDS_TEXT = """
first erste ersten erster | second zweite zweiten | third dritte dritten | fourth vierte vierten
| fifth fünfte fünften | sixth sechste sechsten | seventh siebte siebten | eighth achte achten
| ninth neunte neunten | tenth zehnte zehnten | eleventh elfte elften | twelfth zwölfte zwölften
| thirteenth dreizehnten | fourteenth vierzehnten | fifteenth fünfzehnten
"""
_DAY_WORDS = {
    word: at for at, words in enumerate(_DAY_WORDS_TEXT.split("|"), 1) for word in words.split()
}
_POINT = (
    rf"{_THE}(?:{_YEAR}-\d\d-\d\d|\d{{1,2}}\.\s?\d{{1,2}}\.(?:\s?{_YEAR})?"
    rf"|(?:{_NUMBER}\s+(?:of\s+)?)?(?:{_MONTH})\b\.?(?:\s+\d{{1,2}}(?:st|nd|rd|th)?(?!\d))?"
    rf"(?:,?\s+(?:of\s+)?{_WHICH_YEAR}\b)?|{_NUMBER}|{_any(_NAMED_DAYS)}(?:\s+{_YEAR}\b)?)"
)
_POINT_PARTS = re.compile(
    rf"(?P<iso>{_YEAR}-\d\d-\d\d)|(?P<word>{_any(_DAY_WORDS)})\b|(?P<dotted>\d{{1,2}}\.\s?\d{{1,2}}\.(?:\s?{_YEAR})?)"
    rf"|(?P<named>{_any(_NAMED_DAYS)})|(?P<year>{_WHICH_YEAR})|(?P<month>{_MONTH})\b|(?P<day>\d{{1,2}})(?!\d)",
    re.IGNORECASE,
)


def _read_point(text: str, day: date) -> _Point:
    found = _Point()
    for match in _POINT_PARTS.finditer(text):
        kind, part = str(match.lastgroup), " ".join(match[0].lower().split())
        if kind == "iso":
            year, month, number = map(int, part.split("-"))
            return _Point(number, month, year)
        if kind == "dotted":
            numbers = [int(each) for each in re.findall(r"\d+", part)]
            return _Point(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else found.year)  # noqa: PLR2004
        if kind == "named":
            month, number = _NAMED_DAYS[part]
            found = found._replace(month=month, day=number)
        elif kind == "word":
            found = found._replace(day=_DAY_WORDS[part])
        elif kind == "year":
            found = found._replace(year=_which_year(part, day))
        elif kind == "month":
            found = found._replace(month=_MONTH_NUMBER[part])
        else:
            found = found._replace(day=int(part))
    return found


def _which_year(text: str, day: date) -> int:
    plain = " ".join(text.lower().split())
    return int(plain) if plain.isdecimal() else day.year + _YEAR_WORDS[plain]


# --- rules, the most specific first --------------------------------------------------------------


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
        case "quarter":
            return _months(day.year, (day.month - 1) // 3 * 3 + 1 + 3 * count, 3)
        case _:
            return _year(day.year + count)


def _point(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve a date whose month is named, or whose parts are all numbers."""
    name = match.groupdict().get("month")
    if name is not None and name in _VERBS and _is_verb(match):
        return None
    return _span_of(_read_point(match[0], day), day, match.string)


def _is_habit(match: re.Match[str]) -> bool:
    """True behind a word that says how often."""
    return _OFTEN.search(_before(match)) is not None


def _before(match: re.Match[str]) -> str:
    """Return what precedes a date: enough for two words, so that many dates cost no more each."""
    return match.string[max(0, match.start() - _BEFORE_CHARS) : match.start()]


_BEFORE_CHARS = 64


_OFTEN = re.compile(
    r"\b(?:every|each|most|any|once|twice|times|jeden?|jedes|jeder|einmal|zweimal|mal)\s+(?:\w+\s+)?$",
    re.IGNORECASE,
)


def _is_verb(match: re.Match[str]) -> bool:
    """True if "3 may" or "march 5" goes on as a sentence does: "those 3 may break"."""
    behind = _GOES_ON.match(match.string, match.end())
    return behind is not None and _BEFORE_DAY.search(_before(match)) is None


_GOES_ON = re.compile(r"\s+\w")
_BEFORE_DAY = re.compile(
    r"\b(?:on|since|until|till|by|from|of|to|before|after|between|and|the|am|dem|den|der|vom|bis|seit|ab)\s+$",
    re.IGNORECASE,
)


def _slashed(match: re.Match[str], _day: date) -> DateSpan | None:
    first, second, year = (int(each) for each in match.groups())
    return _try_day(year, second, first) or _try_day(year, first, second)


def _range(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve two points; what one of them leaves out is that of the other."""
    first, last = (_read_point(match[name], day) for name in ("first", "last"))
    month = last.month or first.month
    if month is None and (first.day or last.day):
        return None  # "between 3 and 5"
    first = _Point(first.day, first.month or month, first.year or last.year)
    last = _Point(last.day, last.month or month, last.year)
    end = _span_of(last, day, match.string)
    if end is None:
        return None
    begin = _span_of(first, end.last, "")
    return None if begin is None else DateSpan(begin.first, end.last)


def _part(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve "early", "mid" and "late" of a month or a year."""
    which = _PARTS[" ".join(match["part"].lower().replace("-", " ").split())]
    whole = match["whole"]
    directed = _DIRECTED.fullmatch(whole)
    span = (
        _directed(directed, day)
        if directed
        else _span_of(_read_point(whole, day), day, match.string)
    )
    if span is None:
        return None
    year, month = span.first.year, span.first.month
    if span.days <= _WEEK_DAYS:
        first, last = ((0, 1), (2, 3), (4, 6))[which]
        return DateSpan(span.first + timedelta(first), span.first + timedelta(last))
    if span.days > _MONTH_DAYS:
        return _months(year, (1, 5, 10)[which], (3, 4, 3)[which])
    last = (10, 20, span.last.day)[which]
    return DateSpan(date(year, month, (1, 11, 21)[which]), date(year, month, last))


_WEEK_DAYS, _MONTH_DAYS = 7, 31
_PARTS = {
    **dict.fromkeys(("early", "beginning", "start", "early in", "anfang", "beginn"), 0),
    **dict.fromkeys(("mid", "middle", "mitte"), 1),
    **dict.fromkeys(("late", "end", "late in", "ende"), 2),
}
_SEASONS = {
    **dict.fromkeys(("spring", "springtime", "frühling", "frühjahr", "fruehling", "fruehjahr"), 3),
    **dict.fromkeys(("summer", "sommer", "summertime"), 6),
    **dict.fromkeys(("autumn", "fall", "herbst"), 9),
    **dict.fromkeys(("winter",), 12),
}


def _season(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve a season: of a year, the last, this or next one, or the latest that has begun."""
    month = _SEASONS[match["season"].lower()]
    given = match["year"] or match["before"]
    if given:
        return _months(_which_year(given, day), month, 3)
    if _is_habit(match) or not (match["direction"] or match["in"]):
        return None  # "every spring", "spring water"
    spans = [_months(day.year + step, month, 3) for step in (-3, -2, -1, 0, 1)]
    if not match["direction"]:
        return _latest(spans, day, match.string)
    step = _DIRECTIONS[match["direction"].lower()]
    if step < 0:
        return [each for each in spans if each.last < day][step]
    this = next((each for each in spans if each.first <= day <= each.last), spans[3])
    return next(each for each in spans if each.first > day) if step else this


def _portion(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve a quarter or a half of a year."""
    count = 3 if match["quarter"] else 6
    which = _nth(match["nth"])
    if match["year"]:
        return _months(
            _which_year(match["year"], day),
            (which if which > 0 else 12 // count) * count - count + 1,
            count,
        )
    if which < 0:
        return _by_unit(day, "quarter", -1) if count == 3 else None  # noqa: PLR2004
    return _latest(
        (_months(day.year + step, which * count - count + 1, count) for step in (-1, 0, 1)),
        day,
        match.string,
    )


def _nth(text: str) -> int:
    plain = text.lower().rstrip(".")
    return int(plain[0]) if plain[0].isdecimal() else _ORDINALS[plain]


_ORDINALS = {
    **dict.fromkeys(("first", "erste", "ersten", "erster", "erstes"), 1),
    **dict.fromkeys(("second", "zweite", "zweiten", "zweiter", "zweites"), 2),
    **dict.fromkeys(("third", "dritte", "dritten", "dritter", "drittes"), 3),
    **dict.fromkeys(("fourth", "vierte", "vierten", "vierter", "viertes"), 4),
    **dict.fromkeys(("last", "letzte", "letzten", "letzter", "letztes"), -1),
}


def _of_month(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve a week, weekend or weekday of a month: "the last Friday of October"."""
    month = _span_of(_read_point(match["whole"], day), day, match.string)
    if month is None or month.days > _MONTH_DAYS:
        return None
    which, noun = _nth(match["nth"]), match["noun"].lower()
    if _UNITS.get(noun) == "week":
        return _week_of(month, which)
    weekday = _WEEKDAY_NUMBER.get(noun, 5)
    days = [each for each in month if each.weekday() == weekday]
    at = days[which if which < 0 else which - 1]
    return DateSpan(at, at + timedelta(_UNITS.get(noun) == "weekend"))


def _week_of(month: DateSpan, which: int) -> DateSpan:
    """Return the n-th seven days of a month; of the last week, the days since its Monday."""
    if which > 0:
        first = month.first + timedelta(7 * (which - 1))
        return DateSpan(first, min(first + timedelta(6), month.last))
    monday = _week(month.last).first
    is_short = (month.last - monday).days < 3  # noqa: PLR2004 - fewer than four days
    return DateSpan(month.last - timedelta(6) if is_short else monday, month.last)


def _offset(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve "two days before 10 June"."""
    span = _span_of(_read_point(match["point"], day), day, match.string)
    if span is None:
        return None
    sign = -1 if match["side"].lower() in {"before", "vor"} else 1
    count = sign * (_count(match["count"]) if match["count"] else 1)
    at = span.first if sign < 0 else span.last
    unit = _UNITS[match["unit"].lower()]
    if unit in {"day", "week"}:
        return _one_day(at + timedelta(count * (7 if unit == "week" else 1)))
    month = _add_months(at, count * (12 if unit == "year" else 1))
    return _one_day(date(month.first.year, month.first.month, min(at.day, month.last.day)))


def _lately(match: re.Match[str], day: date) -> DateSpan:
    """Resolve "the last three days": they end with the day of the text."""
    count, unit = _count(match["count"]), _UNITS[match["unit"].lower()]
    days = {"day": 1, "week": 7, "month": 30, "year": 365}.get(unit, 7)
    return DateSpan(day - timedelta(count * days), day)


def _week_day(match: re.Match[str], day: date) -> DateSpan:
    """Resolve a weekday of a named week: "Tuesday last week"."""
    step = _DIRECTIONS[(match["direction"] or match["before"]).lower()]
    weekday = _WEEKDAY_NUMBER[(match["weekday"] or match["behind"]).lower()]
    return _one_day(_week(day + timedelta(7 * step)).first + timedelta(weekday))


def _before_last(match: re.Match[str], day: date) -> DateSpan | None:
    noun = match["noun"].lower()
    if noun in _WEEKDAY_NUMBER:
        return _one_day(_weekday(day, _WEEKDAY_NUMBER[noun], -1) - timedelta(7))
    return _by_unit(day, _UNITS[noun], -2)


def _years_ago(match: re.Match[str], day: date) -> DateSpan:
    return _month(day.year - _count(match["count"]), _MONTH_NUMBER[match["whole"].lower()])


def _number_month(match: re.Match[str], _day: date) -> DateSpan:
    return _month(int(match["year"]), int(match["number"]))


def _iso_week(match: re.Match[str], day: date) -> DateSpan | None:
    years = (int(match["year"]),) if match["year"] else (day.year - 1, day.year)
    weeks = [_week(date.fromisocalendar(year, int(match["week"]), 1)) for year in years]
    return weeks[0] if match["year"] else _latest(weeks, day, match.string)


def _week_around(match: re.Match[str], day: date) -> DateSpan | None:
    span = _span_of(_read_point(match["point"], day), day, match.string)
    return None if span is None or span.days > 1 else _week(span.first)


def _weekdays(match: re.Match[str], day: date) -> DateSpan:
    """Resolve "from Monday to Wednesday" with "and" between single days: the latest such days."""
    last = day - timedelta((day.weekday() - _WEEKDAY_NUMBER[match["last"].lower()]) % 7)
    return DateSpan(_weekday(last, _WEEKDAY_NUMBER[match["first"].lower()], -1), last)


def _weekdays_ago(match: re.Match[str], day: date) -> DateSpan:
    return _one_day(
        _weekday(day, _WEEKDAY_NUMBER[match["weekday"].lower()], -_count(match["count"]))
    )


def _decade(match: re.Match[str], _day: date) -> DateSpan:
    digits = match["year"] or _DECADES[match["word"].lower()]
    first = int(digits) if len(digits) == 4 else 1900 + int(digits)  # noqa: PLR2004
    return DateSpan(date(first, 1, 1), date(first + 9, 12, 31))


_DECADES = {
    **dict.fromkeys(("sixties", "sechziger", "sechzigern", "sechzigerjahren"), "1960"),
    **dict.fromkeys(("seventies", "siebziger", "siebzigern", "siebzigerjahren"), "1970"),
    **dict.fromkeys(("eighties", "achtziger", "achtzigern", "achtzigerjahren"), "1980"),
    **dict.fromkeys(("nineties", "neunziger", "neunzigern", "neunzigerjahren"), "1990"),
    **dict.fromkeys(("fifties", "fünfziger", "fünfzigern", "fünfzigerjahren"), "1950"),
}


def _weekend(match: re.Match[str], day: date) -> DateSpan | None:
    """Resolve "over the weekend": the latest that has begun."""
    return _latest((_by_unit(day, "weekend", step) for step in (-1, 0)), day, match.string)


def _day_number(match: re.Match[str], day: date) -> DateSpan | None:
    return _span_of(_Point(day=int(match["day"])), day, match.string)


def _bare_month(match: re.Match[str], day: date) -> DateSpan | None:
    name = match["month"]
    before = " ".join((match["in"] or "").lower().split())
    is_introduced = bool(before) and not (name.lower() in _AMBIGUOUS and before in _LOOSE)
    if _is_habit(match):
        return None
    if not is_introduced and (not name[0].isupper() or name.lower() in _AMBIGUOUS):
        return None  # "may", "march", "April is my sister"
    return _span_of(_Point(month=_MONTH_NUMBER[name.lower()]), day, match.string)


def _bare_year(match: re.Match[str], _day: date) -> DateSpan | None:
    return _year(int(match["year"]))


def _ago(match: re.Match[str], day: date) -> DateSpan:
    return _by_unit(day, _UNITS[match["unit"].lower()], -_count(match["count"]))


def _ahead(match: re.Match[str], day: date) -> DateSpan | None:
    if _is_habit(match) or _looks_behind(match.string):
        return None  # "twice in a week", "we did it in two days"
    return _by_unit(day, _UNITS[match["unit"].lower()], _count(match["count"]))


def _half_year_ago(match: re.Match[str], day: date) -> DateSpan:
    return _add_months(
        day, -18 if re.search(r"and a half|anderthalb", match[0], re.IGNORECASE) else -6
    )


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else _NUMBERS[" ".join(text.lower().split())]


def _fixed(match: re.Match[str], day: date) -> DateSpan | None:
    if match[1].lower() == "morgen" and (match[1][0] == "M" or _DAYTIME.search(_before(match))):
        return None  # German: the time of the day
    return _one_day(day + timedelta(_FIXED[" ".join(match[1].lower().split())]))


_DAYTIME = re.compile(
    rf"\b(?:am|jeden|guten|diesen|der|den|früh|{_any(_WEEKDAY_NUMBER)}|gestern|heute)\s+$",
    re.IGNORECASE,
)


def _directed(match: re.Match[str], day: date) -> DateSpan | None:
    step, noun = _DIRECTIONS[match["direction"].lower()], match["noun"].lower()
    if noun in _UNITS:
        return None if _UNITS[noun] == "day" else _by_unit(day, _UNITS[noun], step)
    if noun in _WEEKDAY_NUMBER:
        return _one_day(_weekday(day, _WEEKDAY_NUMBER[noun], step))
    if match["noun"] in _VERBS and not step and _is_verb(match):
        return None  # "this may take a while"
    month = _MONTH_NUMBER[noun]
    year = day.year
    if step < 0:
        year += step + (month < day.month)
    elif step > 0 and month <= day.month:
        year += 1
    return _month(year, month)


def _weekday(day: date, weekday: int, step: int) -> date:
    """Return the nearest such weekday before (-1), in the week of (0) or after (1) the day."""
    if step == 0:
        return _week(day).first + timedelta(weekday)
    if step > 0:
        return day + timedelta((weekday - day.weekday() - 1) % 7 + 1)
    return day - timedelta((day.weekday() - weekday - 1) % 7 + 1 + 7 * (-step - 1))


def _bare_weekday(match: re.Match[str], day: date) -> DateSpan | None:
    """Take the most recent such weekday: people report more than they announce."""
    if _is_habit(match):
        return None
    return _one_day(_weekday(day, _WEEKDAY_NUMBER[match["weekday"].lower()], -1))


def _rule(pattern: str, resolve: _Resolve) -> tuple[re.Pattern[str], _Resolve]:
    return re.compile(pattern, re.IGNORECASE), resolve


_ON_DAY = rf"(?:(?:{_WEEKDAY}),?\s+(?:the\s+|den\s+|dem\s+)?)?"
_WHOLE = rf"(?P<whole>(?:(?:{_DIRECTION})\s+(?:{_UNIT}s?|{_MONTH}|jahres|monats)|(?:{_MONTH})\b(?:{_IN_YEAR})?|{_YEAR}\b))"
_DIRECTED = re.compile(
    rf"(?P<direction>{_DIRECTION})\s+(?P<noun>{_UNIT}|{_WEEKDAY}|{_MONTH})s?(?:es)?", re.IGNORECASE
)
_NTH = rf"(?P<nth>\d(?:st|nd|rd|th|\.)|{_any(_ORDINALS)})"
_TO = r"(?:to|until|till|through|bis(?:\s+zum)?|[-\u2013])"
_YEAR_BEFORE = r"(?:in|since|until|till|by|of|from|to|before|after|around|during|year|jahr|jahre|seit|bis|ab|um|von|anno|mid|early|late|summer|winter|and|und|back in|about|through)"
# Words that follow a year; another one is counted: "around 2000 users".
_BEHIND_YEAR = (
    r"(?:i|we|he|she|they|it|my|our|the|a|an|and|but|when|where|was|is|had|has|there|in|on|at|by|to|for|until|because|as"
    r"|so|that|with|after|before|or|who|which|were|did|you|from|of|ich|wir|er|sie|es|der|die|das|und|als|wo|war|hat"
    r"|haben|hatte|hatten|bin|ist|kam|ging|wurde|noch|schon|oder|aber|mit|im|nach|vor|zu|von|bis|auf|ein|eine|waren|sind|hab"
    r"|haben|gab|fing|lief|zog|already|still|not|nicht|this|then)\b"
)
_RULES: tuple[tuple[re.Pattern[str], _Resolve], ...] = (
    _rule(
        rf"\b(?:between|zwischen|from|vom|von)\s+(?P<first>{_POINT})\s*(?:and|und|{_TO})\s*(?:zum\s+)?(?P<last>{_POINT})(?![\w:])",
        _range,
    ),
    _rule(rf"\b(?:week|woche)\s+(?:of|vom)\s+(?P<point>{_POINT})", _week_around),
    _rule(rf"\b(?P<first>{_MONTH})\s*{_TO}\s*(?P<last>(?:{_MONTH})\b{_IN_YEAR}?)", _range),
    _rule(
        rf"\b(?P<first>\d{{1,2}}\.\d{{1,2}}\.)\s*{_TO}\s*(?P<last>\d{{1,2}}\.\d{{1,2}}\.(?:{_YEAR})?)",
        _range,
    ),
    _rule(
        rf"(?<![\w.])(?P<first>{_NUMBER})\s*{_TO}\s*(?P<last>{_NUMBER}\s+(?:of\s+)?(?:{_MONTH})\b{_IN_YEAR}?)",
        _range,
    ),
    _rule(
        rf"\b(?P<first>(?:{_MONTH})\s+\d{{1,2}})\s*[-\u2013]\s*(?P<last>\d{{1,2}}\b{_IN_YEAR}?)",
        _range,
    ),
    _rule(
        rf"\b(?:(?P<count>{_COUNT})\s+|the\s+|am\s+)?(?P<unit>{_UNIT})\s+(?P<side>before|after|vor|nach)\s+(?P<point>{_POINT})(?![\w:])",
        _offset,
    ),
    _rule(rf"\b{_ON_DAY}({_YEAR})-(\d\d)-(\d\d)(?!\d)", _point),
    _rule(rf"\b{_ON_DAY}(\d{{1,2}})\.\s?(\d{{1,2}})\.\s?({_YEAR})\b", _point),
    _rule(rf"\b{_ON_DAY}(\d{{1,2}})/(\d{{1,2}})/({_YEAR})\b", _slashed),
    _rule(r"\b(?:am|vom|zum|bis|seit|ab|dem|den|der|on)\s+\d{1,2}\.\s?\d{1,2}\.(?!\d)", _point),
    _rule(
        rf"\b(?P<before>{_any(_YEAR_WORDS)})\s+(?:in|im|on|am)\s+{_THE}(?:{_NUMBER}\s+(?:of\s+)?)?(?P<month>{_MONTH})\b(?:\s+\d{{1,2}}(?:st|nd|rd|th)?\b)?",
        _point,
    ),
    _rule(
        rf"\b(?P<part>early(?:\s+in)?|late(?:\s+in)?|mid|beginning|start|middle|end|anfang|beginn|mitte|ende)[-\s]+(?:of\s+|des\s+)?(?:the\s+)?{_WHOLE}",
        _part,
    ),
    _rule(
        rf"\b{_NTH}\s+(?P<noun>week|weekend|woche|wochenende|{_WEEKDAY})\s+(?:of|in|im|des)\s+(?P<whole>(?:{_MONTH})\b(?:{_IN_YEAR})?)",
        _of_month,
    ),
    _rule(
        rf"\b{_ON_DAY}\d{{1,2}}{_ORDINAL}\s+(?:of\s+)?(?P<month>{_MONTH})\b\.?{_OF_YEAR}?", _point
    ),
    _rule(
        rf"\b{_ON_DAY}(?P<month>{_MONTH})\b\.?\s+(?:the\s+)?\d{{1,2}}{_ORDINAL}(?![\d:]){_OF_YEAR}?",
        _point,
    ),
    _rule(rf"\b(?:{_any(_DAY_WORDS)})\s+(?:of\s+)?(?P<month>{_MONTH})\b{_OF_YEAR}?", _point),
    _rule(
        rf"\b(?P<count>{_COUNT})\s+years\s+ago\s+(?:in|on)\s+{_THE}(?P<whole>{_MONTH})\b",
        _years_ago,
    ),
    _rule(rf"\bvor\s+(?P<count>{_COUNT})\s+jahren?\s+im\s+(?P<whole>{_MONTH})\b", _years_ago),
    _rule(rf"\b(?P<month>{_MONTH})\b\.?{_OF_YEAR}\b", _point),
    _rule(rf"\b(?:in\s+)?(?P<number>0\d|1[0-2])[/.](?P<year>{_YEAR})\b", _number_month),
    _rule(rf"(?<![\w-])(?P<year>{_YEAR})-(?P<number>0\d|1[0-2])(?![\w-])", _number_month),
    _rule(
        rf"\b(?:kw|calendar\s+week|kalenderwoche)\s*(?P<week>\d{{1,2}})(?:\s*(?:/|of|in|von)?\s*(?P<year>{_YEAR}))?\b",
        _iso_week,
    ),
    _rule(
        rf"\b(?:between|from|zwischen|von|vom)?\s*(?P<first>{_WEEKDAY})\s*(?:and|und|{_TO})\s*(?P<last>{_WEEKDAY})\b",
        _weekdays,
    ),
    _rule(rf"\b(?P<count>{_COUNT})\s+(?P<weekday>{_WEEKDAY})s\s+ago\b", _weekdays_ago),
    _rule(rf"\b{_ON_DAY.removesuffix('?')}(?P<day>\d{{1,2}})(?:st|nd|rd|th)\b", _day_number),
    _rule(
        rf"\b(?:(?P<before>{_any(_YEAR_WORDS)}|{_YEAR})\s+(?:in|im)\s+(?:the\s+)?|(?P<direction>{_DIRECTION})\s+"
        rf"|(?P<in>(?:in|im|since|seit|during|over|über|until|bis)\s+(?:the\s+|den\s+)?))?"
        rf"(?P<season>{_any(_SEASONS)})\b(?:{_OF_YEAR}\b|(?!\s+(?:of|und\s+herr)\b))",
        _season,
    ),
    _rule(
        rf"\b(?:(?P<quarter>q)|h(?=[12][\s/-]*{_YEAR}))(?P<nth>[1-4])\b(?:[\s/-]*(?P<year>{_YEAR})\b)?",
        _portion,
    ),
    _rule(
        rf"\b{_NTH}\s+(?:(?P<quarter>quarter|quartal)(?:s|es)?(?!\s+(?:inch|of\s+the\s+(?!year)))|half(?=\s+of\s+(?:{_WHICH_YEAR}))|halbjahr(?:es)?|hälfte(?=\s+(?:von\s+|des\s+jahres\s+)?{_YEAR})){_OF_YEAR}?",
        _portion,
    ),
    _rule(rf"\b({_any(_FIXED)})\b", _fixed),
    _rule(
        r"\b(?:half\s+a\s+year\s+ago|a\s+year\s+and\s+a\s+half\s+ago|vor\s+einem\s+halben\s+jahr|vor\s+anderthalb\s+jahren)\b",
        _half_year_ago,
    ),
    _rule(rf"\b(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\s+(?:ago|back|before|earlier)\b", _ago),
    _rule(rf"\bvor\s+(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\b", _ago),
    _rule(rf"\bin\s+(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})(?:\s+time)?\b", _ahead),
    _rule(
        rf"\b(?:in|over|during|for|within|der|den|die)\s+(?:the\s+|den\s+|die\s+)?(?:last|past|letzten|vergangenen)\s+(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\b",
        _lately,
    ),
    _rule(
        rf"\b(?:(?P<weekday>{_WEEKDAY})\s+(?:of\s+)?(?P<direction>{_DIRECTION})\s+(?:week|woche)|(?P<before>{_DIRECTION})\s+(?:week|woche)\s+(?:on\s+|am\s+)?(?P<behind>{_WEEKDAY}))\b",
        _week_day,
    ),
    _rule(rf"\bthe\s+(?P<noun>{_UNIT}|{_WEEKDAY})\s+before\s+last\b", _before_last),
    _rule(
        rf"\b(?P<direction>{_DIRECTION})\s+(?P<noun>{_UNIT}|{_WEEKDAY}|{_MONTH})\b(?!\s+of\b)",
        _directed,
    ),
    _rule(rf"\b(?:{_any(_NAMED_DAYS)})\b{_IN_YEAR}?", _point),
    _rule(
        r"\b(?:over|at|on|during|am|übers|über\s+das)\s+(?:the\s+)?(?:weekend|wochenende)\b",
        _weekend,
    ),
    _rule(
        r"\bthe\s+(?:early\s+|late\s+|mid[-\s])?(?:(?P<year>(?:19|20)?\d0)['\u2019]?s|(?P<word>sixties|seventies|eighties|nineties|fifties))\b",
        _decade,
    ),
    _rule(
        rf"\b(?:den|der|die)\s+(?:frühen\s+|späten\s+)?(?:(?P<year>(?:19|20)?\d0)er(?:n|\s+jahren?)?|(?P<word>{_any(w for w in _DECADES if not w.endswith('ies'))}))\b",
        _decade,
    ),
    _rule(rf"\b(?P<weekday>{_WEEKDAY})\b", _bare_weekday),
    _rule(
        r"\b(?:on\s+the\s+(?P<day>\d{1,2})(?:st|nd|rd|th)\b(?=\s*(?:[.,;!?)]|$|(?:i|we|he|she|they|it|my|our|at|in|and|there|this)\b))"
        r")",
        _day_number,
    ),
    _rule(
        r"\bam\s+(?P<day>\d{1,2})\.(?=\s*(?:[,;!?)]|$)|\s+(?:war|waren|hab|habe|haben|hat|hatte|kam|ist|wurde|gab|ging)\b)",
        _day_number,
    ),
    _rule(
        rf"\b(?P<in>(?:in|since|until|till|by|during|of|before|after|around|from|back\s+in|seit|bis|im|ab|vor|nach|in\s+early)\s+)?(?P<month>{_MONTH})\b(?!\s+\d)",
        _bare_month,
    ),
    _rule(
        rf"(?:\b{_YEAR_BEFORE}\s+(?:the\s+year\s+)?|[(]\s*)(?P<year>{_YEAR})(?![\w:/-]|\.\d|\s+(?!{_BEHIND_YEAR})[a-zäöü])",
        _bare_year,
    ),
    _rule(
        rf"^\s*(?P<year>{_YEAR})(?=\s*[,:]|\s+(?:war|wurde|hatte|hab|habe|bin|kam|ging|we|i|wir|ich)\b)",
        _bare_year,
    ),
)
