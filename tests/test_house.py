"""The figures that `bench/house.py` and `bench/journeys.py` give about the package."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
FIRST = '''"""What it is about.

Nobody knows."""

from typing import TYPE_CHECKING

import pack.second  # told once

if TYPE_CHECKING:
    from pack.third import Shared as Other


class Shared:
    """A name two modules use."""

    def _twice(self) -> None: ...

    def run(self) -> None:
        # stands alone
        self._twice()
        self._twice()
        _once()


def _once() -> None: ...
'''
SECOND = "from pack import third\n"
THIRD = "from pack.second import third\n\n\nclass Shared: ...\n\n\nclass _Private: ...\n"


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("house")


def test_figures_of_a_small_package(house: ModuleType, tmp_path: Path) -> None:
    """Each figure counts what its name says."""
    package = tmp_path / "pack"
    package.mkdir()
    for name, text in [("first", FIRST), ("second", SECOND), ("third", THIRD)]:
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    figures, behind = house.measure(house.read_package(package))
    expected = {
        "files": 3,
        "code_lines": 11 + 1 + 3,
        "docstring_lines": 4,
        "comment_lines": 2,
        "class_names_shared": 1,
        "private_functions": 2,
        "private_functions_used_once": 1,
        "private_functions_used_once_percent": 50.0,
        "import_circles": 1,
        "import_circles_with_types": 1,
        "type_checking_imports": 1,
        "docstrings_opening_with_a_question_word": 1,
        "avoided_words": 3,
    }
    assert expected == figures
    assert ["Shared: pack.first, pack.third"] == behind["class_names_shared"]
    assert ["pack.first: _once"] == behind["private_functions_used_once"]


def test_excess_names_the_figures_over_their_limit(
    house: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """One circle is over the limit of none; shared names up to the limit are not printed."""
    behind = {key: ["one"] for key in house.LIMITS} | {"import_circles": ["a <- b <- a"]}
    behind |= {"avoided_words": [], "import_circles_with_types": []}
    assert 1 == house.print_excess(behind)
    assert "import circles: 1, and 0 are allowed\n    a <- b <- a\n" == capsys.readouterr().out


def test_journeys_begin_and_end_in_functions_that_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each mark of a journey, and each file left out of all, is found in the package."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    journeys = importlib.import_module("journeys")
    marks = [mark for journey in journeys.JOURNEYS for mark in (journey.begin, journey.end) if mark]
    missing = [
        f"{file}: {name}"
        for file, name in marks
        if f"def {name.rpartition('.')[2]}(" not in (ROOT / "palyra" / file).read_text("utf-8")
    ]
    left_out = [*journeys.KERNEL, *journeys.TOOL]
    assert [] == missing + [file for file in left_out if not (ROOT / "palyra" / file).is_file()]
