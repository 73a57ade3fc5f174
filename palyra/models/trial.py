"""One call of a model, before a provider is configured: is there a network, a key, the model?

Owns: an HTTP client for the length of the call.  Never: retries, or keeps the answer.
"""

from itertools import count
from time import time_ns
from typing import Literal

import msgspec

from palyra.config.sections import ModelProvider
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.records import IncidentRecord
from palyra.core.model.messages import (
    Delta,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    Sampling,
    UserMessage,
)
from palyra.core.outbound import Outbound
from palyra.models.http_exchange import DIRECTLY
from palyra.models.providers import FindSecret, Providers

TRIAL_STALL_S = 30  # a person waits
ANSWER_TOKENS = 64  # room for a word, and for the reasoning that some models always do
Problem = Literal["key", "network", "model", "quota", "other"]


def problem_of(failure: ModelFailure) -> Problem:
    """Return the part of the configuration that the failure is about."""
    match failure.failure_class:
        case "auth":
            return "key"
        case "unavailable" | "timeout" | "transient":
            return "network"
        case "quota" | "rate_limited":
            return "quota"
        case "unknown_model":
            return "model"
        case "invalid_request" if failure.message.startswith("HTTP 404"):
            return "model"
        case _:
            return "other"


class _NoIncidents:
    """`core.ports.IncidentReporter` of a call that is over before anything could be reported."""

    def report(self, report: IncidentReport) -> IncidentRecord:
        raise NotImplementedError(report)

    def clear(self, key: str, reason: str) -> None:
        pass

    def is_reported(self, key: str) -> bool:  # noqa: ARG002, PLR6301 - the port's method
        return False


async def try_model(
    provider: ModelProvider, model: str, find_secret: FindSecret, outbound: Outbound
) -> ModelTurn:
    """Ask the provider's model for one word and return its turn.

    Raises ModelFailure, and InvalidParams for an unusable provider.  Cancellation: the connection is
    closed.
    """
    providers = _open(
        msgspec.structs.replace(provider, stall_s=TRIAL_STALL_S), find_secret, outbound
    )
    request = ModelRequest(
        run_id="trial",
        turn=1,
        attempt=1,
        model=model,
        instructions="Answer with one word.",
        messages=(UserMessage("Say ok."),),
        sampling=Sampling(max_output_tokens=ANSWER_TOKENS),
    )
    try:
        name = f"{provider.name}/{model}"
        return await providers.catalogue({})[name].stream(request, _ignore)
    finally:
        await providers.close()  # noqa: ASYNC102 - shielded inside


def check_provider(provider: ModelProvider) -> None:
    """Raise InvalidParams for a provider with which the daemon would not start."""
    _open(provider, _find_nothing)


async def _find_nothing(reference: str) -> str:
    raise NotImplementedError(reference)


def _open(
    provider: ModelProvider, find_secret: FindSecret, outbound: Outbound = DIRECTLY
) -> Providers:
    numbers = count(1)
    return Providers(
        [provider],
        find_secret,
        new_id=lambda prefix: f"{prefix}_{next(numbers)}",
        now_ms=lambda: time_ns() // 1_000_000,
        alarms=_NoIncidents(),
        outbound=outbound,
    )


def _ignore(_delta: Delta) -> None:
    pass
