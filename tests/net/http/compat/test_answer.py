"""A run's frames as an answer: pure, so every order of things can be tried."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.records import Usage
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ProposedCall
from palyra.core.model.request_options import RequestOptions
from palyra.core.run.ending import OWN_WORDS
from palyra.core.tape import events as ev
from palyra.core.tool.spec import CLIENT
from palyra.errors import Unavailable
from palyra.net.http.compat.answer import (
    AnswerEnded,
    AnswerReader,
    Committed,
    Item,
    Part,
    Reasoning,
    ServerCall,
    Streamed,
    Text,
)
from tests.rows import every_row

CALL = ProposedCall(call_id="c1", tool="weather", arguments={})


class Play:
    """Feeds events to an answer; each is committed at once by default."""

    def __init__(self) -> None:
        self.reading = AnswerReader()
        self.seq = 0

    def hear(self, *events: ev.Event, committed: int | None = None) -> list[Part]:
        parts: list[Part] = []
        for event in events:
            data = ev.encode_event(event)
            parts += self.take(
                TapeRow("run_1", "ses_1", self.seq, 1_000, event.KIND, "ann", False, data)  # noqa: FBT003 - of a row
            )
            parts += self.take(Committed(self.seq if committed is None else committed))
            self.seq += 1
        return parts

    def take(self, item: Item) -> list[Part]:
        return list(self.reading.take(item))

    def stream(self, text: str, turn: int = 1, kind: Any = "text") -> list[Part]:
        return self.take(Streamed(f"turn:{turn}", kind, bytearray(text.encode())))


def started(turn: int, *, continues: bool = False) -> ev.TurnStarted:
    return ev.TurnStarted(turn=turn, attempt=1, provider="p", model="m", continues=continues)


def completed(turn: int, text: str, *calls: ProposedCall, finish: Any = "stop") -> ev.TurnCompleted:
    usage = Usage(input_tokens=3, output_tokens=2)
    return ev.TurnCompleted(turn=turn, text=text, calls=calls, finish_reason=finish, usage=usage)


def said(parts: list[Part]) -> str:
    return "".join(part.delta for part in parts if isinstance(part, Text))


def test_text_that_did_not_stream_follows_with_the_turn() -> None:
    """Deltas are passed on as they come; the rest comes with the turn."""
    play = Play()
    play.hear(started(1))
    assert [Text("one ")] == play.stream("one ")
    assert [Text("two")] == play.hear(completed(1, "one two"))
    assert [] == play.hear(ev.MessageCompleted(text="one two"))
    (ended,) = play.hear(ev.RunDone(reason="answered"))
    assert AnswerEnded(finish="stop") == ended
    assert ("one two", 3, 2) == (
        play.reading.text,
        play.reading.usage.input_tokens,
        play.reading.usage.output_tokens,
    )
    assert "m" == play.reading.model


def test_tokens_are_those_of_all_turns() -> None:
    """Tokens from the cache, into the cache and of reasoning are summed separately."""
    play = Play()
    spent = Usage(
        input_tokens=9, output_tokens=4, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1
    )
    for turn, more in ((1, {}), (2, {"source": "provider"})):
        used = msgspec.structs.replace(spent, **more)
        play.hear(started(turn), msgspec.structs.replace(completed(turn, "x"), usage=used))
    assert play.reading.usage == Usage(
        input_tokens=18,
        output_tokens=8,
        source="provider",
        cached_tokens=6,
        cache_write_tokens=4,
        reasoning_tokens=2,
    )


def test_the_end_waits_for_its_commit() -> None:
    """No success is reported before it is durable."""
    play = Play()
    play.hear(started(1), completed(1, "x"), ev.MessageCompleted(text="x"))
    assert [] == play.hear(ev.RunDone(reason="answered"), committed=2)
    assert [] == play.take(Committed(2))
    assert [AnswerEnded(finish="stop")] == play.take(Committed(3))
    assert [] == play.take(Committed(9))


def test_turns_are_paragraphs() -> None:
    """A blank line separates turns, but not an empty or a continued one."""
    play = Play()
    parts = play.hear(started(1), completed(1, "one"), started(2), completed(2, ""), started(3))
    parts += play.stream("tw", 3)
    parts += play.hear(completed(3, "two", finish="length"), started(4, continues=True))
    parts += play.stream(" more", 4)
    parts += play.hear(completed(4, " more"), ev.MessageCompleted(text="two more"))
    assert "one\n\ntwo more" == said(parts) == play.reading.text


def test_a_partial_answer_is_not_duplicated() -> None:
    """A partial answer that extends the last text adds to it; another text is another paragraph."""
    play = Play()
    parts = play.hear(started(1), completed(1, "so far"), ev.MessageCompleted(text="so far [end]"))
    assert "so far [end]" == said(parts)
    play = Play()
    parts = play.hear(started(1), completed(1, "so far"), ev.MessageCompleted(text="It ended."))
    parts += play.hear(ev.RunDone(reason="partial", cause="turn_cap", missing="no answer"))
    assert "so far\n\nIt ended." == said(parts)
    assert AnswerEnded(finish="length", partial="turn_cap", reason="no answer") == parts[-1]


def test_in_json_mode_only_the_answer_counts() -> None:
    """A rejected text is never sent."""
    play = Play()
    promise = ev.RunAccepted(
        principal="ann", session_id="ses_1", agent="default", model="m", json_mode=True
    )
    play.hear(promise, started(1))
    assert [] == play.stream("no js")
    parts = play.hear(
        completed(1, "no json"), started(2), completed(2, "{}"), ev.MessageCompleted(text="{}")
    )
    parts += play.hear(ev.RunDone(reason="answered"))
    assert [Text("{}"), AnswerEnded(finish="stop")] == parts


FORCED = ev.RunAccepted(
    principal="ann",
    session_id="ses_1",
    agent="default",
    model="m",
    brief=RequestOptions(must_call="*"),
)


def test_with_a_required_call_text_is_held_back() -> None:
    """It is sent with a call; without one the answer is a refusal."""
    play = Play()
    parts = play.hear(FORCED, started(1)) + play.stream("I would rather talk")
    parts += play.hear(completed(1, "I would rather talk"), started(2))
    assert [] == parts
    ended = ev.RunDone(reason="answered")
    parts = play.stream("let me see", 2) + play.hear(
        completed(2, "let me see", CALL),
        ev.MessageCompleted(text="let me see", calls=(CALL,)),
        ended,
    )
    assert [Text("let me see"), AnswerEnded(finish="tool_calls", calls=(CALL,))] == parts
    play = Play()
    play.hear(
        FORCED, started(1), completed(1, "I talk"), ev.MessageCompleted(text="No call. I talk")
    )
    parts = play.hear(ev.RunDone(reason="partial", cause="not_called", missing="no call"))
    wanted = AnswerEnded(finish="stop", partial="not_called", reason="no call", refusal="no call")
    assert [wanted] == parts


@pytest.mark.parametrize("json_mode", [True, False])
def test_a_text_of_the_daemon_is_a_refusal(*, json_mode: bool) -> None:
    """Neither JSON nor prose of the daemon is an answer; the refusal has the reason."""
    play = Play()
    promise = ev.RunAccepted(
        principal="ann", session_id="ses_1", agent="default", model="m", json_mode=json_mode
    )
    parts = play.hear(
        promise,
        started(1),
        completed(1, "no json" if json_mode else ""),
        ev.MessageCompleted(text='{"partial":true}' if json_mode else "This run ended."),
        ev.RunDone(reason="partial", cause="x", missing="it is none"),
    )
    wanted = AnswerEnded(finish="stop", partial="x", reason="it is none", refusal="it is none")
    assert ([wanted], "") == (parts, play.reading.text)


@every_row("said_before", ["", "\n", "{"])
@every_row("json_mode", [True, False])
def test_the_models_own_words_are_no_refusal(said_before: str, *, json_mode: bool) -> None:
    """Also when they end where the caller wanted, or a call's outcome is unknown."""
    for cause in OWN_WORDS:
        play = Play()
        promise = ev.RunAccepted(
            principal="ann", session_id="ses_1", agent="default", model="m", json_mode=json_mode
        )
        parts = play.hear(
            promise,
            started(1),
            completed(1, said_before, finish="length"),
            ev.MessageCompleted(text=said_before),
            ev.RunDone(reason="partial", cause=cause, missing="why"),
        )
        assert said_before == said(parts)
        assert isinstance(parts[-1], AnswerEnded)
        assert not parts[-1].refusal


def test_lost_deltas_end_the_answer() -> None:
    """Sent text cannot be taken back, so the stream ends with an error."""
    play = Play()
    play.hear(started(1))
    play.stream("second half")
    with pytest.raises(Unavailable):
        play.hear(completed(1, "first half, second half"))
    play = Play()
    play.hear(started(1))
    play.stream("begun")
    play.hear(started(1))
    with pytest.raises(Unavailable):
        play.hear(completed(1, "anew"))


def test_another_attempt_with_the_same_words_goes_on() -> None:
    """What the client has is not sent again."""
    play = Play()
    play.hear(started(1))
    play.stream("be")
    play.hear(msgspec.structs.replace(started(1), attempt=2))
    play.hear(completed(1, "begun"))
    assert "begun" == play.reading.text


def test_late_deltas_are_ignored() -> None:
    """The turn has the complete text."""
    play = Play()
    play.hear(started(1), completed(1, "x"))
    assert [] == play.stream("x", 1)


def test_thoughts_are_kept_apart() -> None:
    """They are no part of the text."""
    play = Play()
    play.hear(started(1))
    assert [Reasoning("hm")] == play.stream("hm", kind="reasoning")
    assert ("", "hm") == (play.reading.text, play.reading.reasoning)


def proposed(executor: str) -> ev.ToolProposed:
    return ev.ToolProposed(
        call_id="c1",
        tool="weather",
        arguments={},
        digest="",
        tool_class="effect",
        executor=executor,
    )


def attested(status: str) -> ev.ToolAttested:
    return ev.ToolAttested(call_id="c1", attestation={"status": status}, digest="", signature="")


ASKED = ev.ApprovalRequested(
    approval_id="apr_1",
    call_id="c1",
    tool="weather",
    risk="low",
    summary="",
    arguments={},
    digest="",
    scopes=("once",),
    expires_ms=9,
    policy_reason="",
)
ALLOWED = ev.ApprovalResolved(
    approval_id="apr_1", call_id="c1", decision="allow", scope="once", by="ann", reason=""
)


def test_calls_of_the_daemon_are_reported_as_they_change() -> None:
    """Proposal, approval and outcome are reported."""
    play = Play()
    ended = ev.ToolCompleted(call_id="c1", status="failed", output="", error="no")
    parts = play.hear(proposed("thread"), ASKED, ALLOWED, ended, attested("failed"))
    calls = [part for part in parts if isinstance(part, ServerCall)]
    assert ["proposed", "awaiting_approval", "allowed", "failed"] == [c.status for c in calls]
    assert ("apr_1", 9) == (calls[1].approval_id, calls[1].expires_ms)
    assert "no" == calls[-1].error


def test_calls_of_the_client_are_its_answer() -> None:
    """They are no business of the daemon's, and the reason to stop."""
    play = Play()
    parts = play.hear(
        started(1),
        completed(1, "", CALL, finish="tool_calls"),
        proposed(CLIENT),
        attested("handed_over"),
        ev.MessageCompleted(text="", calls=(CALL,)),
        ev.RunDone(reason="answered"),
    )
    assert [AnswerEnded(finish="tool_calls", calls=(CALL,))] == parts


def test_an_approval_waits_for_its_commit() -> None:
    """A client that is notified finds it; later events keep their order."""
    play = Play()
    assert 1 == len(play.hear(proposed("thread")))
    assert [] == play.hear(ASKED, ALLOWED, committed=0)
    told = [*play.take(Committed(1)), *play.take(Committed(2))]
    statuses = [part.status for part in told if isinstance(part, ServerCall)]
    assert ["awaiting_approval", "allowed"] == statuses


def test_an_approval_of_a_clients_call_is_reported() -> None:
    """The answer shows what the request waits for, and the outcome."""
    play = Play()
    parts = play.hear(proposed(CLIENT), ASKED, ALLOWED, attested("handed_over"))
    calls = [part for part in parts if isinstance(part, ServerCall)]
    assert ["awaiting_approval", "allowed", "handed_over"] == [c.status for c in calls]
    assert [calls[-1]] == list(play.reading.server_calls.values())


@every_row(
    ("finish", "cause", "told"),
    [
        ("content_filter", "cut_off", "content_filter"),
        ("length", "max_tokens", "length"),
        ("length", "cut_off", "length"),
        ("stop", "turn_cap", "length"),
        ("stop", "no_progress", "stop"),
        ("content_filter", "", "stop"),
    ],
)
def test_the_finish_reason_of_an_answer(finish: str, cause: str, told: str) -> None:
    """The provider's reason counts if there is no complete answer."""
    play = Play()
    play.hear(started(1), completed(1, "x", finish=finish), ev.MessageCompleted(text="x"))
    reason = "partial" if cause else "answered"
    ended = play.hear(ev.RunDone(reason=reason, cause=cause))[-1]
    assert isinstance(ended, AnswerEnded)
    assert told == ended.finish


def test_ends_without_an_answer() -> None:
    """The class says why."""
    play = Play()
    (failed,) = play.hear(ev.RunFailed(failure_class="auth", reason="no key", action="set one"))
    assert AnswerEnded(finish="stop", failure_class="auth", reason="no key: set one") == failed
    (cancelled,) = Play().hear(ev.RunCancelled(reason="", by="ann"))
    assert isinstance(cancelled, AnswerEnded)
    assert "run_cancelled" == cancelled.failure_class


def again(turn: int, attempt: int) -> ev.TurnStarted:
    return ev.TurnStarted(turn=turn, attempt=attempt, provider="p", model="m", continues=False)


def test_another_attempt_goes_on_behind_the_same_words() -> None:
    """What a client has is not repeated."""
    play = Play()
    play.hear(again(1, 1))
    assert [Text("Paris is")] == play.stream("Paris is")
    play.hear(again(1, 2))
    assert [Text(" large.")] == play.hear(completed(1, "Paris is large."))


@pytest.mark.parametrize("second", ["London", "Paris", ""])
def test_another_attempt_that_answers_otherwise_is_an_error(second: str) -> None:
    """Also one that ends before the words that a client has: it would keep them as the answer."""
    play = Play()
    play.hear(again(1, 1))
    play.stream("Paris is not")
    play.hear(again(1, 2))
    with pytest.raises(Unavailable, match="its next answer differs"):
        play.hear(completed(1, second))


def test_an_answer_that_is_sent_as_a_whole_may_differ() -> None:
    """Nothing of the first attempt was sent."""
    play = Play()
    promise = ev.RunAccepted(
        principal="ann", session_id="ses_1", agent="default", model="m", json_mode=True
    )
    play.hear(promise, again(1, 1))
    assert [] == play.stream('{"a": 1')
    play.hear(again(1, 2))
    play.hear(completed(1, '{"b": 2}'), ev.MessageCompleted(text='{"b": 2}'))
    assert '{"b": 2}' == said(play.hear(ev.RunDone(reason="answered")))
