"""Pins: the message that an event brought, and the bounds of a session's pins."""

import msgspec
import pytest

from palyra.core.context.entries import PINNED_CHARS, Placed
from palyra.core.context.pins import MAX_PINS, changed_pins, check_pin, find_pinned
from palyra.core.journal.records import Pin
from palyra.core.model.messages import ToolMessage, UserMessage
from palyra.core.run.inputs import Begin, CallEnded, Steer, TurnFinished
from palyra.errors import InvalidParams, InvariantBroken
from tests.core.run.fates import rows
from tests.core.run.run_world import World, turn


def talked() -> World:
    """A run with a call, a word of the user and two answers."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    world.hear(TurnFinished(turn=1, attempt=1, result=turn("allow", "allow", text="look")))
    for call_id in ("c1", "c2"):
        world.hear(
            CallEnded(call_id=call_id, status="succeeded", output=call_id, raw_sha256="0" * 64)
        )
    world.hear(Steer(text="shorter", by="ann"))
    world.hear(TurnFinished(turn=2, attempt=1, result=turn(text="the answer")))
    world.hear(TurnFinished(turn=3, attempt=1, result=turn(text="short")))
    return world


def test_an_event_is_pinned_with_the_message_that_it_brought() -> None:
    """Each message, answer and result is found by its event; every other event brought none."""
    world = talked()
    found: dict[str, list[str]] = {}
    for seq, (kind, _, _) in enumerate(world.tape):
        placed = find_pinned(rows(world), seq)
        if placed is not None:
            message = placed.message
            text = message.output if isinstance(message, ToolMessage) else message.text
            found.setdefault(kind, []).append(text)
    assert ["c1", "c2"] == found.pop("tool.completed")
    assert "shorter" in found.pop("steer.received")
    assert ["look", "the answer", "short"] == found.pop("turn.completed")
    assert {"message.received"} == set(found)
    assert find_pinned(rows(world), len(world.tape)) is None
    assert find_pinned(rows(world), -1) is None


def test_a_tape_without_its_beginning_pins_nothing() -> None:
    """A tape that does not begin with the acceptance is an error."""
    with pytest.raises(InvariantBroken, match=r"does not begin with run\.accepted"):
        find_pinned(rows(talked())[1:], 3)


def test_a_pin_has_a_text_that_fits() -> None:
    """An event without a message, an empty text and a long one are refused; the limit passes."""
    pin = Pin("run_1", 3)
    fits = Placed("run_1", 0, UserMessage("x" * PINNED_CHARS + " "))
    check_pin(fits, pin)
    for placed, reason in (
        (None, "brought no message"),
        (msgspec.structs.replace(fits, message=UserMessage(" \n")), "no text to keep"),
        (
            msgspec.structs.replace(
                fits, message=ToolMessage("c", "t", "succeeded", "x" * (PINNED_CHARS + 1))
            ),
            f"{PINNED_CHARS + 1} characters",
        ),
    ):
        with pytest.raises(InvalidParams, match=reason) as caught:
            check_pin(placed, pin)
        assert "seq" == caught.value.field


def test_pins_are_unique_and_bounded() -> None:
    """A pin is added once and at the end; a full list stays as it is, and a pin can always go."""
    full = tuple(Pin("run_1", seq) for seq in range(MAX_PINS))
    assert full == changed_pins(full[:-1], full[-1], is_on=True)
    assert full == changed_pins(full, full[0], is_on=True)
    assert full == changed_pins(full, Pin("run_1", 99), is_on=True)
    assert full[1:] == changed_pins(full, full[0], is_on=False)
    assert full == changed_pins(full, Pin("run_2", 0), is_on=False)
