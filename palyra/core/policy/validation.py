"""Intake as it is kept: what a proposal comes to, however often it is asked about.

All that takes longer the more there is of the arguments happens here, so that it can happen in a
thread before a run hears of its turn.  Pure.
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


# --- intake --------------------------------------------------------------------------------------


class CheckedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that a tool of the catalogue could run."""

    call_id: str
    spec: ToolSpec
    arguments: dict[str, Any]  # after coercion
    digest: str  # SHA-256 of the canonical arguments
    size_bytes: int  # of the canonical arguments
    coercions: tuple[str, ...] = ()
    facets: CallFacts = NO_FACETS
    paths: PathFacts = NO_PATHS  # of the facets, once they are read

    @property
    def path_key(self) -> str | None:
        """The path this call works on, as its conflict key; "" is the workspace root.

        A call that works on several has the whole workspace to itself.
        """
        paths = self.facets.paths
        if len(paths) > 1:
            return ""
        return (normal_path(paths[0]) or "") if paths else None

    @property
    def proposal(self) -> tuple[str, str]:
        """What makes two proposals identical: the tool and the digest of its arguments."""
        return self.spec.name, self.digest


# Of checked arguments; None for a tool that is not there any more as it was shown.
FindFacets = Callable[[ToolSpec, dict[str, Any]], CallFacts | None]


def admit(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets = path_facets
) -> CheckedCall | Refused:
    """The proposal with checked arguments, or what the model would have to repair."""
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
    """Its tool cannot be run in this run any more."""
    return refusal(
        f"{tool} is not available any more, or not as it was shown",
        expected="another tool, or the call again in another run",
    )


def _as_called(spec: ToolSpec, facets: CallFacts) -> ToolSpec:
    """The tool as this call makes it.

    One that takes a secret can do what secrets can; one that is only to say what it would do, reads.
    """
    if facets.only_reads:
        reads: dict[str, Any] = {"tool_class": "read_only_safe", "capabilities": ("fs.read",)}
        return msgspec.structs.replace(spec, risk="low", **reads)
    if not facets.secrets or "secret" in spec.capabilities:
        return spec
    return msgspec.structs.replace(spec, capabilities=(*spec.capabilities, "secret"))


def _redacted(mark: str) -> Refused:
    """A secret that was shown as its mark cannot be handed on: run so, the call is another one."""
    return refusal(
        f"{mark} stands for a secret that was not shown, so the call would not do what it says",
        expected="arguments without it; secrets are named to the daemon (sandbox.environment, "
        "a credential of the tool), files that hold one are changed around it",
    )


LIGHT_CHARS = 512  # of the arguments of a turn: of a command, intake looks at every word


class ValidatedCall(NamedTuple):
    """A proposal, and what intake makes of it."""

    proposal: ProposedCall
    result: CheckedCall | Refused
    digest: str  # of the arguments, whatever they are


def validate(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets = path_facets
) -> ValidatedCall:
    """Intake of a proposal."""
    result = admit(proposal, catalogue, find_facets)
    if isinstance(result, Refused):
        return ValidatedCall(proposal, result, digest_of_any(proposal.arguments))
    return ValidatedCall(proposal, result, result.digest)


def is_light(proposals: Sequence[ProposedCall], catalogue: Catalogue) -> bool:
    """Whether intake of all of them takes less than a millisecond; what is not is for a thread.

    To find the name next to one that is none takes a tenth of that for every tool there is.
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
