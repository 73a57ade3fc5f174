"""Amounts of money in dollars, as a person writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.usage.dollars import to_dollars, to_micros
from tests.rows import every_row


@every_row(
    ("amount", "expected"),
    [
        (7, 7),
        ("$3", 3_000_000),
        ("$3.00", 3_000_000),
        ("$0.075", 75_000),
        ("$0.000001", 1),
        ("$999999999.999999", 999_999_999_999_999),
    ],
)
def test_amounts_are_read(amount: int | str, expected: int) -> None:
    """A whole number is micro-dollars; a text is dollars."""
    assert expected == to_micros(amount)


@every_row(
    "amount",
    [
        "3.00",
        "$",
        "$.5",
        "$3.",
        "$3,00",
        "$-1",
        "$ 3",
        "$3 ",
        "$3\n",
        "$0.0000001",
        "$1e3",
        "€3",
        "$٣",
    ],
)
def test_other_texts_are_refused(amount: str) -> None:
    """The error repeats the text and shows the form."""
    with pytest.raises(ValueError, match=r"expected dollars such as") as caught:
        to_micros(amount)
    assert repr(amount) in str(caught.value)


@given(st.integers(0, 10**15 - 1))
def test_amounts_survive_both_ways(micros: int) -> None:
    """Writing an amount and reading it gives the same amount, with two places or more."""
    text = to_dollars(micros)
    assert micros == to_micros(text)
    assert 2 <= len(text.partition(".")[2])
