"""Providers as the configuration names them: presets, addresses, keys, one guard for each."""

import pytest
import trio

from palyra.actors.kernel.threads import run_sync
from palyra.config.sections import ModelProvider
from palyra.core.model.messages import ModelFailure
from palyra.errors import InvalidParams
from palyra.models import providers as configured
from palyra.models.anthropic import ANTHROPIC
from palyra.models.bedrock import BEDROCK
from palyra.models.chat import CHAT, OPENAI_CHAT
from palyra.models.gemini import GEMINI
from palyra.models.guarded import GuardedEmbeddings, GuardedModel
from palyra.models.http_model import HttpModel
from palyra.models.providers import Providers
from palyra.models.responses import RESPONSES
from tests.actors.fake_alarms import FakeAlarms
from tests.models.memory_provider import MemoryBackend
from tests.models.model_kit import CHAT_EXPECTED, CHAT_TURN, KEY, REQUEST, memory_client
from tests.models.provider import STREAM, Provider, refusal, sse
from tests.rows import every_row


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """Serve this model for every provider, without loading certificates."""
    reached = Provider(url="http://provider.test/v1")
    monkeypatch.setattr(
        configured, "open_client", lambda **_: memory_client(MemoryBackend(reached))
    )
    return reached


pytestmark = pytest.mark.usefixtures("served")


class Kept:
    """A keeper of one secret that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def find(self, reference: str) -> str:
        await trio.lowlevel.checkpoint()
        self.asked.append(reference)
        return KEY


def providers(*given: ModelProvider, kept: Kept | None = None) -> Providers:
    """These providers."""
    find = (kept or Kept()).find
    new_id = "{}_1".format
    return Providers(given, find, new_id=new_id, now_ms=lambda: 0, alarms=FakeAlarms())


def guarded(made: Providers, name: str) -> GuardedModel:
    model = made.catalogue({})[name]
    assert isinstance(model, GuardedModel)
    return model


def behind(model: GuardedModel) -> HttpModel:
    """Return the model that the guard wraps."""
    assert isinstance(model._inner, HttpModel)
    return model._inner


@every_row(
    ("given", "url", "dialect", "reference"),
    [
        (ModelProvider(name="openai"), "https://api.openai.com/v1", OPENAI_CHAT,
         "env:OPENAI_API_KEY"),
        (ModelProvider(name="openai", api="responses"), "https://api.openai.com/v1", RESPONSES,
         "env:OPENAI_API_KEY"),
        (ModelProvider(name="anthropic", key="vault:a"), "https://api.anthropic.com/v1", ANTHROPIC,
         "vault:a"),
        (ModelProvider(name="ollama"), "http://127.0.0.1:11434/v1", CHAT, ""),
        (ModelProvider(name="openai", base_url="http://proxy/v1"), "http://proxy/v1", CHAT,
         "env:OPENAI_API_KEY"),
        (ModelProvider(name="x", base_url="http://x/v1"), "http://x/v1", CHAT, ""),
        (ModelProvider(name="gemini"), "https://generativelanguage.googleapis.com/v1beta", GEMINI,
         "env:GEMINI_API_KEY"),
        (ModelProvider(name="bedrock", region="eu-west-1"),
         "https://bedrock-runtime.eu-west-1.amazonaws.com", BEDROCK,
         "env:AWS_BEARER_TOKEN_BEDROCK"),
    ],
)  # fmt: skip
def test_a_known_name_sets_the_defaults(
    given: ModelProvider, url: str, dialect: object, reference: str
) -> None:
    """A known provider's name gives address, dialect and key unless the configuration does."""
    model = guarded(providers(given), f"{given.name}/org/big:7b")
    endpoint = behind(model)._endpoint
    assert (url, dialect, "org/big:7b") == (endpoint.base_url, endpoint.dialect, endpoint.model)
    assert reference == model._guard.credential
    assert (f"{given.name}/org/big:7b", given.name) == (model.name, model.provider)


def test_bounds_reach_the_endpoint_and_the_guard() -> None:
    """Each its own."""
    given = ModelProvider(
        name="x", base_url="http://x/v1", max_tokens=7, stall_s=3, parallel=5, parallel_per_key=6
    )
    model = guarded(providers(given), "x/m")
    endpoint, leases = behind(model)._endpoint, model._guard.leases
    assert (7, 3) == (endpoint.max_tokens, endpoint.stall_s)
    assert (5, 6) == (leases.per_provider, leases._per_credential)


def test_models_of_a_provider_share_its_guard() -> None:
    """And those of another one do not."""
    made = providers(
        ModelProvider(name="x", base_url="http://x/v1", models=("a", "b")),
        ModelProvider(name="y", base_url="http://y/v1", models=("c",)),
    )
    models = made.catalogue({})
    assert ["x/a", "x/b", "y/c"] == list(models)
    guards = [guarded(made, name)._guard for name in ("x/a", "x/b", "y/c")]
    assert guards[0] is guards[1] is not guards[2]
    embeddings = made.embeddings("x/e", run_sync, "models.embeddings", ("embedded",))
    assert isinstance(embeddings, GuardedEmbeddings)
    assert guards[0] is embeddings._guard


@every_row(
    ("given", "said"),
    [
        ([ModelProvider(name="")], "a unique name"),
        ([ModelProvider(name="a/b", base_url="http://x")], "without /"),
        ([ModelProvider(name="ollama")] * 2, "a unique name"),
        ([ModelProvider(name="mine")], "needs a base_url"),
        ([ModelProvider(name="mine", base_url="ftp://x")], "does not begin with"),
        ([ModelProvider(name="x", base_url="http://user:pass@x/v1")], "put a key into `key`"),
        ([ModelProvider(name="x", base_url="http://:pass@x/v1")], "put a key into `key`"),
        ([ModelProvider(name="x", base_url="http://x/v1?key=sk")], "put a key into `key`"),
        ([ModelProvider(name="x", base_url="http://x/v1#k")], "put a key into `key`"),
    ],
)
def test_a_provider_that_cannot_be_asked(given: list[ModelProvider], said: str) -> None:
    """Is refused at the start, by name and without what its address gives away."""
    with pytest.raises(InvalidParams, match=said) as caught:
        providers(*given)
    assert "models.providers" == caught.value.field
    assert "pass" not in caught.value.message.replace("parameters", "")


def test_a_key_in_the_configuration_itself() -> None:
    """Is no reference, and is not repeated."""
    with pytest.raises(InvalidParams) as caught:
        providers(ModelProvider(name="openai", key=KEY))
    assert KEY not in repr(caught.value)


@every_row("name", ["x", "x/", "nobody/m", "claude/m", "embedded"])
def test_embeddings_that_no_provider_has(name: str) -> None:
    """Anthropic's API has none; the refusal names those that there are."""
    made = providers(
        ModelProvider(name="x", base_url="http://x/v1"),
        ModelProvider(name="claude", base_url="http://c/v1", api="anthropic"),
    )
    with pytest.raises(InvalidParams, match=r"available: embedded, and x/MODEL$") as caught:
        made.embeddings(name, run_sync, "models.embeddings", ("embedded",))
    assert "models.embeddings" == caught.value.field


async def test_a_turn_and_a_vector(served: Provider) -> None:
    """The whole way: the key is looked up for each call, by its reference."""
    kept = Kept()
    made = providers(ModelProvider(name="x", base_url=served.url, key="env:K"), kept=kept)
    served.answers = [
        [STREAM + sse(*CHAT_TURN)],
        [refusal(200, {"data": [{"index": 0, "embedding": [1]}]})],
    ]
    turn = await made.catalogue({})["x/big"].stream(REQUEST, lambda _: None)
    found = await made.embeddings("x/e", run_sync, "models.embeddings", ("embedded",)).embed(["a"])
    await made.close()
    assert (CHAT_EXPECTED.text, ((1.0,),)) == (turn.text, found.vectors)
    assert ["env:K", "env:K"] == kept.asked
    assert ["big", "e"] == [body["model"] for body in served.bodies]
    assert all(client.is_closed for client in made._clients.values())


async def test_a_local_provider_is_asked_without_a_key() -> None:
    """A local provider is called without looking up a key."""
    kept = Kept()
    model = guarded(providers(ModelProvider(name="ollama"), kept=kept), "ollama/m")
    assert not await behind(model)._exchange._find_key()
    assert [] == kept.asked


@pytest.mark.parametrize("address", ["http://provider.test", "http://provider.test/openai/"])
async def test_azure_has_deployments(served: Provider, address: str) -> None:
    """The deployment and the version are in the address, the key is in `api-key`."""
    served.answers.append([STREAM + sse(*CHAT_TURN)])
    provider = ModelProvider(
        name="azure", base_url=address, key="vault:a", api_version="2025-01-01-preview"
    )
    made = providers(provider)
    assert (
        CHAT_EXPECTED.text
        == (await guarded(made, "azure/my model").stream(REQUEST, lambda _: None)).text
    )
    head = served.heads[0]
    assert head.startswith(
        "post /openai/deployments/my%20model/chat/completions?api-version=2025-01-01-preview "
    )
    assert f"api-key: {KEY}" in head
    assert "authorization" not in head
    served.answers.append([refusal(200, {"data": [{"index": 0, "embedding": [1.0]}]})])
    await made.embeddings("azure/e", run_sync, "f", ()).embed(["x"])
    there = "post /openai/deployments/e/embeddings?api-version=2025-01-01-preview "
    assert served.heads[1].startswith(there)


def test_azure_needs_an_address() -> None:
    """A resource has an address of its own."""
    with pytest.raises(InvalidParams, match=r"'azure' needs a base_url; these need none: openai"):
        providers(ModelProvider(name="azure"))


async def test_an_access_key_signs_requests(served: Provider) -> None:
    """Id and session token may be references; the secret is looked up where AWS's tools do."""
    kept = Kept()
    provider = ModelProvider(
        name="bedrock", base_url="http://provider.test", key_id="AKIDEXAMPLE", session="vault:s"
    )
    served.answers.append([refusal(403, {"message": "no"})])
    with pytest.raises(ModelFailure):
        await guarded(providers(provider, kept=kept), "bedrock/m").stream(REQUEST, lambda _: None)
    assert ["env:AWS_SECRET_ACCESS_KEY", "vault:s"] == kept.asked
    assert "credential=akidexample/19700101/us-east-1/bedrock/aws4_request" in served.heads[0]
    assert f"x-amz-security-token: {KEY}" in served.heads[0]


async def test_a_broken_access_key_is_no_request(served: Provider) -> None:
    """A secret with a blank would be read as two parts; nothing is sent."""

    async def find(_reference: str) -> str:
        await trio.lowlevel.checkpoint()
        return "two words"

    provider = ModelProvider(name="bedrock", base_url="http://provider.test", key_id="env:ID")
    made = Providers([provider], find, new_id="{}_1".format, now_ms=lambda: 0, alarms=FakeAlarms())
    with pytest.raises(ModelFailure, match="without blanks") as caught:
        await guarded(made, "bedrock/m").stream(REQUEST, lambda _: None)
    assert ("auth", []) == (caught.value.failure_class, served.heads)


def test_a_session_belongs_to_an_access_key() -> None:
    """A token of a session alone signs nothing."""
    with pytest.raises(InvalidParams, match="key_id"):
        providers(ModelProvider(name="bedrock", session="vault:s"))


@every_row("name", ["anthropic", "gemini", "bedrock"])
def test_protocols_without_embeddings(name: str) -> None:
    """The error lists the providers that have some."""
    made = providers(ModelProvider(name=name), ModelProvider(name="ollama"))
    with pytest.raises(InvalidParams, match="ollama/MODEL"):
        made.embeddings(f"{name}/e", run_sync, "models.embeddings", ())
