"""Jails for tests: a sandbox of one's own, Python inside, and who is still alive."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from palyra.actors.kernel.threads import DedicatedThread
from palyra.tools.sandbox.child import ProcessExit
from palyra.tools.sandbox.command import Bind, Command
from palyra.tools.sandbox.sandbox import Sandbox
from tests.optional import needs

needs_bubblewrap = needs("bubblewrap")
PYTHON = Path(sys.executable).resolve()
PREFIX = Path(sys.base_prefix).resolve()


@asynccontextmanager
async def open_sandbox(
    records: Path | None = None, bubblewrap: str | None = None
) -> AsyncGenerator[Sandbox]:
    """A sandbox over a thread that ends with the block."""
    thread = DedicatedThread("sandbox")
    try:
        yield Sandbox(thread, records=records, bubblewrap=bubblewrap)
    finally:
        thread.close()


def python(code: str, *arguments: str, **more: Any) -> Command:
    """A command that runs this code with the interpreter of the tests."""
    binds = () if PREFIX.is_relative_to("/usr") else (Bind(PREFIX),)
    argv = (str(PYTHON), "-I", "-S", "-B", "-c", code, *arguments)
    return Command(argv=argv, binds=binds, merges_errors=True, **more)


async def run(sandbox: Sandbox, command: Command) -> tuple[str, ProcessExit]:
    """Everything it wrote, and how it ended."""
    output = b""
    async with sandbox.open(replace(command, merges_errors=True)) as child:
        async for piece in child.stdout:
            output += piece
        ending = await child.wait()
    return output.decode(), ending


async def run_json(sandbox: Sandbox, command: Command) -> Any:
    """The program's output, as JSON."""
    output, ending = await run(sandbox, command)
    assert ending.exit_code == 0, output
    return json.loads(output)


def find_alive(marker: str) -> list[int]:
    """Processes with that word on their command line."""
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    return [int(folder.name) for folder in folders if marker.encode() in _command_line(folder)]


def _command_line(folder: Path) -> bytes:
    with suppress(OSError):
        return (folder / "cmdline").read_bytes()
    return b""
