"""Tools of a server that is not ours: what of its claims becomes a tool of the catalogue.

Everything the server says is the claim of a stranger.  Its words are shown to the model between
fences; its annotations can make a tool look more dangerous, never less than the operator's terms
say.  A tool that cannot be described, checked or told apart is left out, with the reason.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from palyra.core.text.canonical_json import digest_of
from palyra.core.tool.spec import Risk, ToolClass, ToolSpec
from palyra.core.trust.external_descriptions import (
    RedactText,
    fenced_words,
    find_disguise,
    find_order,
    find_secret,
    without_words,
)
from palyra.tools.mcp.schema import Unusable, narrowed

MAX_TOOLS = 128  # of one server
MAX_DESCRIPTION_CHARS = 2_000
MAX_SCHEMA_BYTES = 16_384
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class DescribedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as the server tells of it; an annotation it does not make is None."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    claims_read_only: bool | None = None
    claims_destructive: bool | None = None


class AdoptionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says of a server and its tools."""

    server: str
    capabilities: tuple[str, ...]
    risk: Risk = "high"  # the least
    read_only: tuple[str, ...] = ()  # tools believed when they claim to change nothing
    left_out: tuple[str, ...] = ()
    deadline_s: float = 60.0
    enforcement: str = "none"


class AdoptedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one server: by the name the catalogue has, and why others are missing."""

    tools: Mapping[str, tuple[str, ToolSpec]]  # catalogue name: (the server's name, spec)
    missing: Mapping[str, str]


def adopt(terms: AdoptionTerms, described: list[DescribedTool], redact: RedactText) -> AdoptedTools:
    """What the catalogue gets of a server's list; nothing that holds a secret."""
    tools: dict[str, tuple[str, ToolSpec]] = {}
    missing: dict[str, str] = {}
    for tool in described[:MAX_TOOLS]:
        try:
            spec = _adopt_one(terms, tool, redact)
        except Unusable as reason:
            missing[tool.name[:64]] = reason.message
            continue
        if spec.name in tools:
            missing[tool.name] = f"its name is that of {tools[spec.name][0]} here"
        else:
            tools[spec.name] = (tool.name, spec)
    if len(described) > MAX_TOOLS:
        missing["…"] = f"{len(described) - MAX_TOOLS} more: a server may have {MAX_TOOLS} tools"
    return AdoptedTools(tools=tools, missing=missing)


def adopted_name(name: str) -> str:
    """What a tool of that name is called here: small letters, digits and _, others become _."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def _adopt_one(terms: AdoptionTerms, tool: DescribedTool, redact: RedactText) -> ToolSpec:
    """Raises Unusable."""
    if not _NAME.fullmatch(tool.name):
        raise Unusable("its name has no form a tool's name may have")
    if tool.name in terms.left_out:
        raise Unusable("the configuration leaves it out")
    if len(tool.description) > MAX_DESCRIPTION_CHARS:
        raise Unusable(f"its description has more than {MAX_DESCRIPTION_CHARS} characters")
    try:
        told = msgspec.json.encode([tool.parameters, tool.description], order="sorted")
    except (RecursionError, TypeError, ValueError):
        raise Unusable("its schema is no JSON") from None
    if len(told) > MAX_SCHEMA_BYTES:
        raise Unusable(f"its schema has more than {MAX_SCHEMA_BYTES} bytes")
    _refuse(find_secret(tool.name, tool.description, tool.parameters, redact))
    _refuse(find_order(tool.description, tool.parameters))
    parameters = without_words(narrowed(tool.parameters))
    if parameters.get("type") != "object":
        raise Unusable("its arguments are no object")
    _refuse(find_disguise(parameters))
    adopted = adopted_name(tool.name)
    name = f"mcp:{terms.server}.{adopted}"
    return ToolSpec(
        name=name,
        foreign_name="" if adopted == tool.name else tool.name,
        version=digest_of([tool.name, tool.description, msgspec.to_builtins(tool.parameters)])[:16],
        description=fenced_words(name, tool.description),
        parameters=parameters,
        tool_class=_class_of(terms, tool),
        risk=_risk_of(terms, tool),
        capabilities=terms.capabilities,
        deadline_s=terms.deadline_s,
        excerpt_bytes=16_384,
        executor="mcp",
        enforcement=terms.enforcement,
    )


def _refuse(reason: str) -> None:
    if reason:
        raise Unusable(reason)


def _class_of(terms: AdoptionTerms, tool: DescribedTool) -> ToolClass:
    """Read-only needs both: the tool claims it and the operator believes it."""
    if tool.claims_read_only and tool.name in terms.read_only:
        return "idempotent_network"
    return "effect"


def _risk_of(terms: AdoptionTerms, tool: DescribedTool) -> Risk:
    """At least the operator's; a tool that says it destroys is critical."""
    return "critical" if tool.claims_destructive else terms.risk
