"""Wiring of prices and budgets, and their reload when the configuration file changes."""

from palyra.actors.config_watch import UsageConfiguration
from palyra.config.load import Config, load
from palyra.core.journal.records import BudgetRecord
from palyra.core.ports import Notifier
from palyra.core.usage.budgets import check_budget
from palyra.core.usage.dollars import to_micros
from palyra.core.usage.prices import Prices
from palyra.errors import InvalidParams
from palyra.models.table import known_at, price_of
from palyra.services.usage.budgets import Budgets
from palyra.wiring.host import Host


def build_budgets(config: Config, hub: Notifier, host: Host) -> Budgets:
    """Build the configured budgets.  Raises InvalidParams for an invalid budget."""
    return Budgets(
        hub,
        host.now_ms,
        prices=read_prices(config),
        configured=read_budgets(config),
        reserve_tokens=config.usage.reserve_tokens,
    )


class UsageFile:
    """Source of prices and budgets that reads the configuration file again when it changes."""

    def __init__(self, config: Config) -> None:
        self.problems: tuple[str, ...] = ()
        self._path = config.paths.config_file
        self._in_force = (config.usage, config.models.providers)
        self._is_confirmed = True
        self._stamp = self._look()
        self._read = (self._in_force, self._stamp)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def refresh(self) -> UsageConfiguration | None:
        """See `UsageSource.refresh`; an unreadable file changes nothing."""
        stamp = self._look()
        if stamp == self._stamp:
            return None
        try:
            config = load(self._path)
            found = UsageConfiguration(read_prices(config), tuple(read_budgets(config)))
        except InvalidParams as error:
            self.problems = (f"configuration: {error.message}",)
            self._stamp = stamp
            return None
        self.problems = ()
        wanted = (config.usage, config.models.providers)  # the latter have published prices
        if self._is_confirmed and wanted == self._in_force:
            self._stamp = stamp
            return None
        self._is_confirmed = False
        self._read = (wanted, stamp)
        return found

    def confirm(self) -> None:
        """Record that the last result of `refresh` is in force."""
        self._in_force, self._stamp = self._read
        self._is_confirmed = True


def read_prices(config: Config) -> Prices:
    """Return the configured prices, and the published ones of the configured providers."""
    published = known_at(config.models.providers).list_prices()
    return Prices(map(price_of, config.usage.prices), published)


def read_budgets(config: Config) -> list[BudgetRecord]:
    """Return the configured budgets.  Raises InvalidParams."""
    found: dict[str, BudgetRecord] = {}
    for given in config.usage.budgets:
        limits = (given.soft, given.hard)
        if given.metric == "tokens" and any(isinstance(limit, str) for limit in limits):
            raise InvalidParams(
                f"usage.budgets: {given.id!r} has a limit in dollars and the metric tokens: set "
                'metric = "usd_micros"',
                field="usage.budgets",
            )
        budget = BudgetRecord(
            budget_id=given.id,
            scope=given.scope,
            subject=given.subject,
            metric=given.metric,
            window=given.window,
            window_ms=given.window_s * 1_000 if given.window_s else None,
            soft=to_micros(given.soft) or None,
            hard=to_micros(given.hard) or None,
            action=given.action,
        )
        if given.id in found:
            raise InvalidParams(
                f"usage.budgets: two budgets have the id {given.id!r}", field="usage.budgets"
            )
        try:
            check_budget(budget)
        except InvalidParams as error:
            raise InvalidParams(f"usage.budgets: {error.message}", field="usage.budgets") from None
        found[given.id] = budget
    return list(found.values())
