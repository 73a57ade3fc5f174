"""The rules of a world, which change while the daemon runs: what each set lets through unasked."""

from functools import cache
from pathlib import Path
from random import Random

from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.tools.policy.cedar import CedarPolicy

SETS = Path(__file__).parent / "policies"
_SHIPPED = frozenset({"echo", "sleep", "list_dir"})  # the harmless ones among the tools here
# What each set lets through without a person, as its file says it.
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
    """What the rules of that version let through without a person."""
    return next(tools for name, tools in UNASKED.items() if parsed(name).version == version)


class Files:
    """Which set the user's folder holds now."""

    def __init__(self) -> None:
        self.holds = "usual"

    def change(self, rng: Random) -> None:
        """Somebody saves another set."""
        self.holds = rng.choice([name for name in UNASKED if name != self.holds])


class Rules:
    """The rules of one life: those of the files when they were looked at last."""

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
