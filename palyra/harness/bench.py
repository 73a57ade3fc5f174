"""Implementation of `palyra bench run`, without terminal output.

One command works in these steps: validate the input file, derive the plan (the settings that
determine the results), lock the output directory and compare its plan, connect to the daemon or
start one, execute the cases without a result, and write the summary.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import trio

from palyra.client import Client
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import InvalidParams, Rejected
from palyra.harness.case_runner import Performer
from palyra.harness.cases import Approval, InputFacts, check_input
from palyra.harness.connections import Connect
from palyra.harness.driver import CaseCounts, Drive, InputSelection
from palyra.harness.local_daemon import OwnDaemon
from palyra.harness.results import BenchPlan, ResultsDirectory, find_manifest, open_directory
from palyra.harness.summary import BenchSummary, Environment, summarise
from palyra.harness.target import OWN, Target, reach_daemon
from palyra.net.protocol.discovery import find_discovery, find_home

Ending = Literal["complete", "interrupted", "late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of `palyra bench run`."""

    file: Path
    out: Path
    concurrency: int = 8
    repeat: int = 1
    seed: int = 0
    limit: int | None = None
    model: str | None = None
    approval: Approval = "deny"
    deadline_s: float | None = None
    home: Path | None = None
    url: str | None = None
    is_own: bool = False
    scripts: Path | None = None
    config: Path | None = None
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Outcome of the command.

    `ending` is "late" after the deadline and "interrupted" after a signal.  `summary` is None if
    the command ended before a daemon answered.
    """

    ending: Ending
    tally: CaseCounts
    summary: BenchSummary | None


async def run_bench(order: BenchOptions, on_tally: Callable[[CaseCounts], None]) -> BenchReport:
    """Execute all cases that have no result yet.

    SIGINT or SIGTERM stops the command in order; a second signal ends the drain of a local daemon
    early.  Raises errors that concern more than one case, in a group.
    """
    facts = check_input(order.file)
    plan = _make_plan(order, facts)
    with open_directory(order.out, order.file, plan) as directory:
        return await _Command(order, facts, directory, on_tally).run()


def _make_plan(order: BenchOptions, facts: InputFacts) -> BenchPlan:
    daemon = choose_daemon(order)
    misplaced = {"scripts": order.scripts, "config": order.config, "workspace": order.workspace}
    for name, given in misplaced.items():
        if daemon != OWN and given is not None:
            raise InvalidParams(
                f"--{name} is for a daemon of the bench's own, and {daemon} runs already: "
                f"add --own, or configure that one",
                field=name,
            )
    return BenchPlan(
        file_sha256=facts.sha256,
        model=order.model,
        approval=order.approval,
        seed=order.seed,
        daemon=daemon,
        scripts_sha256=_hash(order.scripts),
        config_sha256=_hash(order.config),
    )


def _hash(path: Path | None) -> str | None:
    try:
        return None if path is None else sha256_hex(path.read_bytes())
    except OSError as error:
        raise InvalidParams(f"{path} cannot be read: {error.strerror}") from None


def choose_daemon(order: BenchOptions) -> str:
    """Select the daemon: "own", "url:ADDRESS" or "home:DIRECTORY".

    The order is: the options --own and --url, the daemon of earlier commands in this output
    directory, a daemon that runs in the home directory, a local daemon.
    """
    if order.is_own:
        return OWN
    if order.url is not None:
        return f"url:{order.url}"
    before = find_manifest(order.out)
    home = find_home(order.home).resolve()
    if before is not None and (before.plan.daemon == OWN or order.home is None):
        return before.plan.daemon
    found = find_discovery(home)
    is_running = found is not None and found.is_alive
    return f"home:{home}" if is_running or before is not None else OWN


@dataclass(slots=True)
class _Command:
    """State of one execution of the command."""

    order: BenchOptions
    facts: InputFacts
    directory: ResultsDirectory
    on_tally: Callable[[CaseCounts], None]
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _ending: Ending = "complete"
    _own: OwnDaemon | None = None
    _environment: Environment | None = None

    async def run(self) -> BenchReport:
        order = self.order
        extent = InputSelection(order.file, self.facts, order.repeat, order.seed, order.limit)
        performer = Performer(self.directory, order.model, order.approval)
        drive = Drive(extent, performer, self.on_tally)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._obey_signals)
            with self._scope:
                await self._work(drive)
            nursery.cancel_scope.cancel("the command has ended")
        summary = None
        if self._environment is not None:
            summary = summarise(self.directory, extent.total, self._environment)
        return BenchReport(self._ending, drive.tally, summary)

    async def _work(self, drive: Drive) -> None:
        order = self.order
        place = Target(
            daemon=self.directory.manifest.plan.daemon,
            out=order.out,
            home=order.home,
            scripts=order.scripts,
            config=order.config,
            workspace=order.workspace,
        )
        async with reach_daemon(place) as reached:
            self._own, dial = reached.own, reached.dial
            self._environment = await _look(dial)
            limit_s = float("inf") if self.order.deadline_s is None else self.order.deadline_s
            with trio.move_on_after(limit_s) as scope:
                await drive.run(dial, self.order.concurrency)
            if scope.cancelled_caught:
                self._ending = "late"

    async def _obey_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                if self._scope.cancel_called and self._own is not None:
                    self._own.hurry()
                self._ending = "interrupted"
                self._scope.cancel("a signal")


async def _look(dial: Connect) -> Environment:
    """Query the daemon's version, the hash of its tool catalogue and its policy version."""
    async with dial() as client:
        tools = await client.list_tools()
        return Environment(
            daemon_version=client.hello.version,
            catalogue_hash=tools.hash,
            policy_version=await _find_policy_version(client),
        )


async def _find_policy_version(client: Client) -> str | None:
    """Return the version of the policy rules, taken from a decision about a harmless call."""
    try:
        return (await client.explain_policy("echo", {"text": "x"})).version
    except Rejected:  # the daemon has no such tool
        return None
