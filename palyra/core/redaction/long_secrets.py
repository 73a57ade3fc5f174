"""Known secrets that are too long for one expression: found by their beginning, then compared.

An automaton of a whole key of 16 000 characters, in all its spellings, takes seconds to build and
megabytes to keep.  The first PREFIX_CHARS are as rare as the whole is, so only they are searched for;
the rest is compared character by character, as far as the text agrees.  A cut secret goes as well.

The object has the interface of `scanner.Scanner`.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from palyra.core.redaction.grammar import ANYWHERE, Rule, viable_prefix
from palyra.core.redaction.known_secrets import escapable, forms_of
from palyra.core.redaction.scanner import Ahead, Expression, Span, compile_bytes

PREFIX_CHARS = 48


class LongSecrets:
    """Each form of each long secret, by its beginning."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in forms_of(secret)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    @cached_property
    def _begins(self) -> list[str]:
        return sorted({escapable(form[:PREFIX_CHARS]) for form in self._forms})

    @cached_property
    def _beginning(self) -> Expression:
        return compile_bytes("|".join(self._begins))

    @cached_property
    def _begun(self) -> Expression:
        return compile_bytes(rf"(?:{'|'.join(map(viable_prefix, self._begins))})\z")

    def prepare(self) -> Iterator[bool]:
        """Compile ahead of time; yields True after each step."""
        self._beginning  # noqa: B018 - for its effect
        yield True
        self._begun  # noqa: B018 - for its effect
        yield True

    def may_find(self, data: bytes) -> bool:
        """Return True if the beginning of a secret is in the text."""
        return self._beginning.search(data) is not None

    def find(
        self, data: bytes | bytearray, pos: int = 0, floor: int = 0, ahead: Ahead | None = None
    ) -> Span | None:
        """Return the leftmost secret that starts at `floor` or later; None without one."""
        del ahead
        for start, end in self._places(data, max(pos, floor)):
            return Span(start, start, end, self._rule)
        return None

    def find_viable(self, data: bytes | bytearray, pos: int) -> int:
        """Return the start of the end of `data` that more text may complete; len() if none."""
        for start, end in self._places(data, pos):
            if end == len(data):
                return start
        match = self._begun.search(data, pos)
        return len(data) if match is None else match.span()[0]

    def _places(self, data: bytes | bytearray, pos: int) -> Iterator[tuple[int, int]]:
        while (match := self._beginning.search(data, pos)) is not None:
            start, least = match.span()
            pos = max(least, *(_extent(data, start, form) for form in self._forms))
            yield start, pos

    @cached_property
    def _rule(self) -> Rule:
        """The rule of all of them; a secret longer than a stream holds goes on in its characters."""
        characters = set("".join(self._forms).encode("utf-8", "surrogatepass")) | set(b"\\%")
        unit = "".join(rf"\x{byte:02x}" for byte in sorted(characters))
        return Rule("known", ANYWHERE, "", f"[{unit}]*")


def _extent(data: bytes | bytearray, start: int, form: str) -> int:
    """Return how far the text agrees with the form."""
    whole = form.encode("utf-8", "surrogatepass")
    if data.startswith(whole, start):
        return start + len(whole)
    at = start
    for piece in _pieces(form):
        match = _expression(piece).match(bytes(data[at : at + _SPELT_BYTES]))
        if match is None:
            return _cut(data, at, piece)
        at += match.span()[1]
    return at


def _pieces(form: str) -> Iterator[str]:
    """Yield the form in pieces that end with a letter or digit, behind which no escape goes on."""
    return (match[0] for match in _PIECE.finditer(form))


_PIECE = re.compile(r".{0,63}?(?:.{0,63}[A-Za-z0-9]|.)", re.DOTALL)
_SPELT_BYTES = 4_096  # of a piece in its longest spelling


@lru_cache(maxsize=4_096)
def _expression(piece: str) -> Expression:
    return compile_bytes(escapable(piece))


def _cut(data: bytes | bytearray, at: int, piece: str) -> int:
    """Return how far the text agrees with a piece that it has not whole."""
    match = _begun_piece(piece).match(bytes(data[at : at + _SPELT_BYTES]))
    return at if match is None else at + match.span()[1]


@lru_cache(maxsize=64)
def _begun_piece(piece: str) -> Expression:
    return compile_bytes(f"(?:{viable_prefix(escapable(piece))})?", is_longest=True)
