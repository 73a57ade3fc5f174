"""Clock, ids, randomness and threads that the daemon takes from its machine.

The daemon creates UUIDv7 ids only here.
"""

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from uuid_utils import uuid7

from palyra.actors.journal.actor import JournalThread
from palyra.actors.kernel.threads import DedicatedThread, run_sync
from palyra.core.backoff import Backoff, compute_delay_s
from palyra.core.channel import CODE_CHARS, CODE_LETTERS
from palyra.core.ids import NewId, Prefix
from palyra.core.ports import Artifacts, CheckpointStore, NowMs, RunBlocking


def new_id(prefix: Prefix) -> str:
    """Return a new id, such as `run_018f…`, that sorts by creation time."""
    return f"{prefix}_{uuid7()}"


MIB, DAY_MS = 1_048_576, 86_400_000
MODEL_BACKOFF = Backoff(base_s=0.5, cap_s=20.0)


def now_ms() -> int:
    """Return the Unix time in integer milliseconds."""
    return time.time_ns() // 1_000_000


def new_code() -> str:
    """Return a new pairing code with 40 random bits."""
    return "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_CHARS))


@dataclass(frozen=True, slots=True)
class Host:
    """Services of the machine that the daemon runs on; a simulation provides its own."""

    now_ms: NowMs = now_ms
    new_id: NewId = new_id
    new_code: Callable[[], str] = new_code
    random: Callable[[], float] = random.random  # noqa: S311 - jitter of retries, not for security
    run_blocking: RunBlocking = run_sync
    new_thread: Callable[[str], JournalThread] = DedicatedThread
    file_stores: tuple[Artifacts, CheckpointStore] | None = None  # None: in the data directory
    is_closed: bool = False  # simulated time: no processes, sockets or watched files

    def model_backoff_ms(self, attempt: int) -> int:
        """Return a random backoff in milliseconds after `attempt` failed attempts at a model call."""
        return round(1000 * compute_delay_s(MODEL_BACKOFF, attempt, self.random))
