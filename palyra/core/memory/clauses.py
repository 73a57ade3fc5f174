"""Clauses: one statement of a person, taken apart into subject, value, what it denies and whom it is about."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from palyra.core.memory.clause_words import (
    BE,
    CHANGE_WORDS,
    CLOCK,
    DAY_NAMES,
    DENIALS,
    DISLIKES,
    DISLIKING,
    FIRST,
    FROM_WHEN,
    FUNCTION,
    GENERIC,
    GERMAN,
    GROUP,
    HAVE,
    IDENTITY,
    ING_NOUNS,
    KIN,
    LEAD_IN,
    LEADS,
    LIKING,
    NAMED_VALUES,
    NOMINATIVES,
    NOT,
    NUMBER_WORDS,
    PLURAL_VERBS,
    REASON,
    ROLES,
    S_IS,
    SCOPES,
    SPEAKERS,
    STRONG,
    THIRD,
    TIES,
    TITLE,
    TOKEN,
    UNITS,
    WAYS,
    fold,
)
from palyra.core.memory.word_forms import forms_of

CACHED = 4_096


class Term(NamedTuple):
    plain: str
    term: str  # one for all forms of a word
    kind: str  # "" of a word; of a value: time, day, month, daytime, rate, number, id


class Clause(NamedTuple):
    """One statement, taken apart."""

    text: str
    tokens: tuple[Term, ...]
    subject: frozenset[str]  # terms in front of the first verb
    head: str  # last term of the subject, without what follows a preposition
    name: str  # term of a subject without an article: a person or a product
    nouns: frozenset[str]  # terms of words and of identifiers, without verbs
    verbs: frozenset[str]
    slots: dict[str, frozenset[str]]  # values by kind
    denied: frozenset[str]  # terms that it names as no longer true
    given: frozenset[str]  # terms that it names instead
    scope: frozenset[str]  # terms of a preposition that it begins with: "in mails to clients …"
    tie: str  # "be" or "have" if that is its first verb
    is_identity: bool  # the value begins with a capital, as that of "the editor is Vim"
    has_verb: bool
    is_first: bool  # about the speaker
    is_third: bool  # about "him" or "her"
    persons: frozenset[str]  # relatives
    roles: frozenset[str]  # of its subject

    @property
    def value(self) -> frozenset[str]:
        """Terms said about the subject; verbs only if there is nothing else."""
        values = (self.nouns | frozenset().union(*self.slots.values())) - self.subject
        return values or self.verbs

    @property
    def terms(self) -> frozenset[str]:
        return self.nouns | self.verbs | frozenset().union(*self.slots.values())


def _term(word: str) -> str:
    """Return one term for the forms of a word: the group of a verb, or the word without its ending."""
    group = next((GROUP[form] for form in _verb_forms(word) if form in GROUP), None)
    if group is not None:
        return f"={group}"
    base = forms_of(word)
    word = min(base) if len(base) > 1 else word
    if len(word) >= STEM_CHARS and word[-1] == "s" and word[-2] != "s":
        word = word[:-1]
    for ending in ("ing", "en", "er", "em", "es", "ed", "e", "n", "t"):
        if word.endswith(ending) and len(word) - len(ending) >= STEM_CHARS:
            return word.removesuffix(ending)
    return word


def _verb_forms(word: str) -> Iterator[str]:
    if word in ING_NOUNS:
        return
    yield from forms_of(word)
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            yield from (base := word.removesuffix(ending), f"{base}e")


STEM_CHARS = 4


def read_tokens(text: str) -> list[Term]:
    found: list[Term] = []
    for match in TOKEN.finditer(text):
        plain = match[0]
        before = found[-1].plain if found else ""
        if plain.endswith("n't") or plain in NOT:
            verb = plain.removesuffix("t").removesuffix("'").removesuffix("n")
            found += (Term(verb, verb, ""), Term("not", "not", "punctuation"))
            continue
        if plain == "am" and before == "i":
            plain = "is"
        plain = "my" if plain == "user's" else plain.removesuffix("'s")
        found.append(Term(plain, *_kind(plain, before, text[match.end() : match.end() + 8])))
    return found


def _kind(plain: str, before: str, behind: str) -> tuple[str, str]:
    """Return the term and the kind of a word."""
    if len(plain) == 1 and not plain.isalnum():
        kind = "tie" if plain == "=" else "unit" if plain in "%€$" else "punctuation"
        return plain, kind
    is_last = before.isalpha() and before not in FUNCTION and not behind.strip(" .!")
    if len(plain) == 1 and plain.isalpha() and is_last:
        return plain, "letter"  # "hall C"
    if plain in NAMED_VALUES:
        return NAMED_VALUES[plain]
    number = NUMBER_WORDS.get(plain, plain if plain[0].isdigit() else "")
    if number and (found := _number(number, before, behind)):
        return found
    joined = plain.replace("-", "")
    if joined.replace("'", "").isalpha():
        return _term(joined), ""
    return plain.rstrip("./"), "id"


def _number(plain: str, before: str, behind: str) -> tuple[str, str] | None:
    """Return the term and the kind of a word that begins with a digit; None for an identifier."""
    clock = _CLOCK_TIME.match(plain + behind)
    is_time = clock is not None and (clock["minutes"] or clock["half"])
    if clock is not None and (is_time or before in _BEFORE_TIMES) and clock["hour"] in plain:
        if clock["dot"] and not clock["half"]:
            return (plain.rstrip("."), "number")  # "2.30" is no time by itself
        hour = int(clock["hour"]) + 12 * (clock["half"] == "pm" and int(clock["hour"]) < 12)  # noqa: PLR2004
        return f"{hour}:{clock['minutes'] or '00'}", "time"
    if re.fullmatch(r"\d+(?:[.,:]\d+)*\.?(?:st|nd|rd|th)?", plain):
        return re.sub(r"[.a-z]+$", "", plain), "number"
    return None


_BEFORE_TIMES = frozenset({"at", "um", "gegen", *DAY_NAMES})
_CLOCK_TIME = re.compile(
    r"(?P<hour>\d{1,2})(?:(?:(?P<dot>\.)|:)(?P<minutes>\d\d))?(?:\s*(?P<half>am|pm|uhr|o'clock|h)\b|(?!\w|[.:,]\w))"
)


@lru_cache(CACHED)
def read_clause(text: str) -> Clause:
    said = CLOCK.sub(_clock, TITLE.sub("", fold(text)))
    said = DISLIKING.sub("hate", LIKING.sub("like", said))
    if S_IS.search(said) and not any(map(_is_verb, read_tokens(said))):
        said = S_IS.sub(" is", said, count=1)
    claim = REASON.sub("", LEAD_IN.sub("", said))
    denied, given = _find_denied(
        " ".join(
            each.plain if len(each.plain) == 1 else _hide(each.plain) for each in read_tokens(claim)
        )
    )
    tokens = read_tokens(FROM_WHEN.sub(" ", claim))
    words = [each for each in tokens if each.kind != "punctuation"]
    verbs = _unknown_verbs(words)
    at = next((n for n, each in enumerate(words) if n not in verbs and _is_verb(each)), len(words))
    verb = words[at] if at < len(words) else None
    if verb is None:
        at = next((n for n, each in enumerate(words) if each.kind or each.plain in LEADS), 0)
    leading = [each for n, each in enumerate(words[:at]) if n not in verbs]
    if any(each.plain in NOMINATIVES for each in words[: at + 2]):
        leading = []  # "after the storm we are", "jetzt nehmen wir"
    slots: dict[str, set[str]] = {}
    for each in words:
        if each.kind and each.kind not in {"unit", "tie"}:
            slots.setdefault(each.kind, set()).add(each.term)
    unknown = frozenset(f"={each.term}" for n, each in enumerate(words) if n in verbs)
    words = [each for n, each in enumerate(words) if n not in verbs]
    return Clause(
        text=said,
        tokens=tuple(tokens),
        subject=frozenset(each.term for each in leading if is_noun(each)),
        head=next((each.term for each in reversed(_head(leading)) if is_noun(each)), ""),
        name=_name_of(text, leading, verb),
        nouns=frozenset(each.term for each in words if is_noun(each)),
        verbs=unknown | {each.term for each in words if each.term[0] == "="},
        tie=""
        if verb is None
        else "be"
        if verb.plain in BE
        else "have"
        if verb.plain in HAVE
        else "",
        is_identity=IDENTITY.search(text) is not None,
        has_verb=verb is not None,
        slots={kind: frozenset(values) for kind, values in slots.items()},
        denied=denied,
        given=given,
        scope=_scope(words),
        is_first=any(each.plain in FIRST for each in (words[: at + 2] if verb else words)),
        is_third=any(each.plain in THIRD for each in words),
        persons=frozenset(each.term for each in words if each.plain in KIN),
        roles=frozenset(each.term for each in leading if each.plain in ROLES),
    )


def _head(leading: Sequence[Term]) -> list[Term]:
    return list(takewhile(lambda each: each.plain not in LEADS and each.plain != "of", leading))


def _scope(words: Sequence[Term]) -> frozenset[str]:
    if not words or words[0].plain not in SCOPES:
        return frozenset()
    ends = takewhile(
        lambda each: (
            not (
                each.plain in TIES
                or each.term[0] == "="
                or each.plain in SPEAKERS
                or each.plain in {"no", "kein", "keine"}
            )
        ),
        words,
    )
    return frozenset(each.term for each in ends if is_noun(each))


def _unknown_verbs(words: Sequence[Term]) -> set[int]:
    """Return the places of words that must be verbs, beside "I", "we" and "the user"."""
    found = set[int]()
    for at, each in enumerate(words):
        if each.plain not in SPEAKERS:
            continue
        if at and each.plain in {"ich", "wir"} and _is_verb_like(words[at - 1]):
            found.add(at - 1)
            continue
        after = at + 1
        while after < len(words) and words[after].plain in CHANGE_WORDS - TIES:
            after += 1
        found.add(after)
    return {at for at in found if at < len(words) and is_noun(words[at])}


def _is_verb(token: Term) -> bool:
    return (
        token.kind == "tie"
        or token.plain in TIES
        or token.term[0] == "="
        or token.plain in DISLIKES
    )


def _is_verb_like(token: Term) -> bool:
    return is_noun(token) or token.term[0] == "=" or token.plain in TIES


def _name_of(text: str, leading: Sequence[Term], verb: Term | None) -> str:
    """Return the term of the name that the subject is, or begins with; "" for a thing."""
    if not leading or verb is None or not is_noun(leading[0]):
        return ""
    is_plural = verb.plain in PLURAL_VERBS or (verb.plain in GROUP and verb.plain[-1] not in "st")
    nouns = sum(map(is_noun, leading))
    is_owner = re.match(r"\w+['\u2019]s ", text) is not None
    is_full = GERMAN.search(fold(text)) is None and re.match(r"[A-Z]\w+ [A-Z]\w+ ", text)
    is_one = nouns == len(leading) == 1 and not is_plural
    return leading[0].term if is_owner or is_full or is_one else ""


def _clock(match: re.Match[str]) -> str:
    """Return a time in words as figures."""
    if match["full"]:
        return f"{match['full']}:{match['rest']}"
    hour = NUMBER_WORDS.get(match["hour"], match["hour"])
    if not hour.isdecimal():
        return match[0]
    shift, minutes = {
        "quarter to": (-1, 45), "viertel vor": (-1, 45), "half past": (0, 30), "halb": (-1, 30),
    }.get(match["how"], (0, 15))  # fmt: skip
    return f"{int(hour) + shift}:{minutes}"


def is_noun(token: Term) -> bool:
    """True for a word that says what a statement is about."""
    plain = token.plain
    if token.kind in {"id", ""}:
        return len(plain) > 1 and not (
            plain in FUNCTION
            or plain in FIRST
            or plain in CHANGE_WORDS
            or token.term[0] == "="
            or plain in GENERIC
            or plain in DISLIKES
            or plain in UNITS
            or plain in TIES
        )
    return False


def _hide(word: str) -> str:
    """Return a word whose dots and commas end no clause."""
    return word.replace(".", "\x01").replace(",", "\x02")


def _find_denied(norm: str) -> tuple[frozenset[str], frozenset[str]]:
    old, new = set[str](), set[str]()
    for trigger, pattern in DENIALS:
        if trigger not in norm or (trigger in WAYS and STRONG.search(norm) is None):
            continue
        for match in pattern.finditer(norm):
            groups = match.groupdict()
            old |= _terms_of(groups["old"])
            new |= _terms_of(groups.get("new") or "")
    return frozenset(old), frozenset(new)


def _terms_of(text: str) -> set[str]:
    text = text.replace("\x01", ".").replace("\x02", ",")
    return {
        each.term
        for each in read_tokens(text)
        if is_noun(each) or each.kind not in {"", "unit", "punctuation"} or each.term[0] == "="
    }
