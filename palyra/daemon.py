"""One daemon: its parts, its supervision tree, its start and its drain.

The parts are built by `palyra.wiring`; the tree is drawn in docs/architecture.md.  The parts of a
process (the edge, signals, stdio) are passed in by `process.serve`; an embedded daemon has none of
them.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import structlog
import trio

from palyra.actors import config_watch, incident_writer, memory, watchdog
from palyra.actors import hub as hub_actor
from palyra.actors.devices import Devices
from palyra.actors.journal import actor as journal_actor
from palyra.actors.journal import integrity_check
from palyra.actors.kernel.child import ChildSnapshot, ChildSpec, Exit
from palyra.actors.kernel.loop_lag import LoopLag
from palyra.actors.kernel.supervisor import Supervisor
from palyra.actors.session import registry as work_branch
from palyra.actors.session.recovery import recovery
from palyra.actors.session.registry import ActorRegistry
from palyra.actors.session.sessions import Sessions
from palyra.config.load import Config
from palyra.core.journal.records import TokenRecord
from palyra.core.journal.retention import RetentionReport
from palyra.core.memory.vectors import EmbedderView
from palyra.core.ports import JournalStore
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.delegation import DELEGATE
from palyra.errors import InvariantBroken
from palyra.net.api.method import Drain
from palyra.net.api.tokens import admit_operator
from palyra.net.connection.connection import serve_connection
from palyra.net.protocol import notifications
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.net.server.accept import EdgeServer
from palyra.operations.delegation import Delegations
from palyra.operations.retention import RetentionStores
from palyra.operations.runs import Gateway
from palyra.services.memory.embedders import LocalEmbedder, ProviderEmbedder
from palyra.services.memory.reranking import MeteredReranker
from palyra.services.upkeep.log_history import LogHistory
from palyra.services.usage.reports import UsageService
from palyra.store.files.age_clock import AgeClock
from palyra.store.journal.keys import MIN_TOKEN_CHARS, KeyRing
from palyra.tools.delegation import delegation_tools
from palyra.tools.memory import memory_tools
from palyra.tools.plan import plan_tools
from palyra.tools.questions import question_tools
from palyra.tools.toolbox import Tool
from palyra.wiring.configuration import check_config
from palyra.wiring.edge import (
    build_backend,
    build_documents,
    build_edge,
    build_embeddings,
    build_learning,
)
from palyra.wiring.healing import build_watchdog, healing_modes, watch_home
from palyra.wiring.host import Host
from palyra.wiring.journal import (
    build_backups,
    file_stores,
    find_source,
    journal_spec,
    sqlite_journal,
)
from palyra.wiring.live_settings import LiveSettings, ModelsPart, WorkspacesPart
from palyra.wiring.models import Modelset, build_modelset, memory_embedder
from palyra.wiring.notify import NotifyPart, build_devices, build_notices
from palyra.wiring.runs import (
    build_admission,
    build_incidents,
    build_memories,
    build_memory_embedder,
    build_memory_indexes,
    build_memory_reranker,
    build_services,
    show_procedures,
    view_embedder,
)
from palyra.wiring.tasks import build_handlers, build_tasks
from palyra.wiring.tools import build_toolset, cedar_policy
from palyra.wiring.usage import UsageFile

log = structlog.get_logger("palyra.daemon")

# Longest wait of a thread for the interpreter lock after a call of SQLite.  The default of 5 ms
# makes every commit several times slower while the loop is busy
# (docs/decisions/0002-journal-writer.md).
SWITCH_INTERVAL_S = 0.0005
DRAIN_LOOK_S = 0.05
SETTLE_S = 2.0  # longest wait for the sandbox self-test before `ready`; it takes some tens of ms
# Reference counting frees a run; only connections leave cycles, a few dozen objects each.  The
# collector therefore runs rarely.  It must visit few objects at a time: each one stops the loop for
# 0.2 microseconds, and 10 000 open runs are 1.7 million objects.
GC_THRESHOLDS = (5_000, 100, 1_000)


class Daemon:
    """One wired daemon; `run` runs it until it is stopped."""

    def __init__(  # noqa: PLR0913 - all by name, and each a part of its own
        self,
        config: Config,
        *,
        keys: KeyRing,
        operator_token: str,
        store: JournalStore | None = None,
        modelset: Modelset | None = None,
        tools: Sequence[Tool] = (),
        host: Host | None = None,
    ) -> None:
        """`tools` are added to the built-in ones; `modelset` replaces the configured one."""
        self.config = config
        self.host = host or Host()
        self.redactor = Redactor([operator_token])
        self.registry = ActorRegistry()
        self.keys = keys
        self.instance_id = self.host.new_id("inc").removeprefix("inc_")
        self.state: notifications.State = "starting"
        self.hub = hub_actor.Hub(encode_notification)
        self.ages = AgeClock(
            None if self.host.is_closed else config.paths.data_dir / "clock.json", self.host.now_ms
        )
        store = store or sqlite_journal(config, keys, self.ages)
        files = file_stores(config, store, self.ages)
        kept = RetentionStores(self.ages.age_ms, find_source(store), *files)
        self.journal = journal_actor.JournalHandle(store, run_blocking=self.host.run_blocking)
        book = self.incidents = build_incidents(self.journal, self.hub, self.redactor, self.host)
        self.memory_indexes = build_memory_indexes(
            config,
            store,
            self.journal,
            lambda: self._memory_embedder,
        )
        self.memories = build_memories(
            self.journal,
            self.redactor,
            self.host,
            self.memory_indexes,
            lambda: self._memory_reranker,
        )
        self.toolset = build_toolset(
            config,
            self.host,
            self.redactor,
            self.registry,
            stores=self.host.file_stores or files,
            alarms=book,
            more=[*memory_tools(self.memories.search, self.memories), *tools],
        )
        self.loop_lag = LoopLag()
        self.log_history = LogHistory()  # a process adds the lines of its log
        self.modelset = modelset or build_modelset(config, self.host, self.toolset.secrets, book)
        self.toolset.services.extend(self.modelset.services)
        self.policy = cedar_policy(config)
        self.services = build_services(
            config,
            host=self.host,
            keys=keys,
            policy=self.policy,
            toolset=self.toolset,
            memories=self.memories,
            modelset=self.modelset,
            registry=self.registry,
            journal=self.journal,
            hub=self.hub,
            redactor=self.redactor,
            incidents=book,
            instance_id=self.instance_id,
        )
        self.notices = build_notices(
            config,
            self.host,
            self.services.approvals,
            self.toolset.secrets.find,
            lambda: self.backend.logins.address(),  # noqa: PLW0108 - `backend` is assigned later
        )
        self.usage = UsageFile(config)
        self.desk = UsageService(self.journal, self.services.budgets, self.host.now_ms)
        self.settings = self._build_settings()
        if not self.host.is_closed:
            self.toolset.services.extend(self._watches())
        self.work = work_branch.build_work(
            self.registry, 2 * config.runs.max_open, self._notice_work, self.host.random
        )
        self.sessions = Sessions(self.services, self.work)
        self.gateway = Gateway(self.services, self.sessions, build_admission(config, self.host))
        delegations = Delegations(self.services, self.gateway)
        self.toolset.toolbox.put(
            DELEGATE,
            [
                *delegation_tools(delegations),
                *plan_tools(self.sessions.accept_plan),
                *question_tools(self.journal),
            ],
        )
        self.services.procedures.show = show_procedures(self.services, self.toolset, delegations)
        documents = build_documents(
            config, self.services, self.toolset, self.memories, hub=self.hub, host=self.host
        )
        learning = build_learning(
            config, self.services, self.memories, documents.of(None), self.host
        )
        self.tasks = build_tasks(
            config,
            self.host,
            services=self.services,
            gateway=self.gateway,
            handlers=build_handlers(
                services=self.services,
                gateway=self.gateway,
                memories=self.memories,
                indexes=self.memory_indexes,
                learning=learning,
                maintain=None if kept.source is None else self._maintain,
            ),
            epoch=lambda: self.journal.state.epoch,
            notice=self._notice,
        )
        self.healing = healing_modes(config)
        self.watchdog = build_watchdog(
            self.healing,
            self.services,
            self.work,
            sessions=self.sessions,
            journal=self.journal,
            queue=self.tasks.background.queue,
            indexes={} if self.memory_indexes is None else self.memory_indexes.by_upkeep(),
            memories=self.memories,
            artifacts=self.toolset.artifacts,
            modelset=self.modelset,
            ages=self.ages,
            files=None if self.host.is_closed else watch_home(config.paths, self.toolset.secrets),
            restart_child=self._restart_child,
        )
        self.backend = build_backend(
            config,
            host=self.host,
            keys=keys,
            services=self.services,
            toolset=self.toolset,
            memories=self.memories,
            documents=documents,
            learning=learning,
            gateway=self.gateway,
            sessions=self.sessions,
            usage=self.desk,
            kept=kept,
            backups=build_backups(config, store, keys, self.host, self.toolset.workspaces),
            tasks=self.tasks,
            notices=self.notices,
            devices=self.devices,
            policy=self.policy,
            healing=self.healing,
            hub=self.hub,
            settings=self.settings,
            drain=Drain(self.ask_drain, config.runs.drain_ms),
            log_history=self.log_history,
            state=lambda: self.state,
            problems=self._problems,
            embedder=self._view_embedder,
            tree=self.snapshot,
        )
        self.serve_transport = partial(serve_connection, backend=self.backend)
        self._operator_token = operator_token
        self._tree: Supervisor | None = None
        self._stuck: list[str] = []
        self._restarts = True  # after a drain, as far as is known
        self.abandon: Callable[[Sequence[str]], None] | None = None  # see `_notice`
        self.on_drain_asked: Callable[[], None] = self.begin_drain  # a process stops accepting too
        self._ready, self._draining = trio.Event(), trio.Event()

    def build_edge(self) -> EdgeServer:
        """Build the listener and its connections, with this daemon's services."""
        embeddings = build_embeddings(self.config, self.host, self.modelset, self.services)
        return build_edge(self.config, self.backend, self.services, self.loop_lag, embeddings)

    def make_console_link(self) -> str:
        """Return a link that logs the operator in to the console, once."""
        logins = self.backend.logins
        return logins.make_link(logins.make_code(principal="operator", role="operator"))

    def _build_settings(self) -> LiveSettings:
        """Build the settings that follow the configuration file, with the parts that they change."""
        run_blocking = self.host.run_blocking
        servers = [] if self.toolset.servers is None else [self.toolset.servers]
        return LiveSettings(
            self.config,
            self.redactor.redact_text,
            check_start,
            self.registry,
            run_blocking,
            parts=[
                WorkspacesPart(self.toolset.workspaces, run_blocking),
                ModelsPart(self.modelset, self.services.router, run_blocking),
                NotifyPart(self.notices, self.devices),
                *servers,
            ],
        )

    @cached_property
    def devices(self) -> Devices:
        """The browsers that ring when a question waits."""
        return build_devices(
            self.config,
            self.host,
            self.services.approvals,
            self._list_tokens,
            lambda: self.backend.logins,
        )

    async def _list_tokens(self) -> list[TokenRecord]:
        """List the records of tokens, once the journal is open."""
        await self._ready.wait()
        return await self.journal.read(lambda store: store.list_tokens())

    def _watches(self) -> list[ChildSpec]:
        """Return the specs that reload the configuration, send notices, and prepare the redactor."""
        look, services, book = self.host.run_blocking, self.services, self.incidents
        return [
            config_watch.policy_watch_spec(
                self.policy, look, services.approvals, self.registry, book
            ),
            config_watch.usage_watch_spec(self.usage, self.desk, look, book),
            config_watch.settings_watch_spec(self.settings, book),
            *self.notices.child_specs(),
            *self.devices.child_specs(),
            ChildSpec("redactor", self._prepare_redactor, "transient"),
        ]

    async def _prepare_redactor(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Compile the redaction rules once the daemon is ready, so that the first secret need not wait.

        The rules are compiled in small steps, because the engine holds the interpreter lock.
        """
        task_status.started()
        await self._ready.wait()
        steps = self.redactor.prepare()
        while await self.host.run_blocking(partial(next, steps, False)):  # noqa: FBT003 - default of `next`
            pass

    def _problems(self) -> Sequence[str]:
        """Return the problems that need an operator."""
        policies = [f"user policies: {problem}" for problem in self.policy.problems]
        embedder = self._view_embedder()
        unusable = [] if embedder.in_use else [f"the memory's embedder fails: {embedder.reason}"]
        pending = self.settings.problem
        waits = [f"a change of the configuration is not in force: {pending}"] if pending else []
        parts = (*self.toolset.problems(), *self.notices.problems, *self.devices.problems)
        return [*policies, *self.usage.problems, *waits, *parts, *unusable]

    @cached_property
    def _memory_embedder(self) -> LocalEmbedder | ProviderEmbedder:
        """The embedder of both indexes: its weights are loaded once."""
        return build_memory_embedder(self.config, self.host, self.modelset, self.services)

    @cached_property
    def _memory_reranker(self) -> MeteredReranker | None:
        return build_memory_reranker(self.host, self.modelset, self.services)

    def _view_embedder(self) -> EmbedderView:
        return view_embedder(memory_embedder(self.config), self._memory_embedder)

    # --- life cycle

    async def run(
        self,
        extra: Sequence[ChildSpec] = (),
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run the tree until it is stopped; `extra` children (the edge) are the last in the tree.

        Raises Escalated if the supervision tree fails.
        Cancellation: the tree stops in order.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.set_threshold(*GC_THRESHOLDS)
        gc.freeze()  # objects loaded so far are never collected
        self._tree = Supervisor(
            "daemon",
            [
                journal_spec(self.journal, self.hub, self.incidents, self.host, self.ages),
                hub_actor.child_spec(self.hub),
                work_branch.child_spec(self.work, self.registry),
                *self._service_branch(),
                ChildSpec("credentials", self._admit_operator, "transient"),
                ChildSpec("recovery", self._recover, "transient"),
                ChildSpec("purges", self._resume_purges, "transient"),
                *extra,
                incident_writer.child_spec(self.incidents),
                *([] if self.memory_indexes is None else memory.child_specs(*self.memory_indexes)),
                integrity_check.child_spec(self.journal),
                *self.tasks.child_specs(),
                watchdog.child_spec(self.watchdog),
            ],
            strategy="rest_for_one",
            on_exit=self._notice,
            rng=self.host.random,
        )
        await self._tree.run(task_status=task_status)

    async def _maintain(self, *, max_runs: int, max_steps: int) -> RetentionReport:
        return await self.backend.retention.maintain(max_runs=max_runs, max_steps=max_steps)

    def _service_branch(self) -> list[ChildSpec]:
        if not self.toolset.services:
            return []
        return [self.toolset.branch(self.watchdog.note_exit, self.host.random)]

    def _notice_work(self, end: Exit) -> None:
        self.watchdog.note_exit(end)

    def _notice(self, end: Exit) -> None:
        """Call `abandon` if a child is stuck when the journal has stopped.

        The journal stops last, so all durable data is complete; the process exits without the stuck
        children.
        """
        self.watchdog.note_exit(end)
        if end.outcome == "stuck":
            self._stuck.append(end.id)
        elif end.id == "journal" and end.was_asked and self._stuck and self.abandon is not None:
            self.abandon(self._stuck)

    async def _admit_operator(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Register the operator's token, which is stored in its file, for authentication."""
        self.state = "starting"
        await admit_operator(
            self._operator_token, self.journal, new_id=self.host.new_id, now_ms=self.host.now_ms
        )
        task_status.started()

    async def _recover(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Resume open runs after the first check of the sandbox, or after `SETTLE_S`.

        A run that was about to start a program would otherwise find no such tool.
        """
        task_status.started()
        if self.toolset.settled is not None:
            with trio.move_on_after(SETTLE_S):
                await self.toolset.settled()
        await recovery(self.services, self.sessions.adopt, self._recovered)

    async def _resume_purges(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Complete the purges that the last daemon began."""
        task_status.started()
        await self._ready.wait()
        await self.backend.data_rights.resume()

    def _recovered(self, count: int) -> None:
        embedder = self._view_embedder()
        log.info("ready", open_runs=count, instance_id=self.instance_id)
        for note in self.config.notes:
            log.warning("a key of the configuration has a new name", note=note)
        (log.info if embedder.in_use else log.warning)(
            "memory embedder",
            configured=embedder.configured,
            in_use=embedder.in_use or "words only",
            reason=embedder.reason,
        )
        self.state = "ready"
        self._ready.set()

    async def wait_ready(self) -> None:
        """Wait until every open run is adopted by its session."""
        await self._ready.wait()

    def ask_drain(self) -> None:
        """Start the drain that a client asked for, unless one has begun."""
        if self.state != "draining":
            log.info("draining", open_runs=len(self.registry.runs), cause="system.drain")
            self._restarts = False
            self.on_drain_asked()

    def begin_drain(self) -> None:
        """Refuse new runs and notify clients; runs that can make progress continue."""
        self.state = "draining"
        self.gateway.is_draining = True
        self.hub.broadcast(
            "system.draining",
            {"restart_expected": self._restarts, "close_after_ms": self.config.runs.drain_ms},
        )
        self._draining.set()

    async def wait_drained(self) -> None:
        """Wait until a drain has started and no run can make progress, or its time limit passes.

        A run that only waits for an approval or in a queue cannot make progress; it is resumed after the
        restart.
        """
        await self._draining.wait()
        with trio.move_on_after(self.config.runs.drain_ms / 1000):
            while self._is_busy():  # noqa: ASYNC110 - runs send no event for this
                await trio.sleep(DRAIN_LOOK_S)

    def _is_busy(self) -> bool:
        approvals = self.services.approvals
        return any(
            approvals.find_open(run.run_id) is None or run.run.is_executing
            for session in self.registry.sessions.values()
            for run in session.under_way
        )

    def stop(self, reason: str) -> None:
        """Stop the tree in order; `run` returns."""
        if self._tree is not None:
            self._tree.stop(reason)

    def _restart_child(self, child_id: str, reason: str) -> bool:
        return self._tree is not None and self._tree.restart_child(child_id, reason)

    def snapshot(self) -> ChildSnapshot:
        """Return the current state of the supervision tree."""
        if self._tree is None:
            raise InvariantBroken("the daemon does not run")
        return self._tree.snapshot()


def check_start(config: Config) -> None:
    """Raise InvalidParams for a configuration that a start would refuse.  Blocks.

    One function for the start, for `config.set` and for the commands without a daemon: a daemon is
    built as a start builds it, and dropped.
    """
    check_config(config, _build)


def _build(config: Config) -> None:
    keys = KeyRing(bytes(32))  # of no home
    Daemon(config, keys=keys, operator_token="-" * MIN_TOKEN_CHARS).build_edge()
