"""Clock, ids, randomness and threads that the daemon takes from its machine.

The daemon creates UUIDv7 ids only here.
"""

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from uuid_utils import uuid7

from palyra.actors.journal.actor import JournalThread
from palyra.actors.kernel.threads import DedicatedThread, run_sync
from palyra.core.backoff import Backoff, compute_delay_s
from palyra.core.channel import CODE_CHARS, CODE_LETTERS
from palyra.core.ids import NewId, Prefix, is_any_id
from palyra.core.ports import Artifacts, CheckpointStore, NowMs, RunBlocking

TIME_CHARS = 13  # of a UUIDv7: 48 bits of milliseconds, with a dash
LAST = "80000000-0000"  # in the year 6429: no clock was ahead that far


def new_id(prefix: Prefix) -> str:
    """Return a new id, such as `run_018f…`, that sorts by creation time."""
    return f"{prefix}_{uuid7()}"


class Ids:
    """New ids that sort by creation, also after a clock was set back.

    While the clock is behind the newest id, times of ids go on from that, a millisecond for each id.
    """

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest = ""  # the time of the newest, as ids have it

    def note(self, newest: str) -> None:
        """Make all further ids later than that one; no id, or one of a time past `LAST`, is ignored."""
        if is_any_id(newest):
            time_of = newest.partition("_")[2][:TIME_CHARS]
            self._newest = max(self._newest, time_of if time_of < LAST else "")

    def __call__(self, prefix: Prefix) -> str:
        """Return a new id, such as `run_018f…`."""
        made = f"{uuid7()}"
        if made[:TIME_CHARS] < self._newest:  # the clock was ahead
            later_ms = int(self._newest.replace("-", ""), 16) + 1
            made = f"{uuid7(nanoseconds=later_ms * 1_000_000)}"
        self._newest = made[:TIME_CHARS]
        return f"{prefix}_{made}"


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
    new_id: NewId = field(default_factory=Ids)
    new_code: Callable[[], str] = new_code
    random: Callable[[], float] = random.random  # noqa: S311 - jitter of retries, not for security
    run_blocking: RunBlocking = run_sync
    new_thread: Callable[[str], JournalThread] = DedicatedThread
    file_stores: tuple[Artifacts, CheckpointStore] | None = None  # None: in the data directory
    is_closed: bool = False  # simulated time: no processes, sockets or watched files

    def model_backoff_ms(self, attempt: int) -> int:
        """Return a random backoff in milliseconds after `attempt` failed attempts at a model call."""
        return round(1000 * compute_delay_s(MODEL_BACKOFF, attempt, self.random))
