"""Hide the packages of the optional parts from a process, as if they were not installed."""

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType

from palyra.config import parts

HIDDEN = frozenset(module for part in parts.PARTS for module in part.modules)
DISTRIBUTIONS = HIDDEN | {"faiss-cpu"}


class Hiding:
    """Finder of modules and distributions that takes the place of the usual one."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for a hidden module, as an import of a missing one does."""
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return PathFinder.find_spec(name, path, target)

    @staticmethod
    def find_distributions(context: DistributionFinder.Context) -> Iterable[Distribution]:
        """Find nothing under the name of a hidden distribution."""
        if context.name in DISTRIBUTIONS:
            return ()
        return PathFinder.find_distributions(context)

    @staticmethod
    def invalidate_caches() -> None:
        """See `PathFinder`."""
        PathFinder.invalidate_caches()


def hide_parts() -> None:
    """Hide them in this process for good: from imports, and from what was imported already."""
    for name in [each for each in sys.modules if each.partition(".")[0] in HIDDEN]:
        del sys.modules[name]
    sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
    parts._missing_modules.cache_clear()
