"""Watches of files: policies, prices and budgets, and other settings, reloaded while the daemon runs.

Each watch checks its files once a second, in a thread.  A changed file takes effect if it is valid;
otherwise the last valid version stays in force and an incident is reported, which clears itself
once the file is valid again.
Talks to: the policy and usage sources (ports), runs with open questions, the usage service.
Restart: permanent; the watch checks again.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

import structlog
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.run.approval import OpenApprovals
from palyra.actors.session.registry import ActorRegistry
from palyra.core.incident.kinds import (
    POLICIES,
    SETTINGS,
    USAGE,
    policies_broken,
    settings_pending,
    usage_broken,
)
from palyra.core.journal.records import BudgetRecord
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.core.run.inputs import RulesChanged
from palyra.core.usage.prices import Prices
from palyra.errors import Overloaded, Unavailable
from palyra.services.usage.reports import UsageService

log = structlog.get_logger("palyra.policy")
POLL_S = 1.0  # between checks of the files: a stat for each of at most 64


class Rules(Protocol):
    """Policies as the watch uses them."""

    @property
    def version(self) -> str:
        """Version of the policies in force."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Errors in the user policies now."""

    def refresh(self) -> None:
        """Reload the files if they changed.  Blocks."""


async def policy_watch(
    rules: Rules,
    run_blocking: RunBlocking,
    on_changed: Callable[[], None],
    alarms: IncidentReporter,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reload policies when their files change.  Cancellation: policies in force stay in force."""
    _notify_policy(rules.problems, alarms)
    task_status.started()
    while True:
        version, problems = rules.version, rules.problems
        await run_blocking(rules.refresh)
        is_unreported = rules.problems and not alarms.is_reported(POLICIES)
        if rules.problems is not problems or is_unreported:  # each read of broken files has its own
            _notify_policy(rules.problems, alarms)
        if rules.version != version:
            log.info("policies reloaded", version=rules.version)
            on_changed()
        await trio.sleep(POLL_S)


def _notify_policy(problems: tuple[str, ...], alarms: IncidentReporter) -> None:
    if problems:
        alarms.report(policies_broken(problems))
    else:
        alarms.clear(POLICIES, "the user policies are valid again")


def notify_runs(approvals: OpenApprovals, registry: ActorRegistry) -> None:
    """Have every run with an open question judge its call again under the new policies."""
    for run_id in approvals.runs:
        run = registry.runs.get(run_id)
        if run is not None:
            with suppress(Overloaded):  # a call judged under old policies cannot start anyway
                run.inbox.offer(RulesChanged())


def policy_watch_spec(
    rules: Rules,
    run_blocking: RunBlocking,
    approvals: OpenApprovals,
    registry: ActorRegistry,
    alarms: IncidentReporter,
) -> ChildSpec:
    """Return the permanent child that runs the watch."""
    on_changed = partial(notify_runs, approvals, registry)
    watch = partial(policy_watch, rules, run_blocking, on_changed, alarms)
    return ChildSpec("policy", watch, "permanent")


usage_log = structlog.get_logger("palyra.budgets")


class UsageConfiguration(NamedTuple):
    """Prices and budgets of the configuration."""

    prices: Prices
    budgets: tuple[BudgetRecord, ...]


class UsageSource(Protocol):
    """The configuration file as the watch uses it."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Errors in the file now."""

    def refresh(self) -> UsageConfiguration | None:
        """Return the configuration, None if it is in force already.  Blocks."""

    def confirm(self) -> None:
        """Note that the result of the last `refresh` is in force."""


async def usage_watch(
    source: UsageSource,
    desk: UsageService,
    run_blocking: RunBlocking,
    alarms: IncidentReporter,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Apply prices and budgets when the file changes, and retry what a full disk refused.

    Cancellation: prices and budgets in force stay in force.
    """
    task_status.started()
    is_late = False
    while True:
        before = source.problems
        found = await run_blocking(source.refresh)
        is_unreported = source.problems and not alarms.is_reported(USAGE)
        if source.problems != before or is_unreported:
            _notify_usage(source.problems, alarms)
        if found is not None:
            is_late = not await _apply(source, desk, found, is_late=is_late)
        await trio.sleep(POLL_S)


def _notify_usage(problems: tuple[str, ...], alarms: IncidentReporter) -> None:
    if problems:
        alarms.report(usage_broken(problems))
    else:
        alarms.clear(USAGE, "the configuration is valid again")


async def _apply(
    source: UsageSource, desk: UsageService, found: UsageConfiguration, *, is_late: bool
) -> bool:
    """Apply the configuration; return False if the journal refused it, and log that once."""
    try:
        await desk.reconfigure(found.prices, found.budgets)
    except Unavailable as error:
        if not is_late:
            usage_log.critical("prices and budgets could not be applied yet", problem=error.message)
        return False
    source.confirm()
    usage_log.info("prices and budgets reloaded", budgets=len(found.budgets))
    return True


def usage_watch_spec(
    source: UsageSource, desk: UsageService, run_blocking: RunBlocking, alarms: IncidentReporter
) -> ChildSpec:
    """Return the permanent child that runs the watch."""
    watch = partial(usage_watch, source, desk, run_blocking, alarms)
    return ChildSpec("usage", watch, "permanent")


class SettingsSource(Protocol):
    """The settings that follow the configuration file, as the watch uses them."""

    @property
    def problem(self) -> str:
        """Reason that keeps a change of the file from being in force; "" if there is none."""

    async def refresh(self) -> str:
        """Take up what changed in the file."""


async def settings_watch(
    settings: SettingsSource,
    alarms: IncidentReporter,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take up changes of the configuration file.  Cancellation: settings in force stay in force."""
    task_status.started()
    reported = ""
    while True:
        await settings.refresh()
        if settings.problem and (settings.problem != reported or not alarms.is_reported(SETTINGS)):
            alarms.report(settings_pending(settings.problem))
        elif not settings.problem:  # also after a restart of this task
            alarms.clear(SETTINGS, "the configuration is in force")
        reported = settings.problem
        await trio.sleep(POLL_S)


def settings_watch_spec(settings: SettingsSource, alarms: IncidentReporter) -> ChildSpec:
    """Return the permanent child that runs the watch."""
    return ChildSpec("settings", partial(settings_watch, settings, alarms), "permanent")
