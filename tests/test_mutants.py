"""Mutants: what is changed, how a sample is drawn, and that a fork runs the changed code."""

import ast
import signal
from collections import Counter
from pathlib import Path
from types import FunctionType

import pytest

from tests import mutant_runs
from tests.mutant_runs import Map, Mutant
from tests.mutants import FLOORS, KINDS, ROOT, find_mutants, plan, read_equivalent, sample

SOURCE = b'''
import trio
LIMIT = 3
def first(found: list[int], room: "Literal[7]") -> bool:
    """Docstrings stay: not 1 < 2."""
    if not found or room < len(found) - 1:
        return False  # \xc3\xa4
    with trio.CancelScope(shield=True):
        return bool(found[1:room])
    return f"{1 < 2}"
'''


def changes(kind: str, source: bytes = SOURCE) -> list[tuple[str, str]]:
    return [(each.before, each.after) for each in find_mutants("p.py", source, [kind])]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("slice", [("1", "(1) + 1"), ("1", "(1) - 1"), ("room", "room + 1"), ("room", "room - 1")]),
        ("return", [("return False", "pass"), ("return bool(found[1:room])", "pass")]),
        ("boolean", [("False", "True")]),
        ("comparison", [("<", "<=")]),
        ("connective", [
            ("not found or room < len(found) - 1", "not found and room < len(found) - 1")]),
        ("sum", [("-", "+")]),
        ("constant", [("3", "2"), ("3", "4"), ("1", "0"), ("1", "2"), ("1", "0"), ("1", "2")]),
        ("shield", [("True", "False")]),
        ("negation", [("not found", "(found)")]),
    ],
)  # fmt: skip
def test_each_kind_has_its_places(kind: str, expected: list[tuple[str, str]]) -> None:
    """Annotations, docstrings and what is inside of an f-string are no places."""
    assert expected == changes(kind)


def test_every_mutant_can_be_compiled_and_moves_no_line() -> None:
    """Otherwise each test would find it, and no test could be chosen by the lines after it."""
    path = "palyra/services/policy/previews.py"
    source = (ROOT / path).read_bytes()
    plain = ast.dump(ast.parse(source))
    for mutant in find_mutants(path, source):
        changed = mutant.apply(source)
        assert plain != ast.dump(ast.parse(changed)), mutant
        assert source.count(b"\n") == changed.count(b"\n"), mutant


def test_a_sample_is_even_and_repeatable() -> None:
    """As many of each floor and nearly of each kind; another seed draws others."""
    mutants = [
        Mutant(path=f"palyra/{floor}/m.py", line=number, lines=(1, 1), function="f", kind=kind,
               start=number, end=number, before=f"{number}", after="")
        for floor in FLOORS for kind in KINDS for number in range(9)
    ]  # fmt: skip
    drawn = sample(mutants, FLOORS, 50, seed=1)
    assert {10} == set(Counter(each.floor for each in drawn).values())
    assert len(KINDS) == len({each.kind for each in drawn[:9]})
    assert drawn == sample(mutants, FLOORS, 50, seed=1)
    assert drawn != sample(mutants, FLOORS, 50, seed=2)


def test_equivalent_mutants_exist() -> None:
    """Each names a place of the package as it is now, and a reason."""
    known = read_equivalent()
    found = {
        mutant.key
        for path in {path for path, *_ in known}
        for mutant in find_mutants(path, (ROOT / path).read_bytes())
    }
    assert {} == {key: reason for key, reason in known.items() if key not in found or not reason}


@pytest.mark.slow
def test_the_nearest_tests_come_first() -> None:
    """The file of the same name, its folder, then the files that import the module."""
    mirror = plan("palyra/services/tape/pins.py", "mirror", ())
    assert "tests/services/test_compaction.py" in mirror
    assert {"tests/services"} == {test.rpartition("/")[0] for test in mirror}
    assert (
        "tests/services/test_memory.py" == plan("palyra/services/memory/items.py", "mirror", ())[0]
    )
    others = plan("palyra/services/tape/pins.py", "importers", ())
    assert others
    assert not set(others) & set(mirror)


def test_tests_are_chosen_by_nearness_and_time(tmp_path: Path) -> None:
    """All of the mirroring folder; of the others the quick ones of every file, while time permits."""
    mutant = find_mutants("palyra/core/x.py", SOURCE, ["boolean"])[0]
    spent_s = {
        "tests/core/test_y.py::slow": mutant_runs.MOST_SPENT_S,
        "tests/core/test_x.py::own": 9.0,
        "tests/net/test_a.py::one": 1.0,
        "tests/net/test_a.py::two": 2.0,
        "tests/net/test_b.py::one": 3.0,
    }
    map_ = Map(tmp_path, "", spent_s=spent_s)
    own, near, *_ = mutant_runs._choose(mutant, spent_s, map_)
    assert ("tests/core/test_x.py::own", "tests/core/test_y.py::slow") == (own, near)
    others = [each for each in spent_s if "/net/" in each]
    assert [others[0], others[2], others[1]] == mutant_runs._choose(mutant, others, map_)


STEP = 1


def grow(number: int) -> int:
    if number < 0:
        return 0
    return number + len("1") * STEP


def test_functions_get_the_changed_code() -> None:
    """Whoever holds the function calls the changed one; code of an import is left to a new process."""
    path = Path(__file__).relative_to(Path.cwd()).as_posix()
    mutants = find_mutants(path, Path(__file__).read_bytes(), ["sum"])
    [mutant] = [each for each in mutants if each.function == "grow" and each.after == "-"]
    codes = mutant_runs._changes(mutant)
    assert codes is not None
    assert isinstance(grow, FunctionType)
    assert mutant_runs._fits(codes, [grow])
    plain = grow.__code__
    try:
        mutant_runs._patch(codes, [grow])
        assert (4, 0) == (grow(5), grow(-1))
    finally:
        grow.__code__ = plain
    assert 6 == grow(5)
    [constant, _] = [each for each in find_mutants(path, Path(__file__).read_bytes(), ["constant"])
                     if not each.function]  # fmt: skip
    assert mutant_runs._changes(constant) is None


def test_a_fork_tells_its_answer_and_its_death() -> None:
    """A fork that dies or hangs has failed, too."""
    assert "told" == mutant_runs._fork(lambda: "told", 60)
    assert not mutant_runs._fork(lambda: None, 60)
    assert "dies" == mutant_runs._fork(lambda: str(1 // 0), 60)
    assert "hangs" == mutant_runs._fork(signal.pause, 0.0)
