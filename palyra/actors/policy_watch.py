"""The policy watch: looks whether the user policies have changed, and puts what changed in force.

Owns: nothing.  Talks to: the rules (port), the runs that ask somebody.
Never: puts broken rules in force; the last good ones stay, and an incident says so.
Restart: permanent; it looks again.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import structlog
import trio

from palyra.actors.approvals import Approvals
from palyra.actors.child import ChildSpec
from palyra.actors.directory import Directory
from palyra.core.alarms import POLICIES, policies_broken
from palyra.core.ports import Alarms, RunBlocking
from palyra.core.run_steps import RulesChanged
from palyra.errors import Overloaded

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
    alarms: Alarms,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Look every second, for ever.  Cancellation: whatever is in force stays in force."""
    _tell(rules.problems, alarms)
    task_status.started()
    while True:
        version, problems = rules.version, rules.problems
        await run_blocking(rules.refresh)
        is_hidden = rules.problems and not alarms.is_told(POLICIES)
        if rules.problems != problems or is_hidden:
            _tell(rules.problems, alarms)
        if rules.version != version:
            log.info("other rules are in force", version=rules.version)
            on_changed()
        await trio.sleep(LOOK_S)


def _tell(problems: tuple[str, ...], alarms: Alarms) -> None:
    if problems:
        alarms.report(policies_broken(problems))
    else:
        alarms.clear(POLICIES, "the user policies are in order again")


def tell_runs(approvals: Approvals, directory: Directory) -> None:
    """Have every run that asks somebody look at its question again."""
    for run_id in approvals.runs:
        run = directory.runs.get(run_id)
        if run is not None:
            with suppress(Overloaded):  # what it asks about under old rules cannot start anyway
                run.inbox.offer(RulesChanged())


def child_spec(
    rules: Rules,
    run_blocking: RunBlocking,
    approvals: Approvals,
    directory: Directory,
    alarms: Alarms,
) -> ChildSpec:
    """The watch as a service."""
    on_changed = partial(tell_runs, approvals, directory)
    watch = partial(policy_watch, rules, run_blocking, on_changed, alarms)
    return ChildSpec("policy", watch, "permanent")
