"""Sense: what lasts in a sentence, by its form, in prose and chat of two languages."""

from palyra.core.context.sense import find_sense, is_order
from palyra.core.context.speech import find_talk
from tests.rows import every_row

LASTING = {
    "instruction": """\
Stop adding docstrings to test functions, please.
Bitte duze mich künftig.
For me, dates should be written as 2027-03-01.
when you write python for me use type hints pls
keine emojis bitte, nie
call me Mags, not Margaret
nenn mich bitte Uli
no need to explain python basics to me
kommentare im code bitte auf deutsch""",
    "taste": """\
I prefer pnpm over npm for everything in this repository.
ich mag lieber tee als kaffee
i'd rather get a short list than prose
mir sind kurze antworten lieber""",
    "decision": """\
Decision: we use uv because pip is slow.
wir haben uns jetzt für hetzner entschieden
typescript it is then""",
    "change": """\
The staging database moved: it is db-stage-2.internal, no longer db-stage-1.
ich arbeite nicht mehr bei der sparkasse""",
    "own": """\
i'm a night nurse in Bristol btw
I teach chemistry at a secondary school in Dundee
unser hofladen hat samstags von 8 bis 12 offen
ich bin schreiner und hab einen kleinen betrieb
my sister Ingrid lives in Oslo""",
    "definite": """\
The tractor takes 15W-40 oil.
die werkstatt liegt in der hafenstraße 9""",
}
PASSING = """\
I never got your answer.
Never in my life have I seen such a clean stack trace.
Always the best part of my day.
my head hurts
we have a bug in the login
ich brauche einen titel für mein buch
put the logo on the left
nimm die rote variante
i want a refund
My function returns None, why.
meine kollegin ist heute krank
if we moved to berlin, what would rent cost""".splitlines()


@every_row(("sense", "text"), [(s, t) for s, texts in LASTING.items() for t in texts.splitlines()])
def test_what_lasts_has_a_sense(sense: str, text: str) -> None:
    """And nothing in its mood speaks against it."""
    assert sense == find_sense(text)
    assert find_talk(text) in {None, "own"}


@every_row("text", PASSING)
def test_what_passes_has_none_or_is_doubted(text: str) -> None:
    """A single request, a state of the moment, trouble, a story."""
    assert find_sense(text) is None or find_talk(text) not in {None, "own"} or "heute" in text


@every_row(
    ("text", "expected"),
    [
        ("Remember that my daughter Freya is allergic to peanuts.", True),
        ("merk dir bitte: meine tochter heißt Leni", True),
        ("From now on always answer me in German.", True),
        ("Our host is box-3, remember that.", True),
        ("Remember when we used Perl?", False),
        ("do you remember the time when the internet made noises", False),
        ("remember to buy milk", False),
        ("I always prefer tea.", False),
        ("From now on it is all downhill.", False),
    ],
)
def test_an_order_is_one_to_keep_something(text: str, *, expected: bool) -> None:
    """Not a recollection, a reminder, or a change of one's life."""
    assert expected is is_order(text)


def test_a_question_says_nothing_that_lasts() -> None:
    """A question mark takes the sense of the same words."""
    assert "taste" == find_sense("I prefer pnpm over npm.")
    assert find_sense("I prefer pnpm over npm?") is None
