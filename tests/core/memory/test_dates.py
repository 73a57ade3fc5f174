"""Dates in text, relative to the day it was written."""

from datetime import date

from palyra.core.memory.dates import (
    DAY_MS,
    MAX_DATED_CHARS,
    MAX_SPANS,
    DateSpan,
    day_of,
    find_spans,
    start_ms,
    without_dates,
)
from tests.rows import every_row

MONDAY = date(2023, 5, 8)


def found(text: str, day: date = MONDAY) -> list[tuple[str, str]]:
    return [(str(span.first), str(span.last)) for span in find_spans(text, day)]


def one(day: str) -> list[tuple[str, str]]:
    return [(day, day)]


@every_row(
    ("text", "expected"),
    [
        ("I went yesterday", one("2023-05-07")),
        ("gestern war ich da", one("2023-05-07")),
        ("the day before yesterday", one("2023-05-06")),
        ("vorgestern und nicht heute", [*one("2023-05-06"), *one("2023-05-08")]),
        ("last night", one("2023-05-07")),
        ("übermorgen", one("2023-05-10")),
        ("two days ago", one("2023-05-06")),
        ("vor zwei Tagen", one("2023-05-06")),
        ("in 3 days", one("2023-05-11")),
        ("last Friday", one("2023-05-05")),
        ("letzten Freitag", one("2023-05-05")),
        ("next Monday", one("2023-05-15")),
        ("this Wednesday", one("2023-05-10")),
        ("on Tuesday", one("2023-05-02")),
        ("on May 3, 2023", one("2023-05-03")),
        ("am 5. Mai 2022", one("2022-05-05")),
        ("on the 2nd of January", one("2023-01-02")),
        ("5.6.2021", one("2021-06-05")),
        ("2023-05-03T10:00Z", one("2023-05-03")),
        ("last week", [("2023-05-01", "2023-05-07")]),
        ("vor einer Woche", [("2023-05-01", "2023-05-07")]),
        ("last weekend", [("2023-05-06", "2023-05-07")]),
        ("next month", [("2023-06-01", "2023-06-30")]),
        ("last July", [("2022-07-01", "2022-07-31")]),
        ("next April", [("2024-04-01", "2024-04-30")]),
        ("next July", [("2023-07-01", "2023-07-31")]),
        ("early December 2022", [("2022-12-01", "2022-12-31")]),
        ("in May", [("2023-05-01", "2023-05-31")]),
        ("this August", [("2023-08-01", "2023-08-31")]),
        ("since March", [("2023-03-01", "2023-03-31")]),
        ("4 years ago", [("2019-01-01", "2019-12-31")]),
        ("in 2010 in Paris", [("2010-01-01", "2010-12-31")]),
    ],
)
def test_a_date_is_resolved_against_the_day_of_its_text(
    text: str, expected: list[tuple[str, str]]
) -> None:
    """English and German dates, absolute and relative, become spans of days."""
    assert expected == found(text)


@every_row(
    "text",
    [
        "it may be so", "we march on", "Guten Morgen", "for 3 years", "port 2023:8080",
        "v1.2010.3", "id 20230", "last day", "mayor 5", "timeout 1999ms", "2023-13-45", "",
    ],
)  # fmt: skip
def test_words_and_numbers_that_are_no_dates_are_left_alone(text: str) -> None:
    """Verbs, greetings, ports and versions that look like dates give no span."""
    assert [] == found(text)


def test_a_day_that_does_not_exist_is_read_as_its_month() -> None:
    """31 February is no day; its month and year still are a date."""
    assert [("2023-02-01", "2023-02-28")] == found("31 February 2023")


def test_a_date_beyond_the_calendar_is_no_date() -> None:
    """A relative date that leaves the calendar gives no span and no error."""
    assert [] == found("900 years ago", date(5, 1, 1))
    assert [] == found("yesterday", date.min)


def test_many_dates_cost_linear_time() -> None:
    """Half a million dates are read up to a place; comparing each with all would never return."""
    assert one("2024-05-03") == found("3 May 2024, " * 500_000)
    late = "word " * MAX_DATED_CHARS + "on 3 May 2024"
    assert [] == found(late)
    assert late == without_dates(late, MONDAY)


def test_a_table_of_dates_is_cut() -> None:
    """A text with many dates gives the first eight spans."""
    text = " ".join(f"2023-01-{day:02}" for day in range(1, 29))
    assert MAX_SPANS == len(found(text))


def test_milliseconds_and_days_convert_both_ways() -> None:
    """A time is of the day in UTC that it is in; times outside the calendar are at its ends."""
    assert MONDAY == day_of(start_ms(MONDAY)) == day_of(start_ms(MONDAY) + DAY_MS - 1)
    assert date(1969, 12, 31) == day_of(-1)
    assert [date.min, date.max] == [day_of(-(10**18)), day_of(10**18)]


def test_a_span_is_its_days() -> None:
    """A span holds its first and its last day."""
    span = DateSpan(date(2023, 5, 30), date(2023, 6, 1))
    assert (3, [30, 31, 1]) == (span.days, [day.day for day in span])
