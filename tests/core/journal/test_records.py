"""Properties of stored records and of filters."""

import msgspec

from palyra.core.journal.changes import UsageFilter
from palyra.core.journal.records import SessionRecord


def test_a_session_of_a_channel_has_a_place_until_it_is_archived() -> None:
    """The place names principal, agent, channel and conversation; without one of them is none."""
    session = SessionRecord(
        session_id="ses_1", principal="ann", key=None, created_ms=1, updated_ms=1,
        agent="a", channel="chat", conversation_id="c1",
    )  # fmt: skip
    assert ("ann", "a", "chat", "c1") == session.place
    for change in ("agent", "channel", "conversation_id"):
        assert msgspec.structs.replace(session, **{change: None}).place is None
    assert msgspec.structs.replace(session, archived_ms=0).place is None


def test_a_star_ends_a_family_of_models() -> None:
    """A filter by model names one model, or all with a prefix."""
    assert "openai/" == UsageFilter(model="openai/*").model_family
    assert UsageFilter(model="openai/gpt").model_family is None
    assert UsageFilter().model_family is None
