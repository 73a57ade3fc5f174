"""Layers of a prompt, and which segments to drop when they do not fit the model's window.

Each text of a prompt belongs to a layer with a priority.  Protected layers are never dropped.  The
others are dropped in this order until the rest fits:

1. the lowest priority first;
2. of one priority, segments of the changing part before segments of the stable prefix, because a
   provider's prompt cache holds the prefix;
3. then the larger one first; of the conversation instead the oldest one first.

Segments with the same group are dropped together: a call is never without its result.  Once the
conversation is cut, it is cut to three quarters of the available tokens.  Otherwise every further
turn would cut a little more, and no turn would find its prefix in the provider's cache.

If the protected segments alone do not fit, nothing can be done here: the run fails.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class LayerRank(NamedTuple):
    """Rank of a layer."""

    priority: int
    is_protected: bool = False  # never dropped
    is_stable: bool = False  # part of the prefix that does not change between turns


CONVERSATION = 84  # priority of the recent conversation
LAYERS = {
    "user_input": LayerRank(100, is_protected=True),
    "instructions": LayerRank(99, is_protected=True, is_stable=True),
    "clock": LayerRank(98, is_protected=True),
    "references": LayerRank(96, is_protected=True),
    "preferences": LayerRank(92, is_stable=True),
    "explicit_recall": LayerRank(90),
    "attachments": LayerRank(88),
    "project_files": LayerRank(86, is_stable=True),
    "conversation": LayerRank(CONVERSATION),
    "history": LayerRank(CONVERSATION),
    "summary": LayerRank(82, is_stable=True),
    "recalled": LayerRank(72),
}
MARGIN_PART = 32  # of the window: the error of the estimate after its correction
RESERVED_PART = 4  # of the window: most that is reserved for an answer without a limit of its own
CUT_PART = 3, 4  # of the available tokens: size after a cut of the conversation


class Segment(msgspec.Struct, frozen=True, gc=False):
    """A part of the prompt that is kept or dropped as a whole."""

    layer: str
    tokens: int
    group: int = 0  # segments with the same number other than 0 are dropped together
    is_protected: bool = False  # although its layer is not


class Selection(msgspec.Struct, frozen=True, gc=False):
    """Segments to drop, by index, in the order of the decision."""

    dropped: tuple[int, ...]
    tokens: int  # of the others
    is_exhausted: bool = False  # the protected segments alone do not fit


def select_segments(segments: Sequence[Segment], available_tokens: int) -> Selection:
    """Choose the segments to drop; those of the conversation are given oldest first."""
    total = sum(segment.tokens for segment in segments)
    if total <= available_tokens:
        return Selection((), total)
    groups: dict[int, list[int]] = {}
    for index, segment in enumerate(segments):
        groups.setdefault(segment.group or -1 - index, []).append(index)
    protected = {
        group
        for group, members in groups.items()
        if any(_is_protected(segments[index]) for index in members)
    }
    order = sorted(
        (_drop_key(segments, members), members)
        for group, members in groups.items()
        if group not in protected
    )
    dropped: list[int] = []
    goal = available_tokens  # of the conversation; smaller once it is cut
    for key, members in order:
        is_conversation = key[0] == CONVERSATION
        if total <= (goal if is_conversation else available_tokens):
            continue
        if is_conversation:
            goal = available_tokens * CUT_PART[0] // CUT_PART[1]
        dropped += members
        total -= sum(segments[index].tokens for index in members)
    return Selection(tuple(dropped), total, is_exhausted=total > available_tokens)


def _is_protected(segment: Segment) -> bool:
    return segment.is_protected or LAYERS[segment.layer].is_protected


def _drop_key(segments: Sequence[Segment], members: Sequence[int]) -> tuple[int, bool, int, int]:
    """Return the sort key of a group: its member with the highest priority decides."""
    ranks = [LAYERS[segments[index].layer] for index in members]
    priority = max(rank.priority for rank in ranks)
    is_stable = any(rank.is_stable for rank in ranks)
    if priority == CONVERSATION:
        return priority, is_stable, members[0], 0
    return priority, is_stable, -sum(segments[index].tokens for index in members), members[0]


# --- available tokens ----------------------------------------------------------------------------


class ContextLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the model of a turn."""

    windows: tuple[int, ...] = ()  # tokens: of the model, then of those that may take over
    reserved: int = 0  # tokens for the answer
    is_reserved_exactly: bool = False  # the caller set the length of the answer
    has_clock: bool = False  # the prompt ends with the time
    shows_pictures: bool = True  # False: a text describes them to a model without vision
    shows_returned: bool = True  # likewise, of pictures that tools returned


class TokenRoom(NamedTuple):
    """Tokens of a window, divided."""

    window: int  # 0: not known
    reserved: int
    tools: int
    margin: int

    @property
    def available(self) -> int:
        """Tokens for everything but the descriptions of tools."""
        return max(0, self.window - self.reserved - self.tools - self.margin)


def divide_window(limits: ContextLimits, tool_tokens: int, protected_tokens: int) -> TokenRoom:
    """Divide the smallest window that holds the protected segments, at most the model's own.

    A model whose window is smaller could not take over in any case.
    """
    known = [window for window in limits.windows if window]
    own = limits.windows[0] if limits.windows else 0
    rooms = [_divide(window, limits, tool_tokens) for window in sorted(known)]
    fitting = (room for room in rooms if room.available >= protected_tokens)
    chosen = next(fitting, None)
    if own and (chosen is None or chosen.window > own):
        return _divide(own, limits, tool_tokens)
    return chosen or TokenRoom(0, 0, tool_tokens, 0)


def _divide(window: int, limits: ContextLimits, tool_tokens: int) -> TokenRoom:
    reserved = limits.reserved
    if not limits.is_reserved_exactly:
        reserved = min(reserved, window // RESERVED_PART)
    return TokenRoom(window, reserved, tool_tokens, window // MARGIN_PART)
