"""Canaries: secrets put in wherever text comes in are found nowhere afterwards."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from palyra.client import Client
from palyra.secrets.resolver import Resolver
from palyra.secrets.service import LOOK_S
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.leaky_daemon import LeakyDaemon
from tests.e2e.people import make_token
from tests.e2e.tapes import read_whole
from tests.e2e.wire import WITHIN_S, Wire, connected, open_wire

pytestmark = pytest.mark.real

# Shapes of known owners, bodies of our own; cut in two so that no scanner mistakes this file.
CANARIES = {
    "aws": "AKIA" + "QZ7CANARY4WXYZ12",
    "github": "ghp_" + "Canary0123456789abcdefghijABCDEFGHIJ",
    "anthropic": "sk-ant-" + "canary-0123456789-abcdefghijklmnop",
    "slack": "xoxb-" + "1234567890-canarycanary",
    "url_userinfo": "canaryuser:c4n4ry-passw0rd",  # as in https://user:password@host
    "password": "c4nary-0f-a-pass-w0rd",  # as in DB_PASSWORD=…
    "authorization": "c4naryq8w7e6r5t4y3u2i1",  # as in the header
}
PROSE = (
    "The order 4711 of 2024-05-01 costs 12.50; see https://example.org/a?b=c and user@example.org"
)


@contextmanager
def leaky(base: Path, *, is_blind: bool = False) -> Generator[DaemonProcess]:
    """A daemon of its own: its files are searched."""
    book = base / "scripts.json"
    book.write_bytes(msgspec.json.encode(scripts()))
    daemon = LeakyDaemon(base, PALYRA_LOGGING__LEVEL="debug", PALYRA_MODELS__SCRIPTS=str(book))
    daemon.is_blind = is_blind
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.end()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon of this module alone."""
    with leaky(tmp_path_factory.mktemp("quiet")) as process:
        yield process


def hidden(name: str) -> str:
    """The canary as it comes in."""
    canary = CANARIES[name]
    return _STANDS_IN.get(name, "{}").format(canary)


_STANDS_IN = {
    "url_userinfo": "https://{}@example.org/",
    "password": "DB_PASSWORD={}",
    "authorization": "Authorization: Token {}",
}


EVERYTHING = "\n".join(f"{name} is {hidden(name)} here" for name in CANARIES)


def messages(workspace: Path) -> list[str]:
    """Texts that carry every canary through every way in."""
    (workspace / "notes.txt").write_text(EVERYTHING, encoding="utf-8")
    argument = msgspec.json.encode({"text": EVERYTHING}).decode()
    return [
        EVERYTHING,
        "\n".join(f"/say {hidden(name)}" for name in CANARIES),
        f"/call echo {argument}",
        f"/call no_such_tool {argument}",
        f"/call echo {msgspec.json.encode({'wrong': EVERYTHING}).decode()}",
        '/call read_file {"path": "notes.txt"}',
        f"/call explode {argument}",
        f"/call shell {msgspec.json.encode({'command': STDERR}).decode()}",
        "\n".join(f'/call read_file {{"path": "{hidden(name)}"}}' for name in CANARIES),
        LEAK,
    ]


STDERR = "cat notes.txt >&2; exit 3"
LEAK = "leak"  # the message at which the model itself comes out with everything


def scripts() -> dict[str, object]:
    """A model that says every canary in pieces and puts it into every kind of call."""
    pieces = [text for name in CANARIES for text in (hidden(name)[:9], hidden(name)[9:], "\n")]
    calls = [
        {"tool": "echo", "arguments": {"text": EVERYTHING}},
        {"tool": "write_file", "arguments": {"path": "copy.txt", "content": EVERYTHING}},
        {"tool": "read_file", "arguments": {"path": hidden("aws")}},
        {"tool": "no_such_tool", "arguments": {hidden("github"): 1}},
    ]
    turns = [
        {"reasoning": EVERYTHING, "text": pieces, "calls": calls},
        {"text": [*EVERYTHING]},
    ]
    return {"scripts": [{"equals": LEAK, "turns": turns}]}


async def feed(wire: Wire, daemon: DaemonProcess) -> list[str]:
    """Put every canary in everywhere; the runs."""
    run_ids: list[str] = []
    for text in messages(daemon.workspace):
        started = await wire.call(
            "run.start",
            text=text,
            attachments=[{"type": "note", "note": text, "client_secret": CANARIES["aws"][::-1]}],
            subscribe=True,
        )
        run_ids.append(started["run_id"])
        view = await wire.call("run.wait", run_id=run_ids[-1], until="attention")
        for asked in (await wire.call("approval.list", run_id=run_ids[-1]))["approvals"]:
            await wire.call(
                "approval.resolve", approval_id=asked["approval_id"], decision="allow",
                digest=asked["digest"], reason=hidden("aws"),
            )  # fmt: skip
        await wire.call("run.wait", run_id=view["run_id"])
    held = await wire.call("run.start", text="/delay 3600000\n/say x", subscribe=True)
    await wire.call("run.steer", run_id=held["run_id"], text=hidden("github"))
    await wire.call("run.cancel", run_id=held["run_id"], reason=hidden("slack"))
    for name in CANARIES:  # refused or redacted: either will do
        await wire.request("run.start", text="x", session_key=hidden(name))
        await wire.request("run.start", text="x", idempotency_key=hidden(name))
    await wire.call("system.tree")
    return [*run_ids, held["run_id"]]


async def fumble(wire: Wire) -> None:
    """Put canaries where they are errors."""
    for name in CANARIES:
        await wire.refused("run.get", run_id=hidden(name))
        await wire.refused(f"no.{hidden(name)}")
        await wire.refused("ping", **{hidden(name): 1})
        await wire.refused("run.start", text="x", queue_mode=hidden(name))
        await wire.refused("run.start", text="x", model=hidden(name))
        await wire.refused("run.start", text="x", origin=hidden(name))
        await wire.refused("run.start", text="x", session_id=hidden(name))


def search(haystack: bytes, secrets: dict[str, str]) -> set[str]:
    """The secrets of which at least half is in the text."""
    return {name for name, secret in secrets.items() if secret[:20].encode() in haystack}


async def test_canaries(quiet: DaemonProcess) -> None:
    """No canary is on the wire, on a tape, in an export, in metrics, in a file or in the log."""
    async with connected(quiet.port, quiet.token) as wire:
        run_ids = await feed(wire, quiet)
        for run_id in run_ids:
            for method in ("tape.read", "tape.export", "run.get"):
                await wire.call(method, run_id=run_id)
        await wire.call("run.list")
        await wire.call("approval.list", pending_only=False)
        await wire.call("session.list")
        sent = b"".join(wire.seen)
        deltas = [one["params"]["delta"] for one in wire.notices if one["method"] == "progress"]
    assert set() == search(sent, CANARIES)
    assert set() == search("".join(deltas).encode(), CANARIES)
    assert all("[redacted:aws]" in text for text in (sent.decode(), "".join(deltas)))
    assert set() == search(await page(quiet, "/metrics"), CANARIES)
    assert set() == search(quiet.said.encode(), CANARIES)
    assert {} == found_in_files(quiet.home, CANARIES)
    # What the model wrote, a person allowed: that, and not its redacted likeness, was done.
    assert EVERYTHING == (quiet.workspace / "copy.txt").read_text(encoding="utf-8")


async def test_control_without_redaction(tmp_path: Path) -> None:
    """Control: a daemon whose redactor sees nothing leaks each of them at every place."""
    with leaky(tmp_path, is_blind=True) as blind:
        async with connected(blind.port, blind.token) as wire:
            run_ids = await feed(wire, blind)
            for run_id in run_ids:
                await wire.call("tape.read", run_id=run_id)
            sent = b"".join(wire.seen)
        assert set(CANARIES) == search(sent, CANARIES)
        assert set(CANARIES) == search(blind.said.encode(), CANARIES)
        leaked = found_in_files(blind.home, CANARIES)
        assert set(CANARIES) == set().union(*leaked.values())


async def test_errors_repeat_no_secret(quiet: DaemonProcess) -> None:
    """A secret in the wrong place comes back neither in the error nor in the log."""
    async with connected(quiet.port, quiet.token) as wire:
        await fumble(wire)
        sent = b"".join(wire.seen)
    assert set() == search(sent, CANARIES)
    assert set() == search(quiet.said.encode(), CANARIES)


async def test_own_tokens_are_never_written(quiet: DaemonProcess) -> None:
    """Also when a person pastes one."""
    async with quiet.connect() as client:
        tokens = {"operator": quiet.token, "client": await make_token(client, "client", "ann")}
        for token in tokens.values():
            started = await client.start_run(f"my token is {token}")
            await client.wait_run(started.run_id)
    for token in tokens.values():
        async with open_wire(quiet.port, f"Authorization: Bearer {token}") as wire:
            await wire.call("connect", token=token)
    assert set() == search(quiet.said.encode(), tokens)
    assert {} == found_in_files(quiet.home, tokens, but=quiet.home / "keys" / "operator.token")


async def test_a_secret_set_at_run_time_is_known_soon(quiet: DaemonProcess) -> None:
    """A value of the vault that is pasted after that is neither on the tape nor on the wire."""
    late = "canary-set-late-0123456789"
    Resolver(quiet.home, quiet.home / "keys").vault.put("LATE", late, 5)
    async with quiet.connect() as client:
        with trio.fail_after(WITHIN_S):
            while late in (tape := await say(client, late)):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(LOOK_S / 4)
    assert 2 <= tape.count("[redacted:known]")


async def say(client: Client, text: str) -> str:
    """The tape of a run whose person and model say that."""
    started = await client.start_run(f"/say {text}")
    await client.wait_run(started.run_id)
    return "".join(each.data.decode() for each in await read_whole(client, started.run_id))


async def test_ordinary_text_passes(quiet: DaemonProcess) -> None:
    """Prose, numbers and addresses are unchanged."""
    async with quiet.connect() as client:
        started = await client.start_run(f"/say {PROSE}")
        await client.wait_run(started.run_id)
        tape = await read_whole(client, started.run_id)
    assert PROSE in tape[-2].data.decode()


def found_in_files(
    home: Path, secrets: dict[str, str], *, but: Path | None = None
) -> dict[str, set[str]]:
    """Which files of the data directory hold which secrets; the database, its log, keys, all.

    Except checkpoints: they are the files of the workspace as they were, and have to be.
    """
    files = [
        path
        for path in home.rglob("*")
        if path.is_file() and path != but and "checkpoints" not in path.parts
    ]
    assert {"journal.sqlite3", "journal.sqlite3-wal"} <= {path.name for path in files}
    found = {path.name: search(path.read_bytes(), secrets) for path in files}
    return {name: hits for name, hits in found.items() if hits}


async def page(daemon: DaemonProcess, path: str) -> bytes:
    """A page of the daemon, requested by its operator."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{daemon.port}",
        f"Authorization: Bearer {daemon.token}",
        "Connection: close",
    ]
    with trio.fail_after(WITHIN_S):
        stream = await trio.open_tcp_stream("127.0.0.1", daemon.port)
        async with stream:
            await stream.send_all("\r\n".join([*lines, "", ""]).encode())
            answer = b"".join([bytes(part) async for part in stream])
    assert b"200" in answer.split(b"\r\n")[0]
    return answer
