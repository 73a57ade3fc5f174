"""Wiring of the journal and the file stores."""

from functools import partial

from palyra import __version__
from palyra.actors.hub import Hub
from palyra.actors.journal.actor import JournalHandle, child_spec
from palyra.actors.kernel.child import ChildSpec
from palyra.config.load import Config
from palyra.config.sections import RetentionConfig
from palyra.core.ids import time_ms_of
from palyra.core.journal.changes import OpenReport
from palyra.core.journal.retention import RetentionLimits
from palyra.core.ports import JournalStore
from palyra.operations.backup import Backups
from palyra.services.upkeep.incidents import Incidents, report_opened, report_writing
from palyra.store.backup.create import Home
from palyra.store.backup.home import HomeBackups
from palyra.store.files.age_clock import AgeClock
from palyra.store.files.artifacts import FileArtifacts
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.files.retention import FolderBounds
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from palyra.store.sqlite.retention import RetentionQueries
from palyra.tools.files.workspaces import PerWorkspace, Workspaces
from palyra.wiring.host import DAY_MS, MIB, Host, Ids, now_ms


def sqlite_journal(config: Config, keys: KeyRing, ages: AgeClock) -> SqliteJournal:
    """Create the journal in the data directory."""
    return SqliteJournal(
        config.paths.data_dir / "journal.sqlite3",
        keys,
        now_ms=now_ms,
        age_ms=ages.age_ms,
        synchronous=config.journal.synchronous,
    )


def build_backups(
    config: Config, store: JournalStore, keys: KeyRing, host: Host, workspaces: Workspaces
) -> Backups:
    """Build the backups of a data directory; of another store none can be made."""
    backups = None
    if isinstance(store, SqliteJournal):
        home = Home(
            data_dir=config.paths.data_dir,
            config_file=config.paths.config_file,
            policy_dir=config.policy_dir,
            workspaces=PerWorkspace(workspaces, lambda each: each.root).values(),
            keys=keys,
            open_snapshot=store.open_snapshot,
            version=__version__,
        )
        backups = HomeBackups(home)
    return Backups(backups, run_blocking=host.run_blocking, now_ms=host.now_ms, new_id=host.new_id)


def file_stores(
    config: Config, store: JournalStore, ages: AgeClock
) -> tuple[FileArtifacts, FileCheckpoints]:
    """Create the stores of artifacts and file checkpoints in the data directory."""
    data_dir, bounds = config.paths.data_dir, config.retention

    def rules(mib: int, days: int) -> FolderBounds:
        found = FolderBounds(mib * MIB, days * DAY_MS, ages.age_ms)
        if isinstance(store, SqliteJournal):
            return found._replace(find_in_use=store.retention().find_in_use)
        return found

    source = find_source(store)
    named = {} if source is None else {"find_named": source.find_artifact}
    return (
        FileArtifacts(
            data_dir / "artifacts", rules(bounds.artifacts_mib, bounds.artifacts_days), **named
        ),
        FileCheckpoints(
            data_dir / "checkpoints", rules(bounds.checkpoints_mib, bounds.checkpoints_days)
        ),
    )


def find_source(store: JournalStore) -> RetentionQueries | None:
    """Return the queries of retention; None if the journal is not in files."""
    return store.retention() if isinstance(store, SqliteJournal) else None


def retention_limits(bounds: RetentionConfig) -> RetentionLimits:
    """Return the configured bounds."""
    return RetentionLimits(
        tapes_ms=bounds.tapes_days * DAY_MS,
        tapes_bytes=bounds.tapes_mib * MIB,
        incidents_ms=bounds.incidents_days * DAY_MS,
        incidents=bounds.incidents,
        tasks_ms=bounds.tasks_days * DAY_MS,
        tasks=bounds.tasks,
    )


def _note_opened(incidents: Incidents, host: Host, ages: AgeClock, report: OpenReport) -> None:
    ages.begin(max(map(time_ms_of, report.newest_ids), default=0))
    if isinstance(host.new_id, Ids):
        for newest in report.newest_ids:
            host.new_id.note(newest)
    report_opened(incidents, report)


def journal_spec(
    journal: JournalHandle, hub: Hub, incidents: Incidents, host: Host, ages: AgeClock
) -> ChildSpec:
    """Return the spec of the journal, the first child of the daemon."""
    return child_spec(
        journal,
        on_committed=hub.committed,
        on_opened=partial(_note_opened, incidents, host, ages),
        on_writing=partial(report_writing, incidents),
        new_thread=host.new_thread,
    )
