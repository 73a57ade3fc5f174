# ruff: noqa: RUF001 - users type typographic quotes
"""Evidence: a model's text must say what the user's sentence says, in the sentence's own words.

A share of common words proves nothing: "the tests do not need a network" has all words of its
opposite, "tabs over spaces" those of "spaces over tabs", and "port 8081" most of those of
"port 8080".  So the text has to be a run of consecutive words of the sentence:

- Equal words in the same order.  Articles, forms of *to be* in the present, *do* and softeners are
  left out of the comparison; *n't* is *not*; *I* and *we* are one, which the text may call *the
  user*; a word may differ by the ending of the present tense or the plural.  Every other word
  counts, so a negation, a number, a unit, a name or a qualifier that was added, removed, changed or
  moved breaks the run.
- The run begins and ends where a clause does.  "The man who hates Bob uses tabs" says nothing of
  Bob's tabs.
- The words left out neither deny nor limit it (`_LIMITS`), nor lead into it with a preposition
  ("In CI, …").
- The sentence is the whole one on the tape, however few of its words the model quotes, and if a
  quote is in several sentences, each has to support the text.  A question supports none.

A paraphrase that is true is refused with the false ones.  Such a fact waits for a repetition or for the
deterministic reading of the sentence (`extraction`), which needs no model.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from palyra.core.context.statements import MAX_SENTENCE_CHARS, sentences


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FREE = _words(
    "a an the that this these is are am be do does really very just also please so — – …"
    " ein eine einer eines einem einen der die das dem den des dass ist sind bin sehr auch bitte"
)
_SAME = {
    **dict.fromkeys(_words("i me my mine we us our ours ich mein meine mir wir unser"), "i"),
    **dict.fromkeys(_words("like likes prefer prefers"), "prefer"),
    **dict.fromkeys(_words("has have"), "have"),
    **dict.fromkeys(_words("no not kein keine keinen keiner keinem nicht"), "not"),
}
_SPLIT = {"cannot": "can not", "cant": "can not", "can't": "can not", "won't": "will not"}
_NOT = re.compile(r"(?P<verb>\w+?)n't|(?P<bare>do|does|did|is|are|was|were|should|must|has|have)nt")
_SHORT = re.compile(r"(?P<word>\w+)'(?P<end>s|m|re|ve|ll|d)")
_ENDS = {"s": "", "m": "", "re": "", "ve": " have", "ll": " will", "d": " would"}
_JOINTS = _words("and because since so und weil denn")
_PREPOSITIONS = _words(
    "in on at for with within under during after before since by from to among between outside"
    " inside bei im am an auf mit für während nach vor unter zwischen seit"
)
# Words that deny or limit their neighbours.
_LIMITS = _words(
    "not never without none nobody nothing neither nor nowhere hardly rarely seldom barely no-one"
    " cannot longer anymore stop stopped except unless until till only if when whenever while but"
    " although though however instead otherwise or false wrong untrue incorrect myth lie doubt"
    " doubtful deny denies unlikely supposedly allegedly hope hopes wish wishes nie niemals ohne"
    " nichts niemand weder nur außer falls wenn solange bis aber sondern obwohl oder falsch"
    " angeblich kaum selten mehr"
)
_EDGES = "\"'`“”„‘’«»()[]{}*_"
_STOPS = ",;:.!?…"
_PRESENT = ("es", "ing", "s", "e")
_STEM_CHARS = 2


class _Word(NamedTuple):
    plain: str
    opens: bool  # it begins a clause


def find_evidence(message: str, quote: str) -> list[str]:
    """Return the shortest runs of sentences of a message that hold the quote.

    [] if none does, and for a quote that is empty or too long to be a statement.
    """
    units = [" ".join(each.split()) for each in sentences(message)]
    wanted = " ".join(quote.split())
    if not 0 < len(wanted) <= MAX_SENTENCE_CHARS:
        return []
    starts = list(accumulate((len(each) + 1 for each in units), initial=0))
    whole = " ".join(units)
    places = (match.start() for match in re.finditer(f"(?={re.escape(wanted)})", whole))
    spans = ((bisect_right(starts, at) - 1, bisect_left(starts, at + len(wanted))) for at in places)
    return [" ".join(units[first:end]) for first, end in dict.fromkeys(spans)]


def is_supported(text: str, evidence: Sequence[str]) -> bool:
    """True if every run of sentences says the text, in one sentence or over all of them."""
    if not evidence or len(text) > MAX_SENTENCE_CHARS:
        return False
    return all(any(_says(each, text) for each in (run, *sentences(run))) for run in evidence)


def _says(sentence: str, text: str) -> bool:
    mine, theirs = _read(text), _read(sentence)
    size = len(mine)
    if not mine or sentence.rstrip(_EDGES).endswith("?"):
        return False
    return any(
        all(_is_same(one.plain, other.plain) for one, other in zip(mine, rest, strict=True))
        and _is_whole(theirs, start, start + size)
        for start in range(len(theirs) - size + 1)
        for rest in (theirs[start : start + size],)
    )


def _is_whole(words: Sequence[_Word], start: int, end: int) -> bool:
    """True if the words from start to end are whole clauses that the others leave as they are."""
    if not words[start].opens or (end < len(words) and not _parts(words[end])):
        return False
    left = (*words[:start], *words[end:])
    return not any(
        word.plain in _LIMITS or (word.opens and word.plain in _PREPOSITIONS) for word in left
    )


def _parts(word: _Word) -> bool:
    return word.opens or word.plain in _JOINTS


def _read(text: str) -> list[_Word]:
    """Return the words that count, in order."""
    found: list[_Word] = []
    opens, after_number = True, False
    for raw in unicodedata.normalize("NFKC", text).replace("\u2019", "'").split():
        bare = raw.strip(_EDGES).rstrip(_STOPS + _EDGES).lstrip(_EDGES)
        for plain in _plain(bare, is_exact=after_number):
            if after_number or plain not in _FREE:  # "9 am"
                found.append(_Word(_SAME.get(plain, plain), opens))
                opens = plain in _JOINTS
        after_number = any(map(str.isdigit, bare))
        opens = opens or raw.rstrip(_EDGES)[-1:] in tuple(_STOPS)
    return found


def _plain(word: str, *, is_exact: bool) -> list[str]:
    """Return a word as those it is short for; a value or unit stays as it is."""
    if not word.replace("'", "").replace("-", "").isalpha():
        return [word] if word else []
    low = word.casefold()
    if is_exact and low not in _SAME:
        return [word]  # "8 MB" is not "8 Mb"
    if low in _SPLIT:
        return _SPLIT[low].split()
    if match := _NOT.fullmatch(low):
        return [match["verb"] or match["bare"], "not"]
    if match := _SHORT.fullmatch(low):
        return f"{match['word']}{_ENDS[match['end']]}".split()
    return [low]


def _is_same(one: str, other: str) -> bool:
    """True for equal words and for two forms of the present tense or of number."""
    if "i" in {one, other}:  # a text calls the author "the user", whose own "users" are others
        return other == "i" and one in {"i", "user"}
    return one == other or (one.isalpha() and other.isalpha() and bool(_stems(one) & _stems(other)))


def _stems(word: str) -> set[str]:
    cut = (word.removesuffix(end) for end in _PRESENT if word.endswith(end))
    return {word, *(stem for stem in cut if len(stem) > _STEM_CHARS)}
