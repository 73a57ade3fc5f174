"""Catalogue of the models by name: built-in ones, and those of the configured providers.

A provider has more models than the configuration lists, so an unlisted model is created on first
use; the provider itself reports whether it exists.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from palyra.config.sections import ModelProvider
from palyra.core.model.routing import ProviderHealth
from palyra.core.ports import EmbeddingModel, LanguageModel, RerankModel, RunBlocking

MAX_MADE = 256  # of cached models; beyond it they are created again
MAX_NAME_CHARS = 200
NO_NAMES = {"", ".", ".."}  # as part of an address the latter would name another one

Make = Callable[[str], LanguageModel]  # takes the model's name without the provider's


class ModelCatalogue(dict[str, LanguageModel]):  # noqa: FURB189 - a hit must cost no call of Python
    """Models by name: `fixed` ones, and models that providers create on demand.

    A dict, as each turn of a run looks its model up: one that is known costs no call of Python.
    It holds the created models too, but enumerates only the fixed and the listed ones.
    """

    def __init__(
        self,
        fixed: Mapping[str, LanguageModel],
        providers: Mapping[str, Make] = MappingProxyType({}),
        listed: Sequence[str] = (),
    ) -> None:
        """Create the catalogue; see `replace`."""
        super().__init__(fixed)
        self._fixed = dict(fixed)
        self.replace(providers, listed)

    def replace(self, providers: Mapping[str, Make], listed: Sequence[str]) -> None:
        """Replace the providers; `listed` names are enumerated together with the fixed ones."""
        self._providers, self._listed = dict(providers), tuple(listed)
        self._forget_created()

    def _forget_created(self) -> None:
        for name in [*self.keys() - self._fixed.keys()]:
            self.pop(name, None)  # `replace` is called in a thread

    def __missing__(self, name: str) -> LanguageModel:
        provider, separator, model = name.partition("/")
        make = self._providers.get(provider)
        is_name = bool(separator) and model not in NO_NAMES
        if not is_name or make is None or len(name) > MAX_NAME_CHARS:
            raise KeyError(name)
        if super().__len__() - len(self._fixed) >= MAX_MADE:
            self._forget_created()
        self[name] = made = make(model)
        if self._providers.get(provider) != make:  # replaced meanwhile, by the thread
            self.pop(name, None)
        return made

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as the base has it
        """Return the model, created if need be, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        try:
            self[name]  # type: ignore[index]  # a name that is no text has no model
        except (KeyError, AttributeError, TypeError):
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

    def reranker(self, name: str, field: str) -> RerankModel:
        """Return the re-ranking model of that name.  Raises InvalidParams."""

    async def close(self) -> None:
        """Close all connections."""
