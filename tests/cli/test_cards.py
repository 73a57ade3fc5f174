"""Cards of calls: opened by a proposal, closed with one line."""

import msgspec
import pytest

from palyra.cli.run.printer import RunPrinter
from palyra.cli.view.cards import Cards
from palyra.client import ProgressItem, TapeEvent
from palyra.core.tape import events as ev
from tests.rows import every_row

PROPOSED = ev.ToolProposed(
    call_id="c1", tool="read_file", arguments={"path": "a\u202e.txt"}, digest="0" * 64,
    tool_class="read_only_safe",
)  # fmt: skip
DENIED = ev.ToolDecided(
    call_id="c1", verdict="deny", reason_code="person", reason="no\x1b[2J", policies=(),
    policy_version="v1",
)  # fmt: skip


def item(event: ev.Event) -> TapeEvent:
    """An event as a subscription yields it."""
    return TapeEvent(
        run_id="r", session_id="s", seq=0, at_ms=0, kind=type(event).KIND,
        data=msgspec.json.encode(event), event=event,
    )  # fmt: skip


def test_text_of_a_resumed_turn_is_printed_from_its_beginning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After a restart the turn streams again from offset 0; what was printed before is named as withdrawn."""
    printer = RunPrinter(streams=True)

    def stream(delta: str, offset: int) -> None:
        printer.tell(
            ProgressItem(
                run_id="r", item="turn:1", order=0, kind="text", delta=delta, offset=offset
            )
        )

    stream("one two", 0)
    printer.tell(item(ev.RunRecovered(attempt=1, from_seq=5)))
    stream("uno ", 0)
    shown = capsys.readouterr()
    assert ("one two\nuno ", True) == (shown.out, "the text of this turn is withdrawn" in shown.err)


@every_row(
    ("last", "mark", "text"),
    [
        (
            ev.ToolCompleted(call_id="c1", status="succeeded", output="two\nlines", duration_ms=3),
            "✓",
            "succeeded, 3 ms: two lines",
        ),
        (
            ev.ToolCompleted(call_id="c1", status="timed_out", output="late", duration_ms=9),
            "✗",
            "timed out, 9 ms: late",
        ),
        (ev.ToolRejected(call_id="c1", reason="path: no", repair_hint=""), "✗", "malformed: path"),
        (DENIED, "✗", "denied: no\\u001b[2J"),
    ],
)
def test_call_is_one_line_when_it_has_ended(last: ev.Event, mark: str, text: str) -> None:
    """A call has one line, with its end, and is open until then; hidden characters are escaped."""
    cards = Cards()
    assert cards.take(item(PROPOSED)) is None
    assert "read_file" in cards.status
    line = cards.take(item(last))
    assert line is not None
    assert (mark, "", True) == (line.mark, cards.status, text in line.text)
    assert {"\n", "\x1b", "\u202e"}.isdisjoint(line.text)


def test_lines_of_a_failed_program_stay_below_its_card() -> None:
    """The card fits its width and says how the program ended; the last 20 lines follow as they are."""
    cards = Cards(60)
    arguments = {"argv": ["sh", "-c", "x" * 200]}
    cards.take(
        item(
            msgspec.structs.replace(PROPOSED, tool="shell", arguments=arguments, executor="process")
        )
    )
    output = "\n".join([*(f"row {number}" for number in range(30)), "y" * 300, "[exit code 3]"])
    line = cards.take(item(ev.ToolCompleted(call_id="c1", status="failed", output=output)))
    assert line is not None
    assert len(f"{line.mark} {line.text}") <= 60
    assert line.text.endswith("failed, 0 ms: exit code 3")
    assert ("… 11 lines before these: palyra tape show --full r", "row 11") == line.lines[:2]
    assert "y" * 300 == line.lines[-1]


def test_allowed_call_stays_open() -> None:
    """A permission is not the end of a call."""
    cards = Cards()
    cards.take(item(PROPOSED))
    assert cards.take(item(msgspec.structs.replace(DENIED, verdict="allow"))) is None
    assert cards.status


def test_end_of_a_run_is_told_only_if_it_is_not_whole() -> None:
    """An answer speaks for itself; a partial one, a failure and a cancel have a line."""
    cards = Cards()
    assert cards.take(item(ev.RunDone(reason="answered"))) is None
    for event in (
        ev.RunDone(reason="partial", cause="no_progress", missing="it repeats itself"),
        ev.RunFailed(failure_class="auth", reason="no key", action="set one"),
        ev.RunCancelled(reason="enough", by="owner"),
    ):
        assert cards.take(item(event)) is not None


@pytest.mark.parametrize("width", [60, 79, 99])
def test_card_of_a_call_fits_the_width(width: int) -> None:
    """A long call is cut for the sake of its result, and both stay on one line."""
    cards = Cards(width)
    arguments = {"path": "note.txt", "content": "hello there, " * 9}
    cards.take(item(msgspec.structs.replace(PROPOSED, tool="write_file", arguments=arguments)))
    done = ev.ToolCompleted(
        call_id="c1", status="succeeded", output="wrote 11 bytes " * 9, duration_ms=4_500
    )
    line = cards.take(item(done))
    assert line is not None
    assert len(f"{line.mark} {line.text}") <= width
    assert "wrote" in line.text
