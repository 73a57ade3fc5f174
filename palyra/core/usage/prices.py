"""Prices of model tokens: a dated table, looked up by model and time.

An entry is valid from midnight UTC of its date until a later entry with the same pattern.  The most
specific pattern applies: a whole name before `provider/family-*`, a longer prefix before a shorter
one.  Of one pattern, the entry with the highest `above` that the prompt exceeds applies to the whole
call: some providers charge more for long prompts.  Amounts are integer micro-dollars, rounded up.  A
model without an entry has an unknown price, which is not the same as a price of zero.

Configured entries come before the published ones of the package: a configured pattern that applies
hides every published price of the models it matches.
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
    above: int = 0  # tokens of input that a call must exceed for the entry to apply
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

    def __init__(self, entries: Iterable[Price] = (), published: Iterable[Price] = ()) -> None:
        """Add entries to those of the embedded models; of two equal keys the later entry applies.

        The `published` ones price the models that no entry does.
        """
        self._entries = [*_sorted((*FREE, *entries)), *_sorted(published)]

    def find(self, model: str, at_ms: int, input_tokens: int = 0) -> Price | None:
        """Return the price of a call with that prompt at that time; None if it is unknown."""
        for price in self._entries:
            is_long = price.above and input_tokens <= price.above
            if price.since_ms <= at_ms and not is_long and price.covers(model):
                return price
        return None

    def cost(self, model: str, usage: Usage, at_ms: int) -> int | None:
        """Return the cost of the usage in micro-dollars.

        Without a price the cost is None, or 0 for a usage without tokens.
        """
        price = self.find(model, at_ms, usage.input_tokens)
        if price is None:
            return None if usage.input_tokens or usage.output_tokens else 0
        return cost(price, usage)

    def most(self, model: str, usage: Usage, at_ms: int) -> int | None:
        """Return the maximal cost of the usage, whatever part of it is written to the cache."""
        price = self.find(model, at_ms, usage.input_tokens)
        if price is None:
            return self.cost(model, usage, at_ms)
        written = msgspec.structs.replace(usage, cache_write_tokens=usage.input_tokens)
        return max(cost(price, usage), cost(price, written))

    def least(self, model: str, input_tokens: int, at_ms: int) -> int | None:
        """Return the minimal cost of a call with that prompt: all of it cached, and no answer."""
        price = self.find(model, at_ms, input_tokens)
        if price is None:
            return self.cost(model, Usage(input_tokens=input_tokens), at_ms)
        read = Usage(input_tokens=input_tokens, cached_tokens=input_tokens)
        return min(cost(price, read), cost(price, Usage(input_tokens=input_tokens)))


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


def _sorted(entries: Iterable[Price]) -> list[Price]:
    """Sort by rank: the most specific pattern first, then the longest prompt, then the newest."""
    ranked = sorted(enumerate(entries), key=lambda item: _rank(*item), reverse=True)
    return [price for _, price in ranked]


def _rank(place: int, price: Price) -> tuple[bool, int, int, date, int]:
    is_whole = not price.model.endswith("*")
    return is_whole, len(price.model), price.above, price.since, place
