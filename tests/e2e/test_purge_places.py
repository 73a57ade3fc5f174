"""A purge against every place of the home that stores text, found in the schema of the database.

The places are not listed: each text or blob column of each table has to hold the mark before the purge,
or to be explained.  A new column therefore fails the test until it is filled here, or explained.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
import trio

from palyra.client import Client
from palyra.core.incident.kinds import tool_crashed
from palyra.core.journal.records import IncidentRecord
from palyra.core.task.views import TaskView
from palyra.errors import Conflict, IllegalState, NotFound
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for
from tests.e2e.test_files import LONG, the_call
from tests.e2e.test_purge import cleaned
from tests.e2e.test_tasks import POLL_S, wait_run_id
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real
MARK = "zqvxbmark"  # the stemmer of the word index leaves it as it is
FAR_MS, SOON_MS = 3_600_000, 2_000

IDS = "an id that the daemon makes, or one of its words"
OPERATORS = "what an operator set up, for all conversations"
NO_TEXT = "numbers, digests and vectors"
# Columns that never hold text of a conversation, in any table or in one.
EXPLAINED = {
    "principal": "the account, which outlives its conversations",
    "agent": OPERATORS,
    "channel": OPERATORS,
    "model": OPERATORS,
    **dict.fromkeys(
        [
            "run_id",
            "session_id",
            "approval_id",
            "token_id",
            "pairing_id",
            "grant_id",
            "budget_id",
            "incident_id",
            "memory_id",
            "use_id",
            "checkpoint_id",
            "task_id",
            "schedule_id",
            "candidate_id",
            "journal_id",
            "superseded_by",
            "firing",
            "kind",
            "state",
            "scope",
            "source",
            "trust",
            "action",
            "domain",
            "outcome",
            "embedder",
        ],
        IDS,
    ),
    **dict.fromkeys(["hash", "sha256", "text_hash", "vector"], NO_TEXT),
    "sqlite_sequence.name": "names of tables",
    "sqlite_sequence.seq": NO_TEXT,
    "tokens.record": OPERATORS,
    "agents.name": OPERATORS,
    "agents.record": OPERATORS,
    "budgets.record": OPERATORS,
    "channels.conversation_id": OPERATORS,
    "channels.record": OPERATORS,
    "pairings.sender": "the right of a sender to write, which outlives the conversations",
    "pairings.record": "the right of a sender to write, which outlives the conversations",
    "usage.record": "tokens and cost of a call of a model",
    "reflections.record": IDS,
    "memories.changed_by": "the account, which outlives its conversations",
    "memory_log.by": "the account, which outlives its conversations",
    "memories.lineage": IDS,
    "documents.workspace": OPERATORS,
    "documents.document": OPERATORS,
    "candidates.key": NO_TEXT,
    "runs.record": "numbers, the names of agent and model, and the reason of the end, which a purge replaces",
}


@pytest.fixture
def learner(tmp_path: Path) -> Generator[DaemonProcess]:
    """A daemon that learns in mode review."""
    with running(tmp_path, PALYRA_LEARNING__MODE="review") as process:
        yield process


def columns(database: Path) -> Iterator[tuple[str, str, bool]]:
    """Every column of the database that can hold text, and whether it holds the mark."""
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        found = connection.execute(
            "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c"
            " WHERE t.type = 'table' AND c.type NOT IN ('INTEGER', 'INT', 'REAL')"
        ).fetchall()
        for table, column in found:
            marked = connection.execute(
                f'SELECT 1 FROM "{table}" WHERE'  # noqa: S608 - names of the schema
                f' instr(lower(CAST("{column}" AS BLOB)), ?) LIMIT 1',
                (MARK.encode(),),
            ).get
            yield str(table), str(column), marked is not None


def check_places(database: Path) -> None:
    """Check that each column holds the mark or is explained, and that each explanation is needed."""
    every = list(columns(database))
    unfilled = [
        f"{table}.{column}"
        for table, column, is_marked in every
        if not is_marked and not is_explained(table, column)
    ]
    assert not unfilled, f"{unfilled}: plant the mark there, or explain why it cannot be there"
    names = {name for table, column, _ in every for name in (column, f"{table}.{column}")}
    assert set() == EXPLAINED.keys() - names


def is_explained(table: str, column: str) -> bool:
    is_index = "_fts" in table  # words, whose bytes `leaks` searches; its other tables have none
    return is_index or column in EXPLAINED or f"{table}.{column}" in EXPLAINED


async def say(client: Client, text: str, **place: Any) -> tuple[str, str]:
    """Start a run and wait for its end; return run and session."""
    where = place or {"session_key": MARK}
    started = await client.start_run(text, idempotency_key=f"{MARK} {text}"[:80], **where)
    await client.wait_run(started.run_id)
    return started.run_id, started.session_id


async def plant(daemon: DaemonProcess, owner: Client) -> list[str]:
    """Fill every place with the mark; return the sessions."""
    run_id, session_id = await say(owner, f"Our staging host is called {MARK}.")
    (learned,) = (await owner.reflect(run_id)).candidate_ids
    await owner.accept_candidate(learned)
    await say(owner, the_call("echo", text=f"{MARK} {LONG}"))
    await say(owner, the_call("session_search", query=MARK))
    item = await owner.add_memory(f"{MARK} a fact", session_id=session_id, tags=[MARK])
    await owner.edit_memory(item.memory_id, text=f"{MARK} another fact")
    await say(owner, f"What is {MARK}, the fact?")
    call = the_call("write_file", path=f"{MARK}.txt", content=MARK)
    asked = await ask_for(owner, call, session_key=MARK)
    await owner.resolve_approval(
        asked.approval_id, "allow", asked.digest, scope="session", reason=MARK
    )
    await owner.wait_run(asked.run_id)
    await owner.checkpoint_session(session_id, name=MARK)
    await owner.rename_session(session_id, MARK)
    await owner.pin_message(session_id, run_id, 1)
    (daemon.workspace / "MEMORY.md").write_text(
        f"<!-- palyra:begin facts -->\n- {MARK} another fact <!-- {item.memory_id} -->\n"
        "<!-- palyra:end facts -->\n"
    )
    await owner.sync_document("MEMORY.md")
    _, chat = await say(
        owner, f"{MARK} in a chat", channel="chat", conversation_id=MARK, sender=MARK
    )
    await owner.add_memory(
        f"{MARK} is for the channel", session_id=chat, channel="chat", scope="channel", author=MARK
    )
    await plant_work(owner, session_id)
    return [session_id, chat]


async def plant_work(owner: Client, session_id: str) -> None:
    """Submit tasks and schedules of every state, by id and by key, and without a session."""
    text = f"/say {MARK}"
    places: list[dict[str, str]] = [{"session_id": session_id}, {"session_key": MARK}]
    now_ms = (await owner.call("ping", {}))["now_ms"]
    for place in places:
        payload = {"text": text, **place}
        await owner.submit_task("prompt", payload, idempotency_key=f"{MARK} {place}")
        later = await owner.submit_task("prompt", payload, not_before_ms=now_ms + FAR_MS)
        await owner.pause_task(later.task_id)
        await owner.submit_task("prompt", payload, not_before_ms=now_ms + FAR_MS)
        ended = await owner.submit_task("prompt", payload, not_before_ms=now_ms + FAR_MS)
        await owner.cancel_task(ended.task_id, MARK)
        await owner.add_schedule(MARK, every_ms=FAR_MS, payload=payload)
        removed = await owner.add_schedule(MARK, every_ms=FAR_MS, payload=payload)
        await owner.remove_schedule(removed.schedule_id)
        paused = await owner.add_schedule(MARK, every_ms=FAR_MS, payload=payload)
        await owner.pause_schedule(paused.schedule_id)
        soon_ms = (await owner.call("ping", {}))["now_ms"] + SOON_MS
        await owner.add_schedule(MARK, at_ms=soon_ms, payload=payload)
    with trio.fail_after(WITHIN_S):
        while len(places) > len(await fired(owner)):  # noqa: ASYNC110 - another process
            await trio.sleep(POLL_S)


async def fired(owner: Client) -> list[TaskView]:
    """The ended tasks of schedules."""
    tasks = (await owner.list_tasks(limit=500)).tasks
    return [task for task in tasks if task.firing is not None and task.finished_ms is not None]


def plant_incidents(daemon: DaemonProcess, run_id: str) -> None:
    """Add incidents whose evidence quotes a run, open and resolved, to the stopped journal."""
    report = tool_crashed("echo", run_id, "call_1", f"ValueError({MARK!r})")
    with apsw.Connection(str(daemon.home / "journal.sqlite3")) as connection:
        for number, ended_ms in enumerate((None, 5)):
            record = IncidentRecord(
                incident_id=f"inc_{number}",
                state="open" if ended_ms is None else "resolved",
                resolved_ms=ended_ms,
                opened_ms=1,
                last_ms=1,
                **msgspec.structs.asdict(report),
            )
            connection.execute(
                "INSERT INTO incidents VALUES (?, ?, ?, ?, ?)",
                (
                    record.incident_id,
                    record.domain,
                    record.state,
                    ended_ms,
                    msgspec.json.encode(record).decode(),
                ),
            )
    connection.close()


def names(daemon: DaemonProcess) -> list[str]:
    """The files of the home with the mark in their names."""
    return [path.name for path in daemon.home.rglob("*") if MARK in os.fsdecode(path.name)]


async def test_a_purge_leaves_no_byte_of_the_sessions(learner: DaemonProcess) -> None:
    """The mark is in every column that stores text, and after the purge in no byte of the home."""
    async with learner.connect() as operator:
        await operator.set_channel("chat", principal="operator", pairing="open")
        sessions = await plant(learner, operator)
        run_id = (await operator.list_runs(session_id=sessions[0])).runs[0].run_id
    learner.stop()
    plant_incidents(learner, run_id)
    check_places(learner.home / "journal.sqlite3")
    learner.start()
    async with learner.connect() as operator:
        for session_id in sessions:
            planned = await operator.purge_session(session_id, dry_run=True)
            done = await operator.purge_session(session_id)
            assert (planned.tasks, planned.schedules) == (done.tasks, done.schedules)
        assert [] == await operator.list_schedules()
        assert "inc_0" not in {
            each.incident_id for each in (await operator.list_incidents()).incidents
        }
        await cleaned(learner, MARK)
    assert [] == names(learner)
    assert MARK not in learner.said


async def test_work_of_a_purged_session_ends(learner: DaemonProcess) -> None:
    """A running task refuses the purge or is cancelled by it; work without a session goes with the person."""
    async with learner.connect() as ann:
        _, session_id = await say(ann, "hello")
        payload = {"text": f"/delay 600000\n/say {MARK}", "session_id": session_id}
        task = await ann.submit_task("prompt", payload)
        run_id = await wait_run_id(ann, task.task_id)
        with pytest.raises(IllegalState, match=run_id):
            await ann.purge_session(session_id)
        assert "running" == (await ann.get_task(task.task_id)).state
        done = await ann.purge_session(session_id, cancel=True)
        assert (0, ()) == (done.schedules, done.continuing)
        with pytest.raises(NotFound):
            await ann.get_task(task.task_id)
        with pytest.raises(Conflict, match="purged"):
            await ann.submit_task("prompt", payload)
        with pytest.raises(Conflict, match="purged"):
            await ann.add_schedule("late", every_ms=FAR_MS, payload=payload)
        soon_ms = (await ann.call("ping", {}))["now_ms"] + SOON_MS
        payload = {"text": f"/say {MARK}"}
        timed = await ann.add_schedule("alone", at_ms=soon_ms, payload=payload)
        with trio.fail_after(WITHIN_S):
            while not (ended := await fired(ann)):  # noqa: ASYNC110 - another process
                await trio.sleep(POLL_S)
        done = await ann.purge_session(str(ended[0].result["session_id"]))
        assert (0, (timed.schedule_id,)) == (done.schedules, done.continuing)
        assert [timed.schedule_id] == [each.schedule_id for each in await ann.list_schedules()]
        await ann.purge_memory("operator", sessions=True)
        assert ([], []) == (
            await ann.list_schedules(),
            [each for each in (await ann.list_tasks()).tasks if each.principal == "operator"],
        )
        await cleaned(learner, MARK)
