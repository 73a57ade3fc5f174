"""A daemon on standard input and output is the same daemon: its runs are everybody's."""

import subprocess
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest
import trio

from palyra.client import connect
from tests.e2e.daemon_process import PALYRA, DaemonProcess
from tests.e2e.tapes import check_tape, read_whole
from tests.e2e.wire import WITHIN_S, Json

pytestmark = pytest.mark.real


class Parent:
    """A process that runs the daemon as its child and speaks to it by lines."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._read = b""

    async def call(self, method: str, **params: object) -> tuple[Json, list[Json]]:
        """The result, and the notifications that came before it."""
        request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        assert self._process.stdin is not None
        await self._process.stdin.send_all(msgspec.json.encode(request) + b"\n")
        notices: list[Json] = []
        while True:
            message = await self.hear()
            if message.get("id") == method:
                return message["result"], notices
            notices.append(message)

    async def hear(self) -> Json:
        """The next line."""
        assert self._process.stdout is not None
        while b"\n" not in self._read:
            data = await self._process.stdout.receive_some()
            assert data, "the daemon said nothing more"
            self._read += data
        text, _, self._read = self._read.partition(b"\n")
        message: Json = msgspec.json.decode(text)
        return message

    async def leave(self) -> int:
        """Close the daemon's input; its exit code."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        return await self._process.wait()


@pytest.fixture
def command(tmp_path: Path) -> Generator[tuple[DaemonProcess, list[str]]]:
    """A home that is not served yet, and the command that serves it."""
    daemon = DaemonProcess(tmp_path)
    yield daemon, [*PALYRA, *daemon.arguments(), "--stdio"]
    daemon.end()


async def test_parent_and_network_see_the_same(command: tuple[DaemonProcess, list[str]]) -> None:
    """A run started by the parent is watched over a WebSocket; leaving drains with code 0."""
    daemon, words = command
    with trio.fail_after(WITHIN_S):
        process = await trio.lowlevel.open_process(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        parent = Parent(process)
        assert "hello" == (await parent.hear())["method"]
        welcome, _ = await parent.call("connect", client={"name": "parent"})
        assert "operator" == welcome["role"]
        while not daemon.announcement.exists():
            await trio.lowlevel.checkpoint()
        await parent.call("ping")
        started, _ = await parent.call("run.start", text='/call echo {"text": "hi"}')
        async with connect(home=daemon.home, token=daemon.token) as client:
            await client.wait_run(started["run_id"])
            tape = await read_whole(client, started["run_id"])
        page, _ = await parent.call("tape.read", run_id=started["run_id"])
        assert 0 == await parent.leave()
    check_tape(tape)
    assert [item.seq for item in tape] == [event["seq"] for event in page["events"]]
    assert not daemon.announcement.exists()
