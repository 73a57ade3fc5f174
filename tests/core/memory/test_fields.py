"""Columns of the full-text index, and the index words of dates."""

from datetime import date

from palyra.core.memory.dates import DateSpan, find_spans, start_ms
from palyra.core.memory.fields import (
    INDEXED_KEYS,
    MAX_DATE_WORDS,
    date_words,
    duplicate_keys,
    is_unspaced_character,
    search_fields,
    searchable,
)
from tests.rows import every_row

MONDAY = date(2023, 5, 8)


@every_row(
    ("text", "expected"),
    [
        ("plain words", "plain words"),
        ("call parseHttpHead", "call parseHttpHead parse Http Head"),
        ("HTTPServer x2y", "HTTPServer x2y"),
        ("getURLFor", "getURLFor get URL For"),
        ("Größe", "Größe"),
        ("你好世界 ok", " 你好 好世 世界  ok"),
        ("猫", " 猫 "),
    ],
)
def test_identifiers_and_unspaced_scripts_are_split(text: str, expected: str) -> None:
    """Parts of identifiers are added; a run without blanks becomes overlapping pairs."""
    assert expected == searchable(text)


def test_a_long_word_costs_linear_time() -> None:
    """A pattern that looks for the end of a word from each of its characters would never return."""
    for word in ("a" * 1_000_000, "aA" * 500_000, "A" * 1_000_000 + "b"):
        assert search_fields(word, 0).text.startswith(word)


@every_row(
    ("text", "expected"),
    [
        ("yesterday", "d20230507 in202305 in2023"),
        ("last month", "m202304 in2023"),
        ("in 2010", "y2010"),
        ("nothing", ""),
    ],
)
def test_named_dates_are_words_of_the_index(text: str, expected: str) -> None:
    """Days, months and years of a text have words that name their unit."""
    assert expected == search_fields(text, start_ms(MONDAY)).when


@every_row(
    ("statement", "question"),
    [
        ("yesterday", "on 7 May 2023"),
        ("yesterday", "in May 2023"),
        ("yesterday", "in 2023"),
        ("last week", "on 3 May 2023"),
        ("last month", "on 3 April 2023"),
        ("last month", "in April 2023"),
        ("in 2010", "in 2010"),
    ],
)
def test_overlapping_dates_share_a_word(statement: str, question: str) -> None:
    """A question finds each statement whose dates overlap with its own."""
    indexed = search_fields(statement, start_ms(MONDAY)).when.split()
    assert set(indexed) & set(date_words(find_spans(question, MONDAY)))


@every_row(
    ("statement", "question"),
    [("yesterday", "on 8 May 2023"), ("last month", "in May 2023"), ("in 2010", "in 2011")],
)
def test_disjoint_dates_share_no_word(statement: str, question: str) -> None:
    """A question does not find statements about other days."""
    indexed = search_fields(statement, start_ms(MONDAY)).when.split()
    assert not set(indexed) & set(date_words(find_spans(question, MONDAY)))


def test_words_of_a_question_are_bounded() -> None:
    """Many weeks give no more words than the limit."""
    weeks = tuple(DateSpan(date(2023, month, 1), date(2023, month, 7)) for month in range(1, 13))
    assert MAX_DATE_WORDS == len(date_words(weeks))


def test_symbols_are_words_of_their_code_points() -> None:
    """A flag is one word; the tone of a skin is none, so an emoji is found with each."""
    assert "great  u128077 " == searchable("great \U0001f44d")
    assert searchable("\U0001f44d").split() == searchable("\U0001f44d\U0001f3fd").split()[:1]
    assert ["u127465127466"] == searchable("\U0001f1e9\U0001f1ea").split()
    assert ["u8364", "5"] == searchable("\u20ac 5").split()


def test_every_character_of_an_unspaced_run_begins_a_word_of_the_index() -> None:
    """The last one by itself, in the index only: a question of two characters means both."""
    assert ["\u4e00\u53ea", "\u53ea\u732b", "\u732b"] == search_fields(
        "\u4e00\u53ea\u732b", 0
    ).text.split()
    assert ["\u4e00\u53ea", "\u53ea\u732b"] == searchable("\u4e00\u53ea\u732b").split()
    assert [True, False, False, False] == [
        is_unspaced_character(each) for each in ("\u732b", "\u732b\u732b", "a", "\u00e4")
    ]


def test_duplicates_share_the_keys_of_their_terms_and_place() -> None:
    """Forms of a word have one key, numbers one each; another place has none in common."""
    alice = ("alice", "principal", None, None, "fact", None)
    one = duplicate_keys(alice, ["prefers", "dark", "mode1"])
    assert one[0] == duplicate_keys(alice, ["preferred", "mode2"])[0]
    assert one[2] != duplicate_keys(alice, ["preferred", "mode2"])[1]
    assert set(one).isdisjoint(duplicate_keys(("bob", *alice[1:]), ["prefers", "dark", "mode1"]))
    assert INDEXED_KEYS == len(duplicate_keys(alice, map(str, range(100, 200))))
    assert all(key[0] == "k" and key[1:].isdigit() for key in one)
