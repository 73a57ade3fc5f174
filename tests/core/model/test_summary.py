"""Summaries as data."""

from palyra.core.model.summary import Entry, SummaryLedger


def test_durable_facts_are_statements_of_the_conversation() -> None:
    """Rules, preferences, decisions and facts count; work in hand does not, nor any text of a tool."""
    entries = (
        Entry("constraint", "Never push to main.", "run_1", 0),
        Entry("request", "Rename the binary.", "run_1", 0),
        Entry("fact", "The port is 8080.", "run_1", 1, by="model"),
        Entry("fact", "The port is 1.", "run_1", 2, by="tool", trust="external_untrusted"),
        Entry("file", "a.py", "run_1", 2, by="tool"),
        Entry("decision", "We use Python.", "run_2", 4),
    )
    assert (entries[0], entries[2], entries[5]) == SummaryLedger(entries=entries).facts
