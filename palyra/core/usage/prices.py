"""Prices of model tokens: a dated table, looked up by model and time.

An entry is valid from midnight UTC of its date until a later entry with the same pattern.  The most
specific pattern applies: a whole name before `provider/family-*`, a longer prefix before a shorter
one.  Amounts are integer micro-dollars, rounded up.  A model without an entry has an unknown price,
which is not the same as a price of zero.
"""

from collections.abc import Iterable
from datetime import date

import msgspec

from palyra.core.journal.records import Usage

DAY_MS = 86_400_000
MILLION = 1_000_000
_EPOCH = date(1970, 1, 1)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Price per million tokens, in micro-dollars, of the models that match the pattern."""

    model: str  # a whole name, or a prefix and *
    since: date = _EPOCH
    input: int
    output: int
    cached_input: int | None = None  # None: same as `input`
    cache_write: int | None = None  # None: same as `input`

    @property
    def since_ms(self) -> int:
        """Start of validity, in Unix milliseconds."""
        return (self.since - _EPOCH).days * DAY_MS

    def covers(self, model: str) -> bool:
        """True if the pattern matches the model."""
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return model == self.model


FREE = tuple(  # the embedded models call no provider
    Price(model=name, input=0, output=0) for name in ("scripted", "palyra:procedure")
)


class Prices:
    """The current price table."""

    def __init__(self, entries: Iterable[Price] = ()) -> None:
        """Add entries to the embedded model's; of two equal keys the later entry applies."""
        listed = enumerate((*FREE, *entries))
        # The most specific first, then the newest.
        self._entries = [
            price for _, price in sorted(listed, key=lambda item: _rank(*item), reverse=True)
        ]

    def find(self, model: str, at_ms: int) -> Price | None:
        """Return the price of the model at that time; None if it is unknown."""
        for price in self._entries:
            if price.since_ms <= at_ms and price.covers(model):
                return price
        return None

    def cost(self, model: str, usage: Usage, at_ms: int) -> int | None:
        """Return the cost of the usage in micro-dollars.

        Without a price the cost is None, or 0 for a usage without tokens.
        """
        price = self.find(model, at_ms)
        if price is None:
            return None if usage.input_tokens or usage.output_tokens else 0
        return cost(price, usage)

    def most(self, model: str, usage: Usage, at_ms: int) -> int | None:
        """Return the maximal cost of the usage, whatever part of it is written to the cache."""
        price = self.find(model, at_ms)
        if price is None:
            return self.cost(model, usage, at_ms)
        written = msgspec.structs.replace(usage, cache_write_tokens=usage.input_tokens)
        return max(cost(price, usage), cost(price, written))


def cost(price: Price, usage: Usage) -> int:
    """Return the cost of the usage in micro-dollars, rounded up."""
    cached = min(usage.cached_tokens, usage.input_tokens)
    cached_price = price.input if price.cached_input is None else price.cached_input
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    written_price = price.input if price.cache_write is None else price.cache_write
    total = (
        (usage.input_tokens - cached - written) * price.input
        + cached * cached_price
        + written * written_price
        + usage.output_tokens * price.output
    )
    return -(-total // MILLION)


def _rank(place: int, price: Price) -> tuple[bool, int, date, int]:
    return not price.model.endswith("*"), len(price.model), price.since, place
