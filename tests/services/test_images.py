"""Pictures through the daemon: stored as artifacts, shown to the model, over steers and restarts."""

import base64
from typing import Any

import outcome
import pytest
import trio
from trio.testing import MockClock

from palyra.core.model.images import PICTURE_TOKENS
from palyra.core.model.messages import UserMessage
from palyra.core.model.routing import Route, RouteTable
from palyra.core.text.tokens import estimate_tokens
from palyra.errors import InvalidParams, NotFound, TooLarge, Unavailable
from tests.actors.run.office_kit import OPERATOR, OTHER, SECRET, Kit, call, running, say
from tests.actors.run.test_runs import settle
from tests.pictures import GIF, PNG, attached
from tests.services.test_routing import Fleet
from tests.store.memory.journal import MemoryJournal

HIDING = PNG + SECRET.encode()  # a picture is no text: nothing in it is redacted
DATA = base64.b64encode(HIDING).decode()


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


def shown(kit: Kit, request: int = -1) -> list[list[str]]:
    """The pictures of each message of a person in a request, as base64; "" for one that is gone."""
    asked = kit.model.requests[request]
    return [
        [asked.pictures.get(picture.artifact, "") for picture in message.pictures]
        for message in asked.messages
        if isinstance(message, UserMessage)
    ]


async def test_a_picture_reaches_the_model_and_not_the_tape(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Byte for byte, though it holds what would be redacted; the tape has its digest."""
    other = {"type": "file", "name": "a.txt"}
    async with running(store) as kit:
        run_id = await kit.start(attachments=(other, attached(HIDING)))
        assert "done" == await kit.end(run_id)
        assert [[DATA]] == shown(kit)
        (message,) = kit.events(run_id, "message.received")
        assert other == message.attachments[0]
        tape = b"".join(row.data for row in kit.rows(run_id))
        assert message.attachments[1]["artifact"].encode() in tape
        assert DATA.encode() not in tape
        (context,) = kit.events(run_id, "context.assembled")
        sizes = {each["layer"]: each["tokens"] for each in context.segments}
        assert estimate_tokens("hello") == sizes["user_input"]
        assert PICTURE_TOKENS == sizes["attachments"]


@pytest.mark.parametrize(
    ("attachments", "error"),
    [
        ((attached(b"text"),), InvalidParams),
        (({"kind": "image", "data": "zz"},), InvalidParams),
        (({"type": ""},), InvalidParams),
        (({"type": 7},), InvalidParams),
        (({"type": "t" * 65},), InvalidParams),
        (({"type": "file"},) * 33, InvalidParams),
        ((attached(),) * 9, InvalidParams),
        ((attached(PNG.ljust(5_242_881)),), TooLarge),
        (({"type": "image", "artifact": "0" * 64},), NotFound),
    ],
)
async def test_a_refused_picture_starts_nothing(
    store: MemoryJournal,
    autojump_clock: MockClock,
    attachments: tuple[dict[str, Any], ...],
    error: type[Exception],
) -> None:
    """There is no run and no record; the session accepts the next message."""
    async with running(store) as kit:
        with pytest.raises(error):
            await kit.start(session_key="k", attachments=attachments)
        assert not kit.registry.runs
        assert [] == kit.model.requests
        assert "done" == await kit.end(await kit.start(session_key="k"))


@pytest.mark.parametrize(("mode", "is_refused"), [("suggest", True), ("enforced", False)])
async def test_a_model_that_does_not_see(
    mode: Any, *, is_refused: bool, store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It is not sent pictures for nothing: refused, or another model takes the run."""
    routes = (Route(model="scripted"), Route(model="a/seeing", vision=True))
    fleet = Fleet(RouteTable(mode=mode, routes=routes), "a/seeing")
    async with fleet.running(store) as kit:
        assert "done" == await kit.end(await kit.start())
        found = await outcome.acapture(kit.start, attachments=(attached(),))
        if is_refused:
            assert isinstance(found, outcome.Error)
            assert "lacks vision" in str(found.error)
            assert isinstance(found.error, InvalidParams)
            assert {"scripted": 1} == fleet.asked
        else:
            assert "done" == await kit.end(found.unwrap())
            assert 1 == fleet.asked["a/seeing"]
            assert 1 == len(fleet["a/seeing"].requests[-1].pictures)


async def test_a_picture_is_named_again(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """By the session's artifact; an artifact of another session is refused."""
    async with running(store) as kit:
        first = await kit.start(session_key="k", attachments=(attached(GIF),))
        await kit.end(first)
        (message,) = kit.events(first, "message.received")
        again = {"type": "image", "artifact": message.attachments[0]["artifact"][:16]}
        second = await kit.start(session_key="k", attachments=(again,))
        await kit.end(second)
        assert [[base64.b64encode(GIF).decode()]] == shown(kit)
        assert kit.events(second, "message.received")[0].attachments == message.attachments
        for caller in (OTHER, OPERATOR):
            with pytest.raises(NotFound, match="no artifact"):
                await kit.start("hello", caller, session_key="l", attachments=(again,))


async def test_a_session_remembers_pictures_within_its_budget(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A picture counts as tokens: what does not fit is not sent again."""
    async with running(store, history_tokens=2 * PICTURE_TOKENS) as kit:
        for number in range(3):
            picture = attached(PNG + bytes([number]))
            await kit.end(await kit.start(session_key="k", attachments=(picture,)))
        assert [1, 1] == [
            len(pictures) for pictures in shown(kit)
        ]  # the last one before, and its own
        await kit.end(await kit.start(session_key="k"))
        assert [1, 0] == [len(pictures) for pictures in shown(kit)]


async def test_a_steer_with_a_picture(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """It reaches the model with the next turn."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {})), say("done")]
        run_id = await kit.start(session_key="k")
        await settle()
        steered = await kit.start(
            "look", session_key="k", queue_mode="steer", attachments=(attached(HIDING),)
        )
        assert steered == run_id
        kit.gate_open.set()
        assert "done" == await kit.end(run_id)
        assert [[], [DATA]] == shown(kit)
        (word,) = kit.events(run_id, "steer.received")
        assert "data" not in word.attachments[0]


async def test_pictures_of_collected_messages(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Each stays with its message; the same one is sent once."""
    async with running(store) as kit:
        kit.model.turns = [gate := trio.Event(), say("one"), say("two")]
        first = await kit.start("zero", session_key="k")
        await settle()
        for text, data in (("one", HIDING), ("two", PNG), ("three", HIDING)):
            run_id = await kit.start(
                text, session_key="k", queue_mode="collect", attachments=(attached(data),)
            )
        gate.set()
        await kit.end(first)
        assert "done" == await kit.end(run_id)
        assert [[DATA], [base64.b64encode(PNG).decode()], []] == shown(kit)
        assert "an earlier message shows it" in str(kit.model.requests[-1].messages[-1])


async def test_a_missing_or_damaged_picture_is_left_out(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The run continues without it."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {})), say("done")]
        run_id = await kit.start(attachments=(attached(),))
        await settle()
        kit.artifacts._held.clear()
        kit.gate_open.set()
        assert "done" == await kit.end(run_id)
        assert [[""]] == shown(kit)

        def damaged(*_: object) -> Any:
            raise Unavailable("the artifact is damaged on the disk")

        kit.artifacts.find = damaged  # type: ignore[assignment]  # the disk fails
        assert "done" == await kit.end(await kit.start(attachments=(attached(),)))
        assert [[""]] == shown(kit)


async def test_a_resumed_run_shows_them_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """From the tape and the artifacts alone; so does a fork, in a session of its own."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        run_id = await kit.start(attachments=(attached(HIDING),))
        await settle()
        kept = kit.artifacts
    async with running(store) as kit:
        kit.artifacts._held.update(kept._held)
        assert "done" == await kit.end(run_id)
        assert [[DATA]] == shown(kit)
        seq = kit.rows(run_id)[-1].seq
        forked = await kit.gateway.fork_run(OPERATOR, run_id, seq, "and now?")
        assert "done" == await kit.end(forked.run_id)
        assert [[DATA], []] == shown(kit)
