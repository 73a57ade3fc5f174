"""Request to a language model and its answer, independent of the provider."""

from collections.abc import Container, Mapping
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import Charge, Usage
from palyra.core.model.images import PICTURE_TOKENS, Picture
from palyra.core.model.sources import ContextSource
from palyra.core.text.tokens import estimate_tokens
from palyra.core.trust.fences import NONCE_LETTERS, fence
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
    "unknown_model",
    "transient",
    "timeout",
    "malformed",
    "unavailable",
    "step_failed",  # of a procedure
]
FAILURE_CLASSES: tuple[FailureClass, ...] = FailureClass.__args__  # type: ignore[attr-defined]  # Literal has it
RETRYABLE: frozenset[str] = frozenset({"rate_limited", "transient", "timeout", "unavailable"})


_NONCE = "a" * NONCE_LETTERS  # all nonces have the same weight


class ProposedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call as the model wrote it; `arguments` may be malformed or not an object."""

    call_id: str
    tool: str
    arguments: Any

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text; malformed ones are the text that the model wrote."""
        given = self.arguments
        return given if isinstance(given, str) else msgspec.json.encode(given).decode()


class UserMessage(
    msgspec.Struct, frozen=True, gc=False, tag="user", tag_field="role", omit_defaults=True
):
    """Text and attachments of a user; in a request, `text` includes the references."""

    text: str
    pictures: tuple[Picture, ...] = ()
    references: tuple[ContextSource, ...] = ()  # resolved, in the order of the text


class Thought(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Reasoning behind calls, in the provider's own form: some want it back with the results."""

    model: str  # that it belongs to; no other model gets it
    items: tuple[dict[str, Any], ...]  # only the dialect of the model reads them


class AssistantMessage(msgspec.Struct, frozen=True, gc=False, tag="assistant", tag_field="role"):
    """Text and tool calls of the model."""

    text: str
    calls: tuple[ProposedCall, ...] = ()
    turns: int = 1  # turns it took: several if the text was cut off and continued
    thought: Thought | None = None


class ToolMessage(msgspec.Struct, frozen=True, gc=False, tag="tool", tag_field="role"):
    """Result of one tool call; in a request, `output` is fenced (`core.trust.fences`)."""

    call_id: str
    tool: str
    status: str
    output: str
    trust: Trust = "workspace"  # of tapes written before labels existed
    findings: tuple[str, ...] = ()  # injection findings in the output
    artifact: str | None = None  # name of the whole output, if `output` is an excerpt
    pictures: tuple[Picture, ...] = ()  # that the tool returned; `output` names each


class GuidanceMessage(msgspec.Struct, frozen=True, gc=False, tag="guidance", tag_field="role"):
    """A message of the daemon to the model about the run."""

    text: str


Message = UserMessage | AssistantMessage | ToolMessage | GuidanceMessage


def pictures_of(message: Message) -> tuple[Picture, ...]:
    """Return the pictures that a message shows."""
    return message.pictures if isinstance(message, UserMessage | ToolMessage) else ()


def without_pictures(
    message: Message, why: str, artifacts: Container[str] | None = None
) -> Message:
    """Return the message with one line in place of its pictures, or of those with these artifacts."""
    if not isinstance(message, UserMessage | ToolMessage):
        return message
    gone = [each for each in message.pictures if artifacts is None or each.artifact in artifacts]
    if not gone:
        return message
    named = ", ".join(f"a picture ({each.media_type}, {each.size_bytes} bytes)" for each in gone)
    line = f"[not shown: {named}; {why}]"
    left = tuple(each for each in message.pictures if each not in gone)
    if isinstance(message, ToolMessage):
        output = f"{message.output}\n{line}".lstrip()
        return msgspec.structs.replace(message, output=output, pictures=left)
    text = f"{message.text}\n\n{line}".lstrip()
    return msgspec.structs.replace(message, text=text, pictures=left)


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message."""
    match message:
        case AssistantMessage(text, calls):
            return answer_tokens(text, calls)
        case ToolMessage():
            return estimate_tokens(message.output) + PICTURE_TOKENS * len(message.pictures)
        case UserMessage(text, pictures, references):
            tokens = estimate_tokens(text) + PICTURE_TOKENS * len(pictures)
            return tokens + sum(map(source_tokens, references)) if references else tokens
        case _:
            return estimate_tokens(message.text)


def source_tokens(source: ContextSource) -> int:
    """Estimate the tokens of a gathered text with its fence and the line that names it.

    Without a text, of the line alone (`core.context.sources`).
    """
    if source.error:
        return estimate_tokens(f"[1] {source.name}: not available: {source.error}\n")
    note = f" ({source.note})" if source.note else ""
    fences = fence("", nonce=_NONCE, trust=source.trust, source=source.kind or "file")
    return estimate_tokens(f"[1] {source.name}{note}\n{fences}\n") + estimate_tokens(source.text)


def answer_tokens(text: str, calls: tuple[ProposedCall, ...]) -> int:
    """Estimate the tokens of a turn."""
    encoded = msgspec.json.encode(calls).decode() if calls else ""
    return estimate_tokens(text) + estimate_tokens(encoded)


class Sampling(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The caller's sampling parameters; None and () leave a parameter to the model."""

    max_output_tokens: int | None = None  # of one turn
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()  # stop sequences; the answer excludes them


DEFAULT_SAMPLING = Sampling()


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Input of one turn.  `messages` pairs every call with its result, in order."""

    run_id: str
    turn: int  # from 1
    attempt: int  # from 1
    model: str
    agent: str = ""
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()  # name, description, parameters (JSON Schema)
    json_mode: bool = False
    is_background: bool = False  # no client waits for the answer: foreground calls have priority
    principal: str = ""  # shares the provider fairly with the others; never sent
    sampling: Sampling = DEFAULT_SAMPLING
    must_call: bool = False  # the answer must be a call of one of the tools
    one_call: bool = False  # at most one call: a hint that a model may ignore
    pictures: Mapping[str, str] = {}  # base64 by artifact, of the available images
    sends_thoughts: bool = True  # False: the provider has refused reasoning of earlier turns
    volatile: int = 0  # messages at the end that the next turn will not repeat


def thought_of(message: AssistantMessage, request: ModelRequest) -> tuple[dict[str, Any], ...]:
    """Return the items of reasoning that the model of the request gets back."""
    thought = message.thought
    if thought is None or thought.model != request.model or not request.sends_thoughts:
        return ()
    return thought.items


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A piece of a streaming turn; volatile."""

    kind: Literal["text", "reasoning"]
    text: str


class ModelTurn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A finished turn."""

    text: str
    calls: tuple[ProposedCall, ...]
    finish_reason: FinishReason
    usage: Usage
    cost_usd_micros: int = 0
    is_unpriced: bool = False  # the cost is unknown
    trace_ref: str | None = None
    thought: Thought | None = None

    @property
    def charge(self) -> Charge:
        """Usage and cost of the turn."""
        cost = None if self.is_unpriced else self.cost_usd_micros
        return Charge(usage=self.usage, cost_usd_micros=cost)


class ModelFailure(PalyraError):
    """A provider failed to deliver a turn; `failure_class` decides what happens next."""

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
        self.usage = Usage()  # of the parts delivered before the failure
        self.failure_class: FailureClass = failure_class
        self.retry_after_ms = retry_after_ms  # the delay that the provider requested
        self.was_asked = was_asked  # False: no request was sent, so there was no call
