"""The bounds of one connection, and the arithmetic of request rates.

Pure: time comes in.
"""

import msgspec

from palyra.config.load import Config
from palyra.net.protocol.notifications import PublicLimits


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may use.  Tests and operators make them smaller."""

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
        """Those that `hello` tells."""
        return PublicLimits(
            max_message_bytes=self.max_message_bytes,
            max_inflight=self.max_inflight,
            max_subscriptions=self.max_subscriptions,
            outbox_bytes=self.outbox_bytes,
            requests_per_s=self.requests_per_s,
        )


def limits_of(config: Config) -> ConnectionLimits:
    """As the configuration has them."""
    server = config.server
    return ConnectionLimits(
        max_message_bytes=server.max_message_bytes,
        max_inflight=server.max_inflight,
        max_subscriptions=server.max_subscriptions,
        outbox_bytes=server.outbox_bytes,
        requests_per_s=server.requests_per_s,
    )


class TokenBucket:
    """So many per second, and a burst after a pause."""

    __slots__ = ("_burst", "_level", "_per_s", "_seen_s")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = burst
        self._seen_s = now_s

    def take(self, now_s: float, amount: float = 1.0) -> bool:
        """Whether there was enough; takes it if so."""
        gained = (now_s - self._seen_s) * self._per_s
        self._level = min(self._burst, self._level + gained)
        self._seen_s = now_s
        if self._level < amount:
            return False
        self._level -= amount
        return True

    @property
    def wait_ms(self) -> int:
        """Milliseconds until one more is there."""
        return max(1, round(1000 * (1 - self._level) / self._per_s))
