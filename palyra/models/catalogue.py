"""The models there are, by name: the embedded one, and `provider/model` of every provider.

A provider has more models than anybody lists, so one that nobody listed is made when it is asked
for; the provider itself says whether it exists.
"""

from collections.abc import Callable, Iterator, Mapping

from palyra.core.ports import LanguageModel

MAX_MADE = 256  # beyond it they are made again
MAX_NAME_CHARS = 200

Make = Callable[[str], LanguageModel]  # of the name after the provider's


class ModelCatalogue(Mapping[str, LanguageModel]):
    """`fixed` models by their whole name, and those that providers make."""

    def __init__(
        self,
        fixed: Mapping[str, LanguageModel],
        providers: Mapping[str, Make],
        listed: tuple[str, ...] = (),
    ) -> None:
        """`listed` names are shown to people beside the fixed ones."""
        self._fixed = dict(fixed)
        self._providers = dict(providers)
        self._listed = listed
        self._made: dict[str, LanguageModel] = {}

    def __getitem__(self, name: str) -> LanguageModel:
        found = self._fixed.get(name) or self._made.get(name)
        if found is None:
            provider, separator, model = name.partition("/")
            make = self._providers.get(provider)
            if not separator or not model or make is None or len(name) > MAX_NAME_CHARS:
                raise KeyError(name)
            if len(self._made) >= MAX_MADE:
                self._made.clear()
            found = self._made[name] = make(model)
        return found

    def __contains__(self, name: object) -> bool:
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
