"""Compact a scripted session several times; shared by bench/compaction.py and the tests."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from palyra.core.context import session_compaction as sw
from palyra.core.context.entries import Placed
from palyra.core.model.messages import AssistantMessage, Message, ToolMessage, message_tokens
from palyra.core.model.summary import Summary
from tests.core.context.conversations import Conversation

BUDGET_TOKENS = 32_000
Drafter = Callable[[Summary, Sequence[Placed]], sw.Draft]


def text_of(message: Message) -> str:
    """Return what the model sees of a message."""
    if isinstance(message, ToolMessage):
        return message.output
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return message.text + json.dumps([call.arguments for call in calls])


class Compacted(NamedTuple):
    """A session after its compactions; tokens are estimates."""

    prompt: str
    before_tokens: int
    after_tokens: int
    refused: int  # drafts
    summary_tokens: int


def compact(
    session: Conversation, times: int, drafter: Drafter | None, *, room: int = BUDGET_TOKENS
) -> Compacted:
    """Compact a session that many times; `room` is the budget of its history in tokens."""
    placed = [Placed("run", k, message) for k, message in enumerate(session.messages)]
    summary: Summary | None = None
    start = refused = 0
    for number in range(1, times + 1):
        upto = len(placed) * number // times
        end = start + sw.coverable([p.message for p in placed[start:upto]])
        part = placed[start:end]
        if not part:
            continue
        try:
            plan = sw.plan_summary(summary, part, room, window=placed[end:upto])
        except sw.RefusedSummary:
            continue
        if drafter is not None:
            try:
                plan = sw.take_draft(plan, drafter(plan, part), part)
            except sw.RefusedSummary:
                refused += 1
        defects = sw.find_defects(plan, summary, part, window=placed[end:upto])
        if defects:
            raise SystemExit(f"a compaction lost something: {defects}")
        summary, start = plan, end
    shown = [text_of(p.message) for p in placed[start:]]
    prompt = "\n".join(([] if summary is None else [sw.render(summary, b"k")]) + shown)
    before = sum(message_tokens(p.message) for p in placed)
    after = sum(message_tokens(p.message) for p in placed[start:])
    own = 0 if summary is None else summary.after_tokens
    return Compacted(prompt, before, after + own, refused, own)
