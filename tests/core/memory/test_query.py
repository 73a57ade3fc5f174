"""Questions taken apart: words, names, dates, texts to embed."""

from datetime import date

from palyra.core.memory.dates import DateSpan
from palyra.core.memory.query import (
    MAX_QUESTION_CHARS,
    MAX_TERMS,
    SearchQuestion,
    analyse,
    has_subject,
)
from tests.rows import every_row

TODAY = date(2023, 5, 8)
AUTHORS = (
    "Deborah", "Jolene", "Tim", "Will", "Al", "run_tests", "Dr. No", "你", " ", "user",
    "Anna Young", "Anna Schulz", "Paul Schulz", "kadir", "lotte k.", "mira@example.org",
)  # fmt: skip


def asked(text: str) -> SearchQuestion:
    return analyse(text, AUTHORS, TODAY)


def test_stop_words_and_names_are_no_terms() -> None:
    """Terms are the content words of the question without the people it names."""
    question = asked("What books did Deborah's sister read, and which books did Jolene?")
    assert ("books", "sister", "read") == question.terms
    assert ("Deborah", "Jolene") == question.authors


@every_row(
    ("text", "expected"),
    [
        ("what happened on 24 November?", True),
        ("last Tuesday", True),
        ("Was war gestern los?", True),
        ("what did Tim do yesterday?", True),
        ("what happened to the boiler on 24 November?", False),
        ("what happened?", False),
        ("", False),
    ],
)
def test_a_question_of_days_alone_has_no_terms(text: str, expected: bool) -> None:  # noqa: FBT001 - a case
    """It asks for all there is of these days, and nothing is embedded for it."""
    question = asked(text)
    assert expected == question.is_of_days
    assert not (expected and (question.terms or question.texts_for(is_semantic=True)))


def test_german_stop_words_are_no_terms() -> None:
    """German questions lose their stop words, too."""
    assert ("port", "lauscht", "dienst") == asked("Auf welchem Port lauscht der Dienst?").terms


@every_row(
    ("text", "authors"),
    [
        ("What is the time limit?", ()),
        ("Does tim know?", ("Tim",)),
        ("tim's dog", ("Tim",)),
        ("Tim\u2019s dog", ("Tim",)),
        ("the parents` house of Deborah`s", ("Deborah",)),
        ("Will it rain?", ()),
        ("will Will come?", ("Will",)),
        ("what will happen", ()),
        ("also al dente", ()),
        ("and Al too", ("Al",)),
        ("output of run_tests", ()),
        ("的你 说 什么 你", ("你",)),
        ("who is Dr. No here", ("Dr. No",)),
        ("Deborahs", ("Deborah",)),
        ("what did Young say?", ("Anna Young",)),
        ("was hat young gesagt", ("Anna Young",)),
        ("Is Tim young?", ("Tim",)),
        ("where is Paul", ("Paul Schulz",)),
        ("ask Anna, or the Schulz family", ()),
        ("Anna Schulz's car", ("Anna Schulz",)),
        ("what did kadir say", ("kadir",)),
        ("Was hat Kadir gesagt?", ("kadir",)),
        ("Kadirs Rad und Lottes Katze", ("kadir", "lotte k.")),
        ("mira was there", ("mira@example.org",)),
        ("the example of the user", ()),
        ("a User", ()),
    ],
)
def test_a_name_is_found_by_whole_word(text: str, authors: tuple[str, ...]) -> None:
    """A name, and a part of it that one author has, is a whole word; one that is a word needs its capital."""
    assert authors == asked(text).authors


def test_the_texts_to_embed_have_no_name() -> None:
    """A name is left out of one text and is the speaker of the other."""
    assert ("Where has camped?", "Where has I camped?") == asked("Where has Tim camped?").texts
    assert ("Where is it?",) == asked("Where is it?").texts


def test_an_embedder_of_parts_of_words_gets_the_content_words() -> None:
    """Function words are left out for it; a question of nothing else is given as it is."""
    question = asked("Where has Tim camped in the mountains?")
    assert ("camped mountains",) == question.texts_for(is_semantic=False)
    assert question.texts == question.texts_for(is_semantic=True)
    assert ("?!",) == asked("?!").texts_for(is_semantic=False)


def test_all_parts_of_a_name_are_left_out() -> None:
    """The first name of a named author is no term, though others have it, too."""
    assert ("car",) == asked("Anna Schulz's car").terms
    assert ("anna", "schulz", "car") == asked("anna or the schulz car").terms


def test_a_question_of_a_name_alone_has_words_and_a_text() -> None:
    """A question without any content word searches for the name, or still for something."""
    assert ("tim",) == asked("Who is Tim?").terms
    assert ("I",) == asked("Tim").texts
    assert ("",) == asked("").texts
    assert () == asked("?!").terms


def test_dates_are_read_from_the_question() -> None:
    """A named day becomes a span, relative to today."""
    assert (DateSpan(date(2023, 5, 7), date(2023, 5, 7)),) == asked(
        "What happened yesterday?"
    ).dates


def test_identifiers_of_a_question_are_split() -> None:
    """A question finds `parse http` by `parseHttp` and the other way round."""
    assert ("parsehttp", "parse", "http") == asked("parseHttp").terms


def test_a_long_question_is_cut() -> None:
    """Words and characters of a question are bounded."""
    question = asked(" ".join(f"w{number}" for number in range(5_000)))
    assert (MAX_TERMS, MAX_QUESTION_CHARS) == (len(question.terms), len(question.text))


def test_dates_of_small_words_are_looked_for_at_the_beginning() -> None:
    """A long message of small words alone costs the event loop no more than a short one."""
    today = date(2026, 11, 27)
    assert has_subject("so what was it in may", today)
    assert not has_subject("so what was it " * 20 + "in may", today)
