"""`palyra run TEXT`: send a message and follow the run.

The model's text is written to standard output and everything else to standard error, so that
`palyra run … > file` stores the answer.  With --json standard output is the tape, one event a line.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import click
import trio

from palyra.cli.command.errors import CANCELLED, INTERRUPTED, USAGE, CommandFailed
from palyra.cli.command.listing import Span
from palyra.cli.command.options import GivenPath, shared_options
from palyra.cli.command.output import print_json, print_json_line, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.context import print_preview
from palyra.cli.run.approval_prompt import ApprovalPrompt, check_listed, find_terminal
from palyra.cli.run.approve_policy import ApprovePolicy, ApproveType, bell_option
from palyra.cli.run.exit import RunExit
from palyra.cli.run.last_session import get_last_session
from palyra.cli.run.model_pause import ModelPause
from palyra.cli.run.modes import mode_option
from palyra.cli.run.options import parse_budget, read_answer_schema, read_images
from palyra.cli.run.printer import RunPrinter
from palyra.cli.run.queued import follow_queue
from palyra.cli.run.workspaces import choose_workspace, find_here
from palyra.cli.view.event_text import to_json
from palyra.client import (
    Client,
    EventsDiscarded,
    Item,
    RunOptions,
    Subscription,
    TapeEvent,
    wait_any,
)
from palyra.core.context.views import ReferencePreview
from palyra.core.journal.records import QueueMode
from palyra.core.session.commands import Started
from palyra.core.tape.events import Budget

if TYPE_CHECKING:
    from pathlib import Path

CANCEL_WITHIN_S = 10.0


@click.command(short_help="Send a message and follow the run.")
@click.argument("text")
@click.option("--session", "session_key", help="Key of the session; created if it does not exist.")
@click.option(
    "--continue",
    "is_continued",
    is_flag=True,
    help="Go on with your last conversation instead of starting one.",
)
@click.option("--agent", help="Name of the agent.")
@click.option("--model", help="Name of the model.")
@click.option(
    "--queue-mode",
    type=click.Choice(get_args(QueueMode)),
    help="What to do if the session is busy.",
)
@click.option(
    "--workspace",
    help="Workspace of a new session; if left out, the one that the current directory lies in.",
)
@click.option("--channel", help="Channel of the message; needs --conversation.")
@click.option("--conversation", "conversation_id", help="Conversation in the channel.")
@click.option("--sender", help="Sender of the message, if the channel requires paired senders.")
@click.option(
    "--image",
    "images",
    type=GivenPath(),
    multiple=True,
    help="Image to show to the model; may be repeated.",
)
@click.option(
    "--json-schema",
    "schema_file",
    type=GivenPath(),
    help="File with the JSON Schema that the answer has to fit.",
)
@click.option(
    "--budget",
    "amounts",
    multiple=True,
    metavar="AMOUNT",
    help="Limit of this run, such as 0.50usd or 20000tokens; may be given once for each.",
)
@click.option(
    "--timeout", "timeout_ms", type=Span(), help="Longest duration of this run, such as 10m."
)
@mode_option
@click.option(
    "--approve",
    "policy",
    type=ApproveType(),
    default=ApprovePolicy(),
    metavar="ask|deny|TOOL,...",
    help="How calls that need approval are answered; calls of TOOL are allowed once each without a question, except those that may be allowed only once, "
    "such as shells and options that run programs.",
)
@click.option(
    "--deny", is_flag=True, help="Deny calls that need approval; the same as --approve deny."
)
@click.option(
    "--fail-fast", is_flag=True, help="Cancel the run when its model fails, instead of waiting."
)
@click.option(
    "--verbose", "is_verbose", is_flag=True, help="Also print permissions of reading calls."
)
@bell_option
@click.option("--detach", is_flag=True, help="Print the run's id and return.")
@click.option(
    "--preview", is_flag=True, help="Print what the references would cost, and send nothing."
)
@shared_options
def run(
    options: Options,
    text: str,
    *,
    deny: bool,
    detach: bool,
    preview: bool,
    is_continued: bool,
    **given: Any,  # noqa: ANN401 - as click calls it
) -> None:
    """Send TEXT (- reads standard input) and follow the run.

    Tool calls that need approval are asked about here.  Without a terminal the command exits with 6
    at such a call, and the run stays open for `palyra approvals`; --approve ask waits for the answer of
    another client, --approve deny denies, and --approve TOOL,... allows calls of these tools and denies
    others, and those for which no answer wider than once is offered; the denial names the cause.
    Ctrl-C cancels the run; a second Ctrl-C does not wait for the cancellation.  SIGTERM ends only this command and the run continues (`palyra runs
    cancel`).
    """
    policy: ApprovePolicy = given.pop("policy")
    _refuse_contradictions(
        (deny and policy.mode not in {"default", "deny"}, "--deny and --approve"),
        (is_continued and given["session_key"], "--continue and --session"),
        (is_continued and given["channel"], "--continue and --channel"),
        (is_continued and given["workspace"], "--continue and --workspace"),
        (detach and given["fail_fast"], "--detach and --fail-fast"),
    )
    policy = ApprovePolicy("deny") if deny else policy
    fail_fast: bool = given.pop("fail_fast")
    is_verbose: bool = given.pop("is_verbose")
    rings: bool = given.pop("rings")
    start = _start_options(policy, given)
    words = _read_input() if text == "-" else text
    if preview:
        print_preview(
            options, talk(options, lambda client: _preview(client, options, words, start))
        )
        return
    if is_continued:
        session = talk(options, lambda client: get_last_session(client, options))
        start["session_id"] = session.session_id
    if detach:
        started = talk(options, lambda client: _start(client, options, words, start))
        if options.as_json:
            print_json(started)
        else:
            say(started.run_id)
        return
    ending = RunExit()
    try:
        how = Manner(options, policy, fail_fast, is_verbose, rings)
        talk(options, lambda client: _watch(client, words, start, how, ending))
    except CommandFailed as stop:
        if stop.exit_code != INTERRUPTED or ending.run_id is None:
            raise
        _cancel(options, ending)
    raise SystemExit(ending.code)


def _refuse_contradictions(*pairs: tuple[object, str]) -> None:
    """Raise UsageError for the first pair of options that were given both."""
    for is_given, names in pairs:
        if is_given:
            raise click.UsageError(f"{names} exclude each other")


def _start_options(policy: ApprovePolicy, given: dict[str, Any]) -> RunOptions:
    """Return the params of `run.start` that the options of the command stand for."""
    start: RunOptions = {"approval_mode": "deny"} if policy.mode == "deny" else {}
    images: tuple[Path, ...] = given.pop("images")
    schema_file: Path | None = given.pop("schema_file")
    budget = parse_budget(given.pop("amounts"), given.pop("timeout_ms"))
    if images:
        start["attachments"] = read_images(images)
    if schema_file is not None:
        start["answer_schema"] = read_answer_schema(schema_file)
    if budget != Budget():
        start["budget"] = budget
    start.update({key: value for key, value in given.items() if value is not None})  # type: ignore[typeddict-item]  # click made them
    return start


def _read_input() -> str:
    """Read all of standard input.  Raises CommandFailed if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"standard input is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}",
            "convert it first, for example with iconv",
            code=USAGE,
        ) from None


@dataclass(frozen=True, slots=True)
class Manner:
    """How a run is followed."""

    options: Options
    policy: ApprovePolicy
    fail_fast: bool
    is_verbose: bool = False  # print every decision
    rings: bool = True  # for a question that waits


async def _preview(
    client: Client, options: Options, text: str, start: RunOptions
) -> ReferencePreview:
    workspace = start.get("workspace") or await find_here(client, options)
    return await client.preview_references(text, agent=start.get("agent"), workspace=workspace)


async def _start(client: Client, options: Options, text: str, start: RunOptions) -> Started:
    """Start the run.  Cancellation: the run may have been started."""
    await _place(client, options, start)
    return await client.start_run(text, **start)


async def _place(client: Client, options: Options, start: RunOptions) -> None:
    """Let a new session work in the workspace of the current directory."""
    is_new = not {"session_id", "workspace", "channel"} & start.keys()
    if is_new:
        key = start.get("session_key")
        workspace = await choose_workspace(client, options, session_key=key)
        if workspace is not None:
            start["workspace"] = workspace


async def _watch(
    client: Client, text: str, start: RunOptions, how: Manner, ending: RunExit
) -> None:
    await check_listed(client, how.policy, start.get("agent"))
    await _place(client, how.options, start)
    is_shown = not how.options.as_json
    async with client.run_events(text, progress=is_shown, **start) as (started, items):
        ending.run_id = started.run_id
        if is_shown:
            say(f"● {started.run_id} {started.disposition}", err=True, dim=True)
        if started.position is None:
            await _print(client, items, how, ending)
        else:
            await watch(client, items, how, ending)


async def _print(client: Client, items: Subscription, how: Manner, ending: RunExit) -> None:
    """Print a run to its end, as JSON or for a person.  Raises as `follow`."""
    if how.options.as_json:
        desk = ApprovalPrompt(client, None, how.policy)
        pause = ModelPause(client, "cancel" if how.fail_fast else "wait")
        await follow(items, _print_event, desk, ending, pause)
        return
    desk = ApprovalPrompt(client, find_terminal(), how.policy, rings=how.rings)
    pause = ModelPause(client, "cancel" if how.fail_fast else "count down")
    story = RunPrinter(streams=sys.stdout.isatty(), is_verbose=how.is_verbose)
    await follow(items, story.tell, desk, ending, pause)


async def watch(client: Client, items: Subscription, how: Manner, ending: RunExit) -> None:
    """Print a run to its end, and say what it waits for while it is in its session's queue.

    Raises as `follow`, and CommandFailed with WAITING when the queue needs a person and this command
    does not wait for one.  Cancellation: the run continues.
    """
    run_id = ending.run_id or ""
    mode = how.policy.mode
    waits = mode == "ask" or (mode != "deny" and find_terminal() is not None)
    stops: list[CommandFailed] = []

    async def watch_queue() -> None:
        try:
            await follow_queue(client, run_id, waits=waits, quiet=how.options.as_json)
            await trio.sleep_forever()  # the run has left the queue
        except CommandFailed as stop:
            stops.append(stop)

    async def follow_run() -> None:
        try:
            await _print(client, items, how, ending)
        except CommandFailed as stop:
            stops.append(stop)

    await wait_any(watch_queue, follow_run)
    if stops:
        raise stops[0]


async def follow(
    items: Subscription,
    tell: Callable[[Item], None],
    desk: ApprovalPrompt,
    ending: RunExit,
    pause: ModelPause,
) -> None:
    """Print the items of a run, answer its questions, and note how it ends.

    Raises CommandFailed with WAITING for a question that waits for a person elsewhere, and for a
    run that was cancelled because its model failed.  Cancellation: the run continues.
    """
    async for item in items:
        tell(item)
        if isinstance(item, TapeEvent):
            desk.note(item)
            ending.note(item.event)
            await pause.apply(item, items)
        while desk.is_asking and not items.has_item:
            await desk.work(items)
    if ending.code == CANCELLED:
        pause.check()


def _print_event(item: Item) -> None:
    if isinstance(item, TapeEvent):
        print_json_line(to_json(item))
    elif isinstance(item, EventsDiscarded):
        print_json_line({"run_id": item.run_id, "dropped_after": item.after_seq})


def _cancel(options: Options, ending: RunExit) -> None:
    """Cancel the followed run after an interrupt and set the exit code.

    Raises CommandFailed if the daemon does not answer within CANCEL_WITHIN_S.
    """
    run_id = ending.run_id or ""

    async def work(client: Client) -> str:
        with trio.move_on_after(CANCEL_WITHIN_S):
            return (await client.cancel(run_id, "interrupted at the terminal")).state
        raise CommandFailed(f"{run_id} was not cancelled in time", f"palyra runs cancel {run_id}")

    state = talk(options, work)
    say(f"■ {run_id} is {state}", err=True, fg="red")
    ending.code = CANCELLED if state == "cancelled" else ending.code
