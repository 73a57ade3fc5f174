"""Trust: where a text comes from, and what becomes of it when texts are put together.

A label says who could have written a text, not what it says.  The trust of something made of
several sources is the minimum over them, and summarising, cutting or quoting never raises it.
"""

from collections.abc import Iterable
from typing import Literal

Trust = Literal[
    "trusted_local",  # the daemon's own words
    "workspace",  # what lies in the workspace, and what ran on it
    "mixed",  # made of several sources, one of them from outside
    "external_untrusted",  # from outside: pages, foreign servers, foreign skills
]
_LEVELS: dict[Trust, int] = {
    "external_untrusted": 0,
    "mixed": 0,  # no better than its worst part: the word only tells that there are others
    "workspace": 1,
    "trusted_local": 2,
}


def lowest(labels: Iterable[Trust]) -> Trust:
    """The label of what is made of all of these; of nothing at all, `trusted_local`."""
    found = frozenset(labels)
    if len(found) == 1:
        return next(iter(found))
    level = min((_LEVELS[label] for label in found), default=_LEVELS["trusted_local"])
    if level == _LEVELS["mixed"]:
        return "mixed"
    return "workspace" if level == _LEVELS["workspace"] else "trusted_local"


def is_from_outside(label: Trust) -> bool:
    """Whether somebody nobody here knows may have written (part of) it."""
    return _LEVELS[label] == _LEVELS["external_untrusted"]
