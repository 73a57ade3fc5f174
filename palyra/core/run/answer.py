"""The final-answer contract: the checks a text must pass to end a run as its answer.

Only defects that can be detected without understanding language count, so prose is never rejected
for its wording (docs/decisions/0012-final-answer-checks.md):

- `empty`: nothing to read;
- `content_filter`: the provider's filter ended the turn;
- `cut_off`: the provider reports that the turn did not end by itself;
- `not_called`: the request demanded a call of a client tool, and the turn has none;
- `tool_markup`: the whole text is a call of a known tool, or a tool's result, as text;
- `not_json`: the request demanded JSON, and the text is not JSON;
- `wrong_form`: the JSON does not match the schema of the request;
- `contradicted`: the text claims an effect, or names a digest, and nothing on the tape can stand
  behind it (`core.run.claims`), whether or not a call was made.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from palyra.core.model.messages import AssistantMessage
from palyra.core.run.claims import Claim, ShownBefore, find_invented, find_unfounded
from palyra.core.run.state import Run
from palyra.core.text.canonical_json import is_nested_deeper
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.json_schema import find_mismatch
from palyra.core.tool.spec import ToolSpec

NO_TOOLS: Mapping[str, ToolSpec] = MappingProxyType({})
NOTHING_SHOWN = ShownBefore()

# --- defects and the guidance for the model ------------------------------------------------------


class AnswerDefect(msgspec.Struct, frozen=True):
    """The reason of a rejected text: a code, a sentence for people and guidance for the model."""

    code: str
    sentence: str
    guidance: str


_AGAIN = "Answer now; or, if something is missing, say what."
EMPTY = AnswerDefect("empty", "the model said nothing", f"Your last turn said nothing. {_AGAIN}")
FILTERED = AnswerDefect(
    "content_filter",
    "the provider's content filter stopped the answer",
    "",
)
CUT_OFF = AnswerDefect(
    "cut_off",
    "the answer was cut off by the provider",
    f"Your last turn was cut off before its end. {_AGAIN}",
)
TOOL_MARKUP = AnswerDefect(
    "tool_markup",
    "the model wrote a tool call out instead of making it",
    "Your last turn was a tool call written out as text; nothing was called. Make the call, or "
    "answer in words. If that text is itself the answer, put it into a code block.",
)
NOT_JSON = AnswerDefect(
    "not_json",
    "the answer is not the JSON that was asked for",
    "Your last turn was not JSON. Answer with one JSON value and nothing round it: no code "
    "block, no words.",
)


def _not_called(tools: Iterable[str]) -> AnswerDefect:
    names = ", ".join(tools)
    return AnswerDefect(
        "not_called",
        f"the model did not call what it was to call: {names}",
        f"Words are no answer here. Call one of these tools now: {names}.",
    )


def _misfit(mismatch: str) -> AnswerDefect:
    return AnswerDefect(
        "wrong_form",
        f"the answer does not fit the schema that was asked for: {mismatch}",
        f"Your last turn does not fit the schema: {mismatch}. Answer with JSON that does.",
    )


_INSTEAD = (
    "Make the call now, or say what really happened, from the results of the tools. If these words are "
    "not about your own work, put them into a code block."
)
_CLAIMED = {
    "wrote": "no call of the run wrote that",
    "ran": "no program ran in it",
    "acted": "nothing of the kind ran in it",
    "passed": "no test that ran in it passed last",
}


def _contradicted(digest: str) -> AnswerDefect:
    return AnswerDefect(
        "contradicted",
        f"the answer names {digest}, which no tool returned",
        f"Your last turn names {digest}. No tool returned that. {_INSTEAD}",
    )


def _unfounded(claim: Claim) -> AnswerDefect:
    sentence, why = truncate_safely(claim.sentence, 200), _CLAIMED[claim.kind]
    return AnswerDefect(
        "contradicted",
        f"the answer says {sentence!r}, but {why}",
        f"Your last turn says {sentence!r}, but {why}. {_INSTEAD}",
    )


def find_defect(
    run: Run, specs: Mapping[str, ToolSpec] = NO_TOOLS, background: ShownBefore = NOTHING_SHOWN
) -> AnswerDefect | None:
    """Return the defect of the last turn's text as the run's answer; None if it has none.

    `specs` are the tools the model may call, by name.
    """
    brief, text = run.accepted.brief, answer_text(run)
    if brief is not None and brief.must_call:
        return _not_called(tool.name for tool in brief.shown)
    if run.finish_reason == "content_filter" or not text.strip():
        return FILTERED if run.finish_reason == "content_filter" else EMPTY
    if run.finish_reason != "stop":
        return CUT_OFF
    if run.accepted.json_mode:
        return _find_json_defect(run, text)
    if is_tool_markup(text, specs):
        return TOOL_MARKUP
    return _find_contradiction(run, text, specs, background)


def _find_contradiction(
    run: Run, text: str, specs: Mapping[str, ToolSpec], background: ShownBefore
) -> AnswerDefect | None:
    """Return the defect of a text that names or claims what nothing on the tape can stand behind."""
    if (digest := find_invented(run, text, background)) is not None:
        return _contradicted(digest)
    claim = find_unfounded(run, text, specs, background)
    return None if claim is None else _unfounded(claim)


def answer_text(run: Run) -> str:
    """Return the last turn's text, joined with the cut text it continues; "" before any turn."""
    last = run.transcript[-1] if run.transcript else None
    return last.text if isinstance(last, AssistantMessage) else ""


# --- JSON ----------------------------------------------------------------------------------------


def _find_json_defect(run: Run, text: str) -> AnswerDefect | None:
    """Return the defect of the text as the requested JSON."""
    if not is_json(text):
        return NOT_JSON
    schema = None if run.accepted.brief is None else run.accepted.brief.answer_schema
    mismatch = None if schema is None else find_mismatch(schema, msgspec.json.decode(text))
    return None if mismatch is None else _misfit(mismatch)


def is_json(text: str) -> bool:
    """True if the text is one JSON value, nested at most `MAX_DEPTH` deep, and nothing else."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return not is_nested_deeper(value)


# --- tool markup ---------------------------------------------------------------------------------

_CALL_TAGS = "tool_calls?|function_calls?|tool_use|invoke|tool_code"
_RESULT_TAGS = "tool_response|tool_result|function_results?"
_CALL_ELEMENT = re.compile(rf"<({_CALL_TAGS})\b[^>]*>.*</\1>", re.DOTALL)
_RESULT_ELEMENT = re.compile(rf"<({_RESULT_TAGS})\b[^>]*>.*</\1>", re.DOTALL)
_NAMED_ELEMENT = re.compile(r"<function=([\w.-]+)>.*</function>", re.DOTALL)
# Control tokens of model families that leaked into the text, around the call or before its JSON.
_TOKENS_ROUND = re.compile(r"<[|\uff5c]tool[_\u2581]call.*[|\uff5c]>", re.DOTALL)
_TOKENS_BEFORE = ("[TOOL_CALLS]", "<|python_tag|>")
_NAME = re.compile(r"[\w.-]+")
_NAME_KEYS = frozenset({"name", "tool", "tool_name", "function"})
_ARGUMENT_KEYS = frozenset({"arguments", "parameters", "args", "input", "tool_input"})
_OTHER_KEYS = frozenset({"id", "type", "call_id", "index"})


def is_tool_markup(text: str, tools: Collection[str]) -> bool:
    """True if the whole text is a call of one of these tools, or a tool's result, as text.

    A call inside prose or a code block does not count: the answer may be about it.
    """
    bare = text.strip()
    if not bare.startswith(("{", "[", "<")):
        return False
    if _CALL_ELEMENT.fullmatch(bare) or _TOKENS_ROUND.fullmatch(bare):
        return not set(tools).isdisjoint(_NAME.findall(bare))
    if _RESULT_ELEMENT.fullmatch(bare):
        return True
    if named := _NAMED_ELEMENT.fullmatch(bare):
        return named[1] in tools
    for token in _TOKENS_BEFORE:
        bare = bare.removeprefix(token)
    try:
        return _is_call(msgspec.json.decode(bare), tools)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _is_call(value: Any, tools: Collection[str]) -> bool:  # noqa: ANN401 - a JSON value
    if isinstance(value, list):
        return bool(value) and all(_is_call(item, tools) for item in value)
    if not isinstance(value, dict):
        return False
    if "tool_calls" in value:
        return value.keys() <= {"role", "content", "tool_calls"} and _is_call(
            value["tool_calls"], tools
        )
    if isinstance(value.get("function"), dict):
        return value.keys() <= {"function", *_OTHER_KEYS} and _is_call(value["function"], tools)
    names, arguments = value.keys() & _NAME_KEYS, value.keys() & _ARGUMENT_KEYS
    is_whole = len(names) == len(arguments) == 1 and value.keys() <= names | arguments | _OTHER_KEYS
    name = value[next(iter(names))] if is_whole else None
    return isinstance(name, str) and name in tools
