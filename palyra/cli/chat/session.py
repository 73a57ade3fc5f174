"""State of one conversation: its session, the settings of the next message, and the last exchanges.

Serves `palyra chat`, at a terminal and in a pipe.  A message of an idle conversation starts a run; the
conversation after `undo` continues as a branch (`run.fork`), because a tape is never changed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.output import fold, say
from palyra.cli.run.last_session import get_last_session
from palyra.cli.sessions import describe_session, get_session_id
from palyra.cli.view.conversation import print_exchanges, read_exchanges
from palyra.core.tape import events as ev

if TYPE_CHECKING:
    from palyra.cli.command.talk import Options
    from palyra.client import Client, RunOptions
    from palyra.core.journal.records import SessionMode
    from palyra.core.session.commands import Started

PAGE_ROWS = 100
SHOWN_EXCHANGES, SHOWN_LINES = 3, 12  # when a conversation goes on


@dataclass(slots=True)
class Conversation:
    """One conversation of the caller; a new one until `session_id` is set."""

    client: Client
    options: Options
    agent: str | None = None
    model: str | None = None
    workspace: str | None = None  # of a new session; None: the default one
    session_id: str | None = None
    title: str = ""  # of the session, as far as it was read or given here
    approval_mode: ev.ApprovalMode = "ask"
    mode: SessionMode = "ask"  # of the session, or of the new one
    images: list[dict[str, Any]] = field(default_factory=list)  # of the next message
    outputs: list[str] = field(
        default_factory=list
    )  # of the person's commands, for the next message
    runs: list[str] = field(default_factory=list)  # exchanges, oldest first
    is_branching: bool = False  # the next message continues the last of `runs` in a new session

    async def resume(self, name: str | None) -> str:
        """Go on with the session of that id, key or short name; the last one for None.

        Raises CommandFailed or NotFound if there is none.
        """
        if name is None:
            session = await get_last_session(self.client, self.options)
        else:
            session = await self.client.get_session(await get_session_id(self.client, name))
        self.session_id, self.workspace = session.session_id, session.workspace
        self.mode, self.title = session.mode, session.title
        page = await self.client.list_runs(session_id=self.session_id, limit=PAGE_ROWS)
        self.runs = [run.run_id for run in reversed(page.runs) if run.depth == 0]
        self.is_branching = False
        return self.session_id

    async def print_end(self) -> None:
        """Print the name of the session, its workspace and the last exchanges."""
        assert self.session_id is not None  # noqa: S101 - `resume` has set it
        session = await self.client.get_session(self.session_id)
        exchanges, is_cut = await read_exchanges(self.client, self.session_id, SHOWN_EXCHANGES)
        say(fold(describe_session(session)), bold=True)
        if is_cut:
            say(f"all of it: `palyra sessions show {self.session_id}`", dim=True)
        say()
        print_exchanges(exchanges, most_lines=SHOWN_LINES)

    def begin(self) -> None:
        """Start a new session, in the mode `ask`, with the next message."""
        self.session_id, self.runs, self.is_branching = None, [], False
        self.mode, self.title = "ask", ""

    async def set_mode(self, mode: SessionMode) -> None:
        """Change the mode of the session; a new one gets it with the first message.

        Raises CommandFailed for a branch without a message, Forbidden.
        """
        if self.is_branching:
            raise CommandFailed("the branch has no session yet", "send a message first")
        if self.session_id is not None:
            session = await self.client.set_session_mode(self.session_id, mode)
            mode = session.mode
        self.mode = mode

    async def read_mode(self) -> None:
        """Read the mode of the session, which a plan or another client may have changed."""
        if self.session_id is not None and not self.is_branching:
            self.mode = (await self.client.get_session(self.session_id)).mode

    async def send(self, text: str) -> Started:
        """Send a message, with the images that wait, and return the run that answers it.

        Cancellation: the message may have been sent.
        """
        if self.is_branching and self.runs:
            if self.images:
                raise CommandFailed("a branch begins without images", "send a text first")
            head_seq = (await self.client.get_run(self.runs[-1])).head_seq
            started: Started = await self.client.fork_run(self.runs[-1], head_seq, text)
            self.mode, self.title = "ask", ""
        else:
            started = await self.client.start_run(text, **self._options())
        self.is_branching, self.images = False, []
        self.session_id = started.session_id
        if started.run_id not in self.runs:
            self.runs.append(started.run_id)
        return started

    def with_outputs(self, text: str) -> str:
        """Return the message with the outputs that wait for it."""
        return "\n\n".join([text, *self.outputs])

    def forget_outputs(self, sent: list[str]) -> None:
        """Forget the outputs that a message took; those of commands that ended since still wait."""
        for each in sent:
            with suppress(ValueError):  # dropped by the person meanwhile
                self.outputs.remove(each)

    async def undo(self) -> str:
        """Take back the last exchange and return what it was; "" if there is none."""
        while self.runs:
            run_id = self.runs.pop()
            text = await self._find_message(run_id)
            if text is None:  # a compaction, or a task
                continue
            self.is_branching = bool(self.runs)
            if not self.runs:
                self.session_id, self.title = None, ""
            return text
        return ""

    def _options(self) -> RunOptions:
        options: RunOptions = {"approval_mode": self.approval_mode}
        if self.session_id is not None:
            options["session_id"] = self.session_id
        elif self.workspace is not None:
            options["workspace"] = self.workspace
        if self.session_id is None and self.mode != "ask":
            options["mode"] = self.mode
        if self.agent is not None:
            options["agent"] = self.agent
        if self.model is not None:
            options["model"] = self.model
        if self.images:
            options["attachments"] = self.images
        return options

    async def _find_message(self, run_id: str) -> str | None:
        """Return the message of an interactive run; None for another run."""
        events = [item.event for item in (await self.client.read_tape(run_id, limit=10)).events]
        accepted = next((each for each in events if isinstance(each, ev.RunAccepted)), None)
        if accepted is None or accepted.origin != "interactive":
            return None
        return next((each.text for each in events if isinstance(each, ev.MessageReceived)), None)
