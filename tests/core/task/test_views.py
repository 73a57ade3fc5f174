"""Views of tasks and schedules: a client sees the timing, and nothing of the queue."""

from typing import Any

import msgspec

from palyra.core.journal.records import At, Cron, Every, ScheduleRecord, TaskRecord, Timing
from palyra.core.task.views import ScheduleView, TaskView
from tests.rows import every_row

SCHEDULE = ScheduleRecord(
    schedule_id="sch_1", principal="ann", name="nightly", timing=At(at_ms=7), kind="prompt",
    payload={"text": "report"}, handled_ms=3, next_ms=7, fired=2, created_ms=1, revision=5,
    is_paused=True,
)  # fmt: skip


@every_row(
    ("timing", "shown"),
    [
        (Cron(expression="0 2 * * *", zone="Asia/Tokyo"), {"cron": "0 2 * * *", "zone": "Asia/Tokyo"}),
        (Every(period_ms=60_000, anchor_ms=5), {"every_ms": 60_000}),
        (At(at_ms=7), {"at_ms": 7}),
    ],
)  # fmt: skip
def test_a_schedule_shows_the_fields_of_its_timing_only(
    timing: Timing, shown: dict[str, Any]
) -> None:
    """The other fields of timings are absent on the wire."""
    view = ScheduleView.of(msgspec.structs.replace(SCHEDULE, timing=timing), "a problem")
    wire = msgspec.to_builtins(view)
    assert shown == {
        name: wire[name] for name in ("cron", "zone", "every_ms", "at_ms") if name in wire
    }
    assert ("nightly", True, "a problem", 7) == (view.name, view.paused, view.problem, view.next_ms)
    assert {"handled_ms", "revision", "timing"}.isdisjoint(wire)


def test_a_task_is_shown_without_lease_and_order() -> None:
    """Fields that only the queue uses stay in the daemon; the others are those of the record."""
    task = TaskRecord(
        task_id="tsk_1", kind="prompt", principal="ann", rank_ms=9, created_ms=1, not_before_ms=2
    )
    wire = msgspec.to_builtins(TaskView.of(task))
    assert {"lease", "rank_ms", "revision"}.isdisjoint(wire)
    assert ("tsk_1", "queued", 2) == (wire["task_id"], wire["state"], wire["not_before_ms"])
