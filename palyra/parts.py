"""The parts of a daemon that its configuration decides, each made by one function."""

import random
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from palyra.actors.agents import Agents
from palyra.actors.blocking import DedicatedThread, run_sync
from palyra.actors.channels import Channels
from palyra.actors.child import ChildSpec
from palyra.actors.hub import Hub, HubHandle
from palyra.actors.ids import new_id
from palyra.actors.incidents import Incidents
from palyra.actors.journal import JournalHandle, Thread, child_spec
from palyra.actors.journal_report import report_opened, report_writing
from palyra.config import Config
from palyra.core.backoff import Backoff, compute_delay_s
from palyra.core.channels import CODE_CHARS, CODE_LETTERS
from palyra.core.ids import NewId
from palyra.core.ports import Artifacts, CheckpointStore, LanguageModel, NowMs, RunBlocking
from palyra.core.redact import Redactor
from palyra.core.run_steps import Limits, Setting
from palyra.errors import InvalidParams, InvariantBroken
from palyra.models.scripted import Scripted
from palyra.models.scripts import parse_scripts
from palyra.store.artifacts import FileArtifacts
from palyra.store.checkpoints import FileCheckpoints
from palyra.store.journal import SqliteJournal
from palyra.store.keys import KeyRing
from palyra.store.memory_artifacts import MemoryArtifacts
from palyra.store.memory_checkpoints import MemoryCheckpoints
from palyra.tools.policy import CedarPolicy

MIB, DAY_MS = 1_048_576, 86_400_000
MODEL_BACKOFF = Backoff(base_s=0.5, cap_s=20.0)


def now_ms() -> int:
    """Unix time, integer milliseconds."""
    return time.time_ns() // 1_000_000


def new_code() -> str:
    """A fresh code for a sender that wants to be paired, 40 bits."""
    return "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_CHARS))


@dataclass(frozen=True, slots=True)
class Host:
    """What the daemon takes from the machine it runs on; a simulation hands in its own."""

    now_ms: NowMs = now_ms
    new_id: NewId = new_id
    new_code: Callable[[], str] = new_code
    random: Callable[[], float] = random.random  # noqa: S311 - spreads retries, guards nothing
    run_blocking: RunBlocking = run_sync
    new_thread: Callable[[str], Thread] = DedicatedThread
    is_closed: bool = False  # no processes, sockets or watched files: time is not real


def cedar_policy(config: Config) -> CedarPolicy:
    """Shipped and user rules; what is broken in the user's is said, and denied for.

    Raises InvalidParams for a directory that was named and is not there: its rules would be lost.
    """
    if config.policy.dir and not config.policy_dir.is_dir():
        raise InvalidParams(
            f"policy.dir = {config.policy.dir!r} is no directory: create it, or mend the setting",
            field="policy.dir",
        )
    return CedarPolicy(config.policy_dir, state=[config.paths.data_dir, config.policy_dir])


def scripted_model(config: Config) -> Scripted:
    """The model that needs no provider.  Raises InvalidParams for scripts it cannot play."""
    if not config.models.scripts:
        return Scripted(new_id)
    path = Path(config.models.scripts)
    try:
        return Scripted(new_id, parse_scripts(path.read_bytes()))
    except OSError as error:
        raise InvalidParams(f"models.scripts = {str(path)!r}: {error.strerror}") from None


def default_model(config: Config, models: Mapping[str, LanguageModel]) -> str:
    """The model of runs that name none.  Raises InvalidParams for one that is not there."""
    name = config.models.default
    if name not in models:
        raise InvalidParams(
            f"models.default = {name!r}: there is no such model, only {', '.join(sorted(models))}",
            field="models.default",
        )
    return name


def sqlite_journal(config: Config, keys: KeyRing) -> SqliteJournal:
    """The journal in the data directory."""
    return SqliteJournal(
        config.paths.data_dir / "journal.sqlite3",
        keys,
        now_ms=now_ms,
        synchronous=config.journal.synchronous,
    )


def file_stores(config: Config, host: Host) -> tuple[Artifacts, CheckpointStore]:
    """Where whole outputs and file checkpoints are kept: in the data directory."""
    if host.is_closed:
        return MemoryArtifacts(), MemoryCheckpoints()
    data_dir, bounds = config.paths.data_dir, config.files
    return (
        FileArtifacts(
            data_dir / "artifacts",
            max_bytes=bounds.artifacts_mib * MIB,
            max_age_ms=bounds.artifacts_days * DAY_MS,
            now_ms=host.now_ms,
        ),
        FileCheckpoints(
            data_dir / "checkpoints",
            max_bytes=bounds.checkpoints_mib * MIB,
            max_age_ms=bounds.checkpoints_days * DAY_MS,
            now_ms=host.now_ms,
        ),
    )


def run_limits(config: Config) -> Limits:
    """The bounds of runs."""
    runs = config.runs
    return Limits(
        wall_ms=runs.wall_ms,
        wall_counts_approvals=runs.wall_counts_approvals,
        approval_ms=runs.approval_ms,
        max_turns=runs.max_turns,
    )


def build_incidents(
    journal: JournalHandle, hub: HubHandle, redactor: Redactor, host: Host
) -> Incidents:
    """The book of what is wrong."""
    return Incidents(journal, hub, redactor, now_ms=host.now_ms, new_id=host.new_id)


def journal_spec(journal: JournalHandle, hub: Hub, incidents: Incidents, host: Host) -> ChildSpec:
    """The journal as the first child of the daemon."""
    return child_spec(
        journal,
        on_committed=hub.committed,
        on_opened=partial(report_opened, incidents),
        on_writing=partial(report_writing, incidents),
        new_thread=host.new_thread,
    )


def build_channels(
    journal: JournalHandle, hub: HubHandle, agents: Agents, redactor: Redactor, host: Host
) -> Channels:
    """Where messages of others come in."""
    return Channels(
        journal,
        hub,
        agents,
        redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        new_code=host.new_code,
    )


def blank_setting(redactor: Redactor, keys: KeyRing, limits: Limits, host: Host) -> Setting:
    """What every run starts from; `prepare` and `assemble` are the run's own."""

    def missing(*_: object) -> NoReturn:
        raise InvariantBroken("a run brings its own")

    return Setting(
        now_ms=host.now_ms,
        new_id=host.new_id,
        redact=redactor.redact_bytes,
        sign=keys.sign,
        prepare=missing,
        assemble=missing,
        jitter_ms=lambda attempt: round(
            1000 * compute_delay_s(MODEL_BACKOFF, attempt, host.random)
        ),
        provider=missing,
        limits=limits,
    )
