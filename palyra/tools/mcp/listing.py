"""Lists of resources and prompts, and the level of log messages: requests that may fail.

A failure here costs the list and not the server: its reason is returned, and the tools stay.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import trio

from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.core.tool.mcp import McpPrompt, McpResource
from palyra.tools.mcp.failures import is_unknown_method, server_failures
from palyra.tools.mcp.offers import MAX_OFFERS, describe_prompt, describe_resource

LIST_S = 10.0  # for one list
MAX_PAGES = 16

# List: names of the request and its answer in `mcp_types`, the member with the items, their reader.
_LISTS: Mapping[str, tuple[str, str, str, Callable[[Any], McpResource | McpPrompt]]] = {
    "resources": ("ListResourcesRequest", "ListResourcesResult", "resources", describe_resource),
    "templates": (
        "ListResourceTemplatesRequest",
        "ListResourceTemplatesResult",
        "resource_templates",
        describe_resource,
    ),
    "prompts": ("ListPromptsRequest", "ListPromptsResult", "prompts", describe_prompt),
}


async def ask_for_log(session: Any) -> None:  # noqa: ANN401 - mcp's
    """Ask a server that logs for messages of level `info`; a refusal changes nothing."""
    from mcp_types import (  # noqa: PLC0415 - see the package
        EmptyResult,
        SetLevelRequest,
        SetLevelRequestParams,
    )

    if getattr(session.server_capabilities, "logging", None) is None:
        return
    request = SetLevelRequest(params=SetLevelRequestParams(level="info"))
    with suppress(*server_failures()), trio.move_on_after(LIST_S):
        await session.send_request(request, EmptyResult)


async def list_resources(
    session: Any,  # noqa: ANN401 - mcp's
    failed: dict[str, str],
) -> list[McpResource]:
    """List resources and templates; the reason of a failure is noted in `failed`."""
    if getattr(session.server_capabilities, "resources", None) is None:
        return []
    found = [*await _list(session, "resources", failed), *await _list(session, "templates", failed)]
    return [each for each in found if isinstance(each, McpResource)]


async def list_prompts(
    session: Any,  # noqa: ANN401 - mcp's
    failed: dict[str, str],
) -> list[McpPrompt]:
    """List prompts; the reason of a failure is noted in `failed`."""
    if getattr(session.server_capabilities, "prompts", None) is None:
        return []
    found = await _list(session, "prompts", failed)
    return [each for each in found if isinstance(each, McpPrompt)]


async def _list(
    session: Any,  # noqa: ANN401 - mcp's
    kind: str,
    failed: dict[str, str],
) -> list[McpResource | McpPrompt]:
    found: list[McpResource | McpPrompt] = []
    reason = ""
    with trio.move_on_after(LIST_S) as scope:
        try:
            reason = await _read_pages(session, kind, found)
        except server_failures() as error:
            # Many servers have resources but no templates, and answer that the method is unknown.
            is_normal = kind == "templates" and is_unknown_method(error)
            reason = "" if is_normal else f"failed: {truncate_safely(f'{error}', 200)}"
    if scope.cancelled_caught:
        reason = f"did not arrive within {LIST_S:g} s"
    if reason:
        failed[f"list of {kind}"] = visible(reason)
    return found


async def _read_pages(
    session: Any,  # noqa: ANN401 - mcp's
    kind: str,
    found: list[McpResource | McpPrompt],
) -> str:
    """Append the items of at most MAX_PAGES pages; return the reason why the list is incomplete."""
    import mcp_types  # noqa: PLC0415 - see the package

    request, result, member, describe = _LISTS[kind]
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        params = mcp_types.PaginatedRequestParams(cursor=cursor)
        page = await session.send_request(
            getattr(mcp_types, request)(params=params), getattr(mcp_types, result)
        )
        items = getattr(page, member)
        found += map(describe, items[: MAX_OFFERS + 1 - len(found)])
        cursor = page.next_cursor
        if len(found) > MAX_OFFERS or cursor is None:
            return f"has more than {MAX_OFFERS} entries" if len(found) > MAX_OFFERS else ""
    return f"has more than {MAX_PAGES} pages"
