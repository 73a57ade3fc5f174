"""Giving up a stranded run: its end is written behind a tape that nobody can follow.

Nothing is decided, because nothing is known: a call that was under way keeps no outcome, and the
reason says so.  Questions that were still open are settled with it.
"""

import msgspec

from palyra.actors.office import Office
from palyra.core.alarms import stranded_key
from palyra.core.events import RunCancelled, encode_event
from palyra.core.journal import Change
from palyra.core.records import ApprovalRecord, RunRecord
from palyra.core.run_steps import Cancel
from palyra.core.tape import TapeRow

MOST_QUESTIONS = 1_000  # of one run; there is one at a time


async def give_up(office: Office, record: RunRecord, cancel: Cancel) -> None:
    """End the run as cancelled, committed on return.

    Raises Unavailable, and the run stays stranded.  Cancellation: it may be ended or not.
    """
    stranded = office.directory.stranded
    why = stranded.pop(record.run_id)  # a second caller waits for the end instead
    has_ended = False
    try:
        asked = await office.journal.read(
            lambda store: store.list_approvals(
                principal=None, run_id=record.run_id, pending_only=True, limit=MOST_QUESTIONS
            )
        )
        await office.journal.append(_ending(office, record, cancel, why, asked)).wait()
        has_ended = True
        office.incidents.clear(stranded_key(record.run_id), f"given up by {cancel.by}")
    finally:
        if not has_ended:
            stranded[record.run_id] = why


def _ending(
    office: Office, record: RunRecord, cancel: Cancel, why: str, asked: list[ApprovalRecord]
) -> Change:
    """The last event, the record that follows from it, and the questions settled by it."""
    now_ms = office.now_ms()
    reason = f"{cancel.reason} (given up: {why}; calls under way have no known outcome)"
    data, is_redacted = office.setting.redact(
        encode_event(RunCancelled(reason=reason, by=cancel.by))
    )
    row = TapeRow(
        record.run_id,
        record.session_id,
        record.head_seq + 1,
        now_ms,
        RunCancelled.KIND,
        record.principal,
        is_redacted,
        data,
    )
    ended = msgspec.structs.replace(
        record,
        state="cancelled",
        finished_ms=now_ms,
        head_seq=row.seq,
        pending_approvals=0,
        reason=msgspec.json.decode(data, type=RunCancelled).reason,
    )
    settled = (
        msgspec.structs.replace(
            question, state="aborted", by=cancel.by, reason="run_cancelled", resolved_ms=now_ms
        )
        for question in asked
    )
    return Change(rows=(row,), records=(ended, *settled))
