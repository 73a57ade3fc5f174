"""MCP servers that are real: honest, lying, crashing, hanging, over a process and an address."""

import os
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.core.outbound import Outbound
from palyra.core.redaction.redactor import Redactor
from palyra.core.tool.spec import ToolFailure
from palyra.errors import NotFound
from palyra.tools.mcp import server, stdio_server
from palyra.tools.mcp.directory import RETRY_S, McpServers
from palyra.tools.mcp.errors import BEFORE_BYTES, KEPT_BYTES, ErrorTail
from palyra.tools.mcp.requests import MAX_OUTPUT_CHARS
from palyra.tools.mcp.server import NOT_STARTED
from palyra.tools.mcp.stdio_server import ServerEnvironment, jailed, unjailed
from palyra.tools.mcp.streamable_http import addressed
from palyra.tools.mcp.transport import OpenLink, StdioServer
from palyra.tools.sandbox.command import CommandLimits
from palyra.tools.web.http_client import tls_context
from tests.models.test_proxy import NAME, company
from tests.optional import reason_without
from tests.tools.mcp.kit import REDACT, SAMPLE, TERMS, Box, plain, serving

pytest.importorskip("mcp", reason=reason_without("mcp"))
pytestmark = [pytest.mark.real, pytest.mark.usefixtures("impatient")]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not leave is killed soon; nothing here depends on the time it is given."""
    monkeypatch.setattr(stdio_server, "_LEAVE_S", 0.05)


async def test_an_honest_server_and_its_claims() -> None:
    """One life of a server (they start slowly): what is taken, what is left out, what is called."""
    async with serving(plain(environment={"GIVEN": "yes"})) as box:
        # What the server offers can be called; its answer is marked as a stranger's.
        output = await box.call("add", a=2, b=3)
        assert ("5", "external_untrusted", False) == (output.text, output.trust, output.is_failure)
        assert "mcp" == output.executor
        # Injected descriptions, schemas beyond intake, what the configuration says: left out.
        assert {"poisoned", "many", "look"} == set(box.server.missing)
        assert box.names.isdisjoint(box.server.missing)
        assert "instruction" in box.server.missing["poisoned"]
        assert "$dynamicRef" in box.server.missing["many"]
        assert ["poisoned", "many"] == [told.split()[3] for told in box.server.problems()]
        # Read-only counts only where the operator believes it; destructive always counts.
        tools = box.toolbox.catalogue().tools
        names = ("add", "harmless_delete", "drop_table")
        seen = {
            name: (tools[f"mcp:sample.{name}"].tool_class, tools[f"mcp:sample.{name}"].risk)
            for name in names
        }
        assert {
            "add": ("idempotent_network", "high"),
            "harmless_delete": ("effect", "high"),
            "drop_table": ("effect", "critical"),
        } == seen
        assert not tools["mcp:sample.harmless_delete"].may_rerun
        # What a tool says of its failure is a stranger's text as well.
        output = await box.call("fail")
        assert (True, "external_untrusted") == (output.is_failure, output.trust)
        # An answer has a largest size.
        output = await box.call("flood", size=MAX_OUTPUT_CHARS + 5)
        assert (MAX_OUTPUT_CHARS - 4_096 + 8, True) == (len(output.text), output.is_truncated)
        # The program has no variable of ours.
        assert "yes" == (await box.call("variable", name="GIVEN")).text
        assert not (await box.call("variable", name="PYTEST_CURRENT_TEST")).text
        assert "PYTEST_CURRENT_TEST" in os.environ
        # A tool that comes later can be called, under the same terms.
        await box.call("grow")
        await box.until(lambda: "grown" in box.names)
        assert "ABC" == (await box.call("grown", text="abc")).text


async def test_crash_costs_the_call_and_nothing_else() -> None:
    """Its tools go, the call fails, and the server is started again."""
    async with serving(plain()) as box:
        with pytest.raises(ToolFailure):
            await box.call("crash")
        await box.until(lambda: box.starts > 1 and "add" in box.names)
        assert "3" == (await box.call("add", a=1, b=2)).text


async def test_a_call_without_an_answer_can_be_cancelled() -> None:
    """The caller may leave; the server's process group is dead when its actor is."""
    async with serving(plain()) as box:
        with trio.move_on_after(0.2) as waited:
            await box.call("hang")
        assert waited.cancelled_caught
        assert children()
    assert [] == children()


def children() -> list[int]:
    """Processes of ours that run the sample server."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if str(SAMPLE).encode() in words and parent == os.getpid():
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("", "ended|closed|Connection"),
        ("print('hello')", "ended|closed|Connection"),
        ("while True: print('no message')", "ended|closed|Connection"),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "ended|closed|Connection"),
    ],
)
async def test_a_program_that_is_no_server_is_given_up(script: str, problem: str) -> None:
    """Invalid output, a flood or an exit gives no tools and does not crash the actor."""
    box = box_of([sys.executable, "-c", script])
    async with trio.open_nursery() as nursery:
        await nursery.start(box.server.serve)
        with trio.fail_after(120):
            await box.until(lambda: box.starts >= 2)
        nursery.cancel_scope.cancel()
    assert set() == box.names
    assert any(word in box.server.problem for word in problem.split("|")), box.server.problem


def box_of(argv: list[str]) -> Box:
    """A toolbox with that program for a server."""
    return Box(unjailed(StdioServer(tuple(argv), {})))


@pytest.mark.parametrize("is_jailed", [False, True])
async def test_missing_program_is_a_problem_and_no_crash(is_jailed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The actor says so and tries again later."""
    argv = ("/nonexistent/server",)
    box = Box(jail(argv) if is_jailed else unjailed(StdioServer(argv, {})))
    async with trio.open_nursery() as nursery:
        await nursery.start(box.server.serve)
        with trio.fail_after(120):
            await box.until(lambda: box.starts >= 2)
        nursery.cancel_scope.cancel()
    assert "/nonexistent/server: no such program" == box.server.problem


async def test_retry_connects_at_once_and_waits_for_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the pause after a failure, reports each failure anew, and leaves a connected server alone."""
    monkeypatch.setattr(server, "compute_delay_s", lambda *_: 1e6)
    program = tmp_path / "server"
    box = box_of([str(program)])
    directory = McpServers([box.server])
    async with trio.open_nursery() as nursery:
        await nursery.start(box.server.serve)
        with trio.fail_after(120):
            first = await directory.retry("sample")
            assert (1, True) == (box.starts, first.problem.endswith("no such program"))
            program.write_text("#!/bin/sh\nexit 7\n", encoding="utf-8")
            program.chmod(0o700)
            second = await directory.retry("sample")
            assert (2, False) == (box.starts, second.problem.endswith("no such program"))
            program.unlink()
            program.write_text(f"#!/bin/sh\nexec {sys.executable} {SAMPLE}\n", encoding="utf-8")
            program.chmod(0o700)
            assert not (await directory.retry("sample")).problem
            assert not (await directory.retry("sample")).problem
            assert 3 == box.starts
        nursery.cancel_scope.cancel()
    with pytest.raises(NotFound):
        await directory.retry("other")


async def test_retry_of_a_server_that_hangs_is_bounded(autojump_clock: MockClock) -> None:
    """The state is that of before, and the attempt goes on."""
    directory = McpServers([box_of(["/nonexistent/server"]).server])
    began_s = trio.current_time()
    assert NOT_STARTED == (await directory.retry("sample")).problem
    assert RETRY_S == trio.current_time() - began_s


@pytest.mark.parametrize("is_jailed", [False, True])
async def test_how_a_program_ended_is_the_problem(tmp_path: Path, is_jailed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Its exit code; in the jail also that what it needs may not be shown there."""
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    argv = (str(program),)
    box = Box(jail(argv) if is_jailed else unjailed(StdioServer(argv, {})))
    async with trio.open_nursery() as nursery:
        await nursery.start(box.server.serve)
        with trio.fail_after(120):
            await box.until(lambda: box.starts >= 2)
        nursery.cancel_scope.cancel()
    told = "it could not be run in the jail" if is_jailed else "it ended with exit code 3"
    assert told in box.server.problem, box.server.problem


# --- why it does not start -----------------------------------------------------------------------

HUNGRY = SAMPLE.with_name("hungry_server.py")


def hungry(what: str, *, is_jailed: bool, files: int = 1_024) -> OpenLink:
    """The server that needs or does that, in the jail or not."""
    argv = (sys.executable, str(HUNGRY), what)
    limits = CommandLimits(files=files)
    return jail(argv, limits) if is_jailed else unjailed(StdioServer(argv, {}))


async def problem_of(open_link: OpenLink) -> str:
    """The problem that doctor and status show after a server's first incarnation."""
    box = Box(open_link)
    async with trio.open_nursery() as nursery:
        await nursery.start(box.server.serve)
        with trio.fail_after(120):
            await box.until(lambda: box.starts >= 1 and box.server.problem != NOT_STARTED)
        nursery.cancel_scope.cancel()
    (told,) = box.server.problems()
    return told


async def test_a_limit_of_open_files_is_named() -> None:
    """A server that needs more than it has says so and which key helps; with enough it starts."""
    told = await problem_of(hungry("files", is_jailed=True, files=128))
    assert "it ended with exit code 1, limit: open files (`open_files`)" in told
    assert "Too many open files" in told
    async with serving(hungry("files", is_jailed=True)) as box:
        assert "5" == (await box.call("add", a=2, b=3)).text


@pytest.mark.parametrize("is_jailed", [False, True])
async def test_the_end_of_standard_error_is_reported_redacted(is_jailed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Exit code and last lines, redacted and bounded."""
    told = await problem_of(hungry("die", is_jailed=is_jailed))
    assert "MCP server sample: it ended with exit code 7; its standard error ends: " in told
    assert told.endswith(" / second line")
    assert "cannot find my papers" in told
    assert "Canary" not in told
    assert len(told) < KEPT_BYTES + 200


@pytest.mark.parametrize("is_jailed", [False, True])
async def test_errors_on_standard_output_are_told(is_jailed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Lines that are no message are last words too, without secrets and without long ones."""
    told = await problem_of(hungry("lost", is_jailed=is_jailed))
    assert "it ended with exit code 7; its standard error ends: " in told
    assert "(on standard output, no message) a line of 2000 bytes" in told
    assert "(on standard output, no message) cannot find my papers" in told
    assert told.endswith(" / (on standard output, no message) second line")
    assert "Canary" not in told


async def test_a_banner_on_standard_output_stops_no_server() -> None:
    """It is no problem of a server that works."""
    async with serving(hungry("banner", is_jailed=False)) as box:
        assert "5" == (await box.call("add", a=2, b=3)).text
        assert not any("Welcome" in told for told in box.server.problems())


@pytest.mark.parametrize("is_jailed", [False, True])
async def test_a_signal_is_named(is_jailed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The problem has the signal and the last output."""
    told = await problem_of(hungry("killed", is_jailed=is_jailed))
    assert "it ended with SIGKILL; its standard error ends: about to go" in told


@pytest.mark.parametrize("is_jailed", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_last_words_of_a_server_that_lives(is_jailed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A server that closes its output and stays alive is given up, and its last lines are kept.

    The jail keeps a copy of the pipe open, so there only the time limit of the start ends the wait.
    """
    assert "waiting for a friend" in await problem_of(hungry("silent", is_jailed=is_jailed))


@pytest.mark.parametrize("is_jailed", [False, True])
async def test_a_flood_of_errors_stops_no_server(is_jailed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Standard error is read as long as it lives; a server that works has no problem."""
    async with serving(hungry("errors", is_jailed=is_jailed)) as box:
        assert "5" == (await box.call("add", a=2, b=3)).text
        assert not any("standard error" in told for told in box.server.problems())


def test_a_secret_that_the_cut_breaks_is_not_kept() -> None:
    """A word whose start was cut off is dropped."""
    tail = ErrorTail(REDACT)
    secret = b"ghp_Canary0123456789abcdefghijABCDEFGHIJ"
    tail.take(b"first " + secret + b" " + b"x " * ((BEFORE_BYTES + KEPT_BYTES) // 2 - 10))
    assert "ABCDEFGHIJ" not in tail.text()
    assert tail.text().startswith("x x ")
    tail.take(secret * 600)
    assert not tail.text()
    tail = ErrorTail(REDACT)
    tail.take("bell \x07 and \u202e\n\nnext".encode())
    assert r"bell \u0007 and \u202e / next" == tail.text()


def test_a_secret_of_several_lines_is_recognised_before_the_shown_end() -> None:
    """The lines of a key whose first line is further up are replaced, and the rest is bounded."""
    tail = ErrorTail(Redactor([]).redact_text)
    lines = "\n".join(f"MIIEvQ{index:02d}{'aB3dE5gH1j' * 5}" for index in range(90))
    begin, end = (f"-----{word} PRIVATE KEY-----" for word in ("BEGIN", "END"))
    tail.take(f"start\n{begin}\n{lines}\n{end}\nlast words".encode())
    assert "aB3dE5" not in tail.text()
    assert tail.text().endswith("last words")
    tail.take(b"\n" + b"word " * 2_000)
    assert len(tail.text()) <= KEPT_BYTES


# --- an address ----------------------------------------------------------------------------------


@pytest.fixture
def address() -> Generator[str]:
    """Where the sample server listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, str(SAMPLE), "http", str(port)], stderr=subprocess.DEVNULL
    ) as process:
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


# The package leaves its own streams to the collector, and trio says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_behind_an_address(address: str) -> None:
    """The same tools over HTTP, tried again until it listens."""
    terms = msgspec.structs.replace(TERMS, capabilities=("network",))
    async with serving(addressed(address, dict), terms) as box:
        assert "5" == (await box.call("add", a=2, b=3)).text
        assert ("network",) == box.toolbox.catalogue().tools["mcp:sample.add"].capabilities
        output = await box.call("page")
        assert "external_untrusted" == output.trust
        await box.until(lambda: "get_prompt" in box.names)
        assert "buy milk" == (await box.call("read_resource", uri="note://today")).text
        pieces: list[str] = []
        await box.call_with(pieces.append, "work", steps=3)
        assert pieces
        await box.call("add_note", name="later")
        await box.until(
            lambda: "note://later" in {each.uri for each in box.server.offers.resources}
        )


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_behind_a_proxy(tmp_path: Path) -> None:
    """A company's proxy and authority are used: the proxy sees the name, and the server the request."""
    asked = trio.Event()

    async def note() -> None:
        asked.set()
        await trio.sleep_forever()  # what it answers does not matter

    async def connect(link: OpenLink) -> None:
        async with serving(link):
            await trio.sleep_forever()

    async with company(tmp_path) as world, trio.open_nursery() as nursery:
        world.served.answers = [[note]]
        trusted = tls_context("", Outbound(ca_file=str(world.authority.ca_file)))
        link = addressed(f"https://{NAME}/mcp", dict, trusted=trusted, proxy=world.proxy.url)
        nursery.start_soon(connect, link)
        with trio.fail_after(120):  # a bound against hanging
            await asked.wait()
        nursery.cancel_scope.cancel()
    assert b"CONNECT provider.test:443 HTTP/1.1" == world.proxy.heads[0].split(b"\r\n")[0]
    assert "initialize" == world.served.bodies[0]["method"]


# --- the jail ------------------------------------------------------------------------------------


async def test_a_server_in_the_jail_sees_nothing(tmp_path: Path) -> None:
    """By default it sees no file of the host, and every result names the isolation."""
    secret = tmp_path / "secret.txt"
    secret.write_text("canary")
    terms = msgspec.structs.replace(TERMS, left_out=())
    async with serving(jail(), terms) as box:
        output = await box.call("look", path=str(secret))
        assert output.is_failure
        assert "canary" not in output.text
        assert output.enforcement.startswith("A:")
        shadow = await box.call("look", path="/etc/shadow")
        assert shadow.is_failure
    async with serving(plain(), terms) as box:  # control: without the jail it sees the file
        assert "canary" == (await box.call("look", path=str(secret))).text


def jail(
    argv: tuple[str, ...] = (sys.executable, str(SAMPLE)), limits: CommandLimits | None = None
) -> OpenLink:
    """The sample server, or another one, in the sandbox; skipped with a reason where there is none."""
    from palyra.actors.kernel.threads import DedicatedThread  # noqa: PLC0415 - only here
    from palyra.tools.sandbox.sandbox import Sandbox  # noqa: PLC0415 - only here

    sandbox = Sandbox(DedicatedThread("mcp"))
    if not sandbox.is_installed:
        pytest.skip(reason_without("bubblewrap"))
    folders = {Path(sys.prefix), Path(sys.base_prefix), SAMPLE.parent}
    around = ServerEnvironment(folders=tuple(sorted(folders)), limits=limits or CommandLimits())
    return jailed(sandbox, StdioServer(argv, {}), around)


async def test_a_missing_package_is_no_failure_of_a_server(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """It is logged once and not counted as a try; the package is taken up when it appears."""
    looks = iter([False] * 50)
    lives: list[str] = []
    reported: list[object] = []
    box = Box(plain(), alarms=types.SimpleNamespace(report=reported.append))
    problems: list[str] = []

    async def inline(look: Callable[[], bool]) -> bool:
        await trio.lowlevel.checkpoint()
        problems.append(box.server.problem)
        return look()

    async def live() -> None:
        lives.append(box.server.problem)
        await trio.sleep_forever()

    monkeypatch.setattr(server, "_has_package", lambda: next(looks, True))
    monkeypatch.setattr(box.server, "_run_blocking", inline)
    monkeypatch.setattr(box.server, "_live", live)
    with capture_logs() as logged, trio.move_on_after(1_000):
        await box.server.serve()
    assert [server.NO_PACKAGE] == lives
    assert "'.[mcp]'" in server.NO_PACKAGE
    assert ([], 1) == (reported, len(logged))
    assert 51 == len(problems)
