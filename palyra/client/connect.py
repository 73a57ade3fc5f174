"""Open a client."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from palyra.client.client import Client
from palyra.client.connection import Handshake
from palyra.client.reconnecting import ClientOptions, ReconnectingConnection
from palyra.net.protocol.discovery import find_endpoint

PATIENCE_S = 120.0


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
        )
    )
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.keep_open)
            yield Client(connection)
            await connection.close()
            nursery.cancel_scope.cancel("the client was closed")
    except BaseExceptionGroup as group:
        failure = _alone(group)
    if failure is not None:
        raise failure


def _alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Unwrap a group of one error, so that callers can catch it by class."""
    return group.exceptions[0] if len(group.exceptions) == 1 else group
