"""The step of hatchling that writes the package before it is packed."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from client_tree import (  # type: ignore[import-not-found]
    PACKAGE,
    write_tree,
)


class ClientTree(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the copied modules to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        self._folder = tempfile.TemporaryDirectory()
        build_data["force_include"][str(write_tree(Path(self._folder.name)))] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """See hatchling."""
        self._folder.cleanup()
