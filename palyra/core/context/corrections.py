"""Corrections: which earlier statements a later one makes invalid.

Three readings.  `find_replaced` recognizes a correction that names what it replaces or repeats the
statement with other values; it may find several.  `find_corrected` weighs corrections in words of
their own (`no wait, staging is on 9443`) and finds at most one, because a wrong guess must not cost
more.  `find_changed` reads them as the memory does (`core.memory.changes`): a change of a part is none,
since what is taken back is gone from the summary.  `Mentions` is the index of both: a correction is compared with the statements that share one of
its rarest words, so a long session of corrections is read in linear time.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from palyra.core.context.speech import without_lead
from palyra.core.context.statements import (
    ATTRIBUTES,
    MARKERS,
    TAKES_BACK,
    WORD,
    Statement,
    StatementKind,
    is_elliptic,
    topic,
    values,
    whole_words,
)
from palyra.core.memory.changes import compare

_ADDS = whole_words(
    r"also", r"too", r"as well", r"in addition", r"auch", r"zusätzlich", r"außerdem"
)
_TERM = r"[\"'`“(]?[^\s,;!?\"'`”)]+[\"'`”)]?"
_BOUND = r"(?:(?:more|less|fewer|longer|mehr|weniger|länger)\s+)?(?:than|als)\b"  # of a quantity
_INSTEAD = r"instead of|rather than|statt|anstatt|anstelle von"
_CHANGE = r"(?:change|rename|move|switch|replace|swap|ersetze|ändere|tausche)\w*"
_TO = r"to|into|with|by|for|durch|in|zu|auf|nach|gegen"
_PAIRS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<new>{_TERM})\s+(?:{_INSTEAD})\s+(?:the\s+)?(?P<old>{_TERM})",
        rf"\b(?:{_INSTEAD})\s+(?P<old>{_TERM})",
        rf"\b(?:not|nicht)\s+(?P<old>{_TERM}),?\s+(?:but|sondern)\s+(?P<new>{_TERM})",
        rf"(?P<new>{_TERM}),?\s+(?:not|nicht)\s+(?P<old>{_TERM})\s*[.!]?$",
        rf"\b(?:no longer|nicht mehr|not)\s+(?!{_BOUND})(?P<old>{_TERM})",
        rf"\b(?:from|von)\s+(?P<old>{_TERM})\s+(?:{_TO})\s+(?P<new>{_TERM})",
        rf"\b{_CHANGE}\s+(?:the\s+)?(?P<old>{_TERM})\s+(?:{_TO})\s+(?P<new>{_TERM})",
        rf"(?P<old>{_TERM})\s+(?:is out|ist raus)\b",
        rf"(?P<old>{_TERM})\s*(?:->|→|=>)\s*(?P<new>{_TERM})",
    )
)


@lru_cache(maxsize=256)
def replacements(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the terms that a correction names as no longer valid, and those it names instead."""
    old, new = set[str](), set[str]()
    for pattern in _PAIRS:
        for match in pattern.finditer(text):
            found = match.groupdict()
            old.add(_bare(found["old"]))
            new.add(_bare(found.get("new") or ""))
    return frozenset(old - {""}), frozenset(new - {""})


@lru_cache(maxsize=4096)
def _terms(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in WORD.findall(text)) | values(text)


def _bare(term: str) -> str:
    return term.strip("`\"“”'.,:;()").casefold()


class _Said(msgspec.Struct, frozen=True, gc=False):
    """The parts of a statement that decide if a later one is about it."""

    about: frozenset[str]  # topic without words of correction
    subject: frozenset[str]  # of that, without verbs
    terms: frozenset[str]
    shapes: dict[str, str]  # of each value its form


@lru_cache(maxsize=16_384)  # a correction is compared with every earlier statement
def _said(text: str) -> _Said:
    about = topic(text) - MARKERS
    shapes = {value: _shape(value) for value in values(text)}
    return _Said(about, about - _VERBS, _terms(text), shapes)


def find_replaced(newer: Statement, earlier: Iterable[str]) -> list[int]:
    """Return the places of the earlier statements that the correction `newer` makes invalid.

    `newer` must name a term of the earlier one as replaced, and apart from the terms that change,
    one of the two has no word that the other lacks; or it must give other values where all other
    words are the same, but for a lead-in (`before you start:`).  Two statements with different values
    and no word of correction coexist: two servers have two ports.
    """
    if not newer.corrects:
        return []
    named_old, named_new = replacements(newer.text)
    mine = _said(newer.text)
    kept = mine.about - named_old - named_new
    return [
        place
        for place, text in enumerate(earlier)
        if _is_replaced(mine, _said(text), named_old, kept)
        and compare(newer.text, text) != "touches"  # of a part
    ]


def _is_replaced(
    mine: _Said, theirs: _Said, named_old: frozenset[str], kept: frozenset[str]
) -> bool:
    """Decide `find_replaced` for one statement; the cheapest test comes first."""
    if not named_old.isdisjoint(theirs.terms):
        rest = theirs.about - named_old
        return (kept <= rest or rest <= kept) and (
            not kept or not theirs.about or not kept.isdisjoint(theirs.about)
        )
    about = mine.about
    is_repeated = (
        len(about) > 1 and about <= theirs.about and len(theirs.about) - len(about) <= _LEAD_WORDS
    )
    if not (is_repeated or mine.subject == theirs.subject) or about.isdisjoint(theirs.about):
        return False
    new = {form for value, form in mine.shapes.items() if value not in theirs.shapes}
    return any(form in new for value, form in theirs.shapes.items() if value not in mine.shapes)


_VERBS = frozenset(
    [
        "go",
        "goes",
        "going",
        "take",
        "takes",
        "use",
        "uses",
        "run",
        "runs",
        "running",
        "listen",
        "listens",
        "live",
        "lives",
        "sit",
        "sits",
        "stay",
        "keep",
        "set",
        "called",
        "named",
        "lauscht",
        "läuft",
        "laufen",
        "hört",
        "liegt",
        "nehmen",
        "heißt",
        "bleibt",
        "setzen",
        "nutzen",
        "gehen",
    ]
)


def takes_back(newer: Statement) -> bool:
    """True if the sentence changes something that was said, and does not only add to it."""
    return newer.corrects and not _ADDS.search(newer.text)


def find_taken_back(newer: Statement, earlier: Mapping[str, str]) -> str | None:
    """Return the key of the earlier statement that `newer` most likely makes invalid; None for none."""
    keys, texts = list(earlier), list(earlier.values())
    replaced = find_replaced(newer, texts)
    place = replaced[0] if replaced else find_corrected(newer, [("fact", each) for each in texts])
    return None if place is None else keys[place]


def names_more(old: str, newer: str) -> bool:
    """True if a statement has words for its subject that its correction lacks."""
    return bool(topic(old) - topic(newer) - MARKERS)


class _Weighing(msgspec.Struct, frozen=True, gc=False):
    """A correction in words of its own: the parts that are compared with each earlier statement."""

    attributes: frozenset[str]
    subject: frozenset[str]
    plain: frozenset[str]  # words of the subject in small letters: no names
    values: frozenset[str]
    shapes: frozenset[str]
    spoken: frozenset[str]
    is_bare: bool
    is_outright: bool


def _weighing(newer: Statement) -> _Weighing:
    text = newer.text
    about = topic(text) - MARKERS
    subject = about - ATTRIBUTES - _VERBS - frozenset().union(*replacements(text))
    return _Weighing(
        attributes=about & ATTRIBUTES,
        subject=subject,
        plain=frozenset(word for word in subject if word in text),
        values=values(text),
        shapes=frozenset(map(_shape, values(text))),
        spoken=_terms(text),
        is_bare=is_elliptic(text),
        is_outright=TAKES_BACK.search(text),
    )


def find_corrected(
    newer: Statement, latest_first: Iterable[tuple[StatementKind, str]]
) -> int | None:
    """Return the place of the statement that `newer` most likely takes back; None if none is.

    A candidate has a value of the same shape in its place, or is a choice, and shares the subject; a
    correction without a subject is about the latest such statement.  Of the candidates with the
    largest overlap the latest is chosen.
    """
    mine = _weighing(newer)
    best, place_of_best = (0, 0), None
    for place, (kind, old) in enumerate(latest_first):
        score = _weigh(mine, kind, old)
        if score is not None and mine.is_bare:
            return place
        if score is not None and score > best:
            best, place_of_best = score, place
    return place_of_best


def _weigh(mine: _Weighing, kind: StatementKind, old: str) -> tuple[int, int] | None:
    """Return the overlap of a correction with an earlier statement; None if it is not about it."""
    words = _terms(old)
    shared = len(mine.subject & words)
    is_other = mine.attributes and words & ATTRIBUTES and not mine.attributes & words
    if is_other or not (shared or mine.is_bare) or not _fits(mine, kind, old, shared):
        return None
    return shared, len(mine.spoken & words)


def _fits(mine: _Weighing, kind: StatementKind, old: str, shared: int) -> bool:
    words = _terms(old)
    if kind != "fact" and not mine.is_outright:
        return False
    if kind == "decision" and "9" not in mine.shapes and not mine.is_bare:
        return not mine.plain or bool(mine.plain & words)
    if kind != "fact" and not mine.is_bare and shared <= 1:
        return False
    rest = topic(old) - ATTRIBUTES - _VERBS - MARKERS - mine.subject
    if rest and mine.subject - words:
        return False
    is_near = len(mine.spoken & words) >= _NEAR_WORDS
    changed = {
        _shape(value)
        for value in values(old) - mine.values
        if is_near or _YEAR.fullmatch(value) is None  # a year is no port
    }
    return bool(changed & mine.shapes - {"a"})


def find_changed(newer: Statement, earlier: Iterable[tuple[StatementKind, str]]) -> list[int]:
    """Return the places of the earlier statements that `newer` changes as a whole.

    A constraint is taken back by a word of correction only, and never by a value; a question claims
    nothing that another value could change.
    """
    said = without_lead(newer.text)
    return [
        place
        for place, (kind, text) in enumerate(earlier)
        if (kind not in {"constraint", "ask"} or newer.corrects)
        and compare(said, without_lead(text)) == "replaces"
    ]


class Mentions:
    """Index of statements by their words.  Keys are the caller's; a later `add` is a later statement."""

    def __init__(self) -> None:
        self._count = 0
        self._places: dict[str, int] = {}
        self._by_word: dict[str, set[str]] = {}

    def add(self, key: str, text: str) -> None:
        """Add a statement, as the latest one."""
        self._places.pop(key, None)
        self._places[key] = self._count = self._count + 1
        said = _said(text)
        for word in said.terms | said.about:
            self._by_word.setdefault(word, set()).add(key)

    def remove(self, key: str, text: str) -> None:
        """Remove a statement; nothing happens if it was never added."""
        if self._places.pop(key, None) is not None:
            said = _said(text)
            for word in said.terms | said.about:
                self._by_word[word].discard(key)

    def find_replaceable(self, newer: Statement) -> list[str]:
        """Return the keys that `find_replaced` may find, oldest first, and hardly any other."""
        mine = _said(newer.text)
        found = set[str]()
        for word in replacements(newer.text)[0]:
            found |= self._by_word.get(word, frozenset())
        if words := mine.subject or mine.about:  # each must be in a statement that is repeated
            found |= min((self._by_word.get(word, frozenset()) for word in words), key=len)
        return sorted(found, key=self._places.__getitem__)

    def find_sharing(self, newer: Statement) -> list[str]:
        """Return the keys of the latest statements that share a word with this one, latest first."""
        said = _said(newer.text)
        found = set[str]().union(*(self._by_word.get(word, ()) for word in said.about | said.terms))
        return sorted(found, key=self._places.__getitem__, reverse=True)[:MAX_SHARING]

    def find_near(self, newer: Statement) -> Iterator[str]:
        """Yield the keys that `find_corrected` may choose, latest first."""
        mine = _weighing(newer)
        if mine.is_bare:
            yield from reversed(self._places)
            return
        found = set[str]().union(*(self._by_word.get(word, ()) for word in mine.subject))
        yield from sorted(found, key=self._places.__getitem__, reverse=True)


MAX_SHARING = 30
_NEAR_WORDS = 4
_LEAD_WORDS = 2
_YEAR = re.compile(r"(?:19|20)\d\d")
_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^\W\d_]+")


def _shape(value: str) -> str:
    """Return the form of a value: `9` of a port, `a/a.a` of a file."""
    return _LETTERS.sub("a", _DIGITS.sub("9", value))


def elide(text: str, newer: str) -> str:
    """Return a corrected statement without the values that are no longer valid."""
    for value in sorted(values(text) - values(newer), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "…", text, flags=re.IGNORECASE)
    return text
