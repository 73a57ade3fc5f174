# ruff: noqa: RUF001 - users type typographic quotes
"""Speech: talk has words of obligation and of taste too, and binds nothing."""

import pytest

from palyra.core.context.speech import find_talk, plain
from palyra.core.context.statements import BINDING, read_user
from tests.rows import every_row

BINDS = """\
keep all prices in euros, never dollars
only Marta may approve the budget, so wait for her
the word 'synergy' is banned
metric units only
don't spend more than 50 euros
nothing gets published without the editor's ok
from here on only commit when I say so
no generated files in git, ok?
pls alwyas run the linter b4 you push
an der datenbank wird nichts geändert
patientennamen niemals ausschreiben
jede änderung muss im changelog stehen
halt dich an die din 5008 bei allen briefen
rührt mir bitte die alte preisliste nicht an
alle überschriften in großbuchstaben
keine anglizismen im text""".splitlines()
TALK = """\
my landlord never answers his phone
I never understood monads
always the same with this printer
At the hospital we always had to ask before opening the cabinet.
My old boss never let anyone touch the database.
Sarah says you should never mock what you don't own.
If I were a purist I'd say no globals ever, but I'm not.
there's no milk left
i must have left my keys in the car
you must be joking
never mind
nothing works today
can you check whether this is allowed
give me at most three ideas for a birthday cake
na toll, schon wieder keine pause
immer dieser regen
ich muss noch einkaufen
bei meiner oma durfte man nie fernsehen
früher mussten wir jeden brief dreimal abtippen
die bahn ist nie pünktlich
der chef will immer alles sofort
niemand hat mich gefragt""".splitlines()


@every_row("text", BINDS)
def test_what_binds_is_no_talk(text: str) -> None:
    """Careful prose and chat, in both languages."""
    assert {each.kind for each in read_user(text)} & BINDING
    assert find_talk(text) in {None, "passing"}


@every_row("text", TALK)
def test_talk_binds_nothing(text: str) -> None:
    """Stories, habits, reports, suppositions, irony, questions and single requests."""
    assert not {each.kind for each in read_user(text)} & BINDING


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pls dont use tabs", "please don't use tabs"),
        ("im Ordner nie löschen", "im ordner nie löschen"),
        ("im alwyas right", "i'm always right"),
        ("Ich hab’s", "ich hab's"),
    ],
)
def test_chat_is_written_out(text: str, words: str) -> None:
    """Abbreviations of the language that the text is in, and slips in the words that decide."""
    assert words == plain(text)
