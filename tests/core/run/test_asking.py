"""Approval requests: inspection, duplicates, answers that lapse, questions that are withdrawn."""

from typing import Any

import msgspec
import pytest

from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.call import Call
from palyra.core.run.calls import LAPSED, STALE
from palyra.core.run.environment import GatedCall
from palyra.core.run.inputs import (
    ApprovalAnswered,
    AskPerson,
    Begin,
    CallEnded,
    CallInspected,
    Cancel,
    Execute,
    Inspect,
    Resume,
    RulesChanged,
    TurnFinished,
)
from palyra.core.run.state import Run, apply
from palyra.core.tape import events as ev
from palyra.core.text.visible import render_call
from palyra.core.tool.arguments import Refused
from palyra.errors import InvariantBroken
from tests.core.run.run_world import World, turn
from tests.rows import every_row

WORDS: dict[str, Any] = {"reason_code": "test", "reason": "because", "policies": ()}


class Desk(World):
    """A run whose tools ask, inspect first or have duplicates, as a test says."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.version = "v1"
        self.verdict = "ask"
        self.granted = ""  # the tool for which a grant holds
        self.grant_holds = True
        self.looks = False
        self.seen: dict[str, str] = {}  # what a look found, by call
        self.same: dict[str, tuple[str, ...]] = {}
        self.env = msgspec.structs.replace(
            self.env,
            evaluate=self.evaluate,
            is_stale=self.is_stale,
            has_lapsed=lambda _call: not self.grant_holds,
        )
        self.hear(Begin(instance_id="i1"))

    def evaluate(self, _run: Run, call: ProposedCall) -> GatedCall:
        verdicts: dict[str, Any] = {
            "allow": Allow(**WORDS, version=self.version),
            "granted": Allow(**WORDS, version=self.version, grant_id="grt_1"),
            "deny": Deny(**WORDS, version=self.version),
            "refuse": Refused(reason="bad", repair_hint="good"),
            "ask": NeedsApproval(
                **WORDS,
                version=self.version,
                risk="high",
                summary="s",
                scopes=("once", "session", "timeboxed"),
                grant_key="git status",
            ),
            "real": NeedsApproval(
                **WORDS,
                version=self.version,
                risk="high",
                summary=render_call(call.tool, call.arguments),
            ),
        }
        seen = self.seen.get(call.call_id)
        return GatedCall(
            digest=f"digest of {call.tool}",
            tool_class="effect",
            arguments=call.arguments,
            verdict=verdicts["granted" if call.tool == self.granted else self.verdict],
            execution_digest=f"{self.version} {call.call_id} {seen}",
            inspects=self.looks and seen is None,
            inspection=None if seen is None else {"binary": seen},
            duplicates=self.same.get(call.call_id, ()),
        )

    def is_stale(self, _run: Run, call: Call) -> bool:
        return call.policy_version != self.version

    def propose(self, *tools: str) -> list[str]:
        return self.hear(TurnFinished(turn=1, attempt=1, result=turn(*tools)))

    def answer(self, decision: str = "allow", **fields: Any) -> list[str]:
        asking = next(call for call in self.run.calls if call.phase == "asking")
        return self.hear(
            ApprovalAnswered(
                **{
                    "approval_id": asking.approval_id,
                    "decision": decision,
                    "scope": "once",
                    "by": "bob",
                    "reason": "",
                    **fields,
                }
            )
        )

    def phases(self) -> list[str]:
        return [call.phase for call in self.run.calls]

    def started(self) -> list[Execute]:
        return [effect for effect in self.effects if isinstance(effect, Execute)]


def test_a_summary_holds_no_half_of_a_secret() -> None:
    """It is cut behind the redaction: what the cut left of a secret would not be known as one."""
    secret = "ghp_" + "Canary0123456789abcdefghijABCDEFGHIJ"
    told = {"text": f"a text that takes some room, then {secret}"}
    call = ProposedCall(call_id="c1", tool="echo", arguments=told)
    desk = Desk()
    desk.env = msgspec.structs.replace(desk.env, redact=Redactor([]).redact_bytes)
    desk.verdict = "real"
    desk.hear(
        TurnFinished(turn=1, attempt=1, result=msgspec.structs.replace(turn("x"), calls=(call,)))
    )
    (asked,) = desk.drafts("approval.requested")
    assert 'echo(text="a text that takes some room, then [redacted:github]")' == asked.summary
    assert secret[:12] in render_call("echo", told), "the control"


# --- looks ---------------------------------------------------------------------------------------


def test_inspection_comes_before_the_question() -> None:
    """The prompt shows what was found, and is about it."""
    desk = Desk()
    desk.looks = True
    assert desk.propose("a")[1:] == ["tool.proposed"]
    assert (desk.phases(), desk.effects[-1]) == (["proposed"], Inspect(call_id="c1"))
    desk.seen["c1"] = "/usr/bin/git"
    assert desk.hear(CallInspected(call_id="c1")) == ["approval.requested"]
    (asked,) = desk.drafts("approval.requested")
    assert (asked.inspection, asked.digest) == ({"binary": "/usr/bin/git"}, "v1 c1 /usr/bin/git")
    assert desk.refold() == desk.run


def test_evaluation_waits_for_an_inspection() -> None:
    """The next call is gated once the one before is decided."""
    desk = Desk()
    desk.looks = True
    desk.propose("a", "b")
    assert desk.phases() == ["proposed", "named"]
    assert len([effect for effect in desk.effects if isinstance(effect, Inspect)]) == 1


def test_a_call_that_cannot_be_inspected_is_rejected() -> None:
    """The model gets the reason and may repair the call; no approval is requested."""
    desk = Desk()
    desk.looks = True
    desk.propose("a")
    kinds = desk.hear(CallInspected(call_id="c1", failure="no such program: gti"))
    assert kinds[:2] == ["tool.rejected", "tool.attested"]
    assert desk.drafts("tool.rejected")[0].reason == "no such program: gti"
    assert desk.drafts("approval.requested") == []


@every_row("verdict", ["allow", "deny", "refuse"])
def test_rules_may_change_during_an_inspection(verdict: str) -> None:
    """The call is judged again with what was found, under the rules of then."""
    desk = Desk()
    desk.looks = True
    desk.propose("a")
    desk.verdict = verdict
    expected = {"allow": "tool.decided", "deny": "tool.decided", "refuse": "tool.rejected"}
    assert desk.hear(CallInspected(call_id="c1"))[0] == expected[verdict]


def test_a_late_inspection_changes_nothing() -> None:
    """Neither one of no call nor one of a call that is past it."""
    desk = Desk()
    desk.propose("a")
    assert desk.hear(CallInspected(call_id="c1")) == []
    assert desk.hear(CallInspected(call_id="c9")) == []


def test_a_lost_inspection_is_repeated() -> None:
    """After a restart the call is inspected again."""
    desk = Desk()
    desk.looks = True
    desk.propose("a")
    assert desk.hear(Resume()) == ["run.recovered"]
    assert desk.effects[-1] == Inspect(call_id="c1")


def test_a_run_that_ends_during_an_inspection_closes_the_call() -> None:
    """Denied and attested, like any other call that never ran."""
    desk = Desk()
    desk.looks = True
    desk.propose("a")
    kinds = desk.hear(Cancel(reason="enough", by="ann"))
    assert kinds == ["tool.decided", "tool.attested", "run.cancelled"]
    assert desk.drafts("tool.decided")[0].reason_code == "aborted"


# --- twins ---------------------------------------------------------------------------------------


def test_duplicates_share_one_question() -> None:
    """The answer is for both, and each starts on it."""
    desk = Desk()
    desk.same["c1"] = ("c2",)
    desk.propose("a", "a")
    desk.answer()
    assert len(desk.drafts("approval.requested")) == 1
    assert desk.drafts("approval.requested")[0].covers == ("c1", "c2")
    assert desk.phases() == ["started", "allowed"]
    assert desk.hear(ended("c1"))[-1] == "tool.started"
    starts = desk.drafts("tool.started")
    assert len({start.approval_id for start in starts}) == 1
    assert [start.covers for start in desk.started()] == [("c1", "c2")] * 2
    assert [start.approval_digest for start in desk.started()] == ["v1 c1 None"] * 2
    assert desk.refold() == desk.run


def ended(call_id: str) -> CallEnded:
    """A tool's outcome."""
    return CallEnded(call_id=call_id, status="succeeded", output="out", raw_sha256="0" * 64)


@pytest.mark.parametrize(
    ("by", "code"), [("bob", "denied_by_person"), ("deadline", "approval_expired")]
)
def test_a_denial_covers_the_duplicate(by: str, code: str) -> None:
    """A denial covers the duplicate, whether a person or the deadline denied."""
    desk = Desk()
    desk.same["c1"] = ("c2",)
    desk.propose("a", "a")
    desk.answer("deny", by=by)
    assert [decided.reason_code for decided in desk.drafts("tool.decided")] == [code, code]
    assert len(desk.drafts("approval.requested")) == 1


def test_a_duplicate_under_other_rules_gets_its_own_question() -> None:
    """An answer holds for the rules it was given under."""
    desk = Desk()
    desk.same["c1"] = ("c2",)
    desk.propose("a", "a")
    desk.hear(RulesChanged())
    version = desk.version

    def changing(run: Run, call: ProposedCall) -> GatedCall:
        desk.version = "v2" if call.call_id == "c2" else version
        return desk.evaluate(run, call)

    desk.env = msgspec.structs.replace(desk.env, evaluate=changing)
    desk.answer()
    assert len(desk.drafts("approval.requested")) == 2
    assert desk.phases()[1] == "asking"


def test_a_shared_answer_must_be_there() -> None:
    """No event can lend a call the approval of another that was not for it."""
    desk = Desk()
    desk.propose("a", "b")
    desk.answer()
    stolen = ev.ToolDecided(
        call_id="c2", verdict="allow", reason_code="x", reason="x", policies=(),
        policy_version="v1", approval_id=desk.run.calls[0].approval_id,
    )  # fmt: skip
    with pytest.raises(InvariantBroken):
        apply(desk.run, stolen, 9_000)


# --- answers that hold ---------------------------------------------------------------------------


def test_an_answer_beyond_once_makes_a_grant() -> None:
    """Its id follows from the question's, its end from the answer's time."""
    desk = Desk()
    desk.propose("a")
    desk.answer(scope="timeboxed", ttl_ms=200)
    (answer,) = desk.drafts("approval.resolved")
    at_ms = next(at for kind, at, _ in desk.tape if kind == "approval.resolved")
    assert (answer.grant_id, answer.grant_expires_ms) == ("grt_1", at_ms + 200)


def test_a_session_grant_has_no_end_and_once_makes_none() -> None:
    """Only a timeboxed answer has a time."""
    desk = Desk()
    desk.propose("a", "b")
    desk.answer(scope="session", ttl_ms=None)
    desk.answer(scope="once")
    grants = [(e.grant_id, e.grant_expires_ms) for e in desk.drafts("approval.resolved")]
    assert grants == [("grt_1", None), (None, None)]


# --- questions that end --------------------------------------------------------------------------


def test_changed_rules_withdraw_the_question_and_ask_again() -> None:
    """The old one is void; the new one has an id, a digest and a deadline of its own."""
    desk = Desk()
    desk.propose("a")
    desk.version = "v2"
    assert desk.hear(RulesChanged()) == ["approval.resolved", "approval.requested"]
    old, new = desk.drafts("approval.requested")
    (void,) = desk.drafts("approval.resolved")
    assert (void.decision, void.by, void.approval_id) == ("abort", "rules", old.approval_id)
    assert (old.policy_version, new.policy_version) == ("v1", "v2")
    assert desk.effects[-1] == AskPerson(approval_id=new.approval_id)
    assert desk.refold() == desk.run
    assert desk.hear(
        ApprovalAnswered(
            approval_id=old.approval_id, decision="allow", scope="once", by="bob", reason=""
        )
    ) == []  # fmt: skip
    desk.answer()
    assert desk.started()[0].approval_digest == "v2 c1 None"


@pytest.mark.parametrize(("verdict", "phases"), [("allow", ["started"]), ("deny", [])])
def test_other_rules_may_answer_the_question(verdict: str, phases: list[str]) -> None:
    """Calls that the new rules allow or deny need no answer."""
    desk = Desk()
    desk.propose("a")
    desk.version, desk.verdict = "v2", verdict
    desk.hear(RulesChanged())
    assert desk.phases() == phases
    assert desk.run.pending_approvals == 0
    assert desk.refold() == desk.run
    assert all(start.approval_digest is None for start in desk.started())


def test_the_same_rules_change_nothing() -> None:
    """A question asked under the current rules stays pending."""
    desk = Desk()
    desk.propose("a")
    assert desk.hear(RulesChanged()) == []


def test_a_call_allowed_under_older_policies_does_not_start() -> None:
    """The model may propose it again; an open approval is evaluated again."""
    desk = Desk()
    desk.propose("a", "b")
    desk.answer()
    desk.version = "v2"
    desk.answer()
    decided = [(d.call_id, d.reason_code, d.reason) for d in desk.drafts("tool.decided")]
    assert decided[-2:] == [("c1", "approval_void", STALE), ("c2", "approval_void", STALE)]
    assert desk.started() == []
    assert desk.refold() == desk.run


@pytest.mark.parametrize("holds", [True, False])
def test_a_call_allowed_by_a_grant_starts_only_while_it_is_valid(holds: bool) -> None:  # noqa: FBT001 - a case
    """The grant may expire while another call waits for an answer."""
    desk = Desk()
    desk.granted = "a"
    desk.propose("a", "b")
    desk.grant_holds = holds
    desk.answer()
    assert desk.drafts("tool.decided")[-1].reason == ("approved by bob" if holds else LAPSED)
    assert [start.call_id for start in desk.started()] == (["c1"] if holds else ["c2"])
    assert desk.refold() == desk.run


def test_an_approval_ends_with_its_deadline_even_when_it_was_given() -> None:
    """Answered in time, but another question took too long: what was approved does not start."""
    desk = Desk(approval_ms=20)
    desk.propose("a", "b")
    desk.answer()
    end_ms = desk.drafts("approval.requested")[0].expires_ms
    desk.env = msgspec.structs.replace(desk.env, now_ms=lambda: end_ms)
    desk.answer()
    reasons = {d.call_id: d.reason_code for d in desk.drafts("tool.decided")}
    assert reasons == {"c1": "approval_void", "c2": "approved"}
    assert [start.call_id for start in desk.started()] == ["c2"]
