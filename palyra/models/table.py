"""Table of public models: windows, limits, capabilities and prices, each with source and date.

Owns: the file `table.toml`.  Never: asks a provider, or invents a value: a model without a row has
no known window and no known price.

The rows belong to a preset at its own address.  With another `base_url` a provider has other models
and prices, whatever its name.  Configured routes and prices come
before the table.

`python -m palyra.models.table --check` reports mistakes in the file.
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from datetime import date
from functools import cache
from pathlib import Path

import msgspec

from palyra.config.sections import ModelPrice, ModelProvider
from palyra.core.model.routing import Route
from palyra.core.usage.dollars import to_micros
from palyra.core.usage.prices import Price
from palyra.models.presets import PRESETS

FILE = Path(__file__).with_name("table.toml")


class ListedPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of a row in dollars per million tokens, as text."""

    input: str
    output: str
    cached_input: str | None = None
    cache_write: str | None = None
    since: date = date(1970, 1, 1)
    above: int = 0


class KnownModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: the facts of a model, their source and its date."""

    provider: str
    id: str
    aliases: tuple[str, ...] = ()
    window: int
    input: int = 0  # limit of the prompt; 0: the window
    output: int
    vision: bool
    tools: bool
    json: bool
    prices: tuple[ListedPrice, ...]
    as_of: date
    source: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the model, PROVIDER/ID, its own first."""
        return tuple(f"{self.provider}/{each}" for each in (self.id, *self.aliases))

    @property
    def route(self) -> Route:
        """The row as the router reads it; the window is that of the prompt."""
        return Route(
            model=self.names[0],
            vision=self.vision,
            json=self.json,
            tools=self.tools,
            window=self.input or self.window,
        )

    def list_prices(self) -> Iterator[Price]:
        """Yield the prices under each name of the model."""
        for name in self.names:
            for listed in self.prices:
                yield price_of(ModelPrice(model=name, **msgspec.structs.asdict(listed)))


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[KnownModel, ...]


class KnownModels:
    """The rows, by every name of their models."""

    def __init__(self, rows: Iterable[KnownModel] = ()) -> None:
        self.rows = tuple(rows)
        self._by_name = {name: row for row in self.rows for name in row.names}

    def find(self, model: str) -> KnownModel | None:
        """Return the row of the model called PROVIDER/ID; None if it is unknown."""
        return self._by_name.get(model)

    @property
    def routes(self) -> dict[str, Route]:
        """Capabilities by every name, as routes."""
        return {name: row.route for name, row in self._by_name.items()}

    def list_prices(self) -> Iterator[Price]:
        """Yield every price of every name."""
        for row in self.rows:
            yield from row.list_prices()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, aliases included."""
        return tuple(self._by_name)


def price_of(entry: ModelPrice) -> Price:
    """Return the entry in micro-dollars."""
    given = msgspec.structs.asdict(entry)
    for key in ("input", "output", "cached_input", "cache_write"):
        given[key] = None if given[key] is None else to_micros(given[key])
    return Price(**given)


@cache
def known_models() -> KnownModels:
    """Read the table; later calls return the same object."""
    return KnownModels(read_rows(FILE.read_bytes()))


def read_rows(data: bytes) -> tuple[KnownModel, ...]:
    """Return the rows of a table.  Raises ValueError for one that cannot be read."""
    return msgspec.convert(tomllib.loads(data.decode()), _File).models


def known_at(providers: Iterable[ModelProvider]) -> KnownModels:
    """Return the rows of the providers that are presets at their own address."""
    names = {each.name for each in providers if is_at_home(each)}
    if not names:
        return KnownModels()  # without reading the file
    return KnownModels(row for row in known_models().rows if row.provider in names)


def is_at_home(provider: ModelProvider) -> bool:
    """True if the provider is a preset at its own address."""
    preset = PRESETS.get(provider.name)
    if preset is None or (provider.api and provider.api not in {preset.api, "responses"}):
        return False
    return provider.base_url.rstrip("/") in {"", preset.base_url}


# --- the check -----------------------------------------------------------------------------------


def find_mistakes(rows: Iterable[KnownModel], today: date) -> Iterator[str]:
    """Yield each mistake of the rows in words."""
    taken: set[str] = set()
    for row in rows:
        name = row.names[0]
        for each in row.names:
            if each in taken:
                yield f"{each}: two rows have this name"
            taken.add(each)
        yield from (f"{name}: {mistake}" for mistake in _find_in_row(row, today))


def _find_in_row(row: KnownModel, today: date) -> Iterator[str]:
    if row.provider not in PRESETS:
        yield f"{row.provider} is no preset"
    if not 0 < row.output <= row.window or row.input > row.window:
        yield "the limits of prompt and answer must fit into the window"
    if row.as_of > today:
        yield f"as_of = {row.as_of} is in the future"
    commit, _, file = row.source.partition(" ")
    if "@" not in commit or not file:
        yield "source must be REPOSITORY@COMMIT FILE"
    if not any(price.since == date(1970, 1, 1) and not price.above for price in row.prices):
        yield "no price applies to an ordinary call today"
    keys = [(price.since, price.above) for price in row.prices]
    if len(set(keys)) < len(keys):
        yield "two prices have the same since and above"
    try:
        prices = list(row.list_prices())
    except ValueError as error:
        yield str(error)
        return
    if any((price.cached_input or 0) > price.input for price in prices):
        yield "cached input is dearer than input"


def main(arguments: list[str]) -> int:
    """Check the table; return 1 if it has mistakes, 2 for other arguments than --check."""
    if arguments != ["--check"]:
        sys.stderr.write("usage: python -m palyra.models.table --check\n")
        return 2
    rows = read_rows(FILE.read_bytes())
    mistakes = list(find_mistakes(rows, date.today()))  # noqa: DTZ011 - a day is enough
    oldest = min(row.as_of for row in rows)
    last = f"{len(rows)} models, oldest entry of {oldest}, {len(mistakes)} mistake(s)"
    sys.stdout.write("".join(f"{line}\n" for line in (*mistakes, last)))
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
