# ruff: noqa: RUF001 - users type typographic quotes
"""Statements: the sentences of a conversation, classified by what they ask of later turns.

A deterministic first reading, in English and German, used where no model may be asked or where a
model's word must be checked.  A sentence is kept verbatim, so a wrong class costs rank, not
content.  Only what a user or the model wrote is read; text that a tool returned has no authority
(`core.trust.fences`) and is never classified.

The cues are words that the class can hardly be expressed without.  A sentence gets the first class
of `CUES` that matches; the order is that of the damage done when it is forgotten.  A user's sentence
without a cue gets the class of its form (`core.context.forms`), if that binds.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import msgspec

from palyra.core.context.forms import find_form
from palyra.core.context.sense import find_sense
from palyra.core.context.speech import find_talk, plain, without_lead

StatementKind = Literal[
    "constraint", "convention", "preference", "decision", "ask", "fact", "finding", "remark"
]
MAX_READ_CHARS = 32_768  # of one message; what follows is a paste
MAX_SENTENCE_CHARS = 600  # a longer one is read clause by clause; a longer clause is a paste
_WRAPPED_CHARS = 40  # of a line that may go on in the next one
_CLAUSE = re.compile(r"[,;]\s+|\s+[-–—]\s+")
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})(.*)")
_RULER = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*")  # between the head of a table and its rows
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
# A sentence ends at a mark before a blank and a capital, digit, quote or bracket; not after the
# abbreviations that are common in instructions, and not within a number or a name of a file.
_END = re.compile(
    r"[.!?…](?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bHr\.)(?<!\bFr\.)(?<!\bProf\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bz\.B\.)(?<!\bd\.h\.)(?<!\bvs\.)(?<!\bca\.)(?<!\bNr\.)"
    r"(?<!\bno\.)[\"'”’)\]]*(?=\s+[\w\"'“‘(\[`@/])"
    r"(?!(?<=\d\.)\s+(?i:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|"
    r"Dezember))|[。！？]"  # the mark first: it is rare
)


class Cues:
    """Alternative cues in small letters, each as whole words.

    The text is lowered instead of comparing without case: then an alternative that begins with
    another letter costs one comparison, and a search a third of the time.
    """

    def __init__(self, cues: Iterable[str]) -> None:
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(cues)})(?!\w)")

    def search(self, text: str) -> bool:
        """True if a cue is in the text."""
        return self._pattern.search(text.lower()) is not None

    def match(self, text: str) -> bool:
        """True if the text begins with a cue."""
        return self._pattern.match(text.lower()) is not None


def whole_words(*cues: str) -> Cues:
    return Cues(cues)


def _misspelt(*words: str) -> tuple[str, ...]:
    """Return the words, and each with a letter missing or two exchanged; the first letter stays."""
    return tuple(
        dict.fromkeys(
            form
            for word in words
            for at in range(1, len(word))
            for form in (
                word,
                word[:at] + word[at + 1 :],
                word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :],
            )
        )
    )


# A person takes something back, even where the sentence repeats little of what it corrects.
_TAKES_BACK = (
    r"actually", r"correction", r"corrected", r"i meant", r"i was wrong", r"(?:was|is|are) wrong",
    r"(?:scratch|scrap|strike|forget) that", r"no,? wait", r"wait,? no", r"hang on", r"hold on",
    r"nope", r"oops", r"sorry", r"typo", r"my (?:mistake|bad)", r"make (?:that|it)", r"on second thoughts?",
    r"chang(?:e|ed|ing) my mind", r"has (?:moved|changed)", r"i misspoke", r"mistyped", r"swap",
    r"is out", r"eigentlich", r"korrektur", r"korrigiere", r"ich meinte", r"doch lieber", r"lieber doch",
    r"ach nein", r"nein,? doch", r"halt,? nein", r"moment,? nein", r"vertippt", r"mein fehler",
    r"war falsch", r"ist falsch", r"quatsch", r"doch nicht", r"anders überlegt", r"nee,? doch",
)  # fmt: skip
TAKES_BACK = whole_words(*_TAKES_BACK)
# Not before `than` and `als`: "no longer than 30 lines" bounds a quantity and takes nothing back.
CORRECTION = whole_words(
    *_TAKES_BACK, r"no longer(?!\s+than\b)", r"any ?more(?!\s+than\b)", r"not \S+(?: \S+){0,5}? but", r"instead(?: of)?",
    r"rather than", r"from now on", r"(?:change|changed|rename|renamed|move|moved|switch|switched)"
    r" .{1,80}? (?:to|into)", r"replaces?", r"replaced (?:by|with)", r"supersedes?", r"update:",
    r"forget (?:what|that|about)", r"not \S+ any ?more(?!\s+than\b)", r"(?:now|new) (?:is|value|name|one)",
    r"stattdessen", r"statt", r"anstatt", r"anstelle", r"nicht\s+mehr(?!\s+als\b)", r"ab jetzt", r"ab sofort",
    r"vergiss", r"\S+, (?:not|nicht) \S+",
    r"nicht \S+(?: \S+){0,5}? sondern", r"heißt jetzt", r"ist jetzt", r"ersetzt",
)  # fmt: skip

# Words of choice; the model's announcements of its next action ("let's look") have none of them.
_USES = r"(?:use|keep|adopt|stay|go|stick|store|build|base|switch|move|take (?!a ))"
_CHOOSES = (
    r"decided", r"decision", r"going with", r"goes? with", r"went with", r"chose", r"chosen",
    r"opt(?:ed|ing)? for", r"settl(?:e|es|ed|ing) (?:on|for)", r"picked", r"agreed", r"stay with",
    rf"(?:we|i)(?:[’']ll| will| shall| are going to)? (?:now |just |simply )?{_USES}(?! \S+ to)",
    rf"let[’']?s {_USES}", r"we (?:take|took|choose|picked)", r"wins?(?: for| over)?", r"winner",
    r"(?:moves?|switch(?:es|ed|ing)?|migrat\w+|mov(?:ed|ing)) to", r"therefore", r"hence", r"thus",
    r"in favou?r of", r"entschieden", r"entscheidung", r"(?:wir )?nehmen(?: wir)?", r"gewählt",
    r"bleiben bei", r"einigen uns", r"beschlossen", r"setzen (?:wir )?auf", r"nutzen wir", r"deshalb",
    r"daher", r"darum", r"entscheide",
)  # fmt: skip

CUES: tuple[tuple[StatementKind, Cues], ...] = (
    ("constraint", whole_words(
        *_misspelt("never", "always", "without", "should", "niemals", "nicht ohne"), r"must",
        r"mustn[’']?t", r"no (?!problem|worries|idea|wait|thanks|hurry|rush|need to thank)\w+",
        r"nothing", r"nobody", r"no one", r"none", r"not (?:a|more|on|in|before|after|until|by|to)",
        r"if", r"unless", r"whenever", r"until", r"except", r"as long as", r"before you", r"in case",
        r"frozen", r"freeze", r"read[- ]only", r"untouch\w*", r"remains?", r"stays?", r"stop",
        r"essential", r"crucial", r"vital", r"important", r"mandatory", r"necessary", r"reject(?:ed)?",
        r"free to", r"(?:are|is) allowed", r"permitted", r"ought", r"budget", r"cap", r"max(?:imum)?",
        r"min(?:imum)?", r"(?:under|over|above|below|up to) \d\S*", r"every(?: ?time|where|thing)",
        r"treat", r"compatible", r"confidential", r"secret", r"nichts", r"niemand(?:em|en)?",
        r"kein\w*", r"bleib\w*", r"soll\w*", r"finger weg", r"tabu", r"falls", r"wenn", r"sobald",
        r"sofern", r"solange", r"erst", r"ohne", r"pflicht", r"zwingend", r"unbedingt", r"außer",
        r"frühestens", r"spätestens", r"bevor", r"no[- ]go", r"bann?(?:ed|s)?", r"steer clear", r"away from",
        r"off the table", r"out of (?:bounds|the question)", r"taboo", r"won[’']?t (?:accept|tolerate|have)",
        r"will not (?:accept|tolerate|have)", r"outlawed", r"prohibits?", r"disallow\w*", r"(?:not|no) (?:an )?"
        r"option", r"obligatory", r"compulsory", r"imperative", r"(?:expected|supposed|meant|obliged) to",
        r"(?:is|are) needed", r"provided", r"providing", r"assuming", r"in doubt", r"as soon as",
        r"on condition", r"only after", r"due(?! to\b)", r"no later than", r"at the latest",
        r"only (?:i|we|me)", r"strictly", r"exclusively", r"nur (?:ich|wir)", r"defaults? to", r"you have until",
        r"gesperrt", r"untersagt", r"unzulässig", r"unerwünscht", r"verzicht\w*", r"unterlass\w*", r"tabus?",
        r"hände weg", r"notwendig", r"nötig", r"erforderlich", r"vorausgesetzt", r"im zweifel\w*",
        r"im fall\w*", r"angenommen", r"fällig", r"stichtag", r"abgabe(?:termin)?", r"do not", r"don[’']?t", r"shall", r"may not",
        r"may only", r"cannot", r"can[’']?t", r"should not", r"shouldn[’']?t", r"only (?:use|touch|"
        r"change|edit|write|run|call|if|when|after|with|in|on|the|for)", r"no more than", r"at most",
        r"at least", r"not (?:allowed|permitted|acceptable)", r"forbidden", r"prohibited", r"required",
        r"requirement", r"constraint", r"under no circumstances?", r"without (?:asking|my|approval|"
        r"permission)", r"make sure", r"ensure", r"avoid", r"refrain", r"stick (?:to|with)", r"exactly (?:one|two|three|four|five|\d+)", r"genau (?:ein\w*|zwei|drei|vier|fünf|\d+)", r"where (?:it|they|he|she) (?:is|are)",
        r"bitte .{1,60}? nicht \w+(?:en|ern)", r"keep \S+(?: \S+)"
        r"{0,8}? (?:unchanged|untouched|intact|below|under|compatible|as (?:it|they))", r"off[- ]limits",
        r"hands off", r"rules?", r"needs? to", r"has to", r"have to", r"ask (?:me )?(?:before|first)",
        r"leave .{1,60}? alone", r"limit(?:ed)? to", r"out of scope", r"within", r"deadline",
        r"muss", r"müssen", r"musst", r"darf", r"dürfen", r"darfst", r"nie", r"niemals", r"immer",
        r"nicht (?:ändern|anfassen|verwenden|benutzen|löschen|veröffentlichen|ohne)", r"keine?n?",
        r"es gilt", r"gilt:", r"(?:ist|sind|bleibt|steht) fix", r"\w+ only(?=[.!]*$)",
        r"nowhere else", r"nirgends sonst", r"(?:i|we|ich|wir) (?:need|want|expect|require|will|wollen|möchte\w*|brauche\w*) (?:every|all|each|any|jede\w*|alle\w*)",
        r"(?:pro|je|per) \S+ (?:an?|one|two|\d+|eine?n?|zwei|höchstens|maximal)", r"durchgehend", r"the way (?:it|they|he|she) (?:is|are|was|were)",
        r"(?:write|answer|reply|speak|schreib\w*|formulier\w*|antwort\w*|sprich) (?:\w+ )?(?:in|auf|im|as if|so)",
        r"no exceptions?", r"without exception", r"ohne ausnahmen?", r"(?:that|this)(?:[’']s| is) (?:final|fixed|how we (?:do|work)|the (?:rule|deal))",
        r"non-negotiable", r"not negotiable", r"nicht verhandelbar", r"red line", r"deal-?breaker", r"whatever you do", r"hold off",
        r"first,? (?:and )?(?:only )?then", r"(?:zuerst|erst) .{1,60}? dann", r"not (?:more|longer|larger|bigger) than", r"nicht (?:mehr|länger|größer) als",
        r"throughout", r"at all times", r"word for word", r"verbatim", r"wörtlich", r"wortwörtlich", r"durchgängig", r"sign[- ]?off", r"go[- ]ahead",
        r"(?:my|your|his|her) (?:ok|okay|approval|permission|consent)", r"mein\w* (?:ok|okay|freigabe|zustimmung|erlaubnis)", r"freigabe", r"rücksprache",
        r"as (?:is|they are|it is)", r"so,? wie (?:sie|er|es|die|das)", r"(?:rühr|fass|pack|tast)\w*\b.{1,60}?\bnicht an", r"halt\w* dich", r"lass\w* .{1,60}? (?:weg|stehen|liegen|in ruhe)",
        r"weglassen", r"nachfragen", r"vorher (?:fragen|nachfragen)", r"bitte (?:nur|keine?n?|nichts?|nie|erst)", r"nur (?:auf|über|per|bei|im|am|beim|zum|zur|lese\w*|englisch|deutsch)",
        r"english only", r"only english", r"banned", r"sacred", r"heilig",
        r"verboten", r"höchstens", r"mindestens", r"maximal", r"achte darauf", r"stelle? sicher",
        r"vermeide", r"regel", r"vorgabe", r"ausschließlich", r"nur (?:mit|in|wenn|nach|für|die|das|"
        r"den)", r"auf keinen fall", r"frag(?:e)? (?:mich )?(?:vorher|zuerst)",
    )),
    ("convention", whole_words(
        r"conventions?", r"code style", r"\w+[- ]spaces?", r"semicolons?", r"columns", r"type hints",
        r"branches", r"are (?:called|named)", r"heißen", r"lower[- ]?case", r"upper[- ]?case",
        r"(?:start|begin|end)s? with", r"comments?", r"imports?", r"style guide", r"naming", r"(?:snake|camel|kebab|pascal)"
        r"[_ -]?case", r"indent(?:ation|ed)?", r"tabs", r"spaces", r"prefix(?:ed)?", r"suffix(?:ed)?",
        r"commit messages?", r"docstrings?", r"we (?:write|name|format|put|call|use|follow|keep|sort)",
        r"our (?:style|standard|practice)", r"by convention", r"formatted", r"is written",
        r"konvention(?:en)?", r"schreibweise", r"einrückung", r"wir (?:schreiben|benennen|nennen|"
        r"formatieren|verwenden|benutzen)", r"üblich",
    )),
    ("preference", whole_words(
        r"prefer(?:s|red|ence)?", r"(?:a )?fan of", r"would (?:love|like|prefer|rather)", r"emojis?",
        r"keep (?:answers|replies|it|them)", r"concise", r"brief", r"terse", r"(?:reicht|reichen) mir",
        r"knapp", r"i(?:[’']d)? (?:rather|like|love|want|hate|dislike|enjoy)",
        r"i would (?:rather|like|prefer)", r"favou?rite", r"please (?:answer|reply|use|write|be|keep)",
        r"i(?:[’']m| am) (?:fond|allergic|a fan)", r"my (?:preference|choice)",
        r"ich (?:mag|bevorzuge|möchte|will|hätte|hasse|liebe)", r"lieber", r"am liebsten", r"bevorzugt",
        r"i(?:[’']d| would) sooner", r"suits? me", r"keen on", r"fond of", r"(?:easier|better|best) for me",
        r"happie(?:r|st)", r"can[’']?t stand", r"could do without", r"gets on my nerves", r"annoy(?:s|ing)",
        r"lieg(?:t|en) mir", r"halte ich (?:wenig|viel|nichts)", r"nicht leiden", r"gefällt mir", r"gefallen mir",
        r"i find", r"(?:bore|irritate|tire|please|delight|confuse|help)s? me", r"soft spot", r"any day",
        r"finde ich", r"ich finde", r"langweil\w* mich", r"schwäche",
        r"am besten", r"stör(?:t|en) mich", r"nerv(?:t|en)", r"mir wichtig",
        r"lieblings\w*",
    )),
    ("decision", whole_words(
        *_CHOOSES, r"decide", r"we(?:[’']ll| will| are going to| shall)", r"let[’']?s",
        r"choose", r"pick", r"the plan is", r"approach", r"wir werden",
    )),
    ("ask", whole_words(
        *_misspelt("please", "bitte"), r"(?:can|could|would|will) (?:you|u)", r"ping", r"at some point",
        r"when you(?:[’']?re| are) done", r"once (?:done|you)", r"we (?:still )?owe", r"appreciate",
        r"grateful", r"would be (?:great|nice|good)", r"at the end", r"in the end", r"look into",
        r"wäre (?:super|gut|schön|nett|toll|klasse)", r"am ende", r"denk(?:e)? (?:daran|dran)", r"meld\w*",
         r"todo", r"to[- ]do", r"remind", r"remember",
        r"don[’']?t forget", r"still (?:need|open|missing|to do)", r"open question", r"follow[- ]up",
        r"later", r"next", r"afterwards", r"let me know", r"tell me", r"waiting for", r"pending",
        r"kannst du", r"könntest du", r"vergiss nicht", r"erinnere", r"noch offen",
        r"offene frage", r"später", r"danach", r"sag mir", r"steht noch aus",
    )),
)  # fmt: skip
_CHOICE = whole_words(*_CHOOSES)
_FINDING = whole_words(
    r"root cause", r"(?:found|discovered|noticed|confirmed|learned|see) (?:that|out)", r"turns out",
    r"turned out", r"the (?:problem|issue|bug|reason|cause|culprit|fix) (?:is|was)", r"because",
    r"verified", r"measured", r"fails? (?:when|if|with|because)", r"caused by",
    r"ursache", r"grund", r"weil", r"stellt sich heraus", r"festgestellt", r"gemessen", r"liegt an",
)  # fmt: skip
_REASON = whole_words(
    r"because", r"since", r"so that", r"reason", r"due to", r"in order to", r"otherwise", r"to avoid",
    r"that way", r"weil", r"damit", r"grund", r"wegen", r"sonst", r"denn", r"um .{1,60}? zu",
)  # fmt: skip
_CONCLUDES = re.compile(
    r"(?:so|therefore|hence|thus|that is why|which is why|for that reason|deshalb|daher|darum|also|"
    r"deswegen|somit)\b",
    re.IGNORECASE,
)
_BECAUSE = re.compile(  # where a reason begins that follows its claim
    r"(?<=\w)[,;:]?\s+(?:[–—-]\s+)?(?:because|since|as (?:it|they|we|the|that)|so that|due to|in order to|"
    r"otherwise|to avoid|the reason|weil|damit|wegen|sonst|denn|da (?:er|sie|es|wir|die|der|das))\b",
    re.IGNORECASE,
)
# A value: something that a statement can be about and that a paraphrase cannot replace.
VALUE = re.compile(
    r"`[^`\n]{1,120}`|\"[^\"\n]{1,120}\"|“[^”\n]{1,120}”|'[^'\n]{2,60}'(?!\w)"  # quoted
    r"|https?://[^\s)>\]]+|(?:~|\.{0,2})/[\w./@+-]+"  # address, path
    r"|(?<![\w.])(?:[\w-]+(?:[._/:@][\w-]+)+|\w*\d[\w.,:-]*|[A-Z][A-Z0-9_-]{1,}"  # identifier, number
    r"|[A-Za-z]+[a-z]+[A-Z]\w*|[a-z]+[A-Z]\w*|[A-Z]{2,}[a-z]+\w*)(?![\w])"
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


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a message, without code blocks, pasted lines and list marks.

    A row of a table carries the heads of its columns.

    An item of a list carries the line that leads into it if that line has a cue: without `do not:`
    the item would say the opposite.  A line of more than MAX_SENTENCE_CHARS is read clause by
    clause; a clause with a cue keeps its neighbours.
    """
    lead = ""
    for line in _joined(_tables(list(_prose(text[:MAX_READ_CHARS].splitlines())))):
        bare = _BULLET.sub("", line).strip()
        is_item = bare != line.strip()
        if not bare:
            continue
        if is_item and lead:
            yield from _fit(f"{lead} {bare}")
            continue
        if not is_item:
            lead = bare if bare[-1] not in ".!?…" and _has_cue(bare) else ""
        start = 0
        for end in _END.finditer(bare):
            yield from _fit(bare[start : end.end()])
            start = end.end()
        yield from _fit(bare[start:])


_PERMITS = whole_words(
    r"may", r"might as well", r"allowed", r"permitted", r"fine", r"ok(?:ay)?", r"free to", r"safe to",
    r"feel free", r"welcome to", r"go ahead", r"approved", r"authori[sz]ed", r"no objection",
    r"acceptable", r"optional", r"(?:can|could|should|must|shall|needs? to|has to|have to)",
    r"rules?", r"constraints?", r"instructions?", r"polic(?:y|ies)", r"always", r"never", r"forbidden",
    r"erlaubt", r"darf(?:st)?", r"dürfen", r"kann(?:st)?", r"soll\w*", r"muss", r"regeln?", r"freigegeben",
    r"in ordnung",
)  # fmt: skip


def is_normative(text: str) -> bool:
    """True if the sentence says what may, must or must not be done."""
    return _PERMITS.search(text)


@lru_cache(maxsize=8_192)
def _has_cue(text: str) -> bool:
    return len(text) <= MAX_SENTENCE_CHARS and (
        any(cue.search(text) for _, cue in CUES) or find_form(text) is not None
    )


def _prose(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines outside code blocks; a block without an end is read like the rest."""
    mark, block = "", list[str]()
    for line in lines:
        fence = _FENCE.fullmatch(line)
        if mark:
            block.append(line)
            if fence is not None and fence[1].startswith(mark) and not fence[2].strip():
                mark, block = "", []
        elif fence is not None:
            mark = fence[1]
        else:
            yield line
    yield from block


def _tables(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, and each row of a table as `head: cell; head: cell`: alone it says nothing."""
    heads: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        cells = _cells(line)
        if not heads and cells and _RULER.fullmatch(following):
            heads = cells
        elif not cells:
            heads = []
            yield line
        elif heads and not _RULER.fullmatch(line):
            yield (
                "; ".join(
                    f"{head}: {cell}" if head else cell
                    for head, cell in zip(heads, cells, strict=False)
                )
                + "."
            )
        elif not heads:
            yield line


def _cells(line: str) -> list[str]:
    """Return the cells of a row of a table; none for another line."""
    row = line.strip()
    is_row = row.startswith("|") and row.endswith("|") and row.count("|") > 2  # noqa: PLR2004 - two cells
    return [cell.strip() for cell in row[1:-1].split("|")] if is_row else []


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Join lines that were wrapped within a sentence."""
    whole = ""
    for line in lines:
        goes_on = line[:1].islower() and len(whole) >= _WRAPPED_CHARS and whole[-1] not in ".!?:;"
        if goes_on and len(whole) < MAX_SENTENCE_CHARS and not _BULLET.match(line):
            whole = f"{whole.rstrip()} {line}"
        else:
            if whole:
                yield whole
            whole = line
    if whole:
        yield whole


def _fit(text: str) -> Iterator[str]:
    text = text.strip()
    if len(text) > MAX_SENTENCE_CHARS:
        yield from _clauses(text)
    elif len(text) > 2 and any(map(str.isalpha, text)):  # noqa: PLR2004 - "ok"
        yield text


def _clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a sentence that is too long, those with a cue with their neighbours."""
    cuts = [0, *(match.end() for match in _CLAUSE.finditer(text)), len(text)]
    spans = list(pairwise(cuts))
    kept = {
        near
        for place, (start, end) in enumerate(spans)
        if _has_cue(text[start:end])
        for near in (place - 1, place, place + 1)
    }
    begin = 0
    for place, (_, end) in enumerate(spans):
        after = spans[place + 1][1] if place + 1 < len(spans) else len(text) + MAX_SENTENCE_CHARS
        if {place, place + 1} <= kept and after - begin <= MAX_SENTENCE_CHARS:
            continue
        clause = text[begin:end].strip(" ,;")
        if 2 < len(clause) <= MAX_SENTENCE_CHARS:  # noqa: PLR2004 - "ok"
            yield clause
        begin = end


def read_user(text: str) -> Iterator[Statement]:
    """Yield every statement of a user's message."""
    for sentence in _with_reasons(_with_markers(sentences(text))):
        yield _classified(sentence)


@lru_cache(
    maxsize=8_192
)  # a summary is planned, then checked, and the next one meets the window again
def _classified(sentence: str) -> Statement:
    text = plain(sentence)
    kind: StatementKind = next((k for k, cue in CUES if cue.search(text)), "remark")
    corrects = CORRECTION.search(sentence)  # gets the class of what it corrects, whatever its form
    if sentence.endswith("?") and _TAG.search(text) is None:
        kind = "ask"
    elif kind == "remark" and not corrects and (form := _form_of(sentence, text)) is not None:
        kind = form
    if kind in {"remark", "ask"} and not sentence.endswith("?"):
        lasts = _LASTS.search(text) or _PASSIVE.search(without_lead(text)) is not None
        kind = "constraint" if lasts else _CLASS_OF.get(find_sense(sentence) or "", kind)
    is_own = kind == "constraint" and _tells_of_itself(sentence, text)
    if kind in BINDING and (is_own or find_talk(sentence) not in {None, "passing"}):
        kind = "remark"
    if kind == "remark" and (VALUE.search(sentence) or _NAME.search(sentence)):
        kind = "fact"
    return Statement(text=sentence, kind=kind, corrects=corrects)


def _form_of(sentence: str, text: str) -> StatementKind | None:
    """Return the class of the form, of the sentence as typed or without its first particles."""
    return find_form(sentence) or find_form(without_lead(text))


def _tells_of_itself(sentence: str, text: str) -> bool:
    """True for a sentence about the speaker that wants nothing: `I only use it on weekends`."""
    rest = without_lead(text)
    return bool(
        _OF_ITSELF.match(rest)
        and not _WANTS.search(rest)
        and find_sense(sentence) not in {"instruction", "taste"}
    )


_OF_ITSELF = re.compile(r"(?:i|i'm|i've|ich)\b")
_WANTS = re.compile(
    r"\b(?:want|need|expect|insist|require|prefer|demand|ask|only one|won't|will not|approve|decide|sign|review|rather|"
    r"appreciate|grateful|accept|allow|tolerate|will|möchte|bestehe|erwarte|verlange|brauche|wünsche|bitte|entscheide|prüfe|"
    r"freigebe|gefragt|hätte)\b"
)
_CLASS_OF: dict[str, StatementKind] = {"instruction": "constraint", "taste": "preference"}
_PASSIVE = re.compile(  # what is done to things of a kind
    r"^(?!(?:ich|es|er|sie|wir|i|he|she|it|they|we)\b).*\b(?:werden|wird) (?:\w+ ){0,3}(?:ge\w+(?:t|en)|\w+iert|ver\w+t|er\w+t)[.! ]*$|^(?!(?:i|he|she|it|they|we)\b)[\w' -]+ gets? \w+(?:ed|en) (?:by|with|as|in|to)\b"
)
_LASTS = whole_words(  # oblige a sentence that has no class of its own
    r"from (?:here|now|today|this point) on(?:wards?)?", r"going forward", r"henceforth", r"in (?:the )?future",
    r"until further notice", r"ab (?:jetzt|sofort|heute|nun|hier)", r"von (?:jetzt|nun|hier|heute) an", r"künftig",
    r"zukünftig", r"in zukunft", r"bis auf weiteres", r"grundsätzlich", r"generell", r"prinzipiell", r"jedes mal",
)  # fmt: skip
BINDING: frozenset[StatementKind] = frozenset({"constraint", "convention", "preference"})
_TAG = re.compile(
    r"(?:,|\bis that) (?:ok(?:ay)?|right|alright|please|yes|ja|gell|oder|nicht wahr|bitte|verstanden|understood|got it|klar) ?\?+$"
)


@lru_cache(maxsize=8_192)
def _only_takes_back(sentence: str) -> bool:
    return bool(TAKES_BACK.search(sentence) and is_elliptic(sentence) and not values(sentence))


def _with_markers(found: Iterable[str]) -> Iterator[str]:
    """Join a sentence that only takes something back (`No wait.`) with the next one."""
    held = ""
    for sentence in found:
        if not held and _only_takes_back(sentence):
            held = sentence
            continue
        yield f"{held} {sentence}" if held else sentence
        held = ""
    if held:
        yield held


def read_model(text: str) -> Iterator[Statement]:
    """Yield the decisions and findings of a model's message; its other sentences are narration."""
    for sentence in _with_reasons(sentences(text)):
        if sentence.endswith("?"):
            continue
        is_decision = _CHOICE.search(sentence)
        if is_decision or _FINDING.search(sentence):
            yield Statement(
                text=sentence,
                kind="decision" if is_decision else "finding",
                corrects=CORRECTION.search(sentence),
            )


def _with_reasons(found: Iterable[str]) -> Iterator[str]:
    """Join a decision with its reason in the sentence before or after it."""
    held = ""
    for sentence in found:
        if held and len(held) + len(sentence) < MAX_SENTENCE_CHARS and _belongs(held, sentence):
            held = f"{held} {sentence}"
            continue
        if held:
            yield held
        held = sentence
    if held:
        yield held


@lru_cache(maxsize=8_192)
def _belongs(before: str, after: str) -> bool:
    if before.endswith("?") or after.endswith("?"):
        return False
    concludes = _CONCLUDES.match(after) is not None and _CHOICE.search(after)
    explains = _CHOICE.search(before) and not _REASON.search(before)
    return concludes or (explains and _REASON.match(after))


def claim(text: str) -> str:
    """Return what a statement claims, without its reasons: a reason may be long, and negated.

    Of a decision joined with the sentence that explains it, the sentence with the choice.  A claim of
    fewer than two words of its own (`We use SQLite, because …`) keeps its reasons.
    """
    parts = list(sentences(text)) or [text]
    chosen = [part for part in parts if _CHOICE.search(part)] or parts
    claims = [
        _CONCLUDES.sub("", _BECAUSE.split(part, maxsplit=1)[0]).strip(" ,") for part in chosen
    ]
    whole = " ".join(filter(None, claims))
    return whole if len(topic(whole)) > 1 else text


@lru_cache(maxsize=4096)
def values(text: str) -> frozenset[str]:
    """Return the values of a text (numbers, names, paths, quoted words), unquoted and folded."""
    return frozenset(match.group().strip("`\"“”'.,:;").casefold() for match in VALUE.finditer(text))


@lru_cache(maxsize=4096)
def topic(text: str) -> frozenset[str]:
    """Return the words of a text that say what it is about: neither values nor function words."""
    words = (word.casefold() for word in WORD.findall(VALUE.sub(" ", text)))
    return frozenset(word for word in words if word not in STOP_WORDS and len(word) > 1)


# What a statement may say about its subject.  Two statements about one subject that name different
# attributes are about different things.
ATTRIBUTES = frozenset(
    [
        "port",
        "host",
        "hostname",
        "name",
        "version",
        "limit",
        "timeout",
        "path",
        "file",
        "folder",
        "directory",
        "url",
        "address",
        "ticket",
        "region",
        "owner",
        "deadline",
        "budget",
        "memory",
        "size",
        "user",
        "users",
        "customers",
        "requests",
        "rows",
        "license",
        "branch",
        "bucket",
        "token",
        "key",
        "schema",
        "date",
        "day",
        "time",
        "server",
        "servers",
        "database",
        "table",
        "pfad",
        "datei",
        "ordner",
        "adresse",
        "frist",
        "besitzer",
        "kunden",
        "zeilen",
        "anfragen",
        "tag",
        "datum",
        "uhr",
        "server",
        "datenbank",
        "tabelle",
    ]
)
MARKERS = frozenset(
    [
        "actually",
        "correction",
        "corrected",
        "meant",
        "wrong",
        "scratch",
        "scrap",
        "strike",
        "forget",
        "wait",
        "hang",
        "hold",
        "nope",
        "oops",
        "sorry",
        "typo",
        "mistake",
        "bad",
        "make",
        "second",
        "thought",
        "thoughts",
        "changed",
        "change",
        "mind",
        "moved",
        "has",
        "misspoke",
        "swap",
        "out",
        "eigentlich",
        "korrektur",
        "doch",
        "lieber",
        "ach",
        "nein",
        "halt",
        "moment",
        "vertippt",
        "fehler",
        "falsch",
        "quatsch",
        "anders",
        "überlegt",
        "nee",
        "hab",
        "habe",
        "port",
    ]
) - {"port"}


@lru_cache(maxsize=8_192)
def is_elliptic(text: str) -> bool:
    """True if a correction names no subject: `make that 9443`."""
    return not topic(text) - MARKERS - ATTRIBUTES
