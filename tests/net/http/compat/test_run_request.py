"""From a request to a run."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio.testing

from palyra.core.access import Caller
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.model.messages import (
    AssistantMessage,
    ProposedCall,
    Thought,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.request_options import ClientTool
from palyra.core.session.commands import Started, StartRun
from palyra.core.session.fork import InheritedView
from palyra.net.http.compat.conversation import ChatInput
from palyra.net.http.compat.model_names import ModelTarget
from palyra.net.http.compat.run_request import (
    Extension,
    PreviousResponse,
    RunRequest,
    answering,
    make_command,
    settle,
)
from palyra.net.http.compat.sources import CompatSources
from tests.net.api.fake_services import Daemon, open_daemon
from tests.net.api.fake_store import run_record
from tests.rows import every_row

ANN = Caller(principal="ann", role="operator", token_id="tok_ann")
KEY = IdempotencyKey(principal="ann", key="once", body_sha256="0")


@every_row(
    ("target", "named", "agent"),
    [
        (ModelTarget(None, "scripted"), None, None),
        (ModelTarget("helper", None), None, "helper"),
        (ModelTarget(None, "scripted"), "helper", "helper"),
        (ModelTarget("helper", None), "clerk", "clerk"),
    ],
)
def test_the_agent_that_answers(target: ModelTarget, named: str | None, agent: str | None) -> None:
    """However the request names it."""
    ask = RunRequest(chat=ChatInput(text="x"), target=target, extension=Extension(agent=named))
    assert agent == make_command(ask).agent


def test_results_are_not_duplicated() -> None:
    """They come with their conversation, or alone if the session holds it."""
    result = ToolMessage("c1", "look", "succeeded", "x")
    said = (
        UserMessage("go"),
        AssistantMessage("", (ProposedCall(call_id="c1", tool="look", arguments={}),)),
    )
    for is_continued in (False, True):
        chat = ChatInput(before=said, results=(result,), is_continued=is_continued)
        made = make_command(RunRequest(chat=chat, target=ModelTarget(None, "scripted")))
        if is_continued:
            assert (None, (result,)) == (made.branch, made.results)
        else:
            assert made.branch is not None
            assert ((*said, result), ()) == (made.branch.messages, made.results)


def test_one_call_is_one_of_the_clients() -> None:
    """Without tools of its own the wish says nothing: providers refuse it where no tool is."""
    ask = RunRequest(chat=ChatInput(text="x"), target=ModelTarget(None, "scripted"), one_call=True)
    assert make_command(ask).brief is None
    with_tools = msgspec.structs.replace(ask, tools=(ClientTool(name="look", parameters={}),))
    brief = make_command(with_tools).brief
    assert brief is not None
    assert brief.one_call


def promise_slowly(daemon: Daemon) -> Callable[..., object]:
    """A start that is slow for a run that already exists."""

    async def start_run(
        caller: Caller, command: StartRun, _receipt: IdempotencyKey | None = None
    ) -> Started:
        assert command.run_id is not None
        daemon.store.runs[command.run_id] = run_record(command.run_id, principal=caller.principal)
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    return start_run


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(
    ("is_wanted", "is_gone"), [(True, True), (True, False), (False, True), (False, False)]
)
async def test_who_leaves_at_the_start_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
    key: IdempotencyKey | None,
    is_wanted: bool,  # noqa: FBT001 - a parameter of the test
    is_gone: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Who asked for that: the run may be promised although its start was never answered.

    A request that ends with its client still there, as when the daemon goes down, ends no run.
    """
    extension = Extension(cancel_on_disconnect=is_wanted)
    ask = RunRequest(
        chat=ChatInput(text="x"), target=ModelTarget(None, "scripted"), extension=extension
    )
    async with open_daemon() as daemon:
        monkeypatch.setattr(daemon.gateway, "start_run", promise_slowly(daemon))
        sources = CompatSources(backend=daemon.backend, models={})
        with trio.move_on_after(1):
            async with answering(sources, ANN, ask, key, lambda: is_gone):
                raise AssertionError("it never began")
        assert ["cancel the client has left"] * (is_wanted and is_gone) == daemon.gateway.effects


@pytest.mark.parametrize("named", ["session_id", "session_key"])
async def test_a_session_that_is_named_is_continued(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """By id or by key: the messages that it holds are not stored a second time."""
    said = (UserMessage("hi"), AssistantMessage("ho"))
    names: dict[str, Any] = {named: "ses_1"}
    ask = RunRequest(
        chat=ChatInput(text="x", before=said),
        target=ModelTarget(None, "scripted"),
        extension=Extension(**names),
    )

    async def read_conversation(_caller: Caller, run_id: str) -> InheritedView:
        await trio.lowlevel.checkpoint()
        assert "run_1" == run_id
        return InheritedView(messages=said)

    async with open_daemon() as daemon:
        monkeypatch.setattr(daemon.gateway, "read_conversation", read_conversation)
        daemon.store.runs["run_1"] = run_record("run_1", state="done")
        settled = await settle(daemon.backend, ANN, ask, PreviousResponse())
    assert settled.chat.is_continued
    assert () == settled.chat.before
    assert settled.extension.session_id is not None
    assert settled.extension.session_key is None


def id_at(prefix: str, at_ms: int) -> str:
    """An id made then."""
    digits = f"{at_ms:012x}"
    return f"{prefix}_{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


MADE_MS = 1_750_000_000_000
RUN_ID, CALL_ID = id_at("run", MADE_MS), id_at("call", MADE_MS + 5)
OF_OTHERS = "toolu_1"
THOUGHT = Thought(model="p/m", items=({"text": "hm"},))
ASKED = UserMessage("go")
CALLED = AssistantMessage("", (ProposedCall(call_id=CALL_ID, tool="look", arguments={}),))
CALLED_ELSEWHERE = AssistantMessage(
    "", (ProposedCall(call_id=OF_OTHERS, tool="look", arguments={}),)
)
RESULT = ToolMessage(CALL_ID, "look", "succeeded", "x")
RESULT_ELSEWHERE = ToolMessage(OF_OTHERS, "look", "succeeded", "x")


async def sent_on(
    monkeypatch: pytest.MonkeyPatch, chat: ChatInput, *, finished_ms: int, **run: Any
) -> list[Thought | None]:
    """The reasoning that a run is started with, behind each turn of the model."""

    async def read_conversation(_caller: Caller, run_id: str) -> InheritedView:
        await trio.lowlevel.checkpoint()
        assert RUN_ID == run_id
        return InheritedView(messages=(ASKED, msgspec.structs.replace(CALLED, thought=THOUGHT)))

    async with open_daemon() as daemon:
        monkeypatch.setattr(daemon.gateway, "read_conversation", read_conversation)
        given = {"created_ms": MADE_MS, "principal": "ann", **run}
        daemon.store.runs[RUN_ID] = run_record(
            RUN_ID, state="done", tool_calls=1, finished_ms=finished_ms, **given
        )
        ask = RunRequest(chat=chat, target=ModelTarget(None, "scripted"))
        settled = await settle(daemon.backend, ANN, ask, PreviousResponse())
    branch = make_command(settled).branch
    assert branch is not None
    return [each.thought for each in branch.messages if isinstance(each, AssistantMessage)]


@pytest.mark.parametrize(
    ("chat", "thoughts"),
    [
        (ChatInput(before=(ASKED, CALLED), results=(RESULT,)), [THOUGHT]),
        (ChatInput(before=(ASKED, CALLED), results=(RESULT,), text="and?"), [THOUGHT]),
        (ChatInput(before=(ASKED, CALLED, RESULT, UserMessage("a")), text="b"), [THOUGHT]),
        (
            ChatInput(before=(ASKED, CALLED, RESULT, AssistantMessage("ok")), text="b"),
            [THOUGHT, None],
        ),
        (
            ChatInput(
                before=(ASKED, CALLED, RESULT, CALLED_ELSEWHERE), results=(RESULT_ELSEWHERE,)
            ),
            [THOUGHT, None],
        ),
        (ChatInput(before=(ASKED, CALLED_ELSEWHERE), results=(RESULT_ELSEWHERE,)), [None]),
    ],
)
async def test_reasoning_is_added_to_the_calls_of_the_daemon(
    monkeypatch: pytest.MonkeyPatch, chat: ChatInput, thoughts: list[Thought | None]
) -> None:
    """Whatever follows the results, and whoever made other calls of the conversation."""
    assert thoughts == await sent_on(monkeypatch, chat, finished_ms=MADE_MS + 6)


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("run", "thoughts"),
    [
        ({"finished_ms": MADE_MS + 4}, [None]),  # it ended before the call
        ({"finished_ms": MADE_MS + 6, "principal": "bob"}, [None]),
        ({"finished_ms": MADE_MS + 6 - HOUR_MS, "created_ms": MADE_MS - HOUR_MS}, [THOUGHT]),
    ],
)
async def test_the_run_of_a_call_is_the_callers_and_ended_after_it(
    monkeypatch: pytest.MonkeyPatch, run: dict[str, Any], thoughts: list[Thought | None]
) -> None:
    """Also while ids are ahead of a clock that was set back; another principal's call adds nothing."""
    chat = ChatInput(before=(ASKED, CALLED), results=(RESULT,))
    assert thoughts == await sent_on(monkeypatch, chat, **run)
