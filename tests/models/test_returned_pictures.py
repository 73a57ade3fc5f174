"""Pictures that tools returned, in the words of every dialect."""

from typing import Any

import msgspec

from palyra.core.model.images import Picture
from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.models.anthropic import ANTHROPIC
from palyra.models.bedrock import BEDROCK
from palyra.models.chat import CHAT
from palyra.models.dialect import Body, Dialect, wire_names
from palyra.models.gemini import GEMINI
from palyra.models.responses import RESPONSES
from tests.models.model_kit import REQUEST
from tests.rows import every_row

PICTURE = Picture(artifact="ab", session_id="s", media_type="image/png", size_bytes=3)
CALLS = tuple(
    ProposedCall(call_id=f"call_{n}", tool="read_file", arguments={"path": "a"}) for n in (1, 2)
)
URL = "data:image/png;base64,AAAA"
ALL: dict[str, Dialect] = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
}


def body(dialect: Dialect, *after: Any, status: str = "succeeded", **changes: Any) -> Body:
    """A request with two calls, of which the first returned a picture."""
    results = (
        ToolMessage("call_1", "read_file", status, "[picture 1]", pictures=(PICTURE,)),
        ToolMessage("call_2", "read_file", "succeeded", "text"),
    )
    messages = (UserMessage("look"), AssistantMessage("", CALLS), *results, *after)
    request = msgspec.structs.replace(
        REQUEST, messages=messages, **({"pictures": {"ab": "AAAA"}} | changes)
    )
    names = wire_names(tool["name"] for tool in request.tools)
    made: Body = msgspec.json.decode(
        msgspec.json.encode(dialect.body(request, "gemini-2.5-pro", names, 0))
    )
    return made


def test_chat_shows_them_behind_all_results() -> None:
    """A result is a text there, and nothing may stand between the results of one turn."""
    *_, first, second, shown = body(CHAT)["messages"]
    assert ["tool", "tool", "user"] == [first["role"], second["role"], shown["role"]]
    text, image = shown["content"]
    assert "pictures that read_file returned (workspace):" in text["text"]
    assert {"type": "image_url", "image_url": {"url": URL}} == image
    *_, joined = body(CHAT, GuidanceMessage("go on"))["messages"]
    assert ["text", "image_url", "text"] == [part["type"] for part in joined["content"]]
    assert "go on" in joined["content"][2]["text"]
    *_, shown, answer = body(CHAT, AssistantMessage("seen"))["messages"]
    assert ("user", "assistant") == (shown["role"], answer["role"])


def test_gemini_shows_them_behind_all_results() -> None:
    """In a content of their own: that of the results has as many parts as there were calls."""
    *_, results, shown = body(GEMINI)["contents"]
    assert ["functionResponse"] * 2 == [next(iter(part)) for part in results["parts"]]
    text, image = shown["parts"]
    assert "pictures that read_file returned" in text["text"]
    assert {"inlineData": {"mimeType": "image/png", "data": "AAAA"}} == image
    *_, joined = body(GEMINI, UserMessage("and now?"))["contents"]
    assert 3 == len(joined["parts"])
    *_, shown, answer = body(GEMINI, AssistantMessage("seen"))["contents"]
    assert ("user", "model") == (shown["role"], answer["role"])


def test_the_others_have_them_in_the_result() -> None:
    """Behind its text; a failed call has its picture as well."""
    for status in ("succeeded", "failed"):
        result = body(ANTHROPIC, status=status)["messages"][-1]["content"][0]
        assert (
            ("failed" in str(result["content"][0]))
            == (status == "failed")
            == ("is_error" in result)
        )
        source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        assert {"type": "image", "source": source} == result["content"][1]
        output = body(RESPONSES, status=status)["input"][-2]["output"]
        assert {"type": "input_text", "text": f"[{status}]\n[picture 1]"} == output[0]
        assert {"type": "input_image", "image_url": URL, "detail": "auto"} == output[1]
        result = body(BEDROCK, status=status)["messages"][-1]["content"][0]["toolResult"]
        image = {"format": "png", "source": {"bytes": "AAAA"}}
        assert {"image": image} == result["content"][1]
    text, image = body(BEDROCK, tools=())["messages"][-1]["content"][:2]
    assert "[picture 1]" in text["text"]
    assert "image" in image


@every_row("name", ALL)
def test_a_picture_that_is_gone_is_counted(name: str) -> None:
    """In the text of the result, which keeps its plain form."""
    found = str(body(ALL[name], pictures={}))
    assert "[1 of its pictures are not shown any more]" in found
    assert "AAAA" not in found
    assert "pictures that read_file returned" not in found
