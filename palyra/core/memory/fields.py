"""Text of a memory as full text search indexes it.

The index splits at everything that is no letter or digit and stems English words.  Two kinds of
text need more than that: identifiers (`parseHttpHead`) are indexed with their parts, too, and runs
of Chinese, Japanese and Thai, which have no blanks, as overlapping pairs of characters.
"""

import re
from datetime import date

from palyra.core.memory.dates import find_spans, words_of, Span

_HUMP = re.compile(r"[A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002fa1f]+"
)


def searchable(text: str) -> str:
    """Return the text with the parts of identifiers appended and unspaced runs cut into pairs."""
    if not text.isascii():
        text = _UNSPACED.sub(lambda match: f" {_pairs(match[0])} ", text)
    parts = [" ".join(_PART.findall(word)) for word in _HUMP.findall(text)]
    return f"{text} {' '.join(parts)}" if parts else text


def _pairs(run: str) -> str:
    return " ".join(run[at : at + 2] for at in range(max(1, len(run) - 1)))
