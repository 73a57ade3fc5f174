"""Secrets of a long turn or message are looked for in a thread, ahead of the run's step."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, TypeVarTuple

import msgspec
import pytest

from palyra.actors.run.environment import look_for_secrets
from palyra.core.journal.records import Usage
from palyra.core.model.messages import ModelTurn, ProposedCall
from palyra.core.redaction.redactor import REMEMBERED_BYTES, Redactor
from palyra.core.run.decide import accept, decide, turn_completed
from palyra.core.run.inputs import Begin, TurnFinished
from palyra.core.tape.events import MessageReceived, encode_event
from tests.actors.run.office_kit import inline_blocking
from tests.core.run.run_world import World

T = TypeVar("T")
Args = TypeVarTuple("Args")
SECRET = "password: hunter2x"


class Looks:
    """Long texts that were looked through, in a thread and elsewhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.redactor = Redactor([])
        self.is_in_thread = False
        self.ahead = self.held_up = 0
        plain = Redactor._redact_plain

        def note(redactor: Redactor, data: bytes) -> bytes:
            if len(data) > 1_000:
                self.ahead += self.is_in_thread
                self.held_up += not self.is_in_thread
            return plain(redactor, data)

        monkeypatch.setattr(Redactor, "_redact_plain", note)

    async def run_blocking(self, function: Callable[[*Args], T], *arguments: *Args) -> T:
        """A thread."""
        self.is_in_thread = True
        try:
            return await inline_blocking(function, *arguments)
        finally:
            self.is_in_thread = False

    async def take(self, result: ModelTurn, *, is_looked_at: bool = True) -> World:
        """A run that received the turn."""
        services: Any = SimpleNamespace(run_blocking=self.run_blocking, redactor=self.redactor)
        if is_looked_at:
            await look_for_secrets(services, encode_event(turn_completed(1, result)))
        world = World()
        world.env = msgspec.structs.replace(world.env, redact=self.redactor.redact_bytes)
        world.hear(Begin(instance_id="i1"))
        world.keep(decide(world.run, TurnFinished(turn=1, attempt=1, result=result), world.env))
        assert b"hunter2x" not in b"".join(data for _, _, data in world.tape)
        return world


def a_turn(text: str, /, **arguments: str) -> ModelTurn:
    """A turn with that text, and a call with these arguments if there are any."""
    call = ProposedCall(call_id="c1", tool="allow", arguments=arguments)
    calls = (call,) if arguments else ()
    return ModelTurn(
        text=text, calls=calls, finish_reason="tool_calls" if calls else "stop", usage=Usage()
    )


@pytest.mark.parametrize(
    "result",
    [
        a_turn(f"{SECRET} " * 100),
        a_turn("", text=f"{SECRET} " * 100),
        a_turn("", **{f"{SECRET} " * 100: ""}),
    ],
    ids=["text", "argument", "name"],
)
async def test_a_long_turn_does_not_delay_the_loop(
    result: ModelTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step finds the redaction of every long text already done."""
    looks = Looks(monkeypatch)
    await looks.take(result)
    assert (True, 0) == (looks.ahead > 0, looks.held_up)


async def test_control_without_the_look_the_step_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same turn, not looked at before."""
    looks = Looks(monkeypatch)
    await looks.take(a_turn("", text=f"{SECRET} " * 100), is_looked_at=False)
    assert (0, True) == (looks.ahead, looks.held_up > 0)


@pytest.mark.parametrize("is_looked_at", [True, False], ids=["ahead", "control"])
async def test_a_long_message_does_not_delay_the_loop(
    is_looked_at: bool,  # noqa: FBT001 - a parameter
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message is searched before its run starts."""
    looks = Looks(monkeypatch)
    services: Any = SimpleNamespace(run_blocking=looks.run_blocking, redactor=looks.redactor)
    text = f"{SECRET} " * 100
    if is_looked_at:
        await look_for_secrets(services, msgspec.json.encode(text))
    world = World()
    now = msgspec.structs.replace(world.env, redact=looks.redactor.redact_bytes)
    step = accept("run_1", world.run.accepted, MessageReceived(text=text), now)
    assert b"hunter2x" not in b"".join(draft.data for draft in step.drafts)
    assert (is_looked_at, not is_looked_at) == (looks.ahead > 0, looks.held_up > 0)


async def test_a_short_turn_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hop costs more than the look."""
    looks = Looks(monkeypatch)
    await looks.take(a_turn(SECRET, text=SECRET))
    assert 0 == looks.ahead


@pytest.mark.parametrize(("chars", "hops"), [(REMEMBERED_BYTES - 3, 0), (REMEMBERED_BYTES - 2, 1)])
async def test_only_what_will_be_remembered_is_looked_through_ahead(chars: int, hops: int) -> None:
    """A look that the step repeats all the same would be a hop for nothing."""
    taken: list[object] = []

    async def run_blocking(*asked: object) -> None:
        await inline_blocking(taken.append, asked)

    services: Any = SimpleNamespace(run_blocking=run_blocking, redactor=Redactor([]))
    await look_for_secrets(services, msgspec.json.encode("x" * chars))
    assert hops == len(taken)
