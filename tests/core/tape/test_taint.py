"""Sources of taint: each event that brings findings is named with its number, and no other."""

import msgspec

from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ToolMessage, UserMessage
from palyra.core.model.sources import ContextSource
from palyra.core.tape import events as ev
from palyra.core.tape.taint import TaintSource, read_taint

BAD = ("spoofed_role",)
RESULT = ToolMessage("c9", "look", "succeeded", "x", findings=BAD)


def inherited(*messages: ToolMessage | UserMessage, is_tainted: bool = False) -> ev.Event:
    """An inherited conversation."""
    return ev.ConversationInherited(
        run_id="r", at_seq=1, link="", messages=messages, is_tainted=is_tainted
    )


def taint(*events: ev.Event) -> tuple[TaintSource, ...]:
    """The sources of a tape of these events."""
    return read_taint(
        TapeRow("r", "s", at, 0, event.KIND, "op", False, ev.encode_event(event))  # noqa: FBT003 - a row
        for at, event in enumerate(events)
    )


def test_a_tool_result_is_named_with_its_tool() -> None:
    """The source has the event, the call, its tool, the findings and the trust."""
    proposed = ev.ToolProposed(
        call_id="c1", tool="http_fetch", arguments={}, digest="", tool_class="idempotent_network"
    )
    done = ev.ToolCompleted(
        call_id="c1", status="succeeded", output="", trust="external_untrusted", findings=BAD
    )
    clean = msgspec.structs.replace(done, findings=())
    wanted = TaintSource(
        seq=2, kind="tool.completed", findings=BAD, call_id="c1", tool="http_fetch",
        trust="external_untrusted",
    )  # fmt: skip
    assert (wanted,) == taint(proposed, clean, done)


def test_inherited_texts_and_results_of_clients_count() -> None:
    """A conversation with findings, or a mark, and a client's tool result are sources."""
    brought = ev.MessageReceived(text="", results=(RESULT,))
    assert [(0, "conversation.inherited")] == [(s.seq, s.kind) for s in taint(inherited(RESULT))]
    assert 1 == len(taint(inherited(is_tainted=True)))
    assert [(BAD, "c9")] == [(s.findings, s.call_id) for s in taint(brought)]
    assert () == taint(inherited(UserMessage("x")), ev.MessageReceived(text="x"))


def test_a_tainted_history_counts() -> None:
    """A run that starts after a tainted one has its start as source."""
    started = ev.RunStarted(instance_id="i")
    assert () == taint(started)
    assert 1 == len(taint(msgspec.structs.replace(started, is_tainted=True)))


def test_gathered_texts_count_one_by_one() -> None:
    """Each gathered text with findings is a source; one without is none."""
    sources = (
        ContextSource(name="a.md", text="x", findings=BAD),
        ContextSource(name="b.md", text="y"),
        ContextSource(name="c.md", text="z", findings=("exfiltration",)),
    )
    gathered = ev.ContextGathered(layer="references", sources=sources)
    assert [BAD, ("exfiltration",)] == [each.findings for each in taint(gathered)]


def test_clean_results_of_clients_and_other_kinds_are_no_sources() -> None:
    """A client's result without findings, and an event that brings no text, count for nothing."""
    clean = msgspec.structs.replace(RESULT, findings=())
    assert () == taint(ev.MessageReceived(text="", results=(clean,)), ev.RunDone(reason="answered"))
