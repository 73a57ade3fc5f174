"""Changes: whether a later statement takes the place of an earlier one, in a person's own words.

"Our standup is at 9:15" and, ninety days later, "standup moved to 9:45": few words in common, none
about the value.  The reading is of parts, not of sentences:

- the **subject** of each, the words in front of its first verb ("I", "we" and "our" are none);
- the **value**: what is behind the verb, by kind (time, day, number, name of a machine, place, words);
- the **cue** of a change ("moved to", "no longer", "nicht mehr", "jetzt"), and the terms that the
  later one names as replaced ("replaced X by Y", "statt X", "kein X mehr").

`replaces` is true if the later one denies the earlier, names its value as replaced, or gives another
value of the same kind about the same subject.  It is false where anything says that both may be true:
another person, scope or day, an addition ("also"), a question, a plan, an exception of today, and an
earlier statement of several parts of which the later one changes one.  `touches` holds for these last
too: both are kept, and the later one is shown first.

Everything is about words: English and German, in any case, with or without punctuation.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from palyra.core.memory.clause_words import (
    ADDS,
    ALLOWS,
    ARTICLES,
    ASKS,
    ATTRIBUTES,
    BRIEF,
    CORRECTS,
    DERIVED,
    DIRECTIONS,
    DISLIKES,
    EMPTY,
    ENDS,
    FIRST,
    FOR_GOOD,
    GENERIC,
    GERMAN,
    IS,
    LEAD_OF,
    LIKE,
    LIVE,
    NAMED,
    NEGATIONS,
    OPEN,
    PALE,
    PART,
    PLACED,
    RESPONSIBLE,
    RESUMES,
    ROLE,
    SENTENCE,
    SINGLE,
    STARTS,
    STRONG,
    TITLE,
    UNCHANGED,
    UNITS,
    USE,
    WEAK,
    fold,
)
from palyra.core.memory.clauses import CACHED, STEM_CHARS, Clause, is_noun, read_clause, read_tokens

MAX_CHARS = 300  # of a statement; a longer text is no statement
NEAR_SHARE = 0.5  # of the words of both statements


# --- decision ------------------------------------------------------------------------------------

Change = Literal["replaces", "touches", "unrelated"]


@lru_cache(CACHED)
def compare(newer: str, older: str) -> Change:
    """Return what a later statement is to an earlier one of the same speaker."""
    if max(len(newer), len(older)) > MAX_CHARS or newer == older:
        return "unrelated"
    theirs = read_clause(older)
    found: Change = "unrelated"
    for text in dict.fromkeys((newer, *_parts(newer))):
        if text.rstrip().endswith("?"):
            continue
        change = _compare(_in_words_of(read_clause(text), theirs), theirs)
        if change == "replaces":
            return change
        found = change if change != "unrelated" else found
    return found


@lru_cache(CACHED)
def restates(one: str, other: str) -> bool:
    """True if two statements say the same in other words, in another order or with a misspelt word.

    They have the same words for things and people, the same values and the same sense; a verb may be
    another one ("we use X for Y", "Y runs on X").  What narrows one of them has to be in both.
    """
    if max(len(one), len(other)) > MAX_CHARS:
        return False
    theirs = read_clause(other)
    mine = _in_words_of(read_clause(one), theirs)
    content, sense = _content(mine), _sense(mine)
    if content != _content(theirs) or mine.slots != theirs.slots or sense != _sense(theirs):
        return False
    is_enough = len(content) + len(mine.verbs & theirs.verbs) + abs(sense[0]) >= _MISSING
    return is_enough and not (
        _is_turned(mine, theirs) or _has_other_verb(mine, theirs) or _has_other_side(mine, theirs)
    )


def _has_other_verb(mine: Clause, theirs: Clause) -> bool:
    """True for "speaks French" and "teaches French", for "opens" and "closes"."""
    verbs = mine.verbs | theirs.verbs
    is_other = bool(mine.verbs and theirs.verbs) and mine.verbs.isdisjoint(theirs.verbs)
    return (is_other and not verbs <= PALE) or bool(verbs & ENDS and verbs & STARTS)


def _has_other_side(mine: Clause, theirs: Clause) -> bool:
    """True if another word is the owner, the direction or the speaker."""
    for side in (_directions, _owners):
        ours, known = side(mine), side(theirs)
        if ours and known and ours != known:
            return True
    speaks = [any(each.plain in FIRST for each in clause.tokens) for clause in (mine, theirs)]
    is_about_other = bool(mine.name or theirs.name or mine.is_third or theirs.is_third)
    return speaks[0] != speaks[1] and is_about_other


def _content(clause: Clause) -> frozenset[str]:
    content = clause.nouns.union(*clause.slots.values())
    generic = {each.term for each in clause.tokens if each.plain in GENERIC}
    return content if len(content) > 1 else content | generic


def _sense(clause: Clause) -> tuple[int, bool, frozenset[str]]:
    """Return what is liked or disliked, whether something is denied, and what else is said."""
    plain = {each.plain for each in clause.tokens}
    liking = _liking(clause)
    rest = {
        each.plain
        for each in clause.tokens
        if not (each.kind or is_noun(each) or each.term[0] == "=" or each.plain in UNITS)
    }
    rest -= EMPTY | FIRST | NEGATIONS | DISLIKES | GENERIC
    return liking, not liking and not plain.isdisjoint(NEGATIONS), frozenset(rest)


def _owners(clause: Clause) -> set[str]:
    return set(_OWNER.findall(clause.text)) - FIRST - {"it", "that"}


_OWNER = re.compile(r"(\w+)'s(?=\s)")


def _is_turned(mine: Clause, theirs: Clause) -> bool:
    """True if one verb has the two sides exchanged: "Ann leads Bob", "Bob leads Ann"."""
    is_symmetric = "be" in {mine.tie, theirs.tie} or not mine.verbs & theirs.verbs
    return (
        not is_symmetric
        and bool(mine.subject)
        and mine.subject != theirs.subject
        and bool(theirs.subject)
    )


def _directions(clause: Clause) -> set[str]:
    """Return the prepositions of direction, each with the word behind it."""
    return {
        f"{before.plain} {after.term}"
        for before, after in pairwise(each for each in clause.tokens if each.plain not in ARTICLES)
        if before.plain in DIRECTIONS
    }


def has_cue(text: str) -> bool:
    """True if a statement has a word of change."""
    plain = fold(text[: MAX_CHARS + 1])
    return STRONG.search(plain) is not None or WEAK.search(plain) is not None


@lru_cache(CACHED)
def follows(newer: str, older: str) -> bool:
    """True if a later statement is to be read before an earlier one: it is about the same, and differs.

    Wider than `compare`, as it decides about an order only: a word of change, or half of the words.
    """
    if max(len(newer), len(older)) > MAX_CHARS or newer == older:
        return False
    mine, theirs = _in_words_of(read_clause(newer), read_clause(older)), read_clause(older)
    new, old = mine.nouns | mine.verbs, theirs.nouns | theirs.verbs
    if new.isdisjoint(old) or mine.terms == theirs.terms or _is_other(mine, theirs):
        return False
    if STRONG.search(mine.text) or WEAK.search(mine.text):
        return True
    return len(new & old) >= NEAR_SHARE * len(new | old)


def _parts(text: str) -> Iterator[str]:
    """Yield the sentences of a text, and the clauses that have a subject."""
    for sentence in SENTENCE.split(TITLE.sub("", text)):
        yield sentence
        for clause in re.split(r"[,:](?=\s)", sentence):
            if (said := read_clause(clause)).subject or said.is_first:
                yield clause


def _in_words_of(mine: Clause, theirs: Clause) -> Clause:
    """Return the later statement with the earlier one's form of misspelt and shortened words."""
    aliases = {
        term: other
        for term in mine.nouns - theirs.nouns
        for other in theirs.nouns - mine.nouns
        if _is_form(term, other)
    }
    if not aliases:
        return mine

    def renamed(terms: frozenset[str]) -> frozenset[str]:
        return frozenset(aliases.get(term, term) for term in terms)

    return mine._replace(
        subject=renamed(mine.subject),
        nouns=renamed(mine.nouns),
        denied=renamed(mine.denied),
        given=renamed(mine.given),
        tokens=tuple(each._replace(term=aliases.get(each.term, each.term)) for each in mine.tokens),
    )


def _is_form(term: str, other: str) -> bool:
    """True if a term is the other misspelt, or the end of a compound (`meeting`, `teammeeting`)."""
    if min(len(term), len(other)) < STEM_CHARS or not (term + other).isalpha():
        return False
    if other.endswith(term) and len(other) - len(term) > 1:
        return True
    short, long = sorted((term, other), key=len)
    if long.startswith(short) and long.removeprefix(short) in DERIVED:
        return True
    return term[0] == other[0] and _is_misspelt(term, other)


def _is_misspelt(term: str, other: str) -> bool:
    """True if a letter is missing, doubled or exchanged; "Mario" is no "Maria"."""
    if sorted(term) == sorted(other):
        return sum(a != b for a, b in zip(term, other, strict=True)) == 2  # noqa: PLR2004 - exchanged
    if term[-1] != other[-1]:
        return False
    start = next((at for at, (a, b) in enumerate(zip(term, other, strict=False)) if a != b), 0)
    is_one_more = term[start + 1 :] == other[start:] or term[start:] == other[start + 1 :]
    is_other = len(term) == len(other) > STEM_CHARS and term[start + 1 :] == other[start + 1 :]
    return is_one_more or is_other


def _compare(mine: Clause, theirs: Clause) -> Change:
    if _takes_over(mine, theirs):
        return "touches" if _has_more(mine, theirs) else "replaces"
    if _is_other(mine, theirs):
        return "unrelated"
    is_changed = (
        _denies(mine, theirs)
        or _reverses(mine, theirs)
        or _resumes(mine, theirs)
        or _gives_value(mine, theirs)
    )
    if not is_changed:
        return "unrelated"
    return "touches" if _has_more(mine, theirs) or _is_brief(mine, theirs) else "replaces"


def _is_brief(mine: Clause, theirs: Clause) -> bool:
    """True for an exception of a day; "yesterday" is when a change was made."""
    is_term = "extended" in mine.text or "verlaenger" in mine.text or "verschoben" in mine.text
    if is_term:
        return False
    is_made = STRONG.search(mine.text) is not None
    return any(
        match[0] not in theirs.text and not (is_made and match[0] in {"yesterday", "gestern"})
        for match in BRIEF.finditer(mine.text)
    )


def _differs(cue: re.Pattern[str], mine: Clause, theirs: Clause) -> bool:
    """True if the later statement has a cue that the earlier one has not."""
    is_german = GERMAN.search(mine.text) is not None
    return any(
        match[0] not in theirs.text and not (is_german and match[0] == "also")
        for match in cue.finditer(mine.text)
    )


def _is_other(mine: Clause, theirs: Clause) -> bool:
    """True if both may be true: nothing shared, an addition, a plan, another person or scope."""
    is_value = mine.denied & theirs.value and (
        not mine.has_verb  # "imperative mood, not past tense"
        or (theirs.subject and theirs.subject <= mine.subject)  # "the kids bike instead of …"
    )
    known = theirs.terms | mine.given
    if theirs.terms.isdisjoint(ATTRIBUTES):
        known |= ATTRIBUTES
    return (
        (mine.terms.isdisjoint(theirs.terms) and not (mine.is_first and theirs.is_first))
        or _differs(ADDS, mine, theirs)
        or _differs(OPEN, mine, theirs)
        or _differs(UNCHANGED, mine, theirs)
        or _is_other_person(mine, theirs)
        or _is_other_daytime(mine, theirs)
        or bool(mine.scope - theirs.terms)
        or _is_qualified_otherwise(mine, theirs)
        or (bool(mine.subject - known) and not is_value)
    )


def _is_other_person(mine: Clause, theirs: Clause) -> bool:
    if (mine.persons | mine.roles) - theirs.terms:
        return True
    if mine.persons and not theirs.persons and theirs.is_first:
        return True
    is_of_them = not mine.persons.isdisjoint(theirs.persons)  # of one of several
    if theirs.persons - mine.persons and not is_of_them and (mine.is_first or mine.subject):
        return True
    return mine.is_third and theirs.is_first and not theirs.subject


def _is_other_daytime(mine: Clause, theirs: Clause) -> bool:
    new, old = (each.slots.get("daytime", frozenset()) for each in (mine, theirs))
    if not new or not old or new & old:
        return False
    return STRONG.search(mine.text) is None or bool(new & mine.denied and not old & mine.denied)


def _is_qualified_otherwise(mine: Clause, theirs: Clause) -> bool:
    """True if a shared word has other words in front: "web server" is no "mail server"."""
    new, old = _qualifiers(mine), _qualifiers(theirs)
    heads = new.keys() & old.keys()
    if STRONG.search(mine.text) or (theirs.tie == mine.tie == "be"):
        heads &= theirs.subject | mine.subject  # others are the value
    return any(new[word] - theirs.terms and old[word] - mine.terms for word in heads)


def _qualifiers(clause: Clause) -> dict[str, set[str]]:
    """Return for each word the words directly in front of it."""
    found: dict[str, set[str]] = {}
    before = None
    for each in clause.tokens:
        if is_noun(each):
            known = found.setdefault(each.term, set())
            if before is not None:
                known.add(before)
        before = each.term if is_noun(each) else None
    return found


def _denies(mine: Clause, theirs: Clause) -> bool:
    """True if the later statement names what the earlier one says as no longer true."""
    extra = (mine.denied & mine.nouns) - theirs.nouns
    if extra - _behind(mine, mine.denied & theirs.nouns):
        return False  # of a part, or of another scope
    denied_verbs = mine.denied & mine.verbs - {USE}
    if denied_verbs and theirs.verbs and denied_verbs.isdisjoint(theirs.verbs):
        return False
    hit = mine.denied & theirs.value
    if theirs.value - theirs.verbs <= mine.terms:  # "Paul is our adviser": the value comes first
        hit = mine.denied & theirs.terms - (mine.subject & theirs.subject)
    if not hit or (theirs.name and theirs.name not in mine.terms):
        return False
    is_of_a_day = (hit - theirs.subject).isdisjoint(theirs.nouns | theirs.verbs)
    is_at_a_time = "time" in mine.slots.keys() - theirs.slots.keys()
    if (is_of_a_day or is_at_a_time) and FOR_GOOD.search(mine.text) is None:
        return False
    return len(theirs.nouns - mine.nouns) <= _MISSING + len(hit)


def _behind(clause: Clause, terms: frozenset[str]) -> set[str]:
    """Return the words that directly follow one of the terms: "law school" is about law."""
    pairs = pairwise(clause.tokens)
    return {after.term for before, after in pairs if before.term in terms and is_noun(after)}


_MISSING = 2


def _reverses(mine: Clause, theirs: Clause) -> bool:
    """True if one likes what the other dislikes."""
    new, old = _liking(mine), _liking(theirs)
    liked = (mine.nouns | mine.verbs) - {LIKE}
    if not new or not old or new == old or liked - theirs.terms:
        return False
    rest = theirs.nouns - mine.nouns
    return bool(liked) and len(rest) <= (1 if STRONG.search(mine.text) else 0)


def _resumes(mine: Clause, theirs: Clause) -> bool:
    """True if the later one does again what the earlier one denies: "I eat fish again"."""
    ours, known = ({each.plain for each in clause.tokens} for clause in (mine, theirs))
    is_again = RESUMES.search(mine.text) is not None and ours.isdisjoint(NEGATIONS)
    return (
        is_again
        and not known.isdisjoint(NEGATIONS)
        and bool(theirs.nouns)
        and theirs.nouns <= mine.nouns
        and bool(mine.verbs & theirs.verbs or ALLOWS.search(mine.text))
    )


def _takes_over(mine: Clause, theirs: Clause) -> bool:
    """True if the task of one person is now that of another: "Lisa is in charge of purchasing now"."""
    task = theirs.nouns - theirs.subject
    is_told = RESPONSIBLE.search(mine.text) and RESPONSIBLE.search(theirs.text)
    has_cue = STRONG.search(mine.text) or WEAK.search(mine.text)
    is_open = any(_differs(cue, mine, theirs) for cue in (ADDS, OPEN, BRIEF, UNCHANGED))
    if not (is_told and has_cue and theirs.name and task) or is_open:
        return False
    others = mine.nouns - theirs.nouns
    if mine.verbs and theirs.verbs and mine.verbs.isdisjoint(theirs.verbs):
        return False  # "owns the ledger", "the ledger handles …"
    return task <= mine.nouns and len(others) == 1 and theirs.subject.isdisjoint(mine.nouns)


def _liking(clause: Clause) -> int:
    """Return 1 of what is liked, -1 of what is disliked, 0 of neither."""
    words = [each.plain for each in clause.tokens]
    is_denied = not {
        "not",
        "no",
        "never",
        "nicht",
        "kein",
        "keine",
        "keinen",
        "nie",
        "longer",
    }.isdisjoint(words)
    if not DISLIKES.isdisjoint(words):
        return 1 if is_denied else -1
    if LIKE in clause.verbs:
        return -1 if is_denied else 1
    return 0


def _gives_value(mine: Clause, theirs: Clause) -> bool:
    """True if the later statement gives another value about the same subject."""
    has_cue = STRONG.search(mine.text) or WEAK.search(mine.text)
    if has_cue and ROLE.search(theirs.text) and mine.subject and mine.subject == theirs.value:
        return bool(mine.nouns - theirs.nouns)  # "Dana is the owner": "the owner is Luis now"
    named = mine.denied & mine.nouns
    if not _has_same_subject(mine, theirs) or (named and named.isdisjoint(theirs.terms)):
        return False
    is_strong, is_weak = STRONG.search(mine.text) is not None, WEAK.search(mine.text) is not None
    changed = _changed_kinds(mine, theirs)
    if changed:
        return _gives_slot(mine, theirs, changed, is_strong=is_strong, is_weak=is_weak)
    if not (is_strong or is_weak) or mine.slots.keys() - theirs.slots.keys() - {"daytime"}:
        return False
    return _gives_words(mine, theirs, is_strong=is_strong)


def _has_same_subject(mine: Clause, theirs: Clause) -> bool:
    if theirs.name and theirs.name not in mine.terms:
        return False
    if mine.nouns & theirs.nouns and ASKS.search(mine.text):
        return True  # an instruction: "please write the comments in German from now on"
    if mine.subject and not theirs.subject and theirs.is_first and not mine.is_first:
        return not mine.subject.isdisjoint(theirs.terms) and bool(mine.verbs & theirs.verbs)
    if mine.subject:
        return not mine.subject.isdisjoint(theirs.subject or theirs.terms)
    if not theirs.subject.isdisjoint(mine.terms):
        return True
    shared = (mine.nouns & theirs.nouns) or (mine.verbs & theirs.verbs)
    return bool(shared) and (mine.is_first or not theirs.is_first)


def _changed_kinds(mine: Clause, theirs: Clause) -> list[str]:
    found = []
    for kind, old in theirs.slots.items():
        new = mine.slots.get(kind, frozenset()) - (mine.denied - mine.given)
        is_other = new - old and (old - new if len(new) == len(old) else new.isdisjoint(old))
        if is_other:
            found.append(kind)
    if not found and mine.slots.keys() & _WHEN and not mine.slots.keys() & theirs.slots.keys():
        found += sorted(theirs.slots.keys() & _WHEN)  # "at night", and "at noon" now
    return found


_WHEN = frozenset({"time", "daytime"})


def _gives_slot(
    mine: Clause, theirs: Clause, changed: Sequence[str], *, is_strong: bool, is_weak: bool
) -> bool:
    """Decide for a value that has a kind."""
    added = mine.slots.keys() - theirs.slots.keys() - {"daytime"}
    if set(changed) & _WHEN:
        added -= _WHEN
    new = mine.nouns - theirs.nouns - mine.given - mine.denied
    old = theirs.nouns - mine.nouns
    if "id" in changed:
        new, old = new - mine.slots["id"], old - theirs.slots["id"]
    if is_strong:
        is_near = len(new) <= _MISSING and len(old) <= _MISSING
        return is_near and _is_same_measure(mine, theirs, changed[0])
    is_bundle = mine.slots.keys() == theirs.slots.keys() and mine.subject
    if (len(changed) > 1 and not (is_weak and is_bundle)) or added:
        return False
    if is_weak and len(new) <= 1 and _leads(mine, new) <= {""}:
        is_same_verb = (
            not (mine.verbs and theirs.verbs)
            or mine.verbs & theirs.verbs
            or _labels(mine, changed[0]) & _labels(theirs, changed[0])
        )
        has_common = mine.nouns & theirs.nouns or not old
        return bool(is_same_verb and has_common) and len(old) <= _MISSING
    if new or old or mine.verbs != theirs.verbs or changed[0] not in {"time", "id"}:
        return False
    if changed[0] == "time":  # of a state, not of an event ("has an interview at 11")
        return bool(mine.verbs & SINGLE) or IS.search(mine.text) is not None
    return all("/" in value or "." in value for value in mine.slots["id"] | theirs.slots["id"])


def _is_same_measure(mine: Clause, theirs: Clause, kind: str) -> bool:
    """True unless the verbs, or what a number counts, are others: "port 443", "stage 0", "43 lines"."""
    is_moved = not mine.verbs or mine.verbs == {LIVE}
    if not is_moved and theirs.verbs and mine.verbs.isdisjoint(theirs.verbs):
        return False
    ours, known = _labels(mine, kind), _labels(theirs, kind)
    return kind != "number" or not (ours and known) or not ours.isdisjoint(known)


def _labels(clause: Clause, kind: str) -> set[str]:
    """Return the words in front of the values of a kind and their units: "size 40", "40 euros"."""
    pairs = [*pairwise(clause.tokens)]
    units = {
        UNITS[unit.plain] for value, unit in pairs if value.kind == kind and unit.plain in UNITS
    }
    return units | {word.term for word, value in pairs if value.kind == kind and is_noun(word)}


def _gives_words(mine: Clause, theirs: Clause, *, is_strong: bool) -> bool:
    """Decide for a value in words."""
    new = mine.nouns - theirs.nouns - mine.denied
    old = theirs.nouns - mine.nouns
    if not new or not old or LIKE in mine.verbs & theirs.verbs:
        return False
    ours, known = _leads(mine, new), _leads(theirs, old)
    is_same_verb = not (mine.verbs and theirs.verbs) or bool(mine.verbs & theirs.verbs)
    if mine.verbs == {LIVE} and not theirs.verbs and theirs.tie != "be":
        is_same_verb = False  # a move, and no word of a place: "delivers to homes"
    is_foreign_move = mine.verbs == {LIVE} and not is_same_verb and not _is_move(mine, theirs)
    if is_strong and not is_foreign_move and _takes_place(ours, known, mine, theirs):
        return True
    if CORRECTS.search(mine.text) and mine.verbs & theirs.verbs and len(new) == len(old) == 1:
        return True
    if is_strong and WEAK.search(mine.text) and theirs.is_identity:
        return True  # "the landlord changed, now it's …"
    is_other_tie = mine.tie and theirs.tie and mine.tie != theirs.tie  # "has …", "is …"
    return (
        not (ours.isdisjoint(known) or is_other_tie)
        and is_same_verb
        and _is_single(mine, theirs, ours, known)
    )


def _is_single(mine: Clause, theirs: Clause, ours: set[str], known: set[str]) -> bool:
    """True if what the earlier statement says has one value at a time."""
    if known - {""} and not ours & known - {""}:
        return False
    if known - {""}:
        return bool(mine.nouns & theirs.nouns or mine.verbs & theirs.verbs & SINGLE)
    if theirs.tie == "be" and _has_other_qualifier(mine, theirs):
        return True
    if theirs.name or theirs.head not in mine.terms | {""}:
        return False
    is_named = NAMED in theirs.verbs and bool(theirs.subject)
    is_named = is_named and (NAMED in mine.verbs or not mine.has_verb)
    is_attribute = theirs.tie == "be" and (theirs.is_identity or len(theirs.subject) >= _MISSING)
    is_same = mine.subject & theirs.subject or (mine.verbs & SINGLE and mine.is_first)
    return is_named or is_attribute or bool(is_same and mine.verbs & theirs.verbs)


def _has_other_qualifier(mine: Clause, theirs: Clause) -> bool:
    """True if what is said is the same but for one word in front: "privately insured now"."""
    new, old = mine.nouns - theirs.nouns, theirs.nouns - mine.nouns
    if len(new) != 1 or len(old) != 1:
        return False
    return bool(_behind(mine, new) & _behind(theirs, old) - theirs.subject)


def _is_move(mine: Clause, theirs: Clause) -> bool:
    """True if one tells of a move, and the other of a place."""
    return mine.verbs == {LIVE} and bool(theirs.verbs) and theirs.verbs <= PLACED


def _takes_place(ours: set[str], known: set[str], mine: Clause, theirs: Clause) -> bool:
    """True if a value with these prepositions may be one of a change with those."""
    is_of_use = (theirs.tie == "be" and theirs.head in mine.terms) or USE in theirs.verbs
    if ours & {"place", "with"} and known == {""} and is_of_use:
        return True  # "switch the default currency to EUR"
    if ours & known:
        return known != {""} or theirs.tie != "have"  # "changed its menu" is no "has a terrace"
    return bool(known & {"with", "place"})


def _leads(clause: Clause, terms: frozenset[str]) -> set[str]:
    """Return the classes of the prepositions in front of the words; "" for none."""
    found, before = set[str](), ""
    for each in clause.tokens:
        if each.term in terms and is_noun(each):
            found.add(LEAD_OF.get(before, ""))
        elif each.plain not in ARTICLES and not is_noun(each):
            before = each.plain
    return found


def _has_more(mine: Clause, theirs: Clause) -> bool:
    """True if the earlier statement has a part that the later one says nothing about."""
    parts = [part for part in PART.split(f" {theirs.text} ") if part and part.strip()]
    if len(parts) == 1:
        return False
    said = (mine.terms | mine.denied) - theirs.subject
    kinds = set(_changed_kinds(mine, theirs))
    given = sum(each.kind in kinds for each in read_tokens(mine.text))
    valued = [part for part in parts if any(each.kind in kinds for each in read_tokens(part))]
    if 0 < given < len(valued):  # "45 minutes and 30 pounds", and one value
        return True
    for part in parts:
        tokens = [each for each in read_tokens(part) if each.kind not in {"punctuation", "unit"}]
        terms = {
            each.term for each in tokens if is_noun(each) or each.term[0] == "="
        } - theirs.subject
        values = {each.kind for each in tokens if each.kind}
        nouns = {term for term in terms if term[0] != "="}
        if (terms or values) and (nouns or terms).isdisjoint(said) and not values & kinds:
            return True
    return False


# --- search --------------------------------------------------------------------------------------


def key_words(text: str) -> list[str]:
    """Return the terms by which statements are found that this one repeats or changes.

    First those of things and people, the longest first, which are usually the rarest; then days and
    verbs.  A term is one for all forms of a word.  Of a text without any of these, all its words.
    """
    found = read_tokens(fold(text))
    nouns = {each.term for each in found if is_noun(each)}
    others = {each.term for each in found if each.kind in KEYED_KINDS or each.term[0] == "="}
    terms = [*sorted(nouns, key=lambda term: (-len(term), term)), *sorted(others - nouns)]
    return terms or list(dict.fromkeys(each.plain for each in found if each.plain.isalnum()))


KEYED_KINDS = frozenset({"day", "month", "daytime", "rate"})
