"""Sources of taint: each event that brings findings is named with its number, and no other."""

from collections.abc import Sequence

import msgspec

from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ToolMessage, UserMessage
from palyra.core.tape import events as ev
from palyra.core.tape.taint import TaintSource, read_taint

BAD = ("spoofed_role",)
RESULT = ToolMessage("c9", "look", "succeeded", "x", findings=BAD)


def inherited(*messages: ToolMessage | UserMessage, is_tainted: bool = False) -> ev.Event:
    """An inherited conversation."""
    return ev.ConversationInherited(
        run_id="r", at_seq=1, link="", messages=messages, is_tainted=is_tainted
    )


def taint(events: Sequence[ev.Event]) -> tuple[TaintSource, ...]:
    """The sources of a tape of these events."""
    return read_taint([
        TapeRow(
            run_id="r", session_id="s", seq=at, at_ms=0, kind=event.KIND,
            data=msgspec.json.encode(event),
        )
        for at, event in enumerate(events)
    ])  # fmt: skip
