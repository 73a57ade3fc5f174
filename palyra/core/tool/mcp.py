"""Records of MCP servers: their state, and the resources and prompts that they offer.

All texts come from the servers.  They are bounded, redacted and free of control characters, and they
are for people: no prompt of a model has them.
"""

import msgspec


class McpResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource that can be read, or a template of addresses (RFC 6570) if `is_template`."""

    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None  # bytes, as the server claims
    is_template: bool = False


class McpArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One argument of a prompt; every value is a text."""

    name: str
    description: str = ""
    is_required: bool = False


class McpPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text that the server writes for a person, with its arguments."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[McpArgument, ...] = ()


class McpServerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one configured server; counts are those of its last life."""

    name: str
    problem: str = ""  # why it cannot be called; "": it is connected
    title: str = ""  # name and version that it claims
    protocol: str = ""  # version in use
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    starts: int = 0  # since the daemon's start
    left_out: dict[str, str] = {}  # tools, resources and prompts: name to reason
