# ruff: noqa: RUF001 - users type typographic quotes
"""Statements: the sentences of a conversation, classified by what they ask of later turns.

A deterministic first reading, in English and German, used where no model may be asked or where a
model's word must be checked.  A sentence is kept verbatim, so a wrong class costs rank, not
content.  Only what a user or the model wrote is read; text that a tool returned has no authority
(`core.trust.fences`) and is never classified.

The cues are words that the class can hardly be expressed without.  A sentence gets the first class
of `CUES` that matches; the order is that of the damage done when it is forgotten.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import msgspec

StatementKind = Literal[
    "constraint", "convention", "preference", "decision", "ask", "fact", "finding", "remark"
]
MAX_READ_CHARS = 32_768  # of one message; what follows is a paste
MAX_SENTENCE_CHARS = 600  # a longer one is a paste
_CODE_FENCE = re.compile(
    r"^[ \t]{0,3}(```|~~~)[^\n]*\n.*?(?:^[ \t]{0,3}\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
# A sentence ends at a mark before a blank and a capital, digit, quote or bracket; not after the
# abbreviations that are common in instructions, and not within a number or a name of a file.
_END = re.compile(
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\bz\.B)(?<!\bd\.h)(?<!\bvs)(?<!\bca)(?<!\bNr)(?<!\bno)"
    r"[.!?…][\"'”’)\]]*(?=\s+[\w\"'“‘(\[`@/])|(?<=[。！？])"
)


def _words(*cues: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(cues)})(?!\w)", re.IGNORECASE)


CORRECTION = _words(
    r"actually", r"correction", r"corrected", r"i meant", r"i was wrong", r"(?:was|is|are) wrong",
    r"scratch that", r"no longer", r"any ?more", r"not \S+(?: \S+){0,5}? but", r"instead(?: of)?",
    r"rather than", r"from now on", r"(?:change|changed|rename|renamed|move|moved|switch|switched)"
    r" .{1,80}? (?:to|into)", r"replaces?", r"replaced (?:by|with)", r"supersedes?", r"update:",
    r"forget (?:what|that|about)", r"not \S+ any ?more", r"(?:now|new) (?:is|value|name|one)",
    r"eigentlich", r"korrektur", r"korrigiere", r"ich meinte", r"stattdessen", r"statt", r"anstatt",
    r"anstelle", r"nicht mehr", r"ab jetzt", r"ab sofort", r"war falsch", r"ist falsch", r"vergiss",
    r"nicht \S+(?: \S+){0,5}? sondern", r"heißt jetzt", r"ist jetzt", r"ersetzt",
)  # fmt: skip

CUES: tuple[tuple[StatementKind, re.Pattern[str]], ...] = (
    ("constraint", _words(
        r"must", r"mustn[’']?t", r"never", r"always", r"do not", r"don[’']?t", r"shall", r"may not",
        r"may only", r"cannot", r"can[’']?t", r"should not", r"shouldn[’']?t", r"only (?:use|touch|"
        r"change|edit|write|run|call|if|when|after|with|in|on|the|for)", r"no more than", r"at most",
        r"at least", r"not (?:allowed|permitted|acceptable)", r"forbidden", r"prohibited", r"required",
        r"requirement", r"constraint", r"under no circumstances?", r"without (?:asking|my|approval|"
        r"permission)", r"make sure", r"ensure", r"avoid", r"refrain", r"stick to", r"keep \S+(?: \S+)"
        r"{0,8}? (?:unchanged|untouched|intact|below|under|compatible|as (?:it|they))", r"off[- ]limits",
        r"hands off", r"rules?", r"needs? to", r"has to", r"have to", r"ask (?:me )?(?:before|first)",
        r"leave .{1,60}? alone", r"limit(?:ed)? to", r"out of scope", r"within", r"deadline",
        r"muss", r"müssen", r"musst", r"darf", r"dürfen", r"darfst", r"nie", r"niemals", r"immer",
        r"nicht (?:ändern|anfassen|verwenden|benutzen|löschen|veröffentlichen|ohne)", r"keine?n?",
        r"verboten", r"höchstens", r"mindestens", r"maximal", r"achte darauf", r"stelle? sicher",
        r"vermeide", r"regel", r"vorgabe", r"ausschließlich", r"nur (?:mit|in|wenn|nach|für|die|das|"
        r"den)", r"auf keinen fall", r"frag(?:e)? (?:mich )?(?:vorher|zuerst)",
    )),
    ("convention", _words(
        r"conventions?", r"code style", r"style guide", r"naming", r"(?:snake|camel|kebab|pascal)"
        r"[_ -]?case", r"indent(?:ation|ed)?", r"tabs", r"spaces", r"prefix(?:ed)?", r"suffix(?:ed)?",
        r"commit messages?", r"docstrings?", r"we (?:write|name|format|put|call|use|follow|keep|sort)",
        r"our (?:style|standard|practice)", r"by convention", r"formatted", r"is written",
        r"konvention(?:en)?", r"schreibweise", r"einrückung", r"wir (?:schreiben|benennen|nennen|"
        r"formatieren|verwenden|benutzen)", r"üblich",
    )),
    ("preference", _words(
        r"prefer(?:s|red|ence)?", r"i(?:[’']d)? (?:rather|like|love|want|hate|dislike|enjoy)",
        r"i would (?:rather|like|prefer)", r"favou?rite", r"please (?:answer|reply|use|write|be|keep)",
        r"i(?:[’']m| am) (?:fond|allergic|a fan)", r"my (?:preference|choice)",
        r"ich (?:mag|bevorzuge|möchte|will|hätte|hasse|liebe)", r"lieber", r"am liebsten", r"bevorzugt",
        r"lieblings\w*",
    )),
    ("decision", _words(
        r"decided", r"decision", r"decide", r"we(?:[’']ll| will| are going to| shall)", r"let[’']?s",
        r"going with", r"go with", r"went with", r"chose", r"choose", r"chosen", r"opt(?:ed)? for",
        r"settled on", r"settle on", r"picked", r"pick", r"agreed", r"stay with", r"i(?:[’']ll| will) "
        r"(?:use|keep|take|go)", r"the plan is", r"approach",
        r"entschieden", r"entscheidung", r"wir nehmen", r"gewählt", r"bleiben bei", r"einigen uns",
        r"beschlossen", r"wir werden",
    )),
    ("ask", _words(
        r"please", r"can you", r"could you", r"would you", r"todo", r"to[- ]do", r"remind", r"remember",
        r"don[’']?t forget", r"still (?:need|open|missing|to do)", r"open question", r"follow[- ]up",
        r"later", r"next", r"afterwards", r"let me know", r"tell me", r"waiting for", r"pending",
        r"bitte", r"kannst du", r"könntest du", r"vergiss nicht", r"erinnere", r"noch offen",
        r"offene frage", r"später", r"danach", r"sag mir", r"steht noch aus",
    )),
)  # fmt: skip
_FINDING = _words(
    r"root cause", r"(?:found|discovered|noticed|confirmed|learned|see) (?:that|out)", r"turns out",
    r"turned out", r"the (?:problem|issue|bug|reason|cause|culprit|fix) (?:is|was)", r"because",
    r"verified", r"measured", r"fails? (?:when|if|with|because)", r"caused by",
    r"ursache", r"grund", r"weil", r"stellt sich heraus", r"festgestellt", r"gemessen", r"liegt an",
)  # fmt: skip
_REASON = _words(
    r"because", r"since", r"so that", r"as it", r"reason", r"due to", r"in order to", r"otherwise",
    r"to avoid", r"weil", r"da", r"damit", r"grund", r"wegen", r"sonst", r"um .{1,60}? zu",
)  # fmt: skip
# A value: something that a statement can be about and that a paraphrase cannot replace.
VALUE = re.compile(
    r"`[^`\n]{1,120}`|\"[^\"\n]{1,120}\"|“[^”\n]{1,120}”|'[^'\n]{2,60}'(?!\w)"  # quoted
    r"|https?://[^\s)>\]]+|(?:~|\.{0,2})/[\w./@+-]+"  # address, path
    r"|(?<![\w.])(?:[\w-]+(?:[._/:@][\w-]+)+|\w*\d[\w.,:-]*|[A-Z][A-Z0-9_-]{1,}"  # identifier, number
    r"|[a-z]+[A-Z]\w*)(?![\w])"
)
_NAME = re.compile(r"(?<=[\w,;:] )[A-ZÄÖÜ][\wäöüß-]{2,}")
WORD = re.compile(r"\w[\w'’-]*")
_FUNCTION_WORDS = (
    "a an and are as at be been but by can could did do does for from had has have he her his "
    "how i if in is it its just me my no not now of on or our out she should so than that the "
    "their them then there these they this to too up us was we were what when which who will "
    "with would you your aber als am an auf aus bei bin bist das dass dem den der des die du "
    "ein eine einem einen einer er es für hat ich ihr im in ist ja kein keine man mein mit "
    "nach nicht noch nur oder schon sich sie sind so und uns von vor war was wenn wer wie wir "
    "wird zu zum zur actually correction instead longer meant wrong rather please eigentlich "
    "korrektur stattdessen statt sondern mehr jetzt ab sofort use uses used using"
)
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A sentence and its class."""

    text: str
    kind: StatementKind
    corrects: bool = False  # it may replace an earlier statement
    gives_reason: bool = False


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a message, without code blocks, pasted lines and list marks."""
    for line in _CODE_FENCE.sub("\n", text[:MAX_READ_CHARS]).splitlines():
        bare = _BULLET.sub("", line).strip()
        start = 0
        for end in _END.finditer(bare):
            yield from _fit(bare[start : end.end()])
            start = end.end()
        yield from _fit(bare[start:])


def _fit(text: str) -> Iterator[str]:
    text = text.strip()
    if 2 < len(text) <= MAX_SENTENCE_CHARS and any(map(str.isalpha, text)):  # noqa: PLR2004 - "ok"
        yield text


def read_user(text: str) -> Iterator[Statement]:
    """Yield every statement of a user's message."""
    for sentence in sentences(text):
        kind: StatementKind = next((k for k, cue in CUES if cue.search(sentence)), "remark")
        if kind in {"remark", "decision", "preference", "convention"} and sentence.endswith("?"):
            kind = "ask"
        elif kind == "remark" and (VALUE.search(sentence) or _NAME.search(sentence)):
            kind = "fact"
        yield Statement(
            text=sentence,
            kind=kind,
            corrects=CORRECTION.search(sentence) is not None,
            gives_reason=_REASON.search(sentence) is not None,
        )


def read_model(text: str) -> Iterator[Statement]:
    """Yield the decisions and findings of a model's message; its other sentences are narration."""
    cue = next(cue for kind, cue in CUES if kind == "decision")
    for sentence in sentences(text):
        if sentence.endswith("?"):
            continue
        is_decision = cue.search(sentence) is not None
        if is_decision or _FINDING.search(sentence) is not None:
            yield Statement(
                text=sentence,
                kind="decision" if is_decision else "finding",
                corrects=CORRECTION.search(sentence) is not None,
                gives_reason=_REASON.search(sentence) is not None,
            )


@lru_cache(maxsize=4096)
def values(text: str) -> frozenset[str]:
    """Return the values of a text (numbers, names, paths, quoted words), unquoted and folded."""
    return frozenset(match.group().strip("`\"“”'.,:;").casefold() for match in VALUE.finditer(text))


@lru_cache(maxsize=4096)
def topic(text: str) -> frozenset[str]:
    """Return the words of a text that say what it is about: neither values nor function words."""
    words = (word.casefold() for word in WORD.findall(VALUE.sub(" ", text)))
    return frozenset(word for word in words if word not in STOP_WORDS and len(word) > 1)


_TERM = r"[\"'`“(]?[^\s,;!?\"'`”)]+[\"'`”)]?"
_INSTEAD = r"instead of|rather than|statt|anstatt|anstelle von"
_CHANGE = r"(?:change|rename|move|switch|replace|ersetze|ändere)\w*"
_TO = r"to|into|with|by|durch|in|zu|auf|nach"
_PAIRS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<new>{_TERM})\s+(?:{_INSTEAD})\s+(?:the\s+)?(?P<old>{_TERM})",
        rf"\b(?:{_INSTEAD})\s+(?P<old>{_TERM})",
        rf"\b(?:not|nicht)\s+(?P<old>{_TERM}),?\s+(?:but|sondern)\s+(?P<new>{_TERM})",
        rf"(?P<new>{_TERM}),?\s+(?:not|nicht)\s+(?P<old>{_TERM})\s*[.!]?$",
        rf"\b(?:no longer|nicht mehr|not)\s+(?P<old>{_TERM})",
        rf"\b(?:from|von)\s+(?P<old>{_TERM})\s+(?:{_TO})\s+(?P<new>{_TERM})",
        rf"\b{_CHANGE}\s+(?:the\s+)?(?P<old>{_TERM})\s+(?:{_TO})\s+(?P<new>{_TERM})",
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


def replaces(newer: Statement, old: str) -> bool:
    """True if the correction `newer` makes the earlier statement `old` invalid.

    Both must be about the same thing: apart from the terms that change, one of them has no word
    that the other lacks.  And `newer` must name a term of `old` as replaced, or give other values
    where all other words are the same.  Two statements with different values and no word of
    correction coexist: two servers have two ports.
    """
    if not newer.corrects:
        return False
    named_old, named_new = replacements(newer.text)
    about, about_old = topic(newer.text), topic(old)
    if named_old & _terms(old):
        mine, theirs = about - named_old - named_new, about_old - named_old
        return (mine <= theirs or theirs <= mine) and (not about_old or bool(about & about_old))
    mine, theirs = values(newer.text) - values(old), values(old) - values(newer.text)
    return bool(mine and theirs and about & about_old) and (
        about <= about_old or about_old <= about
    )
