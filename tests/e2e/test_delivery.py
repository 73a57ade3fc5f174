"""Tapes on the wire, as several clients see one run at the same time."""

from collections.abc import Generator
from contextlib import suppress

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.core.tape.events import TERMINAL_KINDS
from palyra.errors import NotFound, Unavailable
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.tapes import check_tape, read_whole
from tests.e2e.wire import WITHIN_S, Wire, connected, dial, open_wire
from tests.net.server.peers import TEXT, frame

pytestmark = pytest.mark.real

MANY_CALLS = "\n/then\n".join(
    f'/call echo {{"text": "x{n}"}}' for n in range(40)
)  # some 320 events
BIG_RESULTS = "\n/then\n".join(  # 2 MB
    f'/call read_file {{"path": "big.txt", "offset": {n}}}' for n in range(1, 121)
)
HALF_A_FRAME = frame(TEXT, b'{"jsonrpc": "2.0"}')


async def follow(client: Client, run_id: str, after_seq: int = -1) -> list[TapeEvent]:
    """Everything after that seq, to the end."""
    async with client.events(run_id, after_seq) as items:
        return [item async for item in items if isinstance(item, TapeEvent)]


async def test_everybody_sees_the_same_tape(daemon: DaemonProcess) -> None:
    """Two live clients and a late third see the same events, which are the tape's."""
    live: list[list[TapeEvent]] = []

    async def watch(who: Client, run_id: str) -> None:
        live.append(await follow(who, run_id))

    async with daemon.connect() as client, daemon.connect() as other:
        started = await client.start_run(MANY_CALLS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, client, started.run_id)
            nursery.start_soon(watch, other, started.run_id)
        tape = await read_whole(client, started.run_id)
    async with daemon.connect() as late:
        live.append(await follow(late, started.run_id))
    check_tape(tape)
    assert [tape] * 3 == live


async def test_joining_in_the_middle_of_heavy_appends(daemon: DaemonProcess) -> None:
    """Whatever the cursor and the moment: no gap, no repeat, and caught up exactly once."""
    async with daemon.connect() as client, connected(daemon.port, daemon.token, "batch") as wire:
        started = await client.start_run(MANY_CALLS)
        run_id = started.run_id
        opened: dict[str, int] = {}
        for cursor in [-1, 0, 1, 5, 17, 50, -1, 3] * 4:
            reply = await wire.call("tape.subscribe", run_id=run_id, after_seq=cursor)
            assert min(cursor, reply["through"]) + 1 == reply["from"]
            opened[reply["subscription"]] = reply["from"]
        tape = await follow(client, run_id)
        seen: dict[str, list[int]] = {name: [] for name in opened}
        caught_up: dict[str, int] = dict.fromkeys(opened, 0)
        while any(not seqs or seqs[-1] < len(tape) - 1 for seqs in seen.values()) or (
            0 in caught_up.values()
        ):
            told = await wire.notice(lambda one: "subscription" in one["params"])
            name = told["params"]["subscription"]
            if told["method"] == "tape.event":
                seen[name].append(told["params"]["seq"])
            else:
                assert "tape.caught_up" == told["method"]
                caught_up[name] += 1
        await wire.call("ping")
        assert not [one for one in wire.notices if "subscription" in one["params"]]
    for name, first in opened.items():
        assert list(range(first, len(tape))) == seen[name]
    assert {1} == set(caught_up.values())


async def test_cursor_ahead_of_the_head(daemon: DaemonProcess) -> None:
    """A client with more events than the tape learns where the tape ends."""
    async with daemon.connect() as client, connected(daemon.port, daemon.token) as wire:
        started = await client.start_run("hello")
        await client.wait_run(started.run_id)
        head = (await client.get_run(started.run_id)).head_seq
        reply = await wire.call("tape.subscribe", run_id=started.run_id, after_seq=head + 10)
        assert (head, 0) == (reply["through"], reply["floor"])


async def test_unknown_run(daemon: DaemonProcess) -> None:
    """There is no tape of a run that never was."""
    nobody = "run_01890a5d-ac96-774b-bcce-b302099a8057"
    async with daemon.connect() as client:
        with pytest.raises(NotFound):
            await client.read_tape(nobody)
        with pytest.raises(NotFound):
            async with client.events(nobody):
                pass


async def test_committed_numbers(daemon: DaemonProcess) -> None:
    """`committed` never goes back and reaches the end of the run."""
    async with connected(daemon.port, daemon.token) as wire:
        await wire.call("run.start", text=MANY_CALLS, subscribe=True)
        sent, committed, last_kind = -1, -1, ""
        while last_kind not in TERMINAL_KINDS or committed < sent:
            told = await wire.notice(lambda one: one["method"] in {"tape.event", "tape.committed"})
            params = told["params"]
            if told["method"] == "tape.event":
                assert sent + 1 == params["seq"]
                sent, last_kind = params["seq"], params["kind"]
            assert committed <= params["committed"]
            committed = params["committed"]
        assert sent == committed


async def test_idle_stream_gets_the_commit(daemon: DaemonProcess) -> None:
    """If no event follows, the commit is sent by itself."""
    async with connected(daemon.port, daemon.token) as wire:
        await wire.call("run.start", text="/delay 3600000\n/say late", subscribe=True)
        told = await wire.notice(
            lambda one: one["method"] == "tape.event" and one["params"]["kind"] == "turn.started"
        )
        seq, committed = told["params"]["seq"], told["params"]["committed"]
        while committed < seq:
            committed = (await wire.named("tape.committed"))["committed"]
        await wire.call("run.cancel", run_id=told["params"]["run_id"])


async def test_progress_is_superseded(daemon: DaemonProcess) -> None:
    """Deltas come in order, may be merged, and are a part of the text that supersedes them."""
    async with connected(daemon.port, daemon.token) as wire:
        await wire.call("run.start", text="/tokens 2000", subscribe=True)
        streamed, order, text = "", 0, ""
        while not text:
            told = await wire.notice(lambda one: one["method"] in {"tape.event", "progress"})
            params = told["params"]
            if told["method"] == "progress":
                assert ("turn:1", "text") == (params["item"], params["kind"])
                assert params["order"] > order
                order = params["order"]
                streamed += params["delta"]
            elif params["kind"] == "turn.completed":
                text = params["data"]["text"]
    assert 2000 == len(text.split())
    assert streamed in text


# --- who is slow, and who is gone ----------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that lets little wait for one connection."""
    settings = {
        "PALYRA_SERVER__OUTBOX_BYTES": "262144",
        "PALYRA_SERVER__REQUESTS_PER_S": "100000",
    }
    with running(tmp_path_factory.mktemp("narrow"), **settings) as process:
        yield process


async def test_a_client_that_does_not_read(narrow: DaemonProcess) -> None:
    """The daemon gives it up, saying its last seq; its run continues, and another reader sees all of it."""
    (narrow.workspace / "big.txt").write_text("0123456789abcde\n" * 1_000, encoding="utf-8")
    async with narrow.connect() as client, connected(narrow.port, narrow.token, room=2_048) as slow:
        started = await slow.call("run.start", text=BIG_RESULTS, subscribe=True)
        async with client.events(started["run_id"], progress=False) as items:
            tape = [item async for item in items if isinstance(item, TapeEvent)]
        while not await is_alone(client):
            pass
        end = await slow.closed()
    check_tape(tape)
    assert "run.done" == tape[-1].kind
    assert "slow consumer: last seq " in narrow.said
    # The close frame is there for some seconds only, which on a starved machine have passed.
    assert end.code in {1013, 1006}


async def is_alone(client: Client) -> bool:
    """Whether the daemon has one connection."""
    # On a starved machine the reader may be too slow once, and come back by itself.
    with suppress(Unavailable):
        return (await client.status()).connections == 1
    return False


async def leave_halfway(daemon: DaemonProcess, number: int) -> str:
    """Start a run, watch some of it, send a part of a frame, vanish; the run."""
    async with connected(daemon.port, daemon.token) as wire:
        started = await wire.call("run.start", text=MANY_CALLS, subscribe=True)
        for _ in range(number):
            await wire.named("tape.event")
        await wire.peer.send(HALF_A_FRAME[: number % 8])
        wire.vanish()
    return str(started["run_id"])


async def test_resets_end_only_their_connection(daemon: DaemonProcess) -> None:
    """At any point of a session; the runs continue."""
    async with daemon.connect() as client:
        before = (await client.status()).connections
        for text in (b"", b"GET /v1/ws HT"):
            peer = await dial(daemon.port)
            await peer.send(text)
            Wire(peer).vanish()
        async with open_wire(daemon.port) as wire:
            wire.vanish()
        ids = [await leave_halfway(daemon, number) for number in range(10)]
        assert {"done"} == {(await client.wait_run(run_id)).state for run_id in ids}
        with trio.fail_after(WITHIN_S):
            while (await client.status()).connections != before:
                await trio.lowlevel.checkpoint()


async def test_leaving_before_the_reply(daemon: DaemonProcess) -> None:
    """A request whose sender has left takes effect once; the key finds it again."""
    async with daemon.connect() as client:
        for number in range(10):
            async with connected(daemon.port, daemon.token) as wire:
                await wire.ask("run.start", text="hello", idempotency_key=f"left-{number}")
                wire.vanish()
            again = await client.start_run("hello", idempotency_key=f"left-{number}")
            once_more = await client.start_run("hello", idempotency_key=f"left-{number}")
            assert again == once_more
            await client.wait_run(again.run_id)
            check_tape(await read_whole(client, again.run_id))
