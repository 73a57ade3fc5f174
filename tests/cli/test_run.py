"""`palyra run` against a fake daemon: outputs, approvals, exit codes."""

import contextlib
import os
import pty
import re
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio

from palyra.client import ProgressItem
from palyra.core.journal.records import ApprovalScope, Usage
from palyra.core.model.messages import FinishReason, ProposedCall
from palyra.core.preview.blocks import Preview
from palyra.core.tape import events as ev
from palyra.core.tape.taint import TaintSource
from tests.cli.command import WITHIN_S, environment, palyra, start_palyra
from tests.cli.test_commands import TOOL
from tests.client.fake_daemon import (
    RUN,
    RUN_VIEW,
    SESSION,
    Connection,
    FakeDaemon,
    Json,
    fake_daemon,
)
from tests.forked import ForkedProcess, Setting, reading_pipe
from tests.pictures import PNG

pytestmark = pytest.mark.real

CALL = "call_1"
DIGEST = "0123456789abcdef" * 4
STARTED = {"run_id": RUN, "session_id": SESSION, "seq": 1, "disposition": "started"}

PROPOSED = ev.ToolProposed(
    call_id=CALL,
    tool="write_file",
    arguments={"path": "a.txt", "content": "hi\x1b[2J"},
    digest=DIGEST,
    tool_class="effect",
)
NAMED = ProposedCall(call_id=CALL, tool="write_file", arguments={})
REJECTED = ev.ToolRejected(call_id=CALL, reason="path: got nothing", repair_hint="expected a text")
ASKED = ev.ApprovalRequested(
    approval_id="apr_1",
    call_id=CALL,
    tool="write_file",
    risk="medium",
    summary="write_file(path=a.txt)",
    arguments={"path": "a.txt", "content": "hi\x1b[2J"},
    digest=DIGEST,
    scopes=("once", "session"),
    expires_ms=1,
    policy_reason="writing asks",
)
TAINT = TaintSource(seq=3, kind="tool.completed", tool="http_fetch", trust="external_untrusted")
COMPLETED = ev.ToolCompleted(call_id=CALL, status="succeeded", output="2 bytes", duration_ms=3)


STATES = {0: "done", 4: "done", 3: "cancelled"}  # of a run, by the exit code


def accepted() -> list[ev.Event]:
    return [
        ev.RunAccepted(principal="owner", session_id=SESSION, agent="default", model="scripted"),
        ev.MessageReceived(text="hello"),
    ]


def decided(verdict: str) -> ev.ToolDecided:
    return ev.ToolDecided(
        call_id=CALL,
        verdict=verdict,  # type: ignore[arg-type]  # a literal
        reason_code="person",
        reason="as the person said",
        policies=(),
        policy_version="v1",
    )


def answered(decision: str) -> ev.ApprovalResolved:
    return ev.ApprovalResolved(
        approval_id="apr_1",
        call_id=CALL,
        decision=decision,  # type: ignore[arg-type]  # a literal
        scope="once",
        by="owner",
        reason="",
    )


def turn(text: str, *calls: ProposedCall, finish: FinishReason = "stop") -> ev.TurnCompleted:
    return ev.TurnCompleted(
        turn=1, text=text, calls=calls, finish_reason=finish, usage=Usage(output_tokens=2)
    )


def ending(text: str = "all good") -> list[ev.Event]:
    return [turn(text), ev.MessageCompleted(text=text), ev.RunDone(reason="answered")]


def play(daemon: FakeDaemon, *events: ev.Event) -> None:
    """Let `run.start` begin a run whose tape holds these events already."""
    for event in (*accepted(), *events):
        daemon.append(event)
    daemon.commit()
    daemon.reply_with("run.start", STARTED)


def read_page(connection: Connection, params: Json) -> object:
    """`tape.read`, two events a page."""
    start = params["after_seq"] + 1
    rows = connection.daemon.tapes[RUN].rows
    is_last = start + 2 >= len(rows)
    return {
        "events": rows[start : start + 2],
        "head_seq": len(rows) - 1,
        "floor_seq": 0,
        "bytes": 0,
        "next_after_seq": None if is_last else start + 1,
    }


async def test_answer_is_standard_output() -> None:
    """Without a terminal standard output is the answer alone, the steps are standard error."""
    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, decided("allow"), COMPLETED, *ending())
        done = await palyra("run", "hello", url=daemon.url)
    assert (0, "all good\n") == (done.code, done.out)
    for shown in ("write_file(", "allowed: as the person said", "2 bytes", "done: answered"):
        assert shown in done.err
    assert "hello" == daemon.requests[2][1]["text"]


async def test_nothing_on_the_tape_steers_the_terminal() -> None:
    """Escape sequences in arguments and answers are printed as escapes."""
    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, decided("allow"), *ending("red\x1b[31m"))
        done = await palyra("run", "hello", url=daemon.url)
    assert "red\\u001b[31m\n" == done.out
    assert "\x1b" not in done.err


async def test_json_is_the_tape() -> None:
    """With --json standard output is the tape as NDJSON, exactly."""
    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, *ending())
        done = await palyra("run", "hello", "--json", url=daemon.url)
        lines = [msgspec.json.decode(line) for line in done.out.splitlines()]
        tape = msgspec.json.decode(msgspec.json.encode(daemon.tapes[RUN].rows))
    assert tape == lines


@pytest.mark.parametrize(
    ("events", "code"),
    [
        (ending(), 0),
        ([ev.RunFailed(failure_class="auth", reason="no key", action="set one")], 1),
        ([ev.RunFailed(failure_class="budget_exceeded", reason="spent", action="wait")], 5),
        ([ev.RunCancelled(reason="enough", by="owner")], 3),
        ([ev.RunDone(reason="partial")], 4),
        ([ev.RunDone(reason="partial", cause="outcome_unknown")], 4),
        ([PROPOSED, decided("deny"), *ending()], 4),
        ([PROPOSED, REJECTED, *ending()], 4),
        ([PROPOSED, REJECTED, turn("", NAMED), PROPOSED, decided("allow"), *ending()], 0),
    ],
    ids=[
        "done",
        "failed",
        "spent",
        "cancelled",
        "partial",
        "unknown",
        "refused",
        "rejected",
        "repaired",
    ],
)
async def test_exit_code_follows_from_the_end(events: list[ev.Event], code: int) -> None:
    """Done 0, failed 1, cancelled 3, partial or with a denial 4, over a budget 5.

    A malformed call counts as refused unless the model tried again.  `runs wait` says the same.
    """
    async with fake_daemon() as daemon:
        play(daemon, *events)
        assert code == (await palyra("run", "hello", url=daemon.url)).code
        daemon.reply_with("run.get", {**RUN_VIEW, "answer": {"text": "all", "seq": 1, "bytes": 3}})
        daemon.reply_with(
            "run.wait", {**RUN_VIEW, "state": STATES.get(code, "failed"), "timed_out": False}
        )
        daemon.answers["tape.read"] = read_page
        assert code == (await palyra("runs", "wait", RUN, url=daemon.url)).code


async def test_text_comes_from_standard_input_and_options_arrive() -> None:
    """`-` reads the message from standard input; options are sent as the protocol names them."""
    async with fake_daemon() as daemon:
        play(daemon, *ending())
        await palyra(
            "run", "-", "--session", "daily", "--deny", "--queue-mode", "steer",
            url=daemon.url, stdin=b"from a pipe",
        )  # fmt: skip
    sent = daemon.requests[2][1]
    assert ("from a pipe", "daily", "deny", "steer") == (
        sent["text"],
        sent["session_key"],
        sent["approval_mode"],
        sent["queue_mode"],
    )


async def test_a_message_may_come_through_a_channel() -> None:
    """Channel, conversation and sender are sent as the protocol names them."""
    async with fake_daemon() as daemon:
        play(daemon, *ending())
        await palyra(
            "run", "hello", "--channel", "desk", "--conversation", "c1", "--sender", "ann",
            url=daemon.url,
        )  # fmt: skip
    sent = daemon.requests[1][1]
    assert ("desk", "c1", "ann") == (sent["channel"], sent["conversation_id"], sent["sender"])


async def test_detach_prints_the_run() -> None:
    """--detach prints the id of the run and does not watch it."""
    async with fake_daemon() as daemon:
        daemon.reply_with("run.start", STARTED)
        assert f"{RUN}\n" == (await palyra("run", "hello", "--detach", url=daemon.url)).out
        described = await palyra("run", "hello", "--detach", "--json", url=daemon.url)
    assert STARTED.items() <= described.json.items()
    assert "tape.subscribe" not in daemon.methods()


async def test_without_a_terminal_others_answer() -> None:
    """With --approve ask and without a terminal the run waits and names the command that answers."""
    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, ASKED)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish_when_watched, daemon)
            done = await palyra("run", "hello", "--approve", "ask", url=daemon.url)
    assert 0 == done.code
    assert "palyra approvals allow apr_1" in done.err


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
async def test_without_a_terminal_the_command_does_not_wait(more: tuple[str, ...]) -> None:
    """Without a terminal the command exits with 6 at a question, and leaves it open."""
    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, ASKED)
        done = await palyra("run", "hello", *more, url=daemon.url)
    assert 6 == done.code
    assert "palyra approvals allow apr_1" in done.err
    assert not {"approval.resolve", "run.cancel"} & set(daemon.methods())


@pytest.mark.parametrize(
    ("policy", "scopes", "taint", "decision"),
    [
        ("write_file,shell", ("once", "session"), (), "allow"),
        ("shell", ("once", "session"), (), "deny"),
        ("write_file", ("once",), (), "deny"),
        ("write_file", ("once", "session"), (TAINT,), "deny"),
    ],
    ids=["listed", "other", "once-only", "tainted"],
)
async def test_listed_tools_are_allowed_without_a_question(
    policy: str, scopes: tuple[ApprovalScope, ...], taint: tuple[TaintSource, ...], decision: str
) -> None:
    """--approve TOOL allows a listed call once, unless the daemon offers no more or text is hostile."""
    async with fake_daemon() as daemon, trio.open_nursery() as nursery:
        record_answer(daemon, nursery)
        preview = Preview(
            approval_id="apr_1", run_id=RUN, digest=DIGEST, state="pending", tool="write_file",
            summary="s", why="w", risk="medium", scopes=scopes, blocks=(), taint=taint,
        )  # fmt: skip
        daemon.reply_with("approval.preview", preview)
        daemon.reply_with(
            "tool.list",
            {"tools": [{**TOOL, "name": name} for name in ("shell", "write_file")], "hash": "h"},
        )
        play(daemon, PROPOSED, msgspec.structs.replace(ASKED, scopes=scopes))
        await palyra("run", "hello", "--approve", policy, url=daemon.url)
    sent = next(params for method, params in daemon.requests if method == "approval.resolve")
    assert (decision, "once", DIGEST) == (sent["decision"], sent["scope"], sent["digest"])


async def test_options_of_a_run_arrive(tmp_path: Path) -> None:
    """Images, schema, budget and deadline are sent as the protocol names them."""
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "s.json").write_text('{"type": "object"}')
    async with fake_daemon() as daemon:
        play(daemon, *ending())
        await palyra(
            "run", "look", "--image", str(tmp_path / "a.png"), "--timeout", "10m",
            "--json-schema", str(tmp_path / "s.json"), "--budget", "0.5usd", "--budget", "900tokens",
            url=daemon.url,
        )  # fmt: skip
    sent = daemon.requests[2][1]
    picture = {"type": "image", "media_type": "image/png", "name": "a.png"}
    assert picture.items() <= sent["attachments"][0].items()
    assert {"type": "object"} == sent["answer_schema"]
    assert {"tokens": 900, "usd_micros": 500_000, "wall_ms": 600_000} == sent["budget"]


@pytest.mark.parametrize(
    "options",
    [
        ("--budget", "5"),
        ("--budget", "0usd"),
        ("--budget", "1usd", "--budget", "$2"),
        ("--budget", "0.5tokens"),
        ("--timeout", "0s"),
        ("--timeout", "8d"),
        ("--approve", "ask,write_file"),
        ("--approve", ""),
        ("--approve", "budget"),
        ("--approve", "ask", "--deny"),
        ("--continue", "--session", "x"),
        ("--image", "/nonexistent.png"),
        ("--image", "/dev/zero"),
        ("--image", __file__),
        ("--json-schema", __file__),
    ],
    ids=" ".join,
)
async def test_wrong_options_are_wrong_usage(options: tuple[str, ...]) -> None:
    """A wrong amount, policy or file is refused with 2 before anything is sent."""
    async with fake_daemon() as daemon:
        done = await palyra("run", "hello", *options, url=daemon.url)
    assert 2 == done.code
    assert "run.start" not in daemon.methods()


async def finish_when_watched(daemon: FakeDaemon) -> None:
    """Let another client allow the call as soon as the command watches."""
    with trio.fail_after(WITHIN_S):
        await daemon.watched.wait()
    await daemon.publish(answered("allow"), decided("allow"), COMPLETED, *ending())


class Person:
    """A person at a terminal: the command runs on a pseudo-terminal."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.screen = ""

    async def see(self, text: str) -> None:
        """Read the screen until the text is on it."""
        with trio.fail_after(WITHIN_S):
            while text not in self.screen:
                await self._read()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def _read(self) -> None:
        await trio.lowlevel.wait_readable(self._master)
        self.screen += os.read(self._master, 65_536).decode()


async def at_terminal(
    daemon: FakeDaemon, script: Callable[[Person, ForkedProcess], object]
) -> tuple[int, str]:
    """Exit code and screen of `palyra run` while a person follows the script."""
    master, slave = pty.openpty()
    try:
        process = start_palyra("run", "hello", url=daemon.url, terminal=slave)
        os.close(slave)
        person = Person(master)
        await script(person, process)  # type: ignore[misc]  # every script is async
        with trio.fail_after(WITHIN_S):
            return await process.ended(), person.screen
    finally:
        os.close(master)


def record_answer(daemon: FakeDaemon, nursery: trio.Nursery) -> None:
    """Let `approval.resolve` put the answer, and what follows from it, on the tape."""

    def resolve(_connection: Connection, params: Json) -> object:
        verdict = params["decision"]
        after = [COMPLETED] if verdict == "allow" else []
        events = (answered(verdict), decided(verdict), *after, *ending())
        nursery.start_soon(daemon.publish, *events)
        return {
            "decision": verdict,
            "scope": params["scope"],
            "by": "owner",
            "resolved_ms": 1,
            "won": True,
            "run_id": RUN,
            "seq": 5,
        }

    daemon.answers["approval.resolve"] = resolve


@pytest.mark.parametrize(
    ("typed", "decision", "scope", "code"),
    [
        ("y", "allow", "once", 0),
        ("s", "allow", "session", 0),
        ("n", "deny", "once", 4),
        ("n because it is the wrong file", "deny", "once", 4),
    ],
)
async def test_person_is_asked(typed: str, decision: str, scope: str, code: int) -> None:
    """At a terminal the question shows everything, and y, s or n is sent with its digest."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await person.see("no: ")
        person.type("what\n")
        await person.see("no: what")
        person.type(f"{typed}\n")
        await person.see("done: answered")

    async with fake_daemon() as daemon, trio.open_nursery() as nursery:
        play(daemon, PROPOSED, ASKED)
        record_answer(daemon, nursery)
        exit_code, screen = await at_terminal(daemon, script)
    assert code == exit_code
    sent = next(params for method, params in daemon.requests if method == "approval.resolve")
    assert (decision, scope, DIGEST) == (sent["decision"], sent["scope"], sent["digest"])
    assert typed.partition("because ")[2] == sent.get("reason", "")
    for shown in ("medium risk", '"content": "hi\\u001b[2J"', DIGEST[:12], "writing asks"):
        assert shown in screen


async def test_input_typed_before_an_approval_is_not_its_answer() -> None:
    """An early yes allows no call that was not shown."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await person.see("write_file")
        person.type("y\ny\n")
        await daemon.publish(ASKED)
        await person.see("no: ")
        await daemon.publish(answered("deny"), decided("deny"), *ending())
        await person.see("done: answered")

    async with fake_daemon() as daemon:
        play(daemon, PROPOSED)
        await at_terminal(daemon, script)
    assert "approval.resolve" not in daemon.methods()


async def test_an_approval_answered_elsewhere_frees_the_terminal() -> None:
    """The terminal does not wait when another client answers."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await person.see("no: ")
        await daemon.publish(answered("allow"), decided("allow"), COMPLETED, *ending())
        await person.see("done: answered")

    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, ASKED)
        code, screen = await at_terminal(daemon, script)
    assert 0 == code
    assert "allow (once) by owner" in screen
    assert "approval.resolve" not in daemon.methods()


async def test_end_of_input_leaves_the_question_to_others() -> None:
    """Ctrl-D at an approval leaves it open for other clients, and the command exits with 6."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await person.see("no: ")
        person.type("\x04")
        await person.see("palyra approvals allow apr_1")

    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, ASKED)
        code, _ = await at_terminal(daemon, script)
    assert 6 == code
    assert "approval.resolve" not in daemon.methods()


async def test_words_are_streamed_once() -> None:
    """Deltas are printed as they come, and the finished turn adds only what was missing."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await daemon.watched.wait()
        for order, word in enumerate(("one ", "two ")):
            delta = ProgressItem(run_id=RUN, item="t1", order=order, kind="text", delta=word)
            await daemon.connections[0].notify("progress", **msgspec.to_builtins(delta))
        await person.see("one two")
        await daemon.publish(*ending("one two three"))
        await person.see("done: answered")

    async with fake_daemon() as daemon:
        play(daemon)
        _, screen = await at_terminal(daemon, script)
    assert 1 == screen.rpartition("\x1b[J")[2].count("one two three")  # the part before is erased
    assert screen.index("one two") < screen.index("one two three")


async def test_tail_of_a_text_is_not_printed() -> None:
    """A delta after a gap is not printed: the committed text holds it, and is printed once."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await daemon.watched.wait()
        for offset, word in ((0, "one "), (8, "three ")):
            delta = ProgressItem(
                run_id=RUN, item="t1", order=1, kind="text", delta=word, offset=offset
            )
            await daemon.connections[0].notify("progress", **msgspec.to_builtins(delta))
        await person.see("one")
        await daemon.publish(*ending("one two three four"))
        await person.see("done: answered")

    async with fake_daemon() as daemon:
        play(daemon)
        _, screen = await at_terminal(daemon, script)
    assert 1 == screen.rpartition("\x1b[J")[2].count("one two three four")
    assert "one three" not in screen


async def test_output_of_a_program_is_shown_by_lines() -> None:
    """Lines are shown as they come; the last 20 of a failure stay, with the command for the others."""
    printed = "".join(f"row {number}\n" for number in range(30))
    failed = ev.ToolCompleted(
        call_id=CALL, status="failed", output=f"{printed}[exit code 3]", duration_ms=3
    )

    async def script(person: Person, _process: ForkedProcess) -> None:
        await person.see("write_file")
        delta = ProgressItem(run_id=RUN, item=CALL, order=0, kind="tool_output", delta="row 0\nro")
        await daemon.connections[0].notify("progress", **msgspec.to_builtins(delta))
        await person.see("  row 0")
        await daemon.publish(failed, *ending())
        await person.see("done: answered")

    async with fake_daemon() as daemon:
        play(daemon, msgspec.structs.replace(PROPOSED, executor="process"), decided("allow"))
        _, screen = await at_terminal(daemon, script)
    stays = screen[screen.index("← ") :]
    stays = re.sub(r"\x1b\[[0-9;]*m", "", stays)
    assert "failed, 3 ms: exit code 3\r\n" in stays
    assert f"10 lines before these: palyra tape show --full {RUN}" in stays
    assert "  row 10\r\n  row 11\r\n" in stays
    assert "row 9\r" not in stays


@pytest.mark.parametrize("is_verbose", [False, True])
async def test_permission_of_a_reading_call_goes_without_saying(*, is_verbose: bool) -> None:
    """Only --verbose prints it; that of an effect is always printed."""
    reading = msgspec.structs.replace(PROPOSED, tool_class="read_only_safe")
    async with fake_daemon() as daemon:
        play(daemon, reading, decided("allow"), COMPLETED, *ending())
        options = ["--verbose"] if is_verbose else []
        quiet = await palyra("run", "hello", *options, url=daemon.url)
    async with fake_daemon() as daemon:
        play(daemon, PROPOSED, decided("allow"), COMPLETED, *ending())
        effect = await palyra("run", "hello", url=daemon.url)
    assert is_verbose == ("allowed: " in quiet.err)
    assert "allowed: " in effect.err


async def test_interrupt_cancels_the_run() -> None:
    """Ctrl-C cancels the run at the daemon and exits 3."""

    async def script(person: Person, process: ForkedProcess) -> None:
        await daemon.watched.wait()
        await person.see(RUN)
        process.send_signal(signal.SIGINT)
        await person.see("is cancelled")

    async with fake_daemon() as daemon:
        play(daemon)
        daemon.reply_with("run.cancel", {"state": "cancelled", "applied_seq": 3})
        code, screen = await at_terminal(daemon, script)
    assert 3 == code
    assert "Traceback" not in screen
    assert RUN == next(
        params["run_id"] for method, params in daemon.requests if method == "run.cancel"
    )


async def test_a_second_interrupt_does_not_wait() -> None:
    """Ctrl-C while the run is being cancelled ends the command with 130, not by a signal."""

    async def script(person: Person, process: ForkedProcess) -> None:
        await daemon.watched.wait()
        await person.see(RUN)
        process.send_signal(signal.SIGINT)
        with trio.fail_after(WITHIN_S):
            await asked.wait()
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(ProcessLookupError):  # the second may have ended it by now
            process.send_signal(signal.SIGINT)
        await person.see("interrupted")

    async with fake_daemon() as daemon:
        play(daemon)
        daemon.reply_with("run.cancel", {"state": "cancelled", "applied_seq": 3})
        asked = daemon.swallow("run.cancel")
        code, screen = await at_terminal(daemon, script)
    assert 130 == code
    assert "Traceback" not in screen


async def test_a_message_over_the_limit_is_an_error() -> None:
    """It is not sent."""
    async with fake_daemon() as daemon:
        done = await palyra("run", "-", "--detach", "--json", url=daemon.url, stdin=b"a" * 2**20)
    error = msgspec.json.decode(done.err)["error"]
    assert (1, "", "too_large") == (done.code, done.out, error["kind"])
    assert "run.start" not in daemon.methods()


async def test_a_full_output_is_an_error() -> None:
    """An output that cannot be written ends the command with the reason, not with a traceback."""
    full, null = os.open("/dev/full", os.O_WRONLY), os.open(os.devnull, os.O_RDONLY)
    async with fake_daemon() as daemon:
        play(daemon, *ending())
        with reading_pipe() as (err, err_end):
            setting = Setting(environment(url=daemon.url), (null, full, err_end))
            process = ForkedProcess(("run", "hello", "--json"), setting)
        os.close(full)
        os.close(null)
        with process.until_killed(), err, trio.fail_after(WITHIN_S):
            code = await process.ended()
            said = err.read()
    assert (1, "io_error") == (code, msgspec.json.decode(said)["error"]["kind"])


async def test_input_that_is_not_utf8_is_wrong_usage() -> None:
    """From a pipe or on the command line."""
    piped = await palyra("run", "-", stdin=b"ab\xff")
    assert (2, "error: standard input is not UTF-8: byte 2 is 0xff") == (
        piped.code,
        piped.err.splitlines()[0],
    )
    async with fake_daemon() as daemon:
        given = await palyra("run", "\udcff", url=daemon.url)
    assert (2, "error: run.start: a text holds \\udcff") == (
        given.code,
        given.err.partition(",")[0],
    )


async def test_an_answer_in_pieces_is_shown_without_a_seam() -> None:
    """A turn that continues the last one's text continues its line."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await daemon.watched.wait()
        on = ev.TurnStarted(turn=2, attempt=1, provider="p", model="m", continues=True)
        pieces = [
            turn("alpha", finish="length"),
            on,
            turn("bet"),
            ev.MessageCompleted(text="alphabet"),
        ]
        await daemon.publish(*pieces, ev.RunDone(reason="answered"))
        await person.see("done: answered")

    async with fake_daemon() as daemon:
        play(daemon)
        _, screen = await at_terminal(daemon, script)
    assert 1 == screen.count("alphabet")


@pytest.mark.parametrize("kept", ["", "alpha\n\n"])
async def test_a_partial_answer_is_shown_after_the_turns(kept: str) -> None:
    """The daemon's partial answer is printed separately; a turn's text is not repeated."""

    async def script(person: Person, _process: ForkedProcess) -> None:
        await daemon.watched.wait()
        text = f"{kept}[The answer stops here.]"
        done = ev.RunDone(reason="partial", cause="cut_off", missing="it was cut off")
        await daemon.publish(turn("alpha", finish="length"), ev.MessageCompleted(text=text), done)
        await person.see("done: partial: it was cut off")

    async with fake_daemon() as daemon:
        play(daemon)
        code, screen = await at_terminal(daemon, script)
    assert 4 == code
    assert (1, 1) == (screen.count("alpha"), screen.count("[The answer stops here.]"))


async def test_guards_are_shown() -> None:
    """A warning and the end that follows it, and why the answer is partial."""
    warned = ev.GuardWarned(rule="same_read", call="read_file(a)", count=3, guidance="stop it")
    blocked = ev.GuardBlocked(rule="same_read", call="read_file(a)", count=4)
    done = ev.RunDone(reason="partial", cause="no_progress", missing="read_file(a) again")
    async with fake_daemon() as daemon:
        play(daemon, warned, blocked, ev.MessageCompleted(text="This is all."), done)
        shown = await palyra("run", "hello", url=daemon.url)
    assert (4, "This is all.\n") == (shown.code, shown.out)
    for line in (
        "no progress: read_file(a)",
        "stopped: read_file(a)",
        "partial: read_file(a) again",
    ):
        assert line in shown.err
