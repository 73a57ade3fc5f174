"""Members that the APIs' structs lack: removed and named, in the APIs' objects alone."""

from typing import Any

import msgspec

from palyra.net.http.compat.chat import ChatRequest
from palyra.net.http.compat.messages import MessagesRequest
from palyra.net.http.compat.params import MAX_PLACES, without_unknown
from palyra.net.http.compat.responses import ResponsesRequest
from palyra.net.protocol.params import Params
from tests.rows import every_row

USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {"city": None}}


def message(**members: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", **members}]}


TEXT = {"type": "text", "text": "x"}
URL = {"type": "image_url", "image_url": {"url": "u"}}
TOOL = {"name": "t", "input_schema": {"type": "object", "new": 1}}


@every_row(
    ("kind", "given", "wanted", "places"),
    [
        (MessagesRequest, message(content="x", new=None), message(content="x"), ()),
        (MessagesRequest, message(content="x", new=7), message(content="x"), ("messages[].new",)),
        (
            MessagesRequest,
            message(content=[{**USE, "toolset_name": None}]),
            message(content=[USE]),
            (),
        ),
        (
            MessagesRequest,
            message(
                content=[{"type": "tool_result", "content": [{**TEXT, "x": 1}, {**TEXT, "x": 2}]}]
            ),
            message(content=[{"type": "tool_result", "content": [TEXT, TEXT]}]),
            ("messages[].content[].content[].x",),
        ),
        (
            MessagesRequest,
            {"tools": [{**TOOL, "defer_loading": True}], "speed": "fast"},
            {"tools": [TOOL]},
            ("tools[].defer_loading", "speed"),
        ),
        (
            ChatRequest,
            {"messages": [{"content": [{**TEXT, "cache_control": {}}]}], "seed": None},
            {"messages": [{"content": [TEXT]}]},
            ("messages[].content[].cache_control",),
        ),
        (
            ChatRequest,
            {"messages": [{"content": [{**URL, "image_url": {"url": "u", "x": None}}]}]},
            {"messages": [{"content": [URL]}]},
            (),
        ),
        (
            ChatRequest,
            {"messages": 7, "tools": {"a": None}},
            {"messages": 7, "tools": {"a": None}},
            (),
        ),
        (
            ResponsesRequest,
            {"tools": [{"type": "namespace", "tools": [{"type": "function", "x": 1}]}]},
            {"tools": [{"type": "namespace", "tools": [{"type": "function"}]}]},
            ("tools[].tools[].x",),
        ),
        (
            ResponsesRequest,
            {"client_metadata": {"a": "b"}, "palyra": {"agnet": "x"}},
            {"palyra": {"agnet": "x"}},
            ("client_metadata",),
        ),
    ],
)
def test_unknown_members_are_removed(
    kind: type[Params], given: Any, wanted: Any, places: tuple[str, ...]
) -> None:
    """At any depth, and named once; known members stay, null or not, and so do our own options."""
    assert (wanted, places) == without_unknown(kind, given)


def test_data_keeps_its_members() -> None:
    """A call's arguments are the caller's own."""
    pruned, _ = without_unknown(MessagesRequest, message(content=[{**USE, "x": 1}]))
    request = msgspec.convert(pruned, MessagesRequest)
    (block,) = msgspec.to_builtins(request.messages[0].content)
    assert {"city": None} == block["input"]


def test_so_many_places_are_named() -> None:
    """All unknown members are removed."""
    pruned, places = without_unknown(ChatRequest, {str(n): n for n in range(MAX_PLACES + 5)})
    assert ({}, MAX_PLACES) == (pruned, len(places))
