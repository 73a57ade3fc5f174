"""Base of the client: typed requests over a reconnecting connection."""

import secrets
from typing import Any, TypeVar

from palyra.client.connection import ClientConnection, decode
from palyra.client.reconnecting import ReconnectingConnection
from palyra.errors import Unreachable
from palyra.net.protocol.notifications import Hello
from palyra.net.protocol.results import Welcome

T = TypeVar("T")
Json = dict[str, Any]


class RequestMethods:
    """Requests, and properties of the current connection; base of each group of methods."""

    def __init__(self, connection: ReconnectingConnection) -> None:
        self._connection = connection

    @property
    def hello(self) -> Hello:
        """The `hello` of the current connection.  Raises Unreachable without one."""
        return self._current.hello

    @property
    def welcome(self) -> Welcome:
        """Reply to `connect`: principal, role, scopes, features.  Raises Unreachable while offline."""
        return self._current.welcome

    @property
    def is_connected(self) -> bool:
        """True if a connection is open."""
        return self._connection.current is not None

    async def wait_connected(self) -> None:
        """Wait until a connection is open.  Raises the error that ended reconnecting."""
        await self._connection.wait_connection()

    async def call(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ANN401 - plain JSON
        """Call any method and return its plain JSON result."""
        return await self._ask(method, params, object)

    @property
    def _current(self) -> ClientConnection:
        if self._connection.current is None:
            raise Unreachable("the client is not connected at the moment")
        return self._connection.current

    async def _ask(self, method: str, params: dict[str, Any], kind: type[T]) -> T:
        return decode(await self._connection.request(method, params), kind)

    async def _mutate(self, method: str, params: dict[str, Any], kind: type[T]) -> T:
        key = params.get("idempotency_key") or secrets.token_hex(16)
        return await self._ask(method, {**params, "idempotency_key": key}, kind)
