"""Optional parts: what is missing is named with its remedy, and nothing else needs them."""

import subprocess
import sys
from pathlib import Path

import pytest

from palyra.config.parts import PARTS, find_missing, list_absent, list_installed
from tests.test_dependencies import PROJECT, declared

ROOT = Path(__file__).parents[2]
# Imported where the part is there: by a search of vectors, by an encoder, by a worker of its own.
OF_PARTS = {
    "palyra.models.minilm.encoder",
    "palyra.models.minilm.sentences",
    "palyra.store.vectors.flat",
    "palyra.store.vectors.index",
    "palyra.store.vectors.rows",
    "palyra.store.vectors.search",
    "palyra.store.vectors.snapshot",
    "palyra.store.vectors.words",
    "palyra.tools.wasm.engine",
    "palyra.tools.wasm.guest",
    "palyra.tools.wasm.wasi",
    "palyra.tools.wasm.worker",
}
_IMPORT_ALL = """
import importlib, sys
from tests.parts import hide_parts
if "--hide" in sys.argv:
    hide_parts()
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name)
"""


def modules_that_fail(*arguments: str) -> set[str]:
    """Modules of the package that an interpreter of its own cannot import."""
    paths = (ROOT / "palyra").rglob("*.py")
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL, *arguments],
        input="\n".join(each for each in names if not each.endswith(("__main__", "__init__"))),
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.real
def test_no_other_module_needs_a_part() -> None:
    """Without the packages of all parts the rest of the package is imported."""
    assert modules_that_fail("--hide") == OF_PARTS


@pytest.mark.real
@pytest.mark.slow
def test_with_the_parts_every_module_is_imported() -> None:
    """The control: it is the hiding that keeps the modules from being imported."""
    assert set() == modules_that_fail()


def test_each_part_is_an_extra_of_the_package() -> None:
    """The command in the message installs what is missing, and `all` has every extra but test."""
    extras = PROJECT["optional-dependencies"]
    assert {part.extra for part in PARTS} <= set(extras)
    every = ",".join(sorted(set(extras) - {"all", "test"}))
    assert [f"palyra[{every}]"] == extras["all"]
    assert not declared(extras["vectors"] + extras["wasm"]) & declared(PROJECT["dependencies"])


def test_nothing_is_missing_where_everything_is_installed() -> None:
    """`make test` installs all parts."""
    assert ("vectors", "wasm") == list_installed()
    assert ((), "") == (list_absent(), find_missing("vectors"))
