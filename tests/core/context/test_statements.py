"""Sentences of a conversation and their classes."""

import pytest

from palyra.core.context.corrections import Mentions, find_corrected, find_replaced, replacements
from palyra.core.context.statements import (
    MAX_READ_CHARS,
    Statement,
    StatementKind,
    read_model,
    read_user,
    sentences,
)
from tests.rows import every_row


def only(text: str) -> Statement:
    """Return the one statement of a text."""
    [found] = read_user(text)
    return found


@every_row(
    ("text", "kind"),
    [
        ("Never push to main without asking.", "constraint"),
        ("You can't use the network here.", "constraint"),
        ("You can\u2019t use the network here.", "constraint"),
        ("Responses may take at most 200 ms.", "constraint"),
        ("Die Tabelle darf nicht gelöscht werden.", "constraint"),
        ("In this repo we write log keys in snake_case.", "convention"),
        ("I prefer short answers.", "preference"),
        ("Am liebsten hätte ich eine Tabelle.", "preference"),
        ("We decided to use SQLite.", "decision"),
        ("Wir nehmen PostgreSQL.", "decision"),
        ("Could you look at it later?", "ask"),
        ("Should we go with SQLite?", "ask"),
        ("The staging port is 8443.", "fact"),
        ("The customer is called Ferrix.", "fact"),
        ("thanks a lot", "remark"),
    ],
)
def test_a_statement_has_the_class_of_its_cue(text: str, kind: str) -> None:
    """English and German cues decide the class; without one a value makes it a fact."""
    assert kind == only(text).kind


def test_a_word_that_only_contains_a_cue_is_none() -> None:
    """Cues match whole words: `mustard` is no `must`."""
    assert only("mustard and nevermore").kind == "remark"


def test_sentences_leave_code_and_list_marks_out() -> None:
    """Code blocks are not read; list items are sentences of their own; 1.2.3 and e.g. end none."""
    text = "- use v1.2.3, e.g. in CI. Then stop.\n```\nnever do this\n```\n2) [ ] go on\n"
    assert ["use v1.2.3, e.g. in CI.", "Then stop.", "go on"] == list(sentences(text))


def test_an_empty_item_is_no_sentence() -> None:
    """A list mark without a text is left out, and the items round it stay."""
    assert ["one", "two"] == list(sentences("- one\n-  \n- two\n"))


@every_row(
    ("text", "found"),
    [
        ("No wait. Use port 8080.", ["No wait. Use port 8080."]),
        ("Use port 80. No wait. Use port 8080.", ["Use port 80.", "No wait. Use port 8080."]),
        ("Use port 80. Scratch that.", ["Use port 80.", "Scratch that."]),
    ],
)
def test_a_sentence_that_takes_back_belongs_to_the_next(text: str, found: list[str]) -> None:
    """Without a next sentence it is a statement of its own."""
    assert found == [statement.text for statement in read_user(text)]


def test_a_paste_is_no_sentence() -> None:
    """A line without an end after 600 characters is not read."""
    assert [] == list(sentences("word " * 200))


def test_of_the_model_only_decisions_and_findings_are_read() -> None:
    """Narration and questions of the model are no statements."""
    text = "I looked at it. The root cause is a race. Shall we use Redis? I will use SQLite."
    assert [("finding", "The root cause is a race."), ("decision", "I will use SQLite.")] == [
        (found.kind, found.text) for found in read_model(text)
    ]


@every_row(
    ("newer", "old"),
    [
        ("Correction: the staging port is 9443.", "The staging port is 8443."),
        ("Actually use PostgreSQL instead of SQLite.", "The database is SQLite."),
        ("Der Host ist jetzt beta-2, nicht mehr beta-1.", "Der Host ist beta-1."),
        ("The file is no longer alpha.py but beta.py.", "The file is alpha.py."),
        ("I meant `blue`, not `red`.", "I meant `red`."),
        ("The timeout is no longer 30 s but 60 s.", "The timeout is 30 s."),
    ],
)
def test_a_correction_replaces_what_it_is_about(newer: str, old: str) -> None:
    """Another value, or a term named as replaced, makes the earlier statement invalid."""
    assert [0] == find_replaced(only(newer), [old])


@every_row(
    ("newer", "old"),
    [
        ("The port of beta is 9443.", "The port of alpha is 8443."),  # no correction
        ("Correction: the port of beta is 9443.", "The port of alpha is 8443."),  # another subject
        ("Correction: the staging port is 9443.", "Never open port 22 to the world."),
        ("Actually use tabs instead of spaces in Go.", "Keep two spaces after headings in docs."),
    ],
)
def test_a_correction_leaves_other_subjects_alone(newer: str, old: str) -> None:
    """Without a word of correction, or about another subject, both statements hold."""
    assert [] == find_replaced(only(newer), [old])


@every_row(
    ("newer", "old"),
    [
        (
            "Der archiver darf nicht mehr als 31 Verbindungen öffnen.",
            "The archiver listens on port 20443.",
        ),
        ("Der Cache darf nicht  Mehr als 31 Zeilen halten.", "Der Cache lauscht auf 20443."),
        ("The cache may hold not more than 31 rows.", "The cache listens on port 20443."),
        ("The cache must be no longer than 31 rows.", "The cache listens on port 20443."),
        ("The cache must not hold any more than 31 rows.", "The cache listens on port 20443."),
        ("Not less than 31 rows fit the cache.", "The cache has less rows than 99."),
    ],
)
def test_a_bound_is_no_correction(newer: str, old: str) -> None:
    """A comparison bounds a quantity and takes nothing back; with `actually` it still corrects."""
    statement = only(newer)
    assert not statement.corrects
    assert [] == find_replaced(statement, [old])
    assert only(f"Actually: {newer}").corrects
    assert {"als", "than", "more", "less", "longer"}.isdisjoint(replacements(newer)[0])


@every_row(
    "text",
    ["a." * 9_600, "```\n" * 4_800, "1. x\n" * 3_900, "from a to b not c but d " * 800,
     "plan:\n" * 3_200, "`" * 19_200, "a-" * 9_600 + " instead of b", "(" * 500 + " -> x"],
)  # fmt: skip
def test_a_hostile_text_is_read(text: str) -> None:
    """A pattern that backtracks without bound would never return."""
    for statement in read_user(text):
        find_replaced(statement, ["The port is 1."])


def test_a_long_message_is_read_up_to_a_limit() -> None:
    """A paste of any size costs what its first part costs."""
    text = "The port is 8443.\n" * MAX_READ_CHARS
    assert len(list(sentences(text))) <= MAX_READ_CHARS / len("The port is 8443.")


@every_row(
    ("text", "kind", "found"),
    [
        ("Please do not\n- a1\n- b2", "constraint", ["Please do not a1", "Please do not b2"]),
        ("Off limits:\n\n* a1", "constraint", ["Off limits: a1"]),
        ("````\n```\nx\n````\nnever y", "constraint", ["never y"]),
        ("```\nno end\nnever y", "constraint", ["never y"]),
        ("the long line of a mail is wrapped here and never\nended", "constraint", None),
        ("talk and talk, " * 60 + "never push, " + "talk, " * 40, "constraint", None),
        ("plase nevr push", "constraint", ["plase nevr push"]),
        ("Kein Deploy am Freitag.", "constraint", ["Kein Deploy am Freitag."]),
    ],
)
def test_rules_are_found_in_any_layout(text: str, kind: str, found: list[str] | None) -> None:
    """Lists with a lead-in, code around the rule, wrapped lines, run-on messages, typing errors."""
    rules = [each.text for each in read_user(text) if each.kind == kind]
    assert rules if found is None else set(found) <= set(rules)
    assert all(text.count("never y") == 0 or "x" != rule for rule in rules)


@pytest.mark.parametrize(
    "text",
    ["We take nginx. Reason: Caddy was slow.", "Caddy needs 3 nodes. Therefore we take nginx."],
)
def test_a_decision_keeps_its_reason(text: str) -> None:
    """A reason in a sentence of its own belongs to the decision."""
    assert [text] == [found.text for found in read_model(text) if found.kind == "decision"]


def test_announcements_are_no_decisions() -> None:
    """The model's next action obliges it to nothing later."""
    text = "Let's look at the logs. I'll take a look. Next we will run the tests."
    assert [] == list(read_model(text))


@every_row(
    ("newer", "place"),
    [
        ("no wait, staging runs on 9443", 1),
        ("make that 9443", 2),
        ("doch lieber 9443", 2),
        ("changed my mind: Caddy for the forum", 0),
        ("Correction: the wallet limit is 30 MB", None),
    ],
)
def test_a_correction_in_other_words_is_placed(newer: str, place: int | None) -> None:
    """Subject and shape of the value find the statement; without a subject it is the latest."""
    earlier: list[tuple[StatementKind, str]] = [
        ("decision", "We take nginx for the forum, because etcd is slow."),
        ("fact", "The staging host listens on port 8443."),
        ("fact", "The wallet port is 7443."),
    ]
    found = find_corrected(only(newer), reversed(earlier))
    assert place == (None if found is None else len(earlier) - 1 - found)


_EARLIER = (
    "The staging port is 8443.",
    "The database is SQLite.",
    "Der Host ist beta-1.",
    "The file is alpha.py.",
    "I meant `red`.",
    "Before you start: the timeout is 30 s.",
    "We take nginx for the forum, because etcd is slow.",
    "Never open port 22 to the world.",
    "The wallet port is 7443.",
    "Use tabs.",
)


@every_row(
    "newer",
    [
        "Correction: the staging port is 9443.",
        "Actually use PostgreSQL instead of SQLite.",
        "Der Host ist jetzt beta-2, nicht mehr beta-1.",
        "The file is no longer alpha.py but beta.py.",
        "I meant `blue`, not `red`.",
        "Actually the timeout is 60 s.",
        "no wait, staging runs on 9443",
        "make that 9443",
        "changed my mind: Caddy for the forum",
        "Actually use spaces.",
        "Scratch that.",
        "No, 22 -> 23 for the world.",
    ],
)
def test_the_index_hides_no_statement(newer: str) -> None:
    """A correction finds by the index exactly what it finds among all statements."""
    correction, mentions = only(newer), Mentions()
    for text in _EARLIER:
        mentions.add(text, text)
    near = mentions.find_replaceable(correction)
    by_index = [near[at] for at in find_replaced(correction, near)]
    assert [_EARLIER[at] for at in find_replaced(correction, _EARLIER)] == by_index
    every = [(only(text).kind, text) for text in reversed(_EARLIER)]
    one = find_corrected(correction, every)
    close = [(only(text).kind, text) for text in mentions.find_near(correction)]
    chosen = find_corrected(correction, close)
    assert (None if one is None else every[one]) == (None if chosen is None else close[chosen])


def test_a_row_of_a_table_carries_its_heads() -> None:
    """A cell alone says nothing; a line with bars that is no table stays as it is."""
    table = (
        "The hosts:\n| Service | Port |\n|---|:-:|\n| api | 8080 |\n| web | 8081 |\nNever use 80."
    )
    assert [
        "The hosts:", "Service: api; Port: 8080.", "Service: web; Port: 8081.", "Never use 80.",
    ] == list(sentences(table))  # fmt: skip
    assert ["| a | b |"] == list(sentences("| a | b |"))
    (row, _) = read_user("| Service | Port |\n|---|---|\n| api | 8080 |\n| web | 8081 |")
    assert ("fact", "Service: api; Port: 8080.") == (row.kind, row.text)
