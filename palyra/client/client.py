"""The client: one typed method per method of protocol v1, grouped by noun; opened by `connect`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from palyra.client.approvals import ApprovalMethods
from palyra.client.backups import BackupMethods
from palyra.client.configuration import ConfigurationMethods
from palyra.client.connection import Handshake
from palyra.client.contexts import ContextMethods
from palyra.client.dial import TRIO
from palyra.client.documents import DocumentMethods
from palyra.client.files import FileMethods
from palyra.client.healing import HealingMethods
from palyra.client.incidents import IncidentMethods
from palyra.client.learning import LearningMethods
from palyra.client.mcp import McpMethods
from palyra.client.memory import MemoryMethods
from palyra.client.operations import OperationMethods
from palyra.client.reconnecting import ClientOptions, ReconnectingConnection
from palyra.client.registry import RegistryMethods
from palyra.client.retention import RetentionMethods
from palyra.client.runs import RunMethods
from palyra.client.sessions import SessionMethods
from palyra.client.skills import SkillMethods
from palyra.client.tapes import TapeMethods
from palyra.client.tasks import TaskMethods
from palyra.client.usage import UsageMethods
from palyra.net.protocol.discovery import find_endpoint

PATIENCE_S = 120.0


class Client(
    RunMethods,
    TapeMethods,
    ContextMethods,
    ApprovalMethods,
    SessionMethods,
    FileMethods,
    DocumentMethods,
    RegistryMethods,
    SkillMethods,
    McpMethods,
    UsageMethods,
    ConfigurationMethods,
    HealingMethods,
    IncidentMethods,
    MemoryMethods,
    LearningMethods,
    BackupMethods,
    RetentionMethods,
    TaskMethods,
    OperationMethods,
):
    """Client of one daemon over a connection that is re-established when lost.

    Every method raises the PalyraError of an error reply.  Mutations carry an idempotency key
    (given, or generated), so they are retried safely when the connection is lost before the reply;
    other requests then raise Unavailable.  Deadlines belong to the caller:
    `with trio.fail_after(5): await client.ping()`.
    """


@asynccontextmanager
async def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    home: Path | str | None = None,
    name: str = "palyra-python",
    want: Sequence[str] = ("batch",),
    patience_s: float = PATIENCE_S,
) -> AsyncGenerator[Client]:
    """Open a client of the daemon at `url`, or of the one announced in `home`.

    A lost connection is re-established with exponential backoff; after `patience_s` without one,
    every call and iterator raises Unavailable.  Raises immediately, with the remedy, if there is
    no daemon or no token, and Unauthenticated or Forbidden if the token is refused.
    """
    connection = ReconnectingConnection(
        ClientOptions(
            find_endpoint=partial(find_endpoint, url, token, home),
            handshake=Handshake(name=name, want=tuple(want)),
            patience_s=patience_s,
        ),
        TRIO,
    )
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_open, connection)
            yield Client(connection)
            await connection.close()
            nursery.cancel_scope.cancel("the client was closed")
    except BaseExceptionGroup as group:
        failure = _alone(group)
    if failure is not None:
        raise failure


async def keep_open(
    connection: ReconnectingConnection, *, task_status: trio.TaskStatus[None]
) -> None:
    """Keep the connection open; started when it is open for the first time."""
    await connection.keep_open(task_status.started)


def _alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Unwrap a group of one error, so that callers can catch it by class."""
    return group.exceptions[0] if len(group.exceptions) == 1 else group
