"""Results of calls as a person reads them."""

import pytest

from palyra.cli.view.call_result import LiveOutput, describe_result, split_lines
from palyra.core.tape.events import ToolCompleted
from palyra.core.tool.spec import OutcomeStatus


@pytest.mark.parametrize(
    ("status", "output", "is_program", "summary", "lines"),
    [
        ("succeeded", "one\ntwo", False, "one\ntwo", ()),
        ("succeeded", "one\n[exit code 0]", True, "exit code 0", ("one",)),
        ("succeeded", "[exit code 0]", True, "exit code 0", ()),
        ("succeeded", "short", True, "short", ()),
        ("succeeded", "x" * 90, True, "", ("x" * 90,)),
        ("failed", "Traceback\n  File x\nKeyError: 1", False, "", ("Traceback", "  File x", "KeyError: 1")),
        ("failed", "no such file", False, "no such file", ()),
        ("timed_out", "", True, "", ()),
    ],
)  # fmt: skip
def test_lines_are_those_of_programs_and_of_failures(
    status: OutcomeStatus, output: str, is_program: bool, summary: str, lines: tuple[str, ...]  # noqa: FBT001 - a row
) -> None:  # fmt: skip
    """Lines stay as they are; a result of one line that fits stands on the line of the call."""
    done = ToolCompleted(call_id="c", status=status, output=output)
    result = describe_result(done, 80, is_program=is_program)
    assert (summary, lines) == (result.summary, result.lines)


def test_notes_on_a_failed_program_are_shown_whole() -> None:
    """How it ended is on the line of the call, and why, with the remedy, below what it printed."""
    ending, note = (
        "exit code 127; 40 bytes of output in 0.9 s",
        "the sandbox is the reason: " + "x" * 90,
    )
    printed = ["[a line of its own]", "python: not found"]
    rows: dict[OutcomeStatus, list[str]] = {"failed": [*printed, note], "succeeded": printed}
    for status, shown in rows.items():
        output = "\n".join([*printed, f"[{ending}]", f"[{note}]"])
        done = ToolCompleted(call_id="c", status=status, output=output)
        result = describe_result(done, 80, is_program=True)
        assert (ending, tuple(shown)) == (result.summary, result.lines)


def test_error_of_a_failed_call_is_shown_where_it_printed_nothing() -> None:
    """The cause of a failure is never missing."""
    done = ToolCompleted(call_id="c", status="failed", output="", error="no daemon")
    assert "no daemon" == describe_result(done, 80, is_program=True).summary


def test_line_that_is_rewritten_is_as_it_was_left() -> None:
    """A progress bar is its last state, a line of DOS ends with itself."""
    assert ["100%", "", "done"] == split_lines("\n10%\r50%\r100%\n\ndone\r\n\n")


def test_live_output_keeps_its_end() -> None:
    """However much a program prints, the memory is bounded, and the unfinished line is shown."""
    live = LiveOutput()
    for number in range(50_000):
        live.add(f"{number}\n")
    live.add("half")
    assert ["49998", "49999", "half"] == live.last_lines(3)
    assert len(live._text) == LiveOutput.MAX_CHARS
