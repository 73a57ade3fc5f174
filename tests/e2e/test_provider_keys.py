"""A provider's key, which the provider repeats wherever it can: it is found nowhere afterwards."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.leaky_daemon import LeakyDaemon
from tests.e2e.test_secrets import found_in_files, page, search
from tests.e2e.wire import connected
from tests.models.provider import STREAM, Piece, provider, refusal, sse

pytestmark = pytest.mark.real
KEY = "opal4-canary-0f-a-k3y-9e71"  # of no known shape: only the keeper of secrets knows it
KEYS = {"key": KEY}


def chunk(**delta: Any) -> dict[str, Any]:
    """A piece of a chat, with an id that ends up in traces."""
    return {"id": f"trace-{KEY}", "choices": [{"index": 0, "delta": delta}]}


def answers() -> list[list[Piece]]:
    """The key in every place that is read: text, thoughts, a call, an id, errors of both kinds."""
    call = {"index": 0, "function": {"name": f"x_{KEY}", "arguments": f'{{"path": "{KEY}"}}'}}
    told = {"error": {"message": f"the key {KEY} is wrong", "type": KEY, "code": KEY}}
    said = [chunk(reasoning_content=f"key {KEY}"), chunk(content=f"it is {KEY[:9]}"),
            chunk(content=f"{KEY[9:]} ."), chunk(tool_calls=[call])]  # fmt: skip
    return [
        [STREAM, sse(*said, "[DONE]")],
        [STREAM, sse(chunk(content="fine"), "[DONE]")],
        [refusal(401, told, f"x-request-id: {KEY}")],
        [refusal(302, b"", f"location: http://127.0.0.1:9/{KEY}")],
        # From here on they say that the provider is ill; after three it would be left alone.
        [STREAM, sse(chunk(content="well"), told)],
        [STREAM, b"data: " + KEY.encode() + b"\n\n"],
        [STREAM, b"data: " + KEY.encode() + b"\n\n"],
        [STREAM, sse(chunk(content="well again"), "[DONE]")],
        [refusal(200, KEY.encode())],
        [refusal(200, KEY.encode())],
    ]


RUNS = (
    len(answers()) - 4
)  # the first one takes two turns, those that break off or say nonsense two attempts


@contextmanager
def daemon(base: Path, url: str, *, is_blind: bool) -> Generator[DaemonProcess]:
    """A daemon with that provider and the key in its environment, saying all it can."""
    home = base / "home"
    home.mkdir(parents=True)
    given = f'name = "opal", base_url = "{url}", key = "env:OPAL_KEY", models = ["m"]'
    (home / "palyra.toml").write_text(f"[models]\nproviders = [{{ {given} }}]\n", "utf-8")
    made = LeakyDaemon(base, PALYRA_LOGGING__LEVEL="debug", OPAL_KEY=KEY)
    made.is_blind = is_blind
    try:
        made.start()
        yield made
    finally:
        made.end()


async def talk(process: DaemonProcess) -> bytes:
    """All runs, and all that was sent about them."""
    async with connected(process.port, process.token) as wire:
        for _ in range(RUNS):
            started = await wire.call("run.start", text="go on", model="opal/m", subscribe=True)
            await wire.call("run.wait", run_id=started["run_id"])
            for method in ("tape.read", "tape.export", "run.get"):
                await wire.call(method, run_id=started["run_id"])
        await wire.call("run.list")
        return b"".join(wire.seen)


async def places(base: Path, *, is_blind: bool) -> dict[str, bool]:
    """Where the key was found after all that."""
    async with provider(*answers()) as served:
        with daemon(base, served.url, is_blind=is_blind) as process:
            found = {
                "wire": await talk(process),
                "metrics": await page(process, "/metrics"),
                "daemon.json": process.announcement.read_bytes(),
                "log": process.said.encode(),
            }
            files = found_in_files(process.home, KEYS)
    assert len(served.heads) == len(answers()), "a turn was not asked for, or asked for again"
    assert all(f"authorization: bearer {KEY}" in head for head in served.heads)
    assert KEY not in msgspec.json.encode(served.bodies[0]).decode()
    return {
        **{name: bool(search(data, KEYS)) for name, data in found.items()},
        "files": bool(files),
    }


async def test_the_key_is_nowhere(tmp_path: Path) -> None:
    """Wire, tapes, exports, metrics, announcement, log, files."""
    assert not any((await places(tmp_path, is_blind=False)).values())


async def test_control_without_redaction(tmp_path: Path) -> None:
    """Control: what the provider repeats would be on the wire and in the files."""
    found = await places(tmp_path, is_blind=True)
    assert found["wire"]
    assert found["files"]
