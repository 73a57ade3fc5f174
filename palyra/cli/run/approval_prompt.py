"""Approval prompt at the terminal, which keeps processing the run's events while it waits.

Theory: approval requests of the run are queued, and the oldest one is shown.  The prompt then waits
for two things at once: a line of input, and the next event of the run.  An `approval.resolved`
event (another client answered, the deadline passed or the run was cancelled) removes the request
from the queue and withdraws the prompt.  The line is read from the terminal's file descriptor,
because trio can wait for a descriptor to become readable and cannot interrupt a blocking read.
"""

import math
import os
import select
import sys
import termios
from contextlib import suppress
from difflib import get_close_matches
from functools import partial

import trio

from palyra.cli.command.answers import NOTICE_S, Answer, PromptReader
from palyra.cli.command.errors import USAGE, WAITING, CommandFailed
from palyra.cli.command.output import fold, make_notice, say, write
from palyra.cli.run.approve_policy import ApprovePolicy, Disposition
from palyra.cli.run.preview import beyond_files, describe_conditions, find_preview, print_preview
from palyra.client import Client, Subscription, TapeEvent, wait_any
from palyra.core.tape.events import ApprovalRequested, ApprovalResolved
from palyra.core.text.visible import show_json, visible
from palyra.errors import Conflict, Forbidden, IllegalState

LINE_BYTES = 4_096
DIGEST_CHARS = 12


class ApprovalPrompt:
    """Queue of the pending approval requests of one run, oldest first, and their prompt.

    `descriptor` is that of the terminal; with None, or after its end of input, the policy decides what
    becomes of a request.
    """

    def __init__(
        self,
        client: Client,
        descriptor: int | None,
        policy: ApprovePolicy | None = None,
        *,
        rings: bool = True,
    ) -> None:
        self._client = client
        self._descriptor = descriptor  # None: not interactive
        self._pending: dict[str, ApprovalRequested] = {}
        self._policy = policy or ApprovePolicy()
        self._shown: str | None = None
        self._reader: PromptReader | None = None  # of the shown request
        self._rings = rings  # for a question that waits
        self._ring_at_s = math.inf
        self._left: set[str] = set()  # requests that another client has to answer

    @property
    def is_asking(self) -> bool:
        """True if an approval is pending that is not left to other clients."""
        return not self._left.issuperset(self._pending)

    def note(self, item: TapeEvent) -> None:
        """Add a requested approval to the queue, or remove a resolved one."""
        match item.event:
            case ApprovalRequested() as asked:
                self._pending[asked.approval_id] = asked
                if self._descriptor is None and self._policy.mode == "ask":
                    self._leave(asked)
            case ApprovalResolved() as answered:
                self._pending.pop(answered.approval_id, None)
                if self._shown == answered.approval_id:
                    self._shown = None
            case _:
                pass

    async def work(self, items: Subscription) -> None:
        """Treat the oldest approval by the policy; return after a line of input or when an event arrives.

        Raises CommandFailed with WAITING for one that must wait for a person elsewhere.
        Cancellation: an answer that was being sent may have been recorded.
        """
        asked = next(
            (each for each in self._pending.values() if each.approval_id not in self._left), None
        )
        if asked is None:
            return
        if self._shown != asked.approval_id:
            disposition = await self._decide(asked)
            if disposition != "ask" or self._descriptor is None:
                await self._treat(asked, disposition)
                return
            self._shown = asked.approval_id
            discard_typed(self._descriptor)
            await self._show(asked)
            self._ring_at_s = trio.current_time() + NOTICE_S if self._rings else math.inf
        assert self._descriptor is not None  # noqa: S101 - only a terminal shows a question
        readable = partial(trio.lowlevel.wait_readable, self._descriptor)
        await wait_any(items.wait_item, readable, self._ring_late)
        if select.select([self._descriptor], [], [], 0)[0]:
            await self._read_answer(asked, self._descriptor)

    async def _ring_late(self) -> None:
        """Notify the person, once, of a question that has waited for some seconds."""
        await trio.sleep_until(self._ring_at_s)
        self._ring_at_s = math.inf
        write(make_notice(err=True), err=True)
        await trio.sleep_forever()

    async def _decide(self, asked: ApprovalRequested) -> Disposition:
        """Apply the policy; a listed tool is not allowed in a run that injected text has reached."""
        is_permitted = self._policy.names(asked.tool, asked.scopes)
        if is_permitted:
            preview = await find_preview(self._client, asked.approval_id)
            is_permitted = not isinstance(preview, str) and not (preview.taint or preview.stale)
            if not is_permitted:
                say(f"  --approve does not hold for {visible(asked.summary)}:", err=True)
                cause = "injected text has reached the run, or a file has changed"
                say(f"  {preview if isinstance(preview, str) else cause}", err=True)
        return self._policy.decide(
            is_permitted=is_permitted, has_terminal=self._descriptor is not None
        )

    async def _treat(self, asked: ApprovalRequested, disposition: Disposition) -> None:
        """Answer without a person, or leave the question to another client."""
        match disposition:
            case "allow" | "deny":
                reason = "by --approve"
                if disposition == "deny":
                    reason = visible(self._policy.why_not(asked.tool, asked.once_because))
                    say(f"? {visible(asked.summary)}: deny, {reason}", err=True)
                else:
                    say(f"? {visible(asked.summary)}: allow {reason}", err=True)
                await self._answer(asked, Answer(disposition, reason=reason))
            case "wait":
                self._leave(asked)
            case _:
                raise CommandFailed(
                    f"{visible(asked.summary)} waits for a person, and this command has no terminal",
                    f"answer with `palyra approvals allow {asked.approval_id}` (or deny), then "
                    "`palyra runs follow`; or choose --approve ask, deny or TOOL",
                    code=WAITING,
                )

    def _leave(self, asked: ApprovalRequested) -> None:
        """Leave the question to another client, and name the commands that answer it."""
        self._left.add(asked.approval_id)
        _print_commands(asked)

    async def _show(self, asked: ApprovalRequested) -> None:
        """Print the question with its preview; with the arguments if there is no preview."""
        preview = await find_preview(self._client, asked.approval_id)
        is_exact = isinstance(preview, str)  # else the preview shows the arguments
        head = visible(asked.summary) if is_exact else f"{visible(asked.tool)} needs an answer"
        say(fold(f"? {head}", err=True), err=True, fg="magenta", bold=True)
        say(f"  tool {visible(asked.tool)}, {asked.risk} risk", err=True)
        say(fold(f"  asked because {visible(asked.policy_reason)}", err=True), err=True)
        inspection = asked.inspection
        if isinstance(preview, str):
            say(f"  no preview: {preview}", err=True, fg="yellow")
            say("  exact arguments:", err=True)
            _show_json(asked.arguments)
        else:
            print_preview(preview, err=True)
            inspection = beyond_files(inspection, preview)
        if asked.covers:
            count = len(asked.covers)
            say(f"  the answer applies to {count} identical calls of this turn", err=True)
        if conditions := describe_conditions(inspection):
            say(fold(f"  {conditions}", err=True), err=True, dim=True)
        say(f"  digest {asked.digest[:DIGEST_CHARS]}…", err=True)
        self._reader = PromptReader(asked)
        _print_question(self._reader)

    async def _read_answer(self, asked: ApprovalRequested, descriptor: int) -> None:
        line = os.read(descriptor, LINE_BYTES).decode(errors="replace")
        if not line:  # end of input
            self._descriptor = self._shown = None
            return
        assert self._reader is not None  # noqa: S101 - the question is shown
        answer = self._reader.read(line)
        if answer is None:
            _print_question(self._reader)
            return
        await self._answer(asked, answer)

    async def _answer(self, asked: ApprovalRequested, answer: Answer) -> None:
        del self._pending[asked.approval_id]
        self._shown = None
        try:
            await self._client.resolve_approval(
                asked.approval_id, answer.decision, asked.digest, **answer.options
            )
        except (Conflict, IllegalState) as error:  # resolved by another client in the meantime
            say(f"  too late: {error.message}", err=True, fg="yellow")


async def check_listed(client: Client, policy: ApprovePolicy, agent: str | None) -> None:
    """Refuse a list with a name that no tool of the catalogue has.

    Names with a prefix pass: the tools of a server or a skill may come later.
    Raises CommandFailed with USAGE.  Cancellation: nothing changed.
    """
    if policy.mode != "tools":
        return
    try:
        known = {tool.name for tool in (await client.list_tools(agent)).tools}
    except Forbidden:  # the catalogue is not shown to this token
        return
    unknown = next((name for name in sorted(policy.tools - known) if ":" not in name), None)
    if unknown is not None:
        near = get_close_matches(unknown, known, n=2)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise CommandFailed(
            f"--approve: there is no tool {unknown!r}",
            f"{hint}`palyra tools` shows which there are",
            code=USAGE,
        )


def find_terminal() -> int | None:
    """Return the descriptor of standard input if it is a terminal, else None."""
    return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None


def discard_typed(descriptor: int) -> None:
    """Discard input typed before the prompt, because it cannot be an answer to it."""
    with suppress(termios.error, OSError):  # no terminal
        termios.tcflush(descriptor, termios.TCIFLUSH)


def _show_json(value: object) -> None:
    for line in show_json(value).splitlines():
        say(f"    {line}", err=True)


def _print_question(reader: PromptReader) -> None:
    say(f"{fold(f'  {reader.prompt}', err=True).rstrip()} ", nl=False, err=True)


def _print_commands(asked: ApprovalRequested) -> None:
    say("  waiting for an answer:", err=True, fg="magenta")
    say(f"    palyra approvals show {asked.approval_id}", err=True)
    say(f"    palyra approvals allow {asked.approval_id}   (or deny)", err=True)
