"""Dates in text, relative to the day it was written."""

import re
from datetime import date
from pathlib import Path

import msgspec

from palyra.core.memory import dates
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

DEV = Path(__file__).parents[3] / "bench" / "dev" / "dates.json"
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
        ("early December 2022", [("2022-12-01", "2022-12-10")]),
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


TUESDAY = date(2026, 11, 24)


@every_row(
    ("text", "first", "last"),
    [
        ("the vet came on Friday 9 October", "2026-10-09", "2026-10-09"),
        ("we met on Friday the 13th", "2026-11-13", "2026-11-13"),
        ("it happened on may 5", "2026-05-05", "2026-05-05"),
        ("around 2000 we moved to Kiel", "2000-01-01", "2000-12-31"),
        ("by 2019 it was gone", "2019-01-01", "2019-12-31"),
        ("in June we wed", "2026-06-01", "2026-06-30"),
        ("last week of October", "2026-10-26", "2026-10-31"),
        ("first week of May", "2026-05-01", "2026-05-07"),
        ("last Friday of October", "2026-10-30", "2026-10-30"),
        ("am letzten Freitag im Oktober", "2026-10-30", "2026-10-30"),
        ("two years ago in May", "2024-05-01", "2024-05-31"),
        ("vor zwei Jahren im Mai", "2024-05-01", "2024-05-31"),
        ("two Fridays ago", "2026-11-13", "2026-11-13"),
        ("the Tuesday before last", "2026-11-10", "2026-11-10"),
        ("Tuesday last week", "2026-11-17", "2026-11-17"),
        ("letzte Woche Dienstag", "2026-11-17", "2026-11-17"),
        ("vorletzte Woche", "2026-11-09", "2026-11-15"),
        ("from Monday to Wednesday the site was down", "2026-11-16", "2026-11-18"),
        ("in week of 9 March", "2026-03-09", "2026-03-15"),
        ("in KW 12", "2026-03-16", "2026-03-22"),
        ("vom 1.10. bis 3.10. war zu", "2026-10-01", "2026-10-03"),
        ("from 30 April to 2 May", "2026-04-30", "2026-05-02"),
        ("between March and May 2024", "2024-03-01", "2024-05-31"),
        ("Jan\u2013Mar 2024", "2024-01-01", "2024-03-31"),
        ("May 3-5", "2026-05-03", "2026-05-05"),
        ("3\u20135 May", "2026-05-03", "2026-05-05"),
        ("a week after 3 March", "2026-03-10", "2026-03-10"),
        ("the day after Christmas", "2025-12-26", "2025-12-26"),
        ("end of last month", "2026-10-21", "2026-10-31"),
        ("Ende letzten Monats", "2026-10-21", "2026-10-31"),
        ("early last week", "2026-11-16", "2026-11-17"),
        ("summer last year", "2025-06-01", "2025-08-31"),
        ("im Sommer letzten Jahres", "2025-06-01", "2025-08-31"),
        ("letztes Jahr im Sommer", "2025-06-01", "2025-08-31"),
        ("in May last year", "2025-05-01", "2025-05-31"),
        ("9 April last year", "2025-04-09", "2025-04-09"),
        ("gestern morgen war ich da", "2026-11-23", "2026-11-23"),
        ("morgen gehe ich", "2026-11-25", "2026-11-25"),
        ("in the last three days", "2026-11-21", "2026-11-24"),
        ("in den letzten zwei Wochen", "2026-11-10", "2026-11-24"),
        ("the rent is due on 3 December", "2026-12-03", "2026-12-03"),
        ("we paid on 3 December", "2025-12-03", "2025-12-03"),
        ("am ersten Mai", "2026-05-01", "2026-05-01"),
        ("the first of March", "2026-03-01", "2026-03-01"),
        ("Q2 results", "2026-04-01", "2026-06-30"),
        ("H1 2024", "2024-01-01", "2024-06-30"),
        ("erstes Halbjahr 2024", "2024-01-01", "2024-06-30"),
        ("last quarter was bad", "2026-07-01", "2026-09-30"),
        ("the second quarter of 2023", "2023-04-01", "2023-06-30"),
        ("half a year ago", "2026-05-01", "2026-05-31"),
        ("in 03/2024", "2024-03-01", "2024-03-31"),
        ("in the early 90s", "1990-01-01", "1999-12-31"),
        ("letzten Sommer", "2026-06-01", "2026-08-31"),
        ("vorletzten Sommer", "2025-06-01", "2025-08-31"),
        ("this spring", "2026-03-01", "2026-05-31"),
        ("next spring", "2027-03-01", "2027-05-31"),
        ("at the weekend we hiked", "2026-11-21", "2026-11-22"),
        ("11 November", "2026-11-11", "2026-11-11"),
        ("on 24 November", "2026-11-24", "2026-11-24"),
        ("on 25 November", "2025-11-25", "2025-11-25"),
        ("in November", "2026-11-01", "2026-11-30"),
        ("in December", "2025-12-01", "2025-12-31"),
        ("Anfang 2019", "2019-01-01", "2019-03-31"),
        ("Mitte Januar 2025", "2025-01-11", "2025-01-20"),
        ("the night before last", "2026-11-22", "2026-11-22"),
        ("at the end of 2022", "2022-10-01", "2022-12-31"),
        ("he may march in may", "2026-05-01", "2026-05-31"),
    ],
)
def test_a_memory_is_about_the_past(text: str, first: str, last: str) -> None:
    """What a text leaves out is that of the latest such day, unless it looks ahead."""
    spans = find_spans(text, TUESDAY)
    assert (first, last) == (str(spans[0].first), str(max(each.last for each in spans)))


@every_row(
    "text",
    [
        "every Monday we swim",
        "jeden Montag ist Training",
        "this may take a while",
        "those 3 may break",
        "may 5 of us join?",
        "we finished the roof in two days",
        "twice in a week",
        "1984 is a great book",
        "about 2000 users signed up",
        "a letter from Jan",
        "June said hello",
        "the birthday of June",
        "the last week of the course",
        "on the 3rd floor",
        "am morgen trinke ich tee",
        "second half of the game",
        "Frau Herbst kam",
        "from 9 to 5",
        "von 8 bis 17 Uhr",
        "between 3 and 5 people",
        "the weekend was nice",
        "end of the day",
        "\u017funday in the garden",
    ],
)
def test_habits_verbs_people_and_counts_are_no_dates(text: str) -> None:
    """Words that are also names of days, months and seasons need something that introduces them."""
    assert () == find_spans(text, TUESDAY)


def test_dates_of_the_development_set_are_read() -> None:
    """Nine in ten, and as many of the texts without a date are left alone."""
    cases = msgspec.json.decode(DEV.read_bytes())
    right = 0
    for case in cases:
        spans = find_spans(case["text"], date.fromisoformat(case["said_at"][:10]))
        found = (
            [str(min(spans).first), str(max(each.last for each in spans))]
            if spans
            else [None, None]
        )
        right += found == [case["from"], case["to"]]
    assert right >= 0.9 * len(cases)


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


def test_what_precedes_a_date_is_read_for_two_words_only() -> None:
    """The words before a date are those directly before it, however long the text is."""
    found = re.search(r"may", "word " * 500 + "every other may")
    assert found is not None
    assert dates._before(found).endswith("every other ")
    assert len(dates._before(found)) == dates._BEFORE_CHARS
