"""Models in client lists: configuration, price, and health of the provider."""

import msgspec

from palyra.core.model.circuit_breaker import State
from palyra.core.model.route_plan import Mode


class ModelView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model.  None: not configured, or hidden from the caller."""

    name: str
    provider: str
    api: str = ""  # the provider's protocol; "": the embedded model
    is_default: bool = False
    vision: bool | None = None
    json: bool | None = None
    tools: bool | None = None
    window: int | None = None  # tokens
    tier: int | None = None
    is_published: bool = False  # the capabilities are those of the package's table, not configured
    breaker: State
    opens_in_ms: int = 0  # remaining time for which the breaker refuses calls
    parallel: int = 0  # limit of concurrent calls; 0: none
    under_way: int | None = None  # running calls of all its models; `waiting` ones wait for a lease
    waiting: int | None = None
    input_usd_micros: int | None = None  # per million tokens, today
    output_usd_micros: int | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All models, the routing mode and the default replacements."""

    models: list[ModelView]
    routing: Mode
    failover: tuple[str, ...]
