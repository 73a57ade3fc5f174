"""Validation of proposed calls: tool, arguments, and the facts that the rules use.

All work that grows with the size of the arguments happens here, so that it can run in a worker
thread before the run decides on the turn.  The result is cached by `actors.run.arguments`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from palyra.core.model.messages import ProposedCall
from palyra.core.text.canonical_json import digest_of_any, sha256_hex
from palyra.core.tool.arguments import Refused, check_arguments, refusal, unknown_tool
from palyra.core.tool.call_facts import NO_PATHS, PathFacts, read_paths
from palyra.core.tool.paths import normal_path
from palyra.core.tool.risk import is_sensitive
from palyra.core.tool.spec import CLIENT, NO_FACETS, CallFacts, Catalogue, ToolSpec, path_facets

_MARK = re.compile(rb"\[redacted:[a-z][a-z0-9_]*\]")


class CheckedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal with valid arguments for a tool of the catalogue."""

    call_id: str
    spec: ToolSpec
    arguments: dict[str, Any]  # after coercion
    digest: str  # SHA-256 of the canonical arguments
    size_bytes: int  # of the canonical arguments
    coercions: tuple[str, ...] = ()
    facets: CallFacts = NO_FACETS
    paths: PathFacts = NO_PATHS  # derived from the facets

    @property
    def path_key(self) -> str | None:
        """Conflict key of the call: the path it works on; "" is the workspace root.

        A call with several paths conflicts with every other in the workspace.
        """
        paths = self.facets.paths
        if len(paths) > 1:
            return ""
        return (normal_path(paths[0]) or "") if paths else None

    @property
    def proposal(self) -> tuple[str, str]:
        """Tool and digest of the arguments; equal for two equal proposals."""
        return self.spec.name, self.digest


# Facts about checked arguments; None if the tool was removed or changed since it was shown.
FindFacets = Callable[[ToolSpec, dict[str, Any]], CallFacts | None]


def admit(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets = path_facets
) -> CheckedCall | Refused:
    """Check a proposal: the tool exists, the arguments match its schema, no redaction mark."""
    spec = catalogue.tools.get(proposal.tool)
    if spec is None:
        return unknown_tool(proposal.tool, catalogue)
    checked = check_arguments(spec, proposal.arguments)
    if isinstance(checked, Refused):
        return checked
    if spec.executor != CLIENT and is_sensitive(spec):
        mark = _MARK.search(checked.canonical)
        if mark is not None:
            return _redacted(mark[0].decode())
    facets = find_facets(spec, checked.arguments)
    if facets is None:
        return tool_unavailable(spec.name)
    return CheckedCall(
        call_id=proposal.call_id,
        spec=_as_called(spec, facets),
        arguments=checked.arguments,
        digest=sha256_hex(checked.canonical),
        size_bytes=len(checked.canonical),
        coercions=checked.coercions,
        facets=facets,
        paths=read_paths(facets.paths),
    )


def tool_unavailable(tool: str) -> Refused:
    """Refuse a call whose tool was removed or changed."""
    return refusal(
        f"{tool} is not available any more, or not as it was shown",
        expected="another tool, or the call again in another run",
    )


def _as_called(spec: ToolSpec, facets: CallFacts) -> ToolSpec:
    """Return the spec of the tool narrowed or widened by this call.

    A call that takes a secret gains the capability `secret`; a dry run counts as a read.
    """
    if facets.only_reads:
        reads: dict[str, Any] = {"tool_class": "read_only_safe", "capabilities": ("fs.read",)}
        return msgspec.structs.replace(spec, risk="low", **reads)
    if not facets.secrets or "secret" in spec.capabilities:
        return spec
    return msgspec.structs.replace(spec, capabilities=(*spec.capabilities, "secret"))


def _redacted(mark: str) -> Refused:
    """Refuse arguments with a redaction mark: the mark is not the secret it replaced."""
    return refusal(
        f"{mark} stands for a secret that was not shown, so the call would not do what it says",
        expected="arguments without it; secrets are named to the daemon (sandbox.environment, "
        "a credential of the tool), files that hold one are changed around it",
    )


LIGHT_CHARS = 512  # of the arguments of a turn; every word of a command is examined


class ValidatedCall(NamedTuple):
    """A proposal and the result of its validation."""

    proposal: ProposedCall
    result: CheckedCall | Refused
    digest: str  # of the arguments, valid or not


def validate(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets = path_facets
) -> ValidatedCall:
    """Validate a proposal."""
    result = admit(proposal, catalogue, find_facets)
    if isinstance(result, Refused):
        return ValidatedCall(proposal, result, digest_of_any(proposal.arguments))
    return ValidatedCall(proposal, result, result.digest)


def is_light(proposals: Sequence[ProposedCall], catalogue: Catalogue) -> bool:
    """True if validating all of them takes less than a millisecond; otherwise use a thread.

    An unknown tool is not light: the search for the nearest name takes 0.1 ms per known tool.
    """
    if any(proposal.tool not in catalogue.tools for proposal in proposals):
        return False
    left = LIGHT_CHARS
    pending: list[object] = [proposal.arguments for proposal in proposals]
    while pending and left >= 0:
        item = pending.pop()
        left -= 1 + (len(item) if isinstance(item, str | dict | list) else 0)
        if left >= 0 and isinstance(item, dict):
            pending += [*item, *item.values()]
        elif left >= 0 and isinstance(item, list):
            pending += item
    return left >= 0
