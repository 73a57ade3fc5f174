"""Ratios of reported to estimated tokens, from run to run."""

import msgspec

from palyra.core.run.state import AskedModel, Run
from palyra.services.usage.token_factors import MAX_MODELS, TokenFactors
from tests.core.run.run_world import World


def measured(model: str, **token_bps: int) -> Run:
    """A run that used this model last."""
    return msgspec.structs.replace(World().run, asked=AskedModel(model=model), token_bps=token_bps)


def test_only_the_model_of_the_last_call_is_learned() -> None:
    """Ratios that the run began with are those of other runs; no measurement changes nothing."""
    factors = TokenFactors()
    factors.learn(measured("a", a=12_000, b=9_000))
    assert {"a": 12_000} == factors.bps
    before = factors.bps
    factors.learn(measured("a", a=12_000))
    factors.learn(measured("c"))
    assert factors.bps is before
    factors.learn(measured("a", a=11_000))
    assert ({"a": 11_000}, {"a": 12_000}) == (factors.bps, before), "tapes share the former one"


def test_models_are_bounded() -> None:
    """Beyond the bound a new model keeps the plain estimate; known ones continue to learn."""
    factors = TokenFactors()
    for number in range(MAX_MODELS + 3):
        factors.learn(measured(f"m{number}", **{f"m{number}": 9_000}))
    assert MAX_MODELS == len(factors.bps)
    factors.learn(measured("m0", m0=8_000))
    assert 8_000 == factors.bps["m0"]
