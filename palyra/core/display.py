r"""Text as a person may be shown it: nothing hidden, nothing that looks like something else.

Characters that cannot be seen, change the direction of the text or imitate another character are
written as the `\\uXXXX` escape of JSON.  Letters of another script inside a Latin word are escaped
too; a word written wholly in one script cannot be told from an honest one and is left alone.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

SUMMARY_CHARS = 200
_VALUE_CHARS = 60  # of one argument in a summary
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Drawn as nothing though their category says letter or mark: fillers, joiners, selectors.
_INVISIBLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0"
    r"\U000e0100-\U000e01ef]"
)
_IMITATES = frozenset("\u2010\u2011\u2212\u2044\u2215\u29f8\ua789")  # hyphens, slashes, a colon
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile(r"[A-Za-z]")
_CONFUSABLE_SCRIPTS = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})


def visible(text: str) -> str:
    """The text with hidden and imitating characters escaped, on one line."""
    if text.isascii() and text.isprintable():
        return text
    words = _WORD.sub(_escape_mixed, text)
    return "".join(_escape(ch) if _is_hidden(ch) else ch for ch in words)


def render_json(value: object) -> str:
    """A JSON value for reading, complete and indented; still JSON of exactly that value."""
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return "\n".join(visible(line) for line in text.split("\n"))


def least_chars(value: object) -> int:
    """How long a JSON value is at least when it is rendered; a few microseconds for each 1,000."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def render_call(tool: str, arguments: Mapping[str, object]) -> str:
    """One line that names a call; long values are cut, and say by how much."""
    shown = ", ".join(f"{visible(name)}={_brief(value)}" for name, value in arguments.items())
    return _cut(f"{visible(tool)}({shown})", SUMMARY_CHARS)


def describe_call(tool: str, arguments: object) -> str:
    """One line that names a call, whatever its arguments are."""
    if isinstance(arguments, Mapping):
        return render_call(tool, arguments)
    return _cut(f"{visible(tool)}({_brief(arguments)})", SUMMARY_CHARS)


def _brief(value: object) -> str:
    return _cut(visible(json.dumps(value, ensure_ascii=False, sort_keys=True)), _VALUE_CHARS)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit} characters)"


def _escape_mixed(match: re.Match[str]) -> str:
    word = match.group()
    if word.isascii() or not _LATIN.search(word):
        return word
    return "".join(_escape(ch) if _is_confusable(ch) else ch for ch in word)


@lru_cache(maxsize=4096)
def _is_confusable(char: str) -> bool:
    return unicodedata.name(char, "").split(" ", 1)[0] in _CONFUSABLE_SCRIPTS


@lru_cache(maxsize=65_536)  # more than a prompt has characters: a look costs a microsecond or two
def _is_hidden(char: str) -> bool:
    if char.isascii():
        return not char.isprintable()
    if unicodedata.category(char) in _HIDDEN_CATEGORIES or _INVISIBLE.match(char):
        return True
    # Full-width forms, mathematical letters and odd spaces: one ASCII character in disguise.
    folded = unicodedata.normalize("NFKC", char)
    return char in _IMITATES or (len(folded) == 1 and folded.isascii())


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if not char.isascii() else f"\\u{ord(char):04x}"
