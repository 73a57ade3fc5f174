"""Refused items: find the item of a prompt that a provider refuses, and leave it out of later prompts.

A provider refuses a request as a whole, although one item of it is at fault: a picture it cannot
decode, a tool whose schema it does not take, reasoning it does not take back.  Such an item stays in the
conversation, so every later request would be refused as well.  `find_refused` names the suspect that
is to be left out before the next attempt: the one the words of the refusal name, else the newest
picture.  The run records it (`item.refused`); prompts then show a stub in its place.  Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from palyra.core.model.messages import FailureClass, Message, pictures_of, without_pictures
from palyra.core.tape.events import ItemRefused, RefusedKind

MAX_ATTEMPTS = 8  # at one turn: each item costs a request
_REFUSALS: frozenset[FailureClass] = frozenset({"invalid_request", "content_policy"})
_PICTURE = re.compile(
    r"image|picture|photo|media[ _]?type|base64|vision|pixel|inline_?data|multi-?modal|jpe?g|png|webp|gif\b",
    re.IGNORECASE,
)
_REASONING = re.compile(r"thinking|reasoning|thought|signature|encrypted[ _]content", re.IGNORECASE)
_IS_MISSED = re.compile(r"missing|must be (passed|provided|included|sent)|required|is not enabled")
_TOOLS = re.compile(
    r"\btools?\b|function|schema|\$ref|\$defs|\benum\b|\banyOf\b|\boneOf\b|\ballOf\b|\bitems\b"
    r"|input_schema|parameters|toolspec|declaration",
    re.IGNORECASE,
)
_HISTORY = re.compile(r"tool_call|tool_use|tool_result|tool call|tool result|call_id|tool_choice")
_PLACE = re.compile(
    r"(?:tools?|function_?declarations|functions)(?:\[|\.|/| |: ?)+(\d{1,4})\b", re.IGNORECASE
)
_EXPLAINED = re.compile(
    r"not found|not exist|unsupported|not supported|not allowed|unrecognized|unknown|extra inputs"
    r"|tool_call|tool_use|tool_result|api version|deprecated|temperature|top_p|max_tokens|stream",
    re.IGNORECASE,
)


class Suspects(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a prompt that a provider may refuse."""

    pictures: tuple[str, ...] = ()  # artifacts, newest first
    tools: tuple[Mapping[str, Any], ...] = ()  # as in the request
    has_thoughts: bool = False


def find_refused(
    turn: int,
    failure_class: FailureClass,
    detail: str,
    suspects: Suspects,
    *,
    attempt: int = 1,
) -> ItemRefused | None:
    """Return the suspect to leave out before the next attempt; None if nothing is suspicious."""
    if failure_class not in _REFUSALS or attempt > MAX_ATTEMPTS:
        return None
    found = _find(failure_class, detail, suspects)
    if found is None:
        return None
    kind, name = found
    return ItemRefused(turn=turn, item=kind, name=name, detail=detail)


def _find(
    failure_class: FailureClass, detail: str, suspects: Suspects
) -> tuple[RefusedKind, str] | None:
    picture = suspects.pictures[0] if suspects.pictures else None
    if picture is not None and _PICTURE.search(detail):
        return "picture", picture
    if failure_class == "content_policy":
        return None
    if suspects.has_thoughts and _REASONING.search(detail) and not _IS_MISSED.search(detail):
        return "reasoning", "reasoning"
    tool = _find_tool(detail, suspects.tools)
    if tool is not None:
        return "tool", tool
    if picture is not None and not _EXPLAINED.search(detail):
        return "picture", picture
    return None


def _find_tool(detail: str, tools: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the tool that the words name, by name or place, or whose schema is the oddest."""
    if _HISTORY.search(detail) or not _TOOLS.search(detail):
        return None
    said = re.split(r"[^A-Za-z0-9_-]+", detail)
    for tool in tools:
        spelt = re.sub(r"[^a-zA-Z0-9_-]", "_", tool["name"])
        if spelt in said and not re.fullmatch(r"[a-z]+", spelt):
            return str(tool["name"])
    places = [int(found) for found in _PLACE.findall(detail)]  # the last one is the innermost
    if places and places[-1] < len(tools):
        return str(tools[places[-1]]["name"])
    plain = next((tool for tool in tools if f"'{tool['name']}'" in detail.replace('"', "'")), None)
    odd = plain or max(tools, key=lambda tool: oddity(tool["parameters"]), default=None)
    return None if odd is None or (plain is None and not oddity(odd["parameters"])) else odd["name"]


def names_no_tool(failure_class: FailureClass, detail: str, suspects: Suspects) -> bool:
    """True if a refusal is about the tools, and neither its words nor the schemas single one out."""
    if failure_class != "invalid_request" or _HISTORY.search(detail) or not _TOOLS.search(detail):
        return False
    found = _find(failure_class, detail, suspects)
    if found is None or found[0] != "tool":
        return found is None and bool(suspects.tools)
    odd = [tool["name"] for tool in suspects.tools if oddity(tool["parameters"])]
    return found[1] in odd and len(odd) > 1 and found[1] not in detail and not _PLACE.search(detail)


_PLAIN_KEYS = frozenset({
    "type", "properties", "required", "description", "items", "enum", "default", "minimum", "maximum",
    "additionalProperties", "title", "minLength", "maxLength", "minItems", "maxItems", "examples",
})  # fmt: skip


def oddity(schema: object, depth: int = 0) -> int:
    """Return how much of a JSON Schema is outside of what all providers take; 0: nothing."""
    if not isinstance(schema, dict) or depth > 32:  # noqa: PLR2004 - deeper is refused before
        return 0
    odd = 3 * ("$ref" in schema) + len(schema.keys() - _PLAIN_KEYS)
    odd += 2 * (schema.get("type") == "array" and not isinstance(schema.get("items"), dict))
    odd += 2 * ("enum" in schema and not schema["enum"]) + 2 * isinstance(schema.get("type"), list)
    if depth == 0:
        odd += 2 * (schema.get("type") != "object")
    inner: list[object] = [schema.get("items"), schema.get("additionalProperties")]
    properties = schema.get("properties")
    inner += properties.values() if isinstance(properties, dict) else ()
    for key in ("anyOf", "oneOf", "allOf"):
        inner += schema[key] if isinstance(schema.get(key), list) else ()
    return odd + sum(oddity(each, depth + 1) for each in inner)


def without_refused(message: Message, refused: Iterable[str]) -> Message:
    """Return a message with one line in place of the pictures that a provider has refused."""
    if not pictures_of(message):
        return message
    names = {name.removeprefix("picture:") for name in refused}
    return without_pictures(message, "the provider refused it", names)


LARGE_TOKENS = 8_000  # of a prompt: smaller windows are rare
MUCH_LARGER = 2  # times the last prompt that was answered
MIN_LARGE_TOKENS = 2_000


def may_be_overflow(
    failure_class: FailureClass, detail: str, tokens: int, good_tokens: int
) -> bool:
    """True if an unexplained failure of a prompt of that size may mean that it is too large.

    Providers word it in too many ways, and some only answer with an error of the server.
    `good_tokens` is the size of the last prompt that was answered; 0: none was.
    """
    if failure_class not in {"invalid_request", "transient"} or _EXPLAINED.search(detail):
        return False
    is_much_larger = good_tokens > 0 and tokens >= max(MIN_LARGE_TOKENS, MUCH_LARGER * good_tokens)
    return tokens >= LARGE_TOKENS or is_much_larger
