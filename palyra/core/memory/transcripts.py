"""Search in what was said in earlier conversations of a principal.

There is no index: the newest runs are read and their texts compared by words.  A word counts more
the fewer texts have it.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

from palyra.core.journal.changes import SaidText
from palyra.core.memory.duplicates import read_tokens

MAX_RUNS = 300  # newest ones of a search
EXCERPT_CHARS = 600
_AROUND_CHARS = 200  # before the first word of the query


def rank_texts(texts: Sequence[SaidText], query: str, limit: int) -> list[SaidText]:
    """Return the texts with words of the query, best first and newer first, cut to an excerpt."""
    wanted = {token.plain for token in read_tokens(query)}
    sets = [wanted & {token.plain for token in read_tokens(text.text)} for text in texts]
    frequency = Counter(word for words in sets for word in words)
    scored = [
        (sum(math.log(1 + len(texts) / frequency[word]) for word in words), text.at_ms, at)
        for at, (text, words) in enumerate(zip(texts, sets, strict=True))
        if words
    ]
    best = sorted(scored, reverse=True)[:limit]
    return [_excerpt(texts[at], sets[at]) for _, _, at in best]


def _excerpt(text: SaidText, words: set[str]) -> SaidText:
    if len(text.text) <= EXCERPT_CHARS:
        return text
    first = re.search("|".join(map(re.escape, sorted(words))), text.text, re.IGNORECASE)
    start = max(0, (first.start() if first else 0) - _AROUND_CHARS)
    return text._replace(text=text.text[start : start + EXCERPT_CHARS])
