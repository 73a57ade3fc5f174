"""Lenient reading of what providers send: an unknown form of one field costs that field only.

Servers that speak a dialect differ in single fields: a list of parts for a text, an object for a
JSON text, a number as a string, half of a surrogate pair.  `decode_event` reads what fits the type
and leaves every other field at its default.  The quick path is a typed decoder; the slow one runs
only for an event that the decoder refuses.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from palyra.core.model.messages import FinishReason, ModelFailure

T = TypeVar("T")


def decode_event(decoder: msgspec.json.Decoder[T], data: str | bytes) -> T:
    """Decode one event; a field of an unexpected form keeps its default.

    Raises ModelFailure (malformed) for data that is no JSON object.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        refused = error
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        found = _whole(json.loads(text))  # unlike msgspec it reads half of a surrogate pair
        if isinstance(found, dict):
            fitted: T = _fit(found, decoder.type)
            return fitted
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
        pass
    raise ModelFailure("malformed", f"an event cannot be read: {refused}") from None


def _whole(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    """Return the value with `?` in place of each half of a surrogate pair."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}
    return value


def _fit(value: Any, wanted: Any) -> Any:  # noqa: ANN401 - JSON, and any type of a field
    """Return the parts of `value` that fit the type.  Raises ValidationError if none do."""
    if wanted is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    options = get_args(wanted) if get_origin(wanted) in {Union, UnionType} else (wanted,)
    for option in options:
        if (
            isinstance(value, dict)
            and isinstance(option, type)
            and issubclass(option, msgspec.Struct)
        ):
            return option(**dict(_fields(value, option)))
        if get_origin(option) is list:
            given = value if isinstance(value, list) else [value]
            return list(_items(given, get_args(option)[0]))
    return msgspec.convert(value, wanted, strict=False)


def _fields(value: dict[str, Any], wanted: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(wanted):
        if field.encode_name in value:
            try:
                yield field.name, _fit(value[field.encode_name], field.type)
            except (msgspec.ValidationError, TypeError):
                continue


def _items(values: list[Any], wanted: Any) -> Iterator[Any]:  # noqa: ANN401 - likewise
    for value in values:
        try:
            yield _fit(value, wanted)
        except (msgspec.ValidationError, TypeError):
            continue


# --- texts and arguments in their various forms --------------------------------------------------

_THOUGHTS = frozenset({"thinking", "reasoning", "thought", "reasoning_text", "summary_text"})
_TEXT_KEYS = ("text", "content", "thinking", "reasoning", "refusal", "value", "summary")


def read_text(value: Any, *, is_thought: bool = False) -> Iterator[tuple[bool, str]]:  # noqa: ANN401 - a JSON value
    """Yield the pieces of a text, each with whether it is reasoning.

    A text is a string, a part with the text in one of several members, or a list of such parts.
    """
    if isinstance(value, str):
        yield is_thought, value
    elif isinstance(value, list):
        for part in value:
            yield from read_text(part, is_thought=is_thought)
    elif isinstance(value, dict):
        is_thought = is_thought or value.get("type") in _THOUGHTS
        key = next((key for key in _TEXT_KEYS if isinstance(value.get(key), str | list)), None)
        if key is not None:
            yield from read_text(value[key], is_thought=is_thought or key in _THOUGHTS)


def argument_text(value: Any) -> str:  # noqa: ANN401 - a JSON value
    """Return a piece of a call's arguments as text: an object is JSON that some server decoded."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- ends ----------------------------------------------------------------------------------------

_ENDS: tuple[tuple[re.Pattern[str], FinishReason], ...] = (
    (re.compile(r"filter|safety|polic|refus|prohibit|block|sensitiv|recitation|spii|language|guardrail"
                r"|moderat|violat|inappropriate"), "content_filter"),
    (re.compile(r"tool|function"), "tool_calls"),
    (re.compile(r"length|max|limit|truncat|window"), "length"),
)  # fmt: skip
_BROKEN = re.compile(
    r"error|fail|resource|overload|abort|cancel|time_?out|interrupt|malformed|unexpected|unavailable"
    r"|too_many|no_image|missing|disconnect"
)


def finish_reason(word: str) -> FinishReason:
    """Return what a provider's word for the end of an answer means; unknown words mean an end.

    Raises ModelFailure (transient) for a word of an answer that ended for a fault of the provider.
    """
    said = word.lower().replace("-", "_")
    if _BROKEN.search(said):
        raise ModelFailure("transient", f"the provider ended the answer early: {word[:64]}")
    return next((reason for words, reason in _ENDS if words.search(said)), "stop")


# --- ids -----------------------------------------------------------------------------------------

_WIRE_ID_CHARS = (
    9  # Mistral takes exactly nine letters and digits, and every other server takes them
)


@lru_cache(maxsize=4_096)
def wire_id(call_id: str) -> str:
    """Return the id of a call in the only form that all servers take."""
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:_WIRE_ID_CHARS]


_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def plain_id(call_id: str) -> str:
    """Return the id of a call for servers that take letters, digits, `_` and `-`."""
    return call_id if _PLAIN_ID.fullmatch(call_id) else wire_id(call_id)
