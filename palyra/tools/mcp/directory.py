"""Configured MCP servers, with what they offer at the moment."""

from collections.abc import Sequence

import trio

from palyra.core.tool.mcp import McpPrompt, McpResource, McpServerView
from palyra.errors import NotFound
from palyra.tools.mcp.server import McpServer

MAX_NAMED = 10  # servers in an error
RETRY_S = 45.0  # above the 30 s that a server has to start


class McpServers:
    """`core.ports.McpDirectory` for the servers of the configuration."""

    def __init__(self, servers: Sequence[McpServer] = ()) -> None:
        self.replace(servers)

    def replace(self, servers: Sequence[McpServer]) -> None:
        """Replace the servers; none is started or stopped by this."""
        self._servers = {server.name: server for server in servers}

    @property
    def servers(self) -> tuple[McpServer, ...]:
        """The servers in the order of the configuration."""
        return tuple(self._servers.values())

    def list_servers(self) -> list[McpServerView]:
        """Return the servers in the order of the configuration."""
        return [server.view() for server in self._servers.values()]

    def list_resources(self, name: str) -> Sequence[McpResource]:
        """Return the resources and templates of a server.  Raises NotFound."""
        return self._get(name).offers.resources

    def list_prompts(self, name: str | None) -> list[McpPrompt]:
        """Return the prompts of a server, of all servers for None.  Raises NotFound."""
        servers = self._servers.values() if name is None else [self._get(name)]
        return [prompt for server in servers for prompt in server.offers.prompts]

    async def retry(self, name: str) -> McpServerView:
        """Have a server that failed connect now; return its state afterwards, or after RETRY_S.

        Raises NotFound.  Cancellation: the attempt goes on.
        """
        server = self._get(name)
        with trio.move_on_after(RETRY_S):
            await server.retry()
        return server.view()

    def _get(self, name: str) -> McpServer:
        server = self._servers.get(name)
        if server is None:
            known = (
                ", ".join(list(self._servers)[:MAX_NAMED])
                or "none: see [mcp] in docs/configuration.md"
            )
            raise NotFound(f"no MCP server {name[:64]!r}; configured: {known}", field="server")
        return server
