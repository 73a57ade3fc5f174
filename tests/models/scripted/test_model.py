"""The scripted model: what it plays, what it answers, and that only the request decides."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.core.ids import Prefix
from palyra.core.model.messages import (
    FAILURE_CLASSES,
    AssistantMessage,
    Delta,
    Message,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    Sampling,
    ToolMessage,
    UserMessage,
)
from palyra.core.text.tokens import estimate_tokens
from palyra.core.trust.fences import fence
from palyra.errors import InvalidParams
from palyra.models.scripted.model import Scripted
from palyra.models.scripted.scripts import ScriptBook, parse_scripts, scripts_schema
from tests.rows import every_row


@dataclass
class Ids:
    """Counts instead of choosing."""

    made: list[str] = field(default_factory=list)

    def __call__(self, prefix: Prefix) -> str:
        self.made.append(f"{prefix}_{len(self.made)}")
        return self.made[-1]


def ask(*messages: Message, attempt: int = 1, **changes: object) -> ModelRequest:
    plain = ModelRequest(
        run_id="run_1",
        turn=1,
        attempt=attempt,
        model="scripted",
        instructions="",
        messages=messages,
    )
    return msgspec.structs.replace(plain, **changes)


def result_of(call: ProposedCall, output: str, status: str = "succeeded") -> ToolMessage:
    """As a request has it: between fences."""
    fenced = fence(output, nonce="abcdefghijklmnopabcd", trust="workspace", source=call.tool)
    return ToolMessage(call.call_id, call.tool, status, fenced)


async def play(
    request: ModelRequest, scripts: ScriptBook | None = None
) -> tuple[ModelTurn, list[str]]:
    deltas: list[Delta] = []
    model = Scripted(Ids(), scripts) if scripts else Scripted(Ids())
    turn = await model.stream(request, deltas.append)
    return turn, [delta.text for delta in deltas]


def book(*scripts: dict[str, Any]) -> ScriptBook:
    return parse_scripts(msgspec.json.encode({"scripts": scripts}))


# --- Without a script ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("You said: hello", "hello"),
        ("You said: two lines", "two\n   lines"),
        (f"You said: {'x' * 200}…", "x" * 1000),
        ("You said nothing.", ""),
        ("You said: /say", "/say"),
    ],
)
async def test_plain_text_is_acknowledged(expected: str, text: str) -> None:
    """Without a directive the answer is what was received, shortened to one line."""
    turn, deltas = await play(ask(UserMessage(text)))
    assert (expected, [expected], (), "stop") == (turn.text, deltas, turn.calls, turn.finish_reason)


async def test_empty_request_is_answered() -> None:
    """A request without any message is answered too."""
    turn, _ = await play(ask())
    assert "You said nothing." == turn.text


async def test_directives_are_followed_turn_by_turn() -> None:
    """Each turn is derived from the messages alone; the last turn sums up the tool results."""
    said = UserMessage('/say looking\n/call echo {"text": "a"}\n/call sleep\n/then\n/call echo {}')
    first, deltas = await play(ask(said))
    expected = [("call_0", "echo", {"text": "a"}), ("call_1", "sleep", {})]
    assert expected == [(call.call_id, call.tool, call.arguments) for call in first.calls]
    assert ("looking", ["looking"], "tool_calls") == (first.text, deltas, first.finish_reason)

    results = [
        result_of(first.calls[0], "a"),
        result_of(first.calls[1], "no\nrather yes", "rejected"),
    ]
    messages: list[Message] = [said, AssistantMessage(first.text, first.calls), *results]
    second, deltas = await play(ask(*messages))
    assert ("", [], ["echo"]) == (second.text, deltas, [call.tool for call in second.calls])

    messages += [AssistantMessage("", second.calls), result_of(second.calls[0], "line\nline")]
    last, _ = await play(ask(*messages))
    lines = ["Tool results: 3", "- echo (succeeded): a", "- sleep (rejected): no; rather yes"]
    assert [*lines, "- echo (succeeded): line line"] == last.text.splitlines()
    assert "stop" == last.finish_reason


async def test_only_the_last_user_message_counts() -> None:
    """Only directives of the last user message are followed; earlier messages are ignored."""
    call = ProposedCall(call_id="call_9", tool="echo", arguments={})
    earlier: list[Message] = [
        UserMessage("/call echo"),
        AssistantMessage("", (call,)),
        result_of(call, "old"),
    ]
    turn, _ = await play(ask(*earlier, UserMessage("/say now")))
    assert "now" == turn.text


async def test_words_are_single_deltas() -> None:
    """/tokens N is N deltas, which join to the text."""
    turn, deltas = await play(ask(UserMessage("/say so:\n/tokens 30")))
    assert (31, "so:", " a", " b") == (len(deltas), *deltas[:3])
    assert "".join(deltas) == turn.text
    assert "a b c" == (await play(ask(UserMessage("/tokens 3"))))[0].text


async def test_many_words_leave_room_for_others() -> None:
    """Other tasks get their turns while 100 000 words stream."""
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        _, deltas = await play(ask(UserMessage("/tokens 100000")))
        nursery.cancel_scope.cancel("enough")
    assert 100_000 == len(deltas)
    assert rounds > 300


async def test_malformed_directive_is_explained() -> None:
    """A malformed directive gives no calls, but an answer with the reason and the language."""
    turn, _ = await play(ask(UserMessage("/call echo {}\n/fail sometimes")))
    assert () == turn.calls
    assert turn.text.startswith("I cannot follow this message:\nline 2: expected a failure class")
    assert "/call NAME {json}" in turn.text


async def test_json_mode_is_answered_in_json() -> None:
    """In JSON mode the model's own answers are JSON objects."""
    plain, _ = await play(ask(UserMessage("hello"), json_mode=True))
    assert {"received": "hello"} == msgspec.json.decode(plain.text)
    call = ProposedCall(call_id="call_9", tool="echo", arguments={})
    messages: list[Message] = [
        UserMessage("/call echo"),
        AssistantMessage("", (call,)),
        result_of(call, "a"),
    ]
    turn, _ = await play(ask(*messages, json_mode=True))
    expected = {"results": [{"tool": "echo", "status": "succeeded", "output": "a"}]}
    assert expected == msgspec.json.decode(turn.text)


# --- Failures and delays -------------------------------------------------------------------------


async def fail(request: ModelRequest, scripts: ScriptBook | None = None) -> tuple[str, list[str]]:
    """The class of the failure, and the deltas before it."""
    deltas: list[Delta] = []
    with pytest.raises(ModelFailure) as caught:
        await Scripted(Ids(), scripts or ScriptBook()).stream(request, deltas.append)
    return caught.value.failure_class, [delta.text for delta in deltas]


@pytest.mark.parametrize("failure_class", FAILURE_CLASSES)
@pytest.mark.parametrize("attempt", [1, 2, 9])
async def test_failure_without_a_count_repeats_at_every_attempt(
    failure_class: str, attempt: int
) -> None:
    """/fail without a count fails at every attempt, after streaming the text before it."""
    request = ask(UserMessage(f"/say half\n/fail {failure_class}"), attempt=attempt)
    assert (failure_class, ["half"]) == await fail(request)


async def test_failure_with_a_count_ends_after_that_many_attempts() -> None:
    """/fail CLASS N fails at N attempts; the next attempt continues after it."""
    said = UserMessage("/fail timeout 2\n/call echo")
    assert ("timeout", []) == await fail(ask(said, attempt=2))
    turn, _ = await play(ask(said, attempt=3))
    assert ["echo"] == [call.tool for call in turn.calls]


async def test_turn_of_failures_alone_ends_with_an_answer() -> None:
    """If a turn has only a failure that has passed, the model answers with its default text."""
    turn, _ = await play(ask(UserMessage("/fail quota 1"), attempt=2))
    assert "You said: /fail quota 1" == turn.text


async def test_delay_is_before_each_step(autojump_clock: MockClock) -> None:
    """/delay holds back every delta, call and failure behind it, and nothing before it."""
    times: list[float] = []
    start = trio.current_time()
    request = ask(UserMessage("/say now\n/delay 2000\n/say x\n/tokens 2\n/call echo\n/fail auth"))
    with pytest.raises(ModelFailure):
        await Scripted(Ids()).stream(request, lambda _: times.append(trio.current_time() - start))
    assert ([0, 2, 4, 6], 10) == (times, trio.current_time() - start)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 4), (2, 4), (3, 0)])
async def test_delay_with_a_count_is_of_the_first_attempts(
    autojump_clock: MockClock, attempt: int, seconds: int
) -> None:
    """/delay MS N holds N attempts of the turn back; the next one does not wait."""
    start = trio.current_time()
    turn, _ = await play(ask(UserMessage("/delay 2000 2\n/say x\n/call echo"), attempt=attempt))
    assert ("x", seconds) == (turn.text, trio.current_time() - start)


async def test_delay_is_cancelled_at_once(autojump_clock: MockClock) -> None:
    """A cancelled turn ends in its delay."""
    start = trio.current_time()
    with trio.move_on_after(1) as scope:
        await play(ask(UserMessage("/delay 60000\n/say late")))
    assert (True, 1) == (scope.cancelled_caught, trio.current_time() - start)


# --- Scripts -------------------------------------------------------------------------------------

WEATHER = {
    "agent": "scout",
    "contains": "weather",
    "turns": [
        {
            "reasoning": "let me look",
            "text": ["one ", "moment"],
            "tokens": 2,
            "calls": [{"tool": "http_fetch", "arguments": "not an object"}, {"tool": "echo"}],
        },
        {"text": "It rains", "finish_reason": "length"},
    ],
}


async def test_script_is_played_in_order() -> None:
    """Reasoning, deltas, words and calls come in this order; reasoning is no part of the text."""
    said = UserMessage("the weather?")
    first, deltas = await play(ask(said, agent="scout"), book(WEATHER))
    assert ["let me look", "one ", "moment", " a", " b"] == deltas
    assert ("one moment a b", "tool_calls") == (first.text, first.finish_reason)
    expected = [("http_fetch", "not an object"), ("echo", {})]
    assert expected == [(call.tool, call.arguments) for call in first.calls]

    messages: list[Message] = [said, AssistantMessage(first.text, first.calls)]
    second, _ = await play(ask(*messages, agent="scout"), book(WEATHER))
    assert ("It rains", "length") == (second.text, second.finish_reason)

    third, _ = await play(
        ask(*messages, AssistantMessage("It rains"), agent="scout"), book(WEATHER)
    )
    assert ("You said: the weather?", "stop") == (third.text, third.finish_reason)


@pytest.mark.parametrize(
    ("expected", "agent", "text"),
    [
        ("one", "scout", "exactly"),
        ("two", "scout", "not exactly"),
        ("two", "scout", ""),
        ("three", "default", "a b c"),
        ("directive", "default", "/say directive"),
    ],
)
async def test_first_script_that_applies_is_played(expected: str, agent: str, text: str) -> None:
    """A script needs all it names; where none applies, directives are followed."""
    scripts = book(
        {"agent": "scout", "equals": "exactly", "turns": [{"text": "one"}]},
        {"agent": "scout", "turns": [{"text": "two"}]},
        {"contains": "b", "turns": [{"text": "three"}]},
    )
    turn, _ = await play(ask(UserMessage(text), agent=agent), scripts)
    assert expected == turn.text


async def test_script_fails_before_or_after_its_text() -> None:
    """`fail` lets nothing out, `break_off` comes after the text, and both can pass."""
    failure = {"class": "transient", "times": 1}
    early = book({"turns": [{"fail": failure, "text": "x"}]})
    late = book({"turns": [{"break_off": failure, "text": "x"}]})
    assert ("transient", []) == await fail(ask(UserMessage("")), early)
    assert ("transient", ["x"]) == await fail(ask(UserMessage("")), late)
    assert "x" == (await play(ask(UserMessage(""), attempt=2), late))[0].text


async def test_script_delays(autojump_clock: MockClock) -> None:
    """`delay_ms` is before each delta and call of its turn."""
    start = trio.current_time()
    turn = {"delay_ms": 2000, "text": ["a", "b"], "calls": [{"tool": "echo"}]}
    await play(ask(UserMessage("")), book({"turns": [turn]}))
    assert 6 == trio.current_time() - start


@every_row(
    ("complaint", "data"),
    [
        ("truncated", b"{"),
        ("unknown field `script`", b'{"script": []}'),
        ("missing required field `turns` - at `$.scripts[0]`", b'{"scripts": [{}]}'),
        ("$.scripts[0].turns[0].fail.class", b'{"scripts":[{"turns":[{"fail":{"class":"x"}}]}]}'),
        ("<= 100000", b'{"scripts": [{"turns": [{"tokens": 9999999}]}]}'),
        (
            "recursion",
            b'{"scripts": [{"turns": [{"calls": [{"tool": "x", "arguments": ' + b"[" * 9**5,
        ),
        ("utf-8", b'{"scripts": [{"turns": [{"text": "\xff"}]}]}'),
    ],
)
def test_broken_scripts_are_refused(complaint: str, data: bytes) -> None:
    """A file that is no script book is refused with what is wrong and where."""
    with pytest.raises(InvalidParams) as caught:
        parse_scripts(data)
    assert complaint in caught.value.message


def test_schema_names_every_field() -> None:
    """The JSON Schema knows the failure's wire name and forbids what is unknown."""
    schema = scripts_schema()["$defs"]
    assert {"class", "times"} == set(schema["ScriptFailure"]["properties"])
    assert [False] * len(schema) == [part["additionalProperties"] for part in schema.values()]


# --- Usage, cost ---------------------------------------------------------------------------------


async def test_usage_is_estimated() -> None:
    """Input is everything that was sent, output is text and calls."""
    call = ProposedCall(call_id="call_9", tool="echo", arguments={"text": "abc"})
    messages: list[Message] = [
        UserMessage("/call echo"),
        AssistantMessage("so", (call,)),
        result := result_of(call, "out"),
    ]
    tools = ({"name": "echo", "description": "says it back", "parameters": {}},)
    request = ask(*messages, instructions="be good", tools=tools)
    turn, _ = await play(request)
    texts = ["/call echo", "so", result.output, "be good"]
    encoded = [msgspec.json.encode(value).decode() for value in ((call,), tools)]
    expected = sum(map(estimate_tokens, [*texts, *encoded]))
    assert (expected, estimate_tokens(turn.text), "estimate") == (
        turn.usage.input_tokens,
        turn.usage.output_tokens,
        turn.usage.source,
    )
    calling, _ = await play(ask(UserMessage("/call echo")))
    encoded_calls = msgspec.json.encode(calling.calls).decode()
    assert estimate_tokens(encoded_calls) == calling.usage.output_tokens


async def test_turn_without_delay_takes_one_checkpoint() -> None:
    """A turn that has nothing to wait for yields to the loop exactly once."""

    class Steps(trio.abc.Instrument):
        taken = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.taken += task is me

    me = trio.lowlevel.current_task()
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await play(ask(UserMessage('/say a\n/call echo {"text": "a"}\n/say b')))
    trio.lowlevel.remove_instrument(steps)
    assert 1 == steps.taken


@pytest.mark.parametrize(
    ("text", "limit", "said", "finish"),
    [
        ("/tokens 5", 3, "a b c", "length"),
        ("/tokens 5", 5, "a b c d e", "stop"),
        ("/say one two six\n/call t {}", 2, "one two", "length"),
        ("/say interminably\n/say on", 1, "", "length"),
        ("hi", 2, "You", "length"),
    ],
)
async def test_an_answer_is_as_long_as_the_caller_wants(
    text: str, limit: int, said: str, finish: str
) -> None:
    """In whole words; what the script has behind them is not played."""
    sampling = Sampling(max_output_tokens=limit)
    turn, deltas = await play(ask(UserMessage(text), sampling=sampling))
    assert (said, finish, ()) == (turn.text, turn.finish_reason, turn.calls)
    assert said == "".join(deltas)
    assert turn.usage.output_tokens <= limit
