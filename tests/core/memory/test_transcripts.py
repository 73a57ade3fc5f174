"""Turns of conversations as a search returns them."""

from palyra.core.journal.changes import SaidText
from palyra.core.journal.records import Lineage
from palyra.core.memory.transcripts import EXCERPT_CHARS, as_said, conversation_key
from tests.rows import every_row
from tests.store.kit import memory


def said(text: str, query: str, author: str = "user") -> SaidText:
    lineage = (Lineage(run_id="run", first_seq=3, last_seq=3),)
    turn = memory("run/3", text, session_id="ses", author=author, at_ms=7, lineage=lineage)
    return as_said(turn, query)


def test_a_turn_names_its_event() -> None:
    """Run, session, seq, time and speaker are those of the event."""
    expected = SaidText(
        "run", "ses", seq=3, at_ms=7, is_user=True, text="a walrus", trust="trusted_local"
    )
    assert expected == said("a walrus", "walrus")
    assert not said("a walrus", "walrus", "assistant").is_user
    output = said("a walrus", "walrus", "tool")
    assert (False, True) == (output.is_user, output.is_output)


@every_row("query", ["the Walrus?", "xyzzy", "?!"])
def test_long_texts_are_cut_around_the_word(query: str) -> None:
    """An excerpt holds the first word of the query that the text has, and what is before it."""
    found = said("the " * 1_000 + "walrus" + " y" * 1_000, query)
    assert EXCERPT_CHARS == len(found.text)
    assert ("walrus" in found.text) == ("Walrus" in query)


def test_a_conversation_has_a_key() -> None:
    """Sessions without a channel share one; equal ids of two channels do not."""
    keys = {
        conversation_key(None, None),
        conversation_key("a", "1"),
        conversation_key("b", "1"),
        conversation_key("a", None),
        conversation_key("a", 'x"y'),
    }
    assert 5 == len(keys)
    assert conversation_key(None, "1") == conversation_key(None, None)
