"""Catalogue of the models by name: built-in ones, and those of the configured providers.

A provider has more models than the configuration lists, so an unlisted model is created on first
use; the provider itself reports whether it exists.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from palyra.config.sections import ModelProvider
from palyra.core.model.routing import ProviderHealth
from palyra.core.ports import EmbeddingModel, LanguageModel, RunBlocking

MAX_MADE = 256  # of cached models; beyond it they are created again
MAX_NAME_CHARS = 200
NO_NAMES = {"", ".", ".."}  # as part of an address the latter would name another one

Make = Callable[[str], LanguageModel]  # takes the model's name without the provider's


class ModelCatalogue(Mapping[str, LanguageModel]):
    """Mapping of model names to models: `fixed` ones and models that providers create on demand."""

    def __init__(
        self,
        fixed: Mapping[str, LanguageModel],
        providers: Mapping[str, Make] = MappingProxyType({}),
        listed: Sequence[str] = (),
    ) -> None:
        """Create the catalogue; see `replace`."""
        self._fixed = dict(fixed)
        self.replace(providers, listed)

    def replace(self, providers: Mapping[str, Make], listed: Sequence[str]) -> None:
        """Replace the providers; `listed` names are enumerated together with the fixed ones."""
        self._providers, self._listed = dict(providers), tuple(listed)
        self._made: dict[str, LanguageModel] = {}

    def __getitem__(self, name: str) -> LanguageModel:
        if name in self._fixed:  # without a call: each turn of a run looks its model up
            return self._fixed[name]
        found = self._made.get(name)
        if found is None:
            provider, separator, model = name.partition("/")
            make = self._providers.get(provider)
            is_name = bool(separator) and model not in NO_NAMES
            if not is_name or make is None or len(name) > MAX_NAME_CHARS:
                raise KeyError(name)
            if len(self._made) >= MAX_MADE:
                self._made.clear()
            found = self._made[name] = make(model)
        return found

    def __contains__(self, name: object) -> bool:
        if name in self._fixed:
            return True
        if not isinstance(name, str):
            return False
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._fixed, *self._listed]))

    def __len__(self) -> int:
        return len(list(iter(self)))


class OpenProviders(Protocol):
    """The configured providers (`models.providers.Providers`), whose import takes 0.1 s."""

    def configure(self, given: Sequence[ModelProvider]) -> None:
        """Replace the providers.  Blocks.  Raises InvalidParams, and changes nothing then."""

    def fill(self, catalogue: ModelCatalogue) -> None:
        """Put the models of all providers into the catalogue."""

    def look(self, name: str) -> ProviderHealth:
        """Return the health of a model, or of a provider."""

    def trip(self, model: str) -> None:
        """Open the breaker of a model."""

    def embeddings(
        self, name: str, run_blocking: RunBlocking, field: str, others: Sequence[str]
    ) -> EmbeddingModel:
        """Return the embedding model of that name.  Raises InvalidParams."""

    async def close(self) -> None:
        """Close all connections."""
