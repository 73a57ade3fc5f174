"""The screen of `palyra watch`: four blocks, harmless text, and no more than fits."""

from typing import Any

import msgspec

from palyra.cli.host.overview import ROWS, Line, Overview, fit, render
from palyra.client import RunView, TapeEvent
from palyra.core.journal.records import ApprovalRecord, Usage
from palyra.core.model.views import ModelView
from palyra.core.tape import events as ev
from palyra.core.task.views import TaskCounts
from palyra.core.usage.views import AccountView
from palyra.net.protocol.results import IncidentView, Pairing, Status
from tests.rows import every_row

NOW_MS = 1_000_000_000
TASKS = TaskCounts(due=0, running=0, oldest_due_ms=None, failed=0, own=0, own_limit=9)


def status(**more: Any) -> Status:
    return Status(**{
        "state": "ready", "version": "1.0", "instance_id": "i", "protocol": "palyra.v1",
        "now_ms": NOW_MS, "is_writable": True, **more,
    })  # fmt: skip


def overview(**more: Any) -> Overview:
    return Overview(**{
        "at_ms": NOW_MS, "status": status(), "questions": [], "pairings": [], "candidates": 0,
        "open_runs": [], "last_events": {}, "went_wrong": [], "incidents": [], "tasks": TASKS,
        "near_budgets": [], "open_breakers": [], **more,
    })  # fmt: skip


def question(number: int = 1, **more: Any) -> ApprovalRecord:
    return ApprovalRecord(**{
        "approval_id": f"apr_{number:06}", "run_id": "run_000009", "session_id": "ses_1",
        "call_id": "call_1", "principal": "p", "tool": "write_file", "risk": "medium",
        "summary": "write_file(path='a')", "arguments": msgspec.Raw(b"{}"), "digest": "0" * 64,
        "scopes": ("once",), "policy_reason": "asks", "requested_ms": NOW_MS - 240_000,
        "expires_ms": NOW_MS + 660_000, "agent": "default", **more,
    })  # fmt: skip


def run(**more: Any) -> RunView:
    return RunView(**{
        "run_id": "run_abcdef", "session_id": "ses_1", "state": "in_progress",
        "phase": "in_progress", "principal": "p", "agent": "scout", "model": "m",
        "created_ms": NOW_MS - 5_000, "usage": Usage(input_tokens=70, output_tokens=7),
        "cost_usd_micros": 20_000, "turns": 2, "tool_calls": 0, "pending_approvals": 0,
        "head_seq": 4, "attempts": 1, **more,
    })  # fmt: skip


def incident(**more: Any) -> IncidentView:
    return IncidentView(**{
        "incident_id": "inc_000001", "domain": "provider", "key": "k", "severity": "high",
        "state": "open", "summary": "the provider is away", "evidence": {}, "count": 3,
        "opened_ms": 0, "last_ms": NOW_MS - 60_000, **more,
    })  # fmt: skip


def texts(found: Overview) -> list[str]:
    return [line.text.strip() for line in render(found, NOW_MS)]


def test_a_calm_daemon_has_one_calm_line() -> None:
    """Without questions and trouble the blocks about them are left out."""
    assert [
        "palyra 1.0 · ready · 0 open", "",
        "Nothing waits for you, and nothing is wrong.", "",
        "RUNNING", "no run is open", "",
        "WELL-BEING", "journal writable", "tasks: 0 run, 0 due, 0 failed in a day",
    ] == texts(overview())  # fmt: skip


def test_questions_say_how_they_are_answered() -> None:
    """Each with its risk, run, age and time left; below them the commands, with the first id."""
    shown = texts(overview(questions=[question(1), question(2, risk="high")]))
    assert "palyra 1.0 · ready · 2 waiting (oldest 4 min) · 0 open" == shown[0]
    assert [
        "WAITING FOR YOU",
        (
            "000001  expires in 11 min  medium risk  write_file(path='a')  default in 000009"
            "  asked 4 min ago"
        ),
    ] == shown[2:4]
    assert "palyra approvals show 000001, then allow 000001 or deny 000001" == shown[5]


def test_the_time_left_of_a_question_fits_80_columns() -> None:
    """However long the call is, the time left is shown whole."""
    long = question(1, summary=f"write_file(path={'a' * 200!r})")
    lines = fit(render(overview(questions=[long]), NOW_MS), 80, 40)
    assert any("expires in 11 min" in line.text for line in lines)


def test_senders_and_lessons_wait_too() -> None:
    """Pairings by sender, and the number of candidates of learning."""
    pairing = Pairing(
        pairing_id="pai_123456", principal="p", channel="chat", sender="+1 555", state="pending",
        requested_ms=0, expires_ms=NOW_MS, attempts=0,
    )  # fmt: skip
    shown = texts(overview(pairings=[pairing], candidates=200))
    assert "123456  +1 555 on chat wants to write: palyra pairings list" in shown
    assert "200+ to review of what runs taught: palyra learn list" in shown


def test_an_open_run_shows_its_last_event_and_cost() -> None:
    """Phase, agent, parent, turns, tokens, dollars, and the last event with its age."""
    last = TapeEvent(
        run_id="run_abcdef", session_id="ses_1", seq=4, at_ms=NOW_MS - 12_000, kind="x",
        data=b"{}", event=ev.TurnStarted(turn=2, model="m", provider="p", attempt=1),
    )  # fmt: skip
    shown = texts(
        overview(
            open_runs=[run(parent_run_id="run_parent", depth=1)], last_events={"run_abcdef": last}
        )
    )
    assert (
        "abcdef  in progress  scout below parent  turn 2  77 tokens  $0.02  turn 2: asking m (12 s)"
        in shown
    )


def test_trouble_of_a_day_is_listed() -> None:
    """Incidents with their count and state, then runs that failed or ended in part."""
    shown = texts(
        overview(
            incidents=[incident(), incident(state="resolved", count=1)],
            went_wrong=[
                run(state="failed", phase="failed", reason="auth: no", finished_ms=NOW_MS),
                run(state="done", phase="done", reason="turn_limit", finished_ms=NOW_MS),
            ],
        )
    )
    place = shown.index("WENT WRONG IN 24 H")
    assert [
        "000001  high  the provider is away (4 times, last 1 min ago, open)",
        "abcdef  run failed: auth: no (0 s ago)",
        "abcdef  run ended in part: turn_limit (0 s ago)",
    ] == shown[place + 1 : place + 4]
    assert "palyra 1.0 · ready · 0 open · 1 incident" == shown[0]


@every_row(
    ("more", "text"),
    [
        ({"status": status(is_writable=False)}, "the journal is READ ONLY: palyra doctor"),
        ({"status": status(stranded_runs=2)}, "2 stranded runs: palyra incidents list"),
        ({"status": status(problems=("policy x is broken",))}, "policy x is broken"),
        (
            {"open_breakers": [ModelView(name="big", provider="p", breaker="open", opens_in_ms=9_000)]},
            "model big fails, its breaker is open, tried again in 9 s",
        ),
        (
            {"near_budgets": [
                AccountView(budget_id="day", scope="principal", subject="ann", metric="tokens",
                            window="day", spent=80, reserved=5, hard=100)
            ]},
            "budget day of ann: 85 % spent",
        ),
    ],
)  # fmt: skip
def test_what_is_not_well_is_named_and_the_calm_line_is_gone(
    more: dict[str, Any], text: str
) -> None:
    """A journal that refuses, stranded runs, problems, breakers, budgets over four fifths."""
    shown = texts(overview(**more))
    assert text in shown
    assert "Nothing waits for you, and nothing is wrong." not in shown


def test_hidden_parts_are_named() -> None:
    """A token without the right to see a part is told so, not shown an empty one."""
    shown = texts(overview(questions=None, incidents=None, tasks=None))
    assert "not shown to this token: approvals, incidents, tasks" == shown[-1]


def test_text_from_outside_is_harmless() -> None:
    """Controls, and characters that turn the direction of text, are shown as what they are."""
    hostile = "x\x1b[2J\u202eevil\n\nrm"
    shown = texts(
        overview(
            questions=[question(summary=hostile)],
            incidents=[incident(summary=hostile)],
            went_wrong=[run(state="failed", phase="failed", reason=hostile)],
        )
    )
    assert not any({"\x1b", "\u202e", "\n"} & set(text) for text in shown)


def test_blocks_are_short_and_the_screen_is_cut() -> None:
    """A block counts what it leaves out; a small terminal gets the first lines and a count."""
    lines = render(overview(questions=[question(n) for n in range(ROWS + 3)]), NOW_MS)
    assert "  and 4 more: palyra approvals list" in [line.text for line in lines]
    cut = fit(lines, 20, 5)
    assert (5, 20) == (len(cut), max(len(line.text) for line in cut))
    assert "… 15 more lines: pa…" == cut[-1].text
    assert 15 == len(lines) - 4
    assert [Line("ab")] == fit([Line("ab")], 20, 5)
