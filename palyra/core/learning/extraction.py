# ruff: noqa: RUF001 - users type typographic quotes
"""Extraction: the statements of a run that may be worth keeping, scored by what they say.

Only the user's own messages are read: what tools returned has no authority, and the model's words
are not the user's.  Every message is cut into statements (`core.context.statements`); each is
refused with a reason (`junk`), or scored by signs that are words of the statement itself:

    asked        the user asks to remember it, or to do so from now on
    lasting      it holds in general: always, never, by default
    own          it is about the user, the user's team or the user's things
    value        it names something concrete: a number, a path, a name
    unsure       a guess
    trouble      a problem report: it describes a state that is to end
    task         part of the present task: what is wanted, tried or pointed at now
    once         a wish for one occasion, or a state of today
    reported     the words or habits of another
    supposed     a supposition, an example, a condition
    past         what was, and may not be any more
    quoted       another author may have written it (`core.learning.quoted`)
    pasted       it is no paragraph of its own, or its message has a structure (`core.learning.structure`)
    framed       it begins or ends as no sentence of a person's does (`core.learning.structure`)
    hidden       it has characters that are invisible or imitate others (`core.text.visible`)

A score is the sum of the base of its kind and of its signs, from 0 to 10 000 basis points.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from palyra.core.context.statements import CUES, read_user, values, whole_words
from palyra.core.journal.records import CandidateKind, CandidateSource
from palyra.core.learning.candidates import FRAMED, FULL_BPS
from palyra.core.learning.junk import find_junk
from palyra.core.learning.quoted import is_quoted
from palyra.core.learning.structure import is_alone, is_fragment, is_framed
from palyra.core.memory.duplicates import is_recalled
from palyra.core.tape.events import (
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
    "value": 500,
    "unsure": -3_000,
    "once": -4_000,
    "reported": -4_000,
    "supposed": -4_000,
    "past": -2_000,
    "task": -4_000,
    "trouble": -4_000,
    "quoted": -4_000,
    "pasted": -1,  # a person decides; the score is what the words say
    FRAMED: 0,  # a person decides, and repetitions count
    "hidden": -4_000,
}

_LEAD = re.compile(
    r"^(?:(?:ok|okay|hi|hey|hello|hallo|also|and|by the way|btw|fyi|übrigens|so|please|bitte|oh|well)\b[, ]*)*"
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
_ASKED = whole_words(
    r"remember", r"keep in mind", r"bear in mind", r"don[’']?t forget", r"memori[sz]e",
    r"(?:please )?note", r"for (?:future reference|the future|the record|next time)", r"from now on",
    r"going forward", r"in (?:the )?future", r"merke? dir", r"merken", r"denke? (?:daran|dran)",
    r"vergiss nicht", r"ab (?:jetzt|sofort)", r"in zukunft", r"künftig", r"beachte",
)  # fmt: skip
_RECOLLECTS = whole_words(  # a memory of the user's own, no order to keep one
    r"(?:i|we|you|do you|they|she|he|can[’']?t|cannot|don[’']?t|if i) remember", r"remember(?:s|ed|ing)?"
    r" (?:when|how|the time|last|what|why)", r"as far as i remember", r"to remember", r"remember me",
)  # fmt: skip
DECLINED = re.compile(
    r"^(?:(?:please|bitte|ok|okay|and|also|but|und|so),?\s+)*(?:(?:do not|don[’']?t|never|no need to|you need not|"
    r"you don[’']?t (?:have|need) to) (?:ever |bother to )?(?:remember|memori[sz]e|note|save|store|learn|keep)\b"
    r"|(?:forget|unlearn|disregard)\b|vergiss(?! nicht)\b|(?:merke? dir|denke? (?:daran|dran)) (?:bitte )?(?:nicht|nie)\b)",
    re.IGNORECASE,
)
_REDACTED = re.compile(r"\[redacted:")  # a secret that the redactor removed before the tape
_LASTING = whole_words(
    r"always", r"never", r"by default", r"generally", r"in general", r"usually", r"normally", r"whenever",
    r"every (?:time|commit|change|answer|reply|file|test)", r"each (?:time|commit|change|file)", r"all (?:our|my|new|public)",
    r"as a rule", r"by convention", r"our convention", r"immer", r"nie", r"niemals", r"grundsätzlich",
    r"standardmäßig", r"normalerweise", r"in der regel", r"jedes mal", r"stets",
)  # fmt: skip
_OWN = whole_words(
    r"my", r"our", r"i (?:prefer|like|love|hate|dislike|want|use|work|live|am|have|need|always|never|"
    r"usually|really|speak|write|run|don[’']?t|do not|can[’']?t|cannot|store)", r"i[’']?m", r"we[’']?re", r"i[’']?d rather", r"we (?:use|deploy|run|have|always|never|keep|write|"
    r"host|store|follow|name|target|support|ship|work|build|prefer|decided|chose|agreed|want)", r"call me",
    r"mein\w*", r"unser\w*", r"ich (?:mag|bevorzuge|möchte|bin|habe|arbeite|wohne|heiße|nutze|hasse|"
    r"liebe|will|verwende|spreche)", r"wir (?:nutzen|verwenden|haben|schreiben|benutzen|deployen|testen|"
    r"betreiben|arbeiten|bevorzugen)", r"nenn(?:e)? mich",
)  # fmt: skip
_PREFERS = whole_words(
    r"(?:i|we) (?:\w+ )?(?:prefer|like|love|hate|dislike|want|enjoy|favou?r)",
    r"(?:i|we)(?: do not| don[’']?t) (?:like|want|use|need)", r"i[’']d rather", r"can[’']?t stand",
    r"my (?:preference|favou?rite|preferred)", r"prefer(?:s|red)?", r"call me", r"nenn(?:e)? mich",
    r"(?:ich|wir) (?:\w+ )?(?:mag|mögen|bevorzuge\w*|möchte\w*|hasse\w*|liebe\w*|will|wollen)", r"lieblings\w*", r"lieber",
)  # fmt: skip
_UNSURE = whole_words(
    r"maybe", r"perhaps", r"probably", r"possibly", r"i (?:think|guess|believe|assume|suppose)", r"might",
    r"not sure", r"apparently", r"seems?", r"could be", r"vielleicht", r"wahrscheinlich", r"vermutlich",
    r"ich (?:glaube|denke|vermute)", r"eventuell", r"wohl",
)  # fmt: skip
_ONCE = whole_words(
    r"today", r"tonight", r"tomorrow", r"yesterday", r"right now", r"just now", r"at the moment", r"currently",
    r"for now", r"for (?:this|that|the (?:next|current)) \w+", r"(?:only |just )?(?:this|that) (?:time|once|one|file|task|function|"
    r"case|run|message|question|answer|commit|branch|test|week|morning|afternoon|evening|session|chat)", r"just once", r"(?:only )?once",
    r"here", r"in this (?:\w+ )?(?:file|task|case|function|run|message|test|answer|session|chat|pr|example)",
    r"until \w+", r"temporar\w+", r"for the moment", r"this (?:week|month)", r"next (?:week|month|step)",
    r"heute", r"morgen", r"gestern", r"gerade", r"im moment", r"momentan", r"derzeit", r"vorerst", r"diesmal",
    r"dieses mal", r"einmal", r"bis \w+", r"vorübergehend", r"in dieser datei", r"hier", r"jetzt gerade",
)  # fmt: skip
_REPORTED = re.compile(
    r"\b(?:says|said|(?:they|people|docs|you) say|told|tells|claims|claimed|asks|asked|writes|wrote|thinks|suggests|suggested|"
    r"according to|mentioned|recommends|recommended|quote|reads|sagt|sagte|meint|meinte|schreibt|"
    r"schrieb|behauptet|laut|zufolge|empfiehlt)\b"
    r"|\b(?:he|she|they|his|her|their|er|sie) (?:\w+ )?(?:prefers?|likes?|loves?|hates?|wants?|uses?|mag|bevorzugt)\b"
    r"|^(?!(?:I|We|Our|My|The user|Ich|Wir)\b)(?:[A-ZÄÖÜ][a-zäöü]+|(?:the|a|some|most|many|other) \w+(?: \w+)?) "
    r"(?:always |never |usually |really |also )?(?:prefers?|likes?|loves?|hates?|wants?|dislikes?|mag|bevorzugt)\b",
    re.IGNORECASE,
)
_SUPPOSED = whole_words(
    r"if", r"suppose", r"imagine", r"assume", r"assuming", r"pretend", r"what if", r"let[’']?s say",
    r"for example", r"for instance", r"e\.g\.", r"such as", r"hypothetically", r"would", r"could", r"say that",
    r"in (?:the|a|my|this) (?:story|novel|example|scenario|game|play|sample|demo|mock(?:-?up)?|fixture|template)",
    r"falls", r"wenn", r"angenommen", r"zum beispiel", r"z\.b\.", r"stell dir vor", r"würde\w*", r"könnte\w*", r"hätte\w*",
    r"translate", r"übersetze", r"rewrite", r"summari[sz]e", r"a (?:test|sentence|line|string|message|text|poem|story|regex) (?:that|which|saying)",
    r"act as", r"you are",
)  # fmt: skip
_PAST = whole_words(
    r"used to", r"was", r"were", r"had", r"did", r"no longer", r"formerly", r"previously", r"back then",
    r"in the past", r"war", r"waren", r"hatte\w*", r"früher", r"damals", r"ehemals",
)  # fmt: skip
_TROUBLE = whole_words(
    r"fail(?:s|ed|ing|ure)?", r"errors?", r"crash(?:es|ed|ing)?", r"broken?", r"breaks?", r"problems?", r"issues?",
    r"bugs?", r"stuck", r"wrong", r"hangs?", r"(?:does|do|did|is|are|can)(?:n[’']?t| not) (?:work|start|compile|find|understand)\w*",
    r"missing", r"exceptions?", r"warnings?", r"timeouts?", r"times? out", r"has been", r"have been", r"in line \d+",
    r"confus\w+", r"lost", r"down", r"slow", r"not sure", r"black", r"empty", r"blank", r"frozen", r"fehler\w*", r"kaputt",
    r"problem\w*", r"hängt", r"abgestürzt", r"funktioniert nicht", r"geht nicht",
)  # fmt: skip
_TASK = whole_words(
    r"(?:i|we)(?: really| just| now| also)? (?:want|need|would like|would love)(?: to| you| the| this| that| it| a| an| some|"
    r" help)", r"(?:i[’']?d|we[’']?d) like", r"(?:i|we)(?: am|[’']m| are|[’']re) (?:\w+ )?\w+ing",
    r"(?:i|we) (?:am|[’']m|are|[’']re)? ?(?:almost|already|nearly|done|ready|back|finished|sure|afraid|sorry)",
    r"(?:i|we) have (?:an?|two|three|\d+|no|some|to) \w+", r"(?:use|like|love|want|need|prefer|hate|liked) (?:it|that|this|these|those|"
    r"what|how|(?:the|your) (?:first|second|third|last|other|former|latter|new|old|example|idea|answer|option|result)\w*)",
    r"options?", r"left", r"by (?:noon|tonight|\d+)", r"at \d+(?::\d\d)?(?: ?[ap]m)?", r"since (?!\d{4})\w+", r"this", r"these",
    r"ich (?:brauche|muss|versuche)", r"ich (?:möchte|will|hätte) (?:gern |gerne )?(?:dass|den|die|das|ein\w*|hier)", r"wir haben (?:ein\w*|noch)",
)  # fmt: skip
_LASTS_ANYWAY = whole_words(  # a want that says that it holds in general
    r"always", r"never", r"by default", r"from now on", r"in future", r"immer", r"nie", r"grundsätzlich",
)  # fmt: skip
_ASKS = dict(CUES)["ask"]
_STATES = re.compile(
    r"\b[\w]+[’'](?:m|re)\b|\b(?:is|are|(?<!\d )am|uses?|runs?|listens?|lives?|works?|has|have|needs?|requires?|stores?|hosts?|"
    r"deploys?|targets?|supports?|expires?|starts?|ends?|named|located|owned|maintained|belongs?|"
    r"means?|stands for|costs?|takes?|speaks?|decided|chose|agreed|ist|sind|"
    r"bin|heißt|heiße|läuft|laufen|nutzt|nutzen|verwendet|verwenden|liegt|wohnt|wohne|arbeitet|"
    r"arbeite|braucht|hat|haben|gehört|kostet|testen|betreiben|schreiben)\b",
    re.IGNORECASE,
)


class RunTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a run that are read for learning."""

    principal: str
    session_id: str
    messages: tuple[tuple[int, str], ...]  # seq and text of the user's messages
    trust: Trust  # lowest label of everything that the run read
    is_delegated: bool = False  # its message was written by a model
    channel: str | None = None
    is_confined: bool = False  # to the conversation of a channel


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that passed the rules, with its score and its place on the tape."""

    kind: CandidateKind
    text: str
    quote: str
    seq: int
    score_bps: int
    signals: dict[str, int]
    source: CandidateSource = "rules"
    corrects: str = ""  # id of the stored item that it makes untrue, by a model's claim


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
    for seq, event in events:
        match event:
            case RunAccepted():
                principal, session_id = event.principal, event.session_id
                channel, is_confined = event.channel, event.is_confined
                is_tainted = channel is not None  # other people wrote it
                is_delegated = event.depth > 0 or event.parent_run_id is not None
            case MessageReceived() | SteerReceived():
                messages.append((seq, event.text))
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
    )


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
    ranked = sorted(found.values(), key=lambda each: -each.score_bps)
    return Reading(found=tuple(ranked[:MAX_FOUND]), refused=refused)


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
    refused = find_junk(_TAIL.sub("", quote)) or refuse(text, recalled)
    if refused:
        return refused
    kind = _kind_of(quote, text)
    if kind is None:
        return "no_statement"
    signals = weigh(
        kind,
        quote,
        is_foreign=is_quoted(message, quote),
        is_alone=is_alone(message, quote),
        is_framed=is_framed(quote),
    )
    return Found(
        kind=kind, text=text, quote=quote, seq=seq, score_bps=score(signals), signals=signals
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


def plain(quote: str) -> str:
    """Return the statement without the request to remember it."""
    rest = quote[_LEAD.match(quote).end() :].strip()  # type: ignore[union-attr]  # every part is optional
    rest = _TAIL.sub(r"\g<end>", rest)
    return rest[:1].upper() + rest[1:] if rest[:1].islower() and rest.split()[0].isalpha() else rest


def _kind_of(quote: str, text: str) -> CandidateKind | None:
    if _PREFERS.search(text):
        return "preference"
    if _is_rule(quote, text):
        return "preference"
    return "fact" if _STATES.search(text) else None


def _is_rule(quote: str, text: str) -> bool:
    """True for an instruction that lasts: it says so, or the user asks for it from now on."""
    first = next(iter(read_user(text)), None)
    if first is None or first.kind not in {"constraint", "convention", "preference", "ask"}:
        return False
    if _STATES.search(text) and not _LASTING.search(text):
        return False
    return _LASTING.search(text) or _is_asked(quote)


def _is_asked(quote: str) -> bool:
    return _ASKED.search(quote) and not _RECOLLECTS.search(quote)


def weigh(
    kind: CandidateKind,
    quote: str,
    *,
    is_foreign: bool = False,
    is_alone: bool = True,
    is_framed: bool = False,
) -> dict[str, int]:
    """Return the summands of the score of a statement, by name."""
    text = plain(quote)
    present = {
        "asked": _is_asked(quote),
        "lasting": _LASTING.search(text),
        "own": _OWN.search(text),
        "value": bool(values(text)),
        "unsure": _UNSURE.search(text),
        "once": _ONCE.search(text),
        "reported": _REPORTED.search(text) is not None,
        "supposed": _SUPPOSED.search(text),
        "past": _PAST.search(text),
        "trouble": _TROUBLE.search(text),
        "quoted": is_foreign,
        "pasted": not is_alone,
        FRAMED: is_framed,
        "hidden": visible(text) != text,
        "task": (_TASK.search(text) and not _LASTS_ANYWAY.search(text))
        or (kind == "fact" and _ASKS.search(text)),
    }
    signs = {name: SIGNS_BPS[name] for name, is_there in present.items() if is_there}
    return {"base": BASE_BPS[kind], **signs}


def score(signals: dict[str, int]) -> int:
    """Return the sum of the signs, from 0 to 10 000."""
    return max(0, min(FULL_BPS, sum(signals.values())))
