"""The choice of earlier runs that fit into a history."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.history import MAX_RUNS, NO_HISTORY, History, PastRun, select


def past(number: int, tokens: int, *, is_tainted: bool = False) -> PastRun:
    """An earlier run."""
    return PastRun(
        run_id=f"run_{number}", messages=(), tokens=tokens, is_tainted=is_tainted, epoch=0
    )


@given(st.lists(st.integers(0, 30)), st.integers(0, 100))
def test_the_newest_that_fit(sizes: list[int], budget: int) -> None:
    """A run is shown when it and all newer ones fit together; nothing older is looked at."""
    looked: list[int] = []

    def newest_first() -> Iterator[PastRun]:
        for number, tokens in enumerate(sizes):
            looked.append(number)
            yield past(number, tokens)

    history = select(newest_first(), budget)
    fitting = [n for n in range(len(sizes)) if sum(sizes[: n + 1]) <= budget]
    assert [f"run_{n}" for n in reversed(fitting)] == list(history.run_ids)
    assert history.is_cut == (len(fitting) < len(sizes))
    assert len(looked) == len(fitting) + history.is_cut


def test_there_is_an_end() -> None:
    """Runs without a word are counted too."""
    history = select((past(number, 0) for number in range(MAX_RUNS + 5)), 10)
    assert (MAX_RUNS, True) == (len(history.runs), history.is_cut)


def test_one_taints_all() -> None:
    """A finding in any of them counts."""
    clean, tainted = past(1, 1), past(2, 1, is_tainted=True)
    assert not NO_HISTORY.is_tainted
    assert not History(runs=(clean,)).is_tainted
    assert History(runs=(clean, tainted, clean)).is_tainted
