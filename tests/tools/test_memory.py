"""Tools of the memory: what a run reaches, and under which label."""

from pathlib import Path
from typing import Any

import pytest

from palyra.core.audience import Audience
from palyra.core.journal.changes import Change, MemoryFilter
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput, compute_risk, is_sensitive
from palyra.tools.memory import FORGET, RETAIN, SEARCH, SESSIONS, memory_tools
from palyra.tools.toolbox import AsyncTool
from tests.services.memory_kit import ANN, BOB, SECRET, MemoryKit, place
from tests.store.kit import row, run, session

pytestmark = pytest.mark.real


@pytest.fixture
def kit(tmp_path: Path) -> MemoryKit:
    return MemoryKit(tmp_path)


async def use(
    kit: MemoryKit,
    name: str,
    *,
    call: dict[str, Any] | None = None,
    audience: dict[str, Any] | None = None,
    **given: Any,
) -> ToolOutput:
    """Call a tool for a run of ann's."""
    tools = {tool.spec.name: tool for tool in memory_tools(kit.search, kit.memories)}
    tool = tools[name]
    assert isinstance(tool, AsyncTool)
    made = ToolCall(
        **{
            "call_id": "call_1",
            "run_id": "run_now",
            "session_id": "ses_1",
            "principal": "ann",
            "tool": name,
            "tool_version": "1",
            "arguments": given,
            "audience": Audience(
                **{
                    "principal": "ann",
                    "session_id": (call or {}).get("session_id", "ses_1"),
                    "memory_scope": "principal",
                    "is_confined": False,
                    **(audience or {}),
                }
            ),
            **(call or {}),
        }
    )
    return await tool.run(made, lambda _text: None)


async def test_search_returns_what_the_run_may_recall(kit: MemoryKit) -> None:
    """Hits are lines with ids; foreign principals, channels and sessions are not among them."""
    own = await kit.add("cmake is used", author="Bob")
    await kit.add("cmake of bob", BOB)
    await kit.add("cmake of the chat", scope="channel", channel="chat")
    await kit.add("cmake of another session", scope="session", session_id="ses_2")
    output = await use(kit, "memory_search", query="cmake")
    assert f"{own} [fact, " in output.text
    assert "Bob: cmake is used" in output.text
    assert 1 == len(output.text.splitlines())
    in_chat = await use(kit, "memory_search", query="cmake", audience={"channel": "chat"})
    assert 2 == len(in_chat.text.splitlines())
    assert "nothing found" == (await use(kit, "memory_search", query="xyzzy")).text
    only = await use(kit, "memory_search", query="cmake", audience={"memory_scope": "session"})
    assert "nothing found" == only.text


async def test_search_has_the_lowest_label_of_its_hits(kit: MemoryKit) -> None:
    """One untrusted item makes the whole output untrusted; own items keep it trusted."""
    await kit.add("cmake one", trust="trusted_local")
    assert "trusted_local" == (await use(kit, "memory_search", query="cmake")).trust
    await kit.add("cmake two elsewhere", trust="external_untrusted")
    assert "mixed" == (await use(kit, "memory_search", query="cmake")).trust


async def test_a_search_is_a_use_of_the_run(kit: MemoryKit) -> None:
    """What a search gave is on record, and cannot be retained in that session."""
    own = await kit.add("The deploy port of staging is 8080")
    await use(kit, "memory_search", query="deploy port")
    (found,) = kit.store.list_memory_uses(run_id="run_now")
    assert ("tool", (own,)) == (found.way, tuple(item.memory_id for item in found.items))
    with pytest.raises(ToolFailure, match="came from the memory"):
        await use(kit, "memory_retain", text="staging's deploy port is 8080", kind="fact")


async def test_retain_stores_with_origin_and_label(kit: MemoryKit) -> None:
    """The item names its run, has the label of what the model has read, and less than full confidence."""
    output = await use(
        kit, "memory_retain", text="The user prefers tabs", kind="preference", tags=["style"],
        call={"trust": "workspace"},
    )  # fmt: skip
    assert output.text.startswith("added: mem_")
    (item,) = await kit.memories.list_items(ANN, _all())
    assert ("workspace", "tool", 8_000, "run_now", "ses_1", ("style",), "principal") == (
        item.trust, item.source, item.confidence_bps, item.lineage[0].run_id, item.session_id,
        item.tags, item.scope,
    )  # fmt: skip
    again = await use(kit, "memory_retain", text="the user prefers tabs!", kind="preference")
    assert f"updated: {item.memory_id}" == again.text


def _all() -> MemoryFilter:
    return MemoryFilter(principal="", now_ms=0)


async def test_retain_refuses_what_the_memory_refuses(kit: MemoryKit) -> None:
    """Secrets, unknown ids and agents without a memory are failures that the model can read."""
    with pytest.raises(ToolFailure, match="holds a secret"):
        await use(kit, "memory_retain", text=f"key {SECRET}")
    with pytest.raises(ToolFailure, match="no memory"):
        await use(kit, "memory_retain", text="x", supersedes="mem_none")
    for name, given in (
        ("memory_search", {"query": "x"}),
        ("memory_retain", {"text": "x"}),
        ("memory_forget", {"memory_ids": ["mem_1"]}),
        ("session_search", {"query": "x"}),
    ):
        with pytest.raises(ToolFailure, match="memory_scope is none"):
            await use(kit, name, audience={"memory_scope": "none"}, **given)


async def test_an_agent_of_one_session_stores_there_only(kit: MemoryKit) -> None:
    """With the scope session the item stays in its session; a wider scope is refused."""
    narrow: dict[str, Any] = {"memory_scope": "session"}
    await use(kit, "memory_retain", text="tango", audience=narrow)
    assert [] == await kit.found("tango", place=place(session_id="ses_2"))
    assert 1 == len(await kit.found("tango", place=place(session_id="ses_1")))
    with pytest.raises(ToolFailure, match="limited to its session"):
        await use(kit, "memory_retain", text="waltz", scope="principal", audience=narrow)


async def test_forget_deletes_what_the_run_sees(kit: MemoryKit) -> None:
    """Own items are deleted; unseen and unknown ones fail alike."""
    own = await kit.add("cmake is used")
    other = await kit.add("cmake of session two", scope="session", session_id="ses_2")
    theirs = await kit.add("cmake of bob", BOB)
    for bad in (other, theirs, "mem_none"):
        with pytest.raises(ToolFailure, match="no memory"):
            await use(kit, "memory_forget", memory_ids=[own, bad])
    assert "1 item forgotten" == (await use(kit, "memory_forget", memory_ids=[own])).text
    assert [] == await kit.found("cmake")


async def test_session_search_finds_what_was_said(kit: MemoryKit) -> None:
    """Earlier messages and answers of the same principal and channel are found, the rarest word first."""

    def said(run_id: str, text: str, **fields: Any) -> Change:
        owner = fields.pop("principal", "ann")
        session_id = fields.pop("session_id", f"ses_{run_id}")
        rows = (
            row(run_id, 0, kind="message.received", session_id=session_id, principal=owner,
                data=b'{"text":"%s?"}' % text.encode()),
            row(run_id, 1, kind="message.completed", session_id=session_id, principal=owner,
                data=b'{"text":"answer about %s"}' % text.encode()),
            row(run_id, 2, kind="tool.completed", session_id=session_id, principal=owner,
                data=b'{"output":"output\\nwith %s","trust":"workspace"}' % text.encode()),
        )  # fmt: skip
        records = (
            run(run_id, session_id=session_id, principal=owner, state="done"),
            session(session_id, principal=owner, **fields),
        )
        return Change(rows=rows, records=records)

    outcomes = kit.store.commit([
        said("run_1", "common walrus"),
        said("run_2", "common ostrich"),
        said("run_3", "common walrus", principal="bob"),
        said("run_4", "common walrus", agent="a", channel="chat", conversation_id="1"),
        said("run_now", "common walrus", session_id="ses_1"),
    ])  # fmt: skip
    assert [None] * 5 == outcomes
    output = await use(kit, "session_search", query="the walrus")
    *lines, last = [line for line in output.text.splitlines() if line[0] != " "]
    assert [
        "ses_run_1 assistant: answer about common walrus",
        "ses_run_1 tool output [workspace]: output",
        "ses_run_1 user: common walrus?",
    ] == sorted(line.split(" ", 1)[1] for line in lines)
    assert last.startswith("[degraded: "), "nothing is embedded yet"
    assert "  with common walrus" in output.text.splitlines(), (
        "no line of a text looks like an entry"
    )
    assert "mixed" == output.trust
    both = await use(kit, "session_search", query="common walrus", limit=3)
    assert "walrus" in both.text.splitlines()[0]
    assert 3 == len([line for line in both.text.splitlines() if line[0] not in " ["])
    only = await use(kit, "session_search", query="walrus", audience={"memory_scope": "session"})
    assert "nothing found" == only.text.splitlines()[0]
    chat = await use(
        kit,
        "session_search",
        query="walrus",
        audience={"channel": "chat", "session_id": "ses_run_4"},
        call={"session_id": "ses_run_4"},
    )
    assert {"ses_run_4"} == {
        line.split()[1] for line in chat.text.splitlines() if line[0] not in " ["
    }


def test_risk_and_taint() -> None:
    """Reading is harmless; a tainted run raises what writes by one step."""
    assert ["low", "low", "medium", "low"] == [
        compute_risk(spec, is_tainted=False) for spec in (SEARCH, RETAIN, FORGET, SESSIONS)
    ]
    assert ["low", "medium", "high", "low"] == [
        compute_risk(spec, is_tainted=True) for spec in (SEARCH, RETAIN, FORGET, SESSIONS)
    ]
    assert [False, True, True, False] == [
        is_sensitive(spec) for spec in (SEARCH, RETAIN, FORGET, SESSIONS)
    ]
