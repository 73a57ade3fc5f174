"""Mistakes of a model in a call of a real daemon: coerced or rejected, and attested."""

from typing import Any

import msgspec
import pytest

from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.tapes import calls, check_tape, kinds, read_whole

pytestmark = pytest.mark.real

# A call, and what is wrong with it: field and limit.
REFUSED: list[tuple[str, Any, str]] = [
    ("shell", {"command": 5}, "command: expected a string"),
    ("write_file", {"path": 5, "content": "x"}, "path: expected a string"),
    ("http_fetch", {"url": 5}, "url: expected a string"),
    ("echo", {"text": "x", "loud": True}, "arguments: expected only the fields text"),
    ("echo", {"txt": "x"}, "text: expected a string"),
    ("echo", {}, "text: expected a string"),
    ("sleep", {"seconds": 1_000_000}, "seconds: expected a number of 0 to"),
    ("sleep", {"seconds": "1e3"}, "seconds: expected a number of 0 to"),
    ("echo", {"text": "x" * 66_000}, "arguments: expected at most 65536 bytes"),
    ("echo", ["x"], "arguments: expected a JSON object"),
    ("ecko", {"text": "x"}, "'ecko' is not in the catalogue"),
]


async def test_mistakes_are_coerced_or_rejected(daemon: DaemonProcess) -> None:
    """One coercion is recorded; every other call gets its field and limit, and all are attested."""
    async with daemon.connect() as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}  # shell needs a sandbox
        refused = [call for call in REFUSED if call[0] in {*tools, "ecko"}]
        proposed = [("sleep", {"seconds": "0"}), *(call[:2] for call in refused)]
        lines = [f"/call {tool} {msgspec.json.encode(given).decode()}" for tool, given in proposed]
        started = await client.start_run("\n".join(lines))
        assert (await client.wait_run(started.run_id)).state == "done"
        tape = await read_whole(client, started.run_id)
    check_tape(tape)
    first, *others = calls(tape).values()
    assert isinstance(first[0].event, ev.ToolProposed)
    assert (first[0].event.coercions, first[0].event.arguments) == (
        ('seconds: "0" -> 0',), {"seconds": 0},
    )  # fmt: skip
    assert kinds(others[0]) == ["tool.proposed", "tool.rejected", "tool.attested"]
    for (tool, _, hint), events in zip(refused, others, strict=True):
        rejected = events[1].event
        assert isinstance(rejected, ev.ToolRejected), tool
        told = f"{rejected.reason.partition(': got')[0]}: {rejected.repair_hint}"
        assert told.startswith(hint), (tool, rejected)
