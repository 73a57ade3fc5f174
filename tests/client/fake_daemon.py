"""A small daemon for client tests: protocol v1 over real sockets, with a tape that can be cut.

It keeps what the client relies on and nothing else: hello and connect, replies by id, receipts by
idempotency key, a tape per run with a committed head, subscriptions that replay and then go live.
It breaks on command: a connection can be cut after any number of bytes, and a crash forgets what
was not committed.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import msgspec
import trio
import trio_websocket

from palyra.core.tape.events import Event, encode_event

TOKEN = "fake-token"
RUN = "run_01890a5d-ac96-774b-bcce-b302099a8057"
SESSION = "ses_01890a5d-ac96-774b-bcce-b302099a8057"
RUN_VIEW: dict[str, Any] = {  # the run, done, as `run.get` shows it
    "run_id": RUN,
    "session_id": SESSION,
    "state": "done",
    "phase": "done",
    "principal": "owner",
    "agent": "default",
    "model": "scripted",
    "created_ms": 1,
    "usage": {},
    "cost_usd_micros": 0,
    "turns": 1,
    "tool_calls": 0,
    "pending_approvals": 0,
    "head_seq": 8,
    "attempts": 0,
}
HELLO = {
    "server": "palyra",
    "version": "0.0.0",
    "protocol": "palyra.v1",
    "features": ["batch"],
    "limits": {
        "max_message_bytes": 1_048_576,
        "max_inflight": 64,
        "max_subscriptions": 256,
        "outbox_bytes": 8_388_608,
        "requests_per_s": 100,
    },
    "state": "ready",
}
BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, trio_websocket.ConnectionClosed)

Json = dict[str, Any]
Answer = Callable[["Connection", Json], object]


@contextmanager
def forgiving() -> Generator[None]:
    """A peer that is gone ends the block, alone or in a group."""
    try:
        yield
    except* BROKEN:
        pass


class Refusal(Exception):
    """An error reply."""

    def __init__(self, code: str, message: str = "no", **data: object) -> None:
        super().__init__(message)
        self.body = {
            "code": -32000,
            "message": message,
            "data": {"code": code, "message": message, "retryable": False, **data},
        }


class Hangup(Exception):
    """A goodbye instead of a reply."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class BudgetStream(trio.abc.Stream):
    """A server's stream that breaks for good after so many bytes sent; None never does."""

    def __init__(self, inner: trio.SocketStream, budget: int | None) -> None:
        self.is_deaf = False  # received bytes are discarded
        self._inner = inner
        self._budget = budget

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._budget is None or len(data) <= self._budget:
            await self._inner.send_all(data)
            self._budget = None if self._budget is None else self._budget - len(data)
            return
        await self._inner.send_all(data[: self._budget])
        await self.aclose()
        raise trio.BrokenResourceError("the budget is spent")

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        received = await self._inner.receive_some(max_bytes)
        if received and self.is_deaf:
            await self._read_on()
            return b""
        return received

    async def _read_on(self) -> None:
        """Discard received bytes until the peer closes."""
        while await self._inner.receive_some(65_536):
            pass

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class Tape:
    """One run's events as wire objects, and how many of them are durable."""

    rows: list[Json] = field(default_factory=list)
    committed: int = -1
    floor: int = 0


class Connection:
    """One client as the fake sees it."""

    def __init__(
        self,
        daemon: "FakeDaemon",
        stream: BudgetStream,
        socket: trio_websocket.WebSocketConnection,
    ) -> None:
        self.daemon = daemon
        self.stream = stream
        self.socket = socket
        self.ended = trio.Event()
        self.subscriptions: dict[str, tuple[str, int]] = {}  # id -> run, last seq sent
        self._lock = trio.StrictFIFOLock()

    async def send(self, *messages: Json) -> None:
        """Each message alone, or all as one array when the client asked for batches."""
        async with self._lock:
            whole = messages[0] if len(messages) == 1 else list(messages)
            with forgiving():
                await self.socket.send_message(msgspec.json.encode(whole).decode())

    async def notify(self, method: str, **params: object) -> None:
        await self.send(notification(method, params))

    async def serve(self) -> None:
        with forgiving():
            await self.notify(self.daemon.greeting, **HELLO, instance_id=self.daemon.instance_id)
            async with trio.open_nursery() as nursery:
                while True:
                    text = await self.socket.get_message()
                    nursery.start_soon(self._answer, msgspec.json.decode(text))

    async def _answer(self, request: Json) -> None:
        params = request.get("params", {})
        self.daemon.requests.append((request["method"], params))
        reply: Json = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = self.daemon.answer(self, request["method"], params)
        except Refusal as refusal:
            reply["error"] = refusal.body
        except Hangup as hangup:
            await self.socket.aclose(hangup.code, str(hangup))
            return
        silence = self.daemon.silences.pop(request["method"], None)
        if silence is not None:
            silence.set()
        elif request["method"] == "tape.subscribe" and "result" in reply:
            await self._follow(reply, params)
        else:
            await self.send(reply)

    async def _follow(self, reply: Json, params: Json) -> None:
        tape = self.daemon.tapes[params["run_id"]]
        name = reply["result"]["subscription"]
        await self.send(reply)
        through = reply["result"]["through"]
        durable = tape.rows[params["after_seq"] + 1 : through + 1]
        await self._send_rows(name, durable, tape)
        await self.notify("tape.caught_up", subscription=name, through=through)
        self.subscriptions[name] = (params["run_id"], through)
        await self.push()
        self.daemon.watched.set()

    async def push(self) -> None:
        """Send every live subscription what it lacks."""
        for name, (run_id, sent) in list(self.subscriptions.items()):
            tape = self.daemon.tapes[run_id]
            if len(tape.rows) > sent + 1:
                self.subscriptions[name] = (run_id, len(tape.rows) - 1)
                await self._send_rows(name, tape.rows[sent + 1 :], tape)

    async def _send_rows(self, name: str, rows: list[Json], tape: Tape) -> None:
        ending = {"subscription": name, "committed": tape.committed}
        messages = [notification("tape.event", {**row, **ending}) for row in rows]
        if messages and self.daemon.batches:
            await self.send(*messages)
        for message in [] if self.daemon.batches else messages:
            await self.send(message)

    async def cut(self) -> None:
        """End the TCP connection without a goodbye."""
        await self.socket._stream.aclose()


class FakeDaemon:
    """A daemon double that the tests control."""

    def __init__(self) -> None:
        self.url = ""
        self.instance_id = "instance-1"
        self.tapes: dict[str, Tape] = {}
        self.requests: list[tuple[str, Json]] = []
        self.answers: dict[str, Answer] = {
            "connect": _connect,
            "ping": _ping,
            "tape.subscribe": _subscribe,
            "tape.unsubscribe": _unsubscribe,
        }
        self.receipts: dict[str, object] = {}
        self.connections: list[Connection] = []
        self.budgets: list[int] = []  # bytes for each coming connection; then unlimited
        self.watched = trio.Event()  # a client follows a tape live
        self.silences: dict[str, trio.Event] = {}
        self.greeting = "hello"
        self.batches = True
        self._names = count(1)
        self._stamps = count(1)

    def answer(self, connection: Connection, method: str, params: Json) -> object:
        """The reply; the first one again for a key that was used before."""
        key = params.get("idempotency_key")
        if key is not None and key in self.receipts:
            return self.receipts[key]
        answer = self.answers.get(method)
        if answer is None:
            raise Refusal("unknown_method", f"no method {method!r}")
        result = answer(connection, params)
        if key is not None:
            self.receipts[key] = result
        return result

    def reply_with(self, method: str, result: object) -> None:
        """Answer the method with the same result from now on."""
        self.answers[method] = lambda _connection, _params: result

    def swallow(self, method: str) -> trio.Event:
        """Perform the next such request without replying; the event is set when it is done."""
        self.silences[method] = trio.Event()
        return self.silences[method]

    def methods(self) -> list[str]:
        """The methods asked for, in order of arrival."""
        return [method for method, _ in self.requests]

    def new_name(self) -> str:
        return f"sub_{next(self._names)}"

    def append(self, event: Event, run_id: str = RUN) -> None:
        """Put the event on the tape, not yet durable and not yet sent."""
        tape = self.tapes.setdefault(run_id, Tape())
        row: Json = {
            "run_id": run_id,
            "session_id": SESSION,
            "seq": len(tape.rows),
            "at_ms": next(self._stamps),
            "kind": event.KIND,
            "data": msgspec.Raw(encode_event(event)),
        }
        tape.rows.append(row)

    def commit(self, run_id: str = RUN) -> None:
        """Make appended events durable; the next frame carries the new committed number."""
        tape = self.tapes[run_id]
        tape.committed = len(tape.rows) - 1

    async def publish(self, *events: Event, run_id: str = RUN, durable: bool = True) -> None:
        """Append, send to all subscribers, and make durable."""
        for event in events:
            self.append(event, run_id)
        await self.push()
        if durable:
            self.commit(run_id)
            await self.tell_committed(run_id)

    async def push(self) -> None:
        for connection in list(self.connections):
            await connection.push()

    async def tell_committed(self, run_id: str = RUN) -> None:
        for connection in list(self.connections):
            await connection.notify(
                "tape.committed", run_id=run_id, committed=self.tapes[run_id].committed
            )

    async def cut(self) -> None:
        """Cut every connection."""
        for connection in list(self.connections):
            await connection.cut()

    def freeze(self) -> None:
        """Keep the present connections open but read nothing more from them."""
        for connection in self.connections:
            connection.stream.is_deaf = True

    async def crash(self) -> None:
        """Forget what was not durable, and come back as another instance."""
        for tape in self.tapes.values():
            del tape.rows[tape.committed + 1 :]
        self.instance_id = f"instance-{int(self.instance_id.rpartition('-')[2]) + 1}"
        await self.cut()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One TCP connection."""
        budget = self.budgets.pop(0) if self.budgets else None
        with forgiving():
            async with trio.open_nursery() as nursery:
                limited = BudgetStream(stream, budget)
                request = await trio_websocket.wrap_server_stream(nursery, limited)
                socket = await request.accept(subprotocol="palyra.v1")
                connection = Connection(self, limited, socket)
                self.connections.append(connection)
                try:
                    await connection.serve()
                finally:
                    self.connections.remove(connection)
                    connection.ended.set()
                    nursery.cancel_scope.cancel()


def notification(method: str, params: object) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _connect(connection: Connection, params: Json) -> object:
    if params.get("token") != TOKEN:
        raise Hangup(4401, "unknown token")
    connection.daemon.batches = "batch" in params["want"]
    return {
        "principal": "owner",
        "role": "operator",
        "scopes": ["*"],
        "granted": params["want"],
        "declined": [],
        "state": "ready",
    }


def _ping(_connection: Connection, _params: Json) -> object:
    return {"now_ms": 1}


def _subscribe(connection: Connection, params: Json) -> object:
    tape = connection.daemon.tapes.get(params["run_id"])
    if tape is None:
        raise Refusal("not_found", f"no run {params['run_id']!r}")
    return {
        "subscription": connection.daemon.new_name(),
        "from": params["after_seq"] + 1,
        "through": tape.committed,
        "floor": tape.floor,
    }


def _unsubscribe(connection: Connection, params: Json) -> object:
    connection.subscriptions.pop(params["subscription"], None)
    return {}


@asynccontextmanager
async def fake_daemon() -> AsyncGenerator[FakeDaemon]:
    """A running fake; everything is cut at the end."""
    daemon = FakeDaemon()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, daemon.serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        daemon.url = f"ws://127.0.0.1:{port}/v1/ws"
        try:
            yield daemon
        finally:
            nursery.cancel_scope.cancel()
