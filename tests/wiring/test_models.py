"""The daemon's models: what the configuration makes of them, and what it costs who has none."""

import subprocess
import sys
from pathlib import Path

import pytest

from palyra.actors.hub import Hub
from palyra.actors.kernel.threads import run_sync
from palyra.config.load import Config
from palyra.config.paths import Paths
from palyra.config.sections import MemoryConfig, ModelProvider, ModelRoute, Models
from palyra.core.access import Caller
from palyra.core.incident.kinds import provider_key
from palyra.core.model.circuit_breaker import THRESHOLD
from palyra.core.model.messages import ModelFailure
from palyra.core.usage.prices import Price, Prices
from palyra.errors import InvalidParams
from palyra.models.guarded import GuardedModel
from palyra.models.lexical_embeddings import EmbeddedEmbeddings
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.secrets.resolver import Resolver
from palyra.secrets.service import SecretService
from palyra.services.usage.budgets import Budgets
from palyra.wiring.host import Host
from palyra.wiring.models import Modelset, build_modelset, build_router
from tests.actors.fake_alarms import FakeAlarms

OURS = ModelProvider(name="ours", base_url="http://ours/v1", models=("big",))


def built(
    home: Path, models: Models, alarms: FakeAlarms | None = None, memory: str = "auto"
) -> Modelset:
    """Build the models of a daemon with these settings."""
    paths = Paths(config_file=home / "palyra.toml", data_dir=home)
    keeper = SecretService(Resolver(home, home), run_sync, lambda *_: None)
    return build_modelset(
        Config(paths=paths, models=models, memory=MemoryConfig(embedder=memory)),
        Host(),
        keeper,
        alarms or FakeAlarms(),
    )


def test_without_providers_only_embedded_models_exist(tmp_path: Path) -> None:
    """Without configured providers there are only the embedded models."""
    found = built(tmp_path, Models())
    assert (["scripted"], []) == (list(found.models), list(found.names))
    assert isinstance(found.embeddings, EmbeddedEmbeddings)


def test_a_provider_is_configured(tmp_path: Path) -> None:
    """A configured provider adds its models and a service for its connections."""
    found = built(tmp_path, Models(providers=(OURS,), embeddings="ours/e"))
    assert ["scripted", "ours/big"] == list(found.models)
    assert "ours/whatever" in found.models
    assert ["models"] == [service.id for service in found.services]
    assert ("ours/e", "ours") == (found.embeddings.name, found.embeddings.provider)
    lexical = built(tmp_path, Models(providers=(OURS,)))
    assert isinstance(lexical.embeddings, EmbeddedEmbeddings)


@pytest.mark.parametrize("name", ["embedded", "hashed", "embedded/lexical-1"])
def test_the_embedded_model_has_the_same_names_in_both_settings(tmp_path: Path, name: str) -> None:
    """The name of one setting is understood by the other, with and without providers."""
    for providers in ((), (OURS,)):
        found = built(tmp_path, Models(providers=providers, embeddings=name), memory=name)
        assert isinstance(found.embeddings, EmbeddedEmbeddings)
        assert found.memory is None


def test_a_provider_may_embed_the_memory(tmp_path: Path) -> None:
    """Its model is another one than that of clients; a name without a provider is refused."""
    found = built(tmp_path, Models(providers=(OURS,)), memory="ours/e")
    assert found.memory is not None
    assert ("ours/e", "ours") == (found.memory.name, found.memory.provider)
    assert built(tmp_path, Models(providers=(OURS,))).memory is None
    for models in (Models(), Models(providers=(OURS,))):
        with pytest.raises(InvalidParams, match=r"memory.embedder = .x/e.: .*minilm") as caught:
            built(tmp_path, models, memory="x/e")
        assert "memory.embedder" == caught.value.field


def test_a_provider_that_fails_raises_an_alarm(tmp_path: Path) -> None:
    """Under its own name, once it is left alone."""
    alarms = FakeAlarms()
    model = built(tmp_path, Models(providers=(OURS,)), alarms).models["ours/big"]
    assert isinstance(model, GuardedModel)
    for _ in range(THRESHOLD):
        assert [] == alarms.told
        model._guard.end("ours/big", ModelFailure("timeout", "nobody answers"))
    assert [provider_key("ours/big")] == alarms.told


@pytest.mark.parametrize(
    "models",
    [
        Models(embeddings="ours/e"),
        Models(embeddings=""),
        Models(providers=(OURS,), embeddings="theirs/e"),
        Models(providers=(OURS,), embeddings="ours"),
    ],
)
def test_unknown_embeddings_stop_the_start(tmp_path: Path, models: Models) -> None:
    """An unknown embedding model stops the start; the error names setting, value and choices."""
    with pytest.raises(InvalidParams, match=r"models.embeddings = '.*embedded") as caught:
        built(tmp_path, models)
    assert "models.embeddings" == caught.value.field


@pytest.mark.real
def test_without_providers_no_http_client_is_imported() -> None:
    """Without providers no HTTP client is imported; a control shows that the check sees one."""
    code = "import sys, {}; print('httpx' in sys.modules)"
    for module, expected in (("palyra.daemon", "False"), ("palyra.models.providers", "True")):
        done = subprocess.run(
            [sys.executable, "-c", code.format(module)], check=True, capture_output=True, text=True
        )
        assert expected == done.stdout.strip()


def test_routes_and_prices_reach_the_router(tmp_path: Path) -> None:
    """The router reports configured routes with the current prices."""
    models = Models(
        default="ours/big",
        providers=(OURS,),
        routing="enforced",
        routes=(ModelRoute(model="ours/big", vision=True, window=9, tier=3),),
        failover=("scripted",),
    )
    paths = Paths(config_file=tmp_path / "palyra.toml", data_dir=tmp_path)
    config, modelset = Config(paths=paths, models=models), built(tmp_path, models)
    budgets = Budgets(Hub(encode_notification), lambda: 0, prices=Prices())
    router = build_router(config, modelset.models, modelset, budgets)
    budgets.prices = Prices([Price(model="ours/*", input=2, output=5)])
    found = router.list_all(Caller(principal="ann", role="operator", token_id="t"))
    assert ("enforced", ("scripted",)) == (found.routing, found.failover)
    big, embedded = found.models
    assert (True, True, 9, 3) == (big.is_default, big.vision, big.window, big.tier)
    assert ("ours", "chat", 4, "closed") == (big.provider, big.api, big.parallel, big.breaker)
    assert (2, 5) == (big.input_usd_micros, big.output_usd_micros)
    assert ("scripted", 0, None) == (embedded.name, embedded.input_usd_micros, embedded.tier)
    assert ["ours"] == [each.provider for each in router.standings()]


def test_a_route_to_an_unknown_model_stops_the_start(tmp_path: Path) -> None:
    """A route to an unknown model stops the start; the error names the setting and the model."""
    models = Models(failover=("theirs/x",))
    paths = Paths(config_file=tmp_path / "palyra.toml", data_dir=tmp_path)
    modelset, budgets = (
        built(tmp_path, models),
        Budgets(Hub(encode_notification), lambda: 0, prices=Prices()),
    )
    with pytest.raises(InvalidParams, match=r"models.failover: .*theirs/x"):
        build_router(Config(paths=paths, models=models), modelset.models, modelset, budgets)
