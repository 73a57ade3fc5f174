"""Fake MCP servers for connections: one with a resource and a prompt."""

import trio

from palyra.core.tool.mcp import McpArgument, McpPrompt, McpResource, McpServerView
from palyra.errors import NotFound

NOTES = McpResource(uri="note://today", name="today", mime_type="text/plain", size=4)
REVIEW = McpPrompt(
    server="files", name="review", arguments=(McpArgument(name="code", is_required=True),)
)


class FakeMcp:
    """One server called `files`."""

    def list_servers(self) -> list[McpServerView]:
        return [McpServerView(name="files", resources=1, prompts=1, left_out={"odd": "why"})]

    def list_resources(self, name: str) -> list[McpResource]:
        if name != "files":
            raise NotFound("no such server", field="server")
        return [NOTES]

    def list_prompts(self, name: str | None) -> list[McpPrompt]:
        if name not in {None, "files"}:
            raise NotFound("no such server", field="server")
        return [REVIEW]

    async def retry(self, name: str) -> McpServerView:
        await trio.lowlevel.checkpoint()
        return McpServerView(name=name)
