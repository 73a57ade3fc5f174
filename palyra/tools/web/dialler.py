"""Checked outbound connections: resolve a host name once, check every address, dial a checked one.

`http_client` and the egress proxy open all their connections through `Dialler`.  The checks resist
DNS rebinding, because the connection is made to a checked address and the name is not resolved a
second time.
Never: connects when any address of the DNS answer is refused.
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack

import trio

from palyra.errors import Unavailable
from palyra.tools.web.egress_policy import ReachRules

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]  # host and port to addresses, in order
Stream = trio.abc.HalfCloseableStream
Connect = Callable[[str, int], Awaitable[Stream]]  # an address, never a name
Dial = Callable[[str, int], Awaitable[Stream]]

ATTEMPT_S = 4.0  # timeout for one address; leaves time to try the next one
MAX_ATTEMPTS = 4


async def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of the host, in the system's order of preference.

    Raises Unavailable.  Cancellation: the lookup is abandoned.
    """
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label that IDNA cannot encode
        raise Unavailable(f"{host} cannot be resolved: {_reason(error)}") from None
    return [str(address[0]) for *_, address in found]


async def connect(address: str, port: int) -> Stream:
    """Open a TCP connection to exactly this address.  Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = trio.socket.socket(family, socket.SOCK_STREAM)
    with ExitStack() as cleanup:
        cleanup.callback(sock.close)
        await sock.connect((address, port))
        cleanup.pop_all()
    return trio.SocketStream(sock)


class Dialler:
    """Opens checked connections.  Tests replace `resolve` and `connect` with recording fakes."""

    def __init__(
        self, rules: ReachRules, *, resolve: Resolve = resolve, connect: Connect = connect
    ) -> None:
        self.rules = rules
        self._resolve = resolve
        self._connect = connect

    async def dial(self, host: str, port: int) -> Stream:
        """Connect to one of the host's addresses, after checking all of them.

        At most MAX_ATTEMPTS addresses are tried, ATTEMPT_S each.
        Raises EgressRefused before any connection attempt, Unavailable when no address answers.
        Cancellation: no connection stays open.
        """
        self.rules.check_port(host, port)
        answer = await self._resolve(host.strip("[]"), port)
        addresses = self.rules.check_addresses(host, port, dict.fromkeys(answer))
        reason = "no answer"
        for address in addresses[:MAX_ATTEMPTS]:
            try:
                with trio.move_on_after(ATTEMPT_S):
                    return await self._connect(address, port)
            except OSError as error:
                reason = _reason(error)
        raise Unavailable(f"{host}:{port} cannot be reached: {reason}")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
