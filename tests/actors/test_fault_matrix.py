"""The fault matrix of the watchdog: domain x fault x mode, each with its incident and its timeline.

A timeline is what happens to the incident, with seconds since the fault: in `observe_only` the remedy
that `auto` would attempt, in `auto` the attempts, and how it ends.  Nothing helps unless a cell says
so.  Cells that cannot occur are named in `ABSENT`.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import trio
from trio.testing import MockClock

from palyra.actors.session.handle import SessionHandle
from palyra.core.healing.rules import RULES, HealingMode, kind_of
from palyra.core.incident import kinds
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.backup import Restoration
from palyra.core.journal.changes import ChainViolation, FilesLost, VerifyReport
from palyra.core.journal.records import IncidentDomain
from palyra.errors import Unavailable
from tests.actors.healing_kit import (
    Desk,
    add_tool,
    crash,
    damage_index,
    elapse,
    forever,
    hang_call,
    hang_run,
    miss_deadline,
    submit_task,
    watching,
)
from tests.actors.run.office_kit import OPERATOR, call, say
from tests.rows import every_row
from tests.store.kit import session

FAULTS = ("hang", "crash", "crash_loop", "damage", "outage")
MODES: tuple[HealingMode, ...] = get_args(HealingMode)
LASTS_S = 900.0  # longer than three attempts and their cool-down
Cause = Callable[[Desk], Any]


class Cell(NamedTuple):
    """One fault of one domain: how it is caused, and the timelines of its incident."""

    domain: IncidentDomain
    fault: str
    cause: Cause
    kind: str = ""  # of the incident; "" for none
    observed: str = ""  # in mode observe_only
    healed: str = ""  # in mode auto
    disabled: str = ""  # more than nothing only for what another part of the daemon reports


# --- causes --------------------------------------------------------------------------------------


def crashing(supervisor: str, child: str, times: int) -> Cause:
    return lambda desk: crash(desk, supervisor, child, times)


def reporting(report: IncidentReport) -> Cause:
    return lambda desk: desk.kit.incidents.report(report)


async def crash_model(desk: Desk, times: int) -> None:
    """Have the first requests of a run end in a bug of the adapter."""
    stream, requests = desk.kit.model.stream, list[Any]()

    async def fail(request: Any, on_delta: Any) -> Any:
        requests.append(request)
        if len(requests) <= times:
            raise ValueError("a bug")
        return await stream(request, on_delta)

    desk.play(fail)
    await desk.kit.start()


def set_session_aside(desk: Desk) -> None:
    """Have the actor of a session crash too often."""
    desk.kit.registry.set_session_aside(SessionHandle(session("ses_1")), "a bug")


async def crash_tool(desk: Desk) -> None:
    """Have a tool raise something that is no failure it announces."""

    async def fail(*_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise ValueError("a bug")

    add_tool(desk, "buggy", fail)
    desk.kit.model.turns = [call(("buggy", {"text": "x"})), say("so be it")]
    await desk.kit.start()


async def fill_disk(desk: Desk) -> None:
    """Refuse room while a run is in its model call."""
    await hang_run(desk)
    desk.kit.journal.is_writable = False


async def fill_disk_while_asking(desk: Desk) -> None:
    """Refuse room while a question has missed its deadline."""
    await miss_deadline(desk)
    desk.kit.journal.is_writable = False


async def hang_journal(desk: Desk) -> None:
    """Let no commit end after the acceptance of a run."""
    desk.kit.journal.keep = 1
    await desk.kit.start()


def break_work(*errors: Exception) -> Cause:
    """Have the first attempts of a task end like this; later ones succeed."""

    async def cause(desk: Desk) -> None:
        desk.office.work.errors = list(errors)
        await submit_task(desk)
        assert desk.office.work.gate is not None
        desk.office.work.gate.set()

    return cause


async def fill_disk_of_tasks(desk: Desk) -> None:
    """Refuse room while a task works."""
    await submit_task(desk)
    desk.kit.journal.is_writable = False


def hang_index(desk: Desk) -> None:
    desk.index.find_damage = forever  # type: ignore[method-assign]


def close_index(desk: Desk) -> None:
    async def refuse() -> str:
        await trio.lowlevel.checkpoint()
        raise Unavailable("the journal is closed")

    desk.index.find_damage = refuse  # type: ignore[method-assign]


BREAK = ChainViolation(kind="edited", position=3, run_id="run_1", seq=2, detail="it differs")
BROKEN = VerifyReport(
    checked_events=3,
    checked_roots=1,
    through_position=3,
    signed_through_position=3,
    first_break=BREAK,
    breaks=1,
    found=(BREAK,),
)

# --- the table -----------------------------------------------------------------------------------

STUCK_RUN = (
    "run_stuck",
    "125 opened run, 125 would resume_run",
    "125 opened run, 125 resume_run, 250 resume_run, 375 cancel_run, 380 resolved",
)


def loop_of(domain: IncidentDomain, at_s: int = 0) -> tuple[str, str, str]:
    """The incident of an actor that crashes three times, the last at `at_s`, and then no more."""
    opened, resolved = f"{at_s} opened {domain}", f"{65 + at_s} resolved"
    return "actor_crashes", f"{opened}, {resolved}", f"{opened}, {at_s} escalated, {resolved}"


def left_alone(kind: str, opened: str) -> tuple[str, str, str, str]:
    """An incident that another part reports, and no rule treats."""
    return kind, opened, opened, opened


CELLS = (
    Cell("run", "hang", hang_run, *STUCK_RUN),
    Cell("run", "crash", lambda desk: crash_model(desk, 1)),
    Cell(
        "run",
        "crash_loop",
        lambda desk: crash_model(desk, 99),
        *left_alone("recovery_exhausted", "2 opened run"),
    ),
    Cell(
        "run",
        "crash_loop",
        set_session_aside,
        "session_set_aside",
        "0 opened run, 5 would revive_session",
        "0 opened run, 5 revive_session, 255 resolved",
        "0 opened run",
    ),
    Cell(
        "run",
        "damage",
        reporting(kinds.run_stranded("run_1", "no such event")),
        *left_alone("run_stranded", "0 opened run"),
    ),
    Cell("run", "outage", fill_disk),
    Cell(
        "approval",
        "hang",
        miss_deadline,
        "approval_overdue",
        "30 opened approval, 30 would expire_approval",
        "30 opened approval, 30 expire_approval, 35 resolved",
    ),
    Cell(
        "task",
        "hang",
        submit_task,
        "task_stuck",
        "125 opened task, 125 would requeue_task",
        "125 opened task, 125 requeue_task, 250 requeue_task, 375 requeue_task, 380 resolved",
    ),
    Cell("task", "crash", break_work(ValueError("a bug"))),
    Cell("task", "crash_loop", break_work(*[ValueError("a bug")] * 3), *loop_of("task", 6)),
    Cell(
        "task",
        "damage",
        reporting(kinds.schedule_paused("sch_1", "nightly", "its zone is gone")),
        *left_alone("schedule", "0 opened task"),
    ),
    Cell("task", "outage", fill_disk_of_tasks),
    Cell("approval", "outage", fill_disk_while_asking),
    Cell("provider", "hang", hang_run, *STUCK_RUN),
    Cell("provider", "crash", crashing("services", "models", 1)),
    Cell("provider", "crash_loop", crashing("services", "models", 3), *loop_of("provider")),
    Cell(
        "provider",
        "outage",
        reporting(kinds.provider_left_alone("acme", 3, "timeout")),
        "provider_left_alone",
        "0 opened provider, 5 would trip_provider",
        "0 opened provider, 5 trip_provider, 65 trip_provider, 185 trip_provider, 425 escalated",
        "0 opened provider",
    ),
    Cell(
        "store",
        "hang",
        hang_journal,
        "journal_stuck",
        "125 opened store",
        "125 opened store, 125 escalated",
    ),
    Cell("store", "crash", crashing("daemon", "journal", 1)),
    Cell("store", "crash_loop", crashing("daemon", "journal", 3), *loop_of("store")),
    Cell(
        "store",
        "damage",
        reporting(kinds.chain_broken(BREAK, BROKEN)),
        "chain_broken",
        "0 opened store, 5 would reverify_journal",
        "0 opened store, 5 reverify_journal, 65 escalated",
        "0 opened store",
    ),
    Cell(
        "store",
        "outage",
        reporting(kinds.journal_refuses("disk full")),
        "journal_refuses",
        "0 opened store, 5 would checkpoint_wal",
        "0 opened store, 5 checkpoint_wal, 65 checkpoint_wal, 185 checkpoint_wal, 425 escalated",
        "0 opened store",
    ),
    Cell(
        "memory",
        "hang",
        hang_index,
        "index_damaged",
        "130 opened memory, 130 would rebuild_vectors",
        "130 opened memory, 130 rebuild_vectors, 190 rebuild_vectors, 310 restart_actor, "
        "550 escalated",
    ),
    Cell("memory", "crash", crashing("daemon", "memory", 1)),
    Cell("memory", "crash_loop", crashing("daemon", "conversations", 3), *loop_of("memory")),
    Cell(
        "memory",
        "damage",
        damage_index,
        "index_damaged",
        "5 opened memory, 5 would rebuild_vectors",
        "5 opened memory, 5 rebuild_vectors, 65 rebuild_vectors, 185 restart_actor, 425 escalated",
    ),
    Cell(
        "artifact",
        "damage",
        reporting(kinds.artifact_damaged("ab12", "/h/artifacts/ab12", "missing")),
        "artifact_damaged",
        "0 opened artifact",
        "0 opened artifact, 5 escalated",
        "0 opened artifact",
    ),
    Cell("memory", "outage", close_index),
    Cell(
        "tool_runtime",
        "hang",
        hang_call,
        "call_stuck",
        "125 opened run, 125 would end_call",
        "125 opened run, 125 end_call, 130 resolved",
    ),
    Cell("tool_runtime", "crash", crash_tool, *left_alone("tool_crashed", "0 opened tool_runtime")),
    Cell(
        "tool_runtime", "crash_loop", crashing("services", "sandbox", 3), *loop_of("tool_runtime")
    ),
    Cell(
        "tool_runtime",
        "damage",
        reporting(kinds.walls_leak("it got out")),
        "walls_leak",
        "0 opened tool_runtime",
        "0 opened tool_runtime, 5 escalated",
        "0 opened tool_runtime",
    ),
    Cell(
        "tool_runtime",
        "outage",
        reporting(kinds.workspace_unusable("it is gone")),
        *left_alone("workspace_unusable", "0 opened tool_runtime"),
    ),
    Cell("edge", "crash", crashing("daemon", "edge", 1)),
    Cell("edge", "crash_loop", crashing("daemon", "edge", 3), *loop_of("edge")),
)
ABSENT = {
    ("artifact", "hang"): "a read is a part of a call, which has a deadline: the call hangs",
    ("artifact", "crash"): "the store has no actor of its own: a crash is that of the reader",
    ("artifact", "crash_loop"): "as for a crash",
    ("artifact", "outage"): "a full disk is reported by the journal",
    ("approval", "crash"): "a question is a task of its run: the crash is that of the run",
    ("approval", "crash_loop"): "as for a crash",
    ("approval", "damage"): "an approval is an event of a tape: the damage is that of the run",
    (
        "provider",
        "damage",
    ): "a malformed answer is a failed call, which the breaker counts: an outage",
    ("edge", "hang"): "a connection that does not read is closed by its own bound",
    ("edge", "damage"): "the edge keeps nothing",
    ("edge", "outage"): "a port that is taken ends the start",
}


RESTORED = Restoration(
    backup_id="bkp_1", at_ms=9, created_ms=1, by="ann", reason="disk", head_position=3
)
# Each kind that a part of the daemon other than the watchdog reports.
REPORTS: tuple[IncidentReport, ...] = (
    kinds.policies_broken(["a typing error"]),
    kinds.usage_broken(["a typing error"]),
    kinds.settings_pending("a typing error"),
    kinds.chain_broken(BREAK, BROKEN),
    kinds.journal_restored(RESTORED),
    kinds.journal_refuses("disk full"),
    kinds.artifact_damaged("ab12", "/h/artifacts/ab12", "missing"),
    kinds.files_lost(FilesLost(found="the journal was removed", copy="/h/saved")),
    kinds.record_damaged("tasks:tsk_1"),
    kinds.outcome_unknown("run_1", "call_1", "shell"),
    kinds.tool_crashed("shell", "run_1", "call_1", "a bug"),
    kinds.recovery_exhausted("run_1", 3),
    kinds.run_stranded("run_1", "no such event"),
    kinds.session_set_aside("ses_1", "ann", "a bug"),
    kinds.walls_leak("it got out"),
    kinds.workspace_unusable("it is gone"),
    kinds.provider_left_alone("acme", 3, "timeout"),
    kinds.reflections_skipped("ann", "run_1", 1_000),
    kinds.clock_was_ahead("2036-01-01T00:00:00Z", 2, 1),
    kinds.file_lost("vault.sealed", "/h/vault.sealed", "was removed", "/h/saved/vault.sealed"),
    kinds.clock_ahead(1_700_000_000_000, 400 * 86_400_000),
    kinds.schedule_paused("sch_1", "nightly", "its zone is gone"),
    kinds.mcp_server_down("files", 3, "it ended with code 1"),
)


async def play(cell: Cell, mode: HealingMode) -> tuple[set[str], str]:
    """Cause the fault; return the kinds of incidents and the timeline."""
    async with watching(mode) as desk:
        caused = cell.cause(desk)
        if inspect.isawaitable(caused):
            await caused
        await elapse(LASTS_S)
        desk.kit.journal.release()
        return {kind_of(key) for key in desk.seen}, ", ".join(desk.timeline)


def test_the_matrix_is_complete() -> None:
    """Each cell is tested or says why it cannot occur, and each rule has a cell."""
    every = {(domain, fault) for domain in get_args(IncidentDomain) for fault in FAULTS}
    tested = {(cell.domain, cell.fault) for cell in CELLS}
    assert every == tested | ABSENT.keys()
    assert not tested & ABSENT.keys()
    assert RULES.keys() <= {cell.kind for cell in CELLS}


@every_row("cell", CELLS)
@every_row("mode", MODES)
def test_fault_matrix(cell: Cell, mode: HealingMode) -> None:
    """Each fault has its incident and timeline; only mode auto acts, disabled records no symptom."""
    timelines = {"disabled": cell.disabled, "observe_only": cell.observed, "auto": cell.healed}
    expected = timelines[mode]
    found = trio.run(play, cell, mode, clock=MockClock(autojump_threshold=0))
    assert ({cell.kind} if expected else set[str](), expected) == found


def test_every_kind_that_others_report_is_listed() -> None:
    """A new function of `core.incident.kinds` needs a row, so that the next test holds it."""
    makers = [
        name
        for name, each in inspect.getmembers(kinds, inspect.isfunction)
        if inspect.signature(each).return_annotation is IncidentReport
    ]
    assert len(makers) == len(REPORTS)
    assert len(REPORTS) == len({each.key for each in REPORTS})


@every_row("report", [each for each in REPORTS if kind_of(each.key) not in RULES])
@every_row("mode", MODES)
def test_a_report_without_a_rule_is_recorded_in_each_mode_and_never_treated(
    report: IncidentReport, mode: HealingMode
) -> None:
    """The watchdog neither hides, treats, escalates nor ends it."""
    cell = Cell(report.domain, "report", reporting(report))
    found = trio.run(play, cell, mode, clock=MockClock(autojump_threshold=0))
    assert ({kind_of(report.key)}, f"0 opened {report.domain}") == found


async def play_modes(own: HealingMode, other: HealingMode, domain: IncidentDomain) -> set[str]:
    """Cause a hang of a run and of a task, with `own` for one domain; return the remedies tried."""
    async with watching(other) as desk:
        desk.watchdog.modes.change(OPERATOR, own, domain)
        await hang_run(desk)
        await submit_task(desk)
        await elapse(LASTS_S)
        return set(desk.remedies)


@every_row("domain", ("run", "task"))
def test_the_mode_of_one_domain_is_its_own(domain: IncidentDomain) -> None:
    """Auto for one domain treats that domain; any other mode for it leaves the others in auto alone."""
    own = {"run": {"resume_run", "cancel_run"}, "task": {"requeue_task"}}[domain]
    clock = partial(MockClock, autojump_threshold=0)
    for other in ("observe_only", "disabled"):
        assert own == trio.run(play_modes, "auto", other, domain, clock=clock())
        rest = {"resume_run", "cancel_run", "requeue_task"} - own
        assert rest == trio.run(play_modes, other, "auto", domain, clock=clock())
