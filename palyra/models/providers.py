"""Providers of the configuration: presets by name, and their models as `provider/model`.

Providers with the same proxy and authorities share one HTTP client.  The configuration may change
while the daemon runs: a provider whose entry stays the same keeps its limits and its breaker.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

import httpx
import trio

from palyra.config.sections import Api, ModelProvider
from palyra.core.ids import NewId
from palyra.core.model.routing import ProviderHealth
from palyra.core.outbound import Outbound, find_proxy, is_loopback
from palyra.core.ports import (
    EmbeddingModel,
    IncidentReporter,
    LanguageModel,
    NowMs,
    RerankModel,
    RunBlocking,
)
from palyra.core.redaction.secret_references import is_reference, parse_reference
from palyra.errors import InvalidParams, Unavailable
from palyra.models.anthropic import ANTHROPIC
from palyra.models.bedrock import BEDROCK, signed_bedrock
from palyra.models.catalogue import NO_NAMES, ModelCatalogue
from palyra.models.chat import CHAT, OPENAI_CHAT, azure_chat
from palyra.models.dialect import Dialect
from palyra.models.embeddings import HttpEmbeddings
from palyra.models.gemini import GEMINI
from palyra.models.guarded import (
    CallSlots,
    GuardedEmbeddings,
    GuardedModel,
    GuardedReranker,
    ProviderLimits,
)
from palyra.models.http_exchange import DIRECTLY, ProviderEndpoint, open_client
from palyra.models.http_model import HttpModel
from palyra.models.presets import PRESETS, Preset, key_of
from palyra.models.reranking import HttpReranker
from palyra.models.responses import RESPONSES

CLOSE_WITHIN_S = 1.0
FindSecret = Callable[[str], Awaitable[str]]


class Providers:
    """The configured providers."""

    def __init__(
        self,
        given: Sequence[ModelProvider],
        find_secret: FindSecret,
        *,
        new_id: NewId,
        now_ms: NowMs,
        alarms: IncidentReporter,
        outbound: Outbound = DIRECTLY,
    ) -> None:
        """Create the providers.  Raises InvalidParams for an unusable configuration."""
        self._outbound = outbound
        self._clients: dict[tuple[str, str], httpx.AsyncClient] = {}  # by proxy and authorities
        self._build = partial(
            _Provider,
            open_for=self._open,
            find_secret=find_secret,
            new_id=new_id,
            now_ms=now_ms,
            alarms=alarms,
        )
        self._providers: dict[str, _Provider] = {}
        self.configure(given)

    def configure(self, given: Sequence[ModelProvider]) -> None:
        """Replace the providers; calls under way end with the one that they began with.  Blocks.

        Raises InvalidParams for an unusable configuration, and changes nothing then.
        """
        names = [provider.name for provider in given]
        for name in names:
            if not name or "/" in name or names.count(name) > 1:
                raise _refused(f"every provider needs a unique name without /, not {name!r}")
        before = self._providers
        self._providers = {
            each.name: before[each.name]
            if each.name in before and before[each.name].given == each
            else self._build(each)
            for each in given
        }

    def _open(self, given: ModelProvider, base_url: str) -> tuple[httpx.AsyncClient, str]:
        """Return the client for a provider and its proxy; equal ones share a client."""
        field = f"models.providers: {given.name!r}: proxy"
        ca_file = os.path.expanduser(given.ca_file)  # noqa: PTH111 - "" stays ""
        outbound = self._outbound.replaced(given.proxy, ca_file, field)
        proxy = find_proxy(outbound, base_url)
        client = self._clients.get((proxy, outbound.ca_file))
        if client is None:
            client = open_client(outbound=outbound, proxy=proxy)
            self._clients[proxy, outbound.ca_file] = client
        return client, proxy

    def catalogue(self, fixed: Mapping[str, LanguageModel]) -> ModelCatalogue:
        """Return a catalogue of all models, including the `fixed` ones."""
        made = ModelCatalogue(fixed)
        self.fill(made)
        return made

    def fill(self, catalogue: ModelCatalogue) -> None:
        """Put the models of all providers into the catalogue, in place of its earlier ones."""
        catalogue.replace(
            {name: each.make for name, each in self._providers.items()},
            [f"{name}/{model}" for name, each in self._providers.items() for model in each.listed],
        )

    def look(self, name: str) -> ProviderHealth:
        """Return the health of a model, PROVIDER/NAME, or of a provider: that of its worst model.

        Without a configured provider it counts as healthy.
        """
        provider, _, model = name.partition("/")
        found = self._providers.get(provider)
        if found is None:
            return ProviderHealth(provider=provider)
        return found.guard.health(name) if model else found.guard.standing

    def trip(self, model: str) -> None:
        """Open the breaker of a model; without effect if its provider is not configured."""
        found = self._providers.get(model.partition("/")[0])
        if found is not None:
            found.guard.trip(model)

    def embeddings(
        self, name: str, run_blocking: RunBlocking, field: str, others: Sequence[str]
    ) -> EmbeddingModel:
        """Return the embedding model called PROVIDER/NAME.

        Raises InvalidParams for a name that belongs to no provider: the value of that `field` of the
        configuration, which may also have one of the `others`.
        """
        provider, _, model = name.partition("/")
        found = self._providers.get(provider)
        if found is None or model in NO_NAMES or not found.embeds:
            having = [name for name, each in self._providers.items() if each.embeds]
            known = ", ".join(f"{name}/MODEL" for name in having)
            raise InvalidParams(
                f"{field} = {name!r}: no provider offers it; available: {', '.join(others)}"
                + (f", and {known}" if known else ""),
                field=field,
            )
        return found.make_embeddings(model, run_blocking)

    def reranker(self, name: str, field: str) -> RerankModel:
        """Return the re-ranking model called PROVIDER/NAME.

        Raises InvalidParams, about that `field` of the configuration, for a name that no provider has.
        """
        provider, _, model = name.partition("/")
        found = self._providers.get(provider)
        if found is None or model in NO_NAMES or not found.reranks:
            having = [f"{name}/MODEL" for name, each in self._providers.items() if each.reranks]
            raise InvalidParams(
                f"{field} = {name!r}: no provider offers it"
                + (f"; available: {', '.join(having)}" if having else ""),
                field=field,
            )
        return found.make_reranker(model)

    async def close(self) -> None:
        """Close all connections, also when cancelled; some may stay open if that takes long."""
        with trio.move_on_after(CLOSE_WITHIN_S, shield=True):
            for client in self._clients.values():
                await client.aclose()


class _Provider:
    """One configured provider; all its models share one `ProviderLimits`."""

    def __init__(
        self,
        given: ModelProvider,
        *,
        open_for: Callable[[ModelProvider, str], tuple[httpx.AsyncClient, str]],
        find_secret: FindSecret,
        new_id: NewId,
        now_ms: NowMs,
        alarms: IncidentReporter,
    ) -> None:
        preset = PRESETS.get(given.name, Preset(""))
        self._base_url = _address(given, preset)
        if not self._base_url.startswith(("http://", "https://")):
            if given.base_url:
                rest = given.base_url.rpartition("://")[2].lstrip("/")
                scheme = "http" if is_loopback(urlsplit(f"//{rest}").hostname or "") else "https"
                raise _refused(
                    f"the base_url of {given.name!r} is {given.base_url!r}, which does not begin with "
                    f"http:// or https://: write {scheme}://{rest}"
                )
            known = ", ".join(name for name, each in PRESETS.items() if each.base_url)
            raise _refused(f"{given.name!r} needs a base_url; these need none: {known}")
        parts = urlsplit(self._base_url)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise _refused(
                f"the base_url of {given.name!r} must end with its path; put a key into `key`"
            )
        reference = key_of(given)
        self._key = parse_reference(reference).text if reference else ""
        self.given = given
        self._api = given.api or preset.api
        self._key_id = parse_reference(given.key_id).text if is_reference(given.key_id) else ""
        self._session = parse_reference(given.session).text if given.session else ""
        if given.session and not given.key_id:
            raise _refused(f"the session of {given.name!r} belongs to a key_id")
        self._dialect = dialect_of(given, self._api, self._base_url)
        self._client, self._proxy = open_for(given, self._base_url)
        self._find_secret = find_secret
        self._new_id = new_id
        self._now_ms = now_ms
        leases = CallSlots(given.parallel, given.parallel_per_key)
        self.guard = ProviderLimits(
            given.name, self._key, leases, now_ms, api=self._api, alarms=alarms
        )

    @property
    def listed(self) -> tuple[str, ...]:
        """Names of the models shown in lists."""
        return self.given.models

    @property
    def embeds(self) -> bool:
        """True if the provider's protocol has embeddings."""
        return bool(self._dialect.embeddings)

    @property
    def reranks(self) -> bool:
        """True if the provider's protocol has re-ranking."""
        return bool(self._dialect.rerank)

    def make(self, model: str) -> LanguageModel:
        """Create the model of that name without checking that it exists."""
        inner = HttpModel(
            f"{self.given.name}/{model}",
            self._endpoint(model),
            self._client,
            self._find_key,
            new_id=self._new_id,
            now_ms=self._now_ms,
        )
        return GuardedModel(inner, self.guard)

    def make_embeddings(self, model: str, run_blocking: RunBlocking) -> EmbeddingModel:
        """Create the embedding model of that name without checking that it exists."""
        inner = HttpEmbeddings(
            f"{self.given.name}/{model}",
            self._endpoint(model),
            self._client,
            self._find_key,
            now_ms=self._now_ms,
            run_blocking=run_blocking,
        )
        return GuardedEmbeddings(inner, self.guard)

    def make_reranker(self, model: str) -> RerankModel:
        """Create the re-ranking model of that name without checking that it exists."""
        inner = HttpReranker(
            f"{self.given.name}/{model}",
            self._endpoint(model),
            self._client,
            self._find_key,
            self._now_ms,
        )
        return GuardedReranker(inner, self.guard)

    def _endpoint(self, model: str) -> ProviderEndpoint:
        given = self.given
        return ProviderEndpoint(
            provider=given.name,
            base_url=self._base_url,
            dialect=self._dialect,
            model=model,
            max_tokens=given.max_tokens,
            stall_s=given.stall_s,
            proxy=self._proxy,
        )

    async def _find_key(self) -> str:
        key = await self._find_secret(self._key) if self._key else ""
        if self._dialect.sign is None:
            return key
        key_id = await self._find_secret(self._key_id) if self._key_id else self.given.key_id
        session = await self._find_secret(self._session) if self._session else ""
        parts = [key_id, key, session] if self._session else [key_id, key]
        if any(not part or " " in part for part in parts):
            raise Unavailable("an AWS access key has an id and a secret, both without blanks")
        return " ".join(parts)


def _refused(why: str) -> InvalidParams:
    return InvalidParams(f"models.providers: {why}", field="models.providers")


DIALECTS: dict[Api, Dialect] = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
}


def dialect_of(given: ModelProvider, api: Api, base_url: str) -> Dialect:
    """Return the dialect of a provider, with the settings that belong to it."""
    if api == "azure":
        return azure_chat(given.api_version)
    if api == "bedrock" and given.key_id:
        return signed_bedrock(given.region)
    return dialect_at(api, base_url)


def dialect_at(api: Api, base_url: str) -> Dialect:
    """Return the dialect of the API at that URL; OpenAI's chat API differs from compatible ones."""
    is_openai = base_url.startswith(PRESETS["openai"].base_url)
    return OPENAI_CHAT if api == "chat" and is_openai else DIALECTS[api]


def _address(given: ModelProvider, preset: Preset) -> str:
    """Return the base URL; of Azure a resource's address is taken with and without `/openai`."""
    url = given.base_url or preset.base_url.format(region=given.region)
    is_azure = (given.api or preset.api) == "azure"
    return url.rstrip("/").removesuffix("/openai") if is_azure else url
