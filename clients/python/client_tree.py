"""The package `palyra_client`: the modules of `palyra` that a client needs, under a name of their own.

A copy under another name can be installed beside the daemon, and removed again, without either
touching the files of the other.  Nothing is maintained twice: the modules are found by following
the imports of the clients, and copied when the distribution is built.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "palyra_client"
BEGIN = ("palyra", "palyra.client.aio", "palyra.client.blocking", "palyra.client.dial")
TYPES = ("palyra/__init__.pyi", "palyra/client/__init__.pyi", "palyra/py.typed")
# The package in an import or as the beginning of a dotted name; not a file such as palyra.toml.
_NAME = re.compile(
    r"(?m)^(\s*(?:from|import) )palyra\b"
    r"|\bpalyra(?=\.(?:aio|blocking|client|config|connect|core|errors|net)\b)"
)


def find_modules() -> list[Path]:
    """Return the files of the modules that the clients import, directly or not, from the root on."""
    left = list(BEGIN)
    found: dict[str, Path] = {}
    while left:
        name = left.pop()
        path = _path_of(name)
        if name in found or path is None:
            continue
        found[name] = path
        left.append(name.rpartition(".")[0])
        left.extend(_imported(ast.parse((ROOT / path).read_text("utf-8"))))
    return sorted(found.values())


def write_tree(folder: Path) -> Path:
    """Write the package into the folder, with its types and the licence; return its directory."""
    for path in (*find_modules(), *map(Path, TYPES)):
        target = folder / PACKAGE / path.relative_to("palyra")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rename((ROOT / path).read_text("utf-8")), "utf-8")
    shutil.copyfile(ROOT / "LICENSE", folder / PACKAGE / "LICENSE")
    return folder / PACKAGE


def rename(text: str) -> str:
    """Return the text of a module with the package under its new name."""
    return _NAME.sub(lambda match: f"{match[1] or ''}{PACKAGE}", text)


def _path_of(name: str) -> Path | None:
    """Return the file of a module of the daemon's package; None for any other name."""
    if name.partition(".")[0] != "palyra":
        return None
    place = Path(*name.split("."))
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in files if (ROOT / path).is_file()), None)


def _imported(module: ast.Module) -> Iterator[str]:
    """Yield the names that are imported; some may be names in a module, and no modules."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
