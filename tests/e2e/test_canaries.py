"""A canary in every way in; none comes out anywhere, and without redaction they all do."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.command import palyra
from tests.e2e import canary_ways as ways
from tests.e2e.leaky_daemon import LeakyDaemon
from tests.e2e.wire import WITHIN_S, Wire, connected
from tests.models.provider import provider

pytestmark = pytest.mark.real


class Places(dict[str, bytes]):  # noqa: FURB189 - what came out, by where
    """All that came out of a daemon."""

    def add(self, place: str, data: bytes | str) -> None:
        self[place] = self.get(place, b"") + (data.encode() if isinstance(data, str) else data)


@asynccontextmanager
async def daemon(
    base: Path, canaries: ways.Canaries, *, is_blind: bool
) -> AsyncGenerator[LeakyDaemon]:
    """A daemon among strangers, with a workspace full of canaries."""
    async with provider(*ways.provider_answers(canaries)) as served:
        made = LeakyDaemon(base, PALYRA_LOGGING__LEVEL="debug")
        made.is_blind = is_blind
        made.home.mkdir(mode=0o700, parents=True)
        book = base / "scripts.json"
        book.write_text(json.dumps(ways.script(canaries)), "utf-8")
        (made.home / "palyra.toml").write_text(
            f'[models]\nscripts = "{book}"\n'
            f'providers = [{{ name = "opal", base_url = "{served.url}", models = ["m"] }}]\n'
            f"[mcp]\nservers = [{ways.mcp_program(base, canaries)}]\n"
            '[fetch]\nprivate = ["127.0.0.1:1"]\n',
            "utf-8",
        )
        (made.workspace / "note.txt").write_text(f"needle {canaries['file_content']}\n", "utf-8")
        (made.workspace / f"{canaries['file_name']}.txt").write_text("needle\n", "utf-8")
        try:
            await trio.to_thread.run_sync(made.start)
            yield made
        finally:
            made.end()


async def call_everything(wire: Wire, canaries: ways.Canaries) -> str:
    """A run whose model says and calls everything there is; its id."""
    while "mcp:srv.say" not in {tool["name"] for tool in (await wire.call("tool.list"))["tools"]}:
        await trio.lowlevel.checkpoint()
    fill = canaries.fill
    asked = {
        "text": "everything @message",
        "attachments": [{"type": "note", "note": "@attachment"}],
    }
    started = await wire.call("run.start", **fill(asked), subscribe=True)
    run_id: str = started["run_id"]
    await allow_all(wire, run_id, fill("@approval"))
    return run_id


async def talk(wire: Wire, canaries: ways.Canaries, run_id: str) -> None:
    """Send every canary over the protocol, and read that run in every way."""
    fill = canaries.fill
    crash = fill({"text": '/call explode {"text": "@crash"}'})
    await allow_all(wire, (await wire.call("run.start", **crash))["run_id"], "yes")
    held = await wire.call("run.start", text="/delay 3600000\n/say x")
    await wire.call("run.steer", run_id=held["run_id"], text=fill("@steer"))
    await wire.call("run.cancel", run_id=held["run_id"], reason=fill("@cancel"))
    for _ in range(2):
        other = await wire.call("run.start", text="x", model="opal/m", subscribe=True)
        await wire.call("run.wait", run_id=other["run_id"])
    for method, params in ways.REQUESTS:
        await wire.request(fill(method), **fill(params))
    for method in ("tape.read", "tape.export", "run.get", "run.replay"):
        await wire.call(method, run_id=run_id)


async def allow_all(wire: Wire, run_id: str, reason: str) -> None:
    """Say yes to whatever the run asks, until it has ended."""
    while True:
        await wire.call("run.wait", run_id=run_id, until="attention")
        asked = (await wire.call("approval.list", run_id=run_id, pending_only=True))["approvals"]
        if not asked:
            return
        for each in asked:
            await wire.call("approval.resolve", approval_id=each["approval_id"], decision="allow",
                            digest=each["digest"], reason=reason)  # fmt: skip


async def ask_http(process: LeakyDaemon, canaries: ways.Canaries) -> AsyncGenerator[bytes]:
    """The replies to all requests over HTTP, complete and as streams."""
    host = f"127.0.0.1:{process.port}"
    for head in ways.HEADS:
        told = canaries.fill(head).replace("HOST", host).replace("TOKEN", process.token)
        end = "" if "\r\n\r\n" in told else "Connection: close\r\n\r\n"
        yield await exchange(process.port, f"{told}{end}".encode())
    for path, body in ways.BODIES:
        for stream in (False, True):
            said = json.dumps({"model": "scripted", "stream": stream, **canaries.fill(body)})
            yield await exchange(
                process.port,
                (
                    f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {process.token}"
                    f"\r\nContent-Length: {len(said)}\r\nConnection: close\r\n\r\n{said}"
                ).encode(),
            )


async def exchange(port: int, request: bytes) -> bytes:
    with trio.fail_after(WITHIN_S):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(request)
            return b"".join([bytes(part) async for part in stream])


def files(home: Path, places: Places) -> None:
    """The data directory, but for the workspace's files as they were."""
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if path.is_file() and not name.startswith("checkpoints/"):
            places.add(f"file {name}", path.read_bytes())
            places.add("names of files", name)


def hear(wire: Wire, places: Places) -> None:
    """Frames as they came, and what the pieces of live texts join to."""
    for message in wire.seen:
        places.add("wire", message)
    deltas = [one["params"]["delta"] for one in wire.notices if one["method"] == "progress"]
    places.add("deltas", "".join(deltas))


async def everything(base: Path, canaries: ways.Canaries, *, is_blind: bool) -> Places:
    """All that came out of a daemon into which all canaries were put."""
    places = Places()
    async with daemon(base, canaries, is_blind=is_blind) as process:
        async with connected(process.port, process.token) as wire:
            run_id = await call_everything(wire, canaries)
            hear(wire, places)
        async with connected(process.port, process.token) as wire:
            await talk(wire, canaries, run_id)
            hear(wire, places)
        async for answer in ask_http(process, canaries):
            places.add("http", answer)
        for page in ("/metrics", "/readyz", "/healthz"):
            head = f"GET {page} HTTP/1.1\r\nHost: 127.0.0.1:{process.port}\r\nConnection: close\r\n"
            told = f"{head}Authorization: Bearer {process.token}\r\n\r\n"
            places.add("pages", await exchange(process.port, told.encode()))
        for words in ways.COMMANDS[: 2 if is_blind else None]:
            told_words = [canaries.fill(word).replace("RUN", run_id) for word in words]
            ended = await palyra(*told_words, home=process.home)
            places.add(f"palyra {words[0]}", ended.out + ended.err)
        places.add("log", process.said)
        files(process.home, places)
    return places


async def test_no_canary_comes_out(tmp_path: Path) -> None:
    """Of none half: not on the wire, in a stream, a page, a file, a log line, or on a screen."""
    canaries = ways.Canaries()
    places = await everything(tmp_path, canaries, is_blind=False)
    assert len(canaries) > 90
    assert {"file journal.sqlite3", "file journal.sqlite3-wal", "log", "http", "wire"} <= set(
        places
    )
    found: dict[str, Any] = {place: canaries.found_in(data) for place, data in places.items()}
    assert {} == {place: names for place, names in found.items() if names}
    assert b"[redacted:github]" in places["http"]
    assert b"[redacted:github]" in places["wire"]


@pytest.mark.slow  # a second daemon for what changes when a way in is added, and then only
async def test_control_without_redaction(tmp_path: Path) -> None:
    """Control: each of them comes out somewhere, so each did get in."""
    canaries = ways.Canaries()
    places = await everything(tmp_path, canaries, is_blind=True)
    leaked = canaries.found_in(b"\n".join(places.values()))
    assert set(canaries) - leaked <= ways.NEVER_REPEATED
