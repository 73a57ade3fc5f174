"""Differences of sequences: correct for every input, smallest for ordinary ones, bounded for all."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.text.diff import Same, find_same

SMALL = st.lists(st.sampled_from("abcd"), max_size=12)


def check(old: Sequence[str], new: Sequence[str], same: Sequence[Same]) -> None:
    """The runs are equal on both sides, in order, and do not overlap."""
    at_old = at_new = 0
    for run in same:
        assert run.length > 0
        assert run.old >= at_old
        assert run.new >= at_new
        at_old, at_new = run.old + run.length, run.new + run.length
        assert old[run.old : at_old] == new[run.new : at_new]
    assert at_old <= len(old)
    assert at_new <= len(new)


@given(SMALL, SMALL, st.integers(0, 200))
def test_runs_are_common_to_both_sides(old: list[str], new: list[str], steps: int) -> None:
    """Whatever the budget, each run is on both sides, in order."""
    check(old, new, find_same(old, new, steps))


@given(SMALL)
def test_equal_sides_have_one_run(items: list[str]) -> None:
    """Equal sequences differ in nothing, without any budget."""
    assert ([Same(0, 0, len(items))] if items else []) == find_same(items, items, 0)


@given(st.lists(st.sampled_from("ab"), max_size=8), st.lists(st.sampled_from("ab"), max_size=8))
def test_a_gap_without_anchors_is_smallest(old: list[str], new: list[str]) -> None:
    """Where no item is unique, the result is a longest common subsequence."""
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for x, left in enumerate(old):
        for y, right in enumerate(new):
            lengths[x + 1][y + 1] = (
                lengths[x][y] + 1 if left == right else max(lengths[x][y + 1], lengths[x + 1][y])
            )
    doubled_old, doubled_new = old + old, new + new  # nothing occurs once
    found = find_same(old, new)
    check(old, new, found)
    check(doubled_old, doubled_new, find_same(doubled_old, doubled_new))
    unique = {each for each in "ab" if old.count(each) == 1 == new.count(each)}
    if not unique:
        assert lengths[-1][-1] == sum(run.length for run in found)


def test_unique_lines_anchor_the_rest() -> None:
    """A moved line is one removal and one addition, and the lines between stay."""
    assert [Same(1, 0, 3)] == find_same(list("xabc"), list("abcx"))


@pytest.mark.parametrize(
    ("old", "new"),
    [(["x"] * 4_000, ["x", "y"] * 2_000), (["a", "b"] * 2_000, ["b", "a", "a"] * 1_500)],
)
def test_hostile_inputs_cost_no_more_than_the_budget(old: list[str], new: list[str]) -> None:
    """A gap over the budget counts as replaced, so the result has fewer runs and is correct."""
    check(old, new, find_same(old, new, 1_000))
    assert [] == find_same(["a", *old[1:], "c"], ["b", *new[1:], "d"], 10)
