"""Questions of the model (`ask_user`) wait without holding the other calls of their turn."""

from typing import Any

import msgspec
import pytest

from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import Allow, NeedsApproval
from palyra.core.policy.questions import ASK_USER
from palyra.core.run.decide import MAX_GATED
from palyra.core.run.environment import GatedCall
from palyra.core.run.inputs import CallInspected, Cancel, Inspect, Resume, RulesChanged
from palyra.core.run.state import Run, apply
from palyra.core.tape import events as ev
from palyra.core.tool.spec import CLIENT
from palyra.errors import InvariantBroken
from tests.core.run.test_asking import WORDS, Desk, ended


class Asker(Desk):
    """A run whose tools need a person if their name begins with `ask`; all are effects but a question."""

    def evaluate(self, run: Run, call: ProposedCall) -> GatedCall:
        gated = super().evaluate(run, call)
        if not call.tool.startswith("ask"):
            verdict: Any = Allow(**WORDS, version=self.version)
            is_client = call.tool == "client"
            return msgspec.structs.replace(
                gated, verdict=verdict, inspects=False, executor=CLIENT if is_client else "none"
            )
        if isinstance(gated.verdict, NeedsApproval) and call.tool == ASK_USER:
            return msgspec.structs.replace(gated, tool_class="read_only_safe", inspects=False)
        return gated

    def answer_to(self, call_id: str, decision: str = "allow", **fields: Any) -> list[str]:
        asking = self.run.find_call(call_id)
        assert asking is not None
        return self.answer(decision, approval_id=asking.approval_id, **fields)

    def start_order(self) -> list[str]:
        return [start.call_id for start in self.drafts("tool.started")]

    def turns(self) -> int:
        return len(self.drafts("turn.started"))


def test_calls_behind_and_before_a_question_run_while_it_waits() -> None:
    """The next turn starts once the question is answered as well."""
    asker = Asker()
    asker.propose("one", ASK_USER, "two")
    assert asker.phases() == ["started", "asking", "allowed"]
    asker.hear(ended("c1"))
    assert asker.phases() == ["attested", "asking", "started"]
    asker.hear(ended("c3"))
    assert (asker.phases(), asker.turns()) == (["attested", "asking", "attested"], 1)
    asker.answer()
    assert asker.start_order() == ["c1", "c3", "c2"]
    asker.hear(ended("c2"))
    assert asker.turns() == 2
    assert asker.refold() == asker.run


def test_an_answer_is_used_at_once_whatever_runs() -> None:
    """A long call would otherwise outlast the approval that carries the words."""
    asker = Asker()
    asker.propose(ASK_USER, "long")
    assert asker.phases() == ["asking", "started"]
    assert asker.answer()[-1] == "tool.started"
    assert asker.phases() == ["started", "started"]
    assert [start.batch for start in asker.drafts("tool.started")] == [1, 2]
    asker.hear(ended("c1"))
    assert asker.turns() == 1
    asker.hear(ended("c2"))
    assert asker.turns() == 2
    assert asker.refold() == asker.run


def test_any_other_approval_holds_the_turn_beside_a_question() -> None:
    """Its call may have effects that later calls count on: nothing starts before its answer."""
    asker = Asker()
    asker.propose(ASK_USER, "ask_write", "one")
    assert asker.phases() == ["asking", "asking", "named"]
    assert asker.run.pending_approvals == 2
    asker.answer_to("c2", "deny")
    assert asker.phases() == ["asking", "attested", "started"]
    asker.hear(ended("c3"))
    asker.answer_to("c1")
    assert asker.start_order() == ["c3", "c1"]
    assert asker.refold() == asker.run


def test_a_question_behind_another_approval_is_asked_after_it() -> None:
    """Calls are evaluated in the model's order up to the approval."""
    asker = Asker()
    asker.propose("ask_write", ASK_USER, "one")
    assert asker.phases() == ["asking", "named", "named"]
    asker.answer_to("c1")
    assert asker.phases() == ["started", "asking", "allowed"]


def test_questions_of_one_turn_are_asked_together() -> None:
    """Each is answered for itself, in any order."""
    asker = Asker()
    asker.propose(ASK_USER, ASK_USER)
    assert asker.phases() == ["asking", "asking"]
    asker.answer_to("c2")
    asker.answer_to("c1", "deny", reason="no")
    assert asker.phases() == ["attested", "started"]
    asker.hear(ended("c2"))
    assert asker.turns() == 2
    assert asker.refold() == asker.run


def test_an_equal_question_waits_for_the_first_ones_answer() -> None:
    """It is not asked twice, and holds no other call."""
    asker = Asker()
    asker.same["c1"] = ("c2",)
    asker.propose(ASK_USER, ASK_USER, "one")
    assert asker.phases() == ["asking", "named", "started"]
    asker.answer()
    assert len(asker.drafts("approval.requested")) == 1
    assert asker.phases() == ["started", "started", "started"]
    assert asker.refold() == asker.run


def test_a_call_that_is_inspected_holds_later_ones_beside_a_question() -> None:
    """Evaluation goes on with its result, while the question waits."""
    asker = Asker()
    asker.looks = True
    asker.propose(ASK_USER, "ask_write", "one")
    assert asker.phases() == ["asking", "proposed", "named"]
    assert Inspect(call_id="c2") in asker.effects
    asker.hear(CallInspected(call_id="c2", failure="gone"))
    assert asker.phases() == ["asking", "attested", "started"]


def test_a_run_with_a_question_does_not_end_by_its_clients_calls() -> None:
    """They end the run once the question has its answer."""
    asker = Asker()
    asker.propose("client", ASK_USER)
    assert (asker.phases(), asker.run.is_terminal) == (["attested", "asking"], False)
    asker.answer()
    asker.hear(ended("c2"))
    assert asker.run.is_terminal


def test_more_calls_than_one_step_evaluates_pass_a_question() -> None:
    """Evaluation yields behind it as behind any other call."""
    asker = Asker()
    asker.propose(ASK_USER, *["one"] * 2 * MAX_GATED)
    assert asker.phases() == ["asking", "started", *["allowed"] * (2 * MAX_GATED - 1)]
    assert asker.refold() == asker.run


def test_more_equal_questions_than_one_step_evaluates_hold_nothing() -> None:
    """Those that wait for the answer to the first are passed over."""
    asker, many = Asker(), 2 * MAX_GATED
    asker.same["c1"] = tuple(f"c{number}" for number in range(2, many + 1))
    asker.propose(*[ASK_USER] * many, "one")
    assert asker.phases() == ["asking", *["named"] * (many - 1), "started"]
    asker.hear(ended(f"c{many + 1}"))
    asker.answer()
    assert asker.phases() == [*["started"] * many, "attested"]
    assert asker.refold() == asker.run


def test_changed_rules_withdraw_every_stale_question() -> None:
    """Both are asked again under new ids; a call that runs is left alone."""
    asker = Asker()
    asker.propose(ASK_USER, "one", ASK_USER)
    asker.version = "v2"
    kinds = asker.hear(RulesChanged())
    assert kinds == ["approval.resolved", "approval.requested"] * 2
    assert asker.phases() == ["asking", "started", "asking"]
    assert len({each.approval_id for each in asker.drafts("approval.requested")}) == 4
    assert asker.refold() == asker.run


def test_a_resumed_run_asks_again_and_repeats_what_it_may() -> None:
    """The attempt counts, because a started call may be why the daemon stopped."""
    asker = Asker()
    asker.propose(ASK_USER, "one")
    asker.hear(Resume())
    assert (asker.phases(), asker.run.recoveries) == (["asking", "attested"], 1)
    assert asker.drafts("tool.completed")[0].status == "unknown"
    asker.hear(Resume())
    assert asker.run.recoveries == 1, "nothing but a question waits"


def test_the_end_of_a_run_closes_question_and_calls() -> None:
    """Every proposed call is attested once."""
    asker = Asker()
    asker.propose(ASK_USER, "one", "two", ASK_USER)
    asker.hear(Cancel(reason="enough", by="ann"))
    assert asker.run.is_terminal
    assert asker.phases() == ["attested"] * 4
    assert [each.decision for each in asker.drafts("approval.resolved")] == ["abort", "abort"]


def test_the_clock_stands_from_the_first_question_to_the_last_answer() -> None:
    """Two questions that wait at once are not counted twice."""
    asker = Asker()
    asker.propose(ASK_USER, ASK_USER)
    asked_ms = [at for kind, at, _ in asker.tape if kind == "approval.requested"]
    asker.answer_to("c1")
    clocks = [asker.run.clock]
    asker.answer_to("c2")
    clocks.append(asker.run.clock)
    answered_ms = [at for kind, at, _ in asker.tape if kind == "approval.resolved"]
    assert [clock.asked_ms for clock in clocks] == [asked_ms[0], None]
    assert [clock.people_ms for clock in clocks] == [0, answered_ms[-1] - asked_ms[0]]


def test_a_question_is_answered_once_while_another_waits() -> None:
    """A second answer is no legal event, before the verdict follows from the first."""
    asker = Asker()
    asker.propose(ASK_USER, ASK_USER)
    first = asker.run.calls[0]
    said = ev.ApprovalResolved(
        approval_id=first.approval_id or "", call_id="c1", decision="allow", scope="once",
        by="bob", reason="",
    )  # fmt: skip
    answered = apply(asker.run, said, 9_000)
    with pytest.raises(InvariantBroken):
        apply(answered, said, 9_001)
