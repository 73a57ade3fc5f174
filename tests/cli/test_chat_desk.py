"""The desk of a conversation: its status in words, what a line means, and which question waits."""

import os
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.cli.chat import desk as chat_desk
from palyra.cli.chat import terminal as chat_terminal
from palyra.cli.chat.commands import give_title, show_model
from palyra.cli.chat.desk import WITHDRAWN_S, ChatDesk, describe_state, fit_status
from palyra.cli.chat.session import Conversation
from palyra.cli.chat.terminal import Question, Typed
from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.talk import Options
from palyra.cli.run.approve_policy import ApprovePolicy
from palyra.client import TapeEvent
from palyra.core.model.views import ModelList, ModelView
from palyra.core.policy.questions import ASK_USER
from palyra.core.tape import events as ev
from palyra.errors import Forbidden, NotFound, Unreachable


@pytest.mark.parametrize(
    ("calls", "is_asked", "quiet_s", "lost_s", "state"),
    [
        (None, False, 900.0, None, "idle"),
        ("", False, 1.0, None, "thinks"),
        ("", False, 12.4, None, "thinks, 12 s"),
        ("shell(ls)", False, 0.0, None, "runs shell(ls)"),
        ("shell(ls)", False, 61.0, None, "runs shell(ls), 61 s"),
        ("shell(ls)", True, 61.0, None, "waits for you"),
        (None, False, 900.0, 6.0, "reconnecting, 6 s"),
        ("", True, 0.0, 0.0, "reconnecting, 0 s"),
        ("", False, 0.0, 21.0, "no daemon; Ctrl-D leaves"),
    ],
)
def test_state_says_what_a_person_waits_for(
    calls: str | None,
    is_asked: bool,  # noqa: FBT001 - a row
    quiet_s: float,
    lost_s: float | None,
    state: str,
) -> None:
    """A lost connection comes first, then a question, then the silence of model or call."""
    assert state == describe_state(calls, is_asked=is_asked, quiet_s=quiet_s, lost_s=lost_s)


def test_long_call_leaves_room_for_the_seconds() -> None:
    """The status stays short, whatever a call is named."""
    state = describe_state("x" * 500, is_asked=False, quiet_s=7.0, lost_s=None)
    assert state.endswith("…, 7 s")
    assert len(state) < 60


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ours/listed", "the next message goes to ours/listed"),
        ("ours/other", "the next message goes to ours/other"),
        ("theirs/x", "it may be refused"),
    ],
)
async def test_model_takes_each_name_that_the_option_takes(name: str, said: str) -> None:
    """A list holds only some names of a provider; a name without a provider must be listed."""
    models = Mock()
    view = ModelView(name="ours/listed", provider="ours", breaker="closed")
    models.list_models = AsyncMock(
        return_value=ModelList(models=[view], routing="suggest", failover=())
    )
    conversation = Conversation(models, Options())
    assert said in (await show_model(conversation, name))[0]
    assert name == conversation.model
    with pytest.raises(CommandFailed, match="no model 'listed'"):
        await show_model(conversation, "listed")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (79, "ask · m · in home · agent default · runs shell(ls), 61 s"),
        (40, "ask · m · in home · runs shell(ls), 61 s"),
        (22, "runs shell(ls), 61 s"),
        (10, "runs shel…"),
    ],
)
def test_state_has_its_room_in_a_narrow_terminal(width: int, shown: str) -> None:
    """The least important facts are left out before the state is cut."""
    facts = ["ask", "m", "in home", "agent default"]
    assert shown == fit_status(facts, "runs shell(ls), 61 s", width)


def a_desk(run_id: str | None = "run_1") -> tuple[ChatDesk, Mock]:
    """A desk with an open run, and its client."""
    client = Mock(spec_set=["steer", "start_run", "preview_approval", "is_connected"])
    client.steer = AsyncMock()
    client.start_run = AsyncMock()
    client.preview_approval = AsyncMock(side_effect=NotFound("it has just been answered"))
    desk = ChatDesk(Conversation(client, Options()), ApprovePolicy(), Mock(), Mock(), run_id=run_id)
    return desk, client


def an_item(event: ev.Event) -> TapeEvent:
    return TapeEvent(
        run_id="run_1", session_id="ses_1", seq=7, at_ms=0, kind=event.KIND, event=event, data=b""
    )


ASKED = ev.ApprovalRequested(
    approval_id="apr_1", call_id="call_1", tool="shell", arguments={}, digest="d", risk="high",
    policy_reason="", expires_ms=9, scopes=("once",), summary="shell(ls)",
)  # fmt: skip
FORM = msgspec.structs.replace(
    ASKED,
    tool=ASK_USER,
    arguments={"question": "Which?", "form": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"]}},
)  # fmt: skip


async def ask_and_withdraw(desk: ChatDesk) -> None:
    """Show a question, and withdraw it because the rules changed."""
    await desk._note(an_item(ASKED))
    withdrawn = ev.ApprovalResolved(
        approval_id="apr_1", call_id="call_1", decision="abort", scope="once", by="rules",
        reason="the rules have changed since it was asked",
    )  # fmt: skip
    await desk._note(an_item(withdrawn))


@pytest.mark.parametrize("line", ["y", "N", " s ", "yes", "2"])
async def test_short_answer_to_a_question_that_is_gone_is_no_message(
    line: str, autojump_clock: MockClock
) -> None:
    """Nothing is sent right after the question; later the same line is a message."""
    desk, client = a_desk()
    await ask_and_withdraw(desk)
    assert not await desk.take(Typed(line))
    client.steer.assert_not_awaited()
    await trio.sleep(WITHDRAWN_S)
    assert not await desk.take(Typed(line))
    client.steer.assert_awaited_once()


async def test_message_after_a_question_that_is_gone_is_sent(autojump_clock: MockClock) -> None:
    """A line of more than an answer is one, as is a short line without such a question."""
    desk, client = a_desk()
    assert not await desk.take(Typed("y"))
    await ask_and_withdraw(desk)
    assert not await desk.take(Typed("no, use the other file"))
    assert ["y", "no, use the other file"] == [
        each.args[1] for each in client.steer.await_args_list
    ]


@pytest.mark.parametrize(
    ("asked", "lines"), [(ASKED, ["n not now"]), (FORM, ["7", "x"])], ids=["approval", "form"]
)
async def test_answer_that_does_not_arrive_can_be_given_again(
    asked: ev.ApprovalRequested, lines: list[str], autojump_clock: MockClock
) -> None:
    """The question waits on, a form from its first field; later the same lines answer it."""
    desk, client = a_desk()
    client.mock_add_spec(["preview_approval", "is_connected", "resolve_approval"])
    client.resolve_approval = AsyncMock(side_effect=[Unreachable("the daemon is gone"), None])
    terminal = desk.terminal = Mock()
    await desk._note(an_item(asked))
    for _ in range(2):
        for line in lines:
            assert not await desk.take(Typed(line, "apr_1"))
    first, second = client.resolve_approval.await_args_list
    assert first == second
    assert any("the daemon is gone" in each.args[0] for each in terminal.print.call_args_list)
    assert None is terminal.ask.call_args.args[0]


async def test_answer_by_a_rule_that_does_not_arrive_leaves_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--approve` is refused to the token: the run is followed on, and the person may answer."""
    desk, client = a_desk()
    client.mock_add_spec(["is_connected", "resolve_approval"])
    client.resolve_approval = AsyncMock(side_effect=Forbidden("no scope"))
    permitted = AsyncMock(return_value=(["? shell(ls)"], True))
    monkeypatch.setattr(chat_desk, "describe_question", permitted)
    terminal = desk.terminal = Mock()
    await desk._note(an_item(ASKED))
    assert ("apr_1", ("? shell(ls)",)) == terminal.ask.call_args.args[0][:2]
    assert {"apr_1": ASKED} == desk._pending


@pytest.mark.parametrize("line", ["a\0b", "/export a\0b", "!echo a\0b", "caf\udce9"])
async def test_bytes_that_are_no_text_are_not_sent(line: str) -> None:
    """Nor run, nor part of a name: the line is refused, and the conversation goes on."""
    desk, client = a_desk()
    terminal = desk.terminal = Mock()
    assert not await desk.take(Typed(line))
    client.steer.assert_not_awaited()
    assert "nothing was sent" in terminal.print.call_args_list[0].args[0]


@pytest.mark.parametrize("run_id", [None, "run_1"])
async def test_output_that_ends_while_a_message_is_sent_waits_for_the_next(
    run_id: str | None,
) -> None:
    """A message takes the outputs that it carries, and no other."""
    desk, client = a_desk(run_id)
    outputs = desk.conversation.outputs
    outputs.append("first")

    async def send(*_: object, **__: object) -> Mock:
        outputs.append("second")
        await trio.lowlevel.checkpoint()
        return Mock(run_id="run_1", session_id="ses_1")

    client.steer.side_effect = client.start_run.side_effect = send
    assert not await desk.take(Typed("go on"))
    assert ["second"] == outputs


async def test_status_shows_the_title_of_the_session() -> None:
    """In place of its id, until another session begins."""
    desk, client = a_desk()
    client.mock_add_spec(["rename_session", "is_connected"])
    client.rename_session = AsyncMock(return_value=Mock(title="Mend the bell"))
    desk.conversation.session_id = "ses_0123456789abcdef"
    terminal = desk.terminal = Mock()
    desk.show_status()
    await give_title(desk.conversation, "Mend the bell")
    desk.show_status()
    desk.conversation.begin()
    desk.show_status()
    assert ["456789abcdef", "Mend the bell", "new session"] == [
        next(each for each in ("456789abcdef", "Mend the bell", "new session") if each in line)
        for (line,) in (each.args for each in terminal.show_status.call_args_list)
    ]


def test_question_without_lines_fits_each_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next field of a form has none, and a window may have two rows."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((9, 2)))
    chat_terminal.show_question(Question("apr_1", (), "b: a text: "))
