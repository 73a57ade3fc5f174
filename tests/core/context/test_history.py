"""The choice of earlier runs that fit into a history."""

from collections.abc import Iterator

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.history import MAX_RUNS, NO_HISTORY, History, PastRun, select, view_of
from palyra.core.model.messages import UserMessage, message_tokens
from palyra.core.run.state import transcript_with_results
from tests.core.run.run_world import World


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


def test_a_view_takes_the_newest_runs_that_fit_with_its_own() -> None:
    """The budget of a fork counts the run's own messages first; nothing behind a gap is shown."""
    run = World().run
    own = sum(map(message_tokens, transcript_with_results(run)))
    said = [
        msgspec.structs.replace(past(number, tokens), messages=(UserMessage(f"run {number}"),))
        for number, tokens in ((1, 1), (2, 5), (3, 5))
    ]
    history = History(runs=tuple(said))

    def shown(budget: int) -> list[str]:
        messages = view_of(run, history, budget).messages
        return [each.text for each in messages if isinstance(each, UserMessage)][:-1]

    assert ["run 1", "run 2", "run 3"] == shown(own + 11)
    assert ["run 2", "run 3"] == shown(own + 10)
    assert ["run 3"] == shown(own + 9)
    assert [] == shown(own + 4)
