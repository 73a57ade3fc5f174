"""Scripts of the scripted model, as JSON.

    {"scripts": [
        {"agent": "default", "contains": "weather", "turns": [
            {"reasoning": "let me look", "text": ["one ", "moment"],
             "calls": [{"tool": "http_fetch", "arguments": {"url": "https://example.com"}}]},
            {"fail": {"class": "transient", "times": 1}, "text": "It rains."}]}]}

A script applies if all conditions it names match: `agent` (the agent's name), `equals` (the whole
message) or `contains` (a part of it).  The first matching script is played.  After its last turn
the model generates an answer, as it does for a turn without text and calls.
"""

from typing import Annotated, Any

import msgspec

from palyra.core.model.messages import FailureClass, FinishReason
from palyra.errors import InvalidParams
from palyra.models.scripted.directives import (
    MAX_DELAY_MS,
    MAX_TOKENS,
    CallTool,
    Delay,
    FailTurn,
    Step,
    TextDelta,
    WordDeltas,
)


class ScriptCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proposed tool call; `arguments` may be any JSON, to try what is malformed."""

    tool: str
    arguments: Any = msgspec.field(default_factory=dict)


class ScriptFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A failure at every attempt, or at the first `times` attempts of the turn."""

    failure_class: FailureClass = msgspec.field(name="class")
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ScriptTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn, in the order of its fields; `fail` is before, `break_off` after what streams."""

    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_DELAY_MS)] = 0  # before each delta and call
    fail: ScriptFailure | None = None
    reasoning: str = ""
    text: str | tuple[str, ...] = ()  # a list sends one delta per item
    tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] = 0
    break_off: ScriptFailure | None = None
    calls: tuple[ScriptCall, ...] = ()
    finish_reason: FinishReason | None = None  # None: derived from the turn

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps of the turn for the player."""
        texts = (self.text,) if isinstance(self.text, str) else self.text
        return (
            Delay(self.delay_ms),
            *_failure(self.fail),
            *([TextDelta(self.reasoning, "reasoning")] if self.reasoning else []),
            *(TextDelta(text) for text in texts),
            *([WordDeltas(self.tokens)] if self.tokens else []),
            *_failure(self.break_off),
            *(CallTool(call.tool, call.arguments) for call in self.calls),
        )


def _failure(failure: ScriptFailure | None) -> list[Step]:
    return [FailTurn(failure.failure_class, failure.times)] if failure else []


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turns to play, and the conditions for playing them."""

    turns: tuple[ScriptTurn, ...]
    agent: str | None = None
    equals: str | None = None
    contains: str | None = None

    def applies(self, agent: str, text: str) -> bool:
        """True if every condition of the script matches."""
        return (
            self.agent in {None, agent}
            and self.equals in {None, text}
            and (self.contains is None or self.contains in text)
        )


class ScriptBook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All scripts, in the order in which they are tried."""

    scripts: tuple[Script, ...] = ()

    def find(self, agent: str, text: str) -> Script | None:
        """Return the first script that applies, or None."""
        for script in self.scripts:
            if script.applies(agent, text):
                return script
        return None


_DECODER = msgspec.json.Decoder(ScriptBook)


def parse_scripts(data: bytes) -> ScriptBook:
    """Parse a JSON text into scripts.  Raises InvalidParams with the error and its place."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"not a file of scripts: {error}", field="scripts") from None


def scripts_schema() -> dict[str, Any]:
    """Return the JSON Schema of the input of `parse_scripts`."""
    return msgspec.json.schema(ScriptBook)
