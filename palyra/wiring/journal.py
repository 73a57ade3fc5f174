"""Wiring of the journal and the file stores."""

from functools import partial

from palyra import __version__
from palyra.actors.backup import Backups
from palyra.actors.hub import Hub
from palyra.actors.journal.actor import JournalHandle, child_spec
from palyra.actors.kernel.child import ChildSpec
from palyra.actors.retention import RetentionStores
from palyra.config.load import Config
from palyra.config.sections import RetentionConfig
from palyra.core.journal.changes import OpenReport
from palyra.core.journal.retention import RetentionLimits
from palyra.core.ports import Artifacts, CheckpointStore, JournalStore
from palyra.services.incidents import Incidents, report_opened, report_writing
from palyra.store.backup.create import Home
from palyra.store.backup.home import HomeBackups
from palyra.store.files.artifacts import FileArtifacts
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from palyra.wiring.host import DAY_MS, MIB, Host, Ids, now_ms


def sqlite_journal(config: Config, keys: KeyRing) -> SqliteJournal:
    """Create the journal in the data directory."""
    return SqliteJournal(
        config.paths.data_dir / "journal.sqlite3",
        keys,
        now_ms=now_ms,
        synchronous=config.journal.synchronous,
    )


def build_backups(config: Config, store: JournalStore, keys: KeyRing, host: Host) -> Backups:
    """Build the backups of a data directory; of another store none can be made."""
    backups = None
    if isinstance(store, SqliteJournal):
        home = Home(
            data_dir=config.paths.data_dir,
            config_file=config.paths.config_file,
            policy_dir=config.policy_dir,
            workspaces=config.workspaces.values(),
            keys=keys,
            open_snapshot=store.open_snapshot,
            version=__version__,
        )
        backups = HomeBackups(home)
    return Backups(backups, run_blocking=host.run_blocking, now_ms=host.now_ms, new_id=host.new_id)


def build_retention_stores(config: Config, store: JournalStore, host: Host) -> RetentionStores:
    """Build the stores that retention looks after."""
    artifacts, checkpoints = _folders(config, host)
    source = store.retention() if isinstance(store, SqliteJournal) else None
    return RetentionStores(source, artifacts, checkpoints)


def retention_limits(bounds: RetentionConfig) -> RetentionLimits:
    """Return the configured bounds."""
    return RetentionLimits(
        tapes_ms=bounds.tapes_days * DAY_MS,
        tapes_bytes=bounds.tapes_mib * MIB,
        artifacts_ms=bounds.artifacts_days * DAY_MS,
        artifacts_bytes=bounds.artifacts_mib * MIB,
        checkpoints_ms=bounds.checkpoints_days * DAY_MS,
        checkpoints_bytes=bounds.checkpoints_mib * MIB,
        incidents_ms=bounds.incidents_days * DAY_MS,
        incidents=bounds.incidents,
        tasks_ms=bounds.tasks_days * DAY_MS,
        tasks=bounds.tasks,
    )


def file_stores(config: Config, host: Host) -> tuple[Artifacts, CheckpointStore]:
    """Create the stores of artifacts and file checkpoints in the data directory."""
    return _folders(config, host) if host.file_stores is None else host.file_stores


def _folders(config: Config, host: Host) -> tuple[FileArtifacts, FileCheckpoints]:
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


def _note_opened(incidents: Incidents, host: Host, report: OpenReport) -> None:
    if isinstance(host.new_id, Ids):
        for newest in report.newest_ids:
            host.new_id.note(newest)
    report_opened(incidents, report)


def journal_spec(journal: JournalHandle, hub: Hub, incidents: Incidents, host: Host) -> ChildSpec:
    """Return the spec of the journal, the first child of the daemon."""
    return child_spec(
        journal,
        on_committed=hub.committed,
        on_opened=partial(_note_opened, incidents, host),
        on_writing=partial(report_writing, incidents),
        new_thread=host.new_thread,
    )
