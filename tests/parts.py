"""Hide the packages of the optional parts from a process, as if they were not installed."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from palyra.config import parts

HIDDEN = frozenset(module for part in parts.PARTS for module in part.modules)


class Hiding:
    """Finder of modules that comes first and finds none of the hidden ones."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for a hidden module, as an import of a missing one does."""
        del path, target
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def hide_parts() -> None:
    """Hide them in this process for good: from imports, and from what was imported already."""
    for name in [each for each in sys.modules if each.partition(".")[0] in HIDDEN]:
        del sys.modules[name]
    sys.meta_path.insert(0, Hiding())
    parts._missing_modules.cache_clear()
