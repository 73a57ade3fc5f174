"""The providers of the configuration: their models by name, over one HTTP client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from palyra.core.ids import NewId
from palyra.core.ports import LanguageModel, NowMs
from palyra.core.secret_reference import parse_reference
from palyra.errors import InvalidParams
from palyra.models.catalogue import ModelCatalogue
from palyra.models.guarded import Guard, GuardedModel
from palyra.models.http_model import Endpoint, HttpModel, open_client
from palyra.models.leases import Leases
from palyra.models.providers import DIALECTS, PRESETS, Preset
from palyra.sections import ModelProvider

CLOSE_WITHIN_S = 1.0
FindSecret = Callable[[str], Awaitable[str]]


class Providers:
    """What the configuration names; `keep_open` is a service."""

    def __init__(
        self,
        given: Sequence[ModelProvider],
        find_secret: FindSecret,
        *,
        new_id: NewId,
        now_ms: NowMs,
    ) -> None:
        """Raises InvalidParams for a provider that cannot be asked."""
        self._given = given
        self._find_secret = find_secret
        self._new_id = new_id
        self._now_ms = now_ms
        self._client = open_client()
        names = [provider.name for provider in given]
        for name in names:
            if not name or "/" in name or names.count(name) > 1:
                raise _refused(f"every provider needs a name of its own without /, not {name!r}")
        self._makers = {provider.name: self._maker(provider) for provider in given}

    def catalogue(self, fixed: Mapping[str, LanguageModel]) -> ModelCatalogue:
        """All models, the `fixed` ones among them."""
        listed = (f"{each.name}/{model}" for each in self._given for model in each.models)
        return ModelCatalogue(fixed, self._makers, tuple(listed))

    async def keep_open(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Connections may be kept while this runs.  Cancellation: they are closed."""
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(CLOSE_WITHIN_S, shield=True):
                await self._client.aclose()

    def _maker(self, given: ModelProvider) -> Callable[[str], LanguageModel]:
        preset = PRESETS.get(given.name, Preset(""))
        base_url = given.base_url or preset.base_url
        if not base_url.startswith(("http://", "https://")):
            raise _refused(
                f"{given.name!r} needs a base_url; these need none: {', '.join(PRESETS)}"
            )
        dialect = DIALECTS[given.api or preset.api]
        reference = given.key or preset.key
        key = parse_reference(reference).text if reference else ""
        guard = Guard(given.name, key, Leases(given.parallel, given.parallel_per_key), self._now_ms)

        async def find_key() -> str:
            return await self._find_secret(key) if key else ""

        def make(model: str) -> LanguageModel:
            endpoint = Endpoint(
                provider=given.name,
                base_url=base_url,
                dialect=dialect,
                model=model,
                max_tokens=given.max_tokens,
                stall_s=given.stall_s,
            )
            inner = HttpModel(
                f"{given.name}/{model}",
                endpoint,
                self._client,
                find_key,
                new_id=self._new_id,
                now_ms=self._now_ms,
            )
            return GuardedModel(inner, guard)

        return make


def _refused(why: str) -> InvalidParams:
    return InvalidParams(f"models.providers: {why}", field="models.providers")
