"""What goes out is redacted without holding up the loop.

Most replies cost a look of microseconds.  One in which something looks like a secret costs about a
millisecond for each two thousand bytes, because each of its strings is read by itself.
"""

from palyra.actors.blocking import run_sync
from palyra.core.ports import RunBlocking
from palyra.net.rpc import Redact

REDACT_INLINE_BYTES = 2_048  # at most a millisecond; more goes to a thread


async def without_secrets(
    data: bytes, redact: Redact, run_blocking: RunBlocking = run_sync
) -> bytes:
    """The JSON or text as it may go out.  Cancellation: not heard while it is in a thread."""
    if len(data) <= REDACT_INLINE_BYTES:
        return redact(data)[0]
    return (await run_blocking(redact, data))[0]
