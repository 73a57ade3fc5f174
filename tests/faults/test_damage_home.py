"""One damage of a home a case: the daemon serves or names a way back; a sample of the campaign."""

import pytest

from tests.faults.damage_home import damage_homes

pytestmark = pytest.mark.real


@pytest.mark.parametrize(("cases", "seed"), [(6, 1), pytest.param(400, 2, marks=pytest.mark.slow)])
def test_any_damage_is_survived_or_ends_with_a_way_back(cases: int, seed: int) -> None:
    """Lists list, runs run or are refused, and nothing acknowledged is lost after a kill."""
    found = damage_homes(cases, seed)
    assert [] == [(each.seed, each.damage, each.faults) for each in found if each.faults]
    assert cases == len(found)
