"""Conversion of the resources and prompts of an MCP server into records, and the tools for them.

All data from the server is untrusted.  A resource or prompt is left out, with a reason, if its address
or name is unusable, contains a secret or occurs twice.  Other texts are cut and shown without control
characters.  Models never see these records: people choose from them.

`read_resource` and `get_prompt` are tools of the server like all others, under the operator's terms.
They claim to be read-only, which counts only if the operator lists them in `read_only`.  A reference of
a message (`@mcp:`, `@prompt:`) is a call of one of them, so it passes the same gate.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.core.tool.mcp import McpArgument, McpPrompt, McpResource
from palyra.core.trust.external_descriptions import RedactText
from palyra.tools.mcp.adopt import DescribedTool

MAX_OFFERS = 512  # resources, templates or prompts of one server
MAX_ARGUMENTS = 16  # of one prompt
MAX_ARGUMENT_CHARS = 8_192  # value of one argument
MAX_URI_CHARS = 1_024
MAX_NAME_CHARS = 200
MAX_ABOUT_CHARS = 500
MAX_LEFT_OUT = 32  # reasons that are kept; the rest is a number
_Offer = TypeVar("_Offer", McpResource, McpPrompt)
_PROMPT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_ARGUMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
# RFC 3986 allows no blanks; letters beyond ASCII are common in practice.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")

READ_RESOURCE = DescribedTool(
    name="read_resource",
    description="Read a resource of this server by its URI.",
    parameters={
        "type": "object",
        "properties": {"uri": {"type": "string", "minLength": 1, "maxLength": MAX_URI_CHARS}},
        "required": ["uri"],
        "additionalProperties": False,
    },
    claims_read_only=True,
)
GET_PROMPT = DescribedTool(
    name="get_prompt",
    description="Return the text of a prompt of this server.",
    parameters={
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 64},
            "arguments": {
                "type": "object",
                "maxProperties": MAX_ARGUMENTS,
                "additionalProperties": {"type": "string", "maxLength": MAX_ARGUMENT_CHARS},
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    claims_read_only=True,
)


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """Resources and prompts of one server, and the reasons for the omitted ones."""

    resources: tuple[McpResource, ...] = ()
    prompts: tuple[McpPrompt, ...] = ()
    left_out: dict[str, str] = {}

    def tools(self) -> list[DescribedTool]:
        """Return the tools that reach the offers; none for none."""
        return [READ_RESOURCE] * bool(self.resources) + [GET_PROMPT] * bool(self.prompts)


def check_uri(uri: str) -> str:
    """Return the reason why the address of a resource cannot be used; "" if it can."""
    if len(uri) > MAX_URI_CHARS:
        return f"its address has more than {MAX_URI_CHARS} characters"
    if not _URI.fullmatch(uri) or not uri.isprintable():
        return "its address is no URI (scheme:rest, without blanks and control characters)"
    return ""


def adopt_offers(
    server: str,
    resources: Iterable[McpResource],
    prompts: Iterable[McpPrompt],
    redact: RedactText,
) -> Offers:
    """Bound, clean and deduplicate what a server described.  Takes milliseconds: call in a thread."""
    left_out: dict[str, str] = {}
    clean = _Cleaner(redact)

    def find_fault(resource: McpResource) -> str:
        return check_uri(resource.uri) or clean.find_secret(resource.uri)

    taken_resources = _take(resources, lambda each: each.uri, find_fault, left_out)
    taken_prompts = _take(
        prompts, lambda each: each.name, lambda each: _find_fault(each, clean), left_out
    )
    if len(left_out) > MAX_LEFT_OUT:
        kept = dict(list(left_out.items())[:MAX_LEFT_OUT])
        left_out = {**kept, "…": f"{len(left_out) - MAX_LEFT_OUT} more"}
    return Offers(
        resources=tuple(clean.resource(each) for each in taken_resources),
        prompts=tuple(clean.prompt(server, each) for each in taken_prompts),
        left_out=left_out,
    )


def _take(
    offers: Iterable[_Offer],
    name_of: Callable[[_Offer], str],
    find_fault: Callable[[_Offer], str],
    left_out: dict[str, str],
) -> list[_Offer]:
    """Return the usable offers, each name once, and note the others."""
    taken: dict[str, _Offer] = {}
    for each in offers:
        name = name_of(each)
        fault = find_fault(each) or ("its name occurs twice" if name in taken else "")
        if fault:
            left_out.setdefault(visible(name[:MAX_NAME_CHARS]), fault)
        elif len(taken) == MAX_OFFERS:
            left_out["…"] = f"more than {MAX_OFFERS}"
            break
        else:
            taken[name] = each
    return list(taken.values())


def _find_fault(prompt: McpPrompt, clean: "_Cleaner") -> str:
    if not _PROMPT_NAME.fullmatch(prompt.name):
        return "its name has no form a prompt's name may have"
    names = [each.name for each in prompt.arguments]
    if len(names) > MAX_ARGUMENTS:
        return f"it has more than {MAX_ARGUMENTS} arguments"
    if len(set(names)) < len(names) or not all(map(_ARGUMENT_NAME.fullmatch, names)):
        return "the name of an argument occurs twice or has no form such a name may have"
    return clean.find_secret(" ".join([prompt.name, *names]))


class _Cleaner:
    """Cuts, redacts and shows texts of a server."""

    def __init__(self, redact: RedactText) -> None:
        self._redact = redact

    def find_secret(self, text: str) -> str:
        return "" if self._redact(text)[0] == text else "it contains a secret"

    def text(self, text: str, limit: int) -> str:
        # The redactor gets more than is shown, so that a cut does not hide a secret from it.
        redacted, _ = self._redact(text[: 4 * limit])
        return visible(truncate_safely(redacted, limit))

    def resource(self, each: McpResource) -> McpResource:
        return msgspec.structs.replace(
            each,
            name=self.text(each.name, MAX_NAME_CHARS),
            description=self.text(each.description, MAX_ABOUT_CHARS),
            mime_type=self.text(each.mime_type, MAX_NAME_CHARS),
        )

    def prompt(self, server: str, each: McpPrompt) -> McpPrompt:
        arguments = tuple(
            msgspec.structs.replace(one, description=self.text(one.description, MAX_ABOUT_CHARS))
            for one in each.arguments
        )
        return msgspec.structs.replace(
            each,
            server=server,
            description=self.text(each.description, MAX_ABOUT_CHARS),
            arguments=arguments,
        )


# --- conversion of the package `mcp` ---------------------------------------------------------------


def describe_resource(found: Any) -> McpResource:  # noqa: ANN401 - mcp's
    """Return a resource or a template of the package `mcp` as a record."""
    uri = getattr(found, "uri", None)
    size = getattr(found, "size", None)
    return McpResource(
        uri=found.uri_template if uri is None else str(uri),
        name=found.title or found.name,
        description=found.description or "",
        mime_type=found.mime_type or "",
        size=size if size is not None and 0 <= size < 2**53 else None,
        is_template=uri is None,
    )


def describe_prompt(found: Any) -> McpPrompt:  # noqa: ANN401 - mcp's
    """Return a prompt of the package `mcp` as a record."""
    return McpPrompt(
        server="",
        name=found.name,
        description=found.description or "",
        arguments=tuple(
            McpArgument(
                name=each.name,
                description=each.description or "",
                is_required=bool(each.required),
            )
            for each in found.arguments or ()
        ),
    )
