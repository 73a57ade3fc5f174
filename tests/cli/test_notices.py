"""The bell of a question that waits."""

import pytest
import trio
import trio.testing

from palyra.cli.chat.desk import ChatDesk
from palyra.cli.chat.session import Conversation
from palyra.cli.command import output
from palyra.cli.command.answers import NOTICE_S
from palyra.cli.command.output import make_notice
from palyra.cli.command.talk import Options
from palyra.cli.run import approval_prompt
from palyra.cli.run.approval_prompt import ApprovalPrompt
from palyra.cli.run.approve_policy import ApprovePolicy
from palyra.core.text.escapes import Notice, choose_notice
from palyra.errors import Unavailable
from tests.cli.test_cards import item
from tests.cli.test_run import ASKED


@pytest.mark.parametrize(
    ("environment", "notice"),
    [
        ({}, "none"),
        ({"TERM": "dumb", "TERM_PROGRAM": "ghostty"}, "none"),
        ({"TERM": "xterm-256color"}, "bell"),
        ({"TERM": "linux"}, "bell"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "osc9"),
        ({"TERM": "xterm-kitty"}, "osc9"),
        ({"TERM": "foot-extra"}, "osc777"),
        ({"TERM": "rxvt-unicode-256color"}, "osc777"),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "WezTerm"}, "bell"),
        ({"TERM": "foot", "STY": "1.pts"}, "bell"),
    ],
)
def test_a_desktop_notice_is_for_terminals_that_show_one(
    environment: dict[str, str], notice: Notice
) -> None:
    """Every other terminal has the bell, and what is no terminal nothing."""
    assert notice == choose_notice(environment, is_terminal=True)
    assert choose_notice(environment, is_terminal=False) == "none"


def test_a_pipe_gets_no_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output of a test is no terminal; at one the notice begins with the bell."""
    monkeypatch.setenv("TERM", "foot")
    assert not make_notice()
    monkeypatch.setattr(output, "_is_terminal", lambda *, err: not err)
    assert make_notice().startswith("\a\x1b]777;")
    assert not make_notice(err=True)


class Items:
    """A subscription without news."""

    wait_item = staticmethod(trio.sleep_forever)


class NoClient:
    """A daemon that shows no preview and no models."""

    async def _refuse(self, *_given: object, **_options: object) -> None:
        await trio.lowlevel.checkpoint()
        raise Unavailable("gone")

    preview_approval = list_models = _refuse
    is_connected = True


class Terminal:
    """Notes when it rings."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def notify(self) -> None:
        """Ring."""
        self.times.append(trio.current_time())

    def show_notice(self, _text: str, *, err: bool) -> None:
        """Ring on standard error."""
        assert err
        self.notify()

    def show(self, *_what: object) -> None:
        """Show nothing."""

    ask = print = show_status = show


@pytest.mark.parametrize("rings", [True, False])
async def test_a_question_of_a_run_rings_once(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
    *,
    rings: bool,
) -> None:
    """It rings when nobody has answered for some seconds, and never again."""
    del autojump_clock
    terminal = Terminal()
    monkeypatch.setattr(approval_prompt, "write", terminal.show_notice)
    reading, writing = trio.socket.socketpair()
    with reading, writing:
        prompt = ApprovalPrompt(NoClient(), reading.fileno(), rings=rings)  # type: ignore[arg-type]  # what it needs of one
        prompt.note(item(ASKED))
        with trio.move_on_after(100 * NOTICE_S):
            await prompt.work(Items())  # type: ignore[arg-type]  # see above
    assert ([NOTICE_S] if rings else []) == terminal.times


@pytest.mark.parametrize("rings", [True, False])
async def test_a_question_of_a_conversation_rings_once(
    autojump_clock: trio.testing.MockClock, *, rings: bool
) -> None:
    """The clock of the status sees that the time is over."""
    del autojump_clock
    terminal, client = Terminal(), NoClient()
    conversation = Conversation(client, Options())  # type: ignore[arg-type]  # see above
    async with trio.open_nursery() as nursery:
        desk = ChatDesk(conversation, ApprovePolicy(), terminal, nursery, rings=rings)  # type: ignore[arg-type]  # see above
        nursery.start_soon(desk.tick)
        await desk._note(item(ASKED))
        await trio.sleep(100 * NOTICE_S)
        nursery.cancel_scope.cancel("enough")
    assert ([NOTICE_S] if rings else []) == terminal.times
