"""Wiring of self-healing: modes from the configuration, remedies by name, the watchdog."""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog

from palyra.actors import watchdog as actor
from palyra.actors.journal.actor import JournalHandle
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.session.registry import SessionServices
from palyra.actors.session.sessions import Sessions
from palyra.actors.task_queue import requeue_task
from palyra.actors.watchdog import Attempt, Watchdog
from palyra.config.load import Config
from palyra.config.paths import Paths
from palyra.core.access import Caller
from palyra.core.healing.rules import Remedy, kind_of, subject_of
from palyra.core.incident.kinds import CLOCK_AHEAD, SESSION_SET_ASIDE
from palyra.core.journal.records import IncidentRecord
from palyra.core.ports import Artifacts
from palyra.secrets.service import SecretService
from palyra.services.memory.index import SharedMemoryIndex
from palyra.services.memory.items import Memories
from palyra.services.task.queue import TaskQueue
from palyra.services.upkeep.healing import DOMAINS, HealingModes, checkpoint_wal, reverify_journal
from palyra.store.files.age_clock import AgeClock
from palyra.store.files.artifacts import FileArtifacts
from palyra.store.files.kept_files import SAVED, Check, KeptFiles, is_static
from palyra.wiring.models import Modelset

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger("palyra.watchdog")
RestartChild = Callable[[str, str], bool]


def healing_modes(config: Config) -> HealingModes:
    """Return the configured modes."""
    given = config.healing
    named = {domain: getattr(given, domain) for domain in DOMAINS}
    return HealingModes(
        given.mode,
        {domain: mode for domain, mode in named.items() if mode != "default"},
        stuck_s=given.stuck_ms / 1000,
        sweep_s=given.sweep_ms / 1000 or None,
    )


def build_watchdog(  # noqa: PLR0913 - all by name
    modes: HealingModes,
    services: SessionServices,
    work: DynamicSupervisor,
    *,
    sessions: Sessions,
    journal: JournalHandle,
    queue: TaskQueue,
    indexes: Mapping[str, SharedMemoryIndex],
    memories: Memories,
    artifacts: Artifacts,
    modelset: Modelset,
    ages: AgeClock,
    files: KeptFiles | None,
    restart_child: RestartChild,
) -> Watchdog:
    """Build the watchdog with its remedies."""
    book, registry = services.incidents, services.registry
    remedies: dict[Remedy, Attempt] = {
        "end_call": partial(actor.end_calls, registry),
        "cancel_run": partial(actor.cancel_run, registry),
        "resume_run": partial(actor.resume_run, registry, work),
        "revive_session": lambda key: sessions.revive(subject_of(key)),
        "requeue_task": partial(requeue_task, queue),
        "expire_approval": partial(actor.expire_approval, services.approvals),
        "trip_provider": partial(_trip_provider, modelset),
        "rebuild_vectors": partial(_rebuild_vectors, indexes, memories),
        "restart_actor": partial(_restart_upkeep, restart_child),
        "reverify_journal": partial(reverify_journal, journal, book),
        "checkpoint_wal": partial(_checkpoint_wal, journal),
    }
    book.on_resolved = partial(_follow_resolution, sessions, ages)
    return Watchdog(
        incidents=book,
        modes=modes,
        registry=registry,
        approvals=services.approvals,
        journal=journal,
        remedies=remedies,
        queue=queue,
        indexes=indexes,
        ages=None if ages.path is None else ages,
        files=files,
        artifacts=artifacts if isinstance(artifacts, FileArtifacts) else None,
        providers=modelset.names,
        find_health=modelset.look,
    )


def watch_home(paths: Paths, secrets: SecretService) -> KeptFiles:
    """Watch the small files that a start needs; the journal watches itself and its keys."""
    keys = paths.data_dir / "keys"
    static = ("operator.token", "vault.key")
    checks: dict[Path, Check] = {
        **{keys / name: is_static for name in static},
        paths.data_dir / "daemon.lock": is_static,
        paths.data_dir / "vault.sealed": secrets.is_vault,
        paths.data_dir / "skills" / "skills.json": _is_json,
        paths.config_file: _is_toml,
    }
    return KeptFiles(checks, paths.data_dir / SAVED)


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _is_toml(content: bytes) -> bool:
    try:
        tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return True


def _follow_resolution(sessions: Sessions, ages: AgeClock, incident: IncidentRecord) -> None:
    """Let a session go on, or believe the clock, when an operator resolves its incident.

    Raises Overloaded, Unavailable, and the incident stays open.
    """
    if incident.key == CLOCK_AHEAD:
        ages.confirm()
    elif kind_of(incident.key) == SESSION_SET_ASIDE:
        outcome = sessions.revive(subject_of(incident.key))
        log.info("a session is revived", key=incident.key, outcome=outcome)


def _trip_provider(modelset: Modelset, key: str) -> str:
    if modelset.trip is None:
        return "no provider is configured"
    modelset.trip(subject_of(key))
    return "its breaker is open for another 30 s"


async def _rebuild_vectors(
    indexes: Mapping[str, SharedMemoryIndex], memories: Memories, key: str
) -> str:
    index = indexes[subject_of(key)]
    if index.stored_damage:
        await memories.rebuild(Caller(principal=actor.DAEMON, role="operator", token_id=""))
        return "its words were written anew, and a search finds them; its upkeep makes the vectors"
    await index.rebuild()
    return "its upkeep builds another index"


def _restart_upkeep(restart_child: RestartChild, key: str) -> str:
    was_running = restart_child(subject_of(key), "its index stayed damaged")
    return "its upkeep restarts" if was_running else "its upkeep does not run"


async def _checkpoint_wal(journal: JournalHandle, _key: str) -> str:
    return await checkpoint_wal(journal, journal.request_checkpoint)
