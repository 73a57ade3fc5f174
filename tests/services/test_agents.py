"""Agents at work: what a run of theirs sees, may call, and keeps."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.agent import BUILT_IN, DEFAULT_AGENT, PLAIN_AGENT, AgentChange
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import AgentRecord
from palyra.core.trust.fences import FENCE_NOTE
from palyra.errors import Conflict, Forbidden, IllegalState, InvalidParams, NotFound, TooLarge
from tests.actors.run.office_kit import OPERATOR, SECRET, STRANGER, Kit, call, running, say
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


def told(instructions: str) -> str:
    """The instructions and tools that the model of such an agent gets."""
    return f"{instructions}\n\n{FENCE_NOTE}"


async def make(kit: Kit, name: str = "scout", **fields: Any) -> AgentRecord:
    """A new agent."""
    change = AgentChange(**{"instructions": "Look round.", **fields})
    return await kit.services.agents.create(OPERATOR, name, change)


async def test_a_run_is_its_agents(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The model gets the agent's name, instructions and tools; the tape has name and version."""
    async with running(store) as kit:
        made = await make(kit, tools=("echo",))
        run_id = await kit.start(agent="scout")
        assert "done" == await kit.end(run_id)
        (request,) = kit.model.requests
        assert ("scout", told("Look round.")) == (request.agent, request.instructions)
        assert ["echo"] == [tool["name"] for tool in request.tools]
        (accepted,) = kit.events(run_id, "run.accepted")
        assert ("scout", made.version) == (accepted.agent, accepted.agent_version)
        assert "scout" == (await kit.gateway.get_run(OPERATOR, run_id)).agent


async def test_tools_outside_the_list_are_unknown(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A tool outside the agent's list is rejected although policies permit it; other agents may call it."""
    async with running(store) as kit:
        await make(kit, tools=("echo",))
        kit.model.turns = [call(("note", {"text": "by scout"})), say("no")]
        run_id = await kit.start(agent="scout")
        assert "done" == await kit.end(run_id)
        (rejected,) = kit.events(run_id, "tool.rejected")
        assert (
            "the agent's tool list and what the request says of tools decide that"
            in rejected.reason
        )
        assert [] == kit.effects
        kit.model.turns = [call(("note", {"text": "by default"})), say("yes")]
        await kit.end(await kit.start())
        assert ["by default"] == kit.effects


async def test_an_unknown_agent_is_refused(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The error names those there are; nothing was started."""
    async with running(store) as kit:
        await make(kit)
        with pytest.raises(
            InvalidParams, match="no agent 'scuot'; known: default, plain, scout"
        ) as caught:
            await kit.start(agent="scuot")
        assert "agent" == caught.value.field
        assert {} == kit.registry.runs


async def test_a_change_is_for_later_runs(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Open and queued runs keep their version of the agent, also over a restart."""
    async with running(store) as kit:
        await make(kit, tools=("echo",))
        kit.model.turns = [trio.Event()]
        first = await kit.start(agent="scout", session_key="k")
        waiting = await kit.start(agent="scout", session_key="k")
        change = AgentChange(instructions="Changed.", tools=())
        await kit.services.agents.update(OPERATOR, "scout", change)
        await kit.services.agents.delete(OPERATOR, "scout")
    async with running(store) as kit:
        assert ["done", "done"] == [await kit.end(first), await kit.end(waiting)]
        seen = [(asked.instructions, len(asked.tools)) for asked in kit.model.requests]
        assert [(told("Look round."), 1)] * 2 == seen
        with pytest.raises(InvalidParams):
            await kit.start(agent="scout")


async def test_an_update_takes_effect(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The next run has the next version, with what the change left out as it was."""
    async with running(store) as kit:
        await make(kit, tools=("echo",), labels=("kind",))
        changed = await kit.services.agents.update(OPERATOR, "scout", AgentChange(instructions="B"))
        assert (2, ("echo",), ("kind",)) == (changed.version, changed.tools, changed.labels)
        await kit.end(run_id := await kit.start(agent="scout"))
        assert told("B") == kit.model.requests[-1].instructions
        assert 2 == kit.events(run_id, "run.accepted")[0].agent_version


async def test_the_name_of_a_deleted_agent_can_be_reused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The new agent continues the version numbers and is another agent."""
    async with running(store) as kit:
        agents = kit.services.agents
        await make(kit, tools=())
        await agents.delete(OPERATOR, "scout")
        assert [DEFAULT_AGENT, PLAIN_AGENT] == await agents.list_all(OPERATOR)
        for look in (agents.get, agents.delete):
            with pytest.raises(NotFound):
                await look(OPERATOR, "scout")
        again = await make(kit)
        assert (3, None, None) == (again.version, again.tools, again.deleted_ms)
        assert [DEFAULT_AGENT, PLAIN_AGENT, again] == await agents.list_all(OPERATOR)


@pytest.mark.parametrize("lost", ["agent", "model"])
async def test_a_run_that_lost_what_it_needs_ends(
    store: MemoryJournal, autojump_clock: MockClock, lost: str
) -> None:
    """A resumed run whose agent or model is not there is cancelled with the reason: no crash."""
    async with running(store) as kit:
        await make(kit)
        kit.model.turns = [trio.Event()]
        run_id = await kit.start(agent="scout")
    if lost == "agent":
        store._records[AgentRecord].clear()  # as after a mishap
    async with running(store) as kit:
        if lost == "model":
            kit.services.models.clear()  # type: ignore[attr-defined]  # a dictionary in the kit
        assert "cancelled" == await kit.end(run_id)
        (ended,) = kit.events(run_id, "run.cancelled")
        assert "start another run" in ended.reason
        assert "palyra" == ended.by


async def test_only_operators_write(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Everybody may look; who lacks the scope changes nothing."""
    async with running(store) as kit:
        agents = kit.services.agents
        await make(kit)
        change = AgentChange(instructions="mine")
        with pytest.raises(Forbidden):
            await agents.create(STRANGER, "mine", change)
        with pytest.raises(Forbidden):
            await agents.update(STRANGER, "scout", change)
        with pytest.raises(Forbidden):
            await agents.delete(STRANGER, "scout")
        assert "Look round." == (await agents.get(STRANGER, "scout")).instructions


@pytest.mark.parametrize("name", BUILT_IN)
async def test_built_in_agents_stay(
    store: MemoryJournal, autojump_clock: MockClock, name: str
) -> None:
    """They always exist, and cannot be changed, deleted or created again."""
    async with running(store) as kit:
        agents = kit.services.agents
        assert BUILT_IN[name] == await agents.get(OPERATOR, name)
        with pytest.raises(Conflict):
            await agents.create(OPERATOR, name, AgentChange())
        with pytest.raises(IllegalState):
            await agents.update(OPERATOR, name, AgentChange())
        with pytest.raises(IllegalState):
            await agents.delete(OPERATOR, name)


async def test_the_plain_agent_has_no_tools(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Its model is shown none, and a call all the same is rejected; the tape names it."""
    async with running(store) as kit:
        kit.model.turns = [call(("echo", {"text": "x"})), say("no")]
        run_id = await kit.start(agent="plain")
        assert "done" == await kit.end(run_id)
        assert () == kit.model.requests[0].tools
        assert 1 == len(kit.events(run_id, "tool.rejected"))
        (accepted,) = kit.events(run_id, "run.accepted")
        assert ("plain", 0) == (accepted.agent, accepted.agent_version)


async def test_a_stored_agent_of_a_built_in_name_comes_first(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """One from before the name was built in still answers; deleted, it makes room for the built-in."""
    mine = AgentRecord(name="plain", version=3, instructions="Mine.")
    async with running(store) as kit:
        await kit.services.agents._append(mine, None)
        agents = kit.services.agents
        assert [DEFAULT_AGENT, mine] == await agents.list_all(OPERATOR)
        assert [mine, mine, PLAIN_AGENT] == [
            await agents.get_present("plain"),
            await agents.find_version("plain", 3),
            await agents.find_version("plain", 0),
        ]
        changed = await agents.update(OPERATOR, "plain", AgentChange(instructions="More."))
        assert (4, "More.") == (changed.version, changed.instructions)
        await agents.delete(OPERATOR, "plain")
        assert [DEFAULT_AGENT, PLAIN_AGENT] == await agents.list_all(OPERATOR)
        assert PLAIN_AGENT == await agents.get_present("plain")


async def test_an_invalid_agent_is_refused(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Duplicates, secrets, unknown tools and models are refused, and nothing is stored."""
    async with running(store) as kit:
        await make(kit)
        with pytest.raises(Conflict, match="exists"):
            await make(kit)
        for fields in (
            {"instructions": f"The word is {SECRET}."},
            {"labels": (SECRET,)},
            {"model": "gpt"},
            {"tools": ("shell",)},
        ):
            with pytest.raises(InvalidParams) as caught:
                await make(kit, "other", **fields)
            assert SECRET not in caught.value.message
            with pytest.raises(InvalidParams):
                await kit.services.agents.update(OPERATOR, "scout", AgentChange(**fields))
        found = await kit.services.agents.list_all(OPERATOR)
        assert [("default", 0), ("plain", 0), ("scout", 1)] == [
            (agent.name, agent.version) for agent in found
        ]


async def test_there_is_a_most(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One agent too many is refused with the number."""
    monkeypatch.setattr("palyra.services.registry.agents.MAX_AGENTS", 1)
    async with running(store) as kit:
        await make(kit)
        with pytest.raises(TooLarge, match="1 agents exist"):
            await make(kit, "other")


async def test_the_receipt_comes_with_the_change(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """One commit holds both, so no crash separates them."""
    async with running(store) as kit:
        key = IdempotencyKey(principal="ann", key="k", body_sha256="00")
        await kit.services.agents.create(OPERATOR, "scout", AgentChange(instructions="x"), key)
        found = store.find_receipt("ann", "k", now_ms=0)
        assert found is not None
        assert b'"name":"scout"' in bytes(found.result)


async def test_the_second_of_two_concurrent_changes_is_a_conflict(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It overwrites nothing of the first."""
    async with running(store) as kit:
        await make(kit)
        outcomes: list[str] = []

        async def change(text: str) -> None:
            try:
                await kit.services.agents.update(OPERATOR, "scout", AgentChange(instructions=text))
                outcomes.append("done")
            except Conflict:
                outcomes.append("conflict")

        kit.journal.hold = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change, "a")
            nursery.start_soon(change, "b")
            await wait_all_tasks_blocked(0.0001)
            kit.journal.flush()
        assert ["conflict", "done"] == sorted(outcomes)
        assert 2 == (await kit.services.agents.get(OPERATOR, "scout")).version


async def test_the_catalogue_is_the_agents(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """`tool.list` and `policy.explain` answer for the agent that is named."""
    async with running(store) as kit:
        await make(kit, tools=("echo",))
        agents = kit.services.agents
        assert ["echo"] == list(
            agents.prefix(await agents.get_present("scout"), "ann").catalogue.tools
        )
        assert "note" in agents.prefix(await agents.get_present(None), "ann").catalogue.tools
        said = await kit.gateway.explain_policy(OPERATOR, "note", {})
        assert "allow" == said.answer
        with pytest.raises(InvalidParams, match="tool list"):
            await kit.gateway.explain_policy(OPERATOR, "note", {}, "scout")


async def test_the_cache_of_agents_is_bounded(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicted versions and prefixes are read again; runs do not notice."""
    monkeypatch.setattr("palyra.services.registry.agents.MAX_KNOWN", 1)
    async with running(store) as kit:
        for name in ("scout", "clerk"):
            await make(kit, name)
        for name in ("scout", "clerk", "scout"):
            assert "done" == await kit.end(await kit.start(agent=name))
            assert name == kit.model.requests[-1].agent
        assert (1, 1) == (len(kit.services.agents._versions), len(kit.services.agents._prefixes))
