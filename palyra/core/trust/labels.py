"""Trust labels: the origin of a text, and the label of a combination of texts.

A label says who could have written a text, not what the text says.  A text made of several sources
has the lowest of their labels.  Summarising, cutting or quoting never raises a label.
"""

from collections.abc import Iterable
from typing import Literal

Trust = Literal[
    "trusted_local",  # texts of the daemon
    "workspace",  # files of the workspace, and output of commands run in it
    "mixed",  # several sources, one of them external
    "external_untrusted",  # external: pages, foreign servers, foreign skills
]
_LEVELS: dict[Trust, int] = {
    "external_untrusted": 0,
    "mixed": 0,  # as low as its worst part; the label records that there are others
    "workspace": 1,
    "trusted_local": 2,
}


def lowest(labels: Iterable[Trust]) -> Trust:
    """Return the lowest label, for a combination of the texts; `trusted_local` for none."""
    found = frozenset(labels)
    if len(found) == 1:
        return next(iter(found))
    level = min((_LEVELS[label] for label in found), default=_LEVELS["trusted_local"])
    if level == _LEVELS["mixed"]:
        return "mixed"
    return "workspace" if level == _LEVELS["workspace"] else "trusted_local"


def is_from_outside(label: Trust) -> bool:
    """True if any part of the text is untrusted external content."""
    return _LEVELS[label] == _LEVELS["external_untrusted"]
