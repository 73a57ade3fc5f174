"""The memory of a real daemon: over the socket, over restarts, and on the command line."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra.client import Client, TapeEvent
from palyra.core.tape import events as ev
from palyra.errors import Forbidden, InvalidParams, NotFound, TooLarge
from palyra.net.protocol.results import MemoryStatement
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import make_token
from tests.e2e.tapes import read_whole

pytestmark = pytest.mark.real


async def found(client: Client, query: str, **wanted: Any) -> list[str]:
    """Texts of the hits."""
    hits = (await client.search_memories(query, **wanted)).hits
    return [hit.text for hit in hits]


async def person(daemon: DaemonProcess, name: str) -> str:
    async with daemon.connect() as operator:
        return await make_token(operator, "client", principal=name)


async def test_a_fact_is_stored_corrected_and_forgotten(daemon: DaemonProcess) -> None:
    """An item lives through its whole life over the socket."""
    async with daemon.connect(await person(daemon, "ann")) as ann:
        first = await ann.add_memory("The deploy port is 8080", kind="fact", tags=["ops"])
        again = await ann.add_memory("the deploy port is 8080!", kind="fact")
        assert ("added", "updated", first.memory_id) == (
            first.disposition, again.disposition, again.memory_id,
        )  # fmt: skip
        second = await ann.add_memory("The deploy port is 9090", kind="fact")
        assert ("superseded", first.memory_id) == (second.disposition, second.superseded)
        result = await ann.search_memories("which deploy port?", explain=True)
        (hit,) = result.hits
        assert ("The deploy port is 9090", second.memory_id) == (hit.text, hit.memory_id)
        assert hit.score == pytest.approx(sum(msgspec.structs.astuple(hit.parts)))
        assert hit.why is not None
        history = await ann.get_memory_history(second.memory_id)
        assert [first.memory_id] == [item.memory_id for item in history.superseded]
        changed = await ann.edit_memory(second.memory_id, text="The deploy port is 7070")
        assert ("edited", 2) == (changed.action, changed.revision)
        await ann.undo_memory(second.memory_id)
        assert ["The deploy port is 9090"] == await found(ann, "port")
        gone = await ann.forget_memories(second.memory_id)
        assert (second.memory_id, first.memory_id) == gone.memory_ids
        assert [] == await found(ann, "port")
        with pytest.raises(NotFound):
            await ann.get_memory(first.memory_id)
        audit = await ann.audit_memory()
        assert "forgotten" == audit.entries[0].action
        assert [] == (await ann.list_memories(superseded=True, hidden=True)).items


async def test_principals_are_isolated(daemon: DaemonProcess) -> None:
    """A client reaches its own items only; an operator those of the principal it names."""
    tokens = [await person(daemon, name) for name in ("carl", "dora")]
    async with daemon.connect(tokens[0]) as carl, daemon.connect(tokens[1]) as dora:
        mine = await carl.add_memory("my locker code is blue")
        for _ in range(2):
            assert ["my locker code is blue"] == await found(carl, "locker")
            assert [] == await found(dora, "locker")
        for refused in (
            dora.get_memory(mine.memory_id),
            dora.get_memory_history(mine.memory_id),
            dora.edit_memory(mine.memory_id, text="x"),
            dora.forget_memories(mine.memory_id),
            dora.undo_memory(mine.memory_id),
            dora.pin_memory(mine.memory_id),
            dora.never_recall_memory(mine.memory_id),
        ):
            with pytest.raises(NotFound):
                await refused
        for forbidden in (
            dora.search_memories("locker", principal="carl"),
            dora.list_memories(principal="carl"),
            dora.export_memories("carl"),
            dora.audit_memory("carl"),
            dora.get_memory_status("carl"),
            dora.purge_memory("carl"),
            dora.add_memory("x", principal="carl"),
            dora.rebuild_memory(),
        ):
            with pytest.raises(Forbidden):
                await forbidden
        async with daemon.connect() as operator:
            assert [] == await found(operator, "locker")
            assert ["my locker code is blue"] == await found(operator, "locker", principal="carl")
            assert 1 == (await operator.purge_memory("carl", dry_run=True)).items
            assert 1 == (await operator.purge_memory("carl")).items
        assert [] == await found(carl, "locker")


async def test_sessions_and_channels_are_isolated(daemon: DaemonProcess) -> None:
    """Items limited to a session or channel are found from there only."""
    async with daemon.connect(await person(daemon, "eva")) as eva:
        await eva.add_memory("tango in session one", scope="session", session_id="ses_1")
        await eva.add_memory("tango in the chat", scope="channel", channel="chat")
        kept = await eva.add_memory("tango everywhere", session_id="ses_2")
        for _ in range(2):
            assert ["tango everywhere"] == await found(eva, "tango")
            assert ["tango in session one"] == await found(eva, "tango", session_id="ses_1")
            assert ["tango everywhere"] == await found(eva, "tango", session_id="ses_2")
            assert ["tango in the chat"] == await found(eva, "tango", channel="chat")
            assert [] == await found(eva, "tango", channel="mail")
        assert kept.memory_id == (await eva.get_memory(kept.memory_id, channel="mail")).memory_id
        hidden = (await eva.list_memories(channel="chat")).items[0]
        with pytest.raises(NotFound):
            await eva.get_memory(hidden.memory_id, channel="mail")


async def test_requests_are_checked(daemon: DaemonProcess) -> None:
    """Errors name the field; nothing of a refused import is stored."""
    async with daemon.connect(await person(daemon, "finn")) as finn:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"text": ""}, "text"),
            ({"text": "x", "scope": "session"}, "session_id"),
            ({"text": "x", "kind": "rumour"}, "kind"),
            ({"text": "x", "confidence_bps": 10_001}, "confidence_bps"),
            ({"text": "x", "colour": "red"}, "colour"),
        ]
        for params, field in cases:
            with pytest.raises(InvalidParams) as caught:
                await finn.call("memory.add", params)
            assert caught.value.field == field
        with pytest.raises(TooLarge, match="16385"):
            await finn.add_memory("x" * 16_385)
        items = [MemoryStatement(text="fine"), MemoryStatement(text="x", ttl_ms=-1)]
        with pytest.raises(InvalidParams) as caught:
            await finn.import_memories(items)
        assert "items[1].ttl_ms" == caught.value.field
        with pytest.raises(InvalidParams, match="500"):
            await finn.import_memories([MemoryStatement(text=f"t{n}") for n in range(501)])
        with pytest.raises(InvalidParams):
            await finn.call("memory.forget", {})
        for query in ('"', "*", "AND", "NEAR(", "x:y", "\\", "';--", "(" * 4_000):
            assert [] == await found(finn, query)
        assert 0 == (await finn.get_memory_status()).total


async def test_a_repeated_request_is_done_once(daemon: DaemonProcess) -> None:
    """The same idempotency key gives the same reply, without a second effect or a kept text."""
    async with daemon.connect(await person(daemon, "gus")) as gus:
        first = await gus.add_memory("once only", idempotency_key="k")
        again = await gus.add_memory("once only", idempotency_key="k")
        assert first == again
        assert 1 == (await gus.get_memory(first.memory_id)).revision


async def test_export_and_import_carry_a_memory_over(daemon: DaemonProcess) -> None:
    """What one principal exports another imports, and exports again the same."""
    async with daemon.connect(await person(daemon, "hal")) as hal:
        items = [
            MemoryStatement(text=f"word{n} was said", kind="turn", session_id="ses_1",
                            at_ms=1_000 * n, author="Bob", tags=("t",)) for n in range(5)
        ]  # fmt: skip
        done = await hal.import_memories([*items, MemoryStatement(text="pinned", pinned=True)])
        assert (6, 0, 0) == (done.added, done.updated, done.skipped)
        page = await hal.export_memories(limit=4)
        rest = await hal.export_memories(limit=4, cursor=page.next_cursor)
        whole = [*page.items, *rest.items]
        assert rest.next_cursor is None
    async with daemon.connect(await person(daemon, "ida")) as ida:
        await ida.import_memories(whole[::-1])
        again = await ida.export_memories()
        assert whole == again.items
        assert ["word3 was said"] == await found(ida, "word3", author="Bob", limit=1)


async def test_items_survive_a_kill(tmp_path: Path) -> None:
    """What was acknowledged is there after kill -9: added, forgotten and indexed."""
    daemon = DaemonProcess(tmp_path)
    try:
        daemon.start()
        async with daemon.connect() as client:
            kept = await client.add_memory("the kept word is walrus")
            gone = await client.add_memory("the lost word is ostrich")
            await client.forget_memories(gone.memory_id)
        await daemon.restart()
        async with daemon.connect() as client:
            assert ["the kept word is walrus"] == await found(client, "walrus")
            assert [] == await found(client, "ostrich")
            assert 1 == (await client.rebuild_memory()).rows
            assert [kept.memory_id] == [
                item.memory_id for item in (await client.list_memories()).items
            ]
    finally:
        daemon.end()
    for file in daemon.home.rglob("*"):
        if file.is_file():
            assert b"ostrich" not in file.read_bytes() or file.name.endswith("-wal"), file


# --- the command line ----------------------------------------------------------------------------

OPENCLAW = """---
title: memory
---
# Memory

## Preferences
- [x] likes short answers
- answers in German
  and with examples

## Decisions
1. use trio, not asyncio

```
make test
```

A paragraph about
the octopus.
"""
MEM0 = {
    "results": [
        {"id": "1", "memory": "Name is Zoltan", "categories": ["personal"],
         "created_at": "2024-05-01T10:00:00-07:00", "run_id": "run-9"},
        {"id": "2", "memory": "Plays the bassoon", "updated_at": "not a date"},
    ]
}  # fmt: skip


async def run(daemon: DaemonProcess, *arguments: str) -> str:
    """Run `palyra memory ...` as the operator; its output."""
    done = await palyra("memory", *arguments, home=daemon.home)
    assert 0 == done.code, done.err
    return done.out


async def test_the_command_line_covers_the_life_of_an_item(daemon: DaemonProcess) -> None:
    """Each verb works, says what it did, and prints JSON on request."""
    whose = ("--principal", "cli")
    out = await run(
        daemon, "add", "The staging port is 8080", "--kind", "fact", "--tag", "ops", *whose
    )
    first = out.split()[0]
    assert f"{first} added\n" == out
    out = await run(daemon, "add", "The staging port is 9090", "--kind", "fact", *whose)
    second = out.split()[0]
    assert f"{second} superseded, in place of {first}\n" == out
    out = await run(daemon, "search", "staging port", "--why", *whose)
    assert second in out
    assert "lexical" in out
    found = json.loads(await run(daemon, "search", "staging port", "--json", *whose))
    assert ["The staging port is 9090"] == [hit["text"] for hit in found["hits"]]
    assert {"lexical", "vector", "author", "date", "session"} <= found["hits"][0]["parts"].keys()
    assert "The staging port is 9090" in await run(daemon, "list", *whose)
    assert "superseded" in await run(daemon, "list", "--superseded", *whose)
    assert "revision: 1" in await run(daemon, "show", second)
    assert f"{second} edited, revision 2\n" == await run(
        daemon, "edit", second, "--text", "no port"
    )
    assert f"{second} undone, revision 3\n" == await run(daemon, "undo", second)
    assert f"{second} pinned, revision 4\n" == await run(daemon, "pin", second)
    assert f"{second} hidden, revision 5\n" == await run(daemon, "never-recall", second)
    assert "nothing found" in await run(daemon, "search", "staging port", *whose)
    assert "shown" in await run(daemon, "never-recall", second, "--off")
    assert "edited" in await run(daemon, "history", second)
    assert "1 fact" in await run(daemon, "status", *whose)
    assert "pinned" in await run(daemon, "audit", *whose)
    assert "would be forgotten" in await run(daemon, "forget", second, "--dry-run")
    assert second in await run(daemon, "search", "staging port", *whose)
    assert f"{second} forgotten\n{first} forgotten\n" == await run(daemon, "forget", second)
    assert "no memories" in await run(daemon, "list", *whose)
    assert "indexed" in await run(daemon, "rebuild")
    await run(daemon, "add", "one", *whose)
    assert "1 item of cli would be deleted\n" == await run(daemon, "purge", *whose, "--dry-run")
    assert "1 item of cli deleted\n" == await run(daemon, "purge", *whose)
    done = await palyra("memory", "show", "mem_none", home=daemon.home)
    assert (True, True) == (done.code != 0, "no memory 'mem_none'" in done.err)


async def test_the_command_line_imports_other_formats(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    """OpenClaw's MEMORY.md, mem0's export and its own come in, and go out again."""
    notes, mem0, out = (tmp_path / name for name in ("MEMORY.md", "mem0.json", "out.json"))
    notes.write_text(OPENCLAW, encoding="utf-8")
    mem0.write_text(json.dumps(MEM0), encoding="utf-8")
    whose = ("--principal", "importer")
    assert "5 items would be imported\n" == await run(daemon, "import", str(notes), "--dry-run")
    assert "5 added, 0 updated, 0 skipped\n" == await run(daemon, "import", str(notes), *whose)
    assert "2 added, 0 updated, 0 skipped\n" == await run(daemon, "import", str(mem0), *whose)
    assert "0 added, 0 updated, 2 skipped\n" == await run(daemon, "import", str(mem0), *whose)
    listed = json.loads(await run(daemon, "list", "--json", *whose))["items"]
    by_text = {item["text"]: item for item in listed}
    assert ("preference", ["Memory", "Preferences"], "workspace") == tuple(
        by_text["answers in German\nand with examples"][name] for name in ("kind", "tags", "trust")
    )
    assert "decision" == by_text["use trio, not asyncio"]["kind"]
    assert ("fact", ["personal"], "run-9", 1_714_582_800_000) == tuple(
        by_text["Name is Zoltan"][name] for name in ("kind", "tags", "session_id", "at_ms")
    )
    assert "7 items" in await run(daemon, "export", "--output", str(out), *whose)
    again = ("--principal", "again")
    assert "7 added, 0 updated, 0 skipped\n" == await run(daemon, "import", str(out), *again)
    first, second = [await run(daemon, "export", *each) for each in (whose, again)]
    assert first == second
    out.write_text("{}", encoding="utf-8")
    done = await palyra("memory", "import", str(out), home=daemon.home)
    assert (2, True) == (done.code, "not an export" in done.err)


@pytest.mark.parametrize("value", [2**53, 2**63, 2**64, 10**40, -(2**63) - 1])
async def test_an_integer_that_no_row_holds_is_refused(daemon: DaemonProcess, value: int) -> None:
    """The field is named, and the connection and the journal go on."""
    async with daemon.connect() as client:
        own = (await client.add_memory("The deploy port is 8080")).memory_id
        lineage = [{"run_id": "run_1", "last_seq": value}]
        requests: list[tuple[str, dict[str, Any], str]] = [
            ("memory.edit", {"memory_id": own, "ttl_ms": value}, "ttl_ms"),
            ("memory.add", {"text": "x", "lineage": lineage}, "lineage[0].last_seq"),
            ("memory.add", {"text": "x", "ttl_ms": value}, "ttl_ms"),
            ("memory.audit", {"cursor": value}, "cursor"),
            ("document.history", {"document": "MEMORY.md", "before": value}, "before"),
            ("tape.read", {"run_id": "run_1", "after_seq": value}, "after_seq"),
        ]
        for method, params, field in requests:
            with pytest.raises(InvalidParams) as refused:
                await client.call(method, params)
            assert field == refused.value.field
        assert own == (await client.get_memory(own)).memory_id


async def test_a_refused_item_of_a_file_is_named(daemon: DaemonProcess, tmp_path: Path) -> None:
    """The error has the item's number in the whole file, and says which ones are stored."""
    file = tmp_path / "items.json"
    bad: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "valid_from_ms": {"text": "x", "valid_from_ms": -1},
        "author": {"text": "x", "author": "two\nlines"},
    }
    for field, item in bad.items():
        items = [{"text": f"{field} statement number {n}"} for n in range(501)]
        for count, stored in ((1, ""), (501, "; the 500 before it in the file are stored")):
            text = json.dumps({"items": [*items[:count], item]})
            file.write_text(text, encoding="utf-8")
            done = await palyra("memory", "import", str(file), home=daemon.home)
            assert 0 != done.code
            assert f"items.json, item {count + 1}, {field}: " in done.err
            assert done.err.splitlines()[0].endswith(stored)


async def test_a_session_is_named_by_its_key(daemon: DaemonProcess) -> None:
    """`--session` takes the key that `palyra run` takes; another name is kept as it is."""
    async with daemon.connect() as client:
        run_id, _ = await finish(client, "hello", session_key="pets")
        session_id = (await client.get_run(run_id)).session_id
    text = "The kitten is called Mia"
    await run(daemon, "add", text, "--session", "pets", "--scope", "session")
    await run(daemon, "add", "The kitten is called Tom", "--session", "imported")
    listed = json.loads(await run(daemon, "list", "--json", "--session", "pets"))["items"]
    assert [(text, session_id)] == [(item["text"], item["session_id"]) for item in listed]
    for name, expected in (("pets", True), (session_id, True), ("imported", False)):
        assert expected == (text in await run(daemon, "search", "kitten", "--session", name))
    assert "Tom" in await run(daemon, "search", "kitten", "--session", "imported")
    async with daemon.connect() as client:
        run_id, _ = await finish(client, "how is the kitten called?", session_key="pets")
        assert listed[0]["memory_id"] in str(await client.get_memory_used(run_id))


# --- runs ----------------------------------------------------------------------------------------


async def finish(client: Client, text: str, **options: Any) -> tuple[str, list[TapeEvent]]:
    """Run a message to its end; the run's id and tape."""
    started = await client.start_run(text, **options)
    ended = await client.wait_run(started.run_id)
    assert "done" == ended.state, ended.reason
    return started.run_id, await read_whole(client, started.run_id)


def outputs(tape: list[TapeEvent]) -> list[str]:
    done = [item.event for item in tape if isinstance(item.event, ev.ToolCompleted)]
    return [event.output or event.error or "" for event in done]


async def test_runs_store_and_recall(daemon: DaemonProcess) -> None:
    """What one run retains another finds, with the run as its origin; each use is on record."""
    async with daemon.connect(await person(daemon, "jan")) as jan:
        retain = '/call memory_retain {"text": "Jan keeps bees in Leeds", "kind": "fact"}'
        first, tape = await finish(jan, retain)
        assert outputs(tape)[0].startswith("added: mem_")
        (item,) = (await jan.list_memories()).items
        assert (first, "tool", "trusted_local") == (
            item.lineage[0].run_id, item.source, item.trust,
        )  # fmt: skip
        search = '/call memory_search {"query": "who keeps bees?"}'
        second, tape = await finish(jan, f"{search}\n/then\n{retain}", session_key="bees")
        assert "Jan keeps bees in Leeds" in outputs(tape)[0]
        assert "came from the memory" in outputs(tape)[1]
        used = await jan.get_memory_used(second)
        # The message may be recalled for, too: that depends on whether its vectors are built yet.
        (asked,) = [use for use in used.uses if use.way == "tool"]
        assert ("who keeps bees?", item.memory_id) == (asked.question, asked.items[0].memory_id)
        _, tape = await finish(jan, '/call session_search {"query": "bees"}')
        assert "keeps bees" in outputs(tape)[0]
    async with daemon.connect(await person(daemon, "kim")) as kim:
        for call in (search, '/call session_search {"query": "bees"}'):
            _, tape = await finish(kim, call)
            assert "Leeds" not in outputs(tape)[0]


async def test_deleting_by_a_run_asks(daemon: DaemonProcess) -> None:
    """The default rules let a run search and store, and ask before it deletes."""
    async with daemon.connect(await person(daemon, "lea")) as lea:
        item = await lea.add_memory("Lea keeps ducks")
        call = f'/call memory_forget {{"memory_ids": ["{item.memory_id}"]}}'
        _, tape = await finish(lea, call, approval_mode="deny")
        assert [] == outputs(tape)
        assert ["Lea keeps ducks"] == await found(lea, "ducks")
        started = await lea.start_run(call)
        async with daemon.connect() as operator:
            await lea.wait_run(started.run_id, until="attention")
            (asked,) = await operator.list_approvals(run_id=started.run_id)
            await operator.resolve_approval(asked.approval_id, "allow", asked.digest)
        await lea.wait_run(started.run_id)
        assert [] == await found(lea, "ducks")


async def test_external_text_makes_storing_a_question(daemon: DaemonProcess) -> None:
    """After a text from outside reached the model, storing fails closed without a person."""
    async with daemon.connect(await person(daemon, "mia")) as mia:
        await mia.add_memory("the fetched page says hello", trust="external_untrusted")
        search = '/call memory_search {"query": "fetched page"}'
        retain = '/call memory_retain {"text": "Mia likes pages"}'
        _, tape = await finish(mia, f"{search}\n/then\n{retain}", approval_mode="deny")
        denied = [item.event for item in tape if isinstance(item.event, ev.ToolDecided)]
        assert ["allow", "deny"] == [event.verdict for event in denied]
        assert "no_approver" == denied[1].reason_code
        assert [] == await found(mia, "likes")
        _, tape = await finish(
            mia, retain, approval_mode="deny"
        )  # the control: nothing from outside
        assert outputs(tape)[0].startswith("added")
