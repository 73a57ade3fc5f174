"""Compact a scripted session several times; shared by bench/compaction.py and the tests."""

import json
from collections.abc import Callable, Sequence

from palyra.core.context import session_window as sw
from palyra.core.context.ledger import Placed
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


def compact(
    session: Conversation, times: int, drafter: Drafter | None
) -> tuple[str, int, int, int]:
    """Return the remaining prompt, tokens before and after, and how many drafts were refused."""
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
            plan = sw.plan_summary(summary, part, BUDGET_TOKENS, window=placed[end:upto])
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
    return prompt, before, after + (summary.after_tokens if summary else 0), refused
