"""Trust: the label of what is put together is the lowest of its parts, whatever the order."""

from itertools import permutations
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.trust.labels import Trust, is_from_outside, lowest
from tests.rows import every_row

LABELS: list[Trust] = list(get_args(Trust))


@every_row(
    ("labels", "expected"),
    [
        ([], "trusted_local"),
        (["external_untrusted", "external_untrusted"], "external_untrusted"),
        (["workspace", "trusted_local"], "workspace"),
        (["workspace", "external_untrusted"], "mixed"),
        (["trusted_local", "external_untrusted"], "mixed"),
        (["mixed", "external_untrusted"], "mixed"),
        (["mixed", "trusted_local"], "mixed"),
    ],
)
def test_lowest_label_wins(labels: list[Trust], expected: Trust) -> None:
    """One part from outside makes the whole no better than that, in any order."""
    assert {expected} == {lowest(order) for order in permutations(labels)}


@given(st.lists(st.sampled_from(LABELS)), st.lists(st.sampled_from(LABELS), min_size=1))
def test_nothing_raises_trust(first: list[Trust], second: list[Trust]) -> None:
    """What was put together in steps has the trust of what was put together at once."""
    together = lowest([*first, *second])
    in_steps = lowest([*([lowest(first)] if first else []), lowest(second)])
    assert is_from_outside(together) == is_from_outside(in_steps)
    assert is_from_outside(together) == any(map(is_from_outside, [*first, *second]))
    assert lowest([together, together]) == together


def test_what_comes_from_outside() -> None:
    """A mixture counts like its worst part."""
    assert ["mixed", "external_untrusted"] == [one for one in LABELS if is_from_outside(one)]
