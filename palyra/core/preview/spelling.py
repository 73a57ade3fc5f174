"""Safe text of a preview, and the count of characters that are spelled out in it."""

import re
import unicodedata
from collections import Counter

from palyra.core.preview.blocks import Hidden
from palyra.core.text.visible import exact

_SHORT_ESCAPE = 6  # characters of \uXXXX; a character outside of the basic plane has two
_CONTROLS = {"\r": "CARRIAGE RETURN", "\x1b": "ESCAPE", "\b": "BACKSPACE", "\x7f": "DELETE"}
_MARK = re.compile(r"\[redacted:[a-z][a-z0-9_]*\]")


def spell_out(text: str) -> str:
    """Return one line, safe to show; tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return "\t".join(map(exact, text.split("\t")))


class Speller:
    """Safe text of one preview, with a count of the characters that were spelled out."""

    def __init__(self) -> None:
        self.chars = 0  # of all texts so far, as shown
        self._counts: Counter[str] = Counter()
        self.redacted = 0

    def __call__(self, text: str) -> str:
        """Return one line, safe to show; tabs are kept."""
        if "[redacted:" in text:
            self.redacted += len(_MARK.findall(text))
        shown = spell_out(text)
        self.chars += len(shown)
        if shown != text:
            at = 0
            for char in text:
                if shown[at] == char:
                    at += 1
                else:
                    self._counts[char] += 1
                    at += _SHORT_ESCAPE if ord(char) < 0x10000 else 2 * _SHORT_ESCAPE  # noqa: PLR2004
        return shown

    def hidden(self) -> tuple[Hidden, ...]:
        """Return the spelled out characters, the most frequent first."""
        return tuple(
            Hidden(
                character=f"U+{ord(char):04X}",
                name=unicodedata.name(char, _CONTROLS.get(char, "unnamed")),
                count=count,
            )
            for char, count in self._counts.most_common()
        )
