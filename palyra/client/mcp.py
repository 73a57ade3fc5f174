"""Typed methods about MCP servers."""

from palyra.client.requests import RequestMethods
from palyra.core.tool.mcp import McpServerView
from palyra.net.protocol.results import McpPromptList, McpResourceList, McpServerList


class McpMethods(RequestMethods):
    """List MCP servers, their resources and their prompts."""

    async def list_mcp_servers(self) -> McpServerList:
        """List the configured servers with their state."""
        return await self._ask("mcp.list", {}, McpServerList)

    async def retry_mcp_server(self, server: str) -> McpServerView:
        """Have a server that failed connect now, and return its state afterwards.

        Cancellation: the attempt goes on.
        """
        return await self._ask("mcp.retry", {"server": server}, McpServerView)

    async def list_mcp_resources(self, server: str) -> McpResourceList:
        """List the resources and templates of a server; none while it is not connected."""
        return await self._ask("mcp.resources", {"server": server}, McpResourceList)

    async def list_mcp_prompts(self, server: str | None = None) -> McpPromptList:
        """List the prompts of a server; without a name, of all servers."""
        return await self._ask("mcp.prompts", {"server": server}, McpPromptList)
