# ruff: noqa: RUF001 - users type typographic quotes
"""Structure: signs that a message holds more than its user's own sentences.

Pasted text is written by others, and no list of its forms is complete: commits, logs, tables, mails,
chats, subtitles, configuration.  So the rule asks for the opposite.  A statement is alone if it is the
whole message: one paragraph of one line and one sentence, made of the characters of prose.  All other
statements wait for a person, since plain paragraphs around a sentence do not tell who wrote it.  The
line also has to begin as a person's own wish does, and to end without what a paste leaves behind it.
"""

import re

_LETTER = r"[^\W\d_]"
# The characters of a typed sentence; code in backticks and paths are single words of it.
_PROSE = re.compile(
    rf"(?:{_LETTER}|`[^`\n]+`|[~/]\w)"  # begins with a letter, a name or code
    r"(?:[^\W_]|[ ,.:!?'’()/%€$&+-]|`[^`\n]+`|(?<=\w)[_@#=*~](?=\w)|[“”„\"]|(?<= )[@~_#*](?=\w))*",
)
_SENTENCE_END = re.compile(r"[.!?…](?=\s+\S)")
_ABBREVIATION = re.compile(
    r"\b(?:e\.g|i\.e|z\.\s?B|d\.\s?h|vs|ca|Nr|no|etc|bzw|approx)\.$", re.IGNORECASE
)
_COLUMNS = re.compile(r"\S {2,}\S|,\S*[^\W\d]|;|\w,\w")
# `Author: …`, `12:04 …`, `level=info …`, `1. …`, `WARN …`: a label, a time, a level or a number first.
_LABELLED = re.compile(
    r"^(?:\W*\d[\d.,:/\-T+Z]*[\s)\]:.,-]|(?:TRACE|DEBUG|INFO|NOTE|NOTICE|WARN|WARNING|ERROR|FATAL|TODO|FIXME|HINT|CAUTION|IMPORTANT)\b"
    r"|[\w.@/-]+=\S|commit [0-9a-f]{7,}\b)"
)
_LABEL = re.compile(r"^([\w .@/'’-]{1,40}):(?=\s|$)")
_OWN_LABEL = re.compile(
    r"^(?:(?:please|bitte|ok|okay|and|also|hi|hey|hello|hallo|anyway|so)[, ]+)*(?:(?:our |the |final |a )?(?:decision|decided|rule|preference|fact|update|correction|reminder|info|fyi|important|ps|one (?:more )?thing|entscheidung|beschluss|beschlossene sache|regel|korrektur|wichtig|zur info|noch was)\b.*|for (?:all|every|my|our) .*|für (?:alle|meine|unsere) .*|bei (?:allen|uns) .*|note|remember(?: this)?|keep in mind|"
    r"memori[sz]e|don[’']?t forget|for (?:future reference|the future|the record|next time)|from now on|"
    r"going forward|in (?:the )?future|merke?(?: dir)?|merk dir(?: bitte)?|beachte|denk daran|ab (?:jetzt|sofort)|in zukunft)$",
    re.IGNORECASE,
)
_LATE_START = re.compile(  # a sentence that begins behind a word that is no part of it
    r"(?<![.!?:,] )(?<=\S )(?:From now on|Going forward|Always|Never|Remember|Please|Keep in mind|Ab jetzt|Ab sofort|Immer|Merke?)\b"
    r"|(?<![.!?:,] )(?<=\S )(?<!that )(?<!dass )(?<!emember )(?<!note )(?<!forget )(?<!mind )(?<!and )(?<!und )(?<!but )(?<!because )(?<!on )(?<!forward )(?<!future )(?<!reference )(?<!time )(?<!when )(?<!if )(?<!as )(?<!so )(?<!please )(?<!jetzt )(?<!Zukunft )(?<!think )(?<!guess )(?<!know )(?<!say )(?<!said )(?<!find )(?<!what )(?<!where )(?<!how )"
    r"(?:I|We|Ich|Wir) (?:always|never|prefer|want|hate|like|use|need|immer|nie|mag|will|bevorzuge|nutzen)\b"
)
# How a person's own sentence begins.  Each other begin, such as a name, a role or a column, waits.
_OWN_START = re.compile(
    r"^(?:(?:hi|hey|hello|hallo|ok|okay|also|and|but|und|oh|well|so|btw|by the way|fyi|übrigens|please|bitte|thanks|danke)[,!]? )*"
    r"(?:from now on|going forward|in (?:the )?future|for (?:future reference|the future|the record|next time)|remember|note|"
    r"(?:keep|bear) in mind|memori[sz]e|don[’']?t|do not|by default|as a rule|in general|generally|normally|usually|"
    r"ab (?:jetzt|sofort)|in zukunft|künftig|für die zukunft|merke?|merken|denke? (?:daran|dran)|vergiss nicht|beachte|"
    r"grundsätzlich|standardmäßig|normalerweise|in der regel|"
    r"I|I[’'](?:m|d|ve|ll)|we|we[’'](?:re|d|ve|ll)|my|our|ich|wir|mein\w*|unser\w*|"
    r"always|never|only|whenever|wherever|every time|each time|when|if|immer|nie|niemals|stets|jedes mal|wenn|falls|"
    r"call me|nenne? mich|use|answer|reply|write|speak|show|give|ask|keep|avoid|stop|prefer|run|sign|begin|start|end|treat|"
    r"nutze?|benutze?|verwende|antworte|schreibe?|sprich|zeige?|gib|frage?|vermeide|lass)\b",
    re.IGNORECASE,
)
# What is left of a signature, a date or a button behind an object: `the mirror Lena`, `our host 09:12`.
_TRAILER = re.compile(
    r"\b(?:the|an?|my|our|your|this|these|all|every)\s+[a-zäöüß'’-]+\s+(?:[A-Z][a-z]|[A-Z]{2}|[\d¹²³@#~/])"
    r"|[¹²³⁰-₉]|\)$|\s-\w|\s[~@#][\w.-]+$|\s/\w+$"
    r"|(?<!at)(?<!by)(?<!to)(?<!as)(?<!um)(?<!bis)(?<!ab)(?<!wie)(?<!like)(?<!from)(?<!until)(?<!before)(?<!after)"
    r"\s(?:\d{1,2}:\d\d|\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.\d{2,4})\.?$"
)
# A last clause or item begins with one of these; a name, a number or a greeting does not.
_LAST_CLAUSE = re.compile(
    r"(?:and|or|but|so|because|since|even|also|except|unless|until|without|with|in|on|for|from|to|then|as|at|by|if|when|where|"
    r"which|who|that|never|not|no|always|only|please|instead|rather|going|remember|note|keep|memori[sz]e|don[’']?t|do|I|we|my|our|"
    r"und|oder|aber|sondern|weil|denn|damit|außer|ohne|mit|auch|nie|nicht|kein\w*|immer|nur|bitte|wenn|falls|bevor|dass|ob|die|der|"
    r"das|den|auf|für|von|zu|bei|merke?|denke?|ich|wir|mein\w*|unser\w*)\b",
    re.IGNORECASE,
)
_LAST_ITEMS = re.compile(r"[a-zäöüß][\w-]*(?: [\w-]+)? (?:and|or|und|oder) [a-zäöüß]")
_SHOUT = re.compile(r"^[^\W\d_]{3,}\b(?<=[A-ZÄÖÜ]{3})(?<![a-zäöüß])")


def is_alone(message: str, statement: str) -> bool:
    """True if the statement is the whole message, and one sentence of prose."""
    return message.rstrip() == statement.strip() and is_sentence(statement.strip())


def is_sentence(text: str) -> bool:
    """True if the text is one sentence of prose, without a character of a structure around it."""
    label = _LABEL.match(text)
    return (
        _PROSE.fullmatch(text) is not None
        and _LABELLED.match(text) is None
        and _SHOUT.match(text) is None
        and _LATE_START.search(text) is None
        and _COLUMNS.search(text) is None
        and (label is None or _OWN_LABEL.match(label[1]) is not None)
        and text.count('"') % 2 == 0
        and text.count("(") == text.count(")")
        and not text.endswith((",", ":", "-", "–", "—", "/", "(", "&", "+", "="))
        and not any(
            not _ABBREVIATION.search(text[: end.end()]) for end in _SENTENCE_END.finditer(text)
        )
    )


def is_framed(text: str) -> bool:
    """True unless the text begins and ends as a sentence of a person about an own wish or fact does."""
    text = text.strip()
    own = _OWN_START.match(text) is not None and _TRAILER.search(text) is None
    return not (own and _has_own_end(text))


def _has_own_end(text: str) -> bool:
    """True unless what follows the last comma is no clause: a name, a number, a greeting."""
    _, comma, last = text.rpartition(", ")
    own = (_LAST_CLAUSE, _LAST_ITEMS, _OWN_START)
    return not comma or any(each.match(last) is not None for each in own)


_FRAGMENT = re.compile(
    r"^(?![/~]\w)[\W_](?<![`!])|^//|::|^\w+:\S|[.!?][,;]|= \"|\): |\w \"[^\"]+[.!]\"$|^`(?:[^` ]+ ){3,}[^`]*`$|[\t|]|-->|</|/>|\"\s*[:,]|,\"|\\[nt\"]|&\w+;|[{}]|[,;:|\[({<>=+]$|;\s*\S+;"
    r"|\S {3,}\S|\w,\w+[^,]*,\S|^\W*\d{1,4}[-:/.]\d\d[-:/.]\d\d|^[0-9a-f]{7,40}\s|^\d+[,;\t]"
)


_LABEL_WORDS = 3  # of a name or a field; more are a clause


def is_fragment(text: str) -> bool:
    """True if the text holds characters of the table, markup or log that it was cut from."""
    label = _LABEL.match(text)
    return (
        _FRAGMENT.search(text) is not None
        or _LATE_START.search(text) is not None
        or _LABELLED.match(text) is not None
        or (
            label is not None
            and len(label[1].split()) <= _LABEL_WORDS
            and not _OWN_LABEL.match(label[1])
        )
        or text.count('"') % 2 != 0
        or any(text.count(left) != text.count(right) for left, right in ("()", "[]"))
    )
