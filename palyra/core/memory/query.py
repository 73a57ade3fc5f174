"""Analysis of a question: content words, named people, named dates, and texts to embed.

Nothing here filters.  A name or a date in a question is a hint: the answer may come from another
person, on another day, so `ranking` adds to a score and never removes a candidate.
"""

import re
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from palyra.core.memory.dates import DateSpan, find_spans, without_dates
from palyra.core.memory.fields import searchable

MAX_TERMS = 24  # content words; the rest of a long question is ignored by full text search
MAX_QUESTION_CHARS = 4_000
SMALL_TALK_CHARS = (
    240  # of a message of small words alone that are searched for dates, on the event loop
)
MIN_LOWER_NAME_CHARS = 3  # a shorter name, or one that is a word, counts only with its capital
_CACHED = 8

_ENGLISH = """
a about above after again all also am an and any are as at be because been before being
below between both but by can could did do does doing down during each ever few for from
further had has have having he her here hers herself him himself his how i if in into is it
its itself just let like may me might more most much my myself no nor not now of off on once
only or other our ours out over own same shall she should so some such than that the their
theirs them then there these they this those through to too under until up upon us very was
we were what when where which while who whom whose why will with would you your yours
yourself s t d ll m re ve don didn doesn isn wasn many kind type tell know remember say said
please
"""
_GERMAN = """
aber alle allem allen aller alles als also am an ander andere auch auf aus bei beim bin bis
bist da damit dann das dass dasselbe dazu dein deine dem den denn der des dessen dich die
dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer
eines er es etwas euch euer eure für gegen gewesen hab habe haben hat hatte hatten hier hin
hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins ist jede jedem jeden
jeder jedes jene jetzt kann kein keine können könnte machen man manche mehr mein meine
meinem meinen meiner mich mir mit muss nach nicht nichts noch nun nur ob oder ohne sehr sein
seine seinem seinen seiner selbst sich sie sind so solche soll sollte sondern sonst über um
und uns unser unsere unter viel vom von vor wann war waren warum was weg weil weiter welche
welchem welchen welcher welches wenn wer werde werden wessen wie wieder will wir wird wo
woher wohin wollen worden wurde wurden würde zu zum zur zwar zwischen bitte weißt
"""
_STOP_WORDS = frozenset(f"{_ENGLISH} {_GERMAN}".split())
# A message of nothing else goes on with what is in the conversation; nothing is to be recalled.
_SMALL_TALK_WORDS = """
hello hi hey thanks thank thx ok okay yes yeah yep nope sure great perfect fine nice cool good sorry
bye continue go ahead proceed next try got right correct exactly done works
hallo moin servus danke ja nein nee gut passt prima super klasse perfekt okay weiter mach los genau
tschüss entschuldigung stimmt richtig fertig klappt
"""
_SMALL_TALK = frozenset(_SMALL_TALK_WORDS.split())
# A question of nothing else asks for what there is of the days that it names.
_OF_A_DAY_WORDS = """
happen happens happened happening going doing did done made make occurred took take place new news anything something
everything things events event day date notes note entries items list show find give recall memory memories remember
written talked talk discussed discuss up
passiert passierte geschah geschehen los gemacht getan gab ereignisse notizen zeig zeige zeigen erzähl erinnere erinnerst
geredet gesprochen besprochen geschrieben tag datum einträge alles
"""
_OF_A_DAY = frozenset(_OF_A_DAY_WORDS.split()) | _STOP_WORDS
_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = r"(?:['\u2019`\u00b4]s\b|['\u2019`\u00b4](?!\w))?"
_NAME = re.compile(rf"(?<!\w)(?P<name>[^\W_]+){_POSSESSIVE}(?!\w)")
# Authors in lower case that are no people: in a question they are words.
_ROLE_NAMES = (
    "user assistant system tool agent bot model human ai me shell bash terminal console python git"
)
_ROLES = frozenset(_ROLE_NAMES.split())
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A question, taken apart.

    `terms` are lower-case words for full text search, unique, not stemmed.  `authors` are known
    authors that the text names.  `dates` are spans of days that it names.  `texts` are what to
    embed: the vector of the question is the mean of their vectors.
    """

    text: str
    terms: tuple[str, ...]
    authors: tuple[str, ...] = ()
    dates: tuple[DateSpan, ...] = ()
    texts: tuple[str, ...] = ()
    is_of_days: bool = False  # asks for all of its dates: "what happened on 24 November"
    is_of_author: bool = False  # asks for all of one person: "what did Tim do"

    def texts_for(self, *, is_semantic: bool) -> tuple[str, ...]:
        """Return the texts to embed.

        A semantic embedder reads a sentence.  Any two sentences share parts of function words, so
        an embedder of these is given the content words alone.
        """
        if self.is_of_days:
            return ()
        return self.texts if is_semantic else (" ".join(self.terms) or self.text,)


def analyse(text: str, authors: Collection[str], today: date) -> SearchQuestion:
    """Take a question apart; relative dates in it are relative to `today`."""
    text = text[:MAX_QUESTION_CHARS]
    names, spans = _find_names(text, tuple(sorted(authors)))
    without = _replace(text, spans, "")
    dates = find_spans(text, today)
    words = content_words(without_dates(without, today))
    is_of_days = bool(dates) and _OF_A_DAY.issuperset(words)
    is_of_author = len(names) == 1 and _OF_A_DAY.issuperset(words)
    if is_of_author:  # what others said about the person has the name
        words = content_words(" ".join(text[start:end] for start, end in spans))
    texts = (without, _replace(text, spans, "I")) if names else (text,)
    return SearchQuestion(
        text=text,
        terms=() if is_of_days else tuple(dict.fromkeys(words))[:MAX_TERMS],
        authors=names,
        dates=dates,
        texts=tuple(dict.fromkeys(each for each in texts if each.strip())) or (text,),
        is_of_days=is_of_days,
        is_of_author=is_of_author,
    )


def content_words(text: str) -> list[str]:
    """Return the words of a text in lower case without stop words; if it has no others, these."""
    words = _WORD.findall(searchable(text).lower())
    return [word for word in words if word not in _STOP_WORDS] or words


def has_subject(text: str, today: date) -> bool:
    """True if a message is about something: it has a content word or a date."""
    words = set(_WORD.findall(searchable(text[:MAX_QUESTION_CHARS]).lower()))
    return bool(words - _STOP_WORDS - _SMALL_TALK or find_spans(text[:SMALL_TALK_CHARS], today))


def _find_names(
    text: str, authors: tuple[str, ...]
) -> tuple[tuple[str, ...], list[tuple[int, int]]]:
    """Return the authors that the text names, and the spans of their names.

    An author is named by the whole name, and by each part of it that no other author has.
    """
    unique = _unique_parts(authors)
    words = list(_NAME.finditer(text))
    is_typed_small = not any(char.isupper() for char in text[1:])
    named = {
        author
        for word in words
        if (author := unique.get(_part(word, unique)))
        and _is_name(word, author, is_typed_small=is_typed_small)
    }
    lower = text.lower()
    named.update(
        author
        for author in authors
        if len(_parts(author)) > 1 and author.lower() in lower and _whole(author).search(text)
    )
    own = {part: author for author in named for part in _parts(author)}
    spans = [word.span() for word in words if _part(word, own) in own]
    return tuple(author for author in authors if author in named), spans


def _is_name(word: re.Match[str], author: str, *, is_typed_small: bool) -> bool:
    """True unless the word may be another one than the name.

    A part of a longer name needs its capital unless the text has none; a name that is a word or is short needs
    it inside the text.
    """
    name = word["name"]
    if not author[0].isupper():
        return True
    if len(name) < MIN_LOWER_NAME_CHARS or name.lower() in _STOP_WORDS:
        return name[0].isupper() and word.start() > 0
    return name[0].isupper() or is_typed_small or len(_parts(author)) == 1


def _part(word: re.Match[str], parts: Container[str]) -> str:
    """Return the name that a word is, without the ending of the German genitive ("Bennos Rad")."""
    name: str = word["name"]
    is_genitive = name[0].isupper() and name.endswith("s") and name.lower() not in parts
    return (name[:-1] if is_genitive else name).lower()


@lru_cache(_CACHED)
def _unique_parts(authors: tuple[str, ...]) -> dict[str, str | None]:
    """Return the author of each part of a name; None for a part that several have."""
    found: dict[str, str | None] = {}
    for author in authors:
        for part in _parts(author):
            found[part] = author if found.get(part, author) == author else None
    return found


@lru_cache(1_024)
def _parts(author: str) -> tuple[str, ...]:
    """Return the words of a name in lower case; none of a role or a tool (`user`, `run_tests`)."""
    parts = tuple(_WORD.findall(author.partition("@")[0].lower()))
    is_role = author[:1].islower() and ("_" in author or not _ROLES.isdisjoint(parts))
    return () if is_role else parts


@lru_cache(1_024)
def _whole(author: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(author)}{_POSSESSIVE}(?!\w)", re.IGNORECASE)


def _replace(text: str, spans: Sequence[tuple[int, int]], by: str) -> str:
    pieces, done = list[str](), 0
    for start, end in spans:
        pieces += text[done:start], by
        done = end
    return _BLANKS.sub(" ", "".join((*pieces, text[done:]))).strip()


__all__ = ["MAX_TERMS", "SearchQuestion", "analyse", "content_words", "has_subject"]
