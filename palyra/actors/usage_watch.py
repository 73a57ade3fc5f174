"""The usage watch: puts changed prices and budgets of the configuration in force.

Owns: nothing.  Talks to: the file (port), the desk that budgets are changed at.
Never: puts a broken file in force; what held before stays, and an incident says so.
Restart: permanent; it looks again.
"""

from functools import partial
from typing import NamedTuple, Protocol

import structlog
import trio

from palyra.actors.budget_desk import BudgetDesk
from palyra.actors.child import ChildSpec
from palyra.core.alarms import USAGE, usage_broken
from palyra.core.ports import Alarms, RunBlocking
from palyra.core.prices import Prices
from palyra.core.records import BudgetRecord
from palyra.errors import Unavailable

log = structlog.get_logger("palyra.budgets")
LOOK_S = 1.0  # between looks at the file: one stat


class Configured(NamedTuple):
    """What the file says."""

    prices: Prices
    budgets: tuple[BudgetRecord, ...]


class UsageSource(Protocol):
    """What the watch needs of the file."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with it now."""

    def refresh(self) -> Configured | None:
        """What it says, unless just that is in force; blocks."""

    def confirm(self) -> None:
        """What `refresh` said last is in force."""


async def usage_watch(
    source: UsageSource,
    desk: BudgetDesk,
    run_blocking: RunBlocking,
    alarms: Alarms,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Look every second, for ever.  Cancellation: whatever is in force stays in force.

    What cannot be put in force now, with a full disk, is tried again at each look.
    """
    task_status.started()
    is_late = False
    while True:
        before = source.problems
        found = await run_blocking(source.refresh)
        is_hidden = source.problems and not alarms.is_told(USAGE)
        if source.problems != before or is_hidden:
            _tell(source.problems, alarms)
        if found is not None:
            is_late = not await _put_in_force(source, desk, found, is_late=is_late)
        await trio.sleep(LOOK_S)


def _tell(problems: tuple[str, ...], alarms: Alarms) -> None:
    if problems:
        alarms.report(usage_broken(problems))
    else:
        alarms.clear(USAGE, "the configuration is in order again")


async def _put_in_force(
    source: UsageSource, desk: BudgetDesk, found: Configured, *, is_late: bool
) -> bool:
    """Whether that worked; what did not is said once."""
    try:
        await desk.reconfigure(found.prices, found.budgets)
    except Unavailable as error:
        if not is_late:
            log.critical("prices and budgets do not hold yet", problem=error.message)
        return False
    source.confirm()
    log.info("other prices and budgets are in force", budgets=len(found.budgets))
    return True


def child_spec(
    source: UsageSource, desk: BudgetDesk, run_blocking: RunBlocking, alarms: Alarms
) -> ChildSpec:
    """The watch as a service."""
    watch = partial(usage_watch, source, desk, run_blocking, alarms)
    return ChildSpec("usage", watch, "permanent")
