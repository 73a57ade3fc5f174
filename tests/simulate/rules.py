"""The rules of a world, which change while the daemon runs: the tools each set allows unasked."""

from functools import cache
from pathlib import Path
from random import Random

from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.tools.policy.cedar import CedarPolicy

SETS = Path(__file__).parent / "policies"
_SHIPPED = frozenset(
    {"echo", "sleep", "list_dir", "memory_search", "memory_retain", "delegate"}
)  # the harmless ones among the tools here
# The tools that each set allows without a person, as in its file.
UNASKED: dict[str, frozenset[str]] = {
    "usual": _SHIPPED | {"peek", "mark", "again", "press"},
    "lenient": _SHIPPED | {"peek", "mark", "again", "press", "approve_mark"},
    "strict": _SHIPPED | {"peek", "again"},
}


@cache
def parsed(name: str) -> CedarPolicy:
    """That set, parsed once for all worlds."""
    policy = CedarPolicy(SETS / name)
    assert not policy.problems, policy.problems
    return policy


@cache
def unasked(version: str) -> frozenset[str]:
    """Return the tools that the rules of that version allow without a person."""
    return next(tools for name, tools in UNASKED.items() if parsed(name).version == version)


class Files:
    """The rule set in the user's folder."""

    def __init__(self) -> None:
        self.holds = "usual"

    def change(self, rng: Random) -> None:
        """Save another set."""
        self.holds = rng.choice([name for name in UNASKED if name != self.holds])


class Rules:
    """The rules of one life: those of the files at the last look."""

    problems: tuple[str, ...] = ()

    def __init__(self, files: Files) -> None:
        self._files = files
        self.refresh()

    @property
    def version(self) -> str:
        return self._force.version

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        return self._force.decide(request)

    def refresh(self) -> None:
        """Look at the files."""
        self._force = parsed(self._files.holds)
