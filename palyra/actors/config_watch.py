"""The policy watch: looks whether the user policies have changed, and puts what changed in force.

Owns: nothing.  Talks to: the rules (port), the runs that ask somebody.
Never: puts broken rules in force; the last good ones stay, and an incident says so.
Restart: permanent; it looks again.

The usage watch: puts changed prices and budgets of the configuration in force.

Owns: nothing.  Talks to: the file (port), the desk that budgets are changed at.
Never: puts a broken file in force; what held before stays, and an incident says so.
Restart: permanent; it looks again.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

import structlog
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.run.open_approvals import OpenApprovals
from palyra.actors.session.registry import ActorRegistry
from palyra.core.incident.kinds import POLICIES, USAGE, policies_broken, usage_broken
from palyra.core.journal.records import BudgetRecord
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.core.run.inputs import RulesChanged
from palyra.core.usage.prices import Prices
from palyra.errors import Overloaded, Unavailable
from palyra.services.usage import UsageService

log = structlog.get_logger("palyra.policy")
LOOK_S = 1.0  # between looks at the files: a stat for each of at most 64


class Rules(Protocol):
    """What the watch needs of the rules."""

    @property
    def version(self) -> str:
        """Of the rules in force."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the user policies now."""

    def refresh(self) -> None:
        """Read the files again if they changed; blocks."""


async def policy_watch(
    rules: Rules,
    run_blocking: RunBlocking,
    on_changed: Callable[[], None],
    alarms: IncidentReporter,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Look every second, for ever.  Cancellation: whatever is in force stays in force."""
    _notify_policy(rules.problems, alarms)
    task_status.started()
    while True:
        version, problems = rules.version, rules.problems
        await run_blocking(rules.refresh)
        is_hidden = rules.problems and not alarms.is_reported(POLICIES)
        if rules.problems != problems or is_hidden:
            _notify_policy(rules.problems, alarms)
        if rules.version != version:
            log.info("other rules are in force", version=rules.version)
            on_changed()
        await trio.sleep(LOOK_S)


def _notify_policy(problems: tuple[str, ...], alarms: IncidentReporter) -> None:
    if problems:
        alarms.report(policies_broken(problems))
    else:
        alarms.clear(POLICIES, "the user policies are in order again")


def tell_runs(approvals: OpenApprovals, registry: ActorRegistry) -> None:
    """Have every run that asks somebody look at its question again."""
    for run_id in approvals.runs:
        run = registry.runs.get(run_id)
        if run is not None:
            with suppress(Overloaded):  # what it asks about under old rules cannot start anyway
                run.inbox.offer(RulesChanged())


def policy_watch_spec(
    rules: Rules,
    run_blocking: RunBlocking,
    approvals: OpenApprovals,
    registry: ActorRegistry,
    alarms: IncidentReporter,
) -> ChildSpec:
    """The watch as a service."""
    on_changed = partial(tell_runs, approvals, registry)
    watch = partial(policy_watch, rules, run_blocking, on_changed, alarms)
    return ChildSpec("policy", watch, "permanent")


usage_log = structlog.get_logger("palyra.budgets")


class UsageConfiguration(NamedTuple):
    """What the file says."""

    prices: Prices
    budgets: tuple[BudgetRecord, ...]


class UsageSource(Protocol):
    """What the watch needs of the file."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with it now."""

    def refresh(self) -> UsageConfiguration | None:
        """What it says, unless just that is in force; blocks."""

    def confirm(self) -> None:
        """What `refresh` said last is in force."""


async def usage_watch(
    source: UsageSource,
    desk: UsageService,
    run_blocking: RunBlocking,
    alarms: IncidentReporter,
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
        is_hidden = source.problems and not alarms.is_reported(USAGE)
        if source.problems != before or is_hidden:
            _notify_usage(source.problems, alarms)
        if found is not None:
            is_late = not await _put_in_force(source, desk, found, is_late=is_late)
        await trio.sleep(LOOK_S)


def _notify_usage(problems: tuple[str, ...], alarms: IncidentReporter) -> None:
    if problems:
        alarms.report(usage_broken(problems))
    else:
        alarms.clear(USAGE, "the configuration is in order again")


async def _put_in_force(
    source: UsageSource, desk: UsageService, found: UsageConfiguration, *, is_late: bool
) -> bool:
    """Whether that worked; what did not is said once."""
    try:
        await desk.reconfigure(found.prices, found.budgets)
    except Unavailable as error:
        if not is_late:
            usage_log.critical("prices and budgets do not hold yet", problem=error.message)
        return False
    source.confirm()
    usage_log.info("other prices and budgets are in force", budgets=len(found.budgets))
    return True


def usage_watch_spec(
    source: UsageSource, desk: UsageService, run_blocking: RunBlocking, alarms: IncidentReporter
) -> ChildSpec:
    """The watch as a service."""
    watch = partial(usage_watch, source, desk, run_blocking, alarms)
    return ChildSpec("usage", watch, "permanent")
