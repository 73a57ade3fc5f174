"""Questions of the model to a person: the tool's name, its forms, and which answers are possible.

A question is a call of `ask_user` that is always asked about.  Its approval carries the answer in the
reason, that of a form as JSON; a denial, an expiry and a run that cannot ask give the model the same
results as for other calls.

A form is a JSON Schema object with flat fields, whose keywords are those of `FORM`.  It is checked here
and not by the validator of schemas, because a terminal checks field by field, without its 15 MB.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from palyra.core.tape.events import ApprovalRequested
from palyra.errors import InvalidParams

ASK_USER = "ask_user"  # name of the tool
QUESTION_CHARS, CHOICE_CHARS, MAX_CHOICES = 2_000, 200, 12
MAX_FIELDS, NAME_CHARS, HINT_CHARS = 12, 64, 200
ANSWER_BYTES = 16_384  # of an answer as JSON

_TEXT, _COUNT = {"type": "string", "maxLength": HINT_CHARS}, {"type": "integer", "minimum": 0}
_FIELD = {
    "type": "object",
    "properties": {
        "type": {"enum": ["string", "number", "integer", "boolean"]},
        "title": _TEXT,
        "description": _TEXT,
        "enum": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_CHOICES,
            "items": {"type": ["string", "number"], "maxLength": CHOICE_CHARS},
        },
        "minimum": {"type": "number"},
        "maximum": {"type": "number"},
        "minLength": _COUNT,
        "maxLength": _COUNT,
    },
    "required": ["type"],
    "additionalProperties": False,
}
FORM = {
    "type": "object",
    "properties": {
        "type": {"enum": ["object"]},
        "title": _TEXT,
        "description": _TEXT,
        "properties": {
            "type": "object",
            "minProperties": 1,
            "maxProperties": MAX_FIELDS,
            "propertyNames": {"minLength": 1, "maxLength": NAME_CHARS},
            "additionalProperties": _FIELD,
        },
        "required": {"type": "array", "maxItems": MAX_FIELDS, "items": {"type": "string"}},
        "additionalProperties": {"type": "boolean"},
    },
    "required": ["type", "properties"],
    "description": "A small form instead of choices: a JSON Schema object with flat fields; the answer is JSON.",
}


class Field(NamedTuple):
    """A field of a form; `rule` is its schema."""

    name: str
    rule: Mapping[str, Any]
    is_required: bool


def list_choices(arguments: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON value
    """Return the answers that a question offers; none if any text is one."""
    found = arguments.get("choices") if isinstance(arguments, dict) else None
    return tuple(map(str, found)) if isinstance(found, list) else ()


def list_fields(arguments: Any) -> tuple[Field, ...]:  # noqa: ANN401 - a JSON value
    """Return the fields of a question's form; none if it has no form."""
    form = arguments.get("form") if isinstance(arguments, dict) else None
    if not isinstance(form, dict):
        return ()
    needed = form.get("required", ())
    return tuple(Field(name, rule, name in needed) for name, rule in form["properties"].items())


def find_defect(arguments: Mapping[str, Any]) -> str:
    """Describe why the question cannot be answered; "" if it can."""
    fields = list_fields(arguments)
    if fields and "choices" in arguments:
        return "a question has choices or a form, not both"
    names = {field.name for field in fields}
    unknown = [each for each in arguments.get("form", {}).get("required", ()) if each not in names]
    if unknown:
        return f"form.required names {unknown[0]!r}, which is no field"
    for field in fields:
        if defect := _find_field_defect(field):
            return f"form.properties.{field.name}: {defect}"
    chars = sum(field.rule.get("minLength", 0) for field in fields if field.is_required)
    if chars > ANSWER_BYTES // 2:  # the rest is for names and escapes
        return f"form: an answer has at most {ANSWER_BYTES} bytes, and minLength asks for {chars}"
    return ""


def _find_field_defect(field: Field) -> str:
    """Describe why no value fits the field, or one of its own choices does not."""
    rule = field.rule
    if rule["type"] == "boolean" and "enum" in rule:
        return "a boolean has no enum"
    free = field._replace(rule={word: rule[word] for word in rule if word != "enum"})
    for choice in rule.get("enum", ()):
        if problem := find_problem(free, choice):
            return f"enum does not fit: {problem}"
    for low, high in (("minimum", "maximum"), ("minLength", "maxLength")):
        if low in rule and high in rule and rule[low] > rule[high]:
            return f"{low} is above {high}"
    is_bounded = rule["type"] == "integer" and "minimum" in rule and "maximum" in rule
    if is_bounded and math.ceil(rule["minimum"]) > rule["maximum"]:
        return f"no whole number is between {rule['minimum']} and {rule['maximum']}"
    return ""


def find_problem(field: Field, value: object) -> str:
    """Describe why the value does not fit the field, and what does; "" if it fits."""
    rule, fits = field.rule, False
    match rule["type"]:
        case "string":
            fits = isinstance(value, str) and (
                rule.get("minLength", 0) <= len(value) <= rule.get("maxLength", ANSWER_BYTES)
            )
        case "boolean":
            fits = isinstance(value, bool)
        case kind:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            fits = is_number and (kind == "number" or is_whole)
            fits = fits and rule.get("minimum", value) <= value <= rule.get("maximum", value)
    if fits and ("enum" not in rule or value in rule["enum"]):
        return ""
    return f"{msgspec.json.encode(value).decode()[:100]} is not {describe_field(field)}"


def describe_field(field: Field) -> str:
    """Return what a field takes, in words."""
    rule = field.rule
    if "enum" in rule:
        return f"one of {', '.join(map(str, rule['enum']))}"
    noun = {"string": "a text", "boolean": "true or false", "integer": "a whole number"}
    unit, low, high = ("", "minimum", "maximum")
    if rule["type"] == "string":
        unit, low, high = (" characters", "minLength", "maxLength")
    bounds = [f"at least {rule[low]}{unit}"] if low in rule else []
    bounds += [f"at most {rule[high]}{unit}"] if high in rule else []
    return " ".join(
        [noun.get(rule["type"], "a number"), *([f"({', '.join(bounds)})"] if bounds else [])]
    )


_YES, _NO = {"y", "yes", "true"}, {"n", "no", "false"}


def read_field(field: Field, line: str) -> Any:  # noqa: ANN401 - a JSON value
    """Return the value of a typed line.  Raises InvalidParams, also for an empty required field."""
    text, rule, value = line.strip(), field.rule, None
    choices = rule.get("enum", ())
    if rule["type"] == "string":
        near = (each for each in choices if str(each).lower() == text.lower())
        value = _numbered(choices, text) or next(near, text)
    elif rule["type"] == "boolean":
        value = True if text.lower() in _YES else False if text.lower() in _NO else text
    else:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            value = text
    if not text and field.is_required:
        raise _invalid(field, f"is required: {describe_field(field)}")
    if problem := find_problem(field, value) if text else "":
        raise _invalid(field, problem)
    return value


def _invalid(field: Field, problem: str) -> InvalidParams:
    return InvalidParams(f"{field.name}: {problem}", field=f"answer.{field.name}")


def find_words(asked: ApprovalRequested, line: str) -> str:
    """Return the answer that a person typed, by number or in words; "" if it is none."""
    text, choices = line.strip(), list_choices(asked.arguments)
    if not choices:
        return text
    return _numbered(choices, text) or next(
        (choice for choice in choices if choice.lower() == text.lower()), ""
    )


def _numbered(choices: Sequence[str], text: str) -> str:
    """Return the choice of that number, "" for none; a number that is a choice itself is no number."""
    if text in choices or not (text.isascii() and text.isdigit()):
        return ""
    at = int(text[:4])  # a longer one is none either, and the longest would be an error
    return choices[at - 1] if 0 < at <= len(choices) else ""


def check_words(arguments: Any, words: str) -> None:  # noqa: ANN401 - a JSON value
    """Raise InvalidParams unless the words answer the question: of a form, its JSON object."""
    choices, fields = list_choices(arguments), list_fields(arguments)
    if not words.strip():
        raise InvalidParams(
            "the answer to a question of the model is missing: give it as `answer`", field="answer"
        )
    if choices and words not in choices:
        raise InvalidParams(
            f"{words[:100]!r} is none of the choices: {', '.join(choices)}", field="answer"
        )
    if fields:
        _check_form(fields, words)


def _check_form(fields: tuple[Field, ...], words: str) -> None:
    try:
        values = msgspec.json.decode(words)
    except (msgspec.DecodeError, RecursionError):
        values = None
    if not isinstance(values, dict):
        names = ", ".join(field.name for field in fields)
        raise InvalidParams(
            f"{words[:100]!r} is no JSON object; the form takes one with {names}", field="answer"
        )
    for field in fields:
        if field.name in values:
            if problem := find_problem(field, values[field.name]):
                raise _invalid(field, problem)
        elif field.is_required:
            raise _invalid(field, f"is required: {describe_field(field)}")
    known = {field.name for field in fields}
    unknown = next((name for name in values if name not in known), None)
    if unknown is not None:
        raise InvalidParams(
            f"{unknown[:100]!r} is no field of the form: {', '.join(known)}",
            field=f"answer.{unknown[:NAME_CHARS]}",
        )
