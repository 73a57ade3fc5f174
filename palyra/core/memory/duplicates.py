"""Duplicates and corrections: how a new item relates to the items that are stored.

Four relations, tried in this order for items of the same kind, place and author:

- `same`: equal words.  The stored item is updated.
- `correction`: the same statement with another value.  The stored item is superseded and stays as
  history.  Three signs, all about words and none about meaning: a change in a person's own words
  (`changes`); one statement denies the other, or reverses a comparison; the same subject and verb of identity ("the deploy port is …", "Alice lives in …") with
  another value of the same form, or another number as the value of a state ("runs Debian 12", "allows 5 retries").
- `near`: the same words but for inflection, in the same order, with equal numbers, names and
  negations, and an absolute cosine of at least `NEAR_COSINE`; or the same in other words
  (`changes.restates`).  The stored item is updated.
- `unlike`: everything else.  Both stay.

The rules err towards `unlike`: two items where one would do cost a line of the prompt, a wrong
update costs a fact.  A new item of lower trust never changes the text of a stored one, and a pinned
item is superseded only by an edit or an explicit reference.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Literal, NamedTuple

from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.changes import compare, restates
from palyra.core.text.visible import without_invisible
from palyra.core.trust.labels import lowest

NEAR_COSINE = 0.92
NEAR_OVERLAP = 0.8  # shared words of all words
MIN_SHARED = 2  # words of the subject of a copula
PREFIX_CHARS, ENDING_CHARS = 4, 3  # of two forms of one word: equal beginning, differing letters
RECALLED_OVERLAP = 0.9  # of the words of a text, in a recalled item

Relation = Literal["same", "near", "correction", "unlike"]
Similarity = Callable[[str, str], float]  # absolute cosine of two texts


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def no_similarity(one: str, other: str) -> float:
    """Return the similarity without an embedding model: equal or unlike."""
    return float(one == other)


_TOKEN = re.compile(r"\w+(?:[./:_'\u2019@-]\w+)*|[=:]")
_FILLERS = _words(
    "a an the this that these those is are was were be been being am really very just also please"
    " so ein eine einer eines einem einen der die das dem den des ist sind war waren sehr auch"
)
_SAME_WORDS = {
    **dict.fromkeys(
        _words("like likes prefer prefers love loves enjoy enjoys mag bevorzugt"), "prefer"
    ),
    **dict.fromkeys(_words("i me my user ich mein meine nutzer benutzer"), "user"),
}
_NEGATIONS = _words(
    "not no never without cannot neither nor none avoid avoids dislike dislikes hate hates stop stops"
    " nicht kein keine keinen nie niemals ohne"
)
_COMPARATORS = _words("over than before after above below als vor nach")
_DATES = _words(
    "january february march april may june july august september october november december monday"
    " tuesday wednesday thursday friday saturday sunday today tomorrow yesterday"
)
# Verbs with one value at a time; before a copula the subject needs two words, since one thing has
# many properties ("Alice is a doctor", "Alice is tall") and one attribute has one value.
_COPULA = re.compile(
    r"^(?P<subject>.+?)(?:\s+(?:is|are|equals|ist|sind)\s+|\s*[:=]\s+|\s*=\s*)(?P<value>.+)$"
)
_SINGLE = re.compile(
    r"^(?P<subject>.+?\s(?:lives? in|works? (?:at|for|as)|listens? on|runs? on|is located in"
    r"|is called|is named|wohnt in|arbeitet bei|hei\u00dft))\s+(?P<value>.+)$",
    re.IGNORECASE,
)
_PREPOSITIONS = _words("at in on by for with from to of bei in auf mit von zu")
_ARTICLES = _words("a an ein eine")
_BEFORE_VALUES = _words("at to until by port version limit = um bis auf")
# Verbs of a state that has one value at a time, unlike those of events ("shipped", "ran").
_RUNS = _words("runs run uses use ships ship läuft")
_VALUE_VERBS = _RUNS | _words(
    "has have costs cost takes take supports allows allow permits permit lasts last expires expire"
    " employs employ weighs weigh holds hold keeps keep contains contain stores store expects expect"
    " limits limit earns earn charges charge pays pay measures measure owns own handles handle accepts"
    " accept retains retain waits wait retries retry polls poll rotates rotate consumes consume produces"
    " produce requires require needs need nutzt verwendet benötigt braucht fasst hat haben kostet dauert wiegt erlaubt enthält verbraucht hält speichert"
)
_AROUND_VALUES = _PREPOSITIONS | _words(
    "after every up only about around nearly under over nach alle etwa rund"
)
# Names of members of a series, which has many at a time; other names before a number are products.
_SERIES = _words(
    "step stage phase job task ticket story order room platform page chapter section lesson part volume"
    " level lap round race marathon exercise test case unit suite batch line route bus tram flight"
    " worker team group class course workshop sprint milestone experiment plan model"
    " schritt auftrag aufgabe raum zimmer gleis seite kapitel lektion teil stufe runde linie wagen"
)
_MANY_VALUED = _words(
    "supports support accepts accept handles handle contains contain stores store"
)
_EVENTS = _words(
    "meeting appointment interview call flight train exam match concert dentist shipped released"
    " published launched tested reviewed merged fixed termin treffen prüfung"
)
_MANY = _words("matrix either both or and oder und versions variants several")
_ADDED = re.compile(
    r"\b(?:also|too|as well|additionally|another|second|auch|zusätzlich|ebenfalls)\b", re.IGNORECASE
)
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)")
_END_WORDS = 2  # a number among the last words may be a value


class PlainWord(NamedTuple):
    """One word of a text in its plain form."""

    plain: str
    is_name: bool  # capitalised inside the text

    @property
    def is_number(self) -> bool:
        """True if the word holds a digit."""
        return any(char.isdigit() for char in self.plain)


@lru_cache(256)
def read_tokens(text: str) -> tuple[PlainWord, ...]:
    """Return the words of a text that carry meaning, in order."""
    found: list[PlainWord] = []
    for match in _TOKEN.finditer(without_invisible(text)):
        word = match.group().replace("\u2019", "'")
        plain = word.casefold()
        plain = "not" if plain.endswith("n't") else plain.removesuffix("'s")
        if plain in _FILLERS or plain in "=:":
            continue
        is_name = word[:1].isupper() and match.start() > 0 and plain not in _SAME_WORDS
        found.append(PlainWord(_SAME_WORDS.get(plain, plain), is_name))
    return tuple(found)


def gist(text: str) -> str:
    """Return the words that the comparison of two texts is about; the text that is embedded."""
    return " ".join(token.plain for token in read_tokens(text))


def relate(new: MemoryRecord, old: MemoryRecord, similarity: Similarity) -> Relation:
    """Return the relation of a new item to a stored one of the same place."""
    if new.kind != old.kind or new.author != old.author:
        return "unlike"
    if new.text_hash == old.text_hash:
        return "same"
    mine, theirs = read_tokens(new.text), read_tokens(old.text)
    if restates(new.text, old.text) and not _denies(mine, theirs):
        return "near"
    if _is_correction(new.text, old.text, mine, theirs):
        return "correction"
    if (
        _is_rewording(mine, theirs)
        and abs(similarity(gist(new.text), gist(old.text))) >= NEAR_COSINE
    ):
        return "near"
    return "unlike"


class Resolution(NamedTuple):
    """Decision about a new item: `old` is updated or superseded; None: the item is added."""

    relation: Relation
    old: MemoryRecord | None


ADDED = Resolution("unlike", None)
_ORDER: tuple[Relation, ...] = ("same", "near", "correction")


def resolve(
    new: MemoryRecord, stored: Sequence[MemoryRecord], similarity: Similarity
) -> Resolution:
    """Choose the stored item that the new one repeats or corrects, the closest relation first."""
    found: dict[Relation, MemoryRecord] = {}
    for old in stored:
        relation = relate(new, old, similarity)
        if relation != "same" and lowest((new.trust, old.trust)) != old.trust:
            continue  # the new text is less trusted
        if relation == "correction" and old.pinned:
            continue
        if relation != "unlike":
            found.setdefault(relation, old)
    for relation in _ORDER:
        if relation in found:
            return Resolution(relation, found[relation])
    return ADDED


def choose_text(new: str, old: str) -> str:
    """Return the text of an updated item: the new one, unless the old one says more."""
    mine, theirs = ({token.plain for token in read_tokens(text)} for text in (new, old))
    return old if mine < theirs else new


def is_recalled(text: str, recalled: Sequence[str]) -> bool:
    """True if a text repeats a recalled one, whole or in part, in its own words or nearly so."""
    words = _spoken(text)
    if not words:
        return False
    for known in recalled:
        theirs = _spoken(known)
        is_covered = len(words & theirs) >= RECALLED_OVERLAP * len(words)
        if is_covered and _negations(words) == _negations(theirs):
            return True
    return False


@lru_cache(maxsize=1_024)  # every statement of a run is compared with all that was recalled
def _spoken(text: str) -> frozenset[str]:
    return frozenset(token.plain for token in read_tokens(text))


# --- signs ---------------------------------------------------------------------------------------


def _is_correction(
    new: str, old: str, mine: Sequence[PlainWord], theirs: Sequence[PlainWord]
) -> bool:
    if compare(new, old) == "replaces" or _denies(mine, theirs):
        return True
    is_added = _ADDED.search(new) is not None  # beside what is known
    return not is_added and (_changes_value(new, old) or _changes_number(mine, theirs))


def _denies(mine: Sequence[PlainWord], theirs: Sequence[PlainWord]) -> bool:
    """True if the texts differ in negations only, or in the order around a comparison only."""
    new, old = ([token.plain for token in tokens] for tokens in (mine, theirs))
    plain_new, plain_old = (
        [word for word in words if word not in _NEGATIONS] for words in (new, old)
    )
    if not plain_new or len(plain_new) != len(plain_old):
        return False
    if all(map(_is_same_word, plain_new, plain_old)):
        return len(new) % 2 != len(old) % 2 or _negations(new) != _negations(old)
    return sorted(new) == sorted(old) and not _COMPARATORS.isdisjoint(new)


def _negations(words: Collection[str]) -> int:
    return sum(word in _NEGATIONS for word in words)


def _changes_value(new: str, old: str) -> bool:
    mine, theirs = _slot(new), _slot(old)
    if mine is None or theirs is None or len(mine[0]) != len(theirs[0]):
        return False
    if not all(map(_is_same_word, mine[0], theirs[0])):
        return False
    return mine[1] != theirs[1] and _shape(mine[1]) == _shape(theirs[1])


def _slot(text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return subject and value of a statement of identity, as words."""
    flat = " ".join(text.split()).rstrip(".!")
    match = _SINGLE.match(flat)
    least = 1
    if match is None:
        match, least = _COPULA.match(flat), MIN_SHARED
    if match is None:
        return None
    subject = tuple(token.plain for token in read_tokens(match["subject"]))
    value = tuple(match["value"].casefold().split())
    return (subject, value) if len(subject) >= least and value else None


def _shape(value: tuple[str, ...]) -> tuple[str, bool, bool]:
    """Return the form of a value: its preposition, an article, a digit."""
    first = value[0] if value[0] in _PREPOSITIONS else ""
    has_digit = any(char.isdigit() for word in value for char in word)
    return first, value[0] in _ARTICLES, has_digit


def _changes_number(mine: Sequence[PlainWord], theirs: Sequence[PlainWord]) -> bool:
    """True if only one number differs, as the value of a state, in a text without a date.

    A number is a value directly after a verb of state or a word that takes one ("allows 5 retries",
    "port 8080"), or as the version of a product that something runs or uses ("runs Debian 12").  After any
    other noun it is a name: "has truck 5" and "has truck 6" are two facts.
    """
    if len(mine) != len(theirs) or len(mine) <= _END_WORDS:
        return False
    new, old = ([token.plain for token in tokens] for tokens in (mine, theirs))
    differ = [at for at, pair in enumerate(zip(new, old, strict=True)) if pair[0] != pair[1]]
    if len(differ) != 1 or not (mine[differ[0]].is_number and theirs[differ[0]].is_number):
        return False
    if any(not words.isdisjoint(new) for words in (_DATES, _EVENTS, _MANY)):
        return False
    return _is_value(mine, differ[0]) or _is_value(theirs, differ[0])


def _is_value(tokens: Sequence[PlainWord], at: int) -> bool:
    """True if the number at that place is a value."""
    words = [token.plain for token in tokens]
    if not at or _ORDINAL.fullmatch(words[at]):
        return False
    before, is_at_end = words[at - 1], at >= len(words) - _END_WORDS
    if before in _VALUE_VERBS or (is_at_end and before in _BEFORE_VALUES):
        return True
    if before in _AROUND_VALUES:
        return is_at_end and not _VALUE_VERBS.isdisjoint(words[:at])
    if before in _SERIES:
        return False
    verbs = _VALUE_VERBS - _MANY_VALUED if "." in words[at] else _RUNS
    return (tokens[at - 1].is_name or "." in words[at]) and not verbs.isdisjoint(words[:at])


def _is_rewording(mine: Sequence[PlainWord], theirs: Sequence[PlainWord]) -> bool:
    """True if one text has the words of the other in the same order, but for few added ones."""
    short, long = sorted((mine, theirs), key=len)
    if not short or len(short) < NEAR_OVERLAP * len(long):
        return False
    at, added = 0, []
    for token in long:
        if at < len(short) and _is_same_token(token, short[at]):
            at += 1
        else:
            added.append(token)
    if at < len(short):
        return False
    return not any(token.is_number or token.is_name or token.plain in _NEGATIONS for token in added)


def _is_same_token(one: PlainWord, other: PlainWord) -> bool:
    if one.is_number or other.is_number or one.is_name or other.is_name:
        return one.plain == other.plain
    return _is_same_word(one.plain, other.plain)


def _is_same_word(one: str, other: str) -> bool:
    """True for equal words and for forms of one word, such as prefers and preferred."""
    if one == other or any(char.isdigit() for char in one + other):
        return one == other
    prefix = _count_equal(one, other)
    suffix = _count_equal(one[prefix:][::-1], other[prefix:][::-1])
    return prefix >= PREFIX_CHARS and max(len(one), len(other)) - prefix - suffix <= ENDING_CHARS


def _count_equal(one: str, other: str) -> int:
    """Return the number of equal characters at the start of both."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
