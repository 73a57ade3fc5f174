"""The end of a run, as the end of its task."""

from typing import Any

import msgspec

from palyra.core.journal.records import RunState
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import FAILURE_CLASSES, RETRYABLE
from palyra.core.tape import events as ev
from palyra.core.task.run_end import RunEnd, find_failure, may_repeat, read_end
from tests.rows import every_row


def row(event: ev.Event) -> TapeRow:
    return TapeRow(
        run_id="run_1", session_id="ses_1", seq=0, at_ms=0, kind=event.KIND, principal="ann",
        redacted=False, data=ev.encode_event(event),
    )  # fmt: skip


def decided(verdict: Any) -> TapeRow:
    return row(
        ev.ToolDecided(
            call_id="c", verdict=verdict, reason_code="denied_by_person", reason="no",
            policies=(), policy_version="v",
        )
    )  # fmt: skip


STARTED = row(ev.ToolStarted(call_id="c", executor="async", enforcement="gate", batch=0))


def failed(failure: str) -> TapeRow:
    return row(ev.RunFailed(failure_class=failure, reason="r", action="a"))


@every_row(
    ("rows", "state", "expected"),
    [
        ([], "done", ""),
        ([decided("allow"), STARTED], "done", ""),
        ([decided("deny")], "done", "is done, but 1 of its calls were refused; denied_by_person: no"),
        ([decided("deny"), decided("allow"), decided("deny")], "done",
         "is done, but 2 of its calls were refused; denied_by_person: no"),
        ([], "cancelled", "ended as cancelled: because"),
        ([], "partial", "ended as partial: because"),
    ],
)  # fmt: skip
def test_a_task_succeeds_with_a_run_that_did_all_it_wanted(
    rows: list[TapeRow], state: RunState, expected: str
) -> None:
    """A run that was refused a call has answered without it."""
    assert expected == find_failure(state, "because", read_end(rows))


def test_only_a_run_that_did_nothing_is_repeated() -> None:
    """After a passing failure of its provider and before its first call; proposals are no calls."""
    for failure in FAILURE_CLASSES:
        is_passing = failure in RETRYABLE
        assert is_passing == may_repeat("failed", read_end([failed(failure)]))
        assert is_passing == may_repeat("failed", read_end([decided("deny"), failed(failure)]))
        assert not may_repeat("failed", read_end([STARTED, failed(failure)]))
        assert not may_repeat("cancelled", read_end([failed(failure)]))


def test_other_events_are_not_decoded() -> None:
    """A long tape costs little."""
    broken = msgspec.structs.replace(decided("deny"), kind="turn.completed", data=b"{")
    assert RunEnd() == read_end([broken])
