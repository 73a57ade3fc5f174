"""Pins: messages and tool results that a person marked to survive every compaction verbatim.

A pin names the event of a tape that brought the message.  The session's record holds the pins; each
compaction reads the pinned messages from the tapes again, so a message that was unpinned is missing
in the next summary.
"""

from collections.abc import Iterable

from palyra.core.context.entries import PINNED_CHARS, Placed
from palyra.core.context.history import is_left_out
from palyra.core.journal.records import Pin
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.run.state import Run, apply, begin, transcript_with_results
from palyra.core.tape import events as ev
from palyra.errors import InvalidParams, InvariantBroken

MAX_PINS = 16  # of a session: 16 000 tokens at most


def find_pinned(rows: Iterable[TapeRow], seq: int) -> Placed | None:
    """Return the message that the event `seq` brought, None if it brought none.

    Raises InvariantBroken for a tape that cannot be folded.
    """
    run: Run | None = None
    for row in rows:
        if row.seq > seq:
            break
        event = ev.decode_event(row.kind, row.data)
        if run is not None:
            run = apply(run, event, row.at_ms)
        elif isinstance(event, ev.RunAccepted):
            run = begin(row.run_id, event, row.at_ms)
        else:
            raise InvariantBroken(f"the tape of {row.run_id} does not begin with run.accepted")
        if row.seq == seq:
            return _brought(run, event)
    return None


def _brought(run: Run, event: ev.Event) -> Placed | None:
    said = [each for each in transcript_with_results(run) if not is_left_out(each)]
    for index in reversed(range(len(said))):
        if _is_of(said[index], event):
            return Placed(run.run_id, index, said[index])
    return None


def _is_of(message: Message, event: ev.Event) -> bool:
    match event:
        case ev.MessageReceived() | ev.SteerReceived():
            return isinstance(message, UserMessage)
        case ev.TurnCompleted():
            return isinstance(message, AssistantMessage)
        case ev.ToolCompleted():
            return isinstance(message, ToolMessage) and message.call_id == event.call_id
        case _:
            return False


def check_pin(placed: Placed | None, pin: Pin) -> None:
    """Raise InvalidParams unless the event brought a text that fits a summary."""
    if placed is None:
        raise InvalidParams(
            f"seq {pin.seq} of {pin.run_id} brought no message: pin a message.received, "
            "steer.received, turn.completed or tool.completed",
            field="seq",
        )
    message = placed.message
    text = (message.output if isinstance(message, ToolMessage) else message.text).strip()
    if not text:
        raise InvalidParams(f"seq {pin.seq} of {pin.run_id} has no text to keep", field="seq")
    if len(text) > PINNED_CHARS:
        raise InvalidParams(
            f"seq {pin.seq} of {pin.run_id} has {len(text)} characters, a pin keeps at most "
            f"{PINNED_CHARS}: pin a shorter message that states what matters",
            field="seq",
        )


def changed_pins(pins: tuple[Pin, ...], pin: Pin, *, is_on: bool) -> tuple[Pin, ...]:
    """Return the pins with or without one; a full list stays as it is."""
    others = tuple(each for each in pins if each != pin)
    if not is_on:
        return others
    return pins if pin in pins or len(pins) >= MAX_PINS else (*pins, pin)
