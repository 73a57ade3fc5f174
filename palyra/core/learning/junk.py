# ruff: noqa: RUF001 - users type typographic quotes
"""Junk: texts that are never learned, each with the reason.

The reasons are the kinds that audits of other memories complain about: commands and code kept as
facts, half sentences and sentences without a subject, scores and ids of the memory itself, marks of
the program around a conversation, lines of a log, narration about the user, wishes for one occasion.
"""

import re
from collections.abc import Callable
from typing import Literal

Junk = Literal[
    "command",
    "code",
    "half_sentence",
    "no_referent",
    "metadata",
    "program_text",
    "log_line",
    "narration",
    "placeholder",
    "too_short",
    "too_long",
    "question",
]
MIN_WORDS, MAX_CHARS = 3, 400
_WORD = re.compile(r"[^\W\d_][\w'’]*")
_COMMAND = re.compile(
    r"^\s*(?:[$%#>❯]\s|/[a-z]+\b|(?:sudo|git|npm|npx|pnpm|yarn|pip3?|uv|docker|kubectl|curl|wget|ssh|"
    r"cd|ls|cat|grep|sed|awk|rm|mv|cp|chmod|make|cargo|go run|go build|python3?|node|bash|sh|echo|"
    r"export|apt(?:-get)?|brew|systemctl|terraform|helm|psql) (?!(?:is|are|was|were|has|have|should|must|needs|runs|over|for|and|or|not|in|on|sure|it|your|all|the|a|an|every|everything|my|our|dict|ist|sind|läuft|bei|für|als|statt|nicht|nur|\d)\b)(?:[-./~\w\"'$]+(?: |$)))"
)
_COMMAND_PARTS = re.compile(
    r"&&|\|\||\s\|\s|\s2?>{1,2}\s?[/\w&]|\s--?[a-z][\w-]*(?:[= ]\S+)?\s+--?[a-z]"
)
_CODE = re.compile(
    r"[{};]\s*$|=>|\)\s*\{|^\s*(?:def|class|function|import|from|const|let|var|return|public|"
    r"private|SELECT|INSERT|UPDATE|DELETE|CREATE)\s+[\w*{(.]+\s*(?:[({=:;,*]|FROM|INTO|TABLE|import|SET)"
    r"|^\s*[\[{].*[\]}]\s*$|^\s*</?\w[^>]*>|\w+\([^)]*\)\s*;?\s*$|^\s*(?:\w+\.)+\w+\s*=|^[+-]{3} |^@@ "
)
_METADATA = re.compile(
    r"\b(?:score|confidence|confidence_bps|importance|relevance|similarity|salience|distance|"
    r"embedding|trust)\s*[:=]\s*[\[(]?-?\d|\b\d{1,3} ?% (?:confiden|relevan|match|sure)"
    r"|[\[(](?:0?\.\d+|\d{1,2}/10|\d{1,3} ?%)[\])]|\b(?:mem|can|run|ses|use|call|apr)_[0-9a-f]{4}"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-|\b(?:recall(?:ed)? count|last accessed|access count|dedupe|bps)\b",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"^\s*(?:\[?(?:cron|heartbeat|system|assistant|user|human|ai|bot|tool|metadata|message_id|sender)"
    r"(?: message)?[\]:]|HEARTBEAT|NO_REPLY|SILENT_REPLY|current (?:time|date)\s*:|conversation info|"
    r"<\|)|\b(?:HEARTBEAT_OK|NO_REPLY)\b|^\s*(?:untrusted|sender) metadata",
    re.IGNORECASE,
)
_LOG = re.compile(
    r"^\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|^\s*\[?\d\d:\d\d:\d\d|^\s*\[?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|"
    r"FATAL|TRACE)\b[\]: ]|^Traceback |^\s+at \w|^\s*File \"|\b\w+(?:Error|Exception): |"
    r"\bexit(?:ed)?(?: with)?(?: code| status)? \d|^npm ERR|\bpassed in \d|^\d+ (?:passed|failed)\b|"
    r"\b\d+ (?:passed|failed),"
)
_NARRATION = re.compile(
    r"^(?:the )?(?:user|human|customer|assistant|ai|agent|model) "
    r"(?:asked|asks|wants?|wanted|requested|is asking|said|says|greeted|mentioned|provided|shared|"
    r"inquired|would like|has|is|needs?|acknowledged|confirmed|responded|suggested)\b"
    r"|^(?:i|we) (?:have |just |will |'ll )?(?:asked|searched|looked|ran|checked|found out|tried|fixed)\b",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"\b(?:john doe|jane doe|foo ?bar|lorem ipsum|your[_-]name|example\.(?:com|org)|tbd|n/a|xxx+|"
    r"unknown user|no (?:new )?(?:information|facts|preferences) )",
    re.IGNORECASE,
)
_DANGLING_START = re.compile(
    r"^(?:and|but|or|so|because|which|who|whose|that|then|also|though|although|unless|than|und|aber|"
    r"oder|weil|dass|sondern|denn|also|too|etc)\b",
    re.IGNORECASE,
)
_DANGLING_END = re.compile(
    r"(?:[,:;–—(\[-]|\.\.\.|…|\b(?:and|or|but|the|a|an|of|to|with|for|in|on|at|by|from|because|that|"
    r"which|is|are|und|oder|der|die|das|mit|für|weil|dass))$(?<!\bhere on)(?<!\bnow on)(?<!\btoday on)",
    re.IGNORECASE,
)
_NO_REFERENT = re.compile(
    r"^(?:it|this|that|these|those|they|them|he|she|there|here|such|both(?! (?:of )?(?:my|our))|the same|the (?:former|latter|"
    r"above|following)|es(?! (?:bleibt (?:bei|dabei)|gilt))|das(?= (?:ist|war|sind|wird|wäre|würde|geht|kann|muss|hat|soll|klingt|stimmt|passt|macht|sieht|funktioniert|läuft|liegt|steht|heißt|kommt|gibt|gilt|finde|gefällt|mag|will|ich|wir|brauche|habe|weiß|nächste|letzte|andere|gleiche)\b)|dies\w*|sie|er|hier|dort|so)\b(?!\s+(?:project|repo|repository|team|company|"
    r"machine|computer|server|house|projekt|team|rechner))",
    re.IGNORECASE,
)
_SHORT = re.compile(
    r"(?:i['’]?m|duz\w*|siez\w*|nenne?) \w{4,}", re.IGNORECASE
)  # a statement in two words
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"), ("“", "”"), ("«", "»"))
_SYMBOLS = re.compile(r"[^\w\s.,;:!?'’\"()/%&@°€$£+-]")
_MOST_SYMBOLS, _LEAST_LETTERS = 0.12, 0.5  # share of the characters


def find_junk(text: str) -> Junk | None:
    """Return the reason why a text is no statement worth keeping; None if there is none."""
    flat = " ".join(text.split())
    return next((reason for reason, is_so in _CHECKS if is_so(flat)), None)


def _is_half(text: str) -> bool:
    core = text.rstrip(".!\"'”’) ")
    is_open = any(text.count(left) != text.count(right) for left, right in _PAIRS)
    is_quote = text.count('"') % 2 == 1 or text.count("`") % 2 == 1
    cut = core if not text.endswith(("...", "…")) else text
    return bool(is_open or is_quote or _DANGLING_START.match(text) or _DANGLING_END.search(cut))


def _is_code(text: str) -> bool:
    letters = sum(char.isalpha() or char.isspace() for char in text)
    symbols = len(_SYMBOLS.findall(re.sub(r"`[^`]*`", "", text)))
    is_dense = symbols > _MOST_SYMBOLS * len(text)
    return _CODE.search(text) is not None or is_dense or letters < _LEAST_LETTERS * len(text)


_CHECKS: tuple[tuple[Junk, Callable[[str], bool]], ...] = (
    ("too_long", lambda text: len(text) > MAX_CHARS),
    ("program_text", lambda text: _PROGRAM.search(text) is not None),
    ("metadata", lambda text: _METADATA.search(text) is not None),
    ("log_line", lambda text: _LOG.search(text) is not None),
    (
        "command",
        lambda text: _COMMAND.match(text) is not None or _COMMAND_PARTS.search(text) is not None,
    ),
    ("code", _is_code),
    ("question", lambda text: text.rstrip("\"')”").endswith("?")),
    ("narration", lambda text: _NARRATION.match(text) is not None),
    ("placeholder", lambda text: _PLACEHOLDER.search(text) is not None),
    ("too_short", lambda text: len(_WORD.findall(text)) < MIN_WORDS and not _SHORT.match(text)),
    ("no_referent", lambda text: _NO_REFERENT.match(text) is not None),
    ("half_sentence", _is_half),
)
