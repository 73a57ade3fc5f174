"""A short run of `power_cuts` on every change, a long one on demand, and its negative control."""

import pytest

from tests.faults.power_cuts import tell_many

pytestmark = [pytest.mark.real]


def test_nothing_acknowledged_is_lost_in_a_power_cut() -> None:
    """Whenever the power goes, tapes and records are what was acknowledged, or one batch more."""
    counts = tell_many(range(80), "full")
    assert (80, 0) == (counts["stories"], counts["lost"])
    assert all(counts[f"cut during {kind}"] for kind in ("write", "sync", "truncate", "delete"))
    assert all(counts[f"cut in {kind}"] for kind in ("open", "commit", "seal", "reopen"))
    assert counts["cut again"]


def test_without_full_syncs_losses_show() -> None:
    """The negative control: the same stories lose acknowledged events when syncs are saved."""
    assert tell_many(range(30), "normal")["lost"] > 5


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_thousands_of_power_cuts() -> None:
    """The same promise, ten times as long."""
    assert 0 == tell_many(range(1_000, 4_000), "full")["lost"]
