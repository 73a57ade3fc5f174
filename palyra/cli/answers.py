"""Answers to an approval as a person types them, and the words of the prompt that takes them.  Pure.

`palyra run` and `palyra chat` share both, so that the same line means the same in either.
"""

import re
from typing import Literal, NamedTuple

from palyra.cli.output import one_line
from palyra.core.journal.records import ApprovalScope
from palyra.core.policy.grants import describe_key
from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.policy.questions import ASK_USER, find_words, list_choices
from palyra.core.tape.events import ApprovalRequested

KEY_CHARS = 200
NOTICE_S = 5.0  # a question that waits longer rings
_ALLOWS: dict[str, ApprovalScope] = {
    "y": "once", "yes": "once", "s": "session", "session": "session",
}  # fmt: skip
_DENIES = re.compile(
    r"(?:n|no)(?:$|[\s,.:;]+(?:because\s+)?(?P<reason>.*))", re.IGNORECASE | re.DOTALL
)

_NO_ANSWER = re.compile(r"/no(?:$|\s+(?P<reason>.*))", re.IGNORECASE | re.DOTALL)


class Answer(NamedTuple):
    """An answer to a question; the reason of a denial reaches the model."""

    decision: Literal["allow", "deny"]
    scope: ApprovalScope = "once"
    reason: str = ""


def parse_answer(line: str, scopes: tuple[ApprovalScope, ...]) -> Answer | None:
    """Return the answer of a line, None for a line that is none.

    A permission is one word.  A denial may be followed by its reason: `n use the other file`.
    """
    text = line.strip()
    denied = _DENIES.fullmatch(text)
    if denied is not None:
        return Answer("deny", reason=(denied["reason"] or "").strip())
    scope = _ALLOWS.get(text.lower())
    return Answer("allow", scope) if scope is not None and scope in scopes else None


def read_answer(asked: ApprovalRequested, line: str) -> Answer | None:
    """Return the answer of a line to that question: for a question of the model, words or a choice."""
    if asked.tool != ASK_USER:
        return parse_answer(line, asked.scopes)
    denied = _NO_ANSWER.fullmatch(line.strip())
    if denied is not None:
        return Answer("deny", reason=denied["reason"] or "")
    words = find_words(asked, line)
    return Answer("allow", reason=words) if words else None


def describe_choices(asked: ApprovalRequested) -> str:
    """Return the prompt of a question: its answers, and what a wider one allows."""
    if asked.tool == ASK_USER:
        numbered = [
            f"{number} = {one_line(choice, KEY_CHARS)}"
            for number, choice in enumerate(list_choices(asked.arguments), start=1)
        ]
        return f"{', '.join(numbered) or 'your answer'}, /no [reason] = no answer: "
    if asked.tool == PROPOSE_PLAN:
        return "accept the plan? y = yes, n [what to change] = no: "
    key = one_line(describe_key(asked.grant_key), KEY_CHARS)
    session = f", s = yes to {key} for this session" if "session" in asked.scopes else ""
    return f"allow it? y = yes{session}, n [reason for the model] = no: "
