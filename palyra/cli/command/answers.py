"""Answers to an approval as a person types them, and the words of the prompt that takes them.  Pure.

`palyra run` and `palyra chat` share both, so that the same line means the same in either.
"""

import re
from typing import Any, Literal, NamedTuple

import msgspec

from palyra.cli.command.output import one_line
from palyra.client.approvals import AnswerOptions
from palyra.core.journal.records import ApprovalScope
from palyra.core.policy.grants import describe_key
from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.policy.questions import (
    ASK_USER,
    check_words,
    describe_field,
    find_words,
    list_choices,
    list_fields,
    read_field,
)
from palyra.core.tape.events import ApprovalRequested
from palyra.errors import InvalidParams

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
    """An answer to a question; the reason of a denial, and the words for the model, reach it."""

    decision: Literal["allow", "deny"]
    scope: ApprovalScope = "once"
    reason: str = ""
    words: str = ""  # the answer to a question of the model; of a form, JSON

    @property
    def options(self) -> AnswerOptions:
        """The answer as params of `approval.resolve`."""
        given: AnswerOptions = {"scope": self.scope}
        if self.reason:
            given["reason"] = self.reason
        if self.words:
            given["answer"] = self.words
        return given


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


def is_short_answer(line: str) -> bool:
    """True for a line that is an answer to nearly any question and hardly a message."""
    text = line.strip().lower()
    return text in _ALLOWS or text in {"n", "no"} or (len(text) == 1 and text.isdigit())


class PromptReader:
    """Reads the answer to one question line by line: a form of the model takes a line a field."""

    def __init__(self, asked: ApprovalRequested) -> None:
        self.asked = asked
        self.is_form = asked.tool == ASK_USER and bool(list_fields(asked.arguments))
        self._problem = ""  # with the last line
        self._left = list(list_fields(asked.arguments)) if self.is_form else []
        self._values: dict[str, Any] = {}

    def read(self, line: str) -> Answer | None:
        """Return the answer once it is complete; None if the line is none or more fields follow."""
        self._problem = ""
        if not self._left or _NO_ANSWER.fullmatch(line.strip()):
            return read_answer(self.asked, line)
        if line.lstrip().startswith("{"):  # all of it at once
            return self._checked(line.strip())
        return self._read_field(line)

    @property
    def prompt(self) -> str:
        """The prompt for the next line."""
        if not self._left:
            return describe_choices(self.asked)
        field = self._left[0]
        hint = field.rule.get("title") or field.rule.get("description") or ""
        words = f"{field.name}: {hint + ', ' if hint else ''}{describe_field(field)}"
        optional = "" if field.is_required else ", empty to leave it out"
        problem = f"{one_line(self._problem, KEY_CHARS)}; " if self._problem else ""
        return f"{problem}{one_line(words, KEY_CHARS)}{optional}, /no [reason] = no answer: "

    def _read_field(self, line: str) -> Answer | None:
        try:
            value = read_field(self._left[0], line)
        except InvalidParams as error:
            self._problem = error.message
            return None
        field = self._left.pop(0)
        if line.strip():
            self._values[field.name] = value
        if self._left:
            return None
        return self._checked(msgspec.json.encode(self._values).decode())

    def _checked(self, words: str) -> Answer | None:
        try:
            check_words(self.asked.arguments, words)
        except InvalidParams as error:
            self._problem = error.message
            return None
        return Answer("allow", words=words)


def read_answer(asked: ApprovalRequested, line: str) -> Answer | None:
    """Return the answer of a line to that question: for a question of the model, words or a choice."""
    if asked.tool != ASK_USER:
        return parse_answer(line, asked.scopes)
    denied = _NO_ANSWER.fullmatch(line.strip())
    if denied is not None:
        return Answer("deny", reason=denied["reason"] or "")
    words = find_words(asked, line)
    return Answer("allow", words=words) if words else None


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
