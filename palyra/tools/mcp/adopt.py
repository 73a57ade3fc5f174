"""Conversion of an MCP server's tool descriptions into catalogue tools.

All data from the server is untrusted.  Descriptions are shown to the model between fences.
Annotations of the server can raise the risk of a tool but not lower it below the operator's terms.
A tool is left out, with a reason, if its description or schema is unusable or its name is taken.
A schema may use every rule that arguments can be checked against at a bounded cost; its annotations
and unknown keywords are dropped.  The result accepts only values that the original accepts.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from palyra.core.text.canonical_json import digest_of
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.json_schema import UnusableSchema, check_schema
from palyra.core.text.visible import visible
from palyra.core.tool.arguments import compile_parameters
from palyra.core.tool.spec import Risk, ToolClass, ToolSpec
from palyra.core.trust.external_descriptions import (
    RedactText,
    fenced_words,
    find_disguise,
    find_hidden,
    find_order,
    find_secret,
    only_rules,
)
from palyra.errors import PalyraError

MAX_TOOLS = 128  # of one server
# The longest of the reference servers' tools, sequentialthinking, has 2,781.
MAX_DESCRIPTION_CHARS = 4_096
MAX_SCHEMA_BYTES = 16_384
MAX_REASON_CHARS = 300
MAX_NAME_CHARS = 64  # in the catalogue
MAX_FOREIGN_CHARS = 256  # of the server's own name
_INSIDE = frozenset({"process", "fs.read", "fs.write"})  # capabilities of a jail without network
_DIGEST_CHARS = 8  # that tell two names apart which come to the same


class Unusable(PalyraError):
    """The tool is left out; the message is the reason."""

    code = "unusable_tool"


class DescribedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as described by the server; a missing annotation is None."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    claims_read_only: bool | None = None
    claims_destructive: bool | None = None


class AdoptionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings for a server and its tools."""

    server: str
    capabilities: tuple[str, ...]
    risk: Risk = "high"  # minimum for every tool
    read_only: tuple[str, ...] = ()  # tools whose read-only annotation is trusted
    left_out: tuple[str, ...] = ()
    deadline_s: float = 60.0
    enforcement: str = "none"
    workspace: str = ""  # whose runs alone have the tools; "": those of all
    digest: str = ""  # of the server's configuration, which grants are bound to


class AdoptedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The accepted tools of one server, and the reasons for the omitted ones."""

    tools: Mapping[str, tuple[str, ToolSpec]]  # catalogue name: (server's name, spec)
    missing: Mapping[str, str]  # server's name: reason


def adopt(terms: AdoptionTerms, described: list[DescribedTool], redact: RedactText) -> AdoptedTools:
    """Convert a server's tool list; tools that contain a secret or are unusable become `missing`."""
    tools: dict[str, tuple[str, ToolSpec]] = {}
    missing: dict[str, str] = {}
    for tool in described[:MAX_TOOLS]:
        name = _free_name(terms, tool.name, tools)
        try:
            _refuse("its name occurs twice" if name in tools else "")
            tools[name] = (tool.name, _adopt_one(terms, name, tool, redact))
        except (Unusable, UnusableSchema) as reason:
            why = visible(truncate_safely(reason.message, MAX_REASON_CHARS))
            missing[tool.name[:MAX_NAME_CHARS]] = why
    if len(described) > MAX_TOOLS:
        missing["…"] = f"{len(described) - MAX_TOOLS} more: a server may have {MAX_TOOLS} tools"
    return AdoptedTools(tools=tools, missing=missing)


def find_idle_trust(terms: AdoptionTerms, described: list[DescribedTool]) -> tuple[str, ...]:
    """Return which names of `read_only` have no effect and why, in words."""
    claims = {tool.name: tool.claims_read_only for tool in described}
    return tuple(
        f"`read_only` names {visible(name)}, which "
        + (
            "does not call itself read-only, so its calls are asked about"
            if name in claims
            else "is no tool of it"
        )
        for name in terms.read_only
        if not claims.get(name)
    )


def adopted_name(name: str) -> str:
    """Return the catalogue form of a name: lower case; characters other than a-z, 0-9, _ become _.

    A name that is too long, has no such letter or does not start with one gets a digest of the whole.
    """
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower())
    if len(plain) > MAX_NAME_CHARS or not re.match(r"[a-z]", plain):
        return _with_digest(plain, name)
    return plain


def _free_name(terms: AdoptionTerms, name: str, taken: Mapping[str, tuple[str, ToolSpec]]) -> str:
    """Return the tool's name in the catalogue; the second of two that come to the same has a digest."""
    adopted = f"mcp:{terms.server}.{adopted_name(name)}"
    if adopted in taken and taken[adopted][0] != name:
        return f"mcp:{terms.server}.{_with_digest(adopted_name(name), name)}"
    return adopted


def _with_digest(plain: str, name: str) -> str:
    """Return the start of a name and a digest of the server's name, within MAX_NAME_CHARS."""
    start = plain[: MAX_NAME_CHARS - _DIGEST_CHARS - 1].strip("_")
    head = start if re.match(r"[a-z]", start) else f"t_{start}".rstrip("_")
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{head[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def _adopt_one(
    terms: AdoptionTerms, name: str, tool: DescribedTool, redact: RedactText
) -> ToolSpec:
    """Convert one tool.  Raises Unusable or UnusableSchema with the reason."""
    if not tool.name.strip() or len(tool.name) > MAX_FOREIGN_CHARS:
        raise Unusable(f"its name is blank or has more than {MAX_FOREIGN_CHARS} characters")
    if visible(tool.name) != tool.name:
        raise Unusable("its name has characters that hide or imitate others")
    if tool.name in terms.left_out:
        raise Unusable("the configuration leaves it out")
    if len(tool.description) > MAX_DESCRIPTION_CHARS:
        raise Unusable(f"its description has more than {MAX_DESCRIPTION_CHARS} characters")
    try:
        encoded = msgspec.json.encode([tool.parameters, tool.description], order="sorted")
    except (RecursionError, TypeError, ValueError):
        raise Unusable("its schema is no JSON") from None
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise Unusable(f"its schema has more than {MAX_SCHEMA_BYTES} bytes")
    _refuse(find_secret(tool.name, tool.description, tool.parameters, redact))
    _refuse(find_order(f"{tool.name}\n{tool.description}", tool.parameters))
    _refuse(find_hidden(tool.description))
    check_schema(tool.parameters)  # bounds its depth
    parameters = only_rules(tool.parameters)
    compile_parameters(parameters)
    _refuse(find_disguise(parameters))
    return ToolSpec(
        name=name,
        foreign_name="" if name == f"mcp:{terms.server}.{tool.name}" else tool.name,
        version=digest_of([tool.name, tool.description, msgspec.to_builtins(tool.parameters)])[:16],
        description=fenced_words(name, tool.description),
        parameters=parameters,
        tool_class=_class_of(terms, tool),
        risk="critical" if tool.claims_destructive else terms.risk,
        capabilities=terms.capabilities,
        deadline_s=terms.deadline_s,
        excerpt_bytes=16_384,
        executor="mcp",
        enforcement=terms.enforcement,
        workspace=terms.workspace,
    )


def _class_of(terms: AdoptionTerms, tool: DescribedTool) -> ToolClass:
    """Return the class: read-only only if the tool claims it and the operator trusts the claim.

    A call that leaves the jail or the machine is also a message to its receiver.
    """
    if not tool.claims_read_only or tool.name not in terms.read_only:
        return "effect"
    is_inside = terms.enforcement.startswith("A:") and _INSIDE.issuperset(terms.capabilities)
    return "read_only_safe" if is_inside and not tool.claims_destructive else "idempotent_network"


def _refuse(reason: str) -> None:
    if reason:
        raise Unusable(reason)
