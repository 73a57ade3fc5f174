# ruff: noqa: RUF001 - users type typographic quotes
"""Structure: signs that a message holds more than its user's own sentences.

Pasted text is written by others, and no list of its forms is complete: commits, logs, tables, mails,
chats, subtitles, configuration.  So the rule asks for the opposite.  A statement is alone if it is the
whole message: one paragraph of one line and one sentence, made of the characters of prose.  All other
statements wait for a person, since plain paragraphs around a sentence do not tell who wrote it.
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
    r"^(?:(?:please|bitte|ok|okay|and|also|hi|hey|hello|hallo)[, ]+)*(?:note|remember(?: this)?|keep in mind|"
    r"memori[sz]e|don[’']?t forget|for (?:future reference|the future|the record|next time)|from now on|"
    r"going forward|in (?:the )?future|merke?(?: dir)?|merk dir(?: bitte)?|beachte|denk daran|ab (?:jetzt|sofort)|in zukunft)$",
    re.IGNORECASE,
)
_LATE_START = re.compile(  # a sentence that begins behind a word that is no part of it
    r"(?<![.!?:,] )(?<=\S )(?:From now on|Going forward|Always|Never|Remember|Please|Keep in mind|Ab jetzt|Ab sofort|Immer|Merke?)\b"
    r"|(?<![.!?:,] )(?<=\S )(?<!that )(?<!dass )(?<!emember )(?<!note )(?<!forget )(?<!mind )(?<!and )(?<!und )(?<!but )(?<!because )(?<!on )(?<!forward )(?<!future )(?<!reference )(?<!time )(?<!when )(?<!if )(?<!as )(?<!so )(?<!please )(?<!jetzt )(?<!Zukunft )"
    r"(?:I|We|Ich|Wir) (?:always|never|prefer|want|hate|like|use|need|immer|nie|mag|will|bevorzuge|nutzen)\b"
)
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


_FRAGMENT = re.compile(
    r"^(?![/~]\w)[\W_](?<![`!])|^//|::|^\w+:\S|[.!?][,;]|= \"|\): |\w \"[^\"]+[.!]\"$|^`(?:[^` ]+ ){3,}[^`]*`$|[\t|]|-->|</|/>|\"\s*[:,]|,\"|\\[nt\"]|&\w+;|[{}]|[,;:|\[({<>=+]$|;\s*\S+;"
    r"|\S {3,}\S|\w,\w+[^,]*,\S|^\W*\d{1,4}[-:/.]\d\d[-:/.]\d\d|^[0-9a-f]{7,40}\s|^\d+[,;\t]"
)


def is_fragment(text: str) -> bool:
    """True if the text holds characters of the table, markup or log that it was cut from."""
    label = _LABEL.match(text)
    return (
        _FRAGMENT.search(text) is not None
        or _LATE_START.search(text) is not None
        or _LABELLED.match(text) is not None
        or (label is not None and _OWN_LABEL.match(label[1]) is None)
        or text.count('"') % 2 != 0
        or any(text.count(left) != text.count(right) for left, right in ("()", "[]"))
    )
