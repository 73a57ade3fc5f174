"""What a model's tokens cost: a dated table, looked up by model and instant.

An entry holds from midnight UTC of its date until a later entry of the same pattern takes over.
The most exact pattern counts: a whole name before `provider/family-*`, a longer beginning before a
shorter one.  Amounts are integer micro-dollars, rounded up; what no entry covers has no price,
which is never the same as costing nothing.
"""

from collections.abc import Iterable
from datetime import date

import msgspec

from palyra.core.journal.records import Usage

DAY_MS = 86_400_000
MILLION = 1_000_000
_EPOCH = date(1970, 1, 1)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Micro-dollars for a million tokens of the models that the pattern names."""

    model: str  # a whole name, or a beginning and *
    since: date = _EPOCH
    input: int
    output: int
    cached_input: int | None = None  # None: as `input`
    cache_write: int | None = None  # None: as `input`

    @property
    def since_ms(self) -> int:
        """From when it holds."""
        return (self.since - _EPOCH).days * DAY_MS

    def covers(self, model: str) -> bool:
        """Whether it is for that model."""
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return model == self.model


FREE = Price(model="scripted", input=0, output=0)  # the embedded model asks nobody


class Prices:
    """The table in force."""

    def __init__(self, entries: Iterable[Price] = ()) -> None:
        """Entries beside the embedded model's; of two alike the later one in the list counts."""
        listed = enumerate((FREE, *entries))
        # The most exact first, then the newest.
        self._entries = [
            price for _, price in sorted(listed, key=lambda item: _rank(*item), reverse=True)
        ]

    def find(self, model: str, at_ms: int) -> Price | None:
        """The price of that model at that instant; None when nobody said what it costs."""
        for price in self._entries:
            if price.since_ms <= at_ms and price.covers(model):
                return price
        return None

    def cost(self, model: str, usage: Usage, at_ms: int) -> int | None:
        """What that many tokens cost, in micro-dollars; None without a price, unless it is none."""
        price = self.find(model, at_ms)
        if price is None:
            return None if usage.input_tokens or usage.output_tokens else 0
        return cost(price, usage)

    def most(self, model: str, usage: Usage, at_ms: int) -> int | None:
        """What that many tokens cost at most: nobody knows before what goes into the cache."""
        price = self.find(model, at_ms)
        if price is None:
            return self.cost(model, usage, at_ms)
        written = msgspec.structs.replace(usage, cache_write_tokens=usage.input_tokens)
        return max(cost(price, usage), cost(price, written))


def cost(price: Price, usage: Usage) -> int:
    """Micro-dollars, rounded up."""
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
