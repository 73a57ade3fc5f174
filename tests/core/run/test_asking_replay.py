"""Replays of runs with approvals: answers, inspections and rules are taken from the tape."""

from collections.abc import Callable

import msgspec
import pytest

from palyra.core.journal.tape_row import TapeRow
from palyra.core.policy.questions import ASK_USER
from palyra.core.replay.replay import Replay
from palyra.core.replay.report import ReplayReport
from palyra.core.run.decide import MAX_GATED
from palyra.core.run.inputs import CallInspected, Cancel, Resume, RulesChanged
from palyra.core.tape import events as ev
from tests.core.run.fates import rows
from tests.core.run.test_asking import Desk, ended
from tests.core.run.test_overtaken_questions import Asker
from tests.rows import every_row


def looked() -> Desk:
    """A call that is inspected, approved and run, over a crash of the daemon."""
    desk = Desk()
    desk.looks = True
    desk.propose("a")
    desk.hear(Resume())
    desk.seen["c1"] = "git"
    desk.hear(CallInspected(call_id="c1"))
    desk.answer(scope="timeboxed", ttl_ms=500)
    desk.hear(ended("c1"))
    return desk


def could_not_run() -> Desk:
    """A failed inspection."""
    desk = Desk()
    desk.looks = True
    desk.propose("a", "b")
    desk.hear(CallInspected(call_id="c1", failure="no such program"))
    return desk


def allowed_after_all() -> Desk:
    """Rules that allow the call by the end of its inspection."""
    desk = Desk()
    desk.looks = True
    desk.propose("a")
    desk.verdict = "allow"
    desk.hear(CallInspected(call_id="c1"))
    desk.hear(ended("c1"))
    return desk


def twins(decision: str) -> Desk:
    """Two calls, one question."""
    desk = Desk()
    desk.same["c1"] = ("c2",)
    desk.propose("a", "a")
    desk.answer(decision)
    if decision == "allow":
        desk.hear(ended("c1"))
        desk.hear(ended("c2"))
    return desk


def other_rules(verdict: str) -> Desk:
    """A question that other rules took back."""
    desk = Desk()
    desk.propose("a")
    desk.version, desk.verdict = "v2", verdict
    desk.hear(RulesChanged())
    if verdict == "ask":
        desk.answer()
        desk.hear(ended("c1"))
    return desk


def too_late() -> Desk:
    """Calls that were allowed and did not start."""
    desk = Desk()
    desk.propose("a", "b")
    desk.answer()
    desk.version = "v2"
    desk.answer()
    return desk


def overtaken() -> Desk:
    """Calls that were allowed, of which the first one started before the rules changed."""
    desk = Desk()
    desk.propose("a", "b")
    desk.answer()
    desk.answer()
    desk.version = "v2"
    desk.hear(ended("c1"))
    return desk


def lapsed() -> Desk:
    """A call that a grant allowed, which ended before it could start."""
    desk = Desk()
    desk.granted = "a"
    desk.propose("a", "b")
    desk.grant_holds = False
    desk.answer()
    return desk


def cancelled() -> Desk:
    """A run that ended during an inspection."""
    desk = Desk()
    desk.looks = True
    desk.propose("a")
    desk.hear(Cancel(reason="enough", by="ann"))
    return desk


def questions() -> Desk:
    """Two questions of the model, an approval between them and calls that run meanwhile."""
    asker = Asker()
    asker.propose("one", ASK_USER, "ask_write", ASK_USER, "two")
    asker.answer_to("c2")
    asker.hear(ended("c2"))
    asker.answer_to("c3", "deny")
    asker.hear(ended("c1"))
    asker.answer_to("c4")
    asker.hear(ended("c5"))
    asker.hear(ended("c4"))
    return asker


def withdrawn_apart() -> Desk:
    """Two questions of one turn, withdrawn by two changes of the rules, the later one first."""
    asker = Asker()
    asker.propose(ASK_USER, ASK_USER, "one")
    stale = {"c2"}
    now = lambda _run, call: call.call_id in stale and call.policy_version != asker.version  # noqa: E731
    asker.env = msgspec.structs.replace(asker.env, is_stale=now)
    asker.version = "v2"
    asker.hear(RulesChanged())
    stale.add("c1")
    asker.hear(RulesChanged())
    asker.answer_to("c1")
    return asker


def void_answer() -> Desk:
    """An answer that the rules overtook, while another question and a call go on."""
    asker = Asker()
    asker.propose(ASK_USER, ASK_USER, "one")
    asker.env = msgspec.structs.replace(asker.env, is_stale=lambda _run, call: call.call_id == "c1")
    asker.answer_to("c1")
    asker.answer_to("c2")
    asker.hear(ended("c2"))
    asker.hear(ended("c3"))
    return asker


def equal_questions() -> Desk:
    """More equal questions than one step evaluates."""
    asker, many = Asker(), 2 * MAX_GATED
    asker.same["c2"] = tuple(f"c{number}" for number in range(3, many + 1))
    asker.propose("one", *[ASK_USER] * (many - 1))
    asker.hear(ended("c1"))
    asker.answer()
    return asker


STORIES: dict[str, Callable[[], Desk]] = {
    "looked": looked,
    "could not run": could_not_run,
    "allowed after all": allowed_after_all,
    "twins allowed": lambda: twins("allow"),
    "twins denied": lambda: twins("deny"),
    "other rules ask": lambda: other_rules("ask"),
    "other rules allow": lambda: other_rules("allow"),
    "other rules deny": lambda: other_rules("deny"),
    "too late": too_late,
    "overtaken": overtaken,
    "lapsed": lapsed,
    "cancelled": cancelled,
    "questions": questions,
    "withdrawn apart": withdrawn_apart,
    "void answer": void_answer,
    "equal questions": equal_questions,
}


def replay(desk: Desk, tape: list[TapeRow], *, strict: bool = False) -> ReplayReport:
    """The whole replay; a strict one starts without inspections."""
    desk.seen = {}
    under_way = Replay(tape, desk.env.redact, now=desk.env if strict else None)
    while under_way.advance(10):
        pass
    return under_way.report()


@every_row("name", STORIES)
def test_a_replay_matches(name: str) -> None:
    """Taken from the tape, every story is its own consequence."""
    desk = STORIES[name]()
    report = replay(desk, rows(desk))
    assert (report.matched, report.first_divergence) == (True, None)


@every_row("name", ["looked", "twins allowed", "twins denied"])
def test_a_strict_replay_matches_too(name: str) -> None:
    """The result of an inspection cannot be repeated, so its verdict is not evaluated again."""
    desk = STORIES[name]()
    report = replay(desk, rows(desk), strict=True)
    assert (report.matched, report.first_divergence) == (True, None)
    assert bool(report.unjudged) == (name == "looked")


def test_a_tool_that_no_longer_inspects_diverges() -> None:
    """A tool that no longer inspects is a divergence."""
    desk = looked()
    desk.looks = False
    report = replay(desk, rows(desk), strict=True)
    assert report.first_divergence is not None
    assert report.first_divergence.field == "inspects"


@pytest.mark.parametrize("code", ["granted", "denied_by_grant"])
def test_a_verdict_by_a_grant_is_not_evaluated_again(code: str) -> None:
    """Grants are not on the tape: the recorded verdict is used and reported."""
    desk = Desk()
    desk.verdict = "allow" if code == "granted" else "deny"
    desk.propose("a")
    tape = rows(desk)
    at = next(row.seq for row in tape if row.kind == "tool.decided")
    event = msgspec.json.decode(tape[at].data, type=ev.ToolDecided)
    told = msgspec.structs.replace(
        event, reason_code=code, grant_id="grt_1" if code == "granted" else None
    )
    tape[at] = msgspec.structs.replace(tape[at], data=ev.encode_event(told))
    desk.verdict = "ask"
    report = replay(desk, tape[: at + 1], strict=True)
    assert report.unjudged == (at - 1,)
    assert report.first_divergence is None or report.first_divergence.seq > at
