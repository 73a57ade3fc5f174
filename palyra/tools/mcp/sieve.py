"""Sieve of a server's answers: one broken item costs itself, and not the answer.

The package `mcp` refuses an answer as a whole.  So before it sees one that it would refuse, the broken
items are taken out of it: those of a list are noted in `left_out`, with the reason in plain words; in
place of a block of a result there is a text that names it.
"""

from collections.abc import Mapping
from typing import Any

from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from palyra.core.ports import RunBlocking
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible

MAX_ITEMS = 4_096  # of one answer
MAX_BROKEN = 32  # items that are named; the others are a number
MAX_REASON_CHARS = 200
_NAME_CHARS = 64

# Method: the member with the items, what one item is called, and the list.
_LISTS: Mapping[str, tuple[str, str, str]] = {
    "tools/list": ("tools", "tool", "tools"),
    "resources/list": ("resources", "resource", "resources"),
    "resources/templates/list": ("resourceTemplates", "template", "templates"),
    "prompts/list": ("prompts", "prompt", "prompts"),
}
_RESULTS: Mapping[str, tuple[str, str]] = {
    "tools/call": ("content", "block"),
    "resources/read": ("contents", "part"),
    "prompts/get": ("messages", "message"),
}
# Members that remain beside the items when another one is broken.
_FRAME: Mapping[str, tuple[type, ...]] = {
    "nextCursor": (str,),
    "isError": (bool,),
    "structuredContent": (dict,),
    "resultType": (str,),
    "ttlMs": (int,),
    "cacheScope": (str,),
}


class Sieve(JSONRPCDispatcher):
    """Dispatcher of a session that removes broken items from answers."""

    version = ""  # of the protocol, once it is agreed on; "": nothing is taken out

    def __init__(
        self,
        incoming: Any,  # noqa: ANN401 - a stream of the package `mcp`
        outgoing: Any,  # noqa: ANN401 - likewise
        run_blocking: RunBlocking,
    ) -> None:
        super().__init__(incoming, outgoing)
        self._run_blocking = run_blocking
        self.left_out: dict[str, dict[str, str]] = {}  # method: name of an item: reason

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *args: Any,  # noqa: ANN401 - mcp's
        **options: Any,  # noqa: ANN401 - mcp's
    ) -> dict[str, Any]:
        """Return the answer.  Cancellation: the server is notified, and its answer is dropped."""
        raw = await super().send_raw_request(method, params, *args, **options)
        if method in _LISTS and not (params or {}).get("cursor"):
            self.left_out[method] = {}  # a list begins again
        if not self.version or method not in {*_LISTS, *_RESULTS}:
            return raw
        if method in _LISTS:  # in a thread: milliseconds for 128 tools or for thousands of blocks
            return await self._run_blocking(self._sifted_list, method, raw)
        return await self._run_blocking(self._sifted_result, method, raw)

    def _sifted_result(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        items = raw.get(_RESULTS[method][0])
        is_long = isinstance(items, list) and len(items) > MAX_ITEMS
        return self._sift_result(method, raw) if is_long or self._fault(method, raw) else raw

    def _sifted_list(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        items = raw.get(_LISTS[method][0])
        if isinstance(items, list) and len(items) > MAX_ITEMS:
            self.left_out[method]["…"] = f"{len(items) - MAX_ITEMS} more than a page may have"
            raw = {**raw, _LISTS[method][0]: items[:MAX_ITEMS]}
        return self._sift_list(method, raw) if self._fault(method, raw) else raw

    def _sift_list(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        member, noun, plural = _LISTS[method]
        left_out, whole = self.left_out[method], f"list of {plural}"
        items = raw.get(member)
        if not isinstance(items, list):
            left_out[whole] = f"failed: `{member}` is {'not there' if items is None else 'no list'}"
            items = []
        frame, broken = self._frame(method, raw, member)
        if broken:
            left_out.setdefault(whole, broken)
        kept = []
        for index, item in enumerate(items):
            fault = self._fault(method, {**frame, member: [item]}, depth=2)
            if not fault:
                kept.append(item)
            elif len(left_out) < MAX_BROKEN:
                left_out[_free(_name_of(item, noun, index), left_out)] = fault
            else:
                rest = left_out.get("… and broken ones", "0 more").split()[0]
                left_out["… and broken ones"] = f"{int(rest) + 1} more"
        return {**frame, member: kept}

    def _sift_result(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        member, noun = _RESULTS[method]
        if raw.get("resultType", "complete") != "complete":
            return raw  # not an answer with items
        frame, broken = self._frame(method, raw, member)
        if not isinstance(raw.get("isError"), bool | None):  # of another type: treated as an error
            frame["isError"] = True
        listed, odd = _items_of(raw.get(member), member)
        notes = [f"[{broken}]"] if broken else []
        if odd and "structuredContent" not in frame:
            notes.append(f"[{odd}]")
        kept = []
        for index, item in enumerate(listed[:MAX_ITEMS]):
            fault = self._fault(method, {**frame, member: [item]}, depth=2)
            if not fault:
                kept.append(item)
            elif isinstance(item, str):
                kept.append(_text_item(member, item))
            else:
                name = f"{noun} {index + 1}{_type_of(item)}"
                notes.append(f"[{name} left out: {fault}]")
        if notes:
            shown = [*notes[:MAX_BROKEN], f"[{len(notes) - MAX_BROKEN} more]"]
            kept.append(_text_item(member, "\n".join(shown[: len(notes)])))
        return {**frame, member: kept}

    def _frame(self, method: str, raw: dict[str, Any], member: str) -> tuple[dict[str, Any], str]:
        """Return the members beside the items, and what is left out of them."""
        frame = {key: value for key, value in raw.items() if key != member}
        fault = self._fault(method, {**frame, member: []})
        if not fault:
            return frame, ""
        sound = {key: raw[key] for key, types in _FRAME.items() if isinstance(raw.get(key), types)}
        return sound, f"a part of the answer is left out: {fault}"

    def _fault(self, method: str, raw: dict[str, Any], depth: int = 0) -> str:
        """Return what is wrong with an answer, in words; the first `depth` parts of the place are left out."""
        try:
            parse_server_result(method, self.version, raw)
        except ValidationError as error:
            return describe_fault(error, depth)
        except (KeyError, ValueError):
            return ""  # not a method or version that the package checks
        return ""


def describe_fault(error: ValidationError, depth: int = 0) -> str:
    """Return what a validator found, without its links and the values."""
    # Of the members of a union the one that came furthest was meant.
    first = max(error.errors(include_url=False, include_input=False), key=lambda e: len(e["loc"]))
    # The place names the class of a union too, with a capital letter.
    place = [each for each in first["loc"][depth:] if not str(each)[:1].isupper()]
    where = f"`{'.'.join(map(str, place))}`" if place else "it"
    what = "is missing" if first["type"] == "missing" else f"is wrong: {first['msg'].lower()}"
    return visible(truncate_safely(f"{where} {what}", MAX_REASON_CHARS))


def _items_of(items: object, member: str) -> tuple[list[Any], str]:
    """Return the items of a result, and what is odd about them as a whole."""
    if isinstance(items, str | dict):
        return [items], ""
    if items is None:
        return [], f"the answer has no `{member}`"
    if not isinstance(items, list):
        return [], f"`{member}` of the answer is no list"
    more = len(items) - MAX_ITEMS
    return items, f"{more} more of `{member}` left out" if more > 0 else ""


def _name_of(item: object, noun: str, index: int) -> str:
    named = item if isinstance(item, dict) else {}
    for member in ("name", "uri", "uriTemplate"):
        name = named.get(member)
        if isinstance(name, str) and name.strip():
            return visible(name[:_NAME_CHARS])
    return f"{noun} {index + 1}"


def _free(name: str, taken: Mapping[str, str]) -> str:
    number = 2
    free = name
    while free in taken:
        free, number = f"{name} ({number})", number + 1
    return free


def _type_of(item: object) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    return f" of type {visible(kind[:_NAME_CHARS])}" if isinstance(kind, str) else ""


def _text_item(member: str, text: str) -> dict[str, Any]:
    """Return an item of a result that is a text."""
    if member == "contents":
        return {"uri": "left-out:", "text": text}
    block = {"type": "text", "text": text}
    return block if member == "content" else {"role": "user", "content": block}
