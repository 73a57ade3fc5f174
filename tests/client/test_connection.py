"""A connection that ends while a request waits for its slot."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from palyra.client.connection import ClientConnection, ConnectionLost
from palyra.client.dial import TRIO
from palyra.net.protocol.notifications import Hello
from tests.client.fake_daemon import HELLO

NO_SOCKET: Any = None


async def test_a_request_that_waited_for_its_turn_when_the_link_ended() -> None:
    """The request raises ConnectionLost immediately instead of waiting for a reply."""
    ended: list[bool] = []
    async with trio.open_nursery() as nursery:
        link = ClientConnection(NO_SOCKET, nursery.start_soon, lambda *_: None, TRIO)
        link.hello = msgspec.convert({**HELLO, "instance_id": "i"}, Hello)
        slots = trio.Semaphore(0)
        link._slots = slots

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await link.request("ping", {})
            ended.append(True)

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        link._end(None, "the daemon was killed")
        slots.release()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [True] == ended
