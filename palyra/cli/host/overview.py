"""What needs a person, what runs, what went wrong lately, and whether the daemon is well.

`read` asks the daemon; the rest is pure: `render` returns the lines of one screen.  Parts that the
caller may not see are named instead of shown.  All text of models, tools and senders is made harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from palyra.cli.command.output import one_line, span
from palyra.cli.view.event_text import narrate
from palyra.client import Client, RunView, TapeEvent
from palyra.core.incident.incident import UNRESOLVED
from palyra.core.journal.records import ApprovalRecord
from palyra.core.model.views import ModelView
from palyra.core.task.views import TaskCounts
from palyra.core.text.visible import pluralize
from palyra.core.usage.dollars import to_dollars
from palyra.core.usage.views import AccountView
from palyra.errors import Forbidden, NotFound
from palyra.net.protocol.results import IncidentView, Pairing, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

DAY_MS = 86_400_000
ROWS = 8  # of one block; the others are counted
READ_ROWS = 200
ID_CHARS = 6  # of the end of an id, which commands accept in its place
NEAR = 0.8  # of a budget, spent


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a daemon at `at_ms`; None for what the caller may not see."""

    at_ms: int
    status: Status
    questions: list[ApprovalRecord] | None  # soonest expiry first
    pairings: list[Pairing] | None
    candidates: int | None  # of learning, to review; at most `READ_ROWS`
    open_runs: list[RunView]  # those that wait for a person first, then by age
    last_events: dict[str, TapeEvent]  # of the open runs that are shown
    went_wrong: list[RunView]  # failed, or ended in part, within a day
    incidents: list[IncidentView] | None  # unresolved, or of the last day
    tasks: TaskCounts | None
    near_budgets: list[AccountView] | None
    open_breakers: list[ModelView]


class Line(NamedTuple):
    """One line of the screen."""

    text: str = ""
    fg: str | None = None
    bold: bool = False
    dim: bool = False


async def read(client: Client, now_ms: int, before: Overview | None = None) -> Overview:
    """Ask for everything; last events that `before` has are not read again.

    Raises PalyraError if the daemon does not answer.  Cancellation: nothing happened.
    """
    since_ms = now_ms - DAY_MS
    runs = await client.list_runs(states=("accepted", "in_progress"), limit=READ_ROWS)
    ended = await client.list_runs(states=("done", "failed"), limit=READ_ROWS)
    questions = await _allowed(client.list_approvals(pending_only=True, limit=READ_ROWS))
    pairings = await _allowed(client.list_pairings(state="pending"))
    candidates = await _allowed(client.list_candidates(limit=READ_ROWS))
    incidents = await _allowed(client.list_incidents(limit=READ_ROWS))
    accounts = await _allowed(client.budget_status())
    open_runs = sorted(runs.runs, key=lambda run: (run.pending_approvals == 0, run.created_ms))
    return Overview(
        at_ms=now_ms,
        status=await client.status(),
        questions=None if questions is None else sorted(questions, key=lambda q: q.expires_ms),
        pairings=None if pairings is None else pairings.pairings,
        candidates=None if candidates is None else len(candidates.candidates),
        open_runs=open_runs,
        last_events=await _last_events(client, open_runs[:ROWS], before),
        went_wrong=[run for run in ended.runs if _is_wrong(run) and _end_ms(run) >= since_ms],
        incidents=None
        if incidents is None
        else [
            each
            for each in incidents.incidents
            if each.state in UNRESOLVED or each.last_ms >= since_ms
        ],
        tasks=await _allowed(client.count_tasks()),
        near_budgets=None if accounts is None else list(filter(_is_near, accounts.accounts)),
        open_breakers=[
            each for each in (await client.list_models()).models if each.breaker != "closed"
        ],
    )


async def _allowed(asked: Awaitable[T]) -> T | None:
    try:
        return await asked
    except Forbidden:
        return None


async def _last_events(
    client: Client, runs: Iterable[RunView], before: Overview | None
) -> dict[str, TapeEvent]:
    known = {} if before is None else before.last_events
    found: dict[str, TapeEvent] = {}
    for run in runs:
        event = known.get(run.run_id)
        if event is None or event.seq < run.head_seq:
            try:
                page = await client.read_tape(run.run_id, run.head_seq - 1, limit=1)
            except NotFound:  # purged in between
                continue
            event = page.events[0] if page.events else None
        if event is not None:
            found[run.run_id] = event
    return found


def _is_wrong(run: RunView) -> bool:
    return run.state == "failed" or run.reason not in {None, "answered"}


def _end_ms(run: RunView) -> int:
    return run.finished_ms or run.created_ms


def _is_near(account: AccountView) -> bool:
    limit = account.hard or account.soft
    return bool(limit) and account.spent + account.reserved >= NEAR * (limit or 0)


# --- the screen ----------------------------------------------------------------------------------


def render(overview: Overview, now_ms: int) -> list[Line]:
    """Return the lines of the four blocks; ages are those at `now_ms`."""
    waiting = list(_waiting(overview, now_ms))
    wrong = list(_went_wrong(overview, now_ms))
    unwell = list(_unwell(overview))
    lines = [_head(overview, now_ms), Line()]
    if not (waiting or wrong or unwell):
        lines += [Line("Nothing waits for you, and nothing is wrong.", fg="green"), Line()]
    if waiting:
        lines += _block("WAITING FOR YOU", waiting, "palyra approvals list")
    running = [_running(overview, run, now_ms) for run in overview.open_runs]
    lines += _block("RUNNING", running or [Line("no run is open", dim=True)], "palyra runs list")
    if wrong:
        lines += _block("WENT WRONG IN 24 H", wrong, "palyra incidents list, palyra runs list")
    lines += _block("WELL-BEING", [*unwell, *_well(overview)], "palyra status")
    return lines[:-1]


def fit(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Return the lines as far as they fit; the last one counts those that do not."""
    if len(lines) > height:
        left_out = len(lines) - height + 1
        more = Line(f"… {left_out} more lines: palyra watch --once", dim=True)
        lines = [*lines[: height - 1], more]
    return [line._replace(text=cut(line.text, width)) for line in lines]


def cut(text: str, width: int) -> str:
    """Return the text, which is harmless already, cut to the width."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def _block(title: str, rows: Sequence[Line], lists_all: str) -> list[Line]:
    shown = list(rows[:ROWS])
    if len(rows) > ROWS:
        shown.append(Line(f"and {len(rows) - ROWS} more: {lists_all}", dim=True))
    indented = [row._replace(text=f"  {row.text}") for row in shown]
    return [Line(title, bold=True), *indented, Line()]


def _head(overview: Overview, now_ms: int) -> Line:
    status = overview.status
    parts = [f"palyra {status.version}", status.state]
    questions = overview.questions or []
    if questions:
        oldest = span(now_ms - min(each.requested_ms for each in questions))
        parts.append(f"{len(questions)} waiting (oldest {oldest})")
    parts.append(f"{len(overview.open_runs)} open")
    unresolved = [each for each in overview.incidents or () if each.state in UNRESOLVED]
    if unresolved:
        parts.append(pluralize(len(unresolved), "incident"))
    return Line(" · ".join(parts), bold=True)


def _waiting(overview: Overview, now_ms: int) -> Iterator[Line]:
    for each in overview.questions or ():
        asks = one_line(each.summary or each.tool)
        yield Line(
            f"{_tail(each.approval_id)}  expires in {span(each.expires_ms - now_ms)}  {each.risk} risk"
            f"  {asks}  {each.agent or '-'} in {_tail(each.run_id)}"
            f"  asked {span(now_ms - each.requested_ms)} ago",
            fg="red" if each.risk in {"high", "critical"} else "yellow",
        )
    if overview.questions:
        first = _tail(overview.questions[0].approval_id)
        yield Line(f"palyra approvals show {first}, then allow {first} or deny {first}", dim=True)
    for pairing in overview.pairings or ():
        sender = one_line(f"{pairing.sender} on {pairing.channel}")
        yield Line(f"{_tail(pairing.pairing_id)}  {sender} wants to write: palyra pairings list")
    if overview.candidates:
        many = "+" if overview.candidates == READ_ROWS else ""
        yield Line(f"{overview.candidates}{many} to review of what runs taught: palyra learn list")


def _running(overview: Overview, run: RunView, now_ms: int) -> Line:
    event = overview.last_events.get(run.run_id)
    last = "" if event is None else f"{narrate(event).text} ({span(now_ms - event.at_ms)})"
    tokens = run.usage.input_tokens + run.usage.output_tokens
    cost = f"  {to_dollars(run.cost_usd_micros)}" if run.cost_usd_micros else ""
    above = f" below {_tail(run.parent_run_id)}" if run.parent_run_id and run.depth else ""
    text = (
        f"{_tail(run.run_id)}  {run.phase.replace('_', ' ')}  {one_line(run.agent)}{above}"
        f"  turn {run.turns}  {tokens} tokens{cost}  {one_line(last)}"
    )
    colours: Mapping[str, str] = {"awaiting_approval": "yellow", "stranded": "red"}
    return Line(text, fg=colours.get(run.phase))


def _went_wrong(overview: Overview, now_ms: int) -> Iterator[Line]:
    alike: dict[tuple[str, str], list[IncidentView]] = {}
    for each in overview.incidents or ():
        alike.setdefault((each.domain, one_line(each.summary)), []).append(each)
    for (_, summary), same in alike.items():
        # Shown is an unresolved one, which a person can act on.
        each = next((one for one in same if one.state in UNRESOLVED), same[0])
        count = sum(one.count for one in same)
        times = f"{count} times, " if count > 1 else ""
        yield Line(
            f"{_tail(each.incident_id)}  {each.severity}  {summary}"
            f" ({times}last {span(now_ms - each.last_ms)} ago, {each.state})",
            fg="red" if each.state in UNRESOLVED else None,
        )
    for run in overview.went_wrong:
        ended = span(now_ms - _end_ms(run))
        how = "failed" if run.state == "failed" else "ended in part"
        yield Line(
            f"{_tail(run.run_id)}  run {how}: {one_line(run.reason or 'no reason')} ({ended} ago)"
        )


def _unwell(overview: Overview) -> Iterator[Line]:
    status = overview.status
    if not status.is_writable:
        yield Line("the journal is READ ONLY: palyra doctor", fg="red")
    if status.stranded_runs:
        yield Line(f"{status.stranded_runs} stranded runs: palyra incidents list", fg="red")
    for problem in status.problems:
        yield Line(one_line(problem, 200), fg="red")
    for model in overview.open_breakers:
        wait = f", tried again in {span(model.opens_in_ms)}" if model.opens_in_ms else ""
        yield Line(
            f"model {one_line(model.name)} fails, its breaker is {model.breaker}{wait}", fg="yellow"
        )
    for account in overview.near_budgets or ():
        limit = account.hard or account.soft or 0
        share = (account.spent + account.reserved) * 100 // limit
        subject = f" of {one_line(account.subject)}" if account.subject else ""
        yield Line(f"budget {one_line(account.budget_id)}{subject}: {share} % spent", fg="yellow")


def _well(overview: Overview) -> Iterator[Line]:
    status = overview.status
    backlog = status.journal_backlog
    if status.is_writable:
        yield Line("journal writable" + (f", {backlog} rows to write" if backlog else ""))
    if overview.tasks is not None:
        tasks = overview.tasks
        yield Line(
            f"tasks: {tasks.running} run, {tasks.due} due, {tasks.failed} failed in a day",
            fg="yellow" if tasks.failed else None,
        )
    hidden = [
        name
        for name, found in (
            ("approvals", overview.questions),
            ("pairings", overview.pairings),
            ("what runs taught", overview.candidates),
            ("incidents", overview.incidents),
            ("tasks", overview.tasks),
            ("budgets", overview.near_budgets),
        )
        if found is None
    ]
    if hidden:
        yield Line(f"not shown to this token: {', '.join(hidden)}", dim=True)


def _tail(record_id: str | None) -> str:
    return (record_id or "")[-ID_CHARS:]
