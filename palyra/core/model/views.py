"""A model as people see it in a list: what it is, what is said of it, how its provider is."""

import msgspec

from palyra.core.model.circuit_breaker import State
from palyra.core.model.route_plan import Mode


class ModelView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model.  None: nothing is said of it, or the caller does not see it."""

    name: str
    provider: str
    api: str = ""  # how the provider is spoken to; "": it is embedded
    is_default: bool = False
    vision: bool | None = None
    json: bool | None = None
    tools: bool | None = None
    window: int | None = None  # tokens
    tier: int | None = None
    breaker: State
    opens_in_ms: int = 0  # how long the provider is still left alone
    parallel: int = 0  # calls at once; 0: as many as there are
    under_way: int | None = None  # calls of all its models, and those that wait for one to end
    waiting: int | None = None
    input_usd_micros: int | None = None  # for a million tokens, today
    output_usd_micros: int | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, and what becomes of a choice."""

    models: list[ModelView]
    routing: Mode
    failover: tuple[str, ...]
