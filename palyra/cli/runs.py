"""`palyra runs`: list, show, follow, fork, cancel and wait for runs."""

from collections.abc import Iterator, Sequence
from typing import get_args

import click

from palyra.cli.command.listing import newer, since_option, watchable
from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import age, one_line, print_json, print_table, say, write
from palyra.cli.command.talk import Options, talk
from palyra.cli.run.approval_prompt import find_terminal
from palyra.cli.run.approve_policy import ApprovePolicy, bell_option
from palyra.cli.run.exit import RunExit, read_code
from palyra.cli.run.queued import describe_wait, waiting
from palyra.cli.run.run import Manner, watch
from palyra.cli.view.prose import lay_out
from palyra.client import Client, RunView
from palyra.core.journal.records import RunState
from palyra.core.run.todos import count_todos, list_todos
from palyra.core.session.commands import Forked
from palyra.core.tape.events import RunStarted, Todo, TodosChanged


@click.group()
def runs() -> None:
    """List, show, follow, fork, cancel and wait for runs."""


@runs.command("list")
@click.option("--session", "session_id", help="Only runs of this session.")
@click.option("--parent", "parent_run_id", help="Only runs that this one delegated, and its forks.")
@click.option("--tree", is_flag=True, help="Show delegated runs below the run above them.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(RunState)),
    help="Only those in this state.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="RUN_ID", help="Start after this run.")
@since_option
@watchable
@shared_options
def list_(  # noqa: PLR0913 - one for each option
    options: Options,
    *,
    since_ms: int | None,
    session_id: str | None,
    parent_run_id: str | None,
    states: tuple[RunState, ...],
    limit: int,
    cursor: str | None,
    tree: bool,
) -> None:
    """List runs, newest first."""
    page = talk(
        options,
        lambda client: client.list_runs(
            session_id=session_id,
            parent_run_id=parent_run_id,
            states=states,
            limit=limit,
            cursor=cursor,
        ),
    )
    page = newer(page, "runs", "created_ms", since_ms)
    if options.as_json:
        print_json(page)
        return
    columns = ("RUN", "PHASE", "AGE", "TURNS", "TOOLS", "PRINCIPAL", "REASON")
    rows = [(_indented(level, run), *_row(run)[1:]) for level, run in _as_tree(page.runs)]
    print_table(columns, rows if tree else [_row(run) for run in page.runs], empty="no runs yet")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


def _as_tree(runs: Sequence[RunView]) -> Iterator[tuple[int, RunView]]:
    """Yield the runs of a page with their level: each before those that it delegated."""
    shown = {run.run_id for run in runs}
    below: dict[str, list[RunView]] = {}
    for run in runs:
        is_below = run.depth > 0 and run.parent_run_id in shown
        below.setdefault((run.parent_run_id or "") if is_below else "", []).append(run)
    pending = [(0, run) for run in reversed(below.get("", ()))]
    while pending:
        level, run = pending.pop()
        yield level, run
        pending += [(level + 1, child) for child in below.get(run.run_id, ())]


def _indented(level: int, run: RunView) -> str:
    return f"{'  ' * (level - 1)}└ {run.run_id}" if level else run.run_id


def _row(run: RunView) -> tuple[object, ...]:
    return (
        run.run_id,
        run.phase,
        age(run.created_ms),
        run.turns,
        run.tool_calls,
        run.principal,
        run.reason or "-",
    )


@runs.command()
@id_argument("run_id")
@shared_options
def show(options: Options, run_id: str) -> None:
    """Print the answer of a run, and its state and counters."""
    _print_run(options, *talk(options, lambda client: _read(client, run_id)))


@runs.command()
@id_argument("run_id")
@bell_option
@shared_options
def follow(options: Options, run_id: str, *, rings: bool) -> None:
    """Follow a run as `palyra run` shows it, from its beginning to its end.

    A run that has ended is printed, and the exit code is the one `palyra run` would return.  Ctrl-C ends
    only this command.
    """
    ending = RunExit(run_id)

    async def work(client: Client) -> None:
        async with client.events(run_id, progress=not options.as_json) as items:
            how = Manner(options, ApprovePolicy(), fail_fast=False, rings=rings)
            await watch(client, items, how, ending)

    talk(options, work)
    raise SystemExit(ending.code)


@runs.command()
@id_argument("run_id")
@click.argument("text", required=False)
@click.option(
    "--at",
    "at_seq",
    type=click.IntRange(0),
    help="Fork at this event (numbers as in `palyra tape show`) instead of the last one.",
)
@shared_options
def fork(options: Options, run_id: str, text: str | None, at_seq: int | None) -> None:
    """Fork a run: continue it in a new session from one of its events; later events are left out.

    Without TEXT the model continues with the conversation up to that event.
    """

    async def work(client: Client) -> Forked:
        at = (await client.get_run(run_id)).head_seq if at_seq is None else at_seq
        return await client.fork_run(run_id, at, text)

    forked = talk(options, work)
    if options.as_json:
        print_json(forked)
    else:
        say(f"{forked.run_id} continues {run_id} from seq {forked.at_seq}")
        say(
            f"in {forked.session_id}; `palyra runs follow {forked.run_id}` shows it",
            dim=True,
        )


@runs.command()
@id_argument("run_id")
@click.option("--reason", default="cancelled from the command line", help="Why; it is recorded.")
@shared_options
def cancel(options: Options, run_id: str, reason: str) -> None:
    """Cancel a run; a run that has already ended does not change."""
    cancelled = talk(options, lambda client: client.cancel(run_id, reason))
    if options.as_json:
        print_json(cancelled)
    else:
        say(f"{run_id} is {cancelled.state}")


@runs.command()
@id_argument("run_id")
@click.option("--attention", is_flag=True, help="Also return when an approval is pending.")
@click.option(
    "--approve",
    type=click.Choice(["ask"]),
    help="Wait for the answers of other clients, without a terminal too.",
)
@shared_options
def wait(options: Options, run_id: str, *, attention: bool, approve: str | None) -> None:
    """Wait for the end of a run and print its answer; the exit code is the one `palyra run` would return.

    Without a terminal the command exits with 6 when the run, or the one that it is queued behind, waits
    for a person; --approve ask waits for the answer.
    """
    waits = approve == "ask" or find_terminal() is not None

    async def work(client: Client) -> tuple[RunView, str | None, tuple[Todo, ...], int]:
        seen = await client.wait_run(run_id, until="attention" if attention else "person")
        if not (seen.is_terminal or attention):
            if not waits:
                raise waiting(seen)
            said = describe_wait(seen)
            if said is not None:
                say(f"● {': '.join(part for part in said if part)}", err=True, dim=True)
            await client.wait_run(run_id)
        run, answer, todos = await _read(client, run_id)
        return run, answer, todos, await read_code(client, run)

    run, answer, todos, code = talk(options, work)
    _print_run(options, run, answer, todos)
    raise SystemExit(code)


async def _read(client: Client, run_id: str) -> tuple[RunView, str | None, tuple[Todo, ...]]:
    """Return a run, its whole answer, if it has one, and its last to-do list."""
    run = await client.get_run(run_id)
    todos = await _read_todos(client, run) if run.tool_calls else ()
    return run, await client.read_answer(run), todos


async def _read_todos(client: Client, run: RunView) -> tuple[Todo, ...]:
    """Return the list of the last event that has one, found from the end of the tape."""
    kinds = (RunStarted.KIND, TodosChanged.KIND)
    before: int | None = run.head_seq
    while before is not None:
        found = await client.find_in_tape(
            run.run_id, kinds=kinds, from_seq=before, backwards=True, limit=1
        )
        if found.hits:
            page = await client.read_tape(run.run_id, found.hits[0].seq - 1, limit=1)
            event = page.events[0].event
            return event.todos if isinstance(event, (RunStarted, TodosChanged)) else ()
        before = found.next_seq
    return ()


def _print_run(
    options: Options, run: RunView, answer: str | None, todos: tuple[Todo, ...] = ()
) -> None:
    if options.as_json:
        print_json(run)
        return
    if answer:
        write("\n".join(lay_out(answer)), nl=True)
        say()
    elif not run.is_terminal:
        say(f"no answer yet: `palyra runs follow {run.run_id}` shows how it goes on")
    elif run.purged_ms is not None:
        say("its content was purged")
    else:
        say(f"no answer: {run.reason or run.phase}")
    if todos:
        say(f"to-do list, {count_todos(todos)}:")
        for line in list_todos(todos):
            say(f"  {line}")
        say()
    said = describe_wait(run)
    rows = [
        ("run", run.run_id),
        ("session", run.session_id),
        ("phase", run.phase),
        ("reason", run.reason or "-"),
        ("principal", run.principal),
        ("agent, model", f"{run.agent}, {run.model}"),
        ("age", age(run.created_ms)),
        ("turns, tool calls", f"{run.turns}, {run.tool_calls}"),
        ("tokens", f"{run.usage.input_tokens} in, {run.usage.output_tokens} out"),
        ("events", run.head_seq + 1),
        ("pending approvals", run.pending_approvals),
        *([("waits", ": ".join(part for part in said if part))] if said else []),
    ]
    for name, value in rows:
        say(f"{name:<17}  {one_line(str(value), 200)}", dim=True)
