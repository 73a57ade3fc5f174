"""Retention and purges that meet at one run, and the cleanup that retains in steps."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio

from palyra.core.journal.records import SessionPurge
from palyra.core.journal.retention import RetentionLimits, RetentionReport, RunToPrune
from palyra.errors import Conflict
from palyra.operations.purge import DataRights
from palyra.operations.retention import Retention, RetentionStores
from palyra.operations.task_handlers import Cleanup

RUN = cast("Any", SimpleNamespace(run_id="run_1", is_terminal=True, purged_ms=None))
PURGE = SessionPurge(purge_id="ret_1", by="palyra", requested_ms=1)


class Journal:
    """One run; `now` is its state after another writer was quicker."""

    def __init__(self, now: Any) -> None:
        self.answers = [RUN, now]

    async def find(self, _query: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def rights_over(journal: Journal) -> DataRights:
    """Data rights whose commit is refused."""
    services = cast("Any", SimpleNamespace(journal=journal))
    nothing = cast("Any", None)
    rights: Any = DataRights(
        services, *[nothing] * 3, documents=nothing, files=nothing, tasks=nothing
    )

    async def refuse(*_: Any) -> int:
        await trio.lowlevel.checkpoint()
        raise Conflict("the run was changed")

    rights.purge_run = refuse
    rights.forget_runs = lambda _ids: None
    return cast("DataRights", rights)


PURGED = SimpleNamespace(run_id="run_1", is_terminal=True, purged_ms=5)


@pytest.mark.parametrize("now", [PURGED, None])
async def test_a_run_that_was_purged_meanwhile_is_done(now: Any) -> None:
    """Retention leaves it out, and a purge of its session counts no event of it."""
    journal = Journal(now)
    rights = rights_over(journal)
    services = cast("Any", SimpleNamespace(**dict.fromkeys(("run_blocking", "now_ms", "new_id"))))
    services.journal = journal
    retention = Retention(
        RetentionLimits(),
        RetentionStores(lambda: 0, None, *[cast("Any", None)] * 2),
        rights,
        services,
    )
    assert [] == await retention._prune_runs([RunToPrune("run_1", 9)], PURGE)
    assert 0 == await rights.purge_unpurged(RUN, PURGE)


async def test_another_conflict_is_raised() -> None:
    """Only the end that was wanted is taken for success."""
    rights = rights_over(Journal(RUN))
    with pytest.raises(Conflict):
        await rights.purge_unpurged(RUN, PURGE)


REPORT = RetentionReport(is_set=True, is_complete=False, free_bytes=4_096)


@pytest.mark.parametrize(
    ("reports", "calls", "runs"),
    [
        ([msgspec.structs.replace(REPORT, runs=3)] * 2 + [RetentionReport(is_set=True)], 3, 6),
        ([REPORT] * 9, 2, 0),  # nothing changes: pages that cannot be returned now
    ],
)
async def test_a_cleanup_retains_until_a_step_changes_nothing(
    reports: list[RetentionReport], calls: int, runs: int
) -> None:
    """Each step is progress of the task."""
    steps, signs = list(reports), list[None]()

    async def maintain(*, max_runs: int, max_steps: int) -> RetentionReport:
        await trio.lowlevel.checkpoint()
        assert max_runs < 100 > max_steps
        return steps.pop(0)

    done = await Cleanup(maintain).work(cast("Any", None), lambda: signs.append(None))
    assert ({"deleted": 0, "runs": runs, "incidents": 0}, calls) == (done, len(signs))
    assert calls == len(reports) - len(steps)
