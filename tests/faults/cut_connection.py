"""Connections cut at any byte: `python -m tests.faults.cut_connection --every N`.

A client of a real daemon goes through a proxy that cuts its connections after so many bytes of
one direction, with a FIN or with a reset.  Wherever the cut falls, the client must start its run
once and see every event of it once and in order.  Prints sums as JSON; the exit code is 1 when
a session went wrong.
"""

import argparse
import json
import random
import socket
import struct
import sys
import tempfile
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import trio

from palyra.client import Client, EventsDiscarded, TapeEvent, connect, reconnecting
from palyra.core.backoff import Backoff
from palyra.errors import Unavailable
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.tapes import check_tape, read_whole

RECEIVE_BYTES = 65_536
WITHIN_S = 120.0  # a bound against hanging, not a promise
QUICK = Backoff(base_s=0.01, cap_s=0.05)
TEXT = "\n/then\n".join(
    [*(f'/call echo {{"text": "x{n}"}}' for n in range(3)), "/delay 2\n/tokens 10"]
)
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
Direction = Literal["down", "up"]  # to the client, to the daemon


@dataclass(frozen=True)
class Cut:
    """The position at which one connection is cut."""

    direction: Direction
    after_bytes: int
    by_reset: bool = False


@dataclass
class Proxy:
    """Passes bytes on and cuts the next connections at the given positions; later ones live."""

    daemon_port: int
    port: int = 0
    cuts: deque[Cut] = field(default_factory=deque)
    passed: Counter[Direction] = field(default_factory=Counter)
    connections: int = 0

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection, to its end or to its cut."""
        self.connections += 1
        cut = self.cuts.popleft() if self.cuts else None
        with suppress(OSError):
            async with client, await trio.open_tcp_stream("127.0.0.1", self.daemon_port) as daemon:
                await self.carry_both(client, daemon, cut)
                if cut is not None and cut.by_reset:
                    _reset(client)
                    _reset(daemon)

    async def carry_both(
        self, client: trio.SocketStream, daemon: trio.SocketStream, cut: Cut | None
    ) -> None:
        """Until either direction ends."""
        async with trio.open_nursery() as nursery:
            both = nursery.cancel_scope
            nursery.start_soon(self.carry, "down", daemon, client, cut, both)
            nursery.start_soon(self.carry, "up", client, daemon, cut, both)

    async def carry(
        self,
        direction: Direction,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        cut: Cut | None,
        both: trio.CancelScope,
    ) -> None:
        """One direction of one connection; its end is the end of both."""
        left = cut.after_bytes if cut is not None and cut.direction == direction else None
        with suppress(*GONE):
            while left != 0 and (data := await source.receive_some(RECEIVE_BYTES)):
                part = data if left is None else data[:left]
                left = None if left is None else left - len(part)
                await sink.send_all(part)
                self.passed[direction] += len(part)
        both.cancel()


def _reset(stream: trio.SocketStream) -> None:
    """Let the close of it be a reset."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@asynccontextmanager
async def proxied(daemon: DaemonProcess) -> AsyncGenerator[Proxy]:
    """A proxy before that daemon."""
    proxy = Proxy(daemon.port)
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, proxy.serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        proxy.port = listener.socket.getsockname()[1]
        try:
            yield proxy
        finally:
            nursery.cancel_scope.cancel()


# --- one session ---------------------------------------------------------------------------------


class Sessions:
    """Sessions through one proxy, each cut somewhere."""

    def __init__(self, proxy: Proxy, direct: Client, token: str) -> None:
        self.proxy = proxy
        self.direct = direct  # a connection that is not cut
        self.token = token
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    async def play(self, cuts: Sequence[Cut]) -> None:
        """One session with these cuts; what is wrong with it is noted."""
        number = self.counts["sessions"]
        self.counts["sessions"] += 1
        self.counts["cuts"] += len(cuts)
        self.proxy.cuts.extend(cuts)
        try:
            with trio.fail_after(WITHIN_S):
                await self._play(f"session-{number}")
        except (AssertionError, trio.TooSlowError) as wrong:
            self.problems.append(f"{cuts}: {wrong!r}")
        finally:
            self.proxy.cuts.clear()

    async def _play(self, key: str) -> None:
        seen: list[TapeEvent] = []
        async with self._connected() as client:
            started = await client.start_run(TEXT, session_key=key, idempotency_key=key)
            async with client.events(started.run_id) as items:
                async for item in items:
                    assert not isinstance(item, EventsDiscarded), item
                    seen += [item] if isinstance(item, TapeEvent) else []
        tape = await read_whole(self.direct, started.run_id)
        check_tape(tape)
        assert tape == seen, f"saw {[event.seq for event in seen]}"
        runs = (await self.direct.list_runs(session_id=started.session_id)).runs
        assert [started.run_id] == [run.run_id for run in runs], "the run was started twice"
        self.counts["events"] += len(seen)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Client]:
        """A client; the first connection is the caller's to try again."""
        url = f"ws://127.0.0.1:{self.proxy.port}/v1/ws"
        async with AsyncExitStack() as stack:
            client: Client | None = None
            while client is None:
                try:
                    client = await stack.enter_async_context(connect(url, token=self.token))
                except Unavailable:
                    self.counts["first_connection_failed"] += 1
            yield client


def places(size_bytes: dict[Direction, int], every: int, rng: random.Random) -> Iterator[list[Cut]]:
    """One cut at about every `every`-th byte of a session, and some sessions with many cuts."""
    for direction, size in size_bytes.items():
        for place in range(rng.randrange(every), size, every):
            yield [Cut(direction, place, by_reset=rng.random() < 0.5)]
    for _ in range(10):
        yield [Cut("down", rng.randint(1_500, 6_000)) for _ in range(8)]


async def play_all(daemon: DaemonProcess, every: int, seed: int) -> Sessions:
    """Measure a session that is not cut, then cut the others all along it."""
    async with proxied(daemon) as proxy, daemon.connect() as direct:
        sessions = Sessions(proxy, direct, daemon.token)
        await sessions.play([])
        size_bytes = dict(proxy.passed)
        for cuts in places(size_bytes, every, random.Random(seed)):
            await sessions.play(cuts)
        sessions.counts["connections"] = proxy.connections
        sessions.counts |= {f"session_bytes_{way}": size for way, size in size_bytes.items()}
    return sessions


def cut_all(every: int, seed: int) -> dict[str, Any]:
    """Sums over all sessions, and what was wrong."""
    settings = {
        "PALYRA_SERVER__REQUESTS_PER_S": "100000",
        "PALYRA_SERVER__ALLOWED_HOSTS": "127.0.0.1",  # on any port: the proxy has its own
    }
    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(reconnecting, "BACKOFF", QUICK),
        running(Path(name), **settings) as daemon,
    ):
        sessions = trio.run(play_all, daemon, every, seed)
        assert daemon.stop() == 0
    return {**sessions.counts, "problems": sessions.problems}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="Connections cut at any byte.")
    parser.add_argument("--every", type=int, default=7, help="a cut at every N-th byte")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = cut_all(options.every, options.seed)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
