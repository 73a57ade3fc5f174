"""Pictures that tools return: stored as artifacts, named on the tape, shown to the model, left out again."""

import base64
from typing import Any

import msgspec
import pytest
from trio.testing import MockClock

from palyra.core.context.overflow import shortened
from palyra.core.context.pruning import find_stubs
from palyra.core.model.images import MAX_PICTURES, PICTURE_TOKENS, Picture
from palyra.core.model.messages import ModelFailure, ToolMessage, UserMessage, message_tokens
from palyra.core.model.routing import Route, RouteTable
from palyra.core.tape.events import Compaction
from palyra.core.tool.spec import ToolCall, ToolOutput
from palyra.errors import Unavailable
from palyra.tools.toolbox import InlineTool
from tests.actors.run.office_kit import Kit, call, running, say, spec
from tests.actors.run.test_runs import store
from tests.pictures import GIF, JPEG, PNG, WEBP, png
from tests.services.test_routing import Fleet
from tests.store.memory.journal import MemoryJournal

pytestmark = pytest.mark.usefixtures("files")

__all__ = ["store"]


def base64_of(data: bytes) -> str:
    """As a request has it."""
    return base64.b64encode(data).decode()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[bytes | str]:
    """The pictures that the tool `camera` returns."""
    found: list[bytes | str] = [PNG]
    usual = Kit.tools

    def shoot(_call: ToolCall) -> ToolOutput:
        return ToolOutput(text="click", pictures=tuple(found), trust="external_untrusted")

    tools = lambda kit: [*usual(kit), InlineTool(spec("camera"), shoot)]  # noqa: E731 - a method
    monkeypatch.setattr(Kit, "tools", tools)
    return found


def last_result(kit: Kit) -> ToolMessage:
    """The newest result in the newest request."""
    found = [each for each in kit.model.requests[-1].messages if isinstance(each, ToolMessage)]
    return found[-1]


async def test_a_returned_picture_reaches_the_model(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In the next request and in the next run; the tape names it and has none of its bytes."""
    async with running(store, history_tokens=10_000) as kit:
        kit.model.turns = [call(("camera", {"text": ""})), say("seen"), say("still")]
        run_id = await kit.start(session_key="k")
        assert "done" == await kit.end(run_id)
        (picture,) = last_result(kit).pictures
        assert {picture.artifact: base64_of(PNG)} == kit.model.requests[-1].pictures
        (done,) = kit.events(run_id, "tool.completed")
        assert (picture,) == done.pictures
        described = f"image/png, 1 x 1 pixels, {len(PNG)} bytes; artifact {picture.artifact[:16]}"
        assert f"click\n[picture 1: {described}]" == done.output
        assert base64_of(PNG).encode() not in b"".join(row.data for row in kit.rows(run_id))
        kept = kit.artifacts.find(picture.session_id, picture.artifact)
        assert kept is not None
        assert (PNG, "external_untrusted", "camera") == (kept[1], kept[0].trust, kept[0].tool)
        await kit.end(await kit.start("and now?", session_key="k"))
        assert {picture.artifact: base64_of(PNG)} == kit.model.requests[-1].pictures


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((PNG[:-1],), ["left out: it is truncated"]),
        ((b"<svg/>",), ["left out: it is no PNG"]),
        (("a b=",), ["left out: its data is no base64"]),
        ((PNG.ljust(5_242_881),), ["has 5242881 bytes; a picture may have 5242880"]),
        ((b"x" * 7_000_000,), ["a picture may have 5242880 bytes"]),
        ((png(8_001, 1),), ["8001 x 1 pixels"]),
        ((b"", base64_of(JPEG)), ["left out: it is no PNG", "picture 2: image/jpeg"]),
        ((GIF, WEBP) * 5, ["picture 8: image/webp", "2 more pictures left out: a result may have 8"]),
    ],
)  # fmt: skip
async def test_a_picture_that_cannot_be_sent_costs_itself(
    given: tuple[bytes | str, ...],
    said: list[str],
    files: list[bytes | str],
    store: MemoryJournal,
    autojump_clock: MockClock,
) -> None:
    """The result stays, and a line says why; the other pictures are shown."""
    async with running(store) as kit:
        files[:] = given
        kit.model.turns = [call(("camera", {"text": ""}))]
        assert "done" == await kit.end(await kit.start())
        result = last_result(kit)
        assert "succeeded" == result.status
        assert all(words in result.output for words in said)
        lines = sum(line.startswith("[picture") for line in result.output.splitlines())
        assert min(len(given), MAX_PICTURES) == lines
        assert result.output.count("; artifact ") >= len(result.pictures)


async def test_a_full_disk_costs_the_picture(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call has succeeded, and its result says what is missing."""
    async with running(store) as kit:

        def refuse(*_: Any) -> None:
            raise Unavailable("no space left on device")

        monkeypatch.setattr(kit.artifacts, "put", refuse)
        kit.model.turns = [call(("camera", {"text": ""}))]
        assert "done" == await kit.end(await kit.start())
        assert "[picture 1 left out: no space left on device]" in last_result(kit).output


async def test_the_same_picture_is_sent_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In its first result; later ones say so."""
    async with running(store) as kit:
        kit.model.turns = [call(("camera", {"text": ""})) for _ in range(3)]
        assert "done" == await kit.end(await kit.start())
        results = [m for m in kit.model.requests[-1].messages if isinstance(m, ToolMessage)]
        assert [1, 0, 0] == [len(result.pictures) for result in results]
        assert "an earlier message shows it" in results[2].output


async def test_a_refused_picture_of_a_tool_is_left_out(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The provider's refusal costs the picture; a line stands in its place, also in later runs."""
    async with running(store, history_tokens=10_000) as kit:
        refusal = ModelFailure("invalid_request", "HTTP 400: Could not process image")
        kit.model.turns = [call(("camera", {"text": ""})), refusal, say("blind"), say("later")]
        run_id = await kit.start(session_key="k")
        assert "done" == await kit.end(run_id)
        assert 1 == len(kit.events(run_id, "item.refused"))
        for _ in range(2):
            assert {} == kit.model.requests[-1].pictures
            assert "the provider refused it" in last_result(kit).output
            await kit.end(await kit.start("and now?", session_key="k"))


async def test_a_model_without_vision_gets_a_line(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In place of the picture; the run is not refused, for the picture came on its way."""
    fleet = Fleet(RouteTable(mode="suggest", routes=(Route(model="scripted"),)))
    async with fleet.running(store) as kit:
        model = fleet["scripted"]
        model.turns = [call(("camera", {"text": ""}))]
        assert "done" == await kit.end(await kit.start())
        request = model.requests[-1]
        (result,) = (m for m in request.messages if isinstance(m, ToolMessage))
        assert ({}, ()) == (request.pictures, result.pictures)
        assert "the model sees no pictures" in result.output


async def test_an_artifact_shows_its_picture_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """`artifact_read` returns it with the trust of its origin."""
    async with running(store) as kit:
        kit.model.turns = [call(("camera", {"text": ""}))]
        await kit.end(await kit.start(session_key="k"))
        (picture,) = last_result(kit).pictures
        kit.model.turns = [call(("artifact_read", {"artifact": picture.artifact[:16]}))]
        run_id = await kit.start("again", session_key="k")
        await kit.end(run_id)
        (done,) = kit.events(run_id, "tool.completed")
        assert ((picture,), "external_untrusted") == (done.pictures, done.trust)


RETURNED = ToolMessage(
    "call_1", "camera", "succeeded", "[picture 1]",
    pictures=(Picture(artifact="ab", session_id="s", media_type="image/png", size_bytes=3),),
)  # fmt: skip


def test_old_pictures_are_pruned() -> None:
    """A picture counts as tokens, and old ones are the first to go: a line names the way back."""
    assert PICTURE_TOKENS < message_tokens(RETURNED)
    stub = find_stubs([UserMessage("look"), RETURNED])[1]
    assert ((), True) == (stub.pictures, "artifact_read shows it again" in stub.output)
    (_, short) = shortened(
        [UserMessage("look"), RETURNED],
        Compaction(turn=1, output_bytes=8_192, through=2),
    )
    assert stub == short
    long = msgspec.structs.replace(RETURNED, output="x" * 20_000)
    pruned = find_stubs([long])[0]
    assert ((), True) == (pruned.pictures, len(pruned.output) < 1_000)
