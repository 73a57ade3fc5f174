"""The demonstration: `make run`, or `python -m palyra.cli.host.demo`.

The demonstration starts a daemon in a separate process, opens two connections and executes one
run.  The run uses the built-in scripted model, which follows the directives of the message, so
neither an API key nor a network is needed.  The run reads README.md of the workspace and writes
below `.palyra-demo/` there, which git ignores.  The daemon's own directory is a temporary one
outside the workspace, because it contains keys.

Every claim printed at the end is checked.  The exit code is 0 only if all claims hold.
"""

import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import palyra
from palyra.cli.command.errors import FAILED, stop_for
from palyra.cli.command.output import open_console, safe
from palyra.cli.command.streams import prepare_text
from palyra.cli.command.talk import first_error
from palyra.cli.tape import PUBLIC_KEY_PATH, is_signed, parse_key
from palyra.cli.view.event_text import MEANING, narrate
from palyra.client import Client, Inbox, Subscription, TapeEvent, connect, export_run
from palyra.client.process import (
    KILLED_WITHIN_S,
    STOPPED_WITHIN_S,
    start_daemon,
    stop_daemon,
    wait_announced,
)
from palyra.core.journal.records import ApprovalRecord
from palyra.core.tape.events import ApprovalRequested, RunDone, ToolAttested, ToolCompleted
from palyra.core.tape.export import verify_export
from palyra.core.text.visible import show_json, visible
from palyra.errors import PalyraError, TooSlow, Unavailable
from palyra.net.protocol.discovery import find_discovery

WITHIN_S = 90.0
NOTE_PATH = ".palyra-demo/note.md"
NOTE = "Written by a model, allowed by a person, kept on a tape.\n"
INDENT = 11  # columns of a time as `_now` formats it


class DemoOutput:
    """Printer of one demonstration; it stamps lines with the elapsed time and collects claims."""

    def __init__(self, console: Console) -> None:
        self.claims: list[tuple[str, bool]] = []
        self._console = console
        self._began_s = time.perf_counter()

    @property
    def holds(self) -> bool:
        """True if there is at least one claim and all claims hold."""
        return bool(self.claims) and all(holds for _, holds in self.claims)

    def step(self, text: str) -> None:
        """Print a heading for the next step."""
        self._console.print()
        self._console.print(Text(f"{self._now()}{safe(text)}", style="bold"), soft_wrap=True)

    def detail(self, text: str, style: str = "") -> None:
        """Print an indented line below the current step."""
        self._console.print(Text(f"{'':{INDENT}}{safe(text)}", style=style), soft_wrap=True)

    def event(self, item: TapeEvent) -> None:
        """Print an event: its seq, kind and text, and below it the meaning of the kind."""
        line = narrate(item)
        text = Text(self._now())
        text.append(f"{item.seq:>3} {item.kind:<19}", style="cyan")
        text.append(line.text, style=line.colour or "")
        self._console.print(text, soft_wrap=True)
        meaning = MEANING.get(item.kind, "")
        self._console.print(Text(f"{'':{INDENT + 23}}{meaning}", style="dim"), soft_wrap=True)

    def claim(self, text: str, *, holds: bool) -> None:
        """Record a claim and its result for `sum_up`."""
        self.claims.append((text, holds))

    def sum_up(self, next_commands: str) -> None:
        """Print every claim with its result, and a panel of suggested commands."""
        table = Table(title="claims checked", show_header=False, title_justify="left")
        for text, holds in self.claims:
            verdict = (
                Text("holds", style="green") if holds else Text("DOES NOT HOLD", style="bold red")
            )
            table.add_row(verdict, Text(safe(text)))
        self._console.print()
        self._console.print(table)
        self._console.print(
            Panel(Text(next_commands), title="next", title_align="left", expand=False)
        )

    def _now(self) -> str:
        return f"{time.perf_counter() - self._began_s:7.3f} s  "


@dataclass(frozen=True, slots=True)
class Demo:
    """One execution of the demonstration."""

    show: DemoOutput
    home: Path
    workspace: Path

    async def perform(self) -> None:
        """Start a daemon in an empty directory, execute and check the run, and stop the daemon."""
        (self.workspace / NOTE_PATH).unlink(missing_ok=True)
        self.show.step("starting a daemon in a separate process")
        daemon, code = await start_daemon(self.home, "--workspace", str(self.workspace)), -1
        try:
            found = await wait_announced(daemon)
            self.show.detail(f"pid {found.pid} at {found.ws_url}")
            self.show.detail(f"its directory is {self.home}, its workspace {self.workspace}")
            async with connect(home=self.home, name="palyra-demo") as operator:
                events = await self._run(operator, found.ws_url)
                self._check_run(events)
                await self._check_tape(operator, events)
        finally:
            self.show.step("stopping the daemon by its pid")
            with trio.move_on_after(STOPPED_WITHIN_S + KILLED_WITHIN_S, shield=True):
                code = await stop_daemon(daemon)
            self.show.detail(f"exit code {code}")
        self.show.claim("the daemon drained and exited with 0", holds=code == 0)
        is_gone = find_discovery(self.home) is None
        self.show.claim("daemon.json is removed", holds=is_gone)

    async def _run(self, operator: Client, ws_url: str) -> list[TapeEvent]:
        """Execute one run, print its events live and return them.

        A second client answers the approval requests.
        """
        self.show.step("a second connection, whose token may only answer approvals")
        made = await operator.create_token(principal="reviewer", role="approver", name="demo")
        async with (
            connect(ws_url, token=made.token, name="palyra-demo-reviewer") as reviewer,
            reviewer.notices() as inbox,
        ):
            self.show.detail(f"{reviewer.welcome.principal}, role {reviewer.welcome.role}")
            self.show.step("one run: read a file, then write one, which needs a person")
            started = await operator.start_run(compose_message())
            self.show.detail(started.run_id)
            async with operator.events(started.run_id) as items:
                return await self._follow(items, reviewer, inbox)

    async def _follow(self, items: Subscription, reviewer: Client, inbox: Inbox) -> list[TapeEvent]:
        events: list[TapeEvent] = []
        async for item in items:
            if isinstance(item, TapeEvent):
                events.append(item)
                self.show.event(item)
                if isinstance(item.event, ApprovalRequested):
                    await self._answer(reviewer, await _hear_question(reviewer, inbox))
        return events

    async def _answer(self, reviewer: Client, asked: ApprovalRecord) -> None:
        self.show.detail(f"the second client reads: {visible(asked.summary)}", "magenta")
        for line in show_json(msgspec.json.decode(asked.arguments)).splitlines():
            self.show.detail(f"    {line}")
        self.show.detail(f"and allows exactly that, digest {asked.digest[:16]}…", "magenta")
        resolved = await reviewer.resolve_approval(
            asked.approval_id, "allow", asked.digest, reason="seen in the demonstration"
        )
        self.show.claim("the second client's answer counted", holds=resolved.won)

    def _check_run(self, events: list[TapeEvent]) -> None:
        claim = self.show.claim
        seqs = [event.seq for event in events]
        claim("every event arrived once and in order", holds=seqs == list(range(len(events))))
        last = events[-1].event
        claim("the run is done", holds=isinstance(last, RunDone) and last.reason == "answered")
        statuses = [one.event.status for one in events if isinstance(one.event, ToolCompleted)]
        claim("both calls succeeded", holds=statuses == ["succeeded", "succeeded"])
        attested = sum(isinstance(one.event, ToolAttested) for one in events)
        claim("each call ended in a signed attestation", holds=attested == len(statuses))
        note = self.workspace / NOTE_PATH
        written = note.read_text(encoding="utf-8") if note.is_file() else ""
        claim(f"{NOTE_PATH} holds exactly what was allowed", holds=written == NOTE)

    async def _check_tape(self, operator: Client, events: list[TapeEvent]) -> None:
        self.show.step("checking the tape: by the daemon, and offline")
        run_id = events[0].run_id
        report = await operator.verify_tape(run_id)
        self.show.detail(f"daemon: {report.checked_events} events are unchanged")
        self.show.claim("the daemon finds its hash chain intact", holds=not report.breaks)
        committed = (await operator.read_tape(run_id, limit=1000)).events
        self.show.claim("the tape equals the events that were streamed", holds=committed == events)
        self._check_offline((await export_run(operator, run_id)).encode())

    def _check_offline(self, content: bytes) -> None:
        key = parse_key((self.home / PUBLIC_KEY_PATH).read_text(encoding="ascii"))
        whole = verify_export(content, is_signed, key)
        self.show.detail(f"offline: {whole.checked_events} events, sealed with {key.hex()[:16]}…")
        self.show.claim("the export proves itself offline", holds=whole.problem is None)
        forged = verify_export(content.replace(b"README.md", b"README.mD", 1), is_signed, key)
        self.show.detail(f"offline, one letter changed: seq {forged.bad_seq}: {forged.problem}")
        self.show.claim("one changed letter is found", holds=forged.problem is not None)


def compose_message() -> str:
    """Return the message of the run: directives for the scripted model."""
    reading = msgspec.json.encode({"path": "README.md"}).decode()
    writing = msgspec.json.encode({"path": NOTE_PATH, "content": NOTE}).decode()
    return (
        f"/call read_file {reading}\n/then\n/call write_file {writing}\n/then\n"
        "/say I read the README and, with your leave, left a note."
    )


def find_workspace() -> Path:
    """Return the checkout of this package, else the current directory, if it has a README.md.

    Raises Unavailable if neither has one.
    """
    for candidate in (Path(palyra.__file__).parents[1], Path.cwd()):
        if (candidate / "README.md").is_file():
            return candidate
    raise Unavailable(f"no README.md in {Path.cwd()}: run the demonstration in a checkout")


def suggest(program: str) -> str:
    """Return the suggested next commands, one a line."""
    lines = (
        ("up", "start a daemon here; its link opens the console"),
        ('run "hello"', "talk to it from another terminal"),
        ("approvals list", "answer pending approvals"),
        ("tape show RUN_ID", "every event of a run"),
        ("--help", "everything else"),
    )
    return "\n".join(f"{program} {command:<18}{what}" for command, what in lines)


def find_program() -> str:
    """Return the shortest command that starts the command line from the current directory."""
    if shutil.which("palyra"):
        return "palyra"
    script = Path(sys.executable).with_name("palyra")
    if not script.is_file():
        return f"{sys.executable} -m palyra"
    near = script.is_relative_to(Path.cwd())
    return str(script.relative_to(Path.cwd()) if near else script)


async def _hear_question(reviewer: Client, inbox: Inbox) -> ApprovalRecord:
    """Wait for the notification of an approval request and fetch the approval."""
    async for notice in inbox:
        if notice.method == "approval.requested":
            return await reviewer.get_approval(notice.params["approval_id"])
    raise Unavailable("the second client received no approval request")


async def _perform(show: DemoOutput, home: Path) -> None:
    with trio.move_on_after(WITHIN_S):
        await Demo(show, home, find_workspace()).perform()
        return
    raise TooSlow(f"the demonstration did not end within {WITHIN_S:.0f} s")


def main() -> int:
    """Execute the demonstration and return the exit code: 0 only if all claims hold."""
    show = DemoOutput(open_console())
    with tempfile.TemporaryDirectory(prefix="palyra-demo-") as directory:
        try:
            trio.run(_perform, show, Path(directory) / "home")
        except* PalyraError as group:
            show.claim("the demonstration is finished", holds=False)
            stop_for(first_error(group)).show()
    show.sum_up(suggest(find_program()))
    return 0 if show.holds else FAILED


if __name__ == "__main__":
    prepare_text()
    sys.exit(main())
