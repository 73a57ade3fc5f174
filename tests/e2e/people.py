"""People and programs that use one daemon: clients, approvers, observers, each with a token."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import trio

from palyra.client import Client, Subscription, TapeEvent
from palyra.core.journal.records import ApprovalRecord, Role
from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.wire import WITHIN_S
from tests.tools.sandbox.jails import find_alive

LOOK_S = 0.02


async def wait_tool(client: Client, name: str) -> None:
    """Return when that tool exists; program tools are offered after the sandbox test."""
    with trio.fail_after(WITHIN_S):
        while name not in {tool.name for tool in (await client.list_tools()).tools}:  # noqa: ASYNC110 - another process
            await trio.sleep(LOOK_S)


async def wait_alive(marker: str, *, wanted: bool) -> None:
    """Return when there are processes with that word, or none any more."""
    with trio.fail_after(WITHIN_S):
        while bool(find_alive(marker)) is not wanted:  # noqa: ASYNC110 - other processes
            await trio.sleep(LOOK_S)


def write_call(path: str, content: str = "written") -> str:
    """A message whose run wants to write a file, which needs a person."""
    return f"/call write_file {msgspec.json.encode({'path': path, 'content': content}).decode()}"


async def make_token(operator: Client, role: Role, principal: str | None = None) -> str:
    """A new bearer token of that role."""
    made = await operator.create_token(principal=principal or role, role=role, name="e2e")
    assert made.token is not None
    return made.token


@asynccontextmanager
async def somebody(
    daemon: DaemonProcess, role: Role, principal: str | None = None
) -> AsyncGenerator[Client]:
    """A connected client with a token of that role."""
    async with daemon.connect() as operator:
        token = await make_token(operator, role, principal)
    async with daemon.connect(token) as client:
        yield client


async def ask_for(
    client: Client, text: str, *, session_key: str | None = None, workspace: str | None = None
) -> ApprovalRecord:
    """Start a run that stops at a question; the question."""
    started = await client.start_run(text, session_key=session_key, workspace=workspace)
    await client.wait_run(started.run_id, until="attention")
    (asked,) = await client.list_approvals(run_id=started.run_id)
    return asked


async def see(items: Subscription, *wanted: str) -> TapeEvent:
    """The next event of one of these kinds."""
    async for item in items:
        if isinstance(item, TapeEvent) and item.kind in wanted:
            return item
    raise AssertionError(f"the run ended without {wanted}")


def find_events(tape: list[TapeEvent], kind: type[ev.Event]) -> list[ev.Event]:
    """The decoded events of one kind."""
    return [item.event for item in tape if isinstance(item.event, kind)]
