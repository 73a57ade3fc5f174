"""Conversations of a channel against the services: no reader shows and no writer changes what is elsewhere.

The readers and writers are found by their signatures.  One that a run of a channel can reach has a row
that calls it for a sender, with everything that the owner and another sender have planted; for each of
the others the reason is written down.  A new one without either fails.
"""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import trio

import palyra
import palyra.services
from palyra.core.agent import DEFAULT_AGENT
from palyra.core.audience import Audience
from palyra.core.journal.changes import Change, MemoryFilter
from palyra.core.journal.records import Record
from palyra.core.memory.items import MemoryDraft
from palyra.core.model.sources import RecallScope
from palyra.core.policy.grants import find_grant
from palyra.core.tape.events import MessageReceived, RunAccepted, encode_event
from palyra.core.text.references import KINDS, parse_references
from palyra.core.tool.spec import ToolSpec
from palyra.errors import IllegalState, NotFound
from palyra.services.context.references import Asker
from palyra.services.memory.recall import MemoryRecall
from palyra.services.policy.grants import Grants
from palyra.services.registry.agents import Agents
from palyra.tools.toolbox import InlineTool, Toolbox
from tests.actors.run.office_kit import inline_blocking
from tests.services.memory_kit import MemoryKit
from tests.services.test_references import Sources
from tests.store.kit import grant, row, run, session

pytestmark = pytest.mark.real
MARK, ITEM_TEXT = "quagga-44", "the number of the bike lock is {}"
OWNER, ANNA, MALLORY = "ses_owner", "ses_anna", "ses_mallory"
FAR_MS = 10**15

MONEY = "it meters or keeps something by principal, and returns and changes no text"
CACHE = "it keeps a cache or a lock of a principal, and returns no text"
DAEMON = "the daemon calls it about records that it names, for no run"
# Readers and writers that no run of a channel gives a text to or gets one from.
EXPLAINED = {
    "memory.embeddings.MeteredEmbeddings.embed": MONEY,
    "memory.embeddings.UnmeteredEmbeddings.embed": MONEY,
    "memory.embeddings.MeteredCalls.call": MONEY,
    "memory.reranking.MeteredReranker.rerank": "it orders the texts of a search that the same principal asked for",
    "memory.embedders.LocalEmbedder.embed_items": MONEY,
    "memory.embedders.LocalEmbedder.embed_question": MONEY,
    "memory.embedders.ProviderEmbedder.embed_items": MONEY,
    "memory.embedders.ProviderEmbedder.embed_question": MONEY,
    "usage.sums.run_budgets": "budgets of a principal are shared by all its runs; an operator sets others",
    "policy.gate.Gate.mode_of": "the mode of the session of a run and of the runs above it, no data of a principal",
    "policy.grants.Grants.check_room": MONEY,
    "memory.recall.MemoryRecall.prepare": CACHE,
    "memory.recall.MemoryRecall.has_items": CACHE,
    "memory.search.MemorySearch.prepare": CACHE,
    "memory.search.MemorySearch.has_items": CACHE,
    "memory.search.MemorySearch.generation": CACHE,
    "memory.search.MemorySearch.invalidate": CACHE,
    "memory.search.MemorySearch.hiding": CACHE,
    "memory.search.MemorySearch.hiding_all": CACHE,
    "context.references.ContextSources.prepare": CACHE,
    "context.references.ContextSources.may_recall": CACHE,
    "memory.documents.Documents.apply": DAEMON,
    "memory.documents.Documents.forget": DAEMON,
    "memory.documents.Documents.forget_items": DAEMON,
    "memory.documents.AllDocuments.forget_items": DAEMON,
    "memory.items.Memories.unlearn": DAEMON,
    "memory.items.Memories.find_corrected": "learning looks for no correction in what a confined run says",
    "memory.items.Memories.keep_typed": DAEMON,
    "learning.procedures.Procedures.note_use": "a run that is confined has no procedure as a tool",
    "learning.procedures.Procedures.put": DAEMON,
    "learning.procedures.Procedures.propose": "tests/services/test_procedures.py: a channel's runs prove none",
    "task.tasks.Tasks.end_work": DAEMON,
}
NAMES = {"principal", "whose", "place", "scope", "asker", "audience", "accepted"}
KINDS_OF_PLACE = (
    "Audience",
    "MemoryPlace",
    "RecallScope",
    "RunAccepted",
    "RunRecord",
    "WorkRemoval",
    "Asker",
)


def carries_principal(function: FunctionType) -> bool:
    """True if a call says whose data it is about, and no client has shown a token for that."""
    parameters = inspect.signature(function).parameters
    if "caller" in parameters:
        return False
    shown = {
        name: str(each.annotation).rpartition(".")[2].strip("'>")
        for name, each in parameters.items()
    }
    return bool(NAMES & parameters.keys()) or any(kind in KINDS_OF_PLACE for kind in shown.values())


def list_functions() -> Iterator[tuple[str, FunctionType]]:
    """The public functions and methods of `palyra.services`, by module and name."""
    prefix = f"{palyra.services.__name__}."
    for each in pkgutil.walk_packages(palyra.services.__path__, prefix):
        module = importlib.import_module(each.name)
        for name, found in [*vars(module).items()]:
            if getattr(found, "__module__", "") == module.__name__:
                members = vars(found) if inspect.isclass(found) else {"": found}
                yield from (
                    (f"{each.name}.{name}.{member}".removeprefix(prefix).rstrip("."), plain)
                    for member, function in members.items()
                    if isinstance(plain := _plain(function), FunctionType)
                    and not {name[:1], member[:1]} & {"_"}
                )


def _plain(function: Any) -> Any:
    """The function behind a static method or a decorator."""
    return inspect.unwrap(getattr(function, "__func__", function))


class Town(MemoryKit):
    """The owner of a channel with its memory, and two of the channel's senders."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.recall = MemoryRecall(self.search)
        self.root = directory / "work"
        self.root.mkdir()
        self.sources = Sources(self.root, journal=self.journal, recall=self.recall)
        self.targets: list[str] = [MARK, ITEM_TEXT.format("")]

    async def plant(self) -> None:
        """Give each conversation and the owner something with the mark."""
        for session_id in (OWNER, ANNA, MALLORY):
            name = session_id.removeprefix("ses_")
            place = (
                {}
                if session_id == OWNER
                else {"agent": "default", "channel": "chat", "conversation_id": name}
            )
            self.commit(
                session(
                    session_id, principal="ann", key=f"key-{name}" if not place else None, **place
                )
            )
            text = MARK if session_id != MALLORY else "nothing"
            self.tell(f"run_{name}", session_id, ITEM_TEXT.format(text))
            self.targets += [f"run_{name}", session_id, f"key-{name}"]
        text = ITEM_TEXT.format(MARK)
        self.targets += [
            await self.add(text),
            await self.add(f"{text} again", scope="session", session_id=ANNA, channel="chat"),
            await self.add(f"{text} there", scope="channel", channel="chat"),
            await self.add(f"{text} always", kind="preference"),
            await self.add(f"{text} now", pinned=True, scope="session", session_id=ANNA),
            text,
        ]
        self.commit(
            grant(
                "grt_owner", principal="ann", scope="timeboxed", expires_ms=FAR_MS, session_id=OWNER
            ),
            grant("grt_anna", principal="ann", scope="session", session_id=ANNA),
        )
        (self.root / "PALYRA.md").write_text(
            f"Be brief.\n<!-- palyra:begin facts -->\n- {text} <!-- mem_1 -->\n<!-- palyra:end facts -->\n"
        )

    def commit(self, *records: Record) -> None:
        assert [None] == self.store.commit([Change(records=records)])

    def tell(self, run_id: str, session_id: str, text: str) -> None:
        """Put an ended run with one message on its tape."""
        accepted = RunAccepted(principal="ann", session_id=session_id, agent="default", model="m")
        rows = tuple(
            row(run_id, seq, kind=event.KIND, data=encode_event(event), session_id=session_id, principal="ann")
            for seq, event in enumerate((accepted, MessageReceived(text=text)))
        )  # fmt: skip
        record = run(run_id, 1, state="done", principal="ann", session_id=session_id)
        assert [None] == self.store.commit([Change(rows=rows, records=(record,))])

    def audience(self, *, is_confined: bool = True) -> Audience:
        """What mallory's run reaches, or one of a channel that was opened."""
        return Audience(
            principal="ann", session_id=MALLORY, channel="chat", memory_scope="principal",
            is_confined=is_confined,
        )  # fmt: skip

    def look(self) -> str:
        """All that is stored, but for what mallory's own session has."""
        memories = [
            item
            for item in self.store.list_memories(MemoryFilter(principal="ann", now_ms=0, limit=99))
            if item.session_id != MALLORY
        ]
        others = self.store.list_grants(principal="ann", live_at_ms=None, limit=99)
        tapes = [
            self.store.read_tape(f"run_{each}", after_seq=-1, limit=9) for each in ("owner", "anna")
        ]
        return repr((sorted(memories, key=lambda each: each.memory_id), others, tapes))


Probe = Callable[[Town, str, Audience], Awaitable[object]]


def asker_of(audience: Audience) -> Asker:
    return Asker(scope=RecallScope(audience=audience), refusal=lambda *_: "")


async def retain(town: Town, target: str, audience: Audience) -> object:
    place = audience.place
    assert place is not None
    supersedes = target if target.startswith("mem_") else None
    draft = MemoryDraft(
        text=target,
        kind="fact",
        scope="session",
        session_id=MALLORY,
        channel="chat",
        supersedes=supersedes,
    )
    added = await town.memories.retain(draft, place)
    return added.memory_id, added.disposition, added.superseded


async def learn(town: Town, target: str, audience: Audience) -> object:
    scope: dict[str, Any] = (
        {"scope": "session", "session_id": MALLORY} if audience.is_confined else {}
    )
    draft = MemoryDraft(text=target, kind="fact", **scope)

    async def record_nothing(*_: object) -> tuple[()]:
        await trio.lowlevel.checkpoint()
        return ()

    added = await town.memories.learn(draft, principal="ann", by="ann", records=record_nothing)
    return added.memory_id, added.disposition, added.superseded


async def forget(town: Town, target: str, audience: Audience) -> object:
    place = audience.place
    assert place is not None
    return await town.memories.forget_in(place, [target])


async def find_recalled(town: Town, target: str, audience: Audience) -> object:
    scope = RecallScope(audience=audience, run_id="run_new")
    await town.recall.recall(target, scope)
    return await town.memories.find_recalled("ann", MALLORY)


async def search(town: Town, target: str, audience: Audience) -> object:
    place = audience.place
    assert place is not None
    return await town.search.search_in(place, target, MemoryFilter(principal="", now_ms=0))


async def search_said(town: Town, target: str, audience: Audience) -> object:
    place = audience.place
    assert place is not None
    return await town.search.search_said(place, target, run_id="run_new", limit=9)


async def recall(town: Town, target: str, audience: Audience) -> object:
    place = audience.place
    assert place is not None
    return await town.search.recall(target, place)


async def recall_sources(town: Town, target: str, audience: Audience) -> object:
    return await town.sources.sources.recall(asker_of(audience), target)


async def standing(town: Town, _target: str, audience: Audience) -> object:
    place = audience.place
    assert place is not None
    return await town.search.find_standing(place)


async def standing_sources(town: Town, _target: str, audience: Audience) -> object:
    return await town.sources.sources.find_standing(asker_of(audience))


async def find_standing(town: Town, _target: str, audience: Audience) -> object:
    await town.recall.find_standing(RecallScope(audience=audience, run_id="run_new"))
    return await town.memories.find_recalled("ann", MALLORY)


async def resolve(town: Town, target: str, audience: Audience) -> object:
    asker = asker_of(audience)
    found = [
        await town.sources.sources.resolve(asker, reference)
        for kind in sorted({*KINDS} - {"url"})  # a page is the same for everybody
        for named in (target, "PALYRA.md")
        for reference in parse_references(f'@{kind}:"{named}"')
    ]
    return [(each.text, each.note) for each in found]


async def project_files(town: Town, _target: str, audience: Audience) -> object:
    return await town.sources.sources.find_project_files(asker_of(audience), ())


async def plan_session(town: Town, _target: str, audience: Audience) -> object:
    return await town.memories.plan_session("ann", MALLORY, ["run_mallory"])


async def purge_session(town: Town, _target: str, audience: Audience) -> object:
    return await town.memories.purge_session("ann", MALLORY, ["run_mallory"], by="ann")


async def grants(town: Town, _target: str, audience: Audience) -> object:
    known = Grants(town.journal, town.clock)
    known.put(await town.journal.read(known.query))
    example = grant("grt_owner", principal="ann")
    found = known.find("ann", example.agent, example.tool, example.key, example.workspace)
    assert 2 == len(found)
    held = find_grant(
        found, session_id=MALLORY, epoch=0, at_ms=town.clock(), is_confined=audience.is_confined
    )
    return MARK if held is not None else ""


async def prefix(town: Town, _target: str, audience: Audience) -> object:  # noqa: RUF029 - as all probes
    own = ToolSpec(
        name="procedure:own", version="1", description=MARK, parameters={"type": "object"},
        tool_class="effect", risk="low", principal="ann",
    )  # fmt: skip
    toolbox = Toolbox([InlineTool(own, lambda _call: None)], inline_blocking)  # type: ignore[arg-type,return-value]  # never called
    agents = Agents(town.journal, toolbox, {}, town.memories.redactor, town.clock)
    accepted = RunAccepted(
        principal="ann", session_id=MALLORY, agent="default", model="m", channel="chat",
        reach="conversation" if audience.is_confined else "principal",
    )  # fmt: skip
    found = agents.prefix(DEFAULT_AGENT, accepted.owner_of_tools).catalogue
    return [each.description for each in found.tools.values()]


PROBES: dict[str, Probe] = {
    "memory.items.Memories.retain": retain,
    "memory.items.Memories.learn": learn,
    "memory.items.Memories.forget_in": forget,
    "memory.items.Memories.find_recalled": find_recalled,
    "memory.items.Memories.plan_session": plan_session,
    "memory.items.Memories.purge_session": purge_session,
    "memory.search.MemorySearch.search_in": search,
    "memory.search.MemorySearch.search_said": search_said,
    "memory.search.MemorySearch.recall": recall,
    "memory.search.MemorySearch.find_standing": standing,
    "memory.recall.MemoryRecall.find_standing": find_standing,
    "memory.recall.MemoryRecall.recall": find_recalled,
    "context.references.ContextSources.find_standing": standing_sources,
    "context.references.ContextSources.recall": recall_sources,
    "context.references.ContextSources.resolve": resolve,
    "context.references.ContextSources.find_project_files": project_files,
    "policy.grants.Grants.find": grants,
    "registry.agents.Agents.prefix": prefix,
}
# With the reach of its owner these do not show or change more: they are about the session alone.
ABOUT_ONE_SESSION = {
    "memory.items.Memories.plan_session",
    "memory.items.Memories.purge_session",
    "memory.items.Memories.learn",
    "memory.items.Memories.retain",
    "memory.search.MemorySearch.search_said",
}


@pytest.fixture
async def town(tmp_path: Path) -> Town:
    made = Town(tmp_path)
    await made.plant()
    return made


def test_every_reader_and_writer_is_known() -> None:
    """Each that says whose data it is about is probed or explained, and no row is about nothing."""
    found = {name for name, function in list_functions() if carries_principal(function)}
    assert found == PROBES.keys() | EXPLAINED.keys()
    assert set() == PROBES.keys() & EXPLAINED.keys()


def test_a_run_is_no_client() -> None:
    """Callers, which see all of their principal, are made for tokens, tasks and delegated runs only."""
    root = Path(palyra.__file__).parent
    makers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Caller"
    }
    expected = {
        "core/access.py",
        "operations/task_handlers.py",
        "operations/delegation.py",
        "process.py",
        "wiring/healing.py",
    }
    assert expected == makers


@pytest.mark.parametrize("name", sorted(PROBES))
async def test_a_conversation_is_a_wall(town: Town, name: str) -> None:
    """Nothing that is planted elsewhere comes back or changes, whatever the sender asks for."""
    before = town.look()
    for target in town.targets:
        try:
            answer = await PROBES[name](town, target, town.audience())
        except (IllegalState, NotFound) as error:
            answer = error.message
        shown = repr(answer)
        assert MARK not in shown.replace(target, ""), (name, target)
        known = [each for each in town.targets if each.startswith("mem_") and each != target]
        assert not any(each in shown for each in known), (name, target)
        assert before == town.look(), (name, target)


@pytest.mark.parametrize("name", sorted(PROBES.keys() - ABOUT_ONE_SESSION))
async def test_an_opened_channel_is_none(town: Town, name: str) -> None:
    """The same probes find or change what is elsewhere once the channel reaches its owner."""
    before, shown = town.look(), ""
    for target in town.targets:
        try:
            answer = await PROBES[name](town, target, town.audience(is_confined=False))
        except (IllegalState, NotFound):
            continue
        shown += repr(answer).replace(target, "")
    assert MARK in shown or before != town.look()
