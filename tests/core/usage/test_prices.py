"""Prices: which entry counts, by date, and what tokens cost."""

from datetime import date
from itertools import starmap

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.records import Usage
from palyra.core.usage.prices import DAY_MS, Price, Prices, cost
from tests.rows import every_row

DAY = 20_000  # since 1970: 2024-10-04
SINCE = date(2024, 10, 4)


def price(model: str, amount: int = 1, since: date = date(1970, 1, 1)) -> Price:
    return Price(model=model, input=amount, output=amount, since=since)


@every_row(
    ("model", "expected"),
    [
        ("p/gpt-5", 4),
        ("p/gpt-5-mini", 3),
        ("p/gpt-4", 2),
        ("p/other", 1),
        ("q/other", None),
        ("p", None),
        ("scripted", 0),
        ("scripted-2", None),
    ],
)
def test_the_most_exact_pattern_counts(model: str, expected: int | None) -> None:
    """A whole name before a beginning, a longer beginning before a shorter one."""
    table = Prices([price("p/*"), price("p/gpt-*", 2), price("p/gpt-5*", 3), price("p/gpt-5", 4)])
    found = table.find(model, 0)
    assert expected == (None if found is None else found.input)


@every_row(
    ("at_ms", "expected"),
    [(DAY * DAY_MS - 1, 1), (DAY * DAY_MS, 2), ((DAY + 1) * DAY_MS, 3)],
)
def test_prices_by_date(at_ms: int, expected: int) -> None:
    """A price holds from midnight UTC of its day, whatever the order of the table."""
    table = Prices([price("p/m", 3, date(2024, 10, 5)), price("p/m"), price("p/m", 2, SINCE)])
    found = table.find("p/m", at_ms)
    assert found is not None
    assert expected == found.input


def test_an_exact_price_of_the_future_does_not_hide_the_family() -> None:
    """Until it holds, the less exact one counts; before any holds there is no price."""
    table = Prices([price("p/m", 9, SINCE), price("p/*", 1, date(2024, 10, 1))])
    before, long_before = table.find("p/m", DAY * DAY_MS - 1), table.find("p/m", 0)
    assert before is not None
    assert (1, None) == (before.input, long_before)


def test_the_configuration_may_price_the_embedded_model() -> None:
    """An entry of its name stands before the one that is built in."""
    found = Prices([price("scripted", 7)]).find("scripted", 0)
    assert found is not None
    assert 7 == found.input


@every_row(
    ("usage", "expected"),
    [
        (Usage(), 0),
        (Usage(input_tokens=1), 3),  # 2.5, rounded up
        (Usage(input_tokens=1_000_000), 2_500_000),
        (Usage(input_tokens=1_000_000, cached_tokens=400_000), 1_600_000),
        (Usage(output_tokens=200_000), 2_000_000),
        (Usage(input_tokens=10, cached_tokens=99), 3),  # no more can be cached than was sent
        (Usage(input_tokens=1_000_000, cache_write_tokens=200_000), 2_600_000),
        (Usage(input_tokens=10, cached_tokens=6, cache_write_tokens=9), 14),  # 6 read, 4 written
    ],
)
def test_what_tokens_cost(usage: Usage, expected: int) -> None:
    """Input, cached input, input into the cache and output each at their own price."""
    found = Price(
        model="p/m",
        input=2_500_000,
        cached_input=250_000,
        cache_write=3_000_000,
        output=10_000_000,
    )
    assert expected == cost(found, usage)


def test_cached_input_without_a_price_of_its_own_costs_what_input_costs() -> None:
    """Not nothing."""
    assert 2 == cost(price("p/m", 1_000_000), Usage(input_tokens=2, cached_tokens=2))


@every_row(("cache_write", "expected"), [(None, 7), (1_000_000, 7), (4_000_000, 13)])
def test_the_most_a_call_costs(cache_write: int | None, expected: int) -> None:
    """All of its input may go into the cache, or none of it."""
    entry = Price(model="p/m", input=2_000_000, cache_write=cache_write, output=1_000_000)
    table = Prices([entry])
    usage = Usage(input_tokens=3, output_tokens=1)
    assert (expected, None) == (table.most("p/m", usage, 0), table.most("q/m", usage, 0))


def test_no_price_is_not_zero() -> None:
    """Tokens of a model without a price have no known cost; no tokens cost nothing."""
    table = Prices()
    assert (None, None, 0) == (
        table.cost("p/m", Usage(input_tokens=1), 0),
        table.cost("p/m", Usage(output_tokens=1), 0),
        table.cost("p/m", Usage(), 0),
    )


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**8), st.integers(0, 10**8))
def test_cost_is_exact_rounded_up(tokens: int, answered: int, paid: int, earned: int) -> None:
    """Never below the exact amount, and less than one micro-dollar above it."""
    found = cost(
        Price(model="p/m", input=paid, output=earned),
        Usage(input_tokens=tokens, output_tokens=answered),
    )
    exact = tokens * paid + answered * earned
    assert 0 <= found * 1_000_000 - exact < 1_000_000


@every_row(("tokens", "expected"), [(0, 1), (200, 1), (201, 2), (401, 3)])
def test_a_long_prompt_has_a_price_of_its_own(tokens: int, expected: int) -> None:
    """The entry with the highest bound that the prompt exceeds applies, whatever its day."""
    later = Price(model="p/m", input=1, output=1, since=SINCE)
    table = Prices([
        price("p/m", 9),
        Price(model="p/m", input=3, output=3, above=400),
        Price(model="p/m", input=2, output=2, above=200),
        later,
    ])  # fmt: skip
    found = table.find("p/m", DAY * DAY_MS, tokens)
    assert found is not None
    assert expected == found.input
    dear = Prices([price("q/m", 10**6), Price(model="q/m", input=0, output=3 * 10**6, above=2)])
    usage = [Usage(input_tokens=count, output_tokens=1) for count in (2, 3)]
    assert [(3, 3), (3, 3)] == [
        (dear.cost("q/m", each, 0), dear.most("q/m", each, 0)) for each in usage
    ]


def test_configured_prices_hide_published_ones() -> None:
    """Even a family's entry hides the published price of one model, once its day has come."""
    table = Prices([price("p/*", 7, SINCE)], [price("p/m", 1), price("q/m", 2)])
    at_ms = DAY * DAY_MS
    found = list(starmap(table.find, (("p/m", at_ms), ("p/m", at_ms - 1), ("q/m", at_ms), ("q/n", at_ms))))  # fmt: skip
    assert [7, 1, 2, None] == [None if each is None else each.input for each in found]
