"""What a language model is asked and what it answers, whoever the provider is."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import Charge, Usage
from palyra.core.model.images import PICTURE_TOKENS, Picture
from palyra.core.text.tokens import estimate_tokens
from palyra.core.trust.labels import Trust
from palyra.errors import PalyraError

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]
FailureClass = Literal[
    "auth",
    "quota",
    "rate_limited",
    "context_overflow",
    "content_policy",
    "invalid_request",
    "transient",
    "timeout",
    "malformed",
    "unavailable",
]
FAILURE_CLASSES: tuple[FailureClass, ...] = FailureClass.__args__  # type: ignore[attr-defined]  # Literal has it
RETRYABLE: frozenset[str] = frozenset({"rate_limited", "transient", "timeout", "unavailable"})


class ProposedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call as the model wrote it; `arguments` may not be an object or may be broken."""

    call_id: str
    tool: str
    arguments: Any


class UserMessage(
    msgspec.Struct, frozen=True, gc=False, tag="user", tag_field="role", omit_defaults=True
):
    """What a person said and showed."""

    text: str
    pictures: tuple[Picture, ...] = ()


class AssistantMessage(msgspec.Struct, frozen=True, gc=False, tag="assistant", tag_field="role"):
    """What the model said and which tools it called."""

    text: str
    calls: tuple[ProposedCall, ...] = ()
    turns: int = 1  # it took to write: more for a text that was cut off and gone on with


class ToolMessage(msgspec.Struct, frozen=True, gc=False, tag="tool", tag_field="role"):
    """What one call gave back; in a request `output` stands between fences (`core.trust.fences`)."""

    call_id: str
    tool: str
    status: str
    output: str
    trust: Trust = "workspace"  # all there was before tapes said so
    findings: tuple[str, ...] = ()  # what in it reads like an instruction


class GuidanceMessage(msgspec.Struct, frozen=True, gc=False, tag="guidance", tag_field="role"):
    """What the daemon tells the model about the run; nobody's words but the daemon's own."""

    text: str


Message = UserMessage | AssistantMessage | ToolMessage | GuidanceMessage


def message_tokens(message: Message) -> int:
    """About how many tokens a message takes."""
    match message:
        case AssistantMessage(text, calls):
            return answer_tokens(text, calls)
        case ToolMessage():
            return estimate_tokens(message.output)
        case UserMessage(text, pictures):
            return estimate_tokens(text) + PICTURE_TOKENS * len(pictures)
        case _:
            return estimate_tokens(message.text)


def answer_tokens(text: str, calls: tuple[ProposedCall, ...]) -> int:
    """About how many tokens a turn takes."""
    encoded = msgspec.json.encode(calls).decode() if calls else ""
    return estimate_tokens(text) + estimate_tokens(encoded)


class Sampling(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """How a caller wants its answer written; None and () leave it to the model."""

    max_output_tokens: int | None = None  # of one turn
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()  # where to stop, without the text itself


DEFAULT_SAMPLING = Sampling()


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One turn's input.  `messages` pairs every call with its result, in order."""

    run_id: str
    turn: int  # from 1
    attempt: int  # from 1
    model: str
    agent: str = ""
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()  # name, description, parameters (JSON Schema)
    json_mode: bool = False
    is_background: bool = False  # nobody waits for it: others go first
    sampling: Sampling = DEFAULT_SAMPLING
    must_call: bool = False  # one of the tools, instead of an answer in words
    one_call: bool = False  # at most: a wish, which a model may not know
    pictures: Mapping[str, str] = {}  # base64 by artifact, of those that can be shown


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A piece of a turn as it streams; volatile."""

    kind: Literal["text", "reasoning"]
    text: str


class ModelTurn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A finished turn."""

    text: str
    calls: tuple[ProposedCall, ...]
    finish_reason: FinishReason
    usage: Usage
    cost_usd_micros: int = 0
    is_unpriced: bool = False  # nobody knows what it cost
    trace_ref: str | None = None

    @property
    def charge(self) -> Charge:
        """What it took."""
        cost = None if self.is_unpriced else self.cost_usd_micros
        return Charge(usage=self.usage, cost_usd_micros=cost)


class ModelFailure(PalyraError):
    """The provider did not deliver a turn; `failure_class` decides what happens next."""

    code = "unavailable"

    def __init__(
        self,
        failure_class: FailureClass,
        detail: str,
        retry_after_ms: int | None = None,
        *,
        was_asked: bool = True,
    ) -> None:
        super().__init__(detail)
        self.usage = Usage()  # of the parts that were delivered before it failed
        self.failure_class: FailureClass = failure_class
        self.retry_after_ms = retry_after_ms  # when the provider said to come back
        self.was_asked = was_asked  # False: nothing was tried, so there was no call
