"""Restart arithmetic against the sentences of OTP's supervisor documentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.supervision import (
    CHILD_INTENSITY,
    INTENSITY,
    PAUSE,
    PERIOD_S,
    Outcome,
    Restart,
    RestartWindow,
    Strategy,
    charge_restart,
    pause_s,
    plan_restart,
    wants_restart,
)
from palyra.errors import InvariantBroken
from tests.rows import every_row

INTENSITIES = st.integers(0, 4)
PERIODS_S = st.integers(1, 6).map(float)
GAPS_S = st.lists(st.integers(0, 4).map(float), max_size=30)


@every_row(
    ("restart", "outcome", "expected"),
    [
        ("permanent", "returned", True),
        ("permanent", "crashed", True),
        ("transient", "returned", False),
        ("transient", "crashed", True),
        ("temporary", "returned", False),
        ("temporary", "crashed", False),
    ],
)
def test_restart_depends_on_spec_and_outcome(
    restart: Restart,
    outcome: Outcome,
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """Permanent always comes back, transient after a crash only, temporary never."""
    assert expected == wants_restart(restart, outcome)


@every_row(
    ("strategy", "failed", "expected"),
    [
        ("one_for_one", 0, [0]),
        ("one_for_one", 2, [2]),
        ("rest_for_one", 0, [0, 1, 2]),
        ("rest_for_one", 1, [1, 2]),
        ("rest_for_one", 2, [2]),
    ],
)
def test_strategy_names_who_goes_down(strategy: Strategy, failed: int, expected: list[int]) -> None:
    """One for one restarts the fallen child, rest for one also those after it."""
    assert expected == list(plan_restart(strategy, failed, 3))


def test_intensity_allows_exactly_that_many() -> None:
    """Of n + 1 restarts at one instant the first n are allowed."""
    window: RestartWindow | None = RestartWindow(2, 5.0)
    allowed = []
    for _ in range(3):
        window = window and charge_restart(window, 10.0)
        allowed.append(window is not None)
    assert [True, True, False] == allowed


@every_row(("now_s", "expected"), [(14.9, None), (15.0, None), (15.1, (15.1,))])
def test_restart_counts_for_the_whole_period(
    now_s: float, expected: tuple[float, ...] | None
) -> None:
    """A restart exactly one period old still counts; an older one is forgotten."""
    window = charge_restart(RestartWindow(1, 5.0), 10.0)
    assert window is not None
    after = charge_restart(window, now_s)
    assert expected == (after and after.restarts_s)


@given(intensity=INTENSITIES, period_s=PERIODS_S, gaps_s=GAPS_S)
def test_window_agrees_with_counting_by_hand(
    intensity: int, period_s: float, gaps_s: list[float]
) -> None:
    """A restart is allowed if, with it, at most `intensity` lie within the last period."""
    window, now_s, history = RestartWindow(intensity, period_s), 0.0, list[float]()
    for gap_s in gaps_s:
        now_s += gap_s
        history.append(now_s)
        is_allowed = sum(now_s - at_s <= period_s for at_s in history) <= intensity
        after = charge_restart(window, now_s)
        assert is_allowed == (after is not None)
        if after is None:
            break
        window = after


@given(st.integers(1, 40), st.floats(0, 1, exclude_max=True))
def test_pauses_double_and_are_bounded(restarts: int, chance: float) -> None:
    """None before the first restart, then at least half of a ceiling that doubles up to its cap."""
    ceiling_s = min(PAUSE.cap_s, PAUSE.base_s * 2 ** (restarts - 2))
    pause = pause_s(restarts, lambda: chance)
    if restarts == 1:
        assert not pause
    else:
        assert ceiling_s / 2 <= pause <= ceiling_s


def test_no_supervisor_spends_its_intensity_in_a_moment() -> None:
    """Not in less than the pauses that its restarts bring with them."""
    for intensity, least_s in ((INTENSITY, 3.8), (CHILD_INTENSITY, 0.3)):
        spent_s, window = 0.0, RestartWindow(intensity, PERIOD_S)
        for _ in range(intensity):
            charged = charge_restart(window, spent_s)
            assert charged is not None
            window, spent_s = charged, spent_s + pause_s(len(charged.restarts_s), lambda: 0.0)
        assert least_s < spent_s < PERIOD_S


@every_row(("intensity", "period_s"), [(-1, 5.0), (1, 0.0), (1, -1.0)])
def test_window_refuses_limits_without_a_meaning(intensity: int, period_s: float) -> None:
    """A negative intensity or an empty period is a bug, named in the error."""
    with pytest.raises(InvariantBroken, match=f"intensity {intensity}, period_s {period_s}"):
        RestartWindow(intensity, period_s)
