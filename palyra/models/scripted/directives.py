"""Directives: instructions to the scripted model in a user's text, one per line.

Pure: text in, steps out.  A line that does not start with `/word` is not a directive; it is ignored
in a text with directives, and a text without any is plain.  Errors are reported, never raised, and
a text with an error yields no steps.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from palyra.core.model.messages import FAILURE_CLASSES, FailureClass

MAX_TOKENS = 100_000  # a turn is one event of bounded size
MAX_DELAY_MS = 3_600_000
MAX_DEPTH = 64  # of arguments: deeper nesting would exhaust later encoders


class TextDelta(msgspec.Struct, frozen=True):
    """Send one delta of text or reasoning."""

    text: str
    kind: Literal["text", "reasoning"] = "text"


class WordDeltas(msgspec.Struct, frozen=True):
    """Send `count` deltas of one word each."""

    count: int


class Delay(msgspec.Struct, frozen=True):
    """Set the delay before each following delta, call and failure, as `FailTurn` at which attempts."""

    ms: int
    times: int | None = None


class CallTool(msgspec.Struct, frozen=True):
    """Propose a tool call; any JSON value is accepted as arguments."""

    tool: str
    arguments: Any


class FailTurn(msgspec.Struct, frozen=True):
    """Fail at this step: at every attempt, or at the first `times` attempts of a turn."""

    failure_class: FailureClass
    times: int | None = None


class NextTurn(msgspec.Struct, frozen=True):
    """Separator between two turns; it belongs to neither."""


Step = TextDelta | WordDeltas | Delay | CallTool | FailTurn
Turn = tuple[Step, ...]
Parsed = Step | NextTurn | str  # or the error message


class Directives(NamedTuple):
    """Turns of a text, or the errors that made it invalid."""

    turns: tuple[Turn, ...]
    problems: tuple[str, ...] = ()


class Directive(NamedTuple):
    """One command of the language; `parse` returns the step or an error about its operands."""

    usage: str
    meaning: str
    parse: Callable[[str], Parsed]


def parse_directives(text: str) -> Directives | None:
    """Parse the directives of a text; None if it has none."""
    if "/" not in text:
        return None
    steps: list[Step | NextTurn] = []
    problems: list[str] = []
    # Not `splitlines`: it also splits at characters that JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if (match := _LINE.fullmatch(line.strip())) is None:
            continue
        parsed = _parse(match[1], match[2] or "")
        if isinstance(parsed, str):
            problems.append(f"line {number}: {parsed}")
        else:
            steps.append(parsed)
    if problems:
        return Directives((), tuple(problems))
    return Directives(_turns(steps)) if steps else None


def _parse(name: str, operands: str) -> Parsed:
    directive = DIRECTIVES.get(name)
    return directive.parse(operands) if directive else f"there is no directive /{name}"


def _turns(steps: list[Step | NextTurn]) -> tuple[Turn, ...]:
    turns: list[list[Step]] = [[]]
    for step in steps:
        if isinstance(step, NextTurn):
            turns.append([])
        elif isinstance(step, TextDelta) and any(
            isinstance(prior, TextDelta | WordDeltas) for prior in turns[-1]
        ):
            turns[-1].append(TextDelta(f"\n{step.text}"))  # one line for each directive
        else:
            turns[-1].append(step)
    return tuple(map(tuple, turns))


# --- Operands ------------------------------------------------------------------------------------

_LINE = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)  # a carriage return does not end a line


def _parse_say(operands: str) -> Parsed:
    return TextDelta(operands)


def _parse_call(operands: str) -> Parsed:
    tool, _, json = operands.partition(" ")
    if not tool:
        return f"expected {DIRECTIVES['call'].usage}, got no name"
    try:
        arguments = msgspec.json.decode(json) if json.strip() else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return f"the arguments of {tool} are not JSON: {error}"
    if not _is_within(arguments, MAX_DEPTH):
        return f"the arguments of {tool} are nested more than {MAX_DEPTH} deep"
    return CallTool(tool, arguments)


def _is_within(value: object, depth: int) -> bool:
    """True if lists and objects are nested at most `depth` deep."""
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_within(item, depth - 1) for item in inner)


def _parse_tokens(operands: str) -> Parsed:
    count = _number(operands, 1, MAX_TOKENS)
    return count if isinstance(count, str) else WordDeltas(count)


def _parse_delay(operands: str) -> Parsed:
    first, _, rest = operands.strip().partition(" ")
    ms = _number(first, 0, MAX_DELAY_MS)
    times = _number(rest, 1, MAX_TOKENS) if rest else None
    if isinstance(ms, str) or isinstance(times, str):
        return ms if isinstance(ms, str) else str(times)
    return Delay(ms, times)


def _parse_fail(operands: str) -> Parsed:
    name, _, rest = operands.partition(" ")
    failure_class = next((known for known in FAILURE_CLASSES if known == name), None)
    if failure_class is None:
        return f"expected a failure class ({', '.join(FAILURE_CLASSES)}), got {name!r}"
    if not rest.strip():
        return FailTurn(failure_class)
    times = _number(rest, 1, MAX_TOKENS)
    return times if isinstance(times, str) else FailTurn(failure_class, times)


def _number(operands: str, least: int, most: int) -> int | str:
    word = operands.strip()
    is_number = word.isdecimal() and word.isascii() and len(word) <= len(str(most))
    if not (is_number and least <= int(word) <= most):
        return f"expected a whole number from {least} to {most}, got {word[:40]!r}"
    return int(word)


def _parse_then(operands: str) -> Parsed:
    return f"expected nothing after /then, got {operands[:40]!r}" if operands else NextTurn()


# The commands of the language.  `/then` separates turns and is no step.
DIRECTIVES: dict[str, Directive] = {
    "say": Directive(
        "/say TEXT", "answer with TEXT, one delta and one line of the answer", _parse_say
    ),
    "call": Directive(
        "/call NAME {json}",
        "call a tool; several lines are several calls of one turn",
        _parse_call,
    ),
    "then": Directive("/then", "begin the next turn", _parse_then),
    "tokens": Directive("/tokens N", "stream N deltas of one word", _parse_tokens),
    "delay": Directive(
        "/delay MS [N]",
        "wait MS milliseconds before each delta, call and failure that follows in the turn, at every"
        " attempt or at the first N",
        _parse_delay,
    ),
    "fail": Directive(
        "/fail CLASS [N]",
        "fail with this class, at every attempt or at the first N of the turn",
        _parse_fail,
    ),
}
