"""Replies of the daemon that are derived from records."""

from typing import Any

import msgspec

from palyra.core.journal.records import RunRecord
from palyra.core.session.commands import RunView
from tests.rows import every_row

RUN = RunRecord(
    run_id="run_1", session_id="ses_1", state="in_progress", principal="ann", agent="default",
    model="m", created_ms=1, head_seq=1,
)  # fmt: skip


@every_row(
    ("changes", "flags", "phase"),
    [
        ({}, {}, "in_progress"),
        ({"state": "accepted"}, {}, "queued"),
        ({"pending_approvals": 1}, {}, "awaiting_approval"),
        ({"pending_approvals": 1}, {"is_recovering": True}, "recovering"),
        ({}, {"is_recovering": True, "is_stranded": True}, "stranded"),
        ({"state": "done"}, {"is_stranded": True}, "done"),
        ({"state": "failed"}, {}, "failed"),
    ],
)
def test_the_phase_of_a_run(changes: dict[str, object], flags: dict[str, Any], phase: str) -> None:
    """The end of a run comes first, then the state of its actor, then the wait for a person."""
    view = RunView.of(msgspec.structs.replace(RUN, **changes), **flags)
    assert (phase, phase in {"done", "failed"}) == (view.phase, view.is_terminal)
