"""Wiring of incidents, run limits, the memory and the services that sessions and runs share."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from palyra.actors.hub import Hub
from palyra.actors.journal.actor import JournalHandle
from palyra.actors.run.approval import OpenApprovals
from palyra.actors.session.registry import ActorRegistry, SessionServices
from palyra.config.load import Config
from palyra.config.parts import find_missing
from palyra.core.context.references import PROJECT_FILES
from palyra.core.memory.vectors import EmbedderView
from palyra.core.ports import (
    Delegator,
    JournalStore,
    LanguageModel,
    MemoryEmbedder,
    MemoryIndexing,
    Notifier,
    Reranker,
)
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.environment import RunLimits
from palyra.core.trust.fences import fence_key
from palyra.errors import InvalidParams
from palyra.models.lexical_embeddings import text_similarity
from palyra.models.memory_embedders import HashedEmbedder, MiniLmEmbedder
from palyra.models.minilm import files as minilm
from palyra.models.procedure import ProcedurePlayer
from palyra.services.context.compaction import CompactionSettings, SessionCompactor
from palyra.services.context.history import ConversationHistory
from palyra.services.context.references import ContextSources
from palyra.services.learning.candidates import Reflections
from palyra.services.learning.procedures import Procedures, Shown
from palyra.services.memory.embedders import LocalEmbedder, ProviderEmbedder
from palyra.services.memory.embeddings import MeteredEmbeddings
from palyra.services.memory.index import SharedMemoryIndex
from palyra.services.memory.items import Memories
from palyra.services.memory.recall import MemoryRecall
from palyra.services.memory.reranking import MeteredReranker
from palyra.services.memory.search import MemorySearch
from palyra.services.policy.gate import Gate
from palyra.services.policy.grants import Grants
from palyra.services.registry.agents import Agents
from palyra.services.registry.channels import Channels
from palyra.services.upkeep.admission import Admission, VolatileSuspension
from palyra.services.upkeep.incidents import Incidents
from palyra.services.usage.token_factors import TokenFactors
from palyra.store.files.suspension import SuspensionFile
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from palyra.store.sqlite.memory_search import IndexQueries
from palyra.store.sqlite.word_search import WordSearch
from palyra.tools.files.workspaces import PerWorkspace
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.procedures import PROCEDURES, procedure_tools
from palyra.wiring.host import Host
from palyra.wiring.models import Modelset, build_router, memory_embedder
from palyra.wiring.tools import Toolset
from palyra.wiring.usage import build_budgets


def run_limits(config: Config) -> RunLimits:
    """Return the configured limits of runs."""
    runs = config.runs
    return RunLimits(
        wall_ms=runs.wall_ms,
        wall_counts_approvals=runs.wall_counts_approvals,
        approval_ms=runs.approval_ms,
        max_turns=runs.max_turns,
    )


def build_admission(config: Config, host: Host) -> Admission:
    """Build the admission of runs with the stored suspension.  Blocks.  Raises Unavailable."""
    store = VolatileSuspension() if host.is_closed else SuspensionFile(config.paths.data_dir)
    return Admission(store, host.now_ms, host.run_blocking)


def compaction_settings(config: Config, models: Mapping[str, LanguageModel]) -> CompactionSettings:
    """Return when sessions are summarised.  Raises InvalidParams for an unknown model."""
    runs = config.runs
    if runs.compaction_model and runs.compaction_model not in models:
        raise InvalidParams(
            f"runs.compaction_model names {runs.compaction_model!r}, which no provider has",
            field="runs.compaction_model",
        )
    return CompactionSettings(
        history_tokens=runs.history_tokens,
        trigger_bps=runs.compact_at_percent * 100,
        model=runs.compaction_model,
    )


def build_incidents(
    journal: JournalHandle, hub: Notifier, redactor: Redactor, host: Host
) -> Incidents:
    """Build the incidents service."""
    return Incidents(journal, hub, redactor, now_ms=host.now_ms, new_id=host.new_id)


def build_memory_embedder(
    config: Config, host: Host, modelset: Modelset, services: SessionServices
) -> LocalEmbedder | ProviderEmbedder:
    """Build the embedder of the memory, metered if it is a provider's.

    MiniLM with a file that is missing or damaged is not replaced by the hashed embedder: that would
    embed all items again, and once more after the repair.  Searches use words until then.
    """
    if modelset.memory is not None:
        metered = MeteredEmbeddings(
            modelset.memory, services.budgets, services.journal, host.new_id
        )
        return ProviderEmbedder(metered, host.run_blocking)
    data_dir, wanted = config.paths.data_dir, memory_embedder(config)
    if wanted == "minilm" or (wanted == "auto" and minilm.has_any(data_dir)):
        fault = minilm.find_fault(data_dir)
        return LocalEmbedder(MiniLmEmbedder(data_dir), host.run_blocking, failure=fault)
    return LocalEmbedder(HashedEmbedder(), host.run_blocking)


def build_memory_reranker(
    host: Host, modelset: Modelset, services: SessionServices
) -> MeteredReranker | None:
    """Build the re-ranker of the memory; None without a configured one."""
    if modelset.reranker is None:
        return None
    return MeteredReranker(modelset.reranker, services.budgets, services.journal, host.new_id)


def view_embedder(configured: str, embedder: LocalEmbedder | ProviderEmbedder) -> EmbedderView:
    """Return the embedder in use, and the reason why it is not the one that is wanted."""
    if missing := find_missing("vectors"):
        in_use = "words" if configured == "auto" else None
        return EmbedderView(configured=configured, in_use=in_use, reason=missing)
    if embedder.failure:
        return EmbedderView(configured=configured, reason=embedder.failure)
    if configured != "auto":
        return EmbedderView(configured=configured, in_use=configured)
    if embedder.is_semantic:
        return EmbedderView(configured=configured, in_use="minilm")
    reason = "MiniLM is not installed: `palyra models install minilm`"
    return EmbedderView(configured=configured, in_use="hashed", reason=reason)


class MemoryIndexes(NamedTuple):
    """The indexes of the items and of the conversations."""

    items: SharedMemoryIndex
    conversations: SharedMemoryIndex

    def by_upkeep(self) -> dict[str, SharedMemoryIndex]:
        """Return the indexes by the child of the daemon that keeps them up (`actors.memory`)."""
        return {"memory": self.items, "conversations": self.conversations}


def build_memory_indexes(
    config: Config,
    store: JournalStore,
    journal: JournalHandle,
    find_embedder: Callable[[], MemoryEmbedder],
) -> MemoryIndexes | None:
    """Build the indexes over a journal file; None for another store.

    The embedder is found when it is first needed: a provider's is built after the memory.
    """
    if not isinstance(store, SqliteJournal):
        return None
    folder, turns = config.paths.data_dir / "vectors", store.turns()

    def make_index(source: IndexQueries, name: str, embedder: MemoryEmbedder) -> MemoryIndexing:
        if missing := find_missing("vectors"):
            return WordSearch(source, folder / name, missing)
        from palyra.store.vectors.search import IndexedMemory  # noqa: PLC0415 - imports numpy

        return IndexedMemory(source, folder / name, embedder)

    return MemoryIndexes(
        SharedMemoryIndex(
            partial(make_index, store, "memory.index"),
            journal,
            find_embedder,
            check_stored=store.find_index_damage,
        ),
        SharedMemoryIndex(
            partial(make_index, turns, "conversations.index"),
            journal,
            find_embedder,
            turns.plan_turns,
            check_stored=turns.find_index_damage,
        ),
    )


def build_memories(
    journal: JournalHandle,
    redactor: Redactor,
    host: Host,
    indexes: MemoryIndexes | None,
    find_reranker: Callable[[], Reranker | None],
) -> Memories:
    """Build the memory and its search; the re-ranker is found when it is first needed."""
    search = MemorySearch(
        journal,
        redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        index=None if indexes is None else indexes.items,
        conversations=None if indexes is None else indexes.conversations,
    )
    search.find_reranker = find_reranker
    return Memories(
        journal=journal,
        search=search,
        redactor=redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        run_blocking=host.run_blocking,
        similarity=text_similarity,
    )


def build_services(  # noqa: PLR0913 - all by name, and each a part of its own
    config: Config,
    *,
    host: Host,
    keys: KeyRing,
    policy: CedarPolicy,
    toolset: Toolset,
    memories: Memories,
    modelset: Modelset,
    registry: ActorRegistry,
    journal: JournalHandle,
    hub: Hub,
    redactor: Redactor,
    incidents: Incidents,
    instance_id: str,
) -> SessionServices:
    """Build the services of sessions and runs."""
    toolbox, models = toolset.toolbox, modelset.models
    grants = Grants(journal, host.now_ms)
    approvals = OpenApprovals(hub, grants, host.now_ms)
    budgets = build_budgets(config, hub, host)
    agents = Agents(journal, toolbox, models, redactor, host.now_ms)
    gate = Gate(
        toolbox,
        policy,
        approvals.count,
        grants.find,
        grants.holds,
        modes=registry.modes,
        find_accepted=registry.find_accepted,
    )
    limits = run_limits(config)
    fence = fence_key(keys.sign)
    compaction = compaction_settings(config, models)
    return SessionServices(
        journal=journal,
        hub=hub,
        toolbox=toolbox,
        artifacts=toolset.artifacts,
        gate=gate,
        models=models,
        player=ProcedurePlayer(host.new_id),
        router=build_router(config, models, modelset, budgets),
        agents=agents,
        channels=Channels(
            journal,
            hub,
            agents,
            redactor,
            now_ms=host.now_ms,
            new_id=host.new_id,
            new_code=host.new_code,
        ),
        approvals=approvals,
        grants=grants,
        budgets=budgets,
        incidents=incidents,
        histories=ConversationHistory(journal, compaction.loaded_tokens),
        compactor=SessionCompactor(
            settings=compaction,
            models=models,
            budgets=budgets,
            journal=journal,
            run_blocking=host.run_blocking,
            new_id=host.new_id,
        ),
        sources=ContextSources(
            journal=journal,
            toolbox=toolbox,
            gate=gate,
            run_blocking=host.run_blocking,
            now_ms=host.now_ms,
            has_names=PerWorkspace(toolset.workspaces, lambda each: each.has_any),
            project_files=PROJECT_FILES if config.context.project_files else (),
            read_diffs=toolset.read_diffs,
            recall=MemoryRecall(memories.search) if config.memory.recall else None,
            skills=toolset.text_skills if config.context.text_skills else None,
        ),
        factors=TokenFactors(),
        procedures=Procedures(
            journal, run_blocking=host.run_blocking, now_ms=host.now_ms, new_id=host.new_id
        ),
        reflections=Reflections(
            host.new_id,
            is_on=config.learning.mode != "off",
            sample_bps=config.learning.sample_bps,
            cooldown_ms=config.learning.cooldown_ms,
        ),
        registry=registry,
        redactor=redactor,
        fence_key=fence,
        sign=keys.sign,
        jitter_ms=host.model_backoff_ms,
        limits=limits,
        run_blocking=host.run_blocking,
        now_ms=host.now_ms,
        new_id=host.new_id,
        instance_id=instance_id,
        queue_cap=config.runs.queue_cap,
        max_open=config.runs.max_open,
        workspaces=toolset.workspaces,
        debounce_ms=config.runs.debounce_ms,
    )


def show_procedures(
    services: SessionServices, toolset: Toolset, delegator: Delegator
) -> Callable[[Shown], None]:
    """Return a function that replaces the tools of procedures."""

    def show(shown: Shown) -> None:
        tools = procedure_tools(
            shown,
            delegator,
            redact=services.redactor.redact_text,
            note_use=services.procedures.note_use,
        )
        if tools or services.toolbox.catalogue().has_owned:
            toolset.toolbox.put(PROCEDURES, tools)

    return show
