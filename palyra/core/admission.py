"""Intake as it is kept: what a proposal comes to, however often it is asked about.

All that takes longer the more there is of the arguments happens here, so that it can happen in a
thread before a run hears of its turn.  Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from palyra.core.canonical import digest_of_any
from palyra.core.gate import Admitted, FindFacets, admit
from palyra.core.intake import Refused
from palyra.core.prompt import ProposedCall
from palyra.core.tools import Catalogue, path_facets

LIGHT_CHARS = 512  # of the arguments of a turn: of a command, intake looks at every word


class TakenIn(NamedTuple):
    """A proposal, and what intake makes of it."""

    proposal: ProposedCall
    result: Admitted | Refused
    digest: str  # of the arguments, whatever they are


def take_in(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets = path_facets
) -> TakenIn:
    """Intake of a proposal."""
    result = admit(proposal, catalogue, find_facets)
    if isinstance(result, Refused):
        return TakenIn(proposal, result, digest_of_any(proposal.arguments))
    return TakenIn(proposal, result, result.digest)


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
