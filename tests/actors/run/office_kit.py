"""A daemon without threads, sockets or files: real actors, hub and tools, on virtual time.

The store is the in-memory twin, called inline; while `hold` is set commits wait for the test.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

import msgspec
import trio

from palyra.actors.hub import Hub
from palyra.actors.incident_writer import child_spec
from palyra.actors.journal.write_retry import FailedRuns
from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.supervisor import Supervisor
from palyra.actors.run.approval import OpenApprovals
from palyra.actors.run.handle import RunHandle
from palyra.actors.session import registry as work_branch
from palyra.actors.session.recovery import recovery
from palyra.actors.session.registry import ActorRegistry, SessionServices
from palyra.actors.session.sessions import Sessions
from palyra.core.access import Caller
from palyra.core.incident.incident import UNRESOLVED
from palyra.core.journal.changes import Change, FilesLost, IncidentFilter
from palyra.core.journal.records import Usage
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import Delta, ModelRequest, ModelTurn, ProposedCall
from palyra.core.policy.request import Answer, PolicyDecision, PolicyRequest
from palyra.core.ports import JournalStore, LanguageModel
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.environment import RunLimits
from palyra.core.session.commands import StartRun
from palyra.core.tape.events import decode_event
from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.core.usage.prices import Prices
from palyra.errors import ActorGone, PalyraError, Unavailable
from palyra.models.procedure import ProcedurePlayer
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.operations.approvals import Approvals
from palyra.operations.runs import Gateway
from palyra.services.context.compaction import CompactionSettings, SessionCompactor
from palyra.services.context.history import ConversationHistory
from palyra.services.context.references import ContextSources
from palyra.services.learning.candidates import Reflections
from palyra.services.learning.procedures import Procedures
from palyra.services.policy.gate import Gate
from palyra.services.policy.grants import Grants
from palyra.services.registry.agents import Agents
from palyra.services.registry.channels import Channels
from palyra.services.registry.model_router import ModelRouter
from palyra.services.upkeep.admission import Admission, VolatileSuspension
from palyra.services.upkeep.incidents import Incidents
from palyra.services.usage.budgets import Budgets
from palyra.services.usage.token_factors import TokenFactors
from palyra.tools.artifacts import artifact_tool
from palyra.tools.demo_tools import basic_tools
from palyra.tools.toolbox import AsyncTool, InlineTool, Toolbox
from palyra.wiring.host import new_id
from tests.store.memory.files import MemoryArtifacts

T = TypeVar("T")
OPERATOR = Caller(principal="ann", role="operator", token_id="tok_ann")
OTHER = Caller(principal="bob", role="operator", token_id="tok_bob")
STRANGER = Caller(principal="eve", role="client", token_id="tok_eve")
SECRET = "correct-horse-battery-staple"


class InlineTicket:
    """A commit that has happened, failed, or waits for the test."""

    def __init__(self) -> None:
        self.error: PalyraError | None = None
        self.done = trio.Event()

    @property
    def is_settled(self) -> bool:
        return self.done.is_set()

    @property
    def is_committed(self) -> bool:
        return self.done.is_set() and self.error is None

    async def wait(self) -> None:
        await self.done.wait()
        if self.error is not None:
            raise self.error


class InlineJournal:
    """The journal's handle over a store in memory, without a thread."""

    def __init__(self, store: JournalStore, hub: Hub) -> None:
        self.store = store
        self.hub = hub
        self.lost: FilesLost | None = None
        self.hold = False
        self.keep: int | None = None  # changes that are still committed before it holds
        self.fail_with: PalyraError | None = None
        self.is_down = False
        self.failed_runs = FailedRuns(1_000)
        self.queued: list[tuple[Change, InlineTicket]] = []
        self.is_writable = True
        self.refusals = 0
        self.backlog = 0
        self.silent_since_s: float | None = None
        self._answers = trio.Event()  # to look-ups, which have looked by then
        self._answers.set()

    @property
    def has_room(self) -> bool:
        """The real one knows it somewhat earlier."""
        return self.is_writable

    def append(self, change: Change) -> InlineTicket:
        if self.keep is not None:
            self.hold, self.keep = self.hold or self.keep == 0, max(0, self.keep - 1)
        ticket = InlineTicket()
        self.queued.append((change, ticket))
        if self.is_down:
            self.fall()
        elif not self.hold:
            self.flush()
        return ticket

    def fall(self) -> None:
        """Crash like the real one: current and later waiters get an unknown outcome."""
        self.is_down = True
        queued, self.queued = self.queued, []
        for _, ticket in queued:
            ticket.error = ActorGone("the journal is not running")
            ticket.done.set()

    def flush(self) -> None:
        """Commit, or fail, everything queued."""
        queued, self.queued = self.queued, []
        for change, ticket in queued:
            ticket.error = self.fail_with or self.failed_runs.explain(
                change, self.store.commit([change])[0]
            )
            if self.fail_with is not None:
                self.refusals += 1
                self.failed_runs.record([change])
            if ticket.error is None and change.rows:
                self.hub.committed([(change.rows[-1].run_id, change.rows[-1].seq)])
            ticket.done.set()

    def release(self) -> None:
        """Hold nothing back any more."""
        self.hold = False
        self.flush()

    async def check_files(self) -> FilesLost | None:
        return self.lost

    def require_files(self) -> None:
        if self.lost is not None:
            raise Unavailable(self.lost.found)

    def find_silence(self, now_s: float) -> float | None:
        """As the real one."""
        if not self.queued:
            self.silent_since_s = None
        elif self.silent_since_s is None:
            self.silent_since_s = now_s
        return self.silent_since_s

    async def commit(self, change: Change) -> None:
        await self.append(change).wait()

    @contextmanager
    def slow_look(self) -> Generator[trio.Event]:
        """Look-ups begun inside the block have their answers once the event is set."""
        before, self._answers = self._answers, trio.Event()
        try:
            yield self._answers
        finally:
            self._answers = before

    async def find(self, query: Callable[[JournalStore], T]) -> T:
        await trio.lowlevel.checkpoint()
        found = query(self.store)
        await self._answers.wait()
        return found

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        await trio.lowlevel.checkpoint()
        return query(self.store)


class Model:
    """A model that plays given turns, one per request, and can be made to wait."""

    name = provider = "scripted"

    def __init__(self) -> None:
        self.turns: list[Any] = []  # ModelTurn, exception, or trio.Event to wait for first
        self.requests: list[ModelRequest] = []

    def most_output(self, request: ModelRequest) -> int:
        return request.sampling.max_output_tokens or 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        item = self.turns.pop(0) if self.turns else say("done")
        if isinstance(item, trio.Event):
            await item.wait()
            item = self.turns.pop(0) if self.turns else say("done")
        if isinstance(item, Exception):
            raise item
        if item.text:
            on_delta(Delta("text", item.text))
        return item


def say(text: str) -> ModelTurn:
    """A final answer."""
    return ModelTurn(text=text, calls=(), finish_reason="stop", usage=Usage())


def call(*named: tuple[str, Any]) -> ModelTurn:
    """A turn that calls tools, with fresh ids."""
    calls = tuple(
        ProposedCall(call_id=new_id("call"), tool=tool, arguments=arguments)
        for tool, arguments in named
    )
    return ModelTurn(text="", calls=calls, finish_reason="tool_calls", usage=Usage())


class NamePolicy:
    """Rules by the tool's name: `ask_…` asks, `forbidden` is denied, the rest may run."""

    version = "v1"

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        if request.action == "approval.decide":
            request = msgspec.structs.replace(request, tool="answer")
        prefix = request.tool.partition("_")[0]
        answers: dict[str, Answer] = {"ask": "ask", "forbidden": "deny"}
        answer = answers.get(prefix, "allow")
        return PolicyDecision(
            answer=answer,
            reason_code=answer,
            reason="by name",
            policies=(),
            version=self.version,
        )


def no_budgets(hub: Hub) -> Budgets:
    """No budget; only the embedded model has a price."""
    return Budgets(hub, now_ms, prices=Prices())


class Kit:
    """The daemon's middle, and what a test needs to steer it."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        store: JournalStore,
        limits: RunLimits = RunLimits(),  # noqa: B008 - frozen
        *,
        debounce_ms: int = 500,
        history_tokens: int = 0,  # most tests are about one run
        compaction: CompactionSettings | None = None,
        make_budgets: Callable[[Hub], Budgets] = no_budgets,
        models: Mapping[str, LanguageModel] | None = None,
        make_router: Callable[[Mapping[str, LanguageModel]], ModelRouter] = ModelRouter,
    ) -> None:
        self.models = models
        self.make_router = make_router
        self.history_tokens = history_tokens
        self.compaction = compaction or CompactionSettings(
            history_tokens=history_tokens, trigger_bps=0
        )
        self.make_budgets = make_budgets
        self.hub = Hub(encode_notification)
        self.journal = InlineJournal(store, self.hub)
        self.incidents = Incidents(
            self.journal,
            self.hub,
            shared_redactor(),
            now_ms=now_ms,
            new_id=new_id,
        )
        self.model = Model()
        self.registry = ActorRegistry()
        self.grants = Grants(self.journal, now_ms)
        self.approvals = OpenApprovals(self.hub, self.grants, now_ms)
        self.artifacts = MemoryArtifacts()
        self.effects: list[str] = []  # what the `effect` tools did
        self.codes = count(2222)  # of pairings: CODE2222, CODE2223, …
        self.gate_open = trio.Event()  # `hang` waits for it
        self.services = self.build_services(limits, debounce_ms)
        self.work = work_branch.build_work(self.registry, 1_000)
        self.sessions = Sessions(self.services, self.work)
        self.admission = Admission(VolatileSuspension(), now_ms, inline_blocking)
        self.gateway = Gateway(self.services, self.sessions, self.admission)
        self.answers = Approvals(self.services.journal, self.approvals)
        self.recovered: int | None = None

    def build_services(self, limits: RunLimits, debounce_ms: int) -> SessionServices:
        toolbox = Toolbox([*basic_tools(), *self.tools()], inline_blocking)
        self.policy = self.new_policy()
        gate = Gate(
            toolbox,
            self.policy,
            self.approvals.count,
            self.grants.find,
            self.grants.holds,
            modes=self.registry.modes,
            find_accepted=self.registry.find_accepted,
        )
        redactor = shared_redactor()
        models = {"scripted": self.model, **(self.models or {})}
        agents = Agents(self.journal, toolbox, models, redactor, now_ms)
        return SessionServices(
            journal=self.journal,  # type: ignore[arg-type]  # the inline twin
            hub=self.hub,
            player=ProcedurePlayer(new_id),
            procedures=Procedures(
                self.journal, run_blocking=inline_blocking, now_ms=now_ms, new_id=new_id
            ),
            toolbox=toolbox,
            artifacts=self.artifacts,
            gate=gate,
            models=models,
            router=self._build_router(models),
            agents=agents,
            channels=Channels(
                self.journal,
                self.hub,
                agents,
                redactor,
                now_ms=now_ms,
                new_id=new_id,
                new_code=lambda: f"CODE{next(self.codes):04}",
            ),
            approvals=self.approvals,
            grants=self.grants,
            budgets=(budgets := self.make_budgets(self.hub)),
            compactor=SessionCompactor(
                settings=self.compaction,
                models=models,
                budgets=budgets,
                journal=self.journal,
                run_blocking=inline_blocking,
                new_id=new_id,
            ),
            incidents=self.incidents,
            histories=ConversationHistory(self.journal, self.compaction.loaded_tokens),
            sources=self.build_sources(toolbox, gate),
            factors=TokenFactors(),
            reflections=Reflections(new_id, is_on=False),
            registry=self.registry,
            redactor=redactor,
            fence_key=b"fence",
            sign=lambda data: (data * 2)[:64],
            jitter_ms=lambda attempt: 100 * attempt,
            limits=limits,
            run_blocking=inline_blocking,
            now_ms=now_ms,
            new_id=new_id,
            instance_id="i1",
            queue_cap=3,
            max_open=100,
            debounce_ms=debounce_ms,
        )

    def _build_router(self, models: Mapping[str, LanguageModel]) -> ModelRouter:
        router = self.make_router(models)
        router.default = router.default or "scripted"
        return router

    def build_sources(self, toolbox: Toolbox, gate: Gate) -> ContextSources:
        """What prompts take from outside: nothing but other runs."""
        return ContextSources(
            journal=self.journal,
            toolbox=toolbox,
            gate=gate,
            run_blocking=inline_blocking,
            now_ms=now_ms,
        )

    def new_policy(self) -> NamePolicy:
        """The rules."""
        return NamePolicy()

    def tools(self) -> list[Any]:
        """Tools of the tests: one that asks, one that is denied, one that hangs, one that acts."""

        def note(call: ToolCall) -> ToolOutput:
            self.effects.append(call.arguments["text"])
            return ToolOutput(text=f"wrote {call.arguments['text']}")

        async def hang(_call: ToolCall, _on_output: Any) -> ToolOutput:
            await self.gate_open.wait()
            return ToolOutput(text="released")

        return [
            InlineTool(spec("ask_note"), note),
            InlineTool(spec("note"), note),
            InlineTool(spec("forbidden"), note),
            AsyncTool(spec("hang"), hang),
            AsyncTool(spec("hang_safe", tool_class="read_only_safe"), hang),
            artifact_tool(self.artifacts),
        ]

    # --- driving

    async def start(self, text: str = "hello", caller: Caller = OPERATOR, **fields: Any) -> str:
        """Start a run; its id."""
        command = StartRun(text=text, **fields)
        return (await self.gateway.start_run(caller, command)).run_id

    async def end(self, run_id: str) -> str:
        """Wait for the end of a run; its state."""
        view, timed_out = await self.gateway.wait_run(
            OPERATOR, run_id, until="terminal", timeout_s=3_600
        )
        assert not timed_out
        return view.state

    def kinds(self, run_id: str) -> list[str]:
        """The committed tape, as kinds."""
        return [row.kind for row in self.rows(run_id)]

    def rows(self, run_id: str) -> list[TapeRow]:
        """The committed tape."""
        return list(self.journal.store.read_tape(run_id, after_seq=-1, limit=1_000).rows)

    def events(self, run_id: str, kind: str) -> list[Any]:
        """Committed events of one kind, decoded."""
        return [decode_event(kind, row.data) for row in self.rows(run_id) if row.kind == kind]

    def live(self, run_id: str) -> RunHandle:
        """The run's handle while it is open."""
        return self.registry.runs[run_id]


def spec(name: str, tool_class: Any = "effect") -> ToolSpec:
    """A tool of the tests; all take a text."""
    return ToolSpec(
        name=name,
        version="1",
        description=name,
        tool_class=tool_class,
        risk="low",
        parameters={"type": "object", "properties": {"text": {"type": "string"}}},
    )


@cache
def shared_redactor() -> Redactor:
    """It keeps no state, and its rules take longer to compile than most tests to run."""
    return Redactor([SECRET])


def now_ms() -> int:
    """Virtual milliseconds."""
    return int(trio.current_time() * 1000)


async def inline_blocking(function: Callable[..., T], *arguments: object) -> T:
    """Blocking work without a thread, so that virtual time does not advance."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


@asynccontextmanager
async def running(  # noqa: PLR0913 - all by name
    store: JournalStore,
    limits: RunLimits = RunLimits(),  # noqa: B008 - frozen
    *,
    hold: bool = False,
    debounce_ms: int = 500,
    history_tokens: int = 0,
    compaction: CompactionSettings | None = None,
    make_budgets: Callable[[Hub], Budgets] = no_budgets,
    models: Mapping[str, LanguageModel] | None = None,
    make_router: Callable[[Mapping[str, LanguageModel]], ModelRouter] = ModelRouter,
) -> AsyncGenerator[Kit]:
    """A kit whose actors live inside the block; leaving it is a crash for whatever is open.

    With `hold` nothing is committed before `kit.journal.release()`.
    """
    kit = Kit(
        store,
        limits,
        debounce_ms=debounce_ms,
        history_tokens=history_tokens,
        compaction=compaction,
        make_budgets=make_budgets,
        models=models,
        make_router=make_router,
    )
    kit.journal.hold = hold
    kit.incidents.begin(store.list_incidents(IncidentFilter(states=UNRESOLVED)))

    def done(count: int) -> None:
        kit.recovered = count

    recover = partial(recovery, kit.services, kit.sessions.adopt, done)
    children = [
        work_branch.child_spec(kit.work, kit.registry),
        ChildSpec("recovery", recover, "transient"),
        child_spec(kit.incidents),
    ]
    tree = Supervisor("test", children, strategy="rest_for_one")
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)
        try:
            yield kit
        finally:
            nursery.cancel_scope.cancel()
