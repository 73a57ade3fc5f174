"""mcp.*: the configured MCP servers, and the resources and prompts that they offer."""

from typing import Annotated

import msgspec

from palyra.core.tool.mcp import McpServerView
from palyra.net.api.method import Method, MethodCall, at_once
from palyra.net.protocol.params import NoParams, Params
from palyra.net.protocol.results import McpPromptList, McpResourceList, McpServerList

ServerName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class McpNamed(Params, frozen=True, kw_only=True):
    """One server by its configured name."""

    server: ServerName


class McpPrompts(Params, frozen=True, kw_only=True):
    """One server; without a name, all of them."""

    server: ServerName | None = None


def list_(call: MethodCall, _params: NoParams) -> McpServerList:
    return McpServerList(servers=call.backend.mcp.list_servers())


def resources(call: MethodCall, params: McpNamed) -> McpResourceList:
    return McpResourceList(resources=list(call.backend.mcp.list_resources(params.server)))


def prompts(call: MethodCall, params: McpPrompts) -> McpPromptList:
    return McpPromptList(prompts=list(call.backend.mcp.list_prompts(params.server)))


async def retry(call: MethodCall, params: McpNamed) -> McpServerView:
    return await call.backend.mcp.retry(params.server)


METHODS = (
    Method("mcp.list", NoParams, McpServerList, "tools:read", at_once(list_)),
    Method("mcp.resources", McpNamed, McpResourceList, "tools:read", at_once(resources)),
    Method("mcp.prompts", McpPrompts, McpPromptList, "tools:read", at_once(prompts)),
    Method("mcp.retry", McpNamed, McpServerView, "config:write", retry),
)
