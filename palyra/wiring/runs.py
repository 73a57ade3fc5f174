"""Wiring of run limits, incidents, channels and the memory."""

from palyra.actors.journal.actor import JournalHandle
from palyra.config.load import Config
from palyra.core.ports import Embedder, JournalStore, MemoryIndexing, Notifier
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.environment import RunLimits
from palyra.models.lexical_embeddings import text_similarity
from palyra.models.memory_embedders import HashedEmbedder, MiniLmEmbedder
from palyra.models.minilm.files import is_installed
from palyra.services.agents import Agents
from palyra.services.channels import Channels
from palyra.services.incidents import Incidents
from palyra.services.memory import Memories
from palyra.services.memory_index import SharedMemoryIndex
from palyra.services.memory_search import MemorySearch
from palyra.store.sqlite.journal import SqliteJournal
from palyra.wiring.host import Host


def run_limits(config: Config) -> RunLimits:
    """Return the configured limits of runs."""
    runs = config.runs
    return RunLimits(
        wall_ms=runs.wall_ms,
        wall_counts_approvals=runs.wall_counts_approvals,
        approval_ms=runs.approval_ms,
        max_turns=runs.max_turns,
    )


def build_incidents(
    journal: JournalHandle, hub: Notifier, redactor: Redactor, host: Host
) -> Incidents:
    """Build the incidents service."""
    return Incidents(journal, hub, redactor, now_ms=host.now_ms, new_id=host.new_id)


def build_memory_index(
    config: Config, store: JournalStore, journal: JournalHandle
) -> SharedMemoryIndex | None:
    """Build the index over a journal file; None for another store."""
    if not isinstance(store, SqliteJournal):
        return None
    data_dir, wanted = config.paths.data_dir, config.memory.embedder
    is_minilm = wanted == "minilm" or (wanted == "auto" and is_installed(data_dir))
    embedder: Embedder = MiniLmEmbedder(data_dir) if is_minilm else HashedEmbedder()

    def make_index() -> MemoryIndexing:
        from palyra.store.vectors.search import IndexedMemory  # noqa: PLC0415 - imports numpy

        return IndexedMemory(store, data_dir / "vectors" / "memory.index", embedder)

    return SharedMemoryIndex(make_index, journal)


def build_memories(
    journal: JournalHandle, redactor: Redactor, host: Host, index: SharedMemoryIndex | None
) -> Memories:
    """Build the memory and its search."""
    search = MemorySearch(journal, redactor, now_ms=host.now_ms, new_id=host.new_id, index=index)
    return Memories(
        journal=journal,
        search=search,
        redactor=redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        run_blocking=host.run_blocking,
        similarity=text_similarity,
    )


def build_channels(
    journal: JournalHandle, hub: Notifier, agents: Agents, redactor: Redactor, host: Host
) -> Channels:
    """Build the service of channels and pairings."""
    return Channels(
        journal,
        hub,
        agents,
        redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        new_code=host.new_code,
    )
