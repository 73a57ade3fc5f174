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

HERE = """class Task(Struct):
    id: str
    state: str
    kind: str
    at_ms: int
    secret: str


class Other(Struct):
    id: str
    state: str
    kind: str


class Door(Protocol):
    def open(self, key): ...


class Wall(Protocol):
    def stand(self): ...


def show(): ...
"""
THERE = """class TaskView(Struct):
    id: str
    state: str
    kind: str
    at_ms: int
    title: str
    label: str


class Brick:
    def stand(self): ...


class Stone:
    def stand(self): ...


def show(task):
    'Return the view.'
    pair = Pair(id=task.id, state=task.state, kind=other.kind)
    return TaskView(id=task.id, state=task.state, kind=task.kind, at_ms=task.at_ms, title=pair)


class Gate:
    async def open(self, key):
        'Open it.'
        return await self._lock.open(key)

    def close(self, key):
        return self._lock.close(key, force=True)
"""


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
        "lines": 25 + 1 + 7,
        "code_lines": 11 + 1 + 3,
        "docstring_lines": 4,
        "comment_lines": 2,
        "comment_lines_alone": 1,
        "struct_pairs": 0,
        "field_copies": 0,
        "protocols": 0,
        "protocols_of_one_class": 0,
        "forwards": 0,
        "function_names_shared": 0,
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


def test_one_fact_said_twice_is_weight(house: ModuleType, tmp_path: Path) -> None:
    """Like structs, copied fields, protocols of one class, forwards, shared functions and rooms are counted."""
    room = tmp_path / "pack" / "floor" / "room"
    room.mkdir(parents=True)
    for name, text in [("here", HERE), ("there", THERE)]:
        (room / f"{name}.py").write_text(text, encoding="utf-8")
    (room.parent / "alone.py").write_text("x = 1\n", encoding="utf-8")
    modules = house.read_package(tmp_path / "pack")
    _, behind = house.measure(modules)
    here, there = "pack.floor.room.here", "pack.floor.room.there"
    assert [f"{here}.Task ~ {there}.TaskView: 4 of 5"] == behind["struct_pairs"]
    assert [f"{there}:21: TaskView from task: 4"] == behind["field_copies"]
    assert [f"{here}.Door", f"{here}.Wall"] == behind["protocols"]
    assert [f"{here}.Door"] == behind["protocols_of_one_class"]
    assert [f"{there}:25: open"] == behind["forwards"]
    assert [f"show: {here}, {there}"] == behind["function_names_shared"]
    lines = HERE.count("\n") + THERE.count("\n")
    assert {"floor": lines + 1, "floor/room": lines} == house.count_rooms(modules)


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
