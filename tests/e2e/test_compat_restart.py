"""The HTTP APIs when the daemon is killed."""

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from palyra.client import Client
from palyra.core.journal.records import ApprovalRecord
from tests.e2e.daemon_process import DaemonProcess, running

pytestmark = pytest.mark.real

CHAT = "/v1/chat/completions"
KEY = {"Idempotency-Key": "lost"}


async def post(daemon: DaemonProcess, path: str, body: Any, **headers: str) -> Any:
    """The answer, which must be one."""
    base = f"http://127.0.0.1:{daemon.port}"
    headers["Authorization"] = f"Bearer {daemon.token}"
    async with httpx.AsyncClient(base_url=base, headers=headers, trust_env=False) as client:
        answer = await client.post(path, json=body, timeout=120)
    assert 200 == answer.status_code, answer.text
    return answer.json()


WAITING = {
    "model": "scripted",
    "messages": [
        {
            "role": "user",
            "content": '/call write_file {"path": "x", "content": "y"}\n/then\n/say woke',
        }
    ],
}


async def find_question(client: Client) -> ApprovalRecord:
    """The one question that waits for a person."""
    with trio.fail_after(120):
        while not (asked := await client.list_approvals(pending_only=True)):
            await trio.lowlevel.checkpoint()
    return asked[0]


async def lose(daemon: DaemonProcess) -> None:
    """Ask, and be gone before there is an answer."""
    async with daemon.connect() as client, trio.open_nursery() as nursery:
        nursery.start_soon(partial(post, daemon, CHAT, WAITING, **KEY))
        await find_question(client)
        nursery.cancel_scope.cancel()


async def allow(daemon: DaemonProcess) -> None:
    """Allow the pending approval."""
    async with daemon.connect() as client:
        asked = await find_question(client)
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)


async def test_keys_and_conversations_survive_a_kill(tmp_path: Path) -> None:
    """The same key finds its run again, and a response can be continued."""
    asked = {"model": "scripted", "input": "/say one"}
    with running(tmp_path) as daemon:
        first = await post(daemon, "/v1/responses", asked)
        await lose(daemon)
        await daemon.restart()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(allow, daemon)
            found = await post(daemon, CHAT, WAITING, **KEY)
        again = await post(daemon, CHAT, WAITING, **KEY)
        assert found == again
        assert "woke" == found["choices"][0]["message"]["content"]
        assert ["succeeded"] == [call["status"] for call in found["palyra"]["tool_calls"]]
        asked["previous_response_id"] = first["id"]
        second = await post(daemon, "/v1/responses", asked)
        assert first["palyra"]["session_id"] == second["palyra"]["session_id"]
        async with daemon.connect() as client:
            assert 3 == len((await client.list_runs()).runs)
