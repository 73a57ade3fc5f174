"""Compaction: shorten a prompt that was too large for the model, once per turn.

The decision follows from the sizes alone, so a resumed run and a replay decide the same.  The
target is half the size of the prompt.  Parts are removed in this order until it is reached:

1. the oldest runs of the session's history, each as a whole;
2. the oldest exchanges of an inherited conversation;
3. the middle of tool outputs that the model has answered to, leaving head and tail;
4. the middle of the other tool outputs.

User messages of this run, model messages and the instructions stay.  The tape keeps everything: the
removed parts are only not shown to the model.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice, starmap

import msgspec

from palyra.core.context.history import History
from palyra.core.context.pruning import find_stubs
from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    UserMessage,
    message_tokens,
    without_pictures,
)
from palyra.core.run.state import Run
from palyra.core.tape.events import Compaction
from palyra.core.text.excerpt import excerpt

OUTPUT_BYTES = (8_192, 2_048, 512)  # of an output, tried in this order


def plan_compaction(run: Run, history: History, prefix_tokens: int) -> Compaction | None:
    """Plan the compaction of the turn that was too large; None if nothing more can be removed."""
    if run.cuts.compacted is not None and run.cuts.compacted.turn == run.turn:
        return None
    now = run.cuts.compacted or Compaction(turn=0)
    before_tokens = prefix_tokens + _tokens(run, history, now)
    best = now
    for cut in _cuts(run, history, now):
        best = cut
        if prefix_tokens + _tokens(run, history, cut) <= before_tokens // 2:
            break
    after_tokens = prefix_tokens + _tokens(run, history, best)
    if after_tokens >= before_tokens:
        return None
    return msgspec.structs.replace(
        best, turn=run.turn, before_tokens=before_tokens, after_tokens=after_tokens
    )


def _cuts(run: Run, history: History, now: Compaction) -> Iterator[Compaction]:
    """Yield compactions that remove more than `now`, each more than the one before."""
    cut = now
    for runs in range(now.history_runs + 1, len(history.runs) + 1):
        cut = msgspec.structs.replace(cut, history_runs=runs)
        yield cut
    for messages in _exchanges(run, now.inherited_messages):
        cut = msgspec.structs.replace(cut, inherited_messages=messages)
        yield cut
    for through in (_answered(run), len(run.transcript)):
        for limit in OUTPUT_BYTES:
            cut = msgspec.structs.replace(cut, output_bytes=limit, through=through)
            yield cut


def _exchanges(run: Run, left_out: int) -> Iterator[int]:
    """Yield the indices where exchanges of the inherited conversation end; the last one is kept."""
    starts = [
        place
        for place, message in enumerate(run.transcript)
        if isinstance(message, UserMessage) and place <= run.inherited
    ]
    return (place for place in starts if place > left_out)


def _answered(run: Run) -> int:
    """Return the number of messages before the last one of the model."""
    places = [
        place
        for place, message in enumerate(run.transcript)
        if isinstance(message, AssistantMessage)
    ]
    return places[-1] if places else 0


def _tokens(run: Run, history: History, cut: Compaction) -> int:
    """Estimate the tokens of the compacted conversation, without what earlier prompts left out."""
    past_count = sum(len(past.messages) for past in history.runs)
    removed = sum(len(past.messages) for past in history.runs[: cut.history_runs])
    past = (message for each in history.runs for message in each.messages)
    shown = islice(past, max(removed, run.cuts.omitted), None)
    own = shortened(_pruned(run), cut)
    first = max(cut.inherited_messages, run.cuts.omitted - past_count)
    inputs = (each for each in own[:first] if isinstance(each, UserMessage))
    early = inputs if first > cut.inherited_messages else ()
    return sum(map(message_tokens, chain(shown, early, own[first:])))


def _pruned(run: Run) -> Sequence[Message]:
    """Return the conversation with the stubs that prompts show."""
    if not run.cuts.pruned:
        return run.transcript
    stubs = find_stubs(run.transcript[: run.cuts.pruned])
    return list(starmap(stubs.get, enumerate(run.transcript)))


# --- the compacted prompt ------------------------------------------------------------------------


def shortened(said: Sequence[Message], cut: Compaction | None) -> tuple[Message, ...]:
    """Return the conversation with shortened old outputs; every call keeps its result."""
    if cut is None or not cut.output_bytes:
        return tuple(said)
    return tuple(
        _shorten(message, cut.output_bytes)
        if place < cut.through and isinstance(message, ToolMessage)
        else message
        for place, message in enumerate(said)
    )


def _shorten(message: ToolMessage, limit_bytes: int) -> Message:
    output, _ = excerpt(message.output, limit_bytes)
    if len(output) < len(message.output):  # or the line about omitted bytes is longer than they are
        message = msgspec.structs.replace(message, output=output)
    return without_pictures(message, "left out to save room; artifact_read shows it again")
