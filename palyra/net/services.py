"""What a connection works with: one bundle, made by the daemon, the same for all connections."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from palyra.actors.child import ChildSnapshot
from palyra.actors.hub import Hub
from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.ports import NowMs, RunBlocking, Sign
from palyra.net.limits import Limits
from palyra.net.pacer import Pacer
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
from palyra.net.receipts import Receipts
from palyra.net.rpc import Redact
from palyra.net.wire import State


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as far as the transport can tell."""

    address: str
    bearer: str | None = None  # the token of the upgrade's Authorization header
    caller: Caller | None = None  # known already: the parent process on stdio

    def __repr__(self) -> str:
        """Without the token."""
        return f"Peer({self.address})"


@dataclass(frozen=True, slots=True)
class Services:
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
    receipts: Receipts
    authenticate: Authenticate
    limits: Limits
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
