"""Questions of the model to a person: the tool's name, and which answers are possible.

A question is a call of `ask_user` that is always asked about.  Its approval carries the answer in the
reason; a denial, an expiry and a run that cannot ask give the model the same results as for other calls.
"""

from typing import Any

from palyra.core.tape.events import ApprovalRequested
from palyra.errors import InvalidParams

ASK_USER = "ask_user"  # name of the tool
QUESTION_CHARS, CHOICE_CHARS, MAX_CHOICES = 2_000, 200, 12


def list_choices(arguments: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON value
    """Return the answers that a question offers; none if any text is one."""
    found = arguments.get("choices") if isinstance(arguments, dict) else None
    return tuple(map(str, found)) if isinstance(found, list) else ()


def find_words(asked: ApprovalRequested, line: str) -> str:
    """Return the answer that a person typed, by number or in words; "" if it is none."""
    text, choices = line.strip(), list_choices(asked.arguments)
    if not choices:
        return text
    if text.isascii() and text.isdigit() and 0 < int(text) <= len(choices):
        return choices[int(text) - 1]
    return next((choice for choice in choices if choice.lower() == text.lower()), "")


def check_words(arguments: Any, words: str) -> None:  # noqa: ANN401 - a JSON value
    """Raise InvalidParams unless the words answer the question."""
    choices = list_choices(arguments)
    if not words.strip():
        raise InvalidParams("the answer to a question of the model is its reason", field="reason")
    if choices and words not in choices:
        raise InvalidParams(
            f"{words[:100]!r} is none of the choices: {', '.join(choices)}", field="reason"
        )
