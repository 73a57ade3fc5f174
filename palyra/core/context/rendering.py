"""Rendered messages of one run, remembered between its turns.

Between two turns a conversation grows at its end and hardly ever changes before it, while fencing and
measuring a message costs some ten microseconds.  `PromptCache` therefore keeps what it rendered and
renders a message again only if it is another one.  A cache changes no result: an empty one gives the
same prompt.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from palyra.core.context.history import History
from palyra.core.context.overflow import shortened
from palyra.core.context.pruning import (
    CallKeys,
    count_saving,
    find_stubs,
    is_worth_it,
    next_place,
)
from palyra.core.context.session_compaction import render
from palyra.core.context.sources import render_gathered, render_message
from palyra.core.model.messages import (
    GuidanceMessage,
    Message,
    ToolMessage,
    UserMessage,
    message_tokens,
)
from palyra.core.model.summary import Summary
from palyra.core.model.tool_results import is_paired
from palyra.core.run.state import Run, transcript_with_results
from palyra.core.tape.events import ContextGathered
from palyra.core.trust.fences import fence, make_nonce
from palyra.core.trust.labels import Trust, lowest

LONG_TOKENS, LONG_MESSAGES, LONG_SUMMARY_TOKENS = 8_000, 64, 1_000  # rendered within a millisecond
_Rendered = GuidanceMessage | None
_OWN: Trust = "trusted_local"  # label of messages without a text from outside


class RenderedMessages:
    """Messages of one run as the model sees them, with their tokens."""

    def __init__(self, run_id: str, fence_key: bytes) -> None:
        self._run_id = run_id
        self._key = fence_key
        self._source: list[Message] = []
        self.shown: list[Message] = []
        self.tokens: list[int] = []
        self.trusts: list[Trust] = []  # labels of the messages
        self.inputs: list[int] = []  # places of the user messages; a changed message keeps its kind

    def update(self, messages: Sequence[Message]) -> None:
        """Show these messages: tool outputs fenced, references below their text."""
        source, known = self._source, len(self._source)
        for place, message in enumerate(messages):
            if place >= known:
                source.append(message)
                self._append(message, place)
            elif source[place] is not message and source[place] != message:
                source[place] = message
                self.shown[place], self.trusts[place] = self._render(message, place)
                self.tokens[place] = message_tokens(self.shown[place])
        if known > len(messages):
            for part in (source, self.shown, self.tokens, self.trusts):
                del part[len(messages) :]
            self.inputs = [place for place in self.inputs if place < len(messages)]

    def _append(self, message: Message, place: int) -> None:
        rendered, trust = self._render(message, place)
        self.shown.append(rendered)
        self.tokens.append(message_tokens(rendered))
        self.trusts.append(trust)
        if isinstance(message, UserMessage):
            self.inputs.append(place)

    def _render(self, message: Message, place: int) -> tuple[Message, Trust]:
        """Return the message as shown, and its label."""
        if isinstance(message, ToolMessage):
            return _fence_output(message, f"{self._run_id} {place}", self._key), message.trust
        if isinstance(message, UserMessage) and message.references:
            return self.render_without(message, place, frozenset()), trust_of(message)
        return message, _OWN

    def render_without(
        self, message: UserMessage, place: int, left_out: frozenset[str]
    ) -> UserMessage:
        """Render a user message without the texts of these references."""
        return render_message(message, f"{self._run_id} {place}", self._key, left_out)


def _fence_output(message: ToolMessage, place: str, key: bytes) -> ToolMessage:
    output = fence(
        message.output,
        nonce=make_nonce(key, place, message.output),
        trust=message.trust,
        source=message.tool,
    )
    return msgspec.structs.replace(message, output=output)


class RenderedHistory(msgspec.Struct, frozen=True):
    """The earlier runs of the session as the model sees them."""

    messages: tuple[Message, ...] = ()
    tokens: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()  # index of the first message of each run
    trusts: tuple[Trust, ...] = ()  # lowest label of each run
    is_paired: bool = True  # every call has its result directly after it


def render_history(history: History, fence_key: bytes) -> RenderedHistory:
    """Render the history; some milliseconds for a long one."""
    messages: list[Message] = []
    tokens: list[int] = []
    starts: list[int] = []
    trusts: list[Trust] = []
    for past in history.runs:
        starts.append(len(messages))
        rendered = RenderedMessages(past.run_id, fence_key)
        rendered.update(past.messages)
        trusts.append(lowest(rendered.trusts))
        messages += rendered.shown
        tokens += rendered.tokens
    return RenderedHistory(
        messages=tuple(messages),
        tokens=tuple(tokens),
        starts=tuple(starts),
        trusts=tuple(trusts),
        is_paired=is_paired(messages),
    )


def trust_of(message: Message) -> Trust:
    """Return the label of a message; the model's own text needs none, as its input has labels."""
    if isinstance(message, ToolMessage):
        return message.trust
    if isinstance(message, UserMessage) and message.references:
        return lowest(source.trust for source in message.references if source.text)
    return "trusted_local"


class PromptCache:
    """Rendered messages of one run: its own and those of its history."""

    def __init__(self, run: Run, history: History, fence_key: bytes) -> None:
        self.own = RenderedMessages(run.run_id, fence_key)
        # The nonces of these fences are the same for all runs of a session: so is the prefix.
        self._place = run.accepted.session_id
        self._history = history
        self._summary: Summary | None = None
        self._ahead: tuple[Summary, GuidanceMessage] | None = None  # rendered in a thread
        self.summary: tuple[Message, ...] = ()  # the session's summary, which is never dropped
        self.summary_tokens = 0
        self._key = fence_key
        self._past: RenderedHistory | None = None if history.runs else RenderedHistory()
        self._keys = CallKeys()
        self._pruned: Sequence[Message] = ()
        self._stubs: dict[int, ToolMessage] = {}
        self._saving: tuple[int, int, int] = 0, 0, 0  # places before and after, tokens
        self._gathered: dict[str, tuple[ContextGathered, frozenset[str], _Rendered]] = {}

    def use_summary(self, own: Summary | None) -> None:
        """Show the run's own summary, or else that of its history, for what it covers."""
        found = own or self._history.summary
        if found is None or found is self._summary:
            return
        self._summary = found
        if own is not None:
            self._past = None
        ahead = self._ahead
        is_ready = ahead is not None and ahead[0] == found
        shown = ahead[1] if ahead and is_ready else self.render_summary(found)
        self.summary = (shown,)
        self.summary_tokens = message_tokens(shown)

    def render_summary(self, summary: Summary) -> GuidanceMessage:
        """Render a summary before a prompt needs it; for a thread, some milliseconds."""
        shown = GuidanceMessage(render(summary, self._key))
        self._ahead = summary, shown
        return shown

    def describe_summary(self) -> dict[str, Any]:
        """Return the segment of the summary."""
        summary = self._summary
        covers, entries = ((), ()) if summary is None else (summary.covers, summary.ledger.entries)
        return {
            "layer": "summary",
            "tokens": self.summary_tokens,
            "kept": True,
            "messages": sum(each.last - each.first + 1 for each in covers),
            "trust": lowest(entry.trust for entry in entries),
        }

    @property
    def past(self) -> RenderedHistory:
        """The whole history; rendered at the first use."""
        if self._past is None:
            history, summary = self._history, self._summary
            shown = history if summary is None else history.summarised(summary)
            self._past = render_history(shown, self._key)
        return self._past

    def is_long(self, run: Run) -> bool:
        """True if the first prompt of this run should be prepared in a thread."""
        past_tokens = sum(past.tokens for past in self._history.runs)
        summary = run.summary or self._history.summary
        return (
            past_tokens > LONG_TOKENS
            or len(run.transcript) > LONG_MESSAGES
            or (summary is not None and summary.after_tokens > LONG_SUMMARY_TOKENS)
        )

    def prepare(self, run: Run) -> None:
        """Render history and conversation, so that the first prompt finds them rendered.

        For a thread: some ten milliseconds for a thousand messages.
        """
        self.use_summary(run.summary)
        _ = self.past
        self.show(run, transcript_with_results(run), run.cuts.pruned)

    def show(self, run: Run, said: Sequence[Message], pruned: int) -> None:
        """Render the conversation of a run with its stubs and its compaction."""
        shown = self.prune(said, pruned) if pruned else said
        self.own.update(
            shown if run.cuts.compacted is None else shortened(shown, run.cuts.compacted)
        )

    def plan_pruning(self, messages: Sequence[Message], before: int, prompt_tokens: int) -> int:
        """Return the same as `pruning.plan_pruning`, with less work from turn to turn."""
        place = next_place(messages, before)
        if place == before:
            return before
        self.prune(messages, before)
        keys = self._keys.of(messages[:place])
        if self._saving[:2] != (before, place):
            new = find_stubs(messages[:place], keys)
            saved = count_saving(messages, self._stubs if before else {}, new)
            self._saving = before, place, saved
        return place if is_worth_it(self._saving[2], prompt_tokens) else before

    def prune(self, messages: Sequence[Message], through: int) -> Sequence[Message]:
        """Return the messages with stubs among the first `through` ones."""
        if not through:
            return messages
        if self._pruned != messages[:through]:
            self._pruned = messages[:through]
            self._stubs = find_stubs(self._pruned, self._keys.of(self._pruned))
        pruned = list(messages)
        for place, stub in self._stubs.items():
            pruned[place] = stub
        return pruned

    def count_stubs(self, through: int) -> int:
        """Return the number of stubs among the first `through` messages, after `prune`."""
        return len(self._stubs) if through else 0

    def render(self, event: ContextGathered, left_out: frozenset[str]) -> GuidanceMessage | None:
        """Render one gathered layer; a run has each layer once.

        The texts are compared, not only the layer: a step that finds a secret decides twice, first
        with the text as gathered and then with the redacted one.
        """
        known = self._gathered.get(event.layer)
        if known is None or known[0] != event or known[1] != left_out:
            place = f"{self._place} {event.layer}"
            rendered = render_gathered(event, place, self._key, left_out)
            known = self._gathered[event.layer] = event, left_out, rendered
        return known[2]
