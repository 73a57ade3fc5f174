"""Answers as they are typed: one word allows, a denial may carry its reason."""

import pytest

from palyra.cli.command.answers import Answer, parse_answer, read_answer
from palyra.core.policy.questions import ASK_USER, list_fields, read_field
from palyra.core.tape.events import ApprovalRequested
from palyra.errors import InvalidParams

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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2", "blue"),
        (" BLUE ", "blue"),
        ("3", None),
        ("0", None),
        ("00002", None),
        ("20000", None),
        ("9" * 5_000, None),
        ("²", None),
        ("green", None),
    ],
)
def test_choice_is_a_number_or_its_text(line: str, words: str | None) -> None:
    """No other number is one, however long: a question, and a field of a form."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": ["red", "blue"]}}}
    field = list_fields({"form": schema})[0]
    asked = ApprovalRequested(
        approval_id="apr_1", call_id="call_1", tool=ASK_USER, digest="d", risk="low",
        arguments={"question": "Which?", "choices": ["red", "blue"]},
        policy_reason="", expires_ms=9, scopes=("once",), summary="Which?",
    )  # fmt: skip
    if words is None:
        assert read_answer(asked, line) is None
        with pytest.raises(InvalidParams):
            read_field(field, line)
    else:
        assert Answer("allow", words=words) == read_answer(asked, line)
        assert words == read_field(field, line)
