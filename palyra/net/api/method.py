"""Method of the protocol: name, types of params and result, required scope, serving function.

The table of methods is data: dispatch, JSON Schemas and the AsyncAPI document are made from it.
`Backend` holds the services that methods call.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from palyra.actors.devices import Devices
from palyra.actors.hub import Hub
from palyra.actors.kernel.child import ChildSnapshot
from palyra.actors.notices import Notices
from palyra.actors.session.sessions import Sessions
from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.memory.items import LAST_MS, MAX_TTL_MS
from palyra.core.memory.vectors import EmbedderView
from palyra.core.ports import (
    Journal,
    McpDirectory,
    NowMs,
    RunBlocking,
    SecretVault,
    Sign,
    SkillService,
    TextSkillFinder,
    WorkspaceFolder,
)
from palyra.core.text.validation_errors import WORDS
from palyra.errors import InvalidParams
from palyra.net.api.idempotency import Effect, IdempotencyStore
from palyra.net.api.logins import Logins
from palyra.net.api.rate_limit import ConnectionLimits, Pacer
from palyra.net.api.tokens import Authenticate
from palyra.net.delivery.subscription import Subscriptions
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.protocol.notifications import State
from palyra.net.protocol.params import LINE, MAX_INTEGER, SLUG, Params
from palyra.operations.approvals import Approvals
from palyra.operations.backup import Backups
from palyra.operations.checkpoints import Checkpointer
from palyra.operations.purge import DataRights
from palyra.operations.retention import Retention
from palyra.operations.runs import Gateway
from palyra.services.learning.candidates import Learning
from palyra.services.learning.suggestions import RuleSuggestions
from palyra.services.memory.documents import AllDocuments
from palyra.services.memory.items import Memories
from palyra.services.memory.search import MemorySearch
from palyra.services.policy.grants import Grants
from palyra.services.policy.previews import Previews
from palyra.services.registry.agents import Agents
from palyra.services.registry.channels import Channels
from palyra.services.registry.model_router import ModelRouter
from palyra.services.session.artifacts import ArtifactService
from palyra.services.session.run_changes import RunChanges
from palyra.services.task.schedules import Schedules
from palyra.services.task.tasks import Tasks
from palyra.services.upkeep.admission import Admission
from palyra.services.upkeep.configuration import Configuration
from palyra.services.upkeep.healing import HealingModes
from palyra.services.upkeep.incidents import Incidents
from palyra.services.upkeep.log_history import LogHistory
from palyra.services.usage.reports import UsageService

P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=msgspec.Struct)
MAX_KEY_CHARS = 128
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
ChannelName = Annotated[str, SLUG]
WorkspaceName = Annotated[str, SLUG]
# Name of a conversation or a sender in an external system; printable, since lists show it.
OutsideId = Annotated[str, msgspec.Meta(max_length=256), LINE]
IdempotencyKeyText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY_CHARS)]


def cursor_of(prefix: str) -> msgspec.Meta:
    """Constraint of a cursor: the id of the last item of the page before."""
    return msgspec.Meta(
        pattern=rf"^{prefix}_[0-9A-Za-z_-]{{1,60}}$",
        extra={WORDS: f"the next_cursor of the page before, an id that begins with {prefix}_"},
    )


Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
AfterSeq = Annotated[int, msgspec.Meta(ge=-1, le=MAX_INTEGER)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]  # in bytes
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER)]
Instant = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
Duration = Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL_MS)]


class Mutation(Params, frozen=True, kw_only=True):
    """Parameters of a method that changes state."""

    idempotency_key: IdempotencyKeyText | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """The end of the daemon as a method asks for it."""

    begin: Callable[[], None]  # nothing in a drain
    close_after_ms: int  # longest wait for runs that can make progress


@dataclass(frozen=True, slots=True)
class Backend:
    """The daemon as connections see it."""

    gateway: Gateway
    sessions: Sessions
    checkpoints: Checkpointer
    data_rights: DataRights
    backups: Backups
    retention: Retention
    approvals: Approvals
    previews: Previews
    grants: Grants
    budgets: UsageService
    models: ModelRouter
    agents: Agents
    channels: Channels
    configuration: Configuration
    documents: AllDocuments
    workspaces: Mapping[str, WorkspaceFolder]  # by name, the default one first
    incidents: Incidents
    healing: HealingModes
    memories: Memories
    learning: Learning
    memory_search: MemorySearch
    files: ArtifactService
    changes: RunChanges
    skills: SkillService
    text_skills: TextSkillFinder
    mcp: McpDirectory
    secrets: SecretVault
    notices: Notices
    devices: Devices
    admission: Admission
    drain: Drain
    log_history: LogHistory
    tasks: Tasks
    schedules: Schedules
    suggestions: RuleSuggestions
    hub: Hub
    journal: Journal
    receipts: IdempotencyStore
    authenticate: Authenticate
    logins: Logins
    limits: ConnectionLimits
    instance_id: str
    version: str
    public_key: bytes  # Ed25519, 32 bytes
    former_keys: tuple[bytes, ...]  # that signed before a restore without them
    sign: Sign
    redact: Redact
    run_blocking: RunBlocking
    state: Callable[[], State]
    count_stranded: Callable[[], int]  # open runs that cannot be resumed
    problems: Callable[[], Sequence[str]]  # defects an operator has to repair, as sentences
    absent: Callable[[], Sequence[str]]  # missing optional programs, as sentences
    embedder: Callable[[], EmbedderView]  # of the memory
    tree: Callable[[], ChildSnapshot]
    now_ms: NowMs
    new_id: NewId
    pacer: Pacer = field(default_factory=Pacer)


@dataclass(frozen=True, slots=True)
class MethodCall:
    """Context of one request: caller, backend and connection."""

    caller: Caller
    backend: Backend
    subscriptions: Subscriptions
    then: Callable[[Callable[[], None]], None]  # called right after the reply is in the outbox
    key: IdempotencyKey | None = None

    async def once(self, kind: type[R], effect: Effect[R], *, is_kept_by_effect: bool = False) -> R:
        """Return the effect's result; with an idempotency key, that of the first request with the key."""
        if self.key is None:
            return await effect()
        return await self.backend.receipts.once(
            self.key, kind, effect, is_kept_by_effect=is_kept_by_effect
        )


@dataclass(frozen=True, slots=True)
class Method(Generic[P, R]):
    """Entry of the table of methods."""

    name: str
    params: type[P]
    result: type[R]
    scope: str | None  # None: every connected client
    serve: Callable[[MethodCall, P], Awaitable[R]]
    is_bulk: bool = (
        False  # the result may be large: sent one at a time, and only when the outbox has room
    )
    is_exact: bool = False  # not redacted again: the bytes are signed, or a secret is the purpose
    is_read: bool | None = None  # None: by the scope, see `is_repeatable`

    @property
    def is_mutating(self) -> bool:
        """True if the method takes an idempotency key."""
        return issubclass(self.params, Mutation)

    @property
    def is_repeatable(self) -> bool:
        """True if the method has no effect, so that a client may send it again.

        That is what a scope that ends in `:read` means, and a method without a scope; an exception says
        so in the table with `is_read`.
        """
        if self.is_read is not None:
            return self.is_read
        return not self.is_mutating and (self.scope is None or self.scope.endswith(":read"))


AnyMethod = Method[Any, Any]


def at_once(serve: Callable[[MethodCall, P], R]) -> Callable[[MethodCall, P], Awaitable[R]]:
    """Adapt a synchronous function to the table's signature."""

    async def serve_at_once(call: MethodCall, params: P) -> R:  # noqa: RUF029 - the table's signature
        return serve(call, params)

    return serve_at_once


def check_no_secret(call: MethodCall, **texts: str) -> None:
    """Raise InvalidParams if a text that is stored verbatim contains a secret."""
    for name, text in texts.items():
        if call.backend.redact(text.encode())[1]:
            raise InvalidParams(f"{name} holds a secret: choose another", field=name)
