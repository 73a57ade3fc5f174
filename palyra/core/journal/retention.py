"""Retention: bounds in age and size, and the plan and result of applying them."""

from typing import NamedTuple

import msgspec

PRUNES = "ret_"  # start of the purge id of a run whose tape was pruned
# The unit of bounds in age: a difference up to this deletes nothing before its time.
DOUBT_MS = 86_400_000
CONFIRM_MS = 86_400_000  # running time after which a doubted clock is believed


class Aging(msgspec.Struct, frozen=True, kw_only=True):
    """The time that a home knows, for ages of its content."""

    agreed_ms: int  # Unix time; while the clock is doubted it goes on with the running time
    doubted_ms: int = 0  # running time since the clock is doubted

    def age_ms(self, now_ms: int) -> int:
        """Return the time by which content ages."""
        return now_ms if now_ms <= self.agreed_ms + DOUBT_MS else self.agreed_ms


def observe(known: Aging, now_ms: int, elapsed_ms: int) -> Aging:
    """Compare a wall clock with what is known, after some running time."""
    if abs(now_ms - known.agreed_ms) <= DOUBT_MS:
        return Aging(agreed_ms=now_ms)
    doubted_ms = known.doubted_ms + elapsed_ms
    if doubted_ms >= CONFIRM_MS:
        return Aging(agreed_ms=now_ms)
    return Aging(agreed_ms=known.agreed_ms + elapsed_ms, doubted_ms=doubted_ms)


class RetentionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the content of the journal; 0 means none.  Those of files are with their folders."""

    tapes_ms: int = 0  # since the end of a run
    tapes_bytes: int = 0  # payloads of all tapes
    incidents_ms: int = 0  # since they were resolved
    incidents: int = 0  # resolved ones
    tasks_ms: int = 0  # since their end
    tasks: int = 0  # ended ones

    @property
    def are_set(self) -> bool:
        """True if any of them is set."""
        return any(msgspec.structs.astuple(self))


class RunToPrune(NamedTuple):
    """An ended run over a bound."""

    run_id: str
    size_bytes: int  # of its payloads


class RetentionPlan(NamedTuple):
    """Content of the journal over its bounds, oldest first."""

    runs: tuple[RunToPrune, ...]
    kept_runs: int  # over a bound in age, but in use
    incidents: int
    incidents_until_ms: int  # resolved up to then
    tasks: int = 0
    tasks_until_ms: int = -1  # ended up to then
    receipts: int = 0  # all of them: they are kept for their whole promise, and no bound cuts it


class InUse(NamedTuple):
    """Owners of files that are kept.

    A file is kept beyond its age while its session is of any kind; beyond the size of its folder, only
    while its session is held or has an open run.
    """

    held: frozenset[str] = frozenset()  # sessions with a mark or a pin, or that are being purged
    running: frozenset[str] = frozenset()  # sessions with an open run
    kept: frozenset[str] = (
        frozenset()
    )  # sessions of tapes that are kept: see `store.sqlite.retention`
    checkpoints: frozenset[str] = frozenset()  # of versions of workspace documents

    def has_session(self, session_id: str | None) -> bool:
        """True if the session is in use."""
        return session_id in self.held or session_id in self.running or session_id in self.kept

    def without(self, writer: str) -> "InUse":
        """Return what is in use for a folder over its size, to which that session writes."""
        return self._replace(running=self.running - {writer}, kept=frozenset())


class Space(NamedTuple):
    """Size of the database file."""

    size_bytes: int
    free_bytes: int  # pages without content
    page_bytes: int
    is_incremental: bool  # the file can be shortened step by step


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what is over the bounds, or of what was removed."""

    is_set: bool  # False: [retention] has no bound for the content of the journal
    runs: int = 0
    kept_runs: int = 0  # over the bound in age, but in use
    tape_bytes: int = 0  # of payloads
    artifacts: int = 0
    artifact_bytes: int = 0
    file_checkpoints: int = 0
    file_checkpoint_bytes: int = 0
    incidents: int = 0
    tasks: int = 0
    receipts: int = 0  # kept replies to requests with an idempotency key; each goes after a day
    is_complete: bool = True  # False: `max_runs` was reached
    database_bytes: int = 0
    free_bytes: int = 0  # of the database file; `palyra retention compact` returns them
    is_incremental: bool = True  # False: they can only be returned while the daemon is stopped


class CompactionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the database file before and after."""

    before_bytes: int
    after_bytes: int
    steps: int
    is_complete: bool
    remedy: str = ""  # when it cannot be done while the daemon runs
