"""`import palyra` offers the names of its client, and imports them when they are used."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import palyra
from palyra import client, errors
from palyra.client import aio, blocking
from tests.rows import every_row

HEAVY = ("trio", "asyncio", "msgspec", "palyra.client")


def test_the_names_of_the_client_are_offered() -> None:
    """Each name of `palyra.client` is the same object here; modules and the base of errors too."""
    assert {name: getattr(client, name) for name in client.__all__}.items() <= {
        name: getattr(palyra, name) for name in palyra.__all__
    }.items()
    assert (aio, blocking, errors) == (palyra.aio, palyra.blocking, palyra.errors)
    assert errors.PalyraError is palyra.PalyraError
    assert {*client.__all__, "aio", "blocking", "errors", "PalyraError"} == {*palyra.__all__}


@every_row("package", [palyra, client])
def test_the_stub_offers_the_same_names(package: ModuleType) -> None:
    """A type checker reads `__init__.pyi` in place of the module."""
    tree = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text("utf-8"))
    imported = {
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {*package.__all__} == imported


def test_names_are_listed_before_they_are_used() -> None:
    """`dir` has every public name, for completion in a shell."""
    assert {*palyra.__all__} <= {*dir(palyra)}


def test_another_name_is_an_ordinary_error() -> None:
    """The message is that of Python."""
    with pytest.raises(AttributeError, match="module 'palyra' has no attribute 'nothing'"):
        palyra.nothing  # type: ignore[attr-defined]  # noqa: B018 - the subject


@pytest.mark.real
def test_the_package_alone_imports_nothing_heavy() -> None:
    """`import palyra` is what every start of the command line pays."""
    heavy = f"[name for name in {HEAVY} if name in sys.modules]"
    program = f"import sys, palyra; print({heavy}); palyra.connect; print({heavy})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    before, after = done.stdout.splitlines()
    assert ("[]", True) == (before, "palyra.client" in after)
