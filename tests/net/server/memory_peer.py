"""A client in memory: a transport pair, and a peer that speaks JSON-RPC over it."""

import json
from collections.abc import Sequence
from typing import Any

import trio

from palyra.net.server.transport import BadFrame, PeerClosed


class MemoryTransport:
    """The daemon's end.  `window` messages fit on the way; then `send` waits for the client."""

    name = "memory"

    def __init__(self, window: float = float("inf")) -> None:
        self._to_client, self.from_daemon = trio.open_memory_channel[bytes](window)
        self.to_daemon, self._from_client = trio.open_memory_channel[bytes | BadFrame](1_000_000)
        self.closed = trio.Event()
        self.farewell: tuple[int, str] | None = None
        self.writes: list[int] = []  # how many messages each `send` had

    async def receive(self) -> bytes:
        try:
            data = await self._from_client.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise PeerClosed from None
        if isinstance(data, BadFrame):
            raise data
        return data

    async def send(self, messages: Sequence[bytes]) -> None:
        self.writes.append(len(messages))
        try:
            for message in messages:
                await self._to_client.send(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise PeerClosed from None

    async def close(self, code: int, reason: str) -> None:
        if self.farewell is None:
            self.farewell = (code, reason)
        self._to_client.close()
        self.closed.set()
        await trio.lowlevel.checkpoint()


class Peer:
    """The client's end: requests by name, notifications in order."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self.notices: list[dict[str, Any]] = []
        self.replies: dict[Any, dict[str, Any]] = {}
        self.messages: list[Any] = []  # everything, as it came
        self._next_id = 0

    def send_raw(self, data: bytes | BadFrame) -> None:
        self.transport.to_daemon.send_nowait(data)

    def post(self, method: str, **params: object) -> int:
        """Send a request; its id."""
        self._next_id += 1
        body = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        self.send_raw(json.dumps(body).encode())
        return self._next_id

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        """The whole reply to a request."""
        return await self.reply(self.post(method, **params))

    async def call(self, method: str, **params: object) -> Any:
        """The result of a request that succeeds."""
        reply = await self.ask(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    async def fail(self, method: str, **params: object) -> dict[str, Any]:
        """The error of a request that does not."""
        reply = await self.ask(method, **params)
        assert "error" in reply, reply
        error: dict[str, Any] = reply["error"]
        return error

    async def reply(self, request_id: object) -> dict[str, Any]:
        while request_id not in self.replies:
            await self.read()
        return self.replies.pop(request_id)

    async def read(self) -> None:
        """Take in one message.  Raises trio.EndOfChannel after the last."""
        message = json.loads(await self.transport.from_daemon.receive())
        self.messages.append(message)
        for frame in message if isinstance(message, list) else [message]:
            if "id" in frame:
                self.replies[frame["id"]] = frame
            else:
                self.notices.append(frame)

    async def read_all(self) -> None:
        """Take in what there is until nothing more happens."""
        while True:
            await trio.testing.wait_all_tasks_blocked()
            if not self.transport.from_daemon.statistics().current_buffer_used:
                return
            await self.read()

    async def read_to_end(self) -> tuple[int, str]:
        """Take in everything until the daemon closes; its code and reason."""
        try:
            while True:
                await self.read()
        except trio.EndOfChannel:
            await self.transport.closed.wait()
        assert self.transport.farewell is not None
        return self.transport.farewell

    async def wait_notice(self, method: str) -> dict[str, Any]:
        """Params of the next notification of that method; those before it are dropped."""
        while True:
            while self.notices:
                notice = self.notices.pop(0)
                if notice["method"] == method:
                    params: dict[str, Any] = notice["params"]
                    return params
            await self.read()

    def events(self, method: str = "tape.event") -> list[dict[str, Any]]:
        """Params of all notifications of that method so far."""
        return [notice["params"] for notice in self.notices if notice["method"] == method]

    def leave(self) -> None:
        """Disappear."""
        self.transport.to_daemon.close()
        self.transport.from_daemon.close()
