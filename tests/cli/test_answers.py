"""Answers as they are typed: one word allows, a denial may carry its reason."""

import pytest

from palyra.cli.answers import Answer, parse_answer

ALLOW, SESSION, DENY = Answer("allow"), Answer("allow", "session"), Answer("deny")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", ALLOW),
        (" YES ", ALLOW),
        ("s", SESSION),
        ("n", DENY),
        ("No", DENY),
        ("no.", DENY),
        ("n because it is  the wrong file", DENY._replace(reason="it is  the wrong file")),
        ("n, take b.txt", DENY._replace(reason="take b.txt")),
        ("no: Because I say so", DENY._replace(reason="I say so")),
        ("n because", DENY._replace(reason="because")),
        ("yes please", None),
        ("y because", None),
        ("session of tomorrow", None),
        ("not now", None),
        ("never", None),
        ("", None),
    ],
)
def test_only_a_denial_has_more_than_one_word(line: str, answer: Answer | None) -> None:
    """Nothing that begins like a permission and goes on is one."""
    assert answer == parse_answer(line, ("once", "session"))


def test_wider_answer_that_is_not_offered_is_none() -> None:
    """The session is no answer to a question that offers once."""
    assert parse_answer("s", ("once",)) is None
