"""Requests of calls to an MCP server, and the texts of its answers.

A call of a tool, of `read_resource` and of `get_prompt` differ in the request, the type of the answer
and the text of it only.  Every text of an answer is `external_untrusted`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.core.tool.spec import ToolFailure, ToolOutput
from palyra.tools.mcp.offers import GET_PROMPT, MAX_URI_CHARS, READ_RESOURCE, check_uri

MAX_OUTPUT_CHARS = 1_048_576

Ask = Callable[[Mapping[str, Any]], tuple[Any, Any, Callable[[Any], ToolOutput]]]
"""Returns the request for validated arguments, the type of its answer, and the reading of that."""


def ask_tool(
    name: str, arguments: Mapping[str, Any]
) -> tuple[Any, Any, Callable[[Any], ToolOutput]]:
    from mcp_types import (  # noqa: PLC0415 - see the package
        CallToolRequest,
        CallToolRequestParams,
        CallToolResult,
    )

    params = CallToolRequestParams(name=name, arguments=dict(arguments))
    return CallToolRequest(params=params), CallToolResult, _output


def _ask_resource(
    arguments: Mapping[str, Any],
) -> tuple[Any, Any, Callable[[Any], ToolOutput]]:
    """Raises ToolFailure for an address that cannot be used."""
    from mcp_types import (  # noqa: PLC0415 - see the package
        ReadResourceRequest,
        ReadResourceRequestParams,
        ReadResourceResult,
    )

    reason = check_uri(arguments["uri"])
    if reason:
        raise ToolFailure(f"{visible(arguments['uri'])}: {reason}")
    params = ReadResourceRequestParams(uri=arguments["uri"])
    return ReadResourceRequest(params=params), ReadResourceResult, _resource_output


def _ask_prompt(
    arguments: Mapping[str, Any],
) -> tuple[Any, Any, Callable[[Any], ToolOutput]]:
    from mcp_types import (  # noqa: PLC0415 - see the package
        GetPromptRequest,
        GetPromptRequestParams,
        GetPromptResult,
    )

    params = GetPromptRequestParams(name=arguments["name"], arguments=arguments.get("arguments"))
    return GetPromptRequest(params=params), GetPromptResult, _prompt_output


OWN_ASKS: Mapping[str, Ask] = {READ_RESOURCE.name: _ask_resource, GET_PROMPT.name: _ask_prompt}


def _output(answer: Any) -> ToolOutput:  # noqa: ANN401 - mcp's
    """Join the texts of an answer; its pictures come along, other blocks are replaced by their type."""
    pictures: list[str] = []
    texts = [_block_text(block, pictures) for block in answer.content]
    if not texts and answer.structured_content is not None:
        texts = [msgspec.json.encode(answer.structured_content).decode()]
    return bounded_output("\n".join(texts), pictures, is_failure=bool(answer.is_error))


def _resource_output(answer: Any) -> ToolOutput:  # noqa: ANN401 - mcp's
    """Join the texts of a resource; pictures come along, other binary parts are replaced by their type."""
    pictures: list[str] = []
    texts = [_contents_text(contents, pictures) for contents in answer.contents]
    return bounded_output("\n".join(texts), pictures)


def _prompt_output(answer: Any) -> ToolOutput:  # noqa: ANN401 - mcp's
    """Join the messages of a prompt; those of the assistant are marked."""
    pictures: list[str] = []
    texts = [
        ("" if each.role == "user" else f"{each.role}: ") + _block_text(each.content, pictures)
        for each in answer.messages
    ]
    return bounded_output("\n\n".join(texts), pictures)


def _block_text(block: Any, pictures: list[str]) -> str:  # noqa: ANN401 - mcp's
    """Return the text of a block; a picture is added to `pictures`, as base64."""
    match block.type:
        case "text":
            return str(block.text)
        case "image":
            return _place(block.data, pictures)
        case "resource":
            return _contents_text(block.resource, pictures)
        case "resource_link":
            return f"[resource {visible(str(block.uri)[:MAX_URI_CHARS])}]"
        case other:
            return f"[{other} left out]"


def _place(data: str, pictures: list[str]) -> str:
    """Add a picture, and return the text in its place."""
    pictures.append(data)
    return f"[picture {len(pictures)}]"


def _contents_text(contents: Any, pictures: list[str]) -> str:  # noqa: ANN401 - mcp's
    text = getattr(contents, "text", None)
    if text is not None:
        return str(text)
    if (contents.mime_type or "").lower().startswith("image/"):
        return _place(contents.blob, pictures)
    return f"[{visible((contents.mime_type or 'binary')[:80])} left out]"


def bounded_output(
    text: str, pictures: Sequence[str] = (), *, is_failure: bool = False
) -> ToolOutput:
    return ToolOutput(
        text=truncate_safely(text, MAX_OUTPUT_CHARS),
        pictures=tuple(pictures),
        is_truncated=len(text) > MAX_OUTPUT_CHARS,
        is_failure=is_failure,
        trust="external_untrusted",
    )
