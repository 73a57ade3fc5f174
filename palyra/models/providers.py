"""The providers that need no more than their name, and what each needs otherwise.

The providers of the configuration: their models by name, over one HTTP client.

The models there are, by name: the embedded one, and `provider/model` of every provider.

A provider has more models than anybody lists, so one that nobody listed is made when it is asked
for; the provider itself says whether it exists.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

import httpx
import msgspec
import trio

from palyra.config.sections import ModelProvider
from palyra.core.ids import NewId
from palyra.core.model.routing import ProviderHealth
from palyra.core.ports import EmbeddingModel, IncidentReporter, LanguageModel, NowMs, RunBlocking
from palyra.core.redaction.references import parse_reference
from palyra.errors import InvalidParams
from palyra.models.anthropic import ANTHROPIC
from palyra.models.chat import CHAT, OPENAI_CHAT
from palyra.models.dialect import Dialect
from palyra.models.embeddings import HttpEmbeddings
from palyra.models.guarded import CallSlots, GuardedEmbeddings, GuardedModel, ProviderLimits
from palyra.models.http_exchange import ProviderEndpoint, open_client
from palyra.models.http_model import HttpModel
from palyra.models.responses import RESPONSES

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
        alarms: IncidentReporter,
    ) -> None:
        """Raises InvalidParams for a provider that cannot be asked."""
        names = [provider.name for provider in given]
        for name in names:
            if not name or "/" in name or names.count(name) > 1:
                raise _refused(f"every provider needs a name of its own without /, not {name!r}")
        self._client = open_client()
        self._providers = {
            each.name: _Provider(
                each, self._client, find_secret, new_id=new_id, now_ms=now_ms, alarms=alarms
            )
            for each in given
        }

    def catalogue(self, fixed: Mapping[str, LanguageModel]) -> ModelCatalogue:
        """All models, the `fixed` ones among them."""
        listed = (
            f"{name}/{model}" for name, each in self._providers.items() for model in each.listed
        )
        makers = {name: each.make for name, each in self._providers.items()}
        return ModelCatalogue(fixed, makers, tuple(listed))

    def look(self, provider: str) -> ProviderHealth:
        """How a provider is right now; one that is none of these is always well."""
        found = self._providers.get(provider)
        return ProviderHealth(provider=provider) if found is None else found.standing

    def embeddings(self, name: str, run_blocking: RunBlocking) -> EmbeddingModel:
        """The model of embeddings called PROVIDER/NAME.

        Raises InvalidParams for one that no provider has.
        """
        provider, _, model = name.partition("/")
        found = self._providers.get(provider)
        if found is None or not model or not found.embeds:
            having = [name for name, each in self._providers.items() if each.embeds]
            known = ", ".join(f"{name}/MODEL" for name in having)
            raise InvalidParams(
                f"models.embeddings = {name!r}: no provider has it; there is embedded"
                + (f", and {known}" if known else ""),
                field="models.embeddings",
            )
        return found.make_embeddings(model, run_blocking)

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


class _Provider:
    """One of them: all its models have one guard."""

    def __init__(
        self,
        given: ModelProvider,
        client: httpx.AsyncClient,
        find_secret: FindSecret,
        *,
        new_id: NewId,
        now_ms: NowMs,
        alarms: IncidentReporter,
    ) -> None:
        preset = PRESETS.get(given.name, Preset(""))
        self._base_url = given.base_url or preset.base_url
        if not self._base_url.startswith(("http://", "https://")):
            raise _refused(
                f"{given.name!r} needs a base_url; these need none: {', '.join(PRESETS)}"
            )
        parts = urlsplit(self._base_url)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise _refused(
                f"the base_url of {given.name!r} must end with its path; a key belongs into `key`"
            )
        reference = given.key or preset.key
        self._key = parse_reference(reference).text if reference else ""
        self._given = given
        self._api = given.api or preset.api
        self._client = client
        self._find_secret = find_secret
        self._new_id = new_id
        self._now_ms = now_ms
        leases = CallSlots(given.parallel, given.parallel_per_key)
        self._guard = ProviderLimits(
            given.name, self._key, leases, now_ms, api=self._api, alarms=alarms
        )

    @property
    def standing(self) -> ProviderHealth:
        """How it is right now."""
        return self._guard.standing

    @property
    def listed(self) -> tuple[str, ...]:
        """Models that lists show."""
        return self._given.models

    @property
    def embeds(self) -> bool:
        """Whether its protocol has embeddings."""
        return self._api != "anthropic"

    def make(self, model: str) -> LanguageModel:
        """The provider's model of that name, whether it exists or not."""
        inner = HttpModel(
            f"{self._given.name}/{model}",
            self._endpoint(model),
            self._client,
            self._find_key,
            new_id=self._new_id,
            now_ms=self._now_ms,
        )
        return GuardedModel(inner, self._guard)

    def make_embeddings(self, model: str, run_blocking: RunBlocking) -> EmbeddingModel:
        """Its model of embeddings of that name, whether it exists or not."""
        inner = HttpEmbeddings(
            f"{self._given.name}/{model}",
            self._endpoint(model),
            self._client,
            self._find_key,
            now_ms=self._now_ms,
            run_blocking=run_blocking,
        )
        return GuardedEmbeddings(inner, self._guard)

    def _endpoint(self, model: str) -> ProviderEndpoint:
        given = self._given
        return ProviderEndpoint(
            provider=given.name,
            base_url=self._base_url,
            dialect=dialect_at(self._api, self._base_url),
            model=model,
            max_tokens=given.max_tokens,
            stall_s=given.stall_s,
        )

    async def _find_key(self) -> str:
        return await self._find_secret(self._key) if self._key else ""


def _refused(why: str) -> InvalidParams:
    return InvalidParams(f"models.providers: {why}", field="models.providers")


Api = Literal["chat", "responses", "anthropic"]
DIALECTS: dict[Api, Dialect] = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}


class Preset(msgspec.Struct, frozen=True):
    """What is known of a provider by its name."""

    base_url: str
    api: Api = "chat"
    key: str = ""  # reference; "": it wants none


PRESETS: dict[str, Preset] = {
    "openai": Preset("https://api.openai.com/v1", "chat", "env:OPENAI_API_KEY"),
    "anthropic": Preset("https://api.anthropic.com/v1", "anthropic", "env:ANTHROPIC_API_KEY"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "chat", "env:OPENROUTER_API_KEY"),
    "ollama": Preset("http://127.0.0.1:11434/v1"),
    "llamacpp": Preset("http://127.0.0.1:8080/v1"),
    "vllm": Preset("http://127.0.0.1:8000/v1"),
}


def dialect_at(api: Api, base_url: str) -> Dialect:
    """How the API is spoken there: OpenAI's own chat differs from what others made of it."""
    is_openai = base_url.startswith(PRESETS["openai"].base_url)
    return OPENAI_CHAT if api == "chat" and is_openai else DIALECTS[api]
