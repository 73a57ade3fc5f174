"""The parts of a daemon that its configuration decides, each made by one function.

Fresh ids: the one place where the daemon makes a UUIDv7.
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
    """`run_018f…`: sorts by creation time."""
    return f"{prefix}_{uuid7()}"


MIB, DAY_MS = 1_048_576, 86_400_000
MODEL_BACKOFF = Backoff(base_s=0.5, cap_s=20.0)


def now_ms() -> int:
    """Unix time, integer milliseconds."""
    return time.time_ns() // 1_000_000


def new_code() -> str:
    """A fresh code for a sender that wants to be paired, 40 bits."""
    return "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_CHARS))


@dataclass(frozen=True, slots=True)
class Host:
    """What the daemon takes from the machine it runs on; a simulation hands in its own."""

    now_ms: NowMs = now_ms
    new_id: NewId = new_id
    new_code: Callable[[], str] = new_code
    random: Callable[[], float] = random.random  # noqa: S311 - spreads retries, guards nothing
    run_blocking: RunBlocking = run_sync
    new_thread: Callable[[str], JournalThread] = DedicatedThread
    file_stores: tuple[Artifacts, CheckpointStore] | None = None  # instead of the data directory
    is_closed: bool = False  # no processes, sockets or watched files: time is not real

    def model_backoff_ms(self, attempt: int) -> int:
        """Draw the backoff after `attempt` failed attempts at a model call, milliseconds."""
        return round(1000 * compute_delay_s(MODEL_BACKOFF, attempt, self.random))
