"""The daemon's prices and budgets, as its configuration has them."""

import msgspec

from palyra.actors.budgets import Budgets
from palyra.actors.hub import HubHandle
from palyra.config import Config
from palyra.core.budgets import check_budget
from palyra.core.prices import Price, Prices
from palyra.core.records import BudgetRecord
from palyra.errors import InvalidParams
from palyra.parts import Host


def build_budgets(config: Config, hub: HubHandle, host: Host) -> Budgets:
    """As the configuration has them.  Raises InvalidParams for one that makes no sense."""
    return Budgets(
        hub,
        host.now_ms,
        prices=read_prices(config),
        configured=read_budgets(config),
        reserve_tokens=config.usage.reserve_tokens,
        max_tokens={
            provider.name: provider.max_tokens
            for provider in config.models.providers
            if provider.max_tokens
        },
    )


def read_prices(config: Config) -> Prices:
    """The price table."""
    return Prices(Price(**msgspec.structs.asdict(entry)) for entry in config.usage.prices)


def read_budgets(config: Config) -> list[BudgetRecord]:
    """The budgets of the configuration.  Raises InvalidParams."""
    found: dict[str, BudgetRecord] = {}
    for given in config.usage.budgets:
        budget = BudgetRecord(
            budget_id=given.id,
            scope=given.scope,
            subject=given.subject,
            metric=given.metric,
            window=given.window,
            window_ms=given.window_s * 1_000 if given.window_s else None,
            soft=given.soft or None,
            hard=given.hard or None,
            action=given.action,
        )
        if given.id in found:
            raise InvalidParams(
                f"usage.budgets: two are called {given.id!r}", field="usage.budgets"
            )
        try:
            check_budget(budget)
        except InvalidParams as error:
            raise InvalidParams(f"usage.budgets: {error.message}", field="usage.budgets") from None
        found[given.id] = budget
    return list(found.values())
