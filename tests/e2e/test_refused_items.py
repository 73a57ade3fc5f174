"""A real daemon and a provider on loopback that refuses an item, breaks off, or wants reasoning back."""

import base64
import json
from pathlib import Path

import pytest

from palyra.core.tape import events as ev
from tests.e2e.daemon_process import running
from tests.e2e.tapes import read_whole
from tests.models.provider import STREAM, provider, refusal, sse
from tests.pictures import JPEG, PNG

pytestmark = pytest.mark.real


def delta(finish: str | None = None, **said: object) -> object:
    """One chunk."""
    return {"id": "c", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def answer(text: str) -> list[bytes]:
    """A whole answer."""
    return [STREAM + sse(delta("stop", content=text), "[DONE]")]


UNREAD = refusal(400, {"error": {"message": "Could not process image"}})
PICTURE = {"type": "image", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}


async def test_one_bad_item_costs_itself(tmp_path: Path) -> None:
    """A refused picture, a connection that breaks, a provider that wants its reasoning back."""
    call = {"index": 0, "id": "x", "function": {"name": "list_dir", "arguments": '{"path":"."}'}}
    thinking = sse(
        delta(reasoning_content="I should look."), delta("tool_calls", tool_calls=[call])
    )
    shot = {
        "index": 0,
        "id": "y",
        "function": {"name": "read_file", "arguments": '{"path":"a.png"}'},
    }
    answers = (
        [UNREAD], answer("no picture"), answer("later"),
        [STREAM + sse(delta(content="half"))], answer("whole"),
        [STREAM + thinking], answer("seen"),
        [STREAM + sse(delta("tool_calls", tool_calls=[shot]))], [UNREAD], answer("blind"),
    )  # fmt: skip
    async with provider(*answers) as served:  # noqa: PLR1702 - one block for each that ends
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        config = f'[models]\ndefault = "p/m"\nproviders = [{{ name = "p", base_url = "{served.url}" }}]\n'
        (home / "palyra.toml").write_text(config, encoding="utf-8")
        with running(tmp_path) as daemon:
            (daemon.workspace / "a.png").write_bytes(JPEG)
            async with daemon.connect() as client:
                first = await client.start_run("look", attachments=[PICTURE])
                await client.wait_run(first.run_id)
                runs = [first.run_id]
                for text in ("and now?", "broken", "list", "read a.png"):
                    started = await client.start_run(text, session_id=first.session_id)
                    await client.wait_run(started.run_id)
                    runs.append(started.run_id)
                states = [(await client.get_run(run_id)).state for run_id in runs]
                tapes = [await read_whole(client, run_id) for run_id in runs]
    assert ["done"] * 5 == states
    pictures = ["image_url" in json.dumps(body) for body in served.bodies]
    assert [True, *[False] * 7, True, False] == pictures
    assert "the provider refused it" in json.dumps(served.bodies[9])
    assert "the provider refused it" in json.dumps(served.bodies[2])
    (refused,) = (each.event for each in tapes[0] if isinstance(each.event, ev.ItemRefused))
    assert "picture" == refused.item
    failed = [each.event.retry for each in tapes[2] if isinstance(each.event, ev.TurnFailed)]
    assert [True] == failed
    assert "half" not in json.dumps(served.bodies[4])
    said = [each for each in served.bodies[6]["messages"] if each.get("tool_calls")]
    assert ["I should look."] == [each["reasoning_content"] for each in said]
