"""Limits of connections: their bounds, the rate of their requests, the rate of their writes.

Pure: time is an argument.
"""

import msgspec

from palyra.config.load import Config
from palyra.net.protocol.notifications import PublicLimits


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection.  Tests and operators lower them."""

    max_message_bytes: int = 1_048_576
    max_inflight: int = 64
    max_subscriptions: int = 256
    outbox_bytes: int = 8_388_608
    requests_per_s: int = 100
    burst: int | None = None  # requests at once after a pause; None: two seconds' worth
    flood_factor: int = 10  # messages above this multiple of the rate end the connection
    connect_timeout_s: float = 10.0
    stall_s: float = 10.0  # one write may take this long
    goodbye_s: float = 1.0  # to write what waits before a close

    @property
    def public(self) -> PublicLimits:
        """The limits announced in `hello`."""
        return PublicLimits(
            max_message_bytes=self.max_message_bytes,
            max_inflight=self.max_inflight,
            max_subscriptions=self.max_subscriptions,
            outbox_bytes=self.outbox_bytes,
            requests_per_s=self.requests_per_s,
        )


def limits_of(config: Config) -> ConnectionLimits:
    """Limits from the configuration."""
    server = config.server
    return ConnectionLimits(
        max_message_bytes=server.max_message_bytes,
        max_inflight=server.max_inflight,
        max_subscriptions=server.max_subscriptions,
        outbox_bytes=server.outbox_bytes,
        requests_per_s=server.requests_per_s,
    )


class TokenBucket:
    """Token bucket: `per_s` requests a second, and up to `burst` at once after a pause."""

    __slots__ = ("_burst", "_level", "_per_s", "_seen_s")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = burst
        self._seen_s = now_s

    def take(self, now_s: float, amount: float = 1.0) -> bool:
        """Consume `amount` tokens; False, and none consumed, if there are fewer."""
        gained = (now_s - self._seen_s) * self._per_s
        self._level = min(self._burst, self._level + gained)
        self._seen_s = now_s
        if self._level < amount:
            return False
        self._level -= amount
        return True

    @property
    def wait_ms(self) -> int:
        """Milliseconds until one token is available, at least 1."""
        return max(1, round(1000 * (1 - self._level) / self._per_s))


# --- writes --------------------------------------------------------------------------------------

GAP_S = 0.001  # between two writes of one connection
SLOT_S = 0.0004  # of the loop for each write: about 2,500 per second
LONGEST_S = (
    0.03  # an idle stream is notified of a commit within 50 ms, however many connections write
)


class Pacer:
    """Write slots of all connections of a daemon, so that many readers do not fill the loop.

    A write costs about 0.1 ms whatever its size, an event in it a hundredth of that.  Frames
    therefore gather before they are written: each connection leaves a gap between its writes, and
    all connections share slots.  The first frame after a pause is due at once; replies never wait.
    Measured by bench/stream.py (docs/decisions/0003-hub.md).
    """

    __slots__ = ("_free_s", "_gap_s", "_slot_s")

    def __init__(self, *, gap_s: float = GAP_S, slot_s: float = SLOT_S) -> None:
        self._gap_s = gap_s
        self._slot_s = slot_s
        self._free_s = 0.0  # when the next slot begins

    def reserve(self, now_s: float, last_s: float) -> float:
        """Reserve a slot; return the time at which a connection that wrote at `last_s` may write."""
        begin_s = max(now_s, self._free_s)
        self._free_s = min(begin_s + self._slot_s, now_s + LONGEST_S)
        return max(begin_s, last_s + self._gap_s)
