# ruff: noqa: RUF001 - users type typographic quotes
"""Quoted words: parts of a user's message that another author may have written.

A user pastes mails, pages and logs between own sentences, and nothing on the tape separates the two.
So doubt decides: a statement counts as quoted if it

    - is within quotation marks, or on a line that marks a quote (`>`, `|`);
    - follows a line or a clause that ends with a colon and does not name the user's own rules;
    - shares its message with a request to work on a text, or with words that announce one;
    - shares its message with so much other text that most of it must be a paste.

A false alarm costs a question to a person.  A missed one would let the author of a mail write into
the memory.
"""

import re

from palyra.core.context.statements import whole_words

MAX_OWN_CHARS = 1_200  # of a message beyond the statement; typed messages are mostly below 500
MAX_PLACES = 4  # of one statement in a message; bounds the time of a reading

_MARKS = {"“": "”", "„": "“”", "«": "»", "‹": "›", "「": "」", "‚": "‘"}  # opening: closing ones
_SINGLE = re.compile(r"(?:^|(?<=[\s(\[:]))['‘](?=\S)")
_SINGLE_END = re.compile(r"(?<=\S)['’](?=$|[\s.,;:!?)\]])")
_QUOTE_LINE = re.compile(r"^\s*[>|]")
_CODE_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_COLON = re.compile(r":(?=\s|$)")
_OWN_HEADING = re.compile(
    r"^\W*(?:(?:ok|okay|hi|hello|hey|also|and|please|bitte|thanks|danke)\b[\s,]*)*"
    r"(?:(?:my|our|mein\w*|unser\w*|the)\s+)?(?:\w+\s+){0,2}"
    r"(?:remember|note|keep in mind|memori[sz]e|don[’']?t forget|important|rules?|conventions?|preferences?|"
    r"style|defaults?|settings?|decisions?|facts?|updates?|corrections?|entscheidung|beschluss|korrektur|info|reminder|for (?:all|every|my) .*|für (?:alle|meine) .*|from now on|going forward|in future|for (?:future reference|the future|"
    r"the record|next time)|merke? dir|beachte|wichtig|regeln?|konventionen|vorlieben|ab jetzt|in zukunft)"
    r"(?: (?:this|that|the following|dies|folgendes))?\W*$",
    re.IGNORECASE,
)
_WORKS_ON_TEXT = whole_words(
    r"translate\w*", r"translation", r"summari[sz]e\w*", r"summary", r"tl;?dr", r"proofread\w*", r"rewrite",
    r"rephrase", r"paraphrase", r"review", r"explain", r"analy[sz]e", r"classify", r"extract", r"check (?:this|the)",
    r"(?:fix|correct|improve|shorten|edit|polish) (?:this|that|the|my|it)", r"what (?:does|do|did) .{0,60} mean",
    r"what do you think", r"is (?:this|that|it) (?:good|true|right|correct|ok(?:ay)?|safe|spam|phishing)",
    r"(?:reply|answer|respond) to", r"übersetz\w*", r"zusammenfass\w*", r"fass\w* .{0,60} zusammen", r"korrigier\w*",
    r"erklär\w*", r"umschreiben", r"prüfe?", r"was (?:bedeutet|heißt|hältst)", r"antworte auf",
)  # fmt: skip
_ANNOUNCES_TEXT = whole_words(
    r"(?:i|we)(?:[’']ve| have| just)* (?:got|received|found|copied|pasted|read|saw|downloaded|scraped)",
    r"sent (?:me|us)", r"forwarded", r"original message", r"begin quote", r"quote[ds]?", r"pasted?", r"copied",
    r"(?:see|here(?:[’']s| is| are)|this is|these are|the following) (?:\w+ )?(?:\w+ )?(?:e?mails?|messages?|"
    r"texts?|articles?|pages?|documents?|readmes?|logs?|outputs?|posts?|issues?|tickets?|comments?|letters?|threads?|"
    r"chats?|transcripts?|snippets?|files?|reviews?|results?)", r"(?:e?mail|message|text|article|page|document|readme|log|output|post|"
    r"issue|ticket|comment|letter|thread|chat|transcript|snippet|website) (?:above|below|says|said|reads|"
    r"from|was|following)", r"(?:text|mail) (?:oben|unten)", r"weitergeleitet\w*", r"(?:ich|wir) (?:habe|haben) .{0,60}"
    r"(?:bekommen|gefunden|erhalten|kopiert|gelesen)", r"folgende\w* (?:text|mail|nachricht)", r"zitat\w*",
)  # fmt: skip
_MAIL_HEADER = re.compile(
    r"^[ \t]*(?:subject|from|to|cc|date|sent|reply-to|von|an|betreff|gesendet|datum)\s*:",
    re.IGNORECASE | re.MULTILINE,
)


QUOTED_BPS = -4_000
MAYBE_BPS = -1  # a person decides


def quoted_bps(message: str, statement: str) -> int:
    """Return what the chance that another wrote the statement takes from its score; 0 for none.

    The statement is a verbatim part of the message; if it occurs more than once, its doubtful places
    count.  A person's own sentence beside a request to work on a text, in the same paragraph and
    without a mark, only waits for a person.
    """
    if len(message) > MAX_OWN_CHARS + MAX_PLACES * len(statement):
        return QUOTED_BPS
    places = _places(message, statement)
    rest = message.replace(statement, "\n")
    is_beside = _WORKS_ON_TEXT.search(rest) or _ANNOUNCES_TEXT.search(rest)
    is_introduced = _is_introduced(statement)
    reasons = (
        len(rest) > MAX_OWN_CHARS,
        _MAIL_HEADER.search(rest) is not None,
        is_beside and "\n" in message.strip(),
        is_introduced and _WORKS_ON_TEXT.search(statement.partition(":")[0]),
        any(_is_marked(message, place, statement) for place in places),
        any(_follows_colon(message[:place]) for place in places),
    )
    return QUOTED_BPS if any(reasons) else MAYBE_BPS if is_beside or is_introduced else 0


def is_marked(message: str, statement: str) -> bool:
    """True if a place of the statement is within quotation marks or on the line of a quote.

    Of a statement at many places this is assumed.
    """
    places = _places(message, statement)
    return len(places) > MAX_PLACES or any(
        _is_marked(message, place, statement) for place in places
    )


def without_code(message: str) -> str:
    """Return the message with each line of a code block left empty; an open block has no end."""
    lines, mark = list[str](), ""
    for line in message.splitlines():
        fence = _CODE_FENCE.match(line)
        is_end = bool(mark) and fence is not None and fence[1].startswith(mark)
        lines.append("" if mark or fence else line)
        if fence is not None and (is_end or not mark):
            mark = "" if is_end else fence[1]
    return "\n".join(lines)


def _places(message: str, statement: str) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(statement), message)]


def _is_marked(message: str, place: int, statement: str) -> bool:
    """True if the place is within quotation marks, or its line is the line of a quote."""
    line = message[message.rfind("\n", 0, place) + 1 : place + 1]
    if _QUOTE_LINE.match(line):
        return True
    before = message[:place] + statement[: len(statement) - len(statement.lstrip("\"'“„«»‹「‚‘‛`"))]
    if before.count('"') % 2 or before.count("`") % 2:
        return True
    if _is_open(before):
        return True
    return len(_SINGLE.findall(message[: place + 2])) > len(_SINGLE_END.findall(message[:place]))


def _is_open(text: str) -> bool:
    """True if a typographic quotation mark of the text is not closed in it."""
    closing = ""
    for char in text:
        if closing and char in closing:
            closing = ""
        elif not closing:
            closing = _MARKS.get(char, "")
    return bool(closing)


def _is_introduced(statement: str) -> bool:
    """True if the statement itself has a clause before a colon that names none of the user's rules."""
    parts = _COLON.split(statement)
    return any(part.strip() and not _OWN_HEADING.match(part) for part in parts[:-1])


def _follows_colon(before: str) -> bool:
    lines = [line.strip() for line in before.splitlines()]
    return any(line.endswith(":") and not _OWN_HEADING.match(line) for line in lines)
