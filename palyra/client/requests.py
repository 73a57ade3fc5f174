"""Typed requests over a line."""

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
    """What every group of methods stands on."""

    def __init__(self, line: ReconnectingConnection) -> None:
        self._line = line

    @property
    def hello(self) -> Hello:
        """What the daemon said of itself on the present connection."""
        return self._present.hello

    @property
    def welcome(self) -> Welcome:
        """Who the daemon takes this client for."""
        return self._present.welcome

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._line.link is not None

    async def wait_connected(self) -> None:
        """Return once there is a connection.  Raises why there will be none."""
        await self._line.wait_link()

    async def call(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ANN401 - plain JSON
        """The result of any method, undecoded: for what has no typed method here."""
        return await self._ask(method, params, object)

    @property
    def _present(self) -> ClientConnection:
        if self._line.link is None:
            raise Unreachable("there is no connection at this moment")
        return self._line.link

    async def _ask(self, method: str, params: dict[str, Any], kind: type[T]) -> T:
        return decode(await self._line.request(method, params), kind)

    async def _mutate(self, method: str, params: dict[str, Any], kind: type[T]) -> T:
        key = params.get("idempotency_key") or secrets.token_hex(16)
        return await self._ask(method, {**params, "idempotency_key": key}, kind)
