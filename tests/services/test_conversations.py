"""Recall of conversations: a projection of the tapes, isolated, searched as the memory is."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from palyra.core.journal.changes import Change, MemoryFilter, MemoryPlace, SaidText
from palyra.core.model.summary import Covered, Summary, SummaryLedger
from palyra.core.tape.events import CompactionApplied, encode_event
from palyra.models.memory_embedders import HashedEmbedder
from palyra.services.memory.embedders import LocalEmbedder
from palyra.services.memory.index import STEPS_BEFORE_SEARCH
from palyra.store.sqlite.turns import STEP_TURNS, delete_turns
from tests.services.memory_kit import OP, MemoryKit, place, run_inline
from tests.store.kit import row, run, session

pytestmark = pytest.mark.real
DAY_MS = 86_400_000
CHAT: dict[str, Any] = {"agent": "a", "channel": "chat"}


class Kit(MemoryKit):
    """A memory with tapes of conversations."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, is_indexed=True)
        self._runs = count(1)

    def say(
        self,
        *texts: str,
        session_id: str = "ses_a",
        principal: str = "ann",
        at_ms: int | None = None,
        **of_session: Any,
    ) -> str:
        """Store a run whose messages and answers alternate; return its id."""
        run_id = f"run_{next(self._runs):04}"
        kinds = ("message.received", "message.completed")
        at_ms = self.clock.now_ms if at_ms is None else at_ms
        rows = [
            row(run_id, seq, kind=kinds[seq % 2], session_id=session_id, principal=principal,
                at_ms=at_ms + seq, data=b'{"text":"%s"}' % text.encode())
            for seq, text in enumerate(texts)
        ]  # fmt: skip
        records = (
            run(run_id, session_id=session_id, principal=principal, state="done"),
            session(session_id, principal=principal, **of_session),
        )
        outcome = self.store.commit([Change(rows=tuple(rows), records=records)])
        assert [None] == outcome
        return run_id

    async def said(
        self, query: str, where: MemoryPlace | None = None, *, run_id: str = "", limit: int = 8
    ) -> list[SaidText]:
        place_of_run = where or place()
        found = await self.search.search_said(place_of_run, query, run_id=run_id, limit=limit)
        return found.texts

    async def texts(self, query: str, where: MemoryPlace | None = None, **more: Any) -> list[str]:  # type: ignore[override]  # of conversations
        return [said.text for said in await self.said(query, where, **more)]

    def filter(self) -> MemoryFilter:
        return MemoryFilter(principal="ann", now_ms=self.clock.now_ms, channel="")

    def again(self) -> None:
        """Start the service again."""
        self.conversations = self.search._conversations = self.build_conversations()

    async def upkeep(self) -> None:
        while await self.conversations.upkeep():
            pass

    def count(self, table: str) -> int:
        found: int = self.store._read(lambda c: c.execute(f"SELECT count(*) FROM {table}").get)  # noqa: S608 - a name of the test
        return found

    def words(self, word: str) -> list[int]:
        """Rows with the word in the text index."""
        query = "SELECT rowid FROM turn_fts WHERE turn_fts MATCH ?"
        return [int(str(at)) for (at,) in self.store._read(lambda c: [*c.execute(query, (word,))])]

    def write(self, statement: str, *values: Any) -> None:
        """Change the file as a purge would, with the writer's connection."""
        connection = self.store._get_opened().writer._connection
        for name in ("tape_is_never_deleted", "tape_is_never_updated"):
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        connection.execute(statement, values)


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


async def test_what_was_said_is_found_at_once(kit: Kit) -> None:
    """Messages and final answers of ended and open runs, with run, session, seq and time; not of the asking run."""
    first = kit.say("Where do penguins live?", "In the Antarctic.")
    found = await kit.said("penguin")
    assert [(first, "ses_a", 0, True), (first, "ses_a", 1, False)] == sorted(
        (each.run_id, each.session_id, each.seq, each.is_user) for each in found
    )  # the answer by its neighbour
    own = kit.say("penguin again")
    assert {first} == {each.run_id for each in await kit.said("penguin", run_id=own)}
    assert {first, own} == {each.run_id for each in await kit.said("penguin")}
    assert [] == await kit.said("xyzzy")


async def test_a_turn_far_back_is_found(kit: Kit) -> None:
    """The age of a run does not matter: the first of a thousand is found as the last is."""
    kit.say("The codename is Marmalade.", "Noted.", session_id="ses_old", at_ms=1)
    for number in range(STEP_TURNS * STEPS_BEFORE_SEARCH // 2):
        kit.say(f"question {number}", f"answer {number}", session_id=f"ses_{number % 7}")
    await kit.said("anything")
    await kit.upkeep()
    found = await kit.texts("what is the codename?")
    assert ["The codename is Marmalade.", "Noted."] == found[:2]
    assert 1 == (await kit.said("codename"))[0].at_ms


async def test_a_first_search_does_not_wait_for_all_tapes(kit: Kit) -> None:
    """It indexes a part, says that older conversations are missing, and the upkeep does the rest."""
    for number in range(STEP_TURNS * STEPS_BEFORE_SEARCH // 2 + 10):
        kit.say(f"walrus {number}", f"answer {number}")
    found = await kit.conversations.find("walrus", kit.filter())
    assert "older conversations are still being indexed" == found.degraded
    assert STEP_TURNS * STEPS_BEFORE_SEARCH == kit.count("turns")
    await kit.upkeep()
    found = await kit.conversations.find("walrus", kit.filter())
    assert ("hybrid", "") == (found.mode, found.degraded)
    assert kit.count("turns") == kit.count("turn_vectors") == kit.count("tape")


async def test_dates_and_neighbours_count(kit: Kit) -> None:
    """A day of the question is that of the session; an answer is found by the question before it."""
    at_ms = 1_700_000_000_000  # 14 November 2023
    kit.say("Who fixed the build?", "Rita did.", session_id="ses_1", at_ms=at_ms)
    kit.say("Who fixed the build?", "Omar did.", session_id="ses_2", at_ms=at_ms + 9 * DAY_MS)
    for question, answer in (("14 November 2023", "Rita did."), ("23 November 2023", "Omar did.")):
        found = await kit.texts(f"who fixed the build on {question}?", limit=2)
        assert answer in found


@pytest.mark.parametrize("has_vectors", [False, True])
async def test_every_pair_of_conversations_is_isolated(kit: Kit, has_vectors: bool) -> None:  # noqa: FBT001 - a case
    """A principal, a channel and a conversation of it see what was said there, and nothing else."""
    places: tuple[tuple[str, dict[str, Any], MemoryPlace], ...] = (
        ("ann", {}, place(session_id="ses_0")),
        ("bob", {}, place("bob", session_id="ses_1")),
        ("ann", {**CHAT, "conversation_id": "1"}, place(channel="chat", session_id="ses_2")),
        ("ann", {**CHAT, "conversation_id": "2"}, place(channel="chat", session_id="ses_3")),
        ("ann", {"agent": "a", "channel": "mail", "conversation_id": "1"},
         place(channel="mail", session_id="ses_4")),
        ("bob", {**CHAT, "conversation_id": "1"}, place("bob", channel="chat", session_id="ses_5")),
    )  # fmt: skip
    for at, (principal, fields, _) in enumerate(places):
        kit.say(f"walrus of {at}", session_id=f"ses_{at}", principal=principal, **fields)
    if has_vectors:
        await kit.said("walrus")
        await kit.upkeep()
    for at, (_, _, where) in enumerate(places):
        assert [f"walrus of {at}"] == await kit.texts("walrus", where)
    assert [] == await kit.texts("walrus", place("eve"))
    assert [] == await kit.texts("walrus", place(channel="chat"))  # of no conversation
    assert [] == await kit.texts("walrus", place(only_session=True))


async def test_a_session_alone_sees_itself(kit: Kit) -> None:
    """An agent whose memory is limited to its session finds nothing of another one."""
    kit.say("walrus one", session_id="ses_1")
    kit.say("walrus two", session_id="ses_2")
    assert ["walrus two"] == await kit.texts("walrus", place(session_id="ses_2", only_session=True))
    assert 2 == len(await kit.texts("walrus", place(session_id="ses_2")))


async def test_a_moved_session_is_seen_from_its_new_place(kit: Kit) -> None:
    """The place of a session is read with the hit: an index from before shows nothing to the old place."""
    kit.say("walrus", session_id="ses_1", **CHAT, conversation_id="1")
    old, new = place(channel="chat", session_id="ses_1"), place(channel="chat", session_id="ses_2")
    assert ["walrus"] == await kit.texts("walrus", old)
    kit.write("UPDATE sessions SET conversation_id = '2' WHERE session_id = 'ses_1'")
    kit.say("hello", session_id="ses_2", **CHAT, conversation_id="1")
    assert [] == await kit.texts("walrus", new)


async def test_the_memory_does_not_hold_turns(kit: Kit) -> None:
    """What was said is no item: lists, counts and searches of the memory are without it."""
    kit.say("walrus", "yes")
    await kit.said("walrus")
    assert [] == await kit.found("walrus")
    assert (await kit.search.recall("walrus", place())).hits == ()


@pytest.mark.parametrize("way", ["event", "text", "turns"])
async def test_what_leaves_the_tape_leaves_the_index(kit: Kit, way: str) -> None:
    """With the event, or its text, go the row, the words and the vector, in one transaction."""
    kit.say("walrus one", session_id="ses_1")
    kit.say("walrus two", session_id="ses_2")
    await kit.said("walrus")
    await kit.upkeep()
    if way == "event":
        kit.write("DELETE FROM tape WHERE session_id = 'ses_1'")
    elif way == "text":
        kit.write("UPDATE tape SET data = x'7b7d' WHERE session_id = 'ses_1'")
    else:
        delete_turns(kit.store._get_opened().writer._connection, ["ses_1"])
    assert (1, 1) == (kit.count("turns"), kit.count("turn_vectors"))
    assert [] == kit.words("one")
    assert ["walrus two"] == await kit.texts("walrus")
    kit.again()
    assert ["walrus two"] == await kit.texts("walrus")


async def test_a_purge_reaches_the_file(kit: Kit) -> None:
    """Once the service knows of a purge, the file has no vector of what was purged."""
    kit.say("walrus one", session_id="ses_1")
    kit.say("walrus two", session_id="ses_2")
    await kit.said("walrus")
    await kit.upkeep()
    file = kit.index_file.with_name("conversations.index")
    before = file.stat().st_size
    kit.write("DELETE FROM tape WHERE session_id = 'ses_1'")
    kit.search.note_purged_turns()
    await kit.upkeep()
    assert before - (8 + 384) == file.stat().st_size


async def test_the_index_is_made_from_the_tapes_again(kit: Kit) -> None:
    """A rebuild, a damaged file and a lost step give the same results."""
    for number in range(5):
        kit.say(f"walrus {number}", f"answer {number}", session_id=f"ses_{number}")
    before = await kit.texts("walrus", limit=20)
    await kit.upkeep()
    kit.write("DELETE FROM turn_fts")
    assert [] == kit.words("walrus")
    await kit.memories.rebuild(OP)
    assert sorted(before) == sorted(await kit.texts("walrus", limit=20))
    await kit.upkeep()
    file = kit.index_file.with_name("conversations.index")
    file.write_bytes(file.read_bytes()[:-5])
    kit.again()
    assert sorted(before) == sorted(await kit.texts("walrus", limit=20))
    await kit.upkeep()
    assert sorted(before) == sorted(await kit.texts("walrus", limit=20))


async def test_a_repeated_step_changes_nothing(kit: Kit) -> None:
    """A step that was committed already, or planned before another one, has no effect."""
    kit.say("walrus", "yes")
    await kit.said("walrus")
    kit.say("seal", "no")
    step = kit.store.turns().plan_turns()
    assert step is not None
    for _ in range(2):
        assert [None] == kit.store.commit([Change(records=(step,))])
    assert 4 == kit.count("turns")
    assert None is kit.store.turns().plan_turns()


async def test_events_that_are_no_turns_cost_no_commit(kit: Kit) -> None:
    """A search after other events of the tapes writes nothing."""
    kit.say("walrus", "yes")
    await kit.said("walrus")
    kit.store.commit([Change(rows=(row("run_z", 0, kind="run.accepted"),))])
    commits: list[None] = []
    kit.journal.before_commit = lambda: commits.append(None)
    assert ["walrus", "yes"] == await kit.texts("walrus")
    assert [] == commits
    kit.say("another walrus")
    assert 3 == len(await kit.texts("walrus"))
    assert 1 == len(commits)


async def test_a_long_message_is_cut(kit: Kit) -> None:
    """Its beginning is searched and returned in an excerpt; its length is no obstacle."""
    kit.say("walrus " + "noise " * 40_000 + "ostrich")
    (found,) = await kit.said("walrus")
    assert found.text.startswith("walrus noise")
    assert len(found.text) <= 600
    assert [] == await kit.said("ostrich")


def put(kit: Kit, run_id: str, *events: tuple[str, str]) -> None:
    """Append events to a run of ses_a that exists, from seq 2 on."""
    rows = tuple(
        row(run_id, seq, kind=kind, session_id="ses_a", principal="ann", at_ms=seq,
            data=data.encode())
        for seq, (kind, data) in enumerate(events, 2)
    )  # fmt: skip
    assert [None] == kit.store.commit([Change(rows=rows)])


def summary_of(run_id: str, last: int) -> tuple[str, str]:
    """An event that replaces the first messages of a run."""
    summary = Summary(
        ledger=SummaryLedger(),
        narrative="",
        covers=(Covered(run_id, 0, last),),
        before_tokens=2,
        after_tokens=1,
    )
    event = CompactionApplied(
        compaction_id="cmp_1", algorithm="a", trigger="auto", summary=summary, input_tokens=1
    )
    return event.KIND, encode_event(event).decode()


STEPS = (
    ("turn.completed", '{"text":"I look at the walrus first","calls":[{"call_id":"c1"}]}'),
    ("tool.proposed", '{"call_id":"c1","tool":"http_fetch"}'),
    ("tool.completed", '{"call_id":"c1","output":"walrus page","trust":"external_untrusted"}'),
    ("steer.received", '{"text":"the brown walrus, please"}'),
    ("tool.proposed", '{"call_id":"c2","tool":"session_search"}'),
    ("tool.completed", '{"call_id":"c2","output":"walrus found before","trust":"mixed"}'),
    ("turn.completed", '{"text":"a walrus that is repeated in the answer","calls":[]}'),
)


async def test_everything_between_message_and_answer_is_found(kit: Kit) -> None:
    """Texts before calls, steering messages and outputs with their label; no repetition of a search or an answer."""
    run_id = kit.say("Which walrus?", "That walrus.")
    put(kit, run_id, *STEPS)
    found = {each.seq: each for each in await kit.said("walrus")}
    assert {0, 1, 2, 4, 5} == set(found)
    assert [2, 4, 5] == [seq for seq in sorted(found) if seq > 1]
    assert ("walrus page", True, "external_untrusted") == (
        found[4].text, found[4].is_output, found[4].trust,
    )  # fmt: skip
    assert (True, False) == (found[5].is_user, found[5].is_output)
    assert (False, False, "mixed") == (found[2].is_user, found[2].is_output, found[2].trust)
    await kit.upkeep()
    assert (5, 5) == (kit.count("turns"), kit.count("turn_vectors"))
    assert set(found) == {each.seq for each in await kit.said("walrus")}


async def test_outputs_of_tools_go_to_no_provider_and_are_found(kit: Kit) -> None:
    """They have no vector then, which is missing by choice: neither degraded nor the last of all."""
    provider = LocalEmbedder(HashedEmbedder(), run_inline)
    provider.is_local = False
    kit.embedder = provider
    run_id = kit.say("Which walrus?", "That walrus.")
    put(kit, run_id, *STEPS)
    await kit.said("walrus")
    assert await kit.conversations.upkeep()  # builds an index without vectors
    found = await kit.search.search_said(place(), "walrus page", run_id="", limit=8)
    assert "0 of 4 embedded" == found.degraded
    await kit.upkeep()
    assert (5, 4) == (kit.count("turns"), kit.count("turn_vectors"))
    found = await kit.search.search_said(place(), "walrus page", run_id="", limit=8)
    assert ("walrus page", "") == (found.texts[0].text, found.degraded)


async def test_a_run_finds_what_a_summary_replaces(kit: Kit) -> None:
    """Its own texts before the last compaction that covers them, and none of what is in its prompt."""
    run_id = kit.say("Which walrus?", "That walrus.")
    put(kit, run_id, *STEPS)
    assert [] == await kit.said("walrus", run_id=run_id)
    other = kit.say("Another walrus?", "No.", session_id="ses_b")
    put(kit, other, *STEPS[:3], summary_of(run_id, 3), ("steer.received", '{"text":"walrus"}'))
    assert {run_id} == {each.run_id for each in await kit.said("walrus", run_id=other)}
    latest = kit.say("The last walrus?", "No.", session_id="ses_c")
    put(kit, latest, *STEPS[:3], summary_of(latest, 3), ("steer.received", '{"text":"walrus"}'))
    found = await kit.said("walrus", run_id=latest, limit=40)
    own = [each.seq for each in found if each.run_id == latest]
    assert [0, 1, 2, 4] == sorted(own), "a summary covers a beginning, up to its event"


async def test_an_older_file_is_indexed_again(kit: Kit) -> None:
    """Turns that an older version indexed keep their rows and vectors; outputs are added."""
    run_id = kit.say("Which walrus?", "That walrus.")
    await kit.said("walrus")
    await kit.upkeep()
    before = kit.words("walrus")
    kit.write("DELETE FROM turns WHERE is_output")
    put(kit, run_id, *STEPS[:3])
    kit.write("UPDATE turn_mark SET position = 0")
    kit.again()
    assert 4 in {each.seq for each in await kit.said("walrus")}
    assert set(before) < set(kit.words("walrus"))
    await kit.upkeep()
    assert len(before) + 2 == kit.count("turns")


@pytest.mark.parametrize(
    "damage", ["UPDATE turn_mark SET position = 999999", "DELETE FROM turn_mark"]
)
async def test_a_damaged_mark_is_indexed_again_from_the_start(kit: Kit, damage: str) -> None:
    """A mark behind every event, or none, hides neither old conversations nor new ones."""
    kit.say("Which walrus?", "That walrus.")
    await kit.said("walrus")
    kit.write(damage)
    kit.again()
    latest = kit.say("Which heron?", "That heron.")
    assert latest in {each.run_id for each in await kit.said("heron")}
    assert await kit.said("walrus")


async def test_no_more_than_asked_for_is_found(kit: Kit) -> None:
    """The limit is that of the texts returned, also when all match."""
    for number in range(3):
        kit.say(f"penguin {number}", "noted")
    assert [1, 2, 3] == [len(await kit.said("penguin", limit=limit)) for limit in (1, 2, 3)]
