"""Context assembly: the model request of one turn, from the run's state alone.

A prompt is, in this order: instructions and tools; preferences, project files and the summary; the
session's earlier runs (`core.context.history`); recalled memories; the conversation of the run, with
the references of each message below its text; the time.  Whatever changes between turns comes after
what does not, so a provider's prompt cache holds everything but the end.

Assembly is deterministic: the same run, agent and window give the same request, byte for byte.  Texts
from outside are on the run's tape (`context.gathered`), the time is that of the last event, and every
tool output and gathered text is fenced (`core.trust.fences`).

What does not fit the window is dropped as `core.context.layers` says.  A cut of the conversation is
kept in later turns, so they begin with the same messages.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import starmap
from typing import Any, NamedTuple

import msgspec

from palyra.core.context.history import NO_HISTORY, History, uncovered
from palyra.core.context.layers import (
    LAYERS,
    ContextLimits,
    Segment,
    divide_window,
    select_segments,
)
from palyra.core.context.pruning import STEP
from palyra.core.context.rendering import PromptCache
from palyra.core.context.sources import frameless_tokens
from palyra.core.journal.records import AgentRecord
from palyra.core.model.images import PICTURE_TOKENS
from palyra.core.model.messages import (
    DEFAULT_SAMPLING,
    AssistantMessage,
    GuidanceMessage,
    Message,
    ModelRequest,
    ToolMessage,
    UserMessage,
    message_tokens,
    source_tokens,
    without_pictures,
)
from palyra.core.model.request_options import RequestOptions, add_instructions, client_spec
from palyra.core.model.sources import ContextSource
from palyra.core.model.tool_results import pair_results
from palyra.core.run.refused_items import without_refused
from palyra.core.run.state import Run, transcript_with_results
from palyra.core.run.todos import describe_todos
from palyra.core.tape.events import ContextAssembled, ContextBudget, ContextGathered
from palyra.core.text.tokens import FACTOR, corrected, estimate_tokens
from palyra.core.tool.spec import Catalogue, build_catalogue
from palyra.core.trust.fences import FENCE_NOTE
from palyra.core.trust.labels import lowest

CONTINUE = GuidanceMessage(
    "Your last turn was cut off at the output limit. Go on exactly where it stopped: repeat "
    "nothing and begin with the very next character."
)


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """Stable part of every request of an agent with one catalogue, computed once for both."""

    agent: AgentRecord
    catalogue: Catalogue
    instructions: str  # the agent's, and the explanation of fences
    tools: tuple[dict[str, Any], ...]
    hash: str
    tokens: int
    tool_tokens: int  # of these, for the tools


def stable_prefix(agent: AgentRecord, catalogue: Catalogue, note: str = "") -> Prefix:
    """Return instructions, with a note at their end, and tool descriptions, with hash and size."""
    tools = tuple(
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in catalogue.tools.values()
    )
    texts = [text for text in (agent.instructions, FENCE_NOTE, note) if text]
    return _measured(agent, catalogue, "\n\n".join(texts), tools)


def _measured(
    agent: AgentRecord,
    catalogue: Catalogue,
    instructions: str,
    tools: tuple[dict[str, Any], ...],
) -> Prefix:
    text = msgspec.json.encode([instructions, tools], order="sorted")
    return Prefix(
        agent=agent,
        catalogue=catalogue,
        instructions=instructions,
        tools=tools,
        hash=hashlib.sha256(text).hexdigest(),
        tokens=estimate_tokens(text.decode()),
        tool_tokens=estimate_tokens(msgspec.json.encode(tools).decode()) if tools else 0,
    )


def narrow_prefix(prefix: Prefix, names: Sequence[str] | None) -> Prefix:
    """Return the prefix of a delegated run, with the tools that it was given; None: not delegated."""
    if names is None:
        return prefix
    given = frozenset(names)
    specs = (spec for name, spec in prefix.catalogue.tools.items() if name in given)
    shown = tuple(tool for tool in prefix.tools if tool["name"] in given)
    return _measured(prefix.agent, build_catalogue(specs), prefix.instructions, shown)


def brief_prefix(prefix: Prefix, brief: RequestOptions | None) -> Prefix:
    """Return the prefix of a run with request options; a client's tool hides one of the same name.

    If the options require a call of a client's tool, all other tools are hidden.
    """
    if brief is None or brief.is_blank:
        return prefix
    own = {tool.name: tool for tool in brief.shown}
    hidden = prefix.catalogue.tools.keys() if brief.must_call else own.keys()
    specs = [spec for name, spec in prefix.catalogue.tools.items() if name not in hidden]
    specs += map(client_spec, own.values())
    catalogue = build_catalogue(specs) if own else prefix.catalogue
    tools = (
        *(tool for tool in prefix.tools if tool["name"] not in hidden),
        *(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in own.values()
        ),
    )
    instructions = add_instructions(prefix.instructions, brief)
    return _measured(prefix.agent, catalogue, instructions, tools)


NO_LIMITS = ContextLimits()


def assemble(  # noqa: PLR0913 - what a prompt depends on, most by name
    run: Run,
    prefix: Prefix,
    turn: int,
    attempt: int,
    fence_key: bytes,
    *,
    history: History = NO_HISTORY,
    limits: ContextLimits = NO_LIMITS,
    cache: PromptCache | None = None,
) -> tuple[ContextAssembled, ModelRequest]:
    """Return the request of one turn and the event that explains it.

    A retry sees the same conversation as the first attempt: messages that arrive between them wait
    for the next turn.  A turn that continues a text that was cut off gets a note about it; the note
    is part of this request only, so later turns see the text as one.  Parts removed by
    `core.context.overflow` stay removed, and so do parts dropped for lack of room.  `cache` keeps
    rendered messages between the turns of a run and changes no result.
    """
    said = transcript_with_results(run) if attempt == 1 else run.transcript
    cache = cache or PromptCache(run, history, fence_key)
    cache.use_summary(run.summary)
    pruned = run.cuts.pruned
    if attempt == 1 and len(said) - pruned >= STEP:
        pruned = cache.plan_pruning(said, pruned, run.asked.input_tokens)
    prompt = _Prompt(run, prefix, said, cache, pruned)
    if run.continues(attempt):
        prompt.notes.append(CONTINUE)
    is_cut = run.cuts.compacted is not None or bool(run.cuts.omitted or pruned)
    if run.todos and (is_cut or run.summary is not None or history.summary is not None):
        prompt.notes.append(GuidanceMessage(describe_todos(run.todos)))
    if limits.has_clock:
        prompt.notes.append(GuidanceMessage(clock_text(run.last_ms)))
    budget = prompt.fit(limits)
    messages: Sequence[Message] = prompt.messages()
    if not (limits.shows_pictures and limits.shows_returned):
        messages = [
            without_pictures(message, NO_VISION)
            if not limits.shows_pictures or isinstance(message, ToolMessage)
            else message
            for message in messages
        ]
    tools, refused = prefix.tools, run.refused
    if refused:
        messages = [without_refused(message, refused) for message in messages]
        tools = tuple(tool for tool in tools if f"tool:{tool['name']}" not in refused)
    brief = run.accepted.brief
    event = ContextAssembled(
        turn=turn,
        segments=prompt.segments(history),
        input_tokens=corrected(prompt.count(), prompt.factor_bps),
        prefix_hash=prefix.hash,
        catalogue_hash=prefix.catalogue.hash,
        memories=prompt.memories() if run.sources else (),
        budget=budget,
    )
    request = ModelRequest(
        run_id=run.run_id,
        turn=turn,
        attempt=attempt,
        model=run.model,
        agent=prefix.agent.name,
        instructions=prefix.instructions,
        messages=tuple(messages),
        tools=tools,
        json_mode=run.accepted.json_mode,
        is_background=run.accepted.origin == "background",
        principal=run.accepted.principal,
        sampling=DEFAULT_SAMPLING if brief is None else brief.sampling,
        must_call=brief is not None and bool(brief.must_call),
        one_call=brief is not None and brief.one_call,
        sends_thoughts="reasoning:reasoning" not in refused,
        volatile=len(prompt.notes),
    )
    return event, request


def clock_text(now_ms: int) -> str:
    """Return the time of the step, to the minute."""
    return f"It is {datetime.fromtimestamp(now_ms / 1000, UTC):%A, %Y-%m-%d %H:%M} UTC."


OVER_BUDGET = "over_budget"  # reason of a dropped segment
AROUND = "heading and fences"  # of a layer, round its texts
NO_ROOM = "the prompt had no room for them"
NO_VISION = "the model sees no pictures"


class _Prompt:
    """The prompt of one turn while it is assembled.

    History and conversation have one index, so that `omitted`, the number of leading messages left
    out, means the same in every turn: both only grow at their end.  The user messages of the run
    (`inputs`) are shown even if they lie before it.
    """

    def __init__(
        self, run: Run, prefix: Prefix, said: Sequence[Message], cache: PromptCache, pruned: int
    ) -> None:
        """Render history and conversation without the parts removed in earlier turns."""
        self.run = run
        self.prefix = prefix
        self.said = said
        self.cache = cache
        self.pruned = pruned
        self.omitted = run.cuts.omitted
        self.factor_bps = run.token_bps.get(run.model, FACTOR)
        self.notes: list[Message] = []  # of this request only, at its end
        self.left_out: dict[str, frozenset[str]] = {}  # names of dropped sources, by layer
        self.changed: dict[int, Message] = {}  # own messages that lost something, by place
        self.dropped: list[dict[str, Any]] = []  # segments
        self.is_exhausted = False
        cut, past, own = run.cuts.compacted, cache.past, cache.own
        cache.show(run, said, pruned)
        self.past_start, self.own_start = 0, uncovered(run, said)
        if cut is not None:
            self.past_start = (*past.starts, len(past.messages))[cut.history_runs]
            self.own_start = max(self.own_start, cut.inherited_messages)
        if self.omitted:
            self._omit(self.omitted)
        self.inputs = own.inputs if not run.inherited else _find_inputs(own.inputs, run.inherited)
        self.measure()

    def _omit(self, end: int) -> None:
        """Leave out the messages of history and conversation before that index."""
        self.omitted = end
        past_count = len(self.cache.past.messages)
        self.past_start = max(self.past_start, min(end, past_count))
        self.own_start = max(self.own_start, end - past_count)

    def measure(self) -> None:
        """Add up the estimated tokens of all that is shown, the tools and the notes aside."""
        own, past = self.cache.own.tokens, self.cache.past.tokens
        self.input_tokens = early_tokens = 0
        for at in self.inputs:
            tokens = self._own_tokens(at) if self.changed else own[at]
            self.input_tokens += tokens
            early_tokens += own[at] if at >= self.own_start else 0
        shown = sum(own[self.own_start :] if self.own_start else own)
        self.conversation_tokens = shown - early_tokens
        self.past_tokens = sum(past[self.past_start :]) if past else 0
        self.source_tokens = sum(map(self._layer_tokens, self.run.sources))

    # --- tokens, as estimated

    @property
    def instruction_tokens(self) -> int:
        """Tokens of the instructions without the tools."""
        return self.prefix.tokens - self.prefix.tool_tokens

    @property
    def note_tokens(self) -> int:
        """Tokens of the notes at the end."""
        return sum(map(message_tokens, self.notes)) if self.notes else 0

    def count(self) -> int:
        """Return the estimated tokens of the prompt with tools."""
        talk = self.past_tokens + self.conversation_tokens + self.input_tokens
        around = self.prefix.tokens + self.cache.summary_tokens + self.note_tokens
        return around + talk + self.source_tokens

    def _layer_tokens(self, event: ContextGathered) -> int:
        """Tokens of a gathered layer as it is shown, with its heading and its fences."""
        rendered = self.cache.render(event, self.left_out.get(event.layer, frozenset()))
        return 0 if rendered is None else message_tokens(rendered)

    def _own_tokens(self, place: int) -> int:
        changed = self.changed.get(place)
        return self.cache.own.tokens[place] if changed is None else message_tokens(changed)

    def _sources(self) -> Iterator[tuple[ContextGathered, ContextSource]]:
        for event in self.run.sources:
            left_out = self.left_out.get(event.layer, frozenset())
            for source in event.sources:
                if source.text and source.name not in left_out:
                    yield event, source

    # --- the messages

    def messages(self) -> list[Message]:
        """Return the messages of the prompt in order, each call with its result.

        Pairing looks at every message.  A history that is paired in itself begins with a user message
        also after a cut, so only the rest is paired.
        """
        past, rest = self.cache.past, self._later_messages()
        first = self.past_start
        is_whole = first == len(past.messages) or isinstance(past.messages[first], UserMessage)
        gathered = self._gathered(is_prefix=True) if self.run.sources else ()
        prefix = (*gathered, *self.cache.summary)
        if past.is_paired and is_whole:
            return [*prefix, *past.messages[first:], *pair_results(rest)]
        return [*prefix, *pair_results([*past.messages[first:], *rest])]

    def _later_messages(self) -> list[Message]:
        """Return what comes after the history."""
        shown: Sequence[Message] = self.cache.own.shown
        if self.changed:
            shown = list(starmap(self.changed.get, enumerate(shown)))
        early = [shown[at] for at in self.inputs if at < self.own_start]
        first = max(self.own_start, self.inputs[0] if self.inputs else 0)
        if not self.run.sources:
            return [*early, *shown[self.own_start :], *self.notes]
        return [
            *shown[self.own_start : first],
            *self._gathered(is_prefix=False),
            *early,
            *shown[first:],
            *self.notes,
        ]

    def _gathered(self, *, is_prefix: bool) -> Iterator[Message]:
        for event in self.run.sources:
            if LAYERS[event.layer].is_stable == is_prefix:
                left_out = self.left_out.get(event.layer, frozenset())
                rendered = self.cache.render(event, left_out)
                if rendered is not None:
                    yield rendered

    # --- the budget

    def fit(self, limits: ContextLimits) -> ContextBudget | None:
        """Drop what does not fit; return the numbers, None if there are none to report."""
        if not any(limits.windows) and self.factor_bps == FACTOR and not self.pruned:
            return None
        needed = self.count() - self.prefix.tool_tokens
        room = divide_window(
            limits,
            corrected(self.prefix.tool_tokens, self.factor_bps),
            corrected(self._protected_tokens(), self.factor_bps) if limits.windows[1:] else 0,
        )
        available = room.available * FACTOR // self.factor_bps
        if room.window and needed > available:
            needed = self._drop(available, needed)
        return ContextBudget(
            window=room.window,
            reserved=room.reserved,
            tools=room.tools,
            margin=room.margin,
            available=room.available,
            needed=corrected(needed, self.factor_bps),
            factor_bps=self.factor_bps,
            omitted=self.omitted,
            pruned=self.pruned,
            is_exhausted=self.is_exhausted,
        )

    def _drop(self, available: int, needed: int) -> int:
        """Drop parts until the rest fits; return the tokens needed, of the protected if they do not."""
        parts = list(self._parts())
        fixed = needed - sum(part.segment.tokens for part in parts)
        segments = [Segment("instructions", fixed), *(part.segment for part in parts)]
        selection = select_segments(segments, available)
        before = {event.layer: self._layer_tokens(event) for event in self.run.sources}
        for index in selection.dropped:
            part = parts[index - 1]
            self.dropped.append(part.describe())
            self._leave_out(part)
        for event in self.run.sources:  # with the last text of a fence goes the fence
            gone = [each for each in self.dropped if each["layer"] == event.layer]
            saved = before[event.layer] - self._layer_tokens(event)
            if gone:
                gone[-1]["tokens"] += saved - sum(each["tokens"] for each in gone)
        self.measure()
        left = self.count() - self.prefix.tool_tokens  # without the frames of empty layers
        self.is_exhausted = selection.is_exhausted and left > available
        return left if self.is_exhausted else needed

    def _leave_out(self, part: "_Part") -> None:
        layer = part.segment.layer
        if layer in {"history", "conversation"}:
            self._omit(part.end)
        elif layer == "attachments":
            message = self.changed.get(part.end, self.cache.own.shown[part.end])
            self.changed[part.end] = without_pictures(message, NO_ROOM)
        elif layer == "explicit_recall":
            self.left_out[str(part.end)] = self._with(str(part.end), part.name)
            self.changed[part.end] = self._without_recall(part.end)
        else:
            self.left_out[layer] = self._with(layer, part.name)

    def _without_recall(self, place: int) -> Message:
        """Render an input again without the recalled texts that were dropped."""
        message, changed = self.said[place], self.changed.get(place)
        assert isinstance(message, UserMessage)  # noqa: S101 - an input is one
        rendered = self.cache.own.render_without(message, place, self.left_out[str(place)])
        return rendered if changed is None else without_pictures(rendered, NO_ROOM)

    def _with(self, layer: str, name: str) -> frozenset[str]:
        return self.left_out.get(layer, frozenset()) | {name}

    def _parts(self) -> Iterator["_Part"]:
        """Yield everything that may be dropped."""
        for event, source in self._sources():
            yield _Part(Segment(event.layer, frameless_tokens(event.layer, source)), source.name)
        for place in self.inputs:
            message = self.said[place]
            assert isinstance(message, UserMessage)  # noqa: S101 - an input is one
            if message.pictures:
                tokens = PICTURE_TOKENS * len(message.pictures)
                yield _Part(Segment("attachments", tokens), end=place)
            for source in message.references:
                if source.kind == "memory" and source.text:
                    segment = Segment("explicit_recall", source_tokens(source))
                    yield _Part(segment, source.name, place)
        yield from self._exchanges()

    def _exchanges(self) -> Iterator["_Part"]:
        """Yield the conversation in the units in which it is dropped, oldest first.

        Before the run's own message a unit is an exchange, from one user message to the next, so
        the rest begins with a user message, as providers want it.  After it a unit is an answer of
        the model with the results of its calls.  The model waits for the newest unit.
        """
        past, own = self.cache.past, self.cache.own
        for start, end in _split(past.messages, self.past_start, len(past.messages)):
            yield _Part(
                Segment("history", sum(past.tokens[start:end])), end=end, messages=end - start
            )
        first = self.inputs[0] if self.inputs else len(self.said)
        spans = [
            *_split(self.said, self.own_start, max(first, self.own_start)),
            *_split_answers(self.said, max(first, self.own_start)),
        ]
        for start, end in spans:
            tokens = sum(own.tokens[start:end])
            segment = Segment("conversation", tokens, is_protected=end == len(self.said))
            place = len(past.messages) + end
            yield _Part(segment, end=place, messages=end - start)

    def _protected_tokens(self) -> int:
        """Return the tokens of everything that is never dropped."""
        droppable = sum(
            PICTURE_TOKENS * len(message.pictures)
            + sum(source_tokens(each) for each in message.references if each.kind == "memory")
            for place in self.inputs
            if isinstance(message := self.said[place], UserMessage)
        )
        last = next(iter(_split_answers(self.said, self._last_answer())), (0, 0))
        newest = sum(self.cache.own.tokens[last[0] : last[1]])
        around = self.instruction_tokens + self.cache.summary_tokens + self.note_tokens
        return around + self.input_tokens - droppable + newest

    def _last_answer(self) -> int:
        """Return the place of the newest answer of the model, if it comes after all user messages."""
        place = len(self.said) - 1
        while place >= 0 and not isinstance(self.said[place], AssistantMessage | UserMessage):
            place -= 1
        return max(place, 0)

    # --- the explanation

    def segments(self, history: History) -> tuple[dict[str, Any], ...]:
        """Return every segment, kept or dropped, with the reason."""
        cut, own = self.run.cuts.compacted, self.cache.own
        later = (
            [at for at in self.inputs if at >= self.own_start] if self.own_start else self.inputs
        )
        conversation: dict[str, Any] = {
            "layer": "conversation",
            "tokens": self.conversation_tokens,
            "kept": not self.own_start and (cut is None or not cut.output_bytes),
            "messages": len(own.shown) - self.own_start - len(later),
            "trust": lowest(own.trusts),
        }
        if self.pruned:
            conversation["stubs"] = self.cache.count_stubs(self.pruned)
        segments = [{"layer": "instructions", "tokens": self.prefix.tokens, "kept": True}]
        if self.cache.summary:
            segments.append(self.cache.describe_summary())
        if history.runs or history.is_cut:
            segments.append(self._past_segment(history))
        if conversation["messages"] or self.own_start:
            segments.append(conversation)
        segments += self._input_segments()
        if self.run.sources:
            segments += self._source_segments()
        segments += self.dropped
        if self.notes:
            segments.append({"layer": "clock", "tokens": self.note_tokens, "kept": True})
        return tuple(segments)

    def _past_segment(self, history: History) -> dict[str, Any]:
        past = self.cache.past
        shown = sum(start >= self.past_start for start in past.starts)
        return {
            "layer": "history",
            "tokens": self.past_tokens,
            "kept": not history.is_cut and self.past_start == 0,
            "runs": shown,
            "messages": len(past.messages) - self.past_start,
            "trust": lowest(past.trusts[len(past.trusts) - shown :]),
        }

    def _input_segments(self) -> list[dict[str, Any]]:
        """Return the user's messages, their references and their pictures."""
        tokens = self.input_tokens
        found: list[dict[str, Any]] = []
        for place in self.inputs:
            message = self.said[place]
            assert isinstance(message, UserMessage)  # noqa: S101 - an input is one
            if message.references:
                found += self._reference_segments(message, place)
            if message.pictures and not self._lacks_pictures(place):
                pictures = PICTURE_TOKENS * len(message.pictures)
                found.append({"layer": "attachments", "tokens": pictures, "kept": True})
        for each in found:
            tokens -= each["tokens"]
        return [{"layer": "user_input", "tokens": max(0, tokens), "kept": True}, *found]

    def _reference_segments(self, message: UserMessage, place: int) -> Iterator[dict[str, Any]]:
        left_out = self.left_out.get(str(place), frozenset())
        for source in message.references:
            if source.name not in left_out:
                layer = "explicit_recall" if source.kind == "memory" else "references"
                yield _describe(layer, source, source_tokens(source))

    def _lacks_pictures(self, place: int) -> bool:
        changed = self.changed.get(place)
        return isinstance(changed, UserMessage) and not changed.pictures

    def _source_segments(self) -> Iterator[dict[str, Any]]:
        for event in self.run.sources:
            left_out = self.left_out.get(event.layer, frozenset())
            shown = [each for each in event.sources if each.text and each.name not in left_out]
            tokens = [frameless_tokens(event.layer, each) for each in shown]
            for source, own in zip(shown, tokens, strict=True):
                yield _describe(event.layer, source, own)
            if shown:
                around = max(0, self._layer_tokens(event) - sum(tokens))
                yield {"layer": event.layer, "tokens": around, "kept": True, "note": AROUND}
            if event.absent:
                yield {"layer": event.layer, "tokens": 0, "kept": False, "why": event.absent}
            for source in event.sources:
                if source.error:
                    yield _describe(event.layer, source, 0)

    def memories(self) -> tuple[str, ...]:
        """Return the ids of the recalled memories that are shown."""
        return tuple(source.name for event, source in self._sources() if event.layer in RECALLED)


RECALLED = frozenset({"recalled", "preferences"})


class _Part(NamedTuple):
    """Something that may be dropped, and how to find it."""

    segment: Segment
    name: str = ""
    end: int = 0  # of the conversation: index after it; else the place of the message
    messages: int = 0

    def describe(self) -> dict[str, Any]:
        """Return the part as a dropped segment."""
        described: dict[str, Any] = {
            "layer": self.segment.layer,
            "tokens": self.segment.tokens,
            "kept": False,
            "why": OVER_BUDGET,
        }
        if self.name:
            described["name"] = self.name
        if self.messages:
            described["messages"] = self.messages
        return described


def _describe(layer: str, source: ContextSource, tokens: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "layer": layer,
        "tokens": tokens,
        "kept": not source.error,
        "name": source.name,
        "trust": source.trust,
    }
    if source.error:
        described["why"] = source.error
    if source.note:
        described["note"] = source.note
    if source.findings:
        described["findings"] = source.findings
    return described


def _find_inputs(users: Sequence[int], inherited: int) -> list[int]:
    """Return the user messages after the inherited ones; a fork without one has the last before."""
    own = [place for place in users if place >= inherited]
    return own or [*users[-1:]]


def _split(messages: Sequence[Message], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans from one user message to the next."""
    at = start
    for place in range(start + 1, end):
        if isinstance(messages[place], UserMessage):
            yield at, place
            at = place
    if at < end:
        yield at, end


def _split_answers(messages: Sequence[Message], start: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of the model's answers with their results, without user messages."""
    at: int | None = None
    for place in range(start, len(messages)):
        is_input = isinstance(messages[place], UserMessage)
        if at is not None and (is_input or isinstance(messages[place], AssistantMessage)):
            yield at, place
            at = None
        if not is_input and at is None:
            at = place
    if at is not None:
        yield at, len(messages)
