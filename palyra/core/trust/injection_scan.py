"""Injection scan: find text that tries to instruct the model.

A finding is a suspicion, not proof.  By itself it neither allows nor forbids anything.  It taints
the run (`core.run.state`), and from then on sensitive actions need a person's approval.  So the
families below are narrow: ordinary pages, programs and chats must not match.  Text that evades them
is still fenced and subject to the same rules as everything else.

The scan is linear in the text: the engine is RE2, and hidden blocks are searched through a window.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import NamedTuple
from unicodedata import normalize

from palyra.core.redaction.scanner import Expression, compile_bytes
from palyra.core.trust.fences import find_fences

MAX_FINDINGS = 16  # of one text: more add no information
MAX_HIDDEN = 1_000  # scanned comments and invisible elements of one text


class InjectionFinding(NamedTuple):
    """A finding of one kind in the characters `start` to `end` of the text."""

    kind: str
    start: int
    end: int

    def __str__(self) -> str:
        """Return the finding in the form recorded on the tape."""
        return f"{self.kind}:{self.start}-{self.end}"


# --- Families ------------------------------------------------------------------------------------

_GAP = r"[\s\"'*_`.,:;-]+"
_SOME = rf"(?:{_GAP}(?:all|any|every|the|your|of|these|those|my|this|previously|other)){{0,4}}"
_BEFORE = (
    r"(?:previous|prior|above|earlier|preceding|foregoing|former|existing|initial|original|system)"
)
_ORDERS = (
    r"(?:instructions?|prompts?|directions?|directives?|guidelines?|rules|commands?|orders|"
    r"constraints|programming|guardrails|safety\s+\w+)"
)
_DROP = r"\b(?:ignore|disregard|forget|bypass|discard|neglect|overrule|override\s+(?:all|any|your|every))"
_MODEL = r"(?:ai|llm|assistant|agent|chatbot|language\s+model|ai\s+model|gpt|claude|copilot|gemini)"
_SECRETS = (
    r"(?:api[\s_-]?keys?|secrets?|credentials?|passwords?|(?:access|auth|bearer|operator)[\s_-]tokens?|"
    r"private[\s_-]keys?|ssh[\s_-]keys?|environment\s+variables?|\.env\b|id_rsa|cookies|"
    r"system\s+prompt|conversation|chat\s+history|memor(?:y|ies)|session\s+data)"
)
_AWAY = r"(?:send|post|upload|exfiltrate|forward|e-?mail|transmit|leak|submit|append|report|copy)"
_WHERE = r"(?:https?://|www\.|ftp://|[\w.+-]+@[\w-]+\.\w|webhook|(?:the\s+)?following\s+(?:url|address|server|endpoint))"
_USE = r"(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?|execut(?:e|ing))"
_USING = (
    rf"\b(?:before|while|when(?:ever)?|after|prior\s+to|to|in\s+order\s+to)\s+(?:you\s+)?{_USE}\s+"
)
_LOOK = r"\b(?:read|open|cat|collect|copy|dump|load|(?:get|fetch|retrieve)\s+(?:the\s+)?(?:contents?|files?))\b"
_HAND = r"\b(?:pass|send|include|provide|submit|append|put|attach|forward|supply|add)\b[\s\S]{0,60}\b(?:as|in|into|to|with|via)\b"
_HOME = rf"(?:~/|\$HOME\b|/etc/(?:passwd|shadow)|/root\b|\.ssh\b|\.aws\b|\.netrc\b|mcp\.json|{_SECRETS})"
_TELL = r"(?:tell|inform|notify|alert|mention|reveal|disclose|say)"

_FAMILIES: dict[str, tuple[str, ...]] = {
    "override": (
        rf"{_DROP}{_SOME}{_GAP}{_BEFORE}{_GAP}(?:\w+{_GAP}){{0,2}}{_ORDERS}",
        rf"{_DROP}{_SOME}{_GAP}{_ORDERS}{_GAP}(?:above|before|given|you|that\s+came|from\s+the\s+(?:user|system))",
        r"\b(?:ignore|disregard|forget)\s+(?:everything|anything|all)\s+(?:you|that\s+(?:you|was)|above|before|said|written)",
        r"\b(?:stop|do\s+not|don't)\s+follow(?:ing)?\s+(?:the\s+|your\s+|any\s+)?(?:user|system|previous|original)'?s?\s+\w+",
        r"\b(?:these|this|the\s+following)\s+(?:instructions?|directives?|message)\s+(?:supersedes?|overrides?|replaces?|takes?\s+precedence)",
        # The same in a few other languages.
        r"ignorier(?:e|en\s+sie)\s+(?:alle\s+|die\s+|bitte\s+)*(?:vorherigen|bisherigen|obigen|fr\xc3\xbcheren)\s+\w+",
        r"ignore[zr]?\s+(?:toutes\s+)?(?:les\s+|ces\s+|vos\s+)?(?:instructions|consignes)\s+(?:pr\xc3\xa9c\xc3\xa9dentes|ci-dessus)",
        r"ignor[ae]n?\s+(?:todas\s+)?(?:las\s+|tus\s+)?(?:instrucciones|indicaciones|\xc3\xb3rdenes)\s+(?:anteriores|previas)",
        r"ignor[aei]\s+(?:tutte\s+)?(?:le\s+|as\s+|todas\s+as\s+)?(?:istruzioni|instru\xc3\xa7\xc3\xb5es)\s+(?:precedenti|anteriores)",
        "(?:\u5ffd\u7565|\u65e0\u89c6|\u4e0d\u8981\u7406\u4f1a)[^\\s]{0,30}(?:\u6307\u4ee4|\u6307\u793a|\u89c4\u5219|\u63d0\u793a)",
        "(?:\u7121\u8996|\u5ffd\u308c)(?:\u3057\u3066|\u3066)",
        "(?:\u0438\u0433\u043d\u043e\u0440\u0438\u0440\u0443\u0439(?:\u0442\u0435)?|\u0437\u0430\u0431\u0443\u0434\u044c(?:\u0442\u0435)?)\\s+(?:\\S+\\s+){0,3}(?:\u0438\u043d\u0441\u0442\u0440\u0443\u043a\u0446\u0438\u0438|\u043f\u0440\u0430\u0432\u0438\u043b\u0430|\u0443\u043a\u0430\u0437\u0430\u043d\u0438\u044f)",
    ),
    "new_orders": (
        r"\byour\s+(?:new|real|actual|true|updated)\s+(?:task|instructions?|role|objective|mission|goal|orders)\s+(?:is|are|:)",
        rf"\bnew\s+(?:system\s+)?(?:instructions?|directives?|orders)\s+(?:for|to)\s+(?:the\s+|you|any\s+)*{_MODEL}?",
        rf"\b(?:attention|important|note|notice|instructions?|message|dear)\b[\s:,!*-]*(?:to|for)?\s*(?:all\s+|any\s+|the\s+|every\s+)?{_MODEL}s?\b[^\n]{{0,40}}\b(?:must|should|shall|please|need|have\s+to|is\s+to|are\s+to)\b",
        rf"\bif\s+you\s+are\s+an?\s+(?:\w+\s+)?{_MODEL}\b",
        r"\bas\s+an?\s+(?:ai\s+)?(?:ai|llm|language\s+model)(?:\s+\w+)?,?\s+you\s+(?:must|should|will|have\s+to|are\s+required)",
        r"\byou\s+must\s+(?:now\s+|immediately\s+|first\s+)*(?:call|run|execute|invoke|use)\s+(?:the\s+[`\"']?[\w:.]+[`\"']?|[`\"'][\w:.]+[`\"'])\s+(?:tool|command|function)",
        r"\b(?:before|instead\s+of)\s+(?:answering|responding|continuing|doing\s+anything)[^\n]{0,30}(?:call|run|execute|invoke|fetch|send|delete)\b",
    ),
    "role": (
        r"<\|(?:im_start|im_end|system|assistant|user|endoftext|eot_id|start_header_id|end_header_id|begin_of_text)\|>",
        r"<</?SYS>>|(?-i:\[/?INST\]|\[/?SYSTEM(?:[\s_]\w+)?\])|<start_of_turn>|<end_of_turn>",
        r"(?:^|\n)[\s#>*_-]*(?:system|developer|assistant|human|user)(?:\s+(?:message|prompt|override|note))?[\s*_]*:[\s*_]*(?:you\s+(?:are|must|should|will|have)|ignore|disregard|forget|the\s+user\s+(?:has|is|wants)|new\s+instruction|approved)",
        r"</?(?:system|developer|user|assistant)(?:[_-](?:prompt|message|instructions?|reminder))?\s*>\s*\w+",
        r"\b(?:begin|start|end)\s+(?:of\s+)?(?:system|developer)\s+(?:prompt|message|instructions)",
    ),
    "persona": (
        r"\byou\s+are\s+(?:now|no\s+longer)\s+(?:an?\s+|in\s+|bound|restricted|limited|called\s+)*(?:dan\b|unrestricted|jailbroken|developer\s+mode|god\s+mode|evil|by\s+(?:any|your)|admin\w*|root)",
        r"\b(?:enter|enable|activate|switch\s+to)\s+(?:\w+\s+)?(?:developer|god|dan|jailbreak|debug|admin|maintenance|unrestricted)\s+mode\b[^\n]{0,60}\b(?:you|no\s+(?:restrictions?|rules|filters?))",
        r"\b(?:pretend|act|behave|roleplay|respond)\s+as\s+(?:if\s+you\s+(?:were|are|have\s+no)|an?)\s+(?:an?\s+)?(?:unrestricted|unfiltered|uncensored|jailbroken|without)",
        r"\b(?:from\s+now\s+on|henceforth)\b[\s,]+you\s+(?:are|will|must|shall|only|do\s+not|have\s+no)",
    ),
    "authority": (
        r"\b(?:the\s+)?(?:user|operator|administrator|admin|owner|developers?)\s+(?:has|have|had)\s+(?:already\s+|previously\s+|explicitly\s+)*(?:approved|authori[sz]ed|consented|granted|agreed|confirmed|permitted|allowed)\b[^\n]{0,40}\b(?:this|these|all|you|any|every|it)\b",
        r"\b(?:no|without)\s+(?:further\s+|any\s+|user\s+|explicit\s+|need\s+for\s+)*(?:approval|confirmation|permission|consent)\s+(?:is\s+)?(?:needed|required|necessary)[^\n]{0,20}(?:to|for|:|proceed|you)",
        r"\b(?:pre-?approved|pre-?authori[sz]ed)\s+(?:by|for|action|call|command|request)",
        rf"\b(?:do\s+not|don't|never|must\s+not)\s+{_TELL}\s+(?:this\s+(?:to\s+)?|anything\s+(?:to\s+)?|it\s+to\s+|about\s+this\s+to\s+)?(?:the\s+)?(?:user|human|operator|person)\b",
        r"\bwithout\s+(?:telling|informing|alerting|mentioning\s+(?:it|this)\s+to)\s+(?:the\s+)?(?:user|human|operator|anyone)\b",
        r"\b(?:keep|do)\s+this\s+(?:secret|hidden|silently|quietly)\s+(?:from\s+)?(?:the\s+)?(?:user|human|operator)?",
    ),
    "exfiltration": (
        rf"\b{_AWAY}\b[^\n.]{{0,60}}\b{_SECRETS}[^\n]{{0,60}}\b(?:to|at|via|into)\b[^\n]{{0,20}}{_WHERE}",
        rf"\b(?:fetch|open|visit|get|call|request|curl|wget|load)\b[^\n]{{0,40}}https?://[^\s]{{0,200}}(?:\{{|<|\[|\$|%7b)\W{{0,3}}{_SECRETS}",
        r"!\[[^\]\n]{0,200}\]\(https?://[^)\s]{0,300}[?&=/](?:\{|<|\[|\$|%7b)[^)\n]{0,80}\)",
        rf"\b(?:repeat|print|output|reveal|show|dump|disclose|recite|write)\b[^\n.]{{0,30}}\byour\s+(?:system\s+prompt|initial\s+instructions?|hidden\s+instructions?|{_ORDERS}\s+verbatim)",
        # A tool's description that wants a file of the person's as an argument.
        rf"<(?:important|critical|mandatory|urgent|required|attention|warning|notice|instructions?|secret|hidden|note|rules?)>[^<]{{0,200}}{_USING}[^<]{{0,200}}{_LOOK}[^<]{{0,300}}{_HAND}",
        rf"{_USING}(?:any|every|all|each|other|another)\b[\s\S]{{0,40}}\b(?:tools?|functions?)\b[\s\S]{{0,60}}{_LOOK}[\s\S]{{0,160}}{_HAND}",
        rf"{_USING}(?:this|the|these)\b[\s\S]{{0,40}}\b(?:tools?|functions?)\b[\s\S]{{0,60}}{_LOOK}[\s\S]{{0,40}}{_HOME}[\s\S]{{0,120}}{_HAND}",
        rf"\b(?:read|cat|open|collect|gather|find)\b[^\n.]{{0,40}}(?:\.ssh|id_rsa|\.aws|\.env\b|{_SECRETS})[^\n]{{0,60}}\b(?:and|then)\b[^\n]{{0,20}}\b{_AWAY}\b",
    ),
}  # fmt: skip

# A comment or an invisible element is suspicious if it addresses a reader of the source.
_SPEAKS = compile_bytes(
    rf"(?i)\b{_MODEL}s?\b[^<]{{0,80}}\b(?:must|should|shall|please|instructions?|ignore|do\s+not|always|never)\b"
    rf"|\b(?:instructions?|note|message)\s+(?:to|for)\s+(?:the\s+|any\s+)?{_MODEL}"
    r"|\b(?:ignore|disregard|run|execute|call|send|fetch|delete|approve)\b[^<]{0,60}\b(?:instructions?|command|tool|secrets?|user|https?://|approval)"
)
_HIDING = compile_bytes(
    r"(?i)<!--|(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?:\.0+)?\s*[;\"'}]"
    r"|color\s*:\s*(?:white|#fff(?:fff)?\b|transparent)|text-indent\s*:\s*-\d{3,}|left\s*:\s*-\d{3,})[^>]{0,200}>|\shidden\s*>"
    r"|\[//\]:\s*#|\[comment\]:\s*<>"
)
_COMMENT = b"<!--"
_WINDOW_BYTES = 600


# --- The scan ------------------------------------------------------------------------------------


def find_injections(text: str) -> tuple[InjectionFinding, ...]:
    """Return suspected instructions in the text, in order; at most MAX_FINDINGS."""
    hidden = islice(_hidden_blocks(text), MAX_FINDINGS)
    fences = islice(find_fences(text), MAX_FINDINGS)
    found = {*_families(text), *hidden, *_unseen(text)}
    found |= {InjectionFinding("fence", *span) for span in fences}
    ordered = sorted(found, key=lambda finding: (finding.start, finding.end, finding.kind))
    return tuple(ordered[:MAX_FINDINGS])


def _families(text: str) -> Iterator[InjectionFinding]:
    plain = _Plain(text)
    for kind, expression in _compiled():
        for match in islice(expression.finditer(plain.data), MAX_FINDINGS):
            yield InjectionFinding(kind, *plain.places(*match.span()))


@cache
def _compiled() -> tuple[tuple[str, Expression], ...]:
    return tuple(
        (kind, compile_bytes("(?i)" + "|".join(map(_as_bytes, shapes))))
        for kind, shapes in _FAMILIES.items()
    )


def _as_bytes(shape: str) -> str:
    """Encode the pattern as UTF-8, for an engine that treats every byte as a character."""
    return shape.encode().decode("latin-1")


def _hidden_blocks(text: str) -> Iterator[InjectionFinding]:
    """Yield comments and invisible elements that address a reader of the source."""
    data = text.encode("utf-8", "surrogatepass")
    for match in islice(_HIDING.finditer(data), MAX_HIDDEN):
        start, end = match.span()
        is_comment = data[start:end] == _COMMENT
        close = data.find(b"-->" if is_comment else b"</", end, end + _WINDOW_BYTES)
        stop = close if close >= 0 else min(len(data), end + _WINDOW_BYTES)
        if _SPEAKS.search(data[end:stop]) is not None:
            first = len(data[:start].decode("utf-8", "surrogatepass"))
            length = len(data[start:stop].decode("utf-8", "replace"))
            yield InjectionFinding("hidden", first, first + length)


def _unseen(text: str) -> Iterator[InjectionFinding]:
    """Yield runs of invisible characters longer than in ordinary text."""
    if not text.isascii() and _LEFT_OUT.search(text) is not None:
        for match in islice(_UNSEEN.finditer(text), MAX_FINDINGS):
            yield InjectionFinding("hidden", *match.span())


class _Plain:
    """The text in plain letters: compatibility forms folded, invisible characters removed."""

    def __init__(self, text: str) -> None:
        unseen = () if text.isascii() else _LEFT_OUT.finditer(text)
        # For each removed character: the index in the plain text of the character after it.
        self._gaps = [match.start() - index for index, match in enumerate(unseen)]
        self._text = text if text.isascii() else _fold(_LEFT_OUT.sub("", text))
        self.data = self._text.encode("utf-8", "surrogatepass")

    def places(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original text for a span of bytes in the plain text."""
        first, last = self._character(start), self._character(end)
        return first + bisect_right(self._gaps, first), last + bisect_left(self._gaps, last)

    def _character(self, byte: int) -> int:
        if len(self.data) == len(self._text):
            return byte
        return len(self.data[:byte].decode("utf-8", "ignore"))


def _fold(text: str) -> str:
    """Replace disguised characters by the plain letters they imitate."""
    text = text.translate(_FOLDS)
    return text if _LOOKALIKE.search(text) is None else _WORD.sub(_fold_mixed, text)


def _fold_mixed(match: re.Match[str]) -> str:
    """Fold look-alikes in a word that mixes them with Latin letters; other words are unchanged."""
    word = match.group()
    is_mixed = not word.isascii() and _LATIN.search(word) is not None
    return word.translate(_LATIN_LOOKALIKES) if is_mixed else word


class _Folds(dict[int, int]):  # noqa: FURB189 - `str.translate` is fast with a real one
    """Compatibility form of each character for which that is a single ASCII character."""

    def __missing__(self, point: int) -> int:
        plain = normalize("NFKC", chr(point))
        folded = ord(plain) if len(plain) == 1 and plain.isascii() else point
        self[point] = folded
        return folded


_FOLDS = _Folds()  # bounded by the number of Unicode characters
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile(r"[A-Za-z]")
_LATIN_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458\u0501\u04bb\u0442\u043c"
    "\u03b1\u03b5\u03bf\u03c1\u03b9\u03bd\u03c5\u0261\u0578\u057d"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0405",
    "aeopcyxisjdhtmaeopivugnuABEKMHOPCTXIS",
)
_LOOKALIKE = re.compile(f"[{''.join(map(chr, _LATIN_LOOKALIKES))}]")
_LEFT_OUT = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
# Runs that carry invisible text: tags (except in regional flags), zero-width characters, one
# after every letter, selectors without a base character; and direction overrides.
_UNSEEN = re.compile(
    r"(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0000-\U000e007f]{3,}"
    r"|\U0001f3f4[\U000e0020-\U000e007e]{9,}"
    r"|[\u200b-\u200f\u2060-\u2064\ufeff]{4,}|(?:\w[\u200b\u2060\ufeff]){4,}"
    r"|[\ufe00-\ufe0f]{3,}|[\U000e0100-\U000e01ef]{2,}|[\u202d\u202e]"
)
