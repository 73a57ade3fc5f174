"""policy.explain: what it says would come of a call is what comes of it."""

import msgspec
import pytest
from trio.testing import MockClock

from palyra.core.access import Caller
from palyra.core.tool.spec import ToolFailure
from palyra.errors import InvalidParams
from tests.actors.run.asking_kit import WORLD, AskingKit, answer, ask, new_store, pending
from tests.actors.run.office_kit import OPERATOR, Kit, running
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    """A journal for one test, of a daemon whose tools ask."""
    monkeypatch.setattr("tests.actors.run.office_kit.Kit", AskingKit)
    return new_store()


def asking(kit: Kit) -> AskingKit:
    """The kit, as what it is."""
    assert isinstance(kit, AskingKit)
    return kit


async def test_an_explanation_includes_the_sessions_grants(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In the session with a grant the call would run; elsewhere it would ask, with its key."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        await answer(kit, asked, scope="session")
        explain = kit.gateway.explain_policy
        given = {"text": "git log"}
        here = await explain(OPERATOR, "ask_do", given, session_id=asked.session_id)
        elsewhere = await explain(OPERATOR, "ask_do", given)
        assert (here.answer, here.reason_code) == ("allow", "granted")
        assert (elsewhere.answer, elsewhere.grant_key, elsewhere.risk) == ("ask", "git", "low")
        assert (await explain(OPERATOR, "forbidden", given)).answer == "deny"


async def test_an_explanation_includes_a_refused_inspection(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Only a caller that may run the call sees it: files are not revealed to others."""
    async with running(store) as kit:
        explain, given = kit.gateway.explain_policy, {"text": "gti"}
        assert ((await explain(OPERATOR, "ask_look", given)).answer, asking(kit).looks) == (
            "ask",
            1,
        )
        asking(kit).world = ToolFailure("no program gti")
        with pytest.raises(InvalidParams, match="no program gti"):
            await explain(OPERATOR, "ask_look", given)
        observer = Caller(principal="ann", role="observer", token_id="tok_o")
        assert ((await explain(observer, "ask_look", given)).answer, asking(kit).looks) == (
            "ask",
            2,
        )


async def test_an_explanation_denies_an_oversized_inspection(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The explanation is that of the complete prompt."""
    async with running(store) as kit:
        many = {f"{number:064}": "0" * 64 for number in range(128)}
        asking(kit).world = msgspec.structs.replace(WORLD, operands=many)
        told = await kit.gateway.explain_policy(OPERATOR, "ask_look", {"text": "x"})
        run_id = await ask(kit, tool="ask_look")
        (decided,) = kit.events(run_id, "tool.decided")
        assert (told.answer, told.reason_code) == (decided.verdict, decided.reason_code)
        assert told.reason_code == "unshowable"
