"""Batches: in order, never too many, never on each other's toes."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.run.decide import MAX_PARALLEL, Slot, next_batch
from palyra.core.tool.spec import PARALLEL
from tests.rows import every_row

READ, SCOPED, NETWORK, EFFECT = "read_only_safe", "path_scoped", "idempotent_network", "effect"
SLOTS = st.lists(
    st.tuples(
        st.sampled_from([READ, SCOPED, NETWORK, EFFECT, "unknown"]),
        st.sampled_from([None, "", "a", "a/b", "ab", "c"]),
    ),
    max_size=12,
)


def plan_batches(calls: list[Slot]) -> list[range]:
    """All batches of a turn, as ranges of positions."""
    batches: list[range] = []
    start = 0
    while start < len(calls):
        size = next_batch(calls[start:])
        batches.append(range(start, start + size))
        start += size
    return batches


@every_row(
    ("waiting", "expected"),
    [
        ([], 0),
        ([(EFFECT, None)], 1),
        ([(EFFECT, None), (READ, None)], 1),
        ([(READ, None), (EFFECT, None)], 1),
        ([(READ, None), ("unknown", None)], 1),
        ([(READ, None)] * 3, 3),
        ([(READ, None)] * 6, 4),
        ([(READ, "a"), (READ, "a")], 2),
        ([(SCOPED, "a"), (SCOPED, "b"), (NETWORK, None)], 3),
        ([(SCOPED, "a"), (SCOPED, "a")], 1),
        ([(SCOPED, "a"), (READ, "a")], 1),
        ([(READ, "a"), (SCOPED, "a")], 1),
        ([(SCOPED, "a"), (READ, "a/b")], 1),
        ([(READ, ""), (SCOPED, "a")], 1),
        ([(SCOPED, "a"), (READ, "ab")], 2),
        ([(SCOPED, "a"), (READ, None)], 2),
        ([(READ, None), (SCOPED, "b"), (READ, "c"), (SCOPED, "b")], 3),
    ],
)
def test_first_batch(waiting: list[Slot], expected: int) -> None:
    """The longest undisturbed front runs together."""
    assert expected == next_batch(waiting)


def test_the_limit_is_configurable() -> None:
    """With a limit of two, two run together."""
    assert next_batch([(READ, None)] * 3, 2) == 2


@settings(derandomize=True, max_examples=300)
@given(SLOTS)
def test_batches_keep_the_order_and_the_rules(calls: list[Slot]) -> None:
    """All calls run once, in order; together run only safe classes, and never on one path."""
    batches = plan_batches(calls)
    assert list(range(len(calls))) == [place for batch in batches for place in batch]
    for batch in batches:
        together = [calls[place] for place in batch]
        assert len(together) <= MAX_PARALLEL
        assert len(together) == 1 or {slot[0] for slot in together} <= PARALLEL
        scoped = [key for kind, key in together if kind == SCOPED and key is not None]
        assert len(scoped) == len(set(scoped))


@settings(derandomize=True, max_examples=300)
@given(SLOTS)
def test_batches_are_greedy(calls: list[Slot]) -> None:
    """No batch could have taken the call that begins the next one."""
    batches = plan_batches(calls)
    for batch, after in pairwise(batches):
        front = [calls[place] for place in [*batch, after[0]]]
        assert len(batch) == next_batch(front, len(front)) or len(batch) == MAX_PARALLEL
