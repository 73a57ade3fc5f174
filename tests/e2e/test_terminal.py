"""The commands of a terminal against the real daemon with the scripted model."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from palyra.client import connect
from tests.cli.command import environment, palyra
from tests.cli.test_real_daemon import real_daemon
from tests.e2e.daemon_process import DaemonProcess
from tests.forked import ForkedProcess, Setting

pytestmark = pytest.mark.real

WITHIN_S = 120.0  # a bound against hanging, not a promise
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
KEPT = "\0"  # a cell that is right already: the editor moves over it and writes the next one
FOLD = r"(?:\r*\n *)"  # before a word that the width has no room for, and within a longer one
WHERE = b"\x1b[6n"  # where is the cursor?  A terminal answers

WRITE = '/call write_file {"path": "note.txt", "content": "x"}'


async def test_answer_that_does_not_fit_the_schema_ends_in_part(tmp_path: Path) -> None:
    """--json-schema accepts an answer that fits, and rejects one that does not, once."""
    schema = tmp_path / "answer.json"
    schema.write_bytes(msgspec.json.encode({"type": "object", "required": ["name"]}))
    async with real_daemon(tmp_path) as daemon:
        fits = await palyra(
            "run", '/say {"name": "x"}', "--json-schema", str(schema), home=daemon.home
        )
        fails = await palyra("run", '/say {"n": 1}', "--json-schema", str(schema), home=daemon.home)
        schema.write_bytes(b'{"type": "no type"}')
        refused = await palyra("run", "hello", "--json-schema", str(schema), home=daemon.home)
    assert (0, {"name": "x"}) == (fits.code, fits.json)
    assert 4 == fails.code
    assert (2, "answer_schema" in refused.err) == (refused.code, True)


async def test_continue_goes_on_with_the_last_conversation(tmp_path: Path) -> None:
    """--continue takes the session of the newest interactive run, not that of a background run."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        nothing = await palyra("run", "again", "--continue", home=daemon.home)
        first = await client.start_run("/say one")
        await client.wait_run(first.run_id)
        other = await client.start_run("/say two", origin="background")
        await client.wait_run(other.run_id)
        done = await palyra("run", "again", "--continue", home=daemon.home)
        again = await client.get_run(done.err.partition("● ")[2].split()[0])
    assert (2, 0) == (nothing.code, done.code)
    assert first.session_id == again.session_id


async def test_listed_tool_is_allowed_without_a_terminal(tmp_path: Path) -> None:
    """--approve write_file writes the file; without it the command exits with 6 and leaves the run open."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        left = await palyra("run", WRITE, home=daemon.home)
        waiting = await client.list_runs()
        assert not (daemon.workspace / "note.txt").exists()
        allowed = await palyra("run", WRITE, "--approve", "write_file", home=daemon.home)
        assert "x" == (daemon.workspace / "note.txt").read_text()
    assert (6, "awaiting_approval") == (left.code, waiting.runs[0].phase)
    assert 0 == allowed.code


# --- palyra chat ---------------------------------------------------------------------------------


class ChatPerson:
    """A person at the terminal of `palyra chat`."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._bytes = b""
        self._answered = self._seen = 0  # questions for the cursor, characters

    async def see(self, text: str) -> str:
        """Read until the text was printed after what was seen before; return what was printed.

        It may be folded anywhere: how long a line is depends on the folder of the test.
        """
        cells = (f"[{re.escape(each)}{KEPT}]" + f"|{FOLD}" * (each == " ") for each in text)
        wanted = re.compile(f"{FOLD}?".join(f"(?:{each})" for each in cells))
        with trio.move_on_after(WITHIN_S):
            while True:
                shown = self._bytes.decode(errors="replace").replace("\x1b[C", KEPT)
                shown = CONTROLS.sub("", shown)
                found = wanted.search(shown, self._seen)
                if found is not None:
                    begin, self._seen = self._seen, found.end()
                    return shown[begin : self._seen]
                await trio.lowlevel.wait_readable(self._master)
                try:
                    self._bytes += os.read(self._master, 65_536)
                except OSError:  # the program has ended: say what it showed
                    break
                for _ in range(self._bytes.count(WHERE) - self._answered):
                    os.write(self._master, b"\x1b[1;1R")
                    self._answered += 1
        raise AssertionError(f"{text!r} was not shown, but {self._bytes!r}")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())


def take_terminal(folder: Path) -> None:
    """Make standard input the terminal that controls this process, as a shell in that folder does."""
    os.chdir(folder)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@asynccontextmanager
async def chatting(
    daemon: DaemonProcess, *options: str
) -> AsyncGenerator[tuple[ChatPerson, ForkedProcess]]:
    """`palyra chat` on a pseudo-terminal, ready for a line; it must have ended with the block."""
    async with at_terminal(daemon, "chat", *options) as (person, process):
        await person.see("idle")
        yield person, process


@asynccontextmanager
async def at_terminal(
    daemon: DaemonProcess, *arguments: str, folder: Path | None = None
) -> AsyncGenerator[tuple[ChatPerson, ForkedProcess]]:
    """A command on a pseudo-terminal of its own; it must have ended with the block.

    It runs in that folder, the daemon's default workspace if none is given.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    kept = environment(daemon.home) | {
        "TERM": "xterm",
        "XDG_STATE_HOME": str(daemon.home / "state"),
    }
    # While text is printed above the prompt the terminal is not raw, and Ctrl-C is a signal.
    before = partial(take_terminal, folder or daemon.workspace)
    process = ForkedProcess(arguments, Setting(kept, (slave,) * 3, before))
    os.close(slave)
    try:
        yield ChatPerson(master), process
        with trio.fail_after(WITHIN_S):
            while process.poll() is None:  # the terminal is read, or the end would block
                await trio.to_thread.run_sync(_drain, master)
    finally:
        if process.is_alive:
            process.send_signal(signal.SIGKILL)
        os.close(master)


def _drain(master: int) -> None:
    if select.select([master], [], [], 0.05)[0]:
        with suppress(OSError):
            os.read(master, 65_536)


async def test_chat_holds_a_conversation(tmp_path: Path) -> None:
    """Two messages are one session; calls are cards; hostile text is harmless; Ctrl-D leaves."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        (daemon.workspace / "a.txt").write_text("title\x1b]0;owned\x07")
        async with chatting(daemon) as (person, process):
            person.type("//say hello\u202e there\r")
            assert "\u202e" not in (await person.see("hello\\u202e there")).split("\r\n")[-1]
            await person.see("idle")
            person.type('//call read_file {"path": "a.txt"}\r')
            await person.see("succeeded")
            await person.see("idle")
            person.type("/cost\r")
            await person.see("model calls")
            person.type("/title Our plan\r")
            await person.see("is named Our plan")
            await person.see("idle")
            person.type("/nonsense\r")
            await person.see("no command /nonsense")
            await person.see("idle")  # raw again: while text is printed Ctrl-D would be lost
            person.type("\x04")
        runs = (await client.list_runs()).runs
        session = await client.get_session(runs[0].session_id)
    assert (0, "Our plan") == (process.poll(), session.title)
    assert (2, 1) == (len(runs), len({run.session_id for run in runs}))


async def test_chat_with_own_commands_and_a_shell(tmp_path: Path) -> None:
    """A file is a command, `!` runs here and goes with the next message, an answer becomes AGENTS.md."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        folder = daemon.workspace / ".claude" / "commands"
        folder.mkdir(parents=True)
        (folder / "greet.md").write_text("---\ndescription: Say hello\n---\n/say hello to $1\n")
        (folder / "help.md").write_text("never sent")
        async with chatting(daemon) as (person, process):
            person.type("/gre\t")
            await person.see("/greet")  # offered, or completed already
            person.type("\x15/greet 'all of you' x\r")
            await person.see("help.md is no command")
            await person.see("hello to all of you")
            await person.see("idle")
            person.type("!echo mine; pwd\r")
            await person.see(f"{daemon.workspace}")
            await person.see("goes with the next message")
            await person.see("idle")
            person.type("//say # For agents\r")
            while len(runs := (await client.list_runs()).runs) < 2:
                pass  # each turn of the loop waits for the daemon
            await client.wait_run(runs[0].run_id)
            await person.see("idle")
            person.type(f"/export {tmp_path}/talk.md\r")
            await person.see("talk.md is written")
            await person.see("idle")
            person.type("/diff\r")
            await person.see("no change of a file")
            await person.see("idle")
            person.type("/init save\r")
            await person.see("AGENTS.md is written")
            await person.see("idle")
            person.type("/init save\r")
            await person.see("exists already")
            await person.see("idle")
            person.type("\x04")
        runs = (await client.list_runs()).runs
        printed = await palyra("sessions", "export", runs[0].session_id, home=daemon.home)
        out = str(tmp_path / "talk.md")
        again = await palyra("sessions", "export", runs[0].session_id, "-o", out, home=daemon.home)
    talk = (tmp_path / "talk.md").read_text()
    assert talk.strip() == printed.out.strip()
    assert (1, True) == (again.code, "exists already" in again.err)
    assert "> /say hello to all of you" in talk
    assert "> > $ echo mine; pwd\n> > mine\n" in talk
    assert "# For agents\n" == (daemon.workspace / "AGENTS.md").read_text()
    assert (0, 2) == (process.poll(), len(runs))


async def refuse_words(person: ChatPerson) -> None:
    """Type what is no answer until it is refused as one, and not as too soon."""
    refused = "too soon"
    while "too soon" in refused:
        person.type("of course\r")
        await person.see("not taken: ")
        refused = await person.see("\r")


async def test_chat_asks_and_takes_only_an_answer(tmp_path: Path) -> None:
    """A question shows the diff; a line begun before it, and other words, answer nothing."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        async with chatting(daemon) as (person, process):
            person.type(f"/{WRITE}\ry\r")  # the y is typed ahead: it steers, or is discarded
            shown = await person.see("allow it?")
            await person.see("waits for you")
            waiting = (await client.list_approvals(pending_only=True))[0]
            await refuse_words(person)
            assert not (daemon.workspace / "note.txt").exists()
            person.type("y\r")
            await person.see("succeeded")
            await person.see("idle")
            person.type(f"/{WRITE.replace('note', 'other')}\r")
            await person.see("s = yes to other.txt for this session")
            await person.see("waits for you")
            await refuse_words(person)
            person.type("n because it is the wrong file\r")
            await person.see("denied: it is the wrong file")
            await person.see("idle")
            person.type("/quit\r")
        answered = await client.get_approval(waiting.approval_id)
        assert "x" == (daemon.workspace / "note.txt").read_text()
    assert "write_file" in shown
    assert ("allowed", "once", 0) == (answered.state, answered.scope, process.poll())


async def test_chat_steers_cancels_and_leaves(tmp_path: Path) -> None:
    """A line steers the open run, Ctrl-C cancels it, and again Ctrl-C twice leaves."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        async with chatting(daemon) as (person, process):
            person.type("//delay 3600000\x1b\r/tokens 20\r")
            await person.see("thinks")
            await person.see(", ")  # and for how long
            person.type("shorter, please\r")
            await person.see("steers: shorter")
            await person.see(
                "thinks"
            )  # raw again: a Ctrl-C at a printed text discards what follows
            person.type("\x03")
            await person.see("cancelled by")
            await person.see("idle")
            person.type("\x03")
            await person.see("again leaves")
            await person.see("idle")
            person.type("\x03")
        run = (await client.list_runs()).runs[0]
    assert ("cancelled", 0) == (run.state, process.poll())


async def test_chat_says_that_the_daemon_is_gone(tmp_path: Path) -> None:
    """The status counts the seconds without a daemon, also idle, and names the model when it is back."""
    async with (
        real_daemon(tmp_path) as daemon,
        chatting(daemon, "--model", "scripted") as (person, process),
    ):
        daemon.signal(signal.SIGKILL)
        await daemon.ended()
        await person.see("reconnecting, ")
        await trio.to_thread.run_sync(daemon.start)
        await person.see("idle")
        person.type("//say here again\r")
        await person.see("here again")
        await person.see("scripted · in ")
        await person.see("idle")
        person.type("/quit\r")
    assert 0 == process.poll()


async def test_chat_undo_continues_before_the_last_exchange(tmp_path: Path) -> None:
    """After /undo the next message continues in a branch that does not have the exchange."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        async with chatting(daemon) as (person, _process):
            for tokens, answer in ((3, "a b c"), (5, "a b c d e")):
                person.type(f"//tokens {tokens}\r")
                await person.see(answer)
                await person.see("idle")
            person.type("/undo\r")
            await person.see("taken back: /tokens 5")
            person.type("//tokens 4\r")
            await person.see("a b c d")
            await person.see("idle")
            first = (await client.list_runs()).runs[-1]
            person.type(f"/session {first.session_id}\r")
            await person.see("in workspace default")
            await person.see("a b c d e")
            await person.see(f"the next message goes to {first.session_id}")
            await person.see("idle")
            person.type("/quit\r")
        third, second, first = (await client.list_runs()).runs
    assert first.run_id == third.parent_run_id
    assert second.session_id == first.session_id != third.session_id


async def test_chat_in_a_pipe_is_plain(tmp_path: Path) -> None:
    """Each line is one message of one session; output has no escapes; the first failure ends it."""
    lines = "/say one\n\n/say two\x1b[31m\n/fail auth\n/say never\n"
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        done = await palyra("chat", home=daemon.home, stdin=lines.encode())
        asked = await palyra("chat", home=daemon.home, stdin=f"{WRITE}\n/say never\n".encode())
        again = await palyra("chat", "--continue", home=daemon.home, stdin=b"/say more\n")
        wrong = await palyra("chat", home=daemon.home, stdin=b"\xff\n")
        runs = (await client.list_runs()).runs
    assert (1, "one\ntwo\\u001b[31m\n") == (done.code, done.out)
    assert "\x1b" not in done.out + done.err
    assert 6 == asked.code
    assert 2 == wrong.code
    assert (6, 4) == (again.code, len(runs))  # the last conversation waits for an answer


@pytest.mark.parametrize("key", ["q", "\x03"])
async def test_watch_follows_the_daemon_until_left(tmp_path: Path, key: str) -> None:
    """A question appears and disappears without a key; q and Ctrl-C leave a terminal as it was."""
    async with (
        real_daemon(tmp_path) as daemon,
        connect(home=daemon.home) as client,
        at_terminal(daemon, "watch") as (person, process),
    ):
        await person.see("no run is open")
        await client.start_run(WRITE)
        await person.see("WAITING FOR YOU")
        shown = await person.see("RUNNING")
        waiting = (await client.list_approvals(pending_only=True))[0]
        await client.resolve_approval(waiting.approval_id, "deny", waiting.digest)
        await person.see("Nothing waits for you")
        person.type(key)
    assert f"palyra approvals show {waiting.approval_id[-6:]}" in shown
    assert 0 == process.poll()


async def test_watch_into_a_pipe_is_one_plain_page(tmp_path: Path) -> None:
    """Without a terminal it is printed once; --json has the records."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        started = await client.start_run("/fail auth")
        await client.wait_run(started.run_id)
        plain = await palyra("watch", home=daemon.home)
        records = await palyra("watch", "--json", home=daemon.home)
    assert (0, False) == (plain.code, "\x1b" in plain.out)
    assert f"{started.run_id[-6:]}  run failed: auth" in plain.out
    assert [started.run_id] == [run["run_id"] for run in records.json["went_wrong"]]
