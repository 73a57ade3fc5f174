"""Terminals that want no escapes: NO_COLOR, and TERM=dumb; every command against one daemon."""

import fcntl
import itertools
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from palyra.client import connect
from tests.cli.command import environment
from tests.cli.every_command import EveryCommand, every_command
from tests.cli.test_real_daemon import real_daemon
from tests.e2e.daemon_process import DaemonProcess
from tests.forked import ForkedProcess, Setting

pytestmark = pytest.mark.real

WITHIN_S = 60.0
ESCAPE = b"\x1b"
WHERE, HERE = b"\x1b[6n", b"\x1b[1;1R"  # where is the cursor?  A terminal answers
COLOUR = re.compile(rb"\x1b\[[0-9;]*\b(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")
PLAIN: tuple[Mapping[str, str], ...] = ({"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"})
COLOURED = {"TERM": "xterm", "NO_COLOR": ""}
STAY = frozenset({"up", "serve"})  # until a signal
EDITORS = frozenset({"chat", "watch"})  # move the cursor where it can be moved
INSTALLS = frozenset({"models install"})  # some hundred megabytes
ENDING = frozenset(
    {"archive", "cancel", "delete", "forget", "purge", "remove", "reset", "revoke", "undo"}
)
SILENT = set[str]()
WRITE = '/call write_file {"path": "note.txt", "content": "x"}'


class Shown:
    """A command at a terminal of 80 columns, and what the terminal got."""

    def __init__(
        self, arguments: Iterable[str], home: Path, terminal: Mapping[str, str], *, typing: bool
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        kept = environment(home) | {"XDG_STATE_HOME": str(home / "state"), **terminal}
        nothing = os.open(os.devnull, os.O_RDONLY)
        streams = (slave if typing else nothing, slave, slave)
        workspace = home.parent / "workspace"  # elsewhere `chat` and `run` ask about the folder
        before = partial(os.chdir, workspace) if workspace.exists() else None
        self.process = ForkedProcess(list(arguments), Setting(kept, streams, before))
        os.close(slave)
        os.close(nothing)
        self.bytes = b""

    async def read(self) -> bool:
        """Take what the command prints next; False at its end."""
        await trio.lowlevel.wait_readable(self.master)
        try:
            got = os.read(self.master, 65_536)
        except OSError:  # the last writer has closed it
            return False
        self.bytes += got
        os.write(self.master, HERE * got.count(WHERE))
        return bool(got)

    async def see(self, text: bytes) -> None:
        """Read until the text was printed."""
        while text not in self.bytes:
            assert await self.read(), self.bytes

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def close(self) -> None:
        with suppress(ProcessLookupError):  # it may have ended by itself meanwhile
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@asynccontextmanager
async def shown(
    arguments: Iterable[str], home: Path, terminal: Mapping[str, str], *, typing: bool = False
) -> AsyncGenerator[Shown]:
    """Run a command; after the block it is read to its end."""
    with closing(Shown(arguments, home, terminal, typing=typing)) as command:
        with trio.fail_after(WITHIN_S):
            yield command  # noqa: RUF075 - after a failure of the block nothing is read
            while await command.read():
                pass


async def show(arguments: list[str], home: Path, terminal: Mapping[str, str]) -> bytes:
    """All that a command prints that reads nothing."""
    async with shown(arguments, home, terminal) as command:
        if arguments[0] in STAY:
            await command.see(b"pid" if arguments[0] == "up" else b"}\r\n")
            command.process.send_signal(signal.SIGTERM)
    return command.bytes


async def seed(daemon: DaemonProcess, base: Path) -> dict[str, str]:
    """Give the daemon records of most kinds; values for the arguments of commands."""
    for folder in ("out", "first", "second"):
        (base / folder).mkdir()
    cases = base / "cases.jsonl"
    cases.write_text('{"id": "a", "text": "/say x"}\n', encoding="utf-8")
    async with connect(home=daemon.home) as client:
        text = '/call read_file {"path": "none"}\n/then\n/say done'
        done = await client.start_run(text, session_key="daily")
        await client.wait_run(done.run_id)
        asking = await client.start_run(WRITE)
        await client.wait_run(asking.run_id, until="attention")
        (asked,) = await client.list_approvals(run_id=asking.run_id)
        item = await client.add_memory("The build uses ninja.")
        task = await client.submit_task("prompt", {"text": "/say x"})
        schedule = await client.add_schedule("each", every_ms=3_600_000, payload={"text": "/say x"})
        token = await client.create_token(principal="ann", role="client", name="x")
    missing = "01J00000000000000000000000"
    return {
        "agent": "default", "approval_id": asked.approval_id, "artifact": "none", "budget_id": "b",
        "candidate_id": f"cand_{missing}", "channel": "web", "checkpoint_id": f"chk_{missing}",
        "code": "x", "document": "MEMORY.md", "file": str(cases), "first": str(base / "first"),
        "folder": str(base / "skill"), "grant_id": f"grt_{missing}", "incident_id": f"inc_{missing}",
        "instructions": "be brief", "key": "models.default", "memory_id": item.memory_id,
        "memory_ids": item.memory_id, "name": "daily", "out": str(base / "out"),
        "package": str(base / "none"), "pairing_id": f"pair_{missing}", "path": str(base / "none"),
        "principal": "ann", "provider": "openai", "query": "build", "reason": "r",
        "run_id": done.run_id, "schedule_id": schedule.schedule_id, "second": str(base / "second"),
        "seq": "1", "server": "none", "session_id": done.session_id, "skill_id": "none",
        "target": str(base / "restored"), "task_id": task.task_id, "text": "/say x", "title": "Ours",
        "token_id": token.token_id, "tool": "read_file", "value": "x", "version": "1",
        "what": done.run_id, "words": "yes",
    }  # fmt: skip


@contextmanager
def closing_daemon(daemon: DaemonProcess) -> Generator[None]:
    """End the daemon with the block; there is no time for all commands together."""
    try:
        yield
    finally:
        daemon.end()


def in_order() -> list[EveryCommand]:
    """Every command that reads nothing; those that end what others need are last."""
    every = [each for each in every_command() if each.name not in EDITORS | STAY | INSTALLS]
    return sorted(every, key=lambda each: (each.name == "drain", each.words[-1] in ENDING))


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
async def test_no_command_prints_an_escape(tmp_path: Path, turn: int) -> None:
    """By turns with NO_COLOR and at a dumb terminal: what succeeds, what fails, and a wrong use."""
    daemon = DaemonProcess(tmp_path)
    found, silent = {}, set()
    with closing_daemon(daemon):
        daemon.start()
        values = await seed(daemon, tmp_path)
        wanted = [(each.fill(values), daemon.home) for each in in_order()]
        wanted += [([name, "--port", "0"], tmp_path / name) for name in sorted(STAY)]
        wanted += [(["run", "--no-such-option"], daemon.home), (["no-such"], daemon.home)]
        terminals = itertools.islice(itertools.cycle(PLAIN), turn, None)
        for (given, home), terminal in zip(wanted, terminals, strict=False):
            output = await show(given, home, terminal)
            if not output:
                silent.add(" ".join(given))
            if ESCAPE in output:
                found[" ".join(given)] = output
        assert 0 == await daemon.ended()
    assert ({}, SILENT) == (found, silent)


async def test_control_a_terminal_gets_colours(tmp_path: Path) -> None:
    """The same commands are coloured at a terminal that wants it, with NO_COLOR empty."""
    async with real_daemon(tmp_path) as daemon:
        await seed(daemon, tmp_path)
        for given in (["status"], ["runs", "list"], ["doctor"], ["approvals", "show", "none"]):
            assert ESCAPE in await show(given, daemon.home, COLOURED), given


async def test_dumb_terminal_holds_a_conversation(tmp_path: Path) -> None:
    """At a dumb terminal `chat` reads lines, asks its questions and leaves, without an escape."""
    refused = 0  # answers, as too soon
    async with (
        real_daemon(tmp_path) as daemon,
        shown(["chat"], daemon.home, PLAIN[1], typing=True) as chat,
    ):
        await chat.see(b"Ctrl-D leaves")
        chat.type(b"//say one\n")
        await chat.see(b"\none")
        chat.type(f"/{WRITE}\n".encode())
        await chat.see(b"allow it?")
        while not re.search(rb"(?s)allow it\?.*succeeded", chat.bytes):
            if chat.bytes.count(b"too soon") == refused:
                chat.type(b"y\n")
                refused += 1
            await chat.read()
        chat.type(b"\x04")
    assert ESCAPE not in chat.bytes
    assert b"chat --resume" in chat.bytes


@pytest.mark.parametrize("name", sorted(EDITORS))
async def test_editors_have_no_colour(tmp_path: Path, name: str) -> None:
    """With NO_COLOR `chat` and `watch` move the cursor, and set no colour."""
    leave = {"chat": b"\x04", "watch": b"q"}[name]
    async with (
        real_daemon(tmp_path) as daemon,
        shown([name], daemon.home, PLAIN[0], typing=True) as editor,
    ):
        await editor.see({"chat": b"idle", "watch": b"\x1b[J"}[name])
        editor.type(leave)
    assert None is COLOUR.search(editor.bytes)


async def test_watch_at_a_dumb_terminal_is_shown_once(tmp_path: Path) -> None:
    """It draws no screen there."""
    async with (
        real_daemon(tmp_path) as daemon,
        shown(["watch"], daemon.home, PLAIN[1], typing=True) as watch,
    ):
        pass
    assert ESCAPE not in watch.bytes


async def test_question_of_a_run_has_no_escape(tmp_path: Path) -> None:
    """The preview and the prompt of `run` neither."""
    async with real_daemon(tmp_path) as daemon:
        for terminal in PLAIN:
            async with shown(["run", WRITE], daemon.home, terminal, typing=True) as run:
                await run.see(b"allow it?")
                run.type(b"n\n")
            assert ESCAPE not in run.bytes
