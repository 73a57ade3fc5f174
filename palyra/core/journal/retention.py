"""Retention: bounds in age and size, and the plan and result of applying them."""

from typing import NamedTuple

import msgspec

PRUNES = "ret_"  # start of the purge id of a run whose tape was pruned


class RetentionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds; 0 means none."""

    tapes_ms: int = 0  # since the end of a run
    tapes_bytes: int = 0  # payloads of all tapes
    artifacts_ms: int = 0
    artifacts_bytes: int = 0
    checkpoints_ms: int = 0
    checkpoints_bytes: int = 0
    incidents_ms: int = 0  # since they were resolved
    incidents: int = 0  # resolved ones
    tasks_ms: int = 0  # since their end
    tasks: int = 0  # ended ones

    @property
    def are_set(self) -> bool:
        """True if there is any bound."""
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
    """Owners of files that are kept whatever their age."""

    sessions: frozenset[str]  # with an open run, a mark or a pin
    checkpoints: frozenset[str]  # of versions of workspace documents


class Space(NamedTuple):
    """Size of the database file."""

    size_bytes: int
    free_bytes: int  # pages without content
    page_bytes: int
    is_incremental: bool  # the file can be shortened step by step


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what is over the bounds, or of what was removed."""

    is_set: bool  # False: [retention] has no bound
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
