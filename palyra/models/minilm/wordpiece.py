"""WordPiece tokens of uncased BERT.

Source of the semantics: `BertNormalizer`, `BertPreTokenizer` and `WordPiece` of Hugging Face's
`tokenizers`: control characters dropped, blanks unified, Chinese characters set apart, lower case,
accents stripped, punctuation split off, then the longest known piece first.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import groupby

UNKNOWN, FIRST, LAST = "[UNK]", "[CLS]", "[SEP]"
MAX_WORD_CHARS = 100  # a longer word is one unknown token, as in the original
_CACHED_WORDS = 16_384
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Tokenizer over one vocabulary; safe to use from several threads."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._unknown = vocabulary[UNKNOWN]
        self._first, self._last = vocabulary[FIRST], vocabulary[LAST]
        self._pieces = lru_cache(_CACHED_WORDS)(self._split_word)

    def tokens(self, text: str, limit: int) -> list[int]:
        """Return at most `limit` token ids, the first and last marker included."""
        ids = [self._first]
        for word in words(text):
            ids += self._pieces(word)
            if len(ids) >= limit:
                break
        return [*ids[: limit - 1], self._last]

    def _split_word(self, word: str) -> tuple[int, ...]:
        if len(word) > MAX_WORD_CHARS:
            return (self._unknown,)
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), 0)
            if not end:
                return (self._unknown,)
            ids.append(self._vocabulary[prefix + word[start:end]])
            start = end
        return tuple(ids)


def words(text: str) -> Iterator[str]:
    """Yield the normalised words and punctuation marks of the text."""
    for word in _normalise(text).split():
        for is_mark, chars in groupby(word, _is_punctuation):
            part = "".join(chars)
            yield from part if is_mark else (part,)


def _normalise(text: str) -> str:
    if text.isascii() and text.isprintable():  # the common case: nothing to drop or strip
        return text.lower()
    cleaned = "".join(map(_clean, text))
    decomposed = unicodedata.normalize("NFD", cleaned)
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn").lower()


def _clean(char: str) -> str:
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    if char == "\ufffd" or unicodedata.category(char)[0] == "C":
        return ""
    point = ord(char)
    if any(low <= point <= high for low, high in _CHINESE):
        return f" {char} "
    return char


def _is_punctuation(char: str) -> bool:
    if char.isascii():
        return not char.isalnum()  # blanks and control characters are gone by now
    return unicodedata.category(char)[0] == "P"
