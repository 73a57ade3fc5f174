"""Every package that is declared is imported; late imports count."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Extras that only developers install have no place in the package.
SHIPPED_EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - {"all", "test"})
# Installed by no test environment, so its names cannot be looked up.
MODULES_OF = {"keyring": {"keyring"}}


def canonical(name: str) -> str:
    """The name of a distribution as the index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    """The names in a list of requirements."""
    return {canonical(re.split(r"[ \[;<>=!~]", each, maxsplit=1)[0]) for each in requirements}


def imported_modules() -> set[str]:
    """Top-level modules that the package imports anywhere, late imports included."""
    found: set[str] = set()
    for path in (ROOT / "palyra").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"palyra"}


@cache
def imported_distributions() -> set[str]:
    """Distributions that hold an imported module."""
    holders = packages_distributions()
    modules = imported_modules()
    named = {name for name, known in MODULES_OF.items() if known & modules}
    return named | {canonical(each) for module in modules for each in holders.get(module, ())}


@pytest.mark.parametrize("extra", ["", *SHIPPED_EXTRAS])
def test_every_declared_package_is_imported(extra: str) -> None:
    """A dependency comes with the feature that needs it, and leaves with it."""
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    wanted = declared(extras[extra] if extra else PROJECT["dependencies"])
    assert set() == wanted - imported_distributions()


def test_an_unused_package_would_be_found() -> None:
    """The control: a distribution that nothing imports is not among the imported ones."""
    assert {"trio", "click"} <= imported_distributions()
    assert "pytest" not in imported_distributions()
    assert {"a-b", "c"} == declared(["a_B>=1; python_version < '4'", "c[d]<2"])
