"""Services that methods call; built by the daemon once, shared by all connections."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from palyra.actors.approvals import Approvals
from palyra.actors.gateway import Gateway
from palyra.actors.hub.hub import Hub
from palyra.actors.kernel.child import ChildSnapshot
from palyra.actors.session.sessions import Sessions
from palyra.core.ids import NewId
from palyra.core.ports import Journal, NowMs, RunBlocking, Sign, SkillService
from palyra.net.api.idempotency import IdempotencyStore
from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.api.tokens import Authenticate
from palyra.net.delivery.pacer import Pacer
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.protocol.notifications import State
from palyra.services.agents import Agents
from palyra.services.artifacts import ArtifactService
from palyra.services.channels import Channels
from palyra.services.grants import Grants
from palyra.services.incidents import Incidents
from palyra.services.memory import Memories
from palyra.services.memory_search import MemorySearch
from palyra.services.model_router import ModelRouter
from palyra.services.usage import UsageService


@dataclass(frozen=True, slots=True)
class Backend:
    """The daemon as connections see it."""

    gateway: Gateway
    sessions: Sessions
    approvals: Approvals
    grants: Grants
    budgets: UsageService
    models: ModelRouter
    agents: Agents
    channels: Channels
    incidents: Incidents
    memories: Memories
    memory_search: MemorySearch
    files: ArtifactService
    skills: SkillService
    hub: Hub
    journal: Journal
    receipts: IdempotencyStore
    authenticate: Authenticate
    limits: ConnectionLimits
    instance_id: str
    version: str
    public_key: bytes  # Ed25519, 32 bytes
    sign: Sign
    redact: Redact
    run_blocking: RunBlocking
    state: Callable[[], State]
    count_stranded: Callable[[], int]  # open runs that cannot be resumed
    problems: Callable[[], Sequence[str]]  # defects an operator has to repair, as sentences
    absent: Callable[[], Sequence[str]]  # missing optional programs, as sentences
    tree: Callable[[], ChildSnapshot]
    now_ms: NowMs
    new_id: NewId
    pacer: Pacer = field(default_factory=Pacer)
