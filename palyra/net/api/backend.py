"""What a connection works with: one bundle, made by the daemon, the same for all connections."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from palyra.actors.hub.hub import Hub
from palyra.actors.kernel.child import ChildSnapshot
from palyra.core.ids import NewId
from palyra.core.ports import NowMs, RunBlocking, Sign
from palyra.net.api.idempotency import IdempotencyStore
from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.delivery.pacer import Pacer
from palyra.net.ports import (
    Agents,
    Authenticate,
    Budgets,
    Channels,
    Files,
    Gateway,
    Grants,
    Incidents,
    Journal,
    Models,
    Skills,
)
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.protocol.notifications import State


@dataclass(frozen=True, slots=True)
class Backend:
    """The daemon, as its connections see it."""

    gateway: Gateway
    grants: Grants
    budgets: Budgets
    models: Models
    agents: Agents
    channels: Channels
    incidents: Incidents
    files: Files
    skills: Skills
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
    count_stranded: Callable[[], int]  # open runs that cannot go on
    problems: Callable[[], Sequence[str]]  # what somebody has to mend, in words
    absent: Callable[[], Sequence[str]]  # optional programs that are not there, in words
    tree: Callable[[], ChildSnapshot]
    now_ms: NowMs
    new_id: NewId
    pacer: Pacer = field(default_factory=Pacer)
