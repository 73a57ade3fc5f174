"""Skills in a real daemon: installed, approved, run in the jail, quarantined, restarted."""

import socket
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest
import trio
import wasmtime

from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.errors import PalyraError
from palyra.tools.wasm.limits import MIB
from tests.core.skill.skill_samples import EVE, package
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import wait_tool
from tests.e2e.tapes import read_whole
from tests.e2e.wire import WITHIN_S
from tests.optional import needs
from tests.tools.wasm import guests

pytestmark = [
    pytest.mark.real,
    needs("bubblewrap"),
]
ALLOW = """
permit (principal, action == Action::"skill.execute", resource)
when { [Tool::"wasm:words.count", Tool::"wasm:loops.count"].contains(resource) };
"""
HELLO = bytes(wasmtime.wat2wasm(guests.HELLO))


@pytest.fixture(scope="module")
def skilled(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon whose rules let two skills be called."""
    base = tmp_path_factory.mktemp("skilled")
    (base / "policies").mkdir()
    (base / "policies" / "skills.cedar").write_text(ALLOW)
    rules = str(base / "policies")
    with running(base, PALYRA_POLICY__DIR=rules) as process:
        yield process


async def install(client: Client, data: bytes) -> None:
    await client.install_skill(await client.upload_skill(data))


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def call(client: Client, tool: str) -> ev.ToolCompleted:
    """The outcome of the one call of a run."""
    arguments = msgspec.json.encode({"text": "a b"}).decode()
    started = await client.start_run(f"/call {tool} {arguments}")
    with trio.fail_after(WITHIN_S):
        await client.wait_run(started.run_id)
    tape = await read_whole(client, started.run_id)
    (ended,) = [each.event for each in tape if isinstance(each.event, ev.ToolCompleted)]
    return ended


def replace(path: Path) -> None:
    """Put another package in the place of this one."""
    path.write_bytes(package(HELLO, EVE))


async def test_a_skill_is_a_tool(skilled: DaemonProcess) -> None:
    """Installed, called in a run, quarantined, enabled; its digest is on the tape."""
    async with skilled.connect() as client:
        await install(client, package(HELLO))
        await wait_tool(client, "wasm:words.count")
        ended = await call(client, "wasm:words.count")
        assert ("succeeded", "hello") == (ended.status, ended.output)
        await client.quarantine_skill("words", "a look first")
        assert "wasm:words.count" not in await names(client)
        await client.enable_skill("words")
        await wait_tool(client, "wasm:words.count")


async def test_a_skill_that_loops_ends_its_call_only(skilled: DaemonProcess) -> None:
    """With its documented error; the next call of another skill is served."""
    tool = {"name": "count", "description": "c", "deadline_s": 0.5, "parameters": {"type": "object",
            "properties": {"text": {"type": "string"}}}}  # fmt: skip
    loop = bytes(wasmtime.wat2wasm(guests.LOOP))
    async with skilled.connect() as client:
        await install(client, package(loop, id="loops", tools=[tool]))
        await install(client, package(HELLO))
        await wait_tool(client, "wasm:loops.count")
        ended = await call(client, "wasm:loops.count")
        assert ("failed", True) == (ended.status, "timed_out: " in ended.output), ended
        assert "hello" == (await call(client, "wasm:words.count")).output


async def test_replaced_code_on_disk_is_not_run(skilled: DaemonProcess) -> None:
    """Neither a replaced package nor replaced machine code; also after a kill."""
    async with skilled.connect() as client:
        await install(client, package(HELLO))
        await wait_tool(client, "wasm:words.count")
    skilled.kill()
    for code in (skilled.home / "skills" / "compiled").glob("*.code"):
        code.write_bytes(b"\0" * 32 + code.read_bytes()[32:])
    skilled.start()
    async with skilled.connect() as client:
        await wait_tool(client, "wasm:words.count")
        assert "hello" == (await call(client, "wasm:words.count")).output  # compiled anew
        digest = (await client.get_skill("words")).package_sha256
        replace(skilled.home / "skills" / "packages" / f"{digest}.zip")
        ended = await call(client, "wasm:words.count")
        assert ("failed", True) == (ended.status, "disabled: " in ended.output), ended
        assert "quarantined" == (await client.get_skill("words")).state
        with pytest.raises(PalyraError, match="not the one that was installed"):
            await client.enable_skill("words")


@pytest.fixture
def untouched() -> Generator[str]:
    """The address of a server that no request may contact."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.setblocking(False)  # noqa: FBT003 - its only argument
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_guest_fetches_by_the_rules(skilled: DaemonProcess, untouched: str) -> None:
    """A granted host with a private address is not contacted; one that is not granted ends it."""
    asks = bytes(wasmtime.wat2wasm(guests.asks("fetch", f'{{"url":"{untouched}"}}')))
    capabilities = ["fetch:127.0.0.1"]
    async with skilled.connect() as client:
        for version, granted in (("1.3.0", capabilities), ("1.4.0", [])):
            data = package(asks, version=version, capabilities=capabilities)
            await client.install_skill(await client.upload_skill(data), grant=granted)
            await wait_tool(client, "wasm:words.count")
            ended = await call(client, "wasm:words.count")
            said = '"error"' if granted else "capability_denied: "
            assert ("succeeded" if granted else "failed", True) == (
                ended.status, said in ended.output,
            ), ended  # fmt: skip
        await client.remove_skill("words")


async def test_a_foreign_key_is_refused(skilled: DaemonProcess) -> None:
    """The publisher was installed from before, with another key."""
    async with skilled.connect() as client:
        await install(client, package(HELLO))
        with pytest.raises(PalyraError, match="has changed"):
            await install(client, package(HELLO, EVE))


# What is wrong with a module, and what the installation says of it.
UNFIT = {
    "too many functions": (guests.many_functions(10_001), "10002 functions"),
    "too large": (
        guests.call_guest("unreachable", extra=f'(data (i32.const 0) "{"x" * MIB}")'),
        "module.wasm has 1048[0-9]+ bytes|1 MiB|1048576",
    ),
    "a forbidden import": (guests.FORBIDDEN_IMPORT, "capability_denied|path_open"),
    "no exports": (guests.NO_EXPORTS, "memory"),
    "a compile bomb": (guests.compile_bomb(), "compiling"),
}


@pytest.mark.parametrize("case", UNFIT)
async def test_an_unfit_module_is_not_installed(skilled: DaemonProcess, case: str) -> None:
    """The operator gets the reason, and the daemon continues."""
    text, said = UNFIT[case]
    skill_id = case.replace(" ", "-")
    async with skilled.connect() as client:
        with pytest.raises(PalyraError, match=said):
            await install(client, package(bytes(wasmtime.wat2wasm(text)), id=skill_id))
        assert skill_id not in {each.id for each in (await client.list_skills()).skills}


# What a guest does when it is called -> the documented error.
BROKEN = {
    "has a wrong signature": (guests.WRONG_SIGNATURE, "invalid_module: "),
    "traps": (guests.TRAP, "trapped: "),
    "grows its memory": (guests.GROW_UNTIL_REFUSED, "quota_exceeded: "),
    "grows its table": (guests.TABLE_UNTIL_REFUSED, "quota_exceeded: "),
    "recurses": (guests.RECURSE, "quota_exceeded: "),
    "says what is no JSON": (guests.says("hello"), "bad_output: "),
}


async def test_a_guest_that_breaks_down_fails_its_call(skilled: DaemonProcess) -> None:
    """With its documented error, in the jail; and a call of another one is served after each."""
    async with skilled.connect() as client:
        for minor, (text, said) in enumerate(BROKEN.values(), start=5):
            data = package(bytes(wasmtime.wat2wasm(text)), version=f"1.{minor}.0")
            await install(client, data)
            await wait_tool(client, "wasm:words.count")
            ended = await call(client, "wasm:words.count")
            assert ("failed", True) == (ended.status, said in ended.output), ended
        await install(client, package(HELLO, version="1.99.0"))
        await wait_tool(client, "wasm:words.count")
        assert "hello" == (await call(client, "wasm:words.count")).output
        await client.remove_skill("words")
