"""How a statement relates to a stored one."""

from itertools import starmap
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.records import MemoryRecord
from palyra.core.memory import duplicates
from palyra.core.memory.duplicates import (
    ADDED,
    NEAR_COSINE,
    choose_text,
    gist,
    is_recalled,
    no_similarity,
    relate,
    resolve,
)
from palyra.core.memory.items import MemoryDraft, hash_text, make_item
from palyra.models.lexical_embeddings import text_similarity as similarity
from tests.core.memory import number_pairs
from tests.rows import every_row

DEV = Path(__file__).parents[3] / "bench" / "dev" / "duplicates.json"


def far(_one: str, _other: str) -> float:
    return NEAR_COSINE - 0.01


def opposite(_one: str, _other: str) -> float:
    return -NEAR_COSINE


def item(text: str, memory_id: str = "mem_new", **fields: object) -> MemoryRecord:
    draft = MemoryDraft(**{"text": text, "kind": "fact", **fields})  # type: ignore[arg-type]  # plain fields
    return make_item(draft, memory_id=memory_id, principal="ann", by="ann", now_ms=1)


SAME = [
    ("The office is closed", "the OFFICE is closed!"),
    ("a  b\nc", "A b, c."),
    ("\U0001f600", "\U0001f600"),
]
NEAR = [
    ("User prefers dark mode", "The user prefers dark mode."),
    ("User prefers dark mode", "The user really prefers the dark mode"),
    ("The user likes tabs", "I prefer tabs"),
    ("The user mag Tee", "Der Nutzer bevorzugt Tee"),
]
RESTATED = [
    ("The user's physio is called Anke", "Anke is the user's physio"),
    ("We store backups in Helsinki", "the backups are stored in helsinki"),
    ("I prefer tea over coffee", "tea over coffee, that's what i prefer"),
    ("Our standup starts at 9:15", "the standup is at 9:15 am"),
    ("The choir meets on Mondays at 19:30", "choir meets mondays 19:30"),
    ("Die Rechnungen bekommt Frau Ebert", "rechnungen gehen an frau ebert"),
    ("The printer is on the second floor", "printer's on the second floor"),
    ("The user plays the violin", "the user plays the voilin"),
    ("The invoice service runs on port 8080", "port 8080 is used by the invoice service"),
    ("Deadline for the thesis is 15 June", "the thesis deadline: 15 June"),
    ("Der Nutzer mag Jazz", "ich mag jazz gern"),
    ("Das Projekt nutzt Rust", "im projekt wird rust verwendet"),
    ("The user has two cats", "user has 2 cats"),
    ("The nurse on ward 3 is Ola", "Ola is the nurse on ward 3"),
]
NOT_RESTATED = [
    ("Anna manages Tom", "Tom manages Anna"),
    ("The user deploys from main to staging", "the user deploys from staging to main"),
    ("Rita eats meat", "Rita never eats meat"),
    ("The lab opens at 6", "the lab closes at 6"),
    ("The user likes tea", "the user likes tea only in winter"),
    ("Mia's teacher is Mr. Vogt", "Max's teacher is Mr. Vogt"),
    ("I work with Tom", "I work for Tom's brother"),
    ("The port is 8080", "the port is 8081"),
    ("Prices with tax", "Prices without tax"),
    ("Ben speaks French", "Ben teaches French"),
    ("Backups run before the release", "backups run after the release"),
    ("Der Nutzer mag Jazz", "der nutzer mag kein jazz"),
    ("Meine Schwester wohnt in Ulm", "ich wohne in Ulm"),
    ("We use Postgres for orders", "we use Postgres for invoices"),
    ("The user wants answers in German", "the user wants questions in German"),
    ("Lea is older than Max", "Max is older than Lea"),
    ("Standup is on Mondays at 9", "Standup is on Fridays at 9"),
    ("Martin hat einen Hund", "Martina hat einen Hund"),
    ("Paul likes Paula", "Paula likes Paul"),
    ("The team has 4 people", "the team has 5 people"),
]
CORRECTIONS = [
    ("The deploy port is 8080", "The deploy port is 9090"),
    ("deploy port: 8080", "deploy port: 9090"),
    ("prefers tabs over spaces", "prefers spaces over tabs"),
    ("Tests are run with pytest", "Tests are not run with pytest"),
    ("The user is vegetarian", "The user isn't vegetarian"),
    ("Never force-push to main", "Force-push to main"),
    ("Alice lives in Munich", "Alice lives in Berlin"),
    ("Alice wohnt in München", "Alice wohnt in Berlin"),
    ("The user lives in Munich", "The user no longer lives in Munich but in Berlin"),
    ("The API listens on port 8080", "The API listens on port 9090"),
    ("My favourite editor is vim", "My favorite editor is emacs"),
    ("Backups run every night at 2", "Backups run every night at 3"),
    ("The build uses Python 3.11", "The build uses Python 3.12"),
    ("I use emacs", "Actually I use vim now"),
]
UNLIKE = [
    ("I prefer tea in the morning", "I prefer coffee in the evening"),
    ("I like tea", "I like coffee"),
    ("Alice is a doctor", "Alice is tall"),
    ("Alice prefers dark mode in all editors", "Bob prefers dark mode in all editors"),
    ("deploys to staging from main", "deploys from staging to main"),
    ("The office is in Berlin", "The office is now open"),
    ("The build server is fast", "The build server is at 10.0.0.1"),
    ("Meeting with Bob on 3 May", "Meeting with Bob on 10 May"),
    ("memory item 1", "memory item 2"),
    ("cmake 0 item", "cmake 1 item"),
    ("fact number 7 is about cats", "fact number 8 is about dogs"),
    ("user 10001 has 3 cats", "user 10002 has 3 cats"),
    ("Room 5 has a projector", "Room 6 has a projector"),
    ("Martin works hard", "Martina works hard"),
    ("note", "something else"),
    ("...", "!!!"),
]


@every_row(
    ("relation", "old", "new"),
    [
        *(("same", *pair) for pair in SAME),
        *(("near", *pair) for pair in NEAR),
        *(("correction", *pair) for pair in CORRECTIONS),
        *(("unlike", *pair) for pair in UNLIKE),
    ],
)
def test_relations(relation: str, old: str, new: str) -> None:
    """Repetitions, corrections and unlike statements are told apart."""
    assert relation == relate(item(new), item(old), similarity)


@every_row(("old", "new"), RESTATED)
def test_the_same_in_other_words_updates(old: str, new: str) -> None:
    """Another order, a misspelt word, another verb for the same: without a model too."""
    assert "near" == relate(item(new), item(old), no_similarity)


@every_row(("old", "new"), NOT_RESTATED)
def test_another_value_person_sense_or_scope_is_another_statement(old: str, new: str) -> None:
    """However alike the words are."""
    assert relate(item(new), item(old), no_similarity) not in {"near", "same"}


def test_restatements_of_the_development_set_are_seen() -> None:
    """Half of them, and none of the unlike ones."""
    cases = msgspec.json.decode(DEV.read_bytes())
    made = [relate(item(c["b"]), item(c["a"]), no_similarity) in {"near", "same"} for c in cases]
    assert [] == [c for c, near in zip(cases, made, strict=True) if near and not c["same"]]
    assert sum(made) >= sum(c["same"] for c in cases) / 2


def is_correction(old: str, new: str) -> bool:
    """True if the later statement takes the place of the earlier one."""
    return relate(item(new), item(old), no_similarity) == "correction"


@every_row(("old", "new"), number_pairs.TUNED_CHANGES)
def test_a_later_number_takes_the_place_of_the_earlier(old: str, new: str) -> None:
    """As the value of a state, such as a version that something runs."""
    assert is_correction(old, new)


@every_row(("old", "new"), number_pairs.TUNED_FACTS)
def test_a_number_that_is_a_name_or_of_an_event_stays(old: str, new: str) -> None:
    """Two members of a series, and two events, are two facts."""
    assert not is_correction(old, new)


@pytest.mark.parametrize("name", number_pairs.SETS)
def test_numbers_are_told_apart(name: str) -> None:
    """At least nine in ten replacements are right, and four in five changes are seen."""
    changes, facts = number_pairs.SETS[name]
    right = sum(starmap(is_correction, changes))
    wrong = sum(starmap(is_correction, facts))
    assert right / (right + wrong) >= 0.9
    assert right / len(changes) >= 0.8


HIDDEN = [("zero-width space", "\u200b"), ("soft hyphen", "\u00ad"), ("word joiner", "\u2060"),
          ("byte order mark", "\ufeff"), ("filler", "\u3164")]  # fmt: skip


@every_row(("name", "char"), HIDDEN)
def test_a_character_that_shows_nothing_is_no_difference(name: str, char: str) -> None:
    """In a word it neither hides a repetition nor a correction; a space in its place does."""
    old, said = item("The staging port is 5432"), f"The stag{char}ing port is 5432"
    assert "same" == relate(item(said), old, similarity), name
    assert hash_text(said) == hash_text(old.text)
    assert "correction" == relate(item(f"The stag{char}ing port is 99"), old, similarity)
    assert hash_text(said.replace(char, " ")) != hash_text(old.text)


@every_row(("old", "new"), [*SAME, *NEAR, *CORRECTIONS])
def test_kind_and_author_come_first(old: str, new: str) -> None:
    """Statements of another kind or author are unlike, whatever their words."""
    assert "unlike" == relate(item(new, kind="note"), item(old), similarity)
    assert "unlike" == relate(item(new, author="Bob"), item(old), similarity)
    assert "unlike" == relate(item(new, author="Bob"), item(old, author="Ann"), similarity)


def test_a_near_duplicate_needs_words_and_cosine() -> None:
    """The absolute cosine must reach the threshold, and the words must agree."""
    old, new = "parser tests run in the build", "parser tests run in the dry build"
    assert "unlike" == relate(item(new), item(old), far)
    assert "near" == relate(item(new), item(old), opposite)
    assert "unlike" == relate(item("cats sleep"), item("dogs bark"), opposite)


def test_the_closest_relation_wins() -> None:
    """An equal item is preferred to a near one, a near one to a correction."""
    stored = [
        item("The deploy port is 8080", "mem_1"),
        item("The deploy port is 9090", "mem_2"),
    ]
    found = resolve(item("the deploy port is 9090"), stored, similarity)
    assert ("same", "mem_2") == (found.relation, found.old and found.old.memory_id)
    assert ADDED == resolve(item("unrelated words"), stored, similarity)


def test_pins_and_trust_hold() -> None:
    """A pinned item and one of higher trust are not superseded; an equal text is still the same."""
    new = item("The deploy port is 9090")
    assert ADDED == resolve(new, [item("The deploy port is 8080", pinned=True)], similarity)
    low = item("The deploy port is 9090", trust="external_untrusted")
    assert ADDED == resolve(low, [item("The deploy port is 8080")], similarity)
    assert "same" == resolve(low, [item("the deploy port is 9090")], similarity).relation
    assert (
        "correction"
        == resolve(new, [item("The deploy port is 8080", trust="mixed")], similarity).relation
    )


def test_the_fuller_text_is_kept() -> None:
    """An update takes the new words, unless the old text says more."""
    assert "the user likes tea" == choose_text("the user likes tea", "user likes tea")
    assert "user likes green tea" == choose_text("likes tea", "user likes green tea")


@every_row(
    ("text", "expected"),
    [
        ("The deploy port of staging is 8080", True),
        ("deploy port: 8080", True),
        ("The deploy port of staging is 9090", False),
        ("The deploy port of staging is not 8080", False),
        ("cats", False),
        ("...", False),
    ],
)
def test_recalled_text_is_recognised(text: str, expected: bool) -> None:  # noqa: FBT001 - a case
    """A text whose words all come from one recalled item, with its negations, is recalled text."""
    known = ["something else", "The deploy port of staging is 8080"]
    assert expected == is_recalled(text, known)


def test_a_denial_of_recalled_text_is_new() -> None:
    """Leaving out or adding a negation makes a new statement."""
    assert not is_recalled("force-push to main", ["never force-push to main today"])


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@given(words, words)
def test_relations_never_fail(one: str, other: str) -> None:
    """Any two texts have a relation, and a text is the same as itself."""
    left, right = item(one or "x"), item(other or "x")
    assert relate(left, right, similarity) in {"same", "near", "correction", "unlike"}
    assert "same" == relate(left, left, similarity)
    assert isinstance(gist(one), str)
    assert not is_recalled(one, [])


def test_without_a_model_texts_are_equal_or_unlike() -> None:
    """No two different texts are near each other."""
    assert (1.0, 0.0) == (no_similarity("a b", "a b"), no_similarity("a b", "a  b"))


def test_recalled_texts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement of a run is compared with all recalled ones, whose words are kept."""
    read, read_tokens = list[str](), duplicates.read_tokens

    def note(text: str) -> Any:
        read.append(text)
        return read_tokens(text)

    monkeypatch.setattr(duplicates, "read_tokens", note)
    recalled = [f"The lamp of room {number} is out." for number in range(9)]
    assert not is_recalled("The stairs were swept at noon.", recalled)
    assert is_recalled("the lamp of room 3 is out", recalled)
    assert 11 == len(read)
