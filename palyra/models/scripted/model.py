"""Scripted model: deterministic, without network, always available.

It plays scripts (`palyra.models.scripted.scripts`).  If no script applies, it follows the
directives in the user's text (`palyra.models.scripted.directives`).  When no step is left, it
answers from the tool results or, without any, from the user's message.

It keeps no state between turns.  The next turn follows from the request alone (the assistant
messages after the last user message, and the attempt), so a recovered or replayed run continues at
the same place.  A steering message is a user message and starts again at the first turn.
"""

import re
from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import NamedTuple, assert_never

import msgspec
import trio

from palyra.core.ids import NewId
from palyra.core.journal.records import Usage
from palyra.core.model.messages import (
    AssistantMessage,
    Delta,
    FinishReason,
    GuidanceMessage,
    Message,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    ToolMessage,
    UserMessage,
    answer_tokens,
    message_tokens,
)
from palyra.core.text.tokens import estimate_tokens
from palyra.core.trust.fences import inside_fence
from palyra.models.scripted.directives import (
    DIRECTIVES,
    CallTool,
    Delay,
    Directives,
    FailTurn,
    Step,
    TextDelta,
    WordDeltas,
    parse_directives,
)
from palyra.models.scripted.scripts import ScriptBook

_EXCERPT_CHARS = 200  # of a message or a tool's output in a generated answer
_WORDS = ascii_lowercase  # one letter each: 100 000 words still fit into one event
_WORD = re.compile(r"\s*\S+|\s+")
_WORDS_PER_PIECE = 256  # about 0.3 ms of deltas between two checkpoints
_NO_SCRIPTS = ScriptBook()


class Scripted:
    """`core.ports.LanguageModel` that plays scripts and directives."""

    name = "scripted"
    provider = "scripted"

    def __init__(self, new_id: NewId, scripts: ScriptBook = _NO_SCRIPTS) -> None:
        self._new_id = new_id
        self._scripts = scripts
        self._prefix: tuple[object, object] = ("", ())  # the instructions and tools measured last
        self._prefix_tokens = 0

    def most_output(self, request: ModelRequest) -> int:  # noqa: PLR6301 - the port
        """Return the request's output limit, which the player observes."""
        return request.sampling.max_output_tokens or 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Play the current turn.  Raises ModelFailure where the script demands it.

        Cancellation: at any checkpoint; nothing was changed.
        """
        await trio.lowlevel.checkpoint()
        place = find_place(request.messages)
        steps, finish_reason = self._find_turn(request.agent, place)
        player = _Player(on_delta, request.attempt, request.sampling.max_output_tokens)
        for step in steps:
            await player.play(step)
        if not (player.text or player.calls or player.is_full):
            await player.play(_own_step(place, request))
        calls = tuple(
            ProposedCall(call_id=self._new_id("call"), tool=call.tool, arguments=call.arguments)
            for call in player.calls
        )
        text = "".join(player.text)
        if player.is_full:
            finish_reason = "length"
        return ModelTurn(
            text=text,
            calls=calls,
            finish_reason=finish_reason or ("tool_calls" if calls else "stop"),
            usage=Usage(
                input_tokens=self._input_tokens(request),
                output_tokens=answer_tokens(text, calls),
            ),
        )

    def _find_turn(
        self, agent: str, place: "ScriptPosition"
    ) -> tuple[Sequence[Step], FinishReason | None]:
        """Return the steps of the current turn; empty if no script or directive is left."""
        script = self._scripts.find(agent, place.text)
        if script is not None:
            due = script.turns[place.turn : place.turn + 1]
            return (due[0].steps, due[0].finish_reason) if due else ((), None)
        directives = parse_directives(place.text)
        if directives is None:
            return (), None
        if directives.problems:
            return (TextDelta(_explain(directives)),), None
        due_steps = directives.turns[place.turn : place.turn + 1]
        return (due_steps[0] if due_steps else ()), None

    def _input_tokens(self, request: ModelRequest) -> int:
        instructions, tools = self._prefix
        if request.instructions is not instructions or request.tools is not tools:
            # The objects are the same from run to run, so a long catalogue is measured once.
            self._prefix = (request.instructions, request.tools)
            text = msgspec.json.encode(request.tools).decode() if request.tools else ""
            self._prefix_tokens = estimate_tokens(request.instructions) + estimate_tokens(text)
        return self._prefix_tokens + sum(map(message_tokens, request.messages))


class ScriptPosition(NamedTuple):
    """Position of the next turn in a conversation."""

    text: str  # of the last user message
    turn: int  # turns since that message, from 0
    results: tuple[ToolMessage, ...]  # tool results since that message


def find_place(messages: Sequence[Message]) -> ScriptPosition:
    """Return the position after these messages."""
    turn = 0
    results: list[ToolMessage] = []
    for message in reversed(messages):
        match message:
            case UserMessage(text):
                return ScriptPosition(text, turn, tuple(reversed(results)))
            case AssistantMessage():
                turn += message.turns
            case ToolMessage():
                results.append(message)
            case GuidanceMessage():
                pass  # guidance does not affect the script
            case _:
                assert_never(message)
    return ScriptPosition("", turn, tuple(reversed(results)))


class _Player:
    """Player of one turn; it stops at the word that reaches the output limit."""

    __slots__ = ("_attempt", "_delay_s", "_on_delta", "_room", "calls", "is_full", "text")

    def __init__(
        self, on_delta: Callable[[Delta], None], attempt: int, max_tokens: int | None
    ) -> None:
        self._on_delta = on_delta
        self._attempt = attempt
        self._delay_s = 0.0
        self._room = max_tokens  # remaining tokens of text; None: no limit
        self.is_full = False
        self.text: list[str] = []
        self.calls: list[CallTool] = []

    async def play(self, step: Step) -> None:
        if self.is_full:
            return
        match step:
            case TextDelta():
                await self._say(step)
            case WordDeltas(count):
                await self._say_words(count)
            case Delay(ms, times):
                self._delay_s = ms / 1000 if times is None or self._attempt <= times else 0.0
            case CallTool():
                await self._pause()
                self.calls.append(step)
            case FailTurn():
                await self._fail(step)
            case _:
                assert_never(step)

    async def _pause(self) -> None:
        if self._delay_s:
            await trio.sleep(self._delay_s)

    async def _say(self, step: TextDelta) -> None:
        text = step.text if step.kind == "reasoning" else self._fit(step.text)
        if text:
            await self._pause()
            self._on_delta(Delta(step.kind, text))
            if step.kind == "text":
                self.text.append(text)

    def _fit(self, text: str) -> str:
        """Truncate the text to the whole words that fit into the remaining room."""
        if self._room is None:
            return text
        kept: list[str] = []
        for word in _WORD.findall(text):
            self._room -= estimate_tokens(word)
            if self._room < 0:
                self.is_full = True
                break
            kept.append(word)
        return "".join(kept)

    async def _say_words(self, count: int) -> None:
        for index in range(count):
            if self.is_full:
                return
            word = _WORDS[index % len(_WORDS)]
            await self._say(TextDelta(f" {word}" if self.text else word))
            if index % _WORDS_PER_PIECE == _WORDS_PER_PIECE - 1:
                await trio.lowlevel.checkpoint()

    async def _fail(self, step: FailTurn) -> None:
        if step.times is None or self._attempt <= step.times:
            await self._pause()
            raise ModelFailure(
                step.failure_class,
                f"the script asks for {step.failure_class} at attempt {self._attempt}",
            )


# --- Generated answers ---------------------------------------------------------------------------


def _own_step(place: ScriptPosition, request: ModelRequest) -> Step:
    """Return the unscripted step: an empty call of a required tool, else a text."""
    if request.must_call:
        return CallTool(request.tools[0]["name"], {})
    return TextDelta(closing_answer(place, json_mode=request.json_mode))


def closing_answer(place: ScriptPosition, *, json_mode: bool = False) -> str:
    """Return the tool results, or without any the user's message; a JSON object in JSON mode."""
    results = [
        {
            "tool": result.tool,
            "status": result.status,
            "output": _excerpt(_told(result)),
        }
        for result in place.results
    ]
    if json_mode:
        answer = {"results": results} if results else {"received": _excerpt(place.text)}
        return msgspec.json.encode(answer).decode()
    if not results:
        return f"You said: {_excerpt(place.text)}" if place.text else "You said nothing."
    lines = [f"- {row['tool']} ({row['status']}): {row['output']}" for row in results]
    return "\n".join([f"Tool results: {len(results)}", *lines])


def _told(result: ToolMessage) -> str:
    """Describe a call's result; for a rejected call the reason and the hint, one line each."""
    text = inside_fence(result.output)
    return text.replace("\n", "; ") if result.status == "rejected" else text


def _excerpt(text: str) -> str:
    line = " ".join(text[: 2 * _EXCERPT_CHARS].split())
    return line if len(line) <= _EXCERPT_CHARS else f"{line[:_EXCERPT_CHARS]}…"


def _explain(directives: Directives) -> str:
    usages = ", ".join(directive.usage for directive in DIRECTIVES.values())
    return "\n".join(
        ["I cannot follow this message:", *directives.problems, f"What I follow: {usages}"]
    )
