"""The rules of every tape, checked on plain events without the daemon's own fold."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from palyra.client import Client, TapeEvent
from palyra.core.tape import events as ev
from palyra.core.tape.events import TERMINAL_KINDS

# Order within a call; what is absent is left out.
CALL_ORDER = (
    "tool.proposed",
    "tool.rejected",
    "approval.requested",
    "approval.resolved",
    "tool.decided",
    "tool.started",
    "delegation.started",
    "tool.completed",
    "delegation.ended",
    "tool.attested",
)


async def read_whole(client: Client, run_id: str) -> list[TapeEvent]:
    """The committed tape of a run."""
    events: list[TapeEvent] = []
    after_seq: int | None = -1
    while after_seq is not None:
        page = await client.read_tape(run_id, after_seq, limit=1000)
        events += page.events
        after_seq = page.next_after_seq
    return events


def kinds(events: Sequence[TapeEvent]) -> list[str]:
    """Just the names."""
    return [event.kind for event in events]


def calls(events: Sequence[TapeEvent]) -> dict[str, list[TapeEvent]]:
    """The events of each proposed call, in order."""
    found: dict[str, list[TapeEvent]] = {}
    for event in events:
        call_id = getattr(event.event, "call_id", None)
        if call_id is not None:
            found.setdefault(call_id, []).append(event)
    return found


def check_tape(events: Sequence[TapeEvent]) -> None:
    """Every promise about the tape of a run that has ended."""
    assert list(range(len(events))) == [event.seq for event in events]
    assert all(early.at_ms <= late.at_ms for early, late in pairwise(events))
    assert "run.accepted" == events[0].kind
    ends = [event.seq for event in events if event.kind in TERMINAL_KINDS]
    assert [len(events) - 1] == ends
    _check_turns(events)
    for call in calls(events).values():
        _check_call(kinds(call))
    if "run.done" == events[-1].kind:
        assert "message.completed" == events[-2].kind


def _check_turns(events: Sequence[TapeEvent]) -> None:
    """A completed turn is never repeated; every attempt has its own number."""
    completed: list[int] = []
    attempts: Counter[tuple[int, int]] = Counter()
    for item in events:
        match item.event:
            case ev.TurnStarted(turn=turn, attempt=attempt):
                assert turn not in completed
                attempts[turn, attempt] += 1
            case ev.TurnCompleted(turn=turn):
                completed.append(turn)
            case _:
                pass
    assert completed == sorted(set(completed))
    assert all(count == 1 for count in attempts.values()), attempts


def _check_call(names: Sequence[str]) -> None:
    """Each step at most once, in order; whatever was proposed is attested."""
    assert list(names) == [name for name in CALL_ORDER if name in names]
    assert "tool.proposed" == names[0]
    assert "tool.attested" == names[-1]
    assert ("approval.requested" in names) == ("approval.resolved" in names)
