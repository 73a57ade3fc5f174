"""Choice of the segments that do not fit, and the division of a window."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.layers import (
    CONVERSATION,
    CUT_PART,
    LAYERS,
    ContextLimits,
    Segment,
    divide_window,
    select_segments,
)
from tests.rows import every_row

TALK = sorted(layer for layer, rank in LAYERS.items() if rank.priority == CONVERSATION)
SEGMENTS = st.lists(
    st.builds(
        Segment,
        st.sampled_from(sorted(LAYERS)),
        st.integers(0, 1_000),
        st.sampled_from([0, 0, 0, 1, 2]),
        is_protected=st.sampled_from([False, False, False, True]),
    ),
    max_size=25,
)


def groups_of(segments: list[Segment]) -> dict[int, set[int]]:
    """Indices by group; a segment without one is its own."""
    groups: dict[int, set[int]] = {}
    for index, segment in enumerate(segments):
        groups.setdefault(segment.group or -1 - index, set()).add(index)
    return groups


def is_kept_always(segments: list[Segment], members: set[int]) -> bool:
    """True if a member may not be dropped."""
    return any(
        segments[each].is_protected or LAYERS[segments[each].layer].is_protected for each in members
    )


@given(SEGMENTS, st.integers(0, 8_000))
def test_what_is_protected_stays_and_the_rest_fits(segments: list[Segment], room: int) -> None:
    """Protected groups stay whole, the sums are right, and the result fits unless it cannot."""
    found = select_segments(segments, room)
    dropped = set(found.dropped)
    assert len(dropped) == len(found.dropped)
    assert found.tokens == sum(each.tokens for at, each in enumerate(segments) if at not in dropped)
    for members in groups_of(segments).values():
        assert members <= dropped or not members & dropped
        assert not (members & dropped and is_kept_always(segments, members))
    protected = sum(
        segments[each].tokens
        for members in groups_of(segments).values()
        if is_kept_always(segments, members)
        for each in members
    )
    assert found.is_exhausted == (found.tokens > room) == (protected > room)


@given(SEGMENTS, st.integers(0, 8_000))
def test_nothing_is_dropped_without_need(segments: list[Segment], room: int) -> None:
    """The groups before the last one dropped were not enough, but for a cut conversation."""
    found = select_segments(segments, room)
    total = sum(each.tokens for each in segments)
    if total <= room:
        assert () == found.dropped
    elif found.dropped and segments[found.dropped[-1]].layer not in TALK:
        last = next(
            members for members in groups_of(segments).values() if found.dropped[-1] in members
        )
        before = set(found.dropped) - last
        is_talk = any(segments[each].layer in TALK for each in last)
        left = sum(each.tokens for at, each in enumerate(segments) if at not in before)
        assert left > room or is_talk


@given(SEGMENTS, st.integers(0, 8_000))
def test_lower_priorities_go_first(segments: list[Segment], room: int) -> None:
    """If a single segment is dropped, so is every one that is cheaper to lose, whatever the sizes."""
    single = [each for each in segments if not each.group]
    found = select_segments(single, room)
    dropped = set(found.dropped)

    def rank(at: int) -> tuple[int, bool]:
        layer = LAYERS[single[at].layer]
        return layer.priority, layer.is_stable

    loose = [at for at in range(len(single)) if not is_kept_always(single, {at})]
    for gone, stays in product(dropped, set(loose) - dropped):
        assert rank(stays) >= rank(gone)
        if rank(stays) == rank(gone) and rank(gone)[0] == CONVERSATION:
            assert gone < stays, "the oldest goes first"
        elif rank(stays) == rank(gone):
            assert single[gone].tokens >= single[stays].tokens, "the larger goes first"


@given(SEGMENTS, st.integers(0, 8_000))
def test_same_segments_same_choice(segments: list[Segment], room: int) -> None:
    """The choice follows from the arguments alone."""
    assert select_segments(segments, room) == select_segments(list(segments), room)


def test_the_documented_order() -> None:
    """Each layer once, ever less room: recalled, summary after conversation, and so on."""
    names = [layer for layer in LAYERS if layer != "history"]
    segments = [Segment(layer, 10) for layer in names]
    order = [names[each] for each in select_segments(segments, 0).dropped]
    assert order == [
        "recalled", "summary", "conversation", "project_files", "attachments", "explicit_recall",
        "preferences",
    ]  # fmt: skip


def test_a_cut_conversation_leaves_room_for_the_next_turns() -> None:
    """It is cut to three quarters; other layers only as far as needed."""
    talk = [Segment("conversation", 10) for _ in range(100)]
    found = select_segments(talk, 999)
    assert found.tokens <= 999 * CUT_PART[0] // CUT_PART[1]
    assert tuple(range(len(found.dropped))) == found.dropped
    memories = [Segment("recalled", 10) for _ in range(100)]
    assert 1 == len(select_segments(memories, 999).dropped)


def test_the_newest_exchange_can_be_protected() -> None:
    """A call whose result the model waits for stays with it."""
    segments = [Segment("conversation", 50), Segment("conversation", 50, is_protected=True)]
    found = select_segments(segments, 10)
    assert ((0,), True) == (found.dropped, found.is_exhausted)


@every_row(
    ("windows", "protected", "expected"),
    [
        ((), 0, 0),  # not known
        ((0,), 0, 0),
        ((8_000,), 0, 8_000),
        ((8_000, 4_000), 100, 4_000),  # the smaller one may take over
        ((8_000, 4_000), 3_900, 8_000),  # it could not
        ((4_000, 8_000), 100, 4_000),
        ((4_000, 8_000), 6_000, 4_000),  # at most the model's own
        ((0, 4_000), 100, 4_000),
        ((0, 4_000), 6_000, 0),
    ],
)
def test_the_smallest_window_that_counts(
    windows: tuple[int, ...], protected: int, expected: int
) -> None:
    """The smallest window of all models that may answer, if the protected parts fit it."""
    assert expected == divide_window(ContextLimits(windows=windows), 0, protected).window


def test_a_window_is_divided() -> None:
    """Answer, tools and margin are taken off; a reserve of the daemon is at most a quarter."""
    limits = ContextLimits(windows=(3_200,), reserved=8_192)
    room = divide_window(limits, 200, 0)
    assert (800, 200, 100, 2_100) == (room.reserved, room.tools, room.margin, room.available)
    exact = ContextLimits(windows=(3_200,), reserved=2_000, is_reserved_exactly=True)
    assert 900 == divide_window(exact, 200, 0).available
    assert 0 == divide_window(exact, 5_000, 0).available
