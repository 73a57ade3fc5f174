# ruff: noqa: RUF001 - users type typographic quotes
"""Extraction: the statements of a run that may be worth keeping, scored by what they say.

Only the user's own messages are read: what tools returned has no authority, and the model's words
are not the user's.  Every message is cut into statements (`core.context.statements`); each is
refused with a reason (`junk`), or scored by signs that are words of the statement itself:

    asked        an order to remember it, or to do so from now on (`core.context.sense`)
    lasting      an instruction that holds in general
    own          it is about the user, the user's people and things, or is the user's taste
    settled      it was decided, or is no longer as it was
    definite     it is about a thing that both know
    value        it names something concrete: a number, a path, a name
    unsure       a guess
    task         a question, a request for one piece of work, a remark
    once         a wish for one occasion, or a state of today
    ironic       a joke, or the opposite is meant
    reported     the words, wants or habits of another
    supposed     a supposition, an example
    past         what was, and may not be any more
    taken_back   the next message says that it was a joke, or to forget it
    quoted       another author may have written it (`core.context.quoted`)
    pasted       it is no paragraph of its own, or its message has a structure (`core.learning.structure`)
    framed       it begins or ends as no sentence of a person's does (`core.learning.structure`)
    replaces     it takes back a stored item in words of its own
    hidden       it has characters that are invisible or imitate others (`core.text.visible`)

What the sentence says that lasts is its sense; a sentence without one is no statement.  A sentence
of several clauses is read clause by clause where it says nothing as a whole.

A score is the sum of the base of its kind and of its signs, from 0 to 10 000 basis points.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from palyra.core.context.quoted import MAYBE_BPS, quoted_bps
from palyra.core.context.sense import Sense, find_sense, is_order, is_transient
from palyra.core.context.speech import Talk, find_talk, is_passing
from palyra.core.context.statements import read_user, values, whole_words
from palyra.core.journal.records import CandidateKind, CandidateSource
from palyra.core.learning.candidates import FRAMED, FULL_BPS
from palyra.core.learning.junk import find_junk
from palyra.core.learning.structure import is_alone, is_fragment, is_framed
from palyra.core.memory.duplicates import is_recalled
from palyra.core.tape.events import (
    CompactionApplied,
    ContextGathered,
    ConversationInherited,
    Event,
    MessageReceived,
    RunAccepted,
    RunStarted,
    SteerReceived,
    ToolCompleted,
    ToolDecided,
)
from palyra.core.text.visible import visible
from palyra.core.trust.injection_scan import find_injections
from palyra.core.trust.labels import Trust, is_from_outside

MAX_STATEMENTS = 200  # of one run
MAX_FOUND = 40

BASE_BPS: dict[CandidateKind, int] = {"preference": 7_000, "fact": 6_000, "procedure": 0}
SIGNS_BPS = {
    "asked": 3_000,
    "lasting": 1_000,
    "own": 1_500,
    "settled": 1_500,
    "definite": 1_000,
    "noted": MAYBE_BPS,  # no form says that it lasts
    "value": 500,
    "unsure": -3_000,
    "once": -4_000,
    "ironic": -4_000,
    "reported": -4_000,
    "supposed": -4_000,
    "past": -4_000,
    "task": -4_000,
    "taken_back": -4_000,
    "quoted": -4_000,
    "pasted": MAYBE_BPS,  # a person decides; the score is what the words say
    FRAMED: 0,  # a person decides, and repetitions count
    "hidden": -4_000,
}
_SIGN_OF: dict[Sense, str] = {
    "instruction": "lasting", "taste": "own", "decision": "settled", "change": "settled", "own": "own", "definite": "definite", "noted": "noted",
}  # fmt: skip
_DOUBT_OF: dict[Talk, str] = {
    "ironic": "ironic", "reported": "reported", "supposed": "supposed", "past": "past", "idle": "task", "task": "task",
    "passing": "once",
}  # fmt: skip

_LEAD = re.compile(
    r"^(?:(?:ok|okay|hi(?: there)?|hey|hello|hallo|moin|also|and|but|und|aber|anyway|by the way|btw|fyi|just so you know|you know what|ach ja|noch was|übrigens|so|please|bitte|oh|well|actually|eigentlich)\b[,: ]*)*"
    r"(?:(?:please |bitte )?(?:(?:remember|note|keep in mind|bear in mind|don[’']?t forget|memori[sz]e|"
    r"save|merke? (?:dir|bitte)?|denk(?:e)? (?:daran|dran)|beachte|vergiss nicht)"
    r"(?: (?:for (?:later|next time|the future)|this|bitte))?(?:,? (?:that|dass))?[:,]?\s+"
    r"|(?:for (?:future reference|the future|the record|next time)|from now on|going forward|"
    r"in (?:the )?future|ab (?:jetzt|sofort)|in zukunft|künftig|für die zukunft)[:,]?\s+))?",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"[,;:]?\s+(?:and |so )?(?:please |bitte )?(?:(?:remember|note|memori[sz]e) (?:that|this|it)|keep (?:that|this|it) in mind|"
    r"don[’']?t forget(?: (?:that|this|it))?|merke? dir das|from now on|going forward|in (?:the )?future|ab jetzt|in zukunft|künftig)"
    r"(?:,? (?:please|bitte))?(?P<end>[.!]*)$",
    re.IGNORECASE,
)
DECLINED = re.compile(
    r"^(?:(?:please|bitte|ok|okay|and|also|but|und|so),?\s+)*(?:(?:do not|don[’']?t|never|no need to|you need not|"
    r"you don[’']?t (?:have|need) to) (?:ever |bother to )?(?:remember|memori[sz]e|note|save|store|learn|keep)\b"
    r"|(?:forget|unlearn|disregard)\b|vergiss(?! nicht)\b|(?:merke? dir|denke? (?:daran|dran)) (?:bitte )?(?:nicht|nie)\b)",
    re.IGNORECASE,
)
_REDACTED = re.compile(r"\[redacted:")  # a secret that the redactor removed before the tape
_UNSURE = whole_words(
    r"maybe", r"perhaps", r"probably", r"possibly", r"i (?:think|guess|believe|assume|suppose)", r"might", r"not sure",
    r"i['’]m not sure", r"seems?", r"could be", r"vielleicht", r"wahrscheinlich", r"vermutlich", r"ich (?:glaube|denke|vermute)",
    r"eventuell", r"wohl",
)  # fmt: skip
_TAKES_BACK = re.compile(
    r"^(?:(?:just |only )?(?:kidding|joking)|jk|j/k|nvm|never ?mind|forget (?:it|that|what i said)|scratch that|ignore that|not really|as if|"
    r"(?:nur |war (?:nur |ein )?)?(?:ein )?(?:scherz|spaß|witz)|vergiss (?:es|das)|quatsch|stimmt nicht|doch nicht|nee doch nicht)\b[^,]{0,40}$",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"(?:,|;| –| —| -)\s+(?:(?:and|but|so|und|aber|also|because|weil|denn)\s+)?|\s+(?:but|aber|and|und|so)\s+"
)
_CONTRAST = re.compile(r",?\s+(?:but|aber)\s+|,\s+so\s+")
_MIN_CLAUSE_WORDS = 3


class KeptStatement(NamedTuple):
    """A statement of the user that a compaction keeps, and the run in which it was made."""

    run_id: str
    text: str


class RunTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a run that are read for learning."""

    principal: str
    session_id: str
    messages: tuple[tuple[int, str], ...]  # seq and text of the user's messages
    trust: Trust  # lowest label of everything that the run read
    is_delegated: bool = False  # its message was written by a model
    channel: str | None = None
    is_confined: bool = False  # to the conversation of a channel
    kept: tuple[KeptStatement, ...] = ()  # what its compactions kept for the session


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that passed the rules, with its score and its place on the tape."""

    kind: CandidateKind
    text: str
    quote: str
    seq: int
    score_bps: int
    signals: dict[str, int]
    source: CandidateSource = "rules"
    corrects: str = ""  # id of the stored item that it makes untrue


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Result of reading one run."""

    found: tuple[Found, ...] = ()
    refused: dict[str, int] = {}  # statements by the reason


def read_texts(events: Iterable[tuple[int, Event]]) -> RunTexts:
    """Return what a run offers to learning.  Raises nothing; an empty tape has no messages.

    One text from outside, or one finding of the injection scanner, marks the whole run: the user's
    words after it may repeat a page.
    """
    principal = session_id = ""
    channel: str | None = None
    messages: list[tuple[int, str]] = []
    is_tainted = is_delegated = is_confined = False
    kept: tuple[KeptStatement, ...] = ()
    for seq, event in events:
        match event:
            case RunAccepted():
                principal, session_id = event.principal, event.session_id
                channel, is_confined = event.channel, event.is_confined
                is_tainted = channel is not None  # other people wrote it
                is_delegated = event.depth > 0 or event.parent_run_id is not None
            case MessageReceived() | SteerReceived():
                messages.append((seq, event.text))
            case CompactionApplied():
                own = (each for each in event.summary.ledger.facts if each.by == "user")
                kept = tuple(KeptStatement(each.run_id, each.text) for each in own)
            case RunStarted() | ConversationInherited():
                is_tainted |= event.is_tainted
            case ToolDecided():
                is_tainted |= event.taint
            case ToolCompleted():
                is_tainted |= bool(event.findings) or is_from_outside(event.trust)
            case ContextGathered():
                is_tainted |= any(
                    source.findings or is_from_outside(source.trust) for source in event.sources
                )
            case _:
                pass
    return RunTexts(
        principal=principal,
        session_id=session_id,
        messages=tuple(messages),
        trust="mixed" if is_tainted else "trusted_local",
        is_delegated=is_delegated,
        channel=channel,
        is_confined=is_confined,
        kept=kept,
    )


def only_kept(reading: Reading, texts: Iterable[str]) -> Reading:
    """Return of a reading what a compaction kept as well: both read a statement by the same rules."""
    known = tuple(texts)
    found = tuple(
        each
        for each in reading.found
        if any(each.quote in text or text in each.quote for text in known)
    )
    return msgspec.structs.replace(reading, found=found)


def extract(texts: RunTexts, recalled: Sequence[str]) -> Reading:
    """Return the statements of a run with their scores, best first, and why others are refused."""
    if texts.is_delegated:
        return Reading()
    found: dict[str, Found] = {}
    refused: dict[str, int] = {}
    messages = dict(texts.messages)
    for seq, quote in _statements(texts):
        read = _read(seq, quote, recalled, messages[seq])
        if isinstance(read, str):
            refused[read] = refused.get(read, 0) + 1
        elif read.text.casefold() not in found:
            found[read.text.casefold()] = read
    pairs = pairwise(texts.messages)
    doubted = {seq for (seq, _), (_, after) in pairs if _TAKES_BACK.match(after.strip())}
    kept = [_doubt(each) if each.seq in doubted else each for each in found.values()]
    ranked = sorted(kept, key=lambda each: -each.score_bps)
    return Reading(found=tuple(ranked[:MAX_FOUND]), refused=refused)


def _doubt(found: Found) -> Found:
    signals = {**found.signals, "taken_back": SIGNS_BPS["taken_back"]}
    return msgspec.structs.replace(found, signals=signals, score_bps=score(signals))


def _statements(texts: RunTexts) -> Iterator[tuple[int, str]]:
    count = 0
    for seq, text in texts.messages:
        for statement in read_user(text):
            count += 1
            if count > MAX_STATEMENTS:
                return
            if statement.text in text:  # joined sentences are not verbatim
                yield seq, statement.text
            else:
                yield from ((seq, part) for part in _parts(statement.text) if part in text)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.!])\s+", text)]


def _read(seq: int, quote: str, recalled: Sequence[str], message: str) -> Found | str:
    """Return the statement, or the reason of its refusal."""
    if DECLINED.match(quote):
        return "declined"
    text = plain(quote)
    refused = find_junk(_TAIL.sub("", _bare(quote))) or refuse(text, recalled)
    if refused:
        return refused
    meant = _find_meaning(quote, text)
    if meant is None:
        return "no_statement"
    text = meant.text
    signals = weigh(
        meant,
        quote,
        foreign_bps=quoted_bps(message, quote),
        is_alone=is_alone(message, quote),
        is_framed=is_framed(quote),
    )
    return Found(
        kind=meant.kind, text=text, quote=quote, seq=seq, score_bps=score(signals), signals=signals
    )


def refuse(text: str, recalled: Sequence[str]) -> str:
    """Return why a text is never learned, whatever its score; "" for nothing."""
    junk = find_junk(text)
    if junk is not None:
        return junk
    if is_fragment(text):
        return "fragment"
    if _REDACTED.search(text):
        return "secret"
    if find_injections(text):
        return "injection"
    return "recalled" if is_recalled(text, recalled) else ""


def _bare(quote: str) -> str:
    return quote[_LEAD.match(quote).end() :].strip()  # type: ignore[union-attr]  # every part is optional


def plain(quote: str) -> str:
    """Return the statement without the request to remember it."""
    rest = _bare(quote)
    rest = _TAIL.sub(r"\g<end>", rest)
    return rest[:1].upper() + rest[1:] if rest[:1].islower() and rest.split()[0].isalpha() else rest


class Meaning(NamedTuple):
    """Lasting content of a statement, and a reason to doubt it."""

    sense: Sense
    text: str
    talk: Talk | None = None

    @property
    def kind(self) -> CandidateKind:
        """Kind of the candidate."""
        return "preference" if self.sense in {"instruction", "taste"} else "fact"


def _find_meaning(quote: str, text: str) -> Meaning | None:
    """Return the meaning of a sentence, or else of its first clause that has one without a doubt."""
    talk, sense = _talk_of(quote), find_sense(quote)
    whole = None if sense is None else Meaning(sense, text, talk)
    if whole is not None and talk in _HARMLESS:
        return _with_consequence(whole)
    if talk in {"ironic", "supposed"}:
        return whole
    has_contrast = talk in {"reported", "idle", "task"} or is_transient(text)
    cut = _CONTRAST if has_contrast else _CLAUSE
    clauses = cut.split(text)
    for clause in clauses[1:] if has_contrast else clauses:
        found = find_sense(clause) if len(clause.split()) >= _MIN_CLAUSE_WORDS else None
        if found in {None, "definite", "noted"} or _talk_of(clause) not in _HARMLESS:
            continue
        return Meaning(found, text if talk in _HARMLESS else clause.strip(" ,;"))
    return whole


def _with_consequence(meant: Meaning) -> Meaning:
    """Return the meaning of a fact that is the reason of an instruction in the same sentence.

    The instruction is what the sentence is for: `I am colour-blind, so use viridis for every figure`.
    """
    if meant.sense not in {"own", "definite"}:
        return meant
    for cut in _CONSEQUENCE.finditer(meant.text):
        clause = meant.text[cut.end() :]
        found = find_sense(clause) if _talk_of(clause) in _HARMLESS else None
        if found == "instruction" or (found == "taste" and (cut["follows"] or cut["colon"])):
            return meant._replace(sense=found)
    return meant


_CONSEQUENCE = re.compile(
    r"(?:[,;]| –| —| -)\s+(?:(?:and|und|also)\s+)?(?P<follows>(?:so|therefore|hence|daher|deshalb|darum)\s+)?"
    r"|(?P<colon>:)\s+"
)


def _talk_of(text: str) -> Talk | None:
    talk = find_talk(text)
    return "passing" if talk == "own" and is_passing(text) else talk


_HARMLESS: frozenset[Talk | None] = frozenset({None, "own"})


def weigh(
    meant: Meaning,
    quote: str,
    *,
    foreign_bps: int = 0,
    is_alone: bool = True,
    is_framed: bool = False,
) -> dict[str, int]:
    """Return the summands of the score of a statement, by name."""
    doubt = None if meant.talk is None else _DOUBT_OF.get(meant.talk)
    is_decided = meant.sense == "decision" and doubt == "once"  # "today we decided"
    present = {
        "asked": is_order(quote),
        _SIGN_OF[meant.sense]: True,
        "value": _is_concrete(meant.text),
        "unsure": meant.sense != "taste" and _UNSURE.search(meant.text),
        "pasted": not is_alone,
        FRAMED: is_framed,
        "hidden": visible(meant.text) != meant.text,
    }
    signs = {name: SIGNS_BPS[name] for name, is_there in present.items() if is_there}
    if doubt is not None and not is_decided:
        signs[doubt] = SIGNS_BPS[doubt]
    if foreign_bps:
        signs["quoted"] = foreign_bps
    return {"base": BASE_BPS[meant.kind], **signs}


_CONCRETE = re.compile(
    r"(?<=[\w,;:.] )(?!I\b)[A-ZÄÖÜ](?:[\wäöüß-]{2,}|\b)|\b(?i:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|ninety|hundred|every|daily|weekly|monthly|yearly|always|never|only|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|zwölf|täglich|wöchentlich|monatlich|jeden?|jede|immer|nie|nur|montags?|dienstags?|mittwochs?|donnerstags?|freitags?|samstags?|sonntags?|called|named|heißt|heißen|genannt|januar|februar|märz|april|juni|juli|august|september|oktober|november|dezember|january|february|march|june|july|october|december|herr|frau)\b"
)


def _is_concrete(sentence: str) -> bool:
    """True if a sentence names something concrete: a value, a name, a number, a day."""
    return bool(values(sentence)) or _CONCRETE.search(sentence) is not None


def weigh_claim(kind: CandidateKind, said: str, foreign_bps: int) -> dict[str, int]:
    """Return the summands of the score of sentences in which a model found a statement."""
    fallback: Sense = "taste" if kind == "preference" else "definite"
    meant = _find_meaning(said, plain(said)) or Meaning(fallback, plain(said), find_talk(said))
    return {**weigh(meant, said, foreign_bps=foreign_bps), "base": BASE_BPS[kind]}


def score(signals: dict[str, int]) -> int:
    """Return the sum of the signs, from 0 to 10 000; a mark of -1 decides nothing here."""
    return max(0, min(FULL_BPS, sum(bps for bps in signals.values() if bps != MAYBE_BPS)))
