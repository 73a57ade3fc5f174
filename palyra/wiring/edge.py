"""Wiring of the edge: the services that methods call, the listener, the pages of HTTP."""

from collections.abc import Callable, Container, Sequence
from functools import partial
from urllib.parse import urlsplit

from palyra import __version__
from palyra.actors.devices import Devices
from palyra.actors.hub import Hub
from palyra.actors.kernel.child import ChildSnapshot
from palyra.actors.kernel.loop_lag import LoopLag
from palyra.actors.notices import Notices
from palyra.actors.session.registry import SessionServices
from palyra.actors.session.sessions import Sessions
from palyra.config.load import Config
from palyra.core.learning.candidates import LearningRules, Thresholds
from palyra.core.memory.vectors import EmbedderView
from palyra.core.ports import EmbeddingService
from palyra.errors import InvalidParams
from palyra.net.api.asyncapi import asyncapi_document
from palyra.net.api.idempotency import IdempotencyStore
from palyra.net.api.logins import Logins
from palyra.net.api.method import Backend, Drain
from palyra.net.api.methods.table import METHODS
from palyra.net.api.rate_limit import limits_of
from palyra.net.api.tokens import authenticate
from palyra.net.connection.connection import serve_connection
from palyra.net.http.compat.sources import CompatSources
from palyra.net.http.late import HttpSources, LateHttp
from palyra.net.http.metrics import (
    read_budgets,
    read_incidents,
    read_journal,
    read_loop,
    read_models,
    read_problems,
    read_state,
    read_stranded,
    read_tally,
    read_tree,
)
from palyra.net.protocol.notifications import State
from palyra.net.server.accept import EdgeServer, EdgeSettings
from palyra.net.server.listener import EdgeCounters
from palyra.net.server.request_head import host_of, without_default_port
from palyra.net.server.websocket import WebSocketLimits
from palyra.operations.approvals import Approvals
from palyra.operations.backup import Backups
from palyra.operations.checkpoints import Checkpointer
from palyra.operations.purge import DataRights
from palyra.operations.retention import Retention, RetentionStores
from palyra.operations.runs import Gateway
from palyra.services.learning.candidates import Learning
from palyra.services.learning.suggestions import RuleSuggestions
from palyra.services.memory.documents import AllDocuments, Documents
from palyra.services.memory.embeddings import MeteredEmbeddings, UnmeteredEmbeddings
from palyra.services.memory.items import Memories
from palyra.services.policy.previews import Previews
from palyra.services.session.artifacts import ArtifactService
from palyra.services.session.run_changes import RunChanges
from palyra.services.upkeep.configuration import Configuration
from palyra.services.upkeep.healing import HealingModes
from palyra.services.upkeep.log_history import LogHistory
from palyra.services.usage.reports import UsageService
from palyra.store.journal.keys import KeyRing
from palyra.tools.files.documents import WorkspaceDocuments
from palyra.tools.files.workspaces import PerWorkspace
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.policy.suggested_files import SuggestedPolicyFiles
from palyra.wiring.host import Host
from palyra.wiring.journal import retention_limits
from palyra.wiring.live_settings import LiveSettings
from palyra.wiring.models import EMBEDDED, Modelset
from palyra.wiring.tasks import TaskParts
from palyra.wiring.tools import Toolset


def build_backend(  # noqa: PLR0913 - all by name, and each a part of its own
    config: Config,
    *,
    host: Host,
    keys: KeyRing,
    services: SessionServices,
    toolset: Toolset,
    memories: Memories,
    documents: AllDocuments,
    learning: Learning,
    gateway: Gateway,
    sessions: Sessions,
    usage: UsageService,
    backups: Backups,
    kept: RetentionStores,
    tasks: TaskParts,
    notices: Notices,
    devices: Devices,
    policy: CedarPolicy,
    healing: HealingModes,
    hub: Hub,
    settings: LiveSettings,
    drain: Drain,
    log_history: LogHistory,
    state: Callable[[], State],
    problems: Callable[[], Sequence[str]],
    embedder: Callable[[], EmbedderView],
    tree: Callable[[], ChildSnapshot],
) -> Backend:
    """Build the services that methods call."""
    data_rights = DataRights(
        services,
        sessions,
        gateway,
        memories,
        documents=documents,
        files=toolset.checkpoints,
        tasks=tasks.tasks,
    )
    return Backend(
        gateway=gateway,
        sessions=sessions,
        checkpoints=Checkpointer(services, sessions, gateway, toolset.checkpoints, documents),
        data_rights=data_rights,
        retention=Retention(
            retention_limits(config.retention),
            kept,
            data_rights,
            services,
        ),
        backups=backups,
        approvals=Approvals(services.journal, services.approvals),
        previews=Previews(
            services.journal,
            toolset.toolbox,
            services.gate,
            services.redactor.redact_text,
            host.run_blocking,
        ),
        grants=services.grants,
        budgets=usage,
        agents=services.agents,
        channels=services.channels,
        configuration=Configuration(settings.file, host.run_blocking, settings.refresh),
        incidents=services.incidents,
        healing=healing,
        memories=memories,
        learning=learning,
        memory_search=memories.search,
        files=ArtifactService(
            toolset.artifacts,
            toolset.checkpoints,
            sessions.get,
            host.run_blocking,
        ),
        changes=RunChanges(
            services.journal,
            toolset.checkpoints,
            services.redactor.redact_text,
            host.now_ms,
            host.run_blocking,
            keeps_files=services.gate.keeps_files,
        ),
        documents=documents,
        workspaces=toolset.workspaces,
        tasks=tasks.tasks,
        schedules=tasks.schedules,
        skills=toolset.skills,
        text_skills=toolset.text_skills,
        mcp=toolset.mcp,
        secrets=toolset.secrets,
        notices=notices,
        devices=devices,
        admission=gateway.admission,
        drain=drain,
        log_history=log_history,
        suggestions=RuleSuggestions(
            services.journal,
            services.gate,
            policy,
            SuggestedPolicyFiles(config.policy_dir),
            run_blocking=host.run_blocking,
            now_ms=host.now_ms,
        ),
        models=services.router,
        hub=hub,
        journal=services.journal,
        receipts=IdempotencyStore(services.journal, host.now_ms),
        logins=Logins(services.journal, now_ms=host.now_ms, new_id=host.new_id),
        authenticate=partial(authenticate, journal=services.journal, now_ms=host.now_ms),
        limits=limits_of(config),
        instance_id=services.instance_id,
        version=__version__,
        public_key=keys.public_key,
        former_keys=keys.former,
        sign=keys.sign,
        redact=services.redactor.redact_bytes,
        run_blocking=host.run_blocking,
        state=state,
        count_stranded=lambda: len(services.registry.stranded),
        problems=problems,
        absent=toolset.absent,
        embedder=embedder,
        tree=tree,
        now_ms=host.now_ms,
        new_id=host.new_id,
    )


def build_documents(
    config: Config,
    services: SessionServices,
    toolset: Toolset,
    memories: Memories,
    *,
    hub: Hub,
    host: Host,
) -> AllDocuments:
    """Build the documents of each workspace, whose entries follow the memory."""
    documents = AllDocuments(
        PerWorkspace(
            toolset.checkpoints.by_name,
            lambda checkpoints: Documents(
                services.journal,
                WorkspaceDocuments(checkpoints.workspace, checkpoints),
                hub,
                services.redactor,
                run_blocking=host.run_blocking,
                now_ms=host.now_ms,
                new_id=host.new_id,
                writes=config.documents.write,
                keep_typed=memories.keep_typed,
            ),
        )
    )
    memories.forgotten.append(documents.forget_items)
    return documents


CHEAPEST = "cheapest"


def check_learning(config: Config, models: Container[str]) -> None:
    """Raise InvalidParams for an unknown model or thresholds out of order."""
    learning = config.learning
    if learning.model not in {"", CHEAPEST} and learning.model not in models:
        raise InvalidParams(
            f"learning.model names {learning.model!r}, which no provider has",
            field="learning.model",
        )
    for kind in ("fact", "preference"):
        if getattr(learning, f"{kind}_auto_bps") < getattr(learning, f"{kind}_review_bps"):
            raise InvalidParams(
                f"learning.{kind}_auto_bps is below learning.{kind}_review_bps: raise it, or lower "
                "the other",
                field=f"learning.{kind}_auto_bps",
            )


def build_learning(
    config: Config,
    services: SessionServices,
    memories: Memories,
    documents: Documents,
    host: Host,
) -> Learning:
    """Build learning.  Raises InvalidParams for an unknown model or thresholds out of order."""
    check_learning(config, services.models)
    learning = config.learning
    return Learning(
        services.journal,
        memories,
        documents,
        services.redactor,
        rules=LearningRules(
            mode=learning.mode,
            fact=Thresholds(learning.fact_review_bps, learning.fact_auto_bps),
            preference=Thresholds(learning.preference_review_bps, learning.preference_auto_bps),
        ),
        model=(
            services.router.find_cheapest if learning.model == CHEAPEST else lambda: learning.model
        ),
        models=services.models,
        budgets=services.budgets,
        procedures=services.procedures,
        run_blocking=host.run_blocking,
        now_ms=host.now_ms,
        new_id=host.new_id,
    )


def build_edge(
    config: Config,
    backend: Backend,
    services: SessionServices,
    loop_lag: LoopLag,
    embeddings: EmbeddingService,
) -> EdgeServer:
    """Build the listener and its connections."""
    server = config.server
    public = urlsplit(server.public_url.lower())
    origin = without_default_port(f"{public.scheme}://{public.netloc}") if public.netloc else None
    hosts = {name.lower() for name in server.allowed_hosts}
    settings = EdgeSettings(
        host=server.host,
        port=server.port,
        hosts=frozenset(hosts if origin is None else hosts | {host_of(origin)}),
        origins=frozenset(server.allowed_origins),
        public_origin=origin,
        max_connections=server.max_connections,
        websocket=WebSocketLimits(max_message_bytes=server.max_message_bytes),
    )
    serve, tally = partial(serve_connection, backend=backend), EdgeCounters()
    sources = HttpSources(
        version=__version__,
        state=backend.state,
        is_writable=lambda: services.journal.is_writable,
        problems=backend.problems,
        count_incidents=lambda: services.incidents.open_count,
        logins=backend.logins,
        compat=CompatSources(backend, services.models, embeddings, config.models.embedding_aliases),
        authenticate=backend.authenticate,
        names=lambda: edge.names(),  # noqa: PLW0108 - `edge` is assigned later
        asyncapi=lambda: asyncapi_document(METHODS, edge.binding.url, __version__),
        metrics=(
            lambda: read_state(backend.state()),
            lambda: read_journal(services.journal),
            lambda: read_stranded(backend.count_stranded()),
            lambda: read_problems(len(backend.problems())),
            lambda: read_incidents(services.incidents.severities),
            lambda: read_loop(loop_lag),
            lambda: read_budgets(services.budgets),
            lambda: read_models(services.router.standings()),
            lambda: read_tally(tally),
            lambda: read_tree(backend.tree()),
        ),
    )
    edge = EdgeServer(settings, serve, LateHttp(sources), tally, backend.redact)
    backend.logins.address = lambda: f"{server.public_url.rstrip('/') or edge.binding.local_url}/"
    return edge


def build_embeddings(
    config: Config, host: Host, modelset: Modelset, services: SessionServices
) -> EmbeddingService:
    """Return the embedding service, metered if its model is a provider's."""
    model = modelset.embeddings
    if config.models.embeddings == EMBEDDED:
        return UnmeteredEmbeddings(model)
    return MeteredEmbeddings(model, services.budgets, services.journal, host.new_id)
