"""Unknown null members: removed from the APIs' objects, never from the caller's data."""

from typing import Any

import msgspec

from palyra.net.http.compat.chat import ChatRequest
from palyra.net.http.compat.messages import MessagesRequest
from palyra.net.http.compat.params import without_unknown_nulls
from palyra.net.protocol.params import Params
from tests.rows import every_row

USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {"city": None}}


def message(**members: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", **members}]}


@every_row(
    ("kind", "given", "wanted"),
    [
        (MessagesRequest, message(content="x", new=None), message(content="x")),
        (
            MessagesRequest,
            message(content=[{**USE, "toolset_name": None}]),
            message(content=[USE]),
        ),
        (
            MessagesRequest,
            message(content=[{"type": "tool_result", "content": [{"type": "text", "x": None}]}]),
            message(content=[{"type": "tool_result", "content": [{"type": "text"}]}]),
        ),
        (MessagesRequest, message(content="x", new=7), message(content="x", new=7)),
        (
            ChatRequest,
            {"messages": [{"content": [{"type": "text", "text": "x", "y": None}]}], "seed": None},
            {"messages": [{"content": [{"type": "text", "text": "x"}]}], "seed": None},
        ),
        (
            ChatRequest,
            {
                "messages": [
                    {"content": [{"type": "image_url", "image_url": {"url": "u", "x": None}}]}
                ]
            },
            {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
        ),
        (ChatRequest, {"messages": 7, "tools": {"a": None}}, {"messages": 7, "tools": {"a": None}}),
    ],
)
def test_unknown_null_members_are_removed(kind: type[Params], given: Any, wanted: Any) -> None:
    """At any depth; known members stay, null or not."""
    assert wanted == without_unknown_nulls(kind, given)


def test_data_keeps_its_nulls() -> None:
    """A call's arguments are the caller's own."""
    pruned = without_unknown_nulls(MessagesRequest, message(content=[{**USE, "x": None}]))
    request = msgspec.convert(pruned, MessagesRequest)
    (block,) = msgspec.to_builtins(request.messages[0].content)
    assert {"city": None} == block["input"]
