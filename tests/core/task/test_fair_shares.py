"""Fair shares: who is next in a queue of several principals."""

from collections import Counter
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.task.fair_shares import pick_fairly

QUEUES = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.integers(0, 99)), max_size=6)


def pick(queues: dict[str, list[int]], held: dict[str, int], limit: int) -> list[tuple[str, int]]:
    entries = {
        name: iter([(name, rank) for rank in sorted(ranks)]) for name, ranks in queues.items()
    }
    return pick_fairly(entries, held, itemgetter(1), limit)


def test_a_flood_delays_a_neighbour_by_nothing() -> None:
    """The only entry of another principal is among the first two, however late it came."""
    assert [("a", 0), ("b", 9_999), ("a", 1)] == pick({"a": [*range(2_000)], "b": [9_999]}, {}, 3)
    assert [("b", 9_999), ("a", 0)] == pick({"a": [*range(2_000)], "b": [9_999]}, {"a": 1}, 2)


@given(QUEUES, st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5)), st.integers(0, 40))
def test_shares_are_equal_as_far_as_there_is_work(
    queues: dict[str, list[int]], held: dict[str, int], limit: int
) -> None:
    """Nothing is left free, each principal's order holds, and nobody is ahead while another waits."""
    picked = pick(queues, held, limit)
    assert min(limit, sum(map(len, queues.values()))) == len(picked)
    taken = Counter(name for name, _ in picked)
    for name, ranks in queues.items():
        own = [rank for each, rank in picked if each == name]
        assert sorted(ranks)[: taken[name]] == own
        if taken[name] < len(ranks):  # it still waits
            for other in taken:
                assert held.get(other, 0) + taken[other] <= 1 + max(
                    held.get(name, 0) + taken[name], held.get(other, 0)
                )
