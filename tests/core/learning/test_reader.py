"""A model's claim counts as far as the user's own prose has its quote."""

import pytest

from palyra.core.learning.candidates import LearningRules
from palyra.core.learning.extraction import Found, RunTexts, extract
from palyra.core.learning.reader import (
    MAX_PROMPT_CHARS,
    ReaderClaim,
    Stored,
    check_claim,
    join_claims,
    reader_prompt,
)
from tests.rows import every_row

RULE = "We ship the crates on Thursdays."


def texts(*messages: str) -> RunTexts:
    given = tuple(enumerate(messages))
    return RunTexts(principal="a", session_id="s", messages=given, trust="trusted_local")


def check(message: str, quote: str = RULE, replaces: int | None = None) -> Found | str:
    claim = ReaderClaim(kind="fact", quote=quote, replaces=replaces)
    stored = [Stored(memory_id="mem_1", text="My sister plays the oboe.")]
    return check_claim(claim, texts(message), (), LearningRules(), stored)


@every_row(
    "message",
    [
        f"> {RULE}",
        f"| {RULE} |",
        f"```\n{RULE}\n```",
        f"~~~ text\n{RULE}",
        f'She wrote "{RULE}" to everybody.',
        f"Sie schrieb \u201e{RULE}\u201c an alle.",
        f"`{RULE}`",
        f"{RULE}\n> {RULE}",
        RULE.upper(),
        "We ship the crates on  Thursdays.",
        "We ship the crate on Thursday.",
        f"Un{RULE}",
    ],
)
def test_a_quote_has_to_be_verbatim_in_own_prose(message: str) -> None:
    """Fenced, quoted, changed and cut words of a message prove nothing."""
    assert "no_evidence" == check(message)


@pytest.mark.parametrize("message", [RULE, f"```\nx\n```\n{RULE}", f"It says `x`. {RULE}"])
def test_a_quote_beside_code_counts(message: str) -> None:
    """The user's words after a closed block are the user's."""
    assert isinstance(check(message), Found)


@every_row(
    ("message", "quote"),
    [
        ("I don't think that we ship the crates on Thursdays.", "we ship the crates on Thursdays"),
        ("We ship on Thursdays, except in May.", "We ship on Thursdays"),
    ],
)
def test_the_sentence_around_a_quote_is_what_is_kept(message: str, quote: str) -> None:
    """A quote that was cut keeps its negation, its condition and its limit."""
    found = check(message, quote)
    assert isinstance(found, Found)
    assert message == found.text


@every_row(
    ("message", "quote", "reason"),
    [
        ("Do we ship the crates on Thursdays?", "we ship the crates on Thursdays", "unsupported"),
        (RULE, "", "no_evidence"),
        ("Forget that we ship on Thursdays.", "we ship on Thursdays", "declined"),
    ],
)
def test_the_rules_refuse_a_claim(message: str, quote: str, reason: str) -> None:
    """Questions and requests to forget stay refused whatever a model says."""
    assert reason == check(message, quote)


@pytest.mark.parametrize("replaces", [0, 1, -1])
def test_a_claim_corrects_an_item_of_its_subject(replaces: int) -> None:
    """An item of other words, and a number that was not shown, refuse the claim."""
    assert "unrelated" == check(RULE, RULE, replaces)


@pytest.mark.parametrize("kind", ["fact", "preference", "decision"])
def test_a_decision_is_kept_as_a_fact(kind: str) -> None:
    """The kinds of candidates are fewer than those of claims."""
    found = check_claim(ReaderClaim(kind=kind, quote=RULE), texts(RULE), (), LearningRules())
    assert isinstance(found, Found)
    assert ("preference" if kind == "preference" else "fact") == found.kind


def test_a_claim_agrees_with_the_rules_or_stands_beside_them() -> None:
    """A claim of a sentence that the rules found is no second candidate."""
    given = texts("I always prefer tea.", "the kiln in the yard belongs to Odile")
    reading = extract(given, ())
    quotes = ("I always prefer tea", "the kiln in the yard belongs to Odile")
    claims = ",".join(f'{{"kind": "fact", "quote": "{quote}"}}' for quote in quotes)
    answer = f'{{"candidates": [{claims}]}}'
    joined = join_claims(answer, given, (), rules=LearningRules(), reading=reading)
    assert "both" == joined.found[0].source
    assert {"both", "model"} >= {each.source for each in joined.found}
    assert 2 == len(joined.found)


def test_the_request_holds_the_newest_messages_that_fit() -> None:
    """Stored items are numbered and take their share of the room."""
    long = "x" * (MAX_PROMPT_CHARS - 100)
    stored = [Stored(memory_id="mem_1", text="y" * 60)]
    prompt = reader_prompt(texts("old" * 20, long, "new"), stored)
    assert ("new" in prompt, "old" in prompt, long in prompt) == (True, False, True)
    assert "mem_1" not in prompt


def test_a_claim_corrects_only_an_item_that_it_was_shown() -> None:
    """A number below zero names no stored item, also not the last one."""
    stored = [Stored(memory_id="mem_1", text="We ship the crates on Mondays.")]
    found = {
        number: check_claim(
            ReaderClaim(kind="fact", quote=RULE, replaces=number),
            texts(RULE), (), LearningRules(), stored,
        )
        for number in (-1, 0, 1)
    }  # fmt: skip
    assert ("unrelated", "unrelated") == (found[-1], found[1])
    assert isinstance(found[0], Found)
    assert "mem_1" == found[0].corrects
