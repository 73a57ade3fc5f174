"""Previews of approvals whose question is on its way to the disk."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest
import trio

from palyra.core.journal.changes import Change
from palyra.core.journal.records import ModeChange, SessionMode
from palyra.core.policy.recorded import PolicyEvidence
from palyra.core.policy.request import PolicyRequest
from palyra.core.ports import JournalStore
from palyra.core.tool.spec import Preflight, ToolCall
from palyra.core.tool.targets import CallTargets
from palyra.errors import NotFound
from palyra.services.policy import previews as service
from palyra.services.policy.previews import Previews
from tests.actors.run.office_kit import OPERATOR, inline_blocking
from tests.store.kit import approval, run, session
from tests.store.memory.journal import MemoryJournal

T = TypeVar("T")

ASKED = approval("apr_a", call_id="")


class LateJournal:
    """A journal with changes that are committed when the next one is."""

    def __init__(self, *waiting: Change) -> None:
        self.store = MemoryJournal()
        self.store.open()
        self.waiting = list(waiting)
        self.commits = 0

    @property
    def backlog(self) -> int:
        return len(self.waiting)

    async def commit(self, change: Change) -> None:
        self.commits += 1
        assert [None] * (len(self.waiting) + 1) == self.store.commit([*self.waiting, change])
        self.waiting.clear()

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        return query(cast("JournalStore", self.store))


class Shell:
    """Tools of which a call can be inspected, and names these targets."""

    def __init__(self, targets: CallTargets | None) -> None:
        self.targets = targets

    def inspects(self, tool: str) -> bool:
        return tool == ASKED.tool

    async def inspect(self, _call: ToolCall) -> Preflight:
        await trio.lowlevel.checkpoint()
        return Preflight(binary="/bin/sh", operands={"build.sh": "22", "new.sh": "33"})

    def find_targets(self, _call: ToolCall) -> CallTargets | None:
        return self.targets


def previews(journal: LateJournal, tools: Shell | None = None) -> Previews:
    none: Any = None
    return Previews(
        cast("Any", journal), tools or none, none, lambda text: (text, False), inline_blocking
    )


async def test_question_on_its_way_to_the_disk_has_a_preview() -> None:
    """Clients get an event before it is committed, so its record may be found a moment later."""
    journal = LateJournal(Change(records=(ASKED,)))
    assert "apr_a" == (await previews(journal).preview(OPERATOR, "apr_a")).approval_id


@pytest.mark.parametrize(("waiting", "commits"), [((), 0), ((Change(),), 1)])
async def test_approval_that_never_was_is_not_found(
    waiting: tuple[Change, ...], commits: int
) -> None:
    """An unknown id waits for what the journal has, at most, and writes nothing when it has nothing."""
    journal = LateJournal(*waiting)
    with pytest.raises(NotFound, match="apr_b"):
        await previews(journal).preview(OPERATOR, "apr_b")
    assert commits == journal.commits


@pytest.mark.parametrize(("mode", "is_said"), [("plan", True), ("ask", False)])
async def test_question_about_a_plan_says_which_mode_follows(
    mode: SessionMode, *, is_said: bool
) -> None:
    """Accepting a plan may end the questions about files, so the preview names the mode after it."""
    asked = approval("apr_p", tool="propose_plan", call_id="")
    change = ModeChange(by="ann", role="operator", at_ms=1, before="accept_edits")
    held = session(asked.session_id, mode=mode, mode_set=change)
    found = await previews(LateJournal(Change(records=(held, asked)))).preview(OPERATOR, "apr_p")
    assert is_said == ("the session is in the mode accept_edits again" in str(found.blocks))


@pytest.mark.parametrize("targets", [None, CallTargets(), CallTargets(address="example.org:443")])
async def test_a_call_without_files_is_inspected_again(targets: CallTargets | None) -> None:
    """Whatever its tool names: what is not as it was when the question was asked is said."""
    asked = approval(
        "apr_c", inspection={"binary": "/bin/sh", "operands": {"build.sh": "11", "new.sh": "33"}}
    )
    journal = LateJournal(Change(records=(asked,)))
    shown = await previews(journal, Shell(targets)).preview(OPERATOR, "apr_c")
    assert ("build.sh is not as it was when the question was asked",) == shown.stale


def test_a_reach_names_five_examples() -> None:
    """All calls count; the five newest are named."""
    request = PolicyRequest(
        action="tool.execute",
        principal="alice",
        role="client",
        agent="default",
        session_id="ses_a",
        run_id="run_a",
        origin="interactive",
        tool="shell",
        tool_class="program",
        risk="high",
        capabilities=(),
        owner="alice",
    )
    calls = [f"call_{number}" for number in range(7)]
    recent = [
        ("ses_a", PolicyEvidence(request=request, decided="allowed", run_id="run_a",
                                 call_id=call, summary=f"run {call}"))
        for call in calls
    ]  # fmt: skip
    asked = approval("apr_d", covers=tuple(calls))
    found = service._reach(asked, "once", recent)
    assert (7, 7, tuple(f"run {call}" for call in calls[:5])) == (
        found.calls,
        found.asked,
        found.examples,
    )


async def test_a_preview_names_the_delegating_runs_and_the_earlier_answers() -> None:
    """Answers of the same key, tool and agent count, others do not; the parent of a fork asked nothing."""
    records = (
        run("run_root", parent_run_id="run_forked"),
        run("run_child", parent_run_id="run_root", depth=1, agent="scout"),
        approval("apr_1", grant_key="k", state="allowed", by="ann", resolved_ms=5),
        approval("apr_2", grant_key="k", state="denied", by="eve", resolved_ms=9),
        approval("apr_3", grant_key="k", state="aborted", resolved_ms=11),
        approval("apr_4", grant_key="other", state="allowed", resolved_ms=12),
        approval("apr_5", grant_key="k", run_id="run_child"),
    )
    journal = LateJournal(Change(records=records))
    shown = await previews(journal, Shell(None)).preview(OPERATOR, "apr_5")
    assert [("run_child", "scout", 1), ("run_root", "default", 0)] == [
        (each.run_id, each.agent, each.depth) for each in shown.chain
    ]
    earlier = shown.earlier
    assert (1, 1, 9, "eve") == (
        earlier.allowed, earlier.denied, earlier.latest_ms, earlier.latest_by,
    )  # fmt: skip
