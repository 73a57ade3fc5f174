"""Delegation: rights, shares, ends, and what a run with children may do."""

import msgspec
import pytest

from palyra.core.journal.records import AgentRecord, GrantRecord, Usage
from palyra.core.model.messages import ModelTurn, ProposedCall
from palyra.core.policy.request import PolicyDecision, strictest
from palyra.core.run.call import Call, DelegatedRun
from palyra.core.run.delegation import (
    ChildEnd,
    find_other_rights,
    find_refusal,
    handed_down,
    keep_grant,
    plan_delegation,
    render_end,
)
from palyra.core.run.inputs import Begin, CallEnded, Cancel, Execute, Resume, TurnFinished
from palyra.core.run.state import begin, find_unresolved, fold
from palyra.core.tape import events as ev
from palyra.core.tool.spec import DelegatedEnd
from tests.core.run.run_world import World
from tests.rows import every_row

USED = Usage(input_tokens=3, output_tokens=4)
END = DelegatedEnd(state="done", reason="answered", usage=USED, cost_usd_micros=5)


def delegating(count: int) -> World:
    """A run whose model delegates that many tasks in its first turn."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    calls = tuple(
        ProposedCall(call_id=f"c{n}", tool="allow:delegation", arguments={}) for n in range(count)
    )
    result = ModelTurn(text="", calls=calls, finish_reason="tool_calls", usage=USED)
    world.hear(TurnFinished(turn=1, attempt=1, result=result))
    return world


def ended(call_id: str, end: DelegatedEnd | None = END) -> CallEnded:
    """The end of a call with the end of its child."""
    return CallEnded(call_id=call_id, status="succeeded", output="o", raw_sha256="", delegated=end)


def running(world: World) -> list[str]:
    """Calls with an open child."""
    open_calls = (call for call in world.run.calls if call.delegated is not None)
    return [c.call_id for c in open_calls if c.delegated is not None and not c.delegated.is_ended]


def test_four_children_are_open_at_once_and_the_fifth_follows() -> None:
    """A turn with five delegations has two batches."""
    world = delegating(5)
    assert ["c0", "c1", "c2", "c3"] == running(world)
    for number in (2, 0, 3):
        world.hear(ended(f"c{number}"))
    assert ["c1"] == running(world)
    world.hear(ended("c1"))
    assert ["c4"] == running(world)
    world.hear(ended("c4"))
    assert world.run.turn_is_open
    assert Usage(input_tokens=15, output_tokens=20) == world.run.costs.delegated_usage
    assert 25 == world.run.costs.delegated_usd_micros
    assert fold("run_1", world.tape) == world.run


def test_a_second_end_of_a_child_changes_nothing() -> None:
    """The outcome of a call is taken once, whatever arrives afterwards."""
    world = delegating(1)
    world.hear(ended("c0"))
    before = world.run
    assert [] == world.hear(ended("c0"))
    assert before == world.run


def test_waiting_for_children_costs_no_attempt() -> None:
    """Many resumes while children are open exhaust nothing; an open turn counts as before."""
    world = delegating(2)
    for _ in range(5):
        assert ["run.recovered"] == world.hear(Resume())
    assert 0 == world.run.recoveries
    world.hear(ended("c0"))
    world.hear(Resume())
    assert 0 == world.run.recoveries
    world.hear(ended("c1"))
    world.hear(Resume())
    assert 1 == world.run.recoveries
    assert fold("run_1", world.tape) == world.run


def test_time_of_people_below_is_not_time_of_the_run() -> None:
    """The pause that an end records is no part of the time that the run has spent."""
    world = delegating(1)
    world.hear(ended("c0", msgspec.structs.replace(END, people_ms=2)))
    assert world.run.spent_ms(with_people=True) == world.run.spent_ms() + 2


def test_a_restart_awaits_the_same_child() -> None:
    """The call is executed again; no second child gets a name."""
    world = delegating(1)
    kinds = world.hear(Resume())
    assert "delegation.started" not in kinds
    assert isinstance(world.effects[-1], Execute)
    assert ["c0"] == running(world)


@pytest.mark.parametrize("end", [END, None])
def test_an_outcome_always_has_the_end_of_the_child(end: DelegatedEnd | None) -> None:
    """A call that never started its child ends it as refused."""
    world = delegating(1)
    kinds = world.hear(ended("c0", end))
    assert ["tool.completed", "delegation.ended", "tool.attested"] == kinds[:3]


def test_a_cancel_ends_every_open_child_on_the_tape() -> None:
    """The tape of a cancelled run has one end for each start."""
    world = delegating(3)
    world.hear(ended("c1"))
    kinds = world.hear(Cancel(reason="enough", by="ann"))
    assert 2 == kinds.count("delegation.ended")
    assert "run.cancelled" == kinds[-1]


@every_row(
    ("depth", "arguments", "word"),
    [
        (2, {}, None),
        (3, {}, "deep"),
        (0, {"tools": ["echo"]}, None),
        (0, {"tools": ["echo", "shell"]}, "shell"),
        (0, {"tools": []}, None),
    ],
)
def test_depth_and_tools_are_refused_by_name(
    depth: int, arguments: dict[str, object], word: str | None
) -> None:
    """A run hands down what it has, three levels deep."""
    found = find_refusal(depth, arguments, {"echo", "delegate"})
    assert (word is None) == (found is None)
    if found is not None and word is not None:
        assert word in found.reason
        assert found.repair_hint


def test_a_child_gets_the_intersection() -> None:
    """Never a tool that the run lacks; the deepest run cannot delegate."""
    held = {"echo", "delegate", "glob"}
    assert ("delegate", "echo", "glob") == handed_down(None, held, 1)
    assert ("echo", "glob") == handed_down(None, held, 3)
    assert ("echo",) == handed_down(["echo", "shell"], held, 1)
    assert () == handed_down([], held, 1)


def test_an_agent_with_other_rights_is_refused() -> None:
    """Labels and memory scope have to be equal, because neither has an order of strictness."""
    own = AgentRecord(name="a", version=1, instructions="", labels=("x",))
    assert not find_other_rights(own, msgspec.structs.replace(own, name="b"))
    assert "labels" in find_other_rights(own, msgspec.structs.replace(own, labels=()))
    assert "labels" in find_other_rights(own, msgspec.structs.replace(own, labels=("x", "y")))
    other = msgspec.structs.replace(own, memory_scope="session")
    assert "memory scope" in find_other_rights(own, other)


def test_the_strictest_decision_holds() -> None:
    """A denial above wins over a permission, and a question over a permission."""

    def decision(answer: str) -> PolicyDecision:
        return msgspec.convert(
            {"answer": answer, "reason_code": answer, "reason": "", "policies": [], "version": "v"},
            PolicyDecision,
        )

    made = {answer: decision(answer) for answer in ("allow", "ask", "deny")}
    assert "deny" == strictest([made["allow"], made["deny"], made["ask"]]).answer
    assert "ask" == strictest([made["ask"], made["allow"]]).answer
    assert "allow" == strictest([made["allow"]]).answer


def test_a_grant_holds_for_a_child_of_the_same_agent_only() -> None:
    """A permission of the child's agent is not its parent's; a denial always holds."""
    grant = GrantRecord(
        grant_id="g", principal="p", agent="a", tool="t", key="k", decision="allow",
        scope="timeboxed", session_id="s", epoch=0, approval_id="x", by="p",
        granted_ms=0,
    )  # fmt: skip
    denied = msgspec.structs.replace(grant, decision="deny")
    same, other = (ev.Delegation(call_id="c", agents=(name,)) for name in ("a", "b"))
    assert grant == keep_grant(same, grant)
    assert keep_grant(other, grant) is None
    assert denied == keep_grant(other, denied)


@every_row(
    ("wanted", "left", "lent", "share"),
    [
        (None, None, [], None),
        (50, None, [], 50),
        (None, 100, [], 25),
        (None, 100, [25, 25, 25], 25),
        (None, 101, [], 26),
        (90, 100, [], 90),
        (200, 100, [], 100),
        (90, 100, [60], 40),
        (10, 0, [], 0),
        (10, 100, [100], 0),
    ],
)
def test_shares_never_add_up_to_more_than_is_left(
    wanted: int | None, left: int | None, lent: list[int], share: int | None
) -> None:
    """A share is what is wanted, at most what is left and not lent."""
    world = delegating(0)
    calls = [
        Call(
            call_id=f"l{number}",
            tool="delegate",
            arguments={},
            phase="started",
            delegated=DelegatedRun(run_id=f"r{number}", budget=ev.Budget(tokens=tokens)),
        )
        for number, tokens in enumerate(lent)
    ]
    run = msgspec.structs.replace(world.run, calls=tuple(calls))
    arguments = {} if wanted is None else {"budget": {"tokens": wanted}}
    call = Call(call_id="c", tool="delegate", arguments=arguments)
    planned = plan_delegation(run, call, run_id="run_2", left=ev.Budget(tokens=left, wall_ms=900))
    assert share == planned.budget.tokens
    assert 900 == planned.budget.wall_ms


def test_taint_goes_down_and_comes_back() -> None:
    """A child starts as tainted as its parent; an unreadable child counts as tainted."""
    accepted = ev.RunAccepted(
        principal="p", session_id="s", agent="a", model="m", depth=1, parent_run_id="run_1",
        delegation=ev.Delegation(
            call_id="c", agents=("a",), is_tainted=True, input_trust="external_untrusted"
        ),
    )  # fmt: skip
    child = begin("run_2", accepted, 1)
    assert child.is_tainted
    assert "external_untrusted" == child.input_trust
    clean = ChildEnd(run_id="run_2", end=END, answer="x", is_tainted=False, trust="trusted_local")
    assert ((), "workspace") == (render_end(clean).findings, render_end(clean).trust)
    unread = render_end(ChildEnd(run_id="run_2", end=END))
    assert unread.findings
    assert "mixed" == unread.trust


def test_references_of_a_task_are_plain_text() -> None:
    """A task names no file for the daemon to read; the same text of a user does."""

    def after(depth: int) -> int:
        accepted = ev.RunAccepted(principal="p", session_id="s", agent="a", model="m", depth=depth)
        event = ev.MessageReceived(text="look at @file:secret.txt", by="p")
        rows = [(each.KIND, 1, ev.encode_event(each)) for each in (accepted, event)]
        run = fold("run_2", rows)
        return len(find_unresolved(run)) + run.has_references

    assert (2, 0) == (after(0), after(1))


@every_row(
    ("state", "is_failure"),
    [("done", False), ("partial", False), ("failed", True), ("cancelled", True)],
)
def test_an_end_without_an_answer_is_a_failed_call(state: str, *, is_failure: bool) -> None:
    """The model reads the state and the reason of anything but a plain answer."""
    end = msgspec.structs.replace(END, state=state, reason="because")
    shown = render_end(ChildEnd(run_id="run_2", end=end, answer="the answer"))
    assert is_failure == shown.is_failure
    assert "the answer" in shown.text
    assert (state != "done") == ("because" in shown.text)
