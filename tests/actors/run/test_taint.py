"""Taint: once a text with findings has reached a run, a person decides about what is sensitive."""

from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.model.messages import ToolMessage
from palyra.core.run.calls import ended_with
from palyra.core.run.inputs import CallEnded
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput
from palyra.core.trust.fences import FENCE_NOTE, inside_fence
from palyra.core.trust.labels import Trust
from palyra.tools.toolbox import InlineTool
from tests.actors.run.office_kit import OPERATOR, Kit, call, running, say, spec
from tests.core.trust.injection_samples import PLAIN_ATTACK
from tests.store.memory.journal import MemoryJournal

PAGES: dict[str, tuple[str, Trust]] = {
    "hostile": (PLAIN_ATTACK, "external_untrusted"),
    "hostile file": (PLAIN_ATTACK, "workspace"),
    "own words": (PLAIN_ATTACK, "trusted_local"),
    "plain": ("Nothing to see.", "external_untrusted"),
    "long": ("line\n" * 5_000 + PLAIN_ATTACK, "external_untrusted"),
    "buried": ("line\n" * 5_000 + PLAIN_ATTACK + "line\n" * 5_000, "external_untrusted"),
}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    """A journal for one test, of a daemon with a tool that returns pages and one that fails."""

    def page(called: ToolCall) -> ToolOutput:
        text, trust = PAGES[called.arguments["text"]]
        return ToolOutput(text=text, trust=trust)

    def broken(called: ToolCall) -> ToolOutput:
        raise ToolFailure(PAGES[called.arguments["text"]][0])

    built_in = Kit.tools
    more = [InlineTool(spec("page", "read_only_safe"), page), InlineTool(spec("broken"), broken)]
    monkeypatch.setattr(Kit, "tools", lambda kit: [*built_in(kit), *more])
    journal = MemoryJournal()
    journal.open()
    return journal


async def read_then_act(kit: Kit, *read: tuple[str, Any], **fields: Any) -> str:
    """A run that reads, then proposes a sensitive call that the rules allow."""
    kit.model.turns = [*(call(one) for one in read), call(("note", {"text": "acted"})), say("done")]
    run_id = await kit.start(**fields)
    await wait_all_tasks_blocked()
    return run_id


@pytest.mark.parametrize(
    ("tool", "page", "asks"),
    [
        ("page", "hostile", True),
        ("page", "hostile file", True),
        ("broken", "hostile", True),
        ("page", "long", True),
        ("page", "plain", False),
        ("page", "own words", False),
        ("page", "buried", False),  # what the model is not shown cannot speak to it
    ],
)
async def test_findings_make_a_sensitive_call_ask(
    store: MemoryJournal, autojump_clock: MockClock, tool: str, page: str, *, asks: bool
) -> None:
    """The rules allow the call; after findings it waits for a person all the same."""
    async with running(store) as kit:
        run_id = await read_then_act(kit, (tool, {"text": page}))
        assert asks == ("approval.requested" in kit.kinds(run_id))
        assert ([] if asks else ["acted"]) == kit.effects
        completed = kit.events(run_id, "tool.completed")[0]
        assert asks == any(found.startswith("override:") for found in completed.findings)


async def test_reads_are_allowed_under_taint(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Taint affects effects, not reads; the verdict says that the run is tainted."""
    async with running(store) as kit:
        kit.model.turns = [call(("page", {"text": "hostile"}))] * 2
        kit.model.turns += [call(("page", {"text": "plain"})), say("done")]
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        assert [False, True, True] == [one.taint for one in kit.events(run_id, "tool.decided")]


async def test_taint_survives_a_restart(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """It is folded from the tape like everything else."""
    async with running(store) as kit:
        kit.model.turns = [call(("page", {"text": "hostile"})), call(("hang_safe", {"text": "x"}))]
        run_id = await kit.start()
        await wait_all_tasks_blocked()
    async with running(store) as kit:
        kit.gate_open.set()
        kit.model.turns = [call(("note", {"text": "acted"})), say("done")]
        await wait_all_tasks_blocked()
        assert kit.live(run_id).run.is_tainted
        assert "approval.requested" in kit.kinds(run_id)
        assert [] == kit.effects


async def test_taint_is_inherited(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """A fork of a tainted conversation is tainted; a fork before the finding is not."""
    async with running(store) as kit:
        run_id = await read_then_act(kit, ("page", {"text": "hostile"}), approval_mode="deny")
        assert "done" == await kit.end(run_id)
        read = next(row.seq for row in kit.rows(run_id) if row.kind == "tool.attested")
        for at_seq, is_tainted in ((read, True), (1, False)):
            kit.effects.clear()
            kit.model.turns = [call(("note", {"text": "acted"})), say("done")]
            made = await kit.gateway.fork_run(OPERATOR, run_id, at_seq, "go on")
            await wait_all_tasks_blocked()
            decided = kit.events(made.run_id, "tool.decided")[0]
            assert is_tainted == decided.taint
            assert ("deny" if is_tainted else "allow") == decided.verdict  # nobody can be asked
            assert ([] if is_tainted else ["acted"]) == kit.effects


async def test_the_model_sees_fences(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Tool output is fenced with label and source, the same in every later turn."""
    async with running(store) as kit:
        kit.model.turns = [call(("page", {"text": "hostile"})), call(("page", {"text": "plain"}))]
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        first, again = (shown(request.messages) for request in kit.model.requests[1:])
        assert first == again[:1]
        assert 'trust="external_untrusted" source="page" authority="none"' in first[0]
        assert [PLAIN_ATTACK, "Nothing to see."] == list(map(inside_fence, again))
        assert kit.model.requests[0].instructions.endswith(FENCE_NOTE)
        trusts = [
            segment["trust"]
            for event in kit.events(run_id, "context.assembled")
            for segment in event.segments
            if segment["layer"] == "conversation"
        ]
        assert ["mixed", "mixed"] == trusts


def shown(messages: tuple[Any, ...]) -> list[str]:
    """The tool outputs as the model sees them."""
    return [message.output for message in messages if isinstance(message, ToolMessage)]


async def test_control_without_findings(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: with the scanner off the same run acts without asking anybody."""

    def blind(*arguments: Any) -> CallEnded:
        ended = ended_with(*arguments)
        return type(ended)(
            **{f: getattr(ended, f) for f in ended.__struct_fields__} | {"findings": ()}
        )

    monkeypatch.setattr("palyra.actors.run.tool_call.ended_with", blind)
    async with running(store) as kit:
        await read_then_act(kit, ("page", {"text": "hostile"}))
        assert ["acted"] == kit.effects
