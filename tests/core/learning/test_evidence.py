# ruff: noqa: RUF001 - users type typographic quotes
"""A model's text is taken for a fact only if the user's sentence says the same."""

from palyra.core.learning.candidates import LearningRules
from palyra.core.learning.evidence import find_evidence, is_supported
from palyra.core.learning.extraction import Found, RunTexts, score
from palyra.core.learning.reader import ReaderClaim, check_claim
from tests.core.learning.corpus import FACTS, PREFERENCES, UNMARKED, falsify, rephrase
from tests.rows import every_row

PLANTS = [*FACTS, *PREFERENCES, *UNMARKED]


def check(text: str, message: str, quote: str | None = None) -> Found | str:
    given = RunTexts(principal="a", session_id="s", messages=((0, message),), trust="trusted_local")
    claim = ReaderClaim(kind="fact", text=text, quote=message if quote is None else quote)
    return check_claim(claim, given, (), LearningRules())


OPPOSITES = [
    ("The tests need a network.", "The tests do not need a network."),
    ("The tests need a network.", "The tests don't need a network."),
    ("The tests need a network.", "The tests don’t need a network."),
    ("The tests need a network.", "The tests dont need a network."),
    ("The tests need a network.", "The tests never need a network."),
    ("The tests need a network.", "The tests no longer need a network."),
    ("The tests need a network.", "The tests need a network no longer."),
    ("The tests need a network.", "None of the tests need a network."),
    ("The tests need a network.", "Neither the tests need a network nor a disk."),
    ("The tests need a network.", "The tests hardly need a network."),
    ("The tests run with a network.", "The tests run without a network."),
    ("Our gateway is public.", "Our gateway isn't public."),
    ("We can push to main.", "We cannot push to main."),
    ("We can push to main.", "We can't push to main."),
    ("Our server is on Hetzner.", "Our server is not on Hetzner."),
    ("Unser Server läuft auf Hetzner.", "Unser Server läuft nicht auf Hetzner."),
    ("Ich mag Emojis.", "Ich mag keine Emojis."),
]


@every_row(("one", "other"), OPPOSITES)
def test_a_sentence_does_not_support_its_opposite(one: str, other: str) -> None:
    """A negation that only one side has, in any form, refuses the text in both directions."""
    assert ["unsupported"] * 2 == [check(one, other), check(other, one)]
    assert is_supported(one, [one])
    assert is_supported(other, [other])


@every_row(
    ("text", "message"),
    [
        ("The tests need a network and no disk.", "The tests need no network and a disk."),
        ("Not all tests need a network.", "All tests do not need a network."),
        ("The API uses Redis, not Postgres.", "The API uses Postgres, not Redis."),
        ("Our port is 8081.", "Our port is 8080."),
        ("Our limit is 8 MB.", "Our limit is 8 GB."),
        ("Our limit is 8 Mb.", "Our limit is 8 MB."),
        ("Our limit is 80 MB.", "Our limit is 8.0 MB."),
        ("Our timeout is 5 minutes.", "Our timeout is 5 seconds."),
        ("Our offset is 5.", "Our offset is -5."),
        ("Our discount is 5.", "Our discount is 5%."),
        ("We write our tools in C.", "We write our tools in C++."),
        ("I prefer spaces over tabs.", "I prefer tabs over spaces."),
        ("Bob reports to Ann.", "Ann reports to Bob."),
        ("I hate logins.", "Users hate logins."),
        ("We hate logins.", "Our users hate logins."),
        ("I hate logins.", "The user hates logins."),
        ("Our standup is at 9 am.", "Our standup is at 9."),
        ("Our standup is at 9.", "Our standup is at 9 am."),
        ("Our server needs 5 A.", "Our server needs 5 V."),
        ("My name is Acme.", "My name is Jana and I work at Acme in Brno."),
        ("Staging uses MySQL.", "Staging uses Postgres and production uses MySQL."),
        ("Bob uses tabs.", "The man who hates Bob uses tabs."),
        ("We use Redis.", "We used Redis."),
        ("We deploy on Fridays.", "We deploy only on Fridays."),
        ("We always deploy on Fridays.", "We usually deploy on Fridays."),
        ("We use tabs.", "We use tabs or spaces."),
        ("We use tabs.", "We use tabs, except in Makefiles."),
        ("We use tabs.", "In Makefiles, we use tabs."),
        ("The tests need a network.", "Do the tests need a network?"),
        ("The tests need a network mock and Docker.", "The tests need a network mock."),
        ("The tests need a network.", "The tests need a network mock."),
    ],
)
def test_a_changed_statement_is_not_supported(text: str, message: str) -> None:
    """Moved negations, other values and units, exchanged subjects and lost limits are no support."""
    assert "unsupported" == check(text, message)


@every_row(
    ("message", "quote"),
    [
        ("It is not true that the tests need a network.", "the tests need a network"),
        ("I doubt that the tests need a network.", "the tests need a network."),
        ("The tests need a network, which is false.", "The tests need a network"),
        ("Do the tests need a network?", "the tests need a network"),
        ("Nobody says the tests need a network.", "the tests need a network"),
        ("the tests need a network. I doubt that the tests need a network.", "the tests need a network"),
        ("What we do not want:\n- the tests need a network", "the tests need a network"),
    ],
)  # fmt: skip
def test_a_quote_cannot_leave_out_what_turns_it(message: str, quote: str) -> None:
    """The whole sentence decides, not the words of it that the model copied."""
    assert "unsupported" == check("The tests need a network.", message, quote)


def test_signs_of_the_whole_sentence_count() -> None:
    """A guess stays a guess where the model quotes the part without the doubt."""
    whole = check("Our port is 8080.", "Maybe, our port is 8080.", "our port is 8080.")
    assert isinstance(whole, Found)
    assert "unsure" in whole.signals
    assert whole.score_bps < score({"base": 6_000, "own": 1_500})


def test_a_refusal_to_be_remembered_is_read_in_the_whole_sentence() -> None:
    """A quote that begins after the refusal is refused with it."""
    message = "Do not remember that our port is 8080."
    assert "declined" == check("Our port is 8080.", message, "our port is 8080.")


@every_row(
    ("text", "message"),
    [
        ("The user prefers short answers.", "I prefer short answers."),
        ("The user's timezone is Europe/Prague.", "My timezone is Europe/Prague."),
        ("The tests don't need a network.", "The tests do not need a network."),
        ("The tests do not need a network.", "The tests don’t need the network."),
        ("The user uses Postgres.", "We use Postgres."),
        ("The deploy key is rotated every Monday.", "Remember that the deploy key is rotated every Monday."),
        ("I prefer dark themes.", "Don't forget that I prefer dark themes."),
        ("My name is Jana.", "My name is Jana and I work at Acme in Brno."),
        ("I work at Acme in Brno.", "My name is Jana and I work at Acme in Brno."),
        ("Our port is 8080.", "Hi! Our port is 8080. Thanks."),
        ("Our port is `8080`.", "our port is 8080"),
    ],
)  # fmt: skip
def test_the_same_statement_in_the_same_words_is_supported(text: str, message: str) -> None:
    """Person, contraction, article, ending of the present and the request around it may differ."""
    assert isinstance(check(text, message), Found)


@every_row("plant", PLANTS)
def test_no_change_of_a_plant_passes_and_its_truths_do(plant: str) -> None:
    """Each planted statement supports its rephrasings and none of its falsifications."""
    evidence = find_evidence(plant, plant)
    lies = falsify(plant)
    assert lies
    assert [] == [lie for lie in lies if is_supported(lie, evidence)]
    assert [] == [truth for truth in rephrase(plant) if not is_supported(truth, evidence)]


def test_evidence_is_the_shortest_run_of_sentences() -> None:
    """A quote over two sentences takes both, one in two places takes each, code takes none."""
    message = "One is here. Two is here.\n\nOne is here.\n```\nhidden words\n```"
    assert ["One is here.", "One is here."] == find_evidence(message, "One is here")
    assert ["One is here. Two is here."] == find_evidence(message, "here. Two")
    assert [] == find_evidence(message, "hidden words")
    assert [] == find_evidence(message, " ")


def test_long_quotes_and_texts_are_no_statements() -> None:
    """A quote or text over the bound of a sentence is refused unread; the control below it is not."""
    message = "We go. " * 300
    assert [] == find_evidence(message, "We go. " * 90)
    assert find_evidence(message, "We go. " * 80)
    assert not is_supported("we " * 300, ["we " * 300])
    assert is_supported("we " * 100, ["we " * 100])
