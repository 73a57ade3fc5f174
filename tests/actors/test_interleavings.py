"""No message is lost or doubled, whatever happens in which order; see `interleavings`."""

from collections import Counter

import pytest

from tests.actors.interleavings import play

CHUNK = 25
STORIES = 100  # ten thousand in `make torture`
DISPOSITIONS = {"started", "queued", "merged", "steered", "interrupted"}


@pytest.mark.parametrize("first", range(0, STORIES, CHUNK))
def test_no_message_is_lost(first: int) -> None:
    """Modes, cancels, resets, crashes and full disks, mixed by the seed."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        seen += play(seed)
    assert set(seen) >= DISPOSITIONS


@pytest.mark.slow
def test_no_message_is_lost_in_ten_thousand_interleavings() -> None:
    """The same, at length; `-s` shows what became of the messages."""
    seen: Counter[str] = Counter()
    for seed in range(10_000, 20_000):
        seen += play(seed)
    print(dict(seen.most_common()))  # noqa: T201 - the number is the result
    assert set(seen) >= DISPOSITIONS


def test_a_story_is_a_function_of_its_seed() -> None:
    """A failing seed reproduces."""
    assert play(7) == play(7)
