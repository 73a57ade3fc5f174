"""Finds where rules match: linear in the text, whatever the text.

The engine is RE2 on bytes (Latin-1 mode: every byte is a character), so UTF-8 passes through and
no input can make it backtrack.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, cast

import re2

from palyra.core.redaction.patterns import ANYWHERE, CONTEXT_BYTES, SecretPattern

_ESCAPE_MARKS = frozenset({b"\\", b"%", b"["})  # what the longer boundaries begin with
_UNKNOWN = SecretPattern(
    "secret", ANYWHERE, "", "[ -~]"
)  # when the engine cannot say which rule it was


class Span(NamedTuple):
    """A match from `at`, of which `start` to `end` is the secret."""

    at: int
    start: int
    end: int
    rule: SecretPattern

    @property
    def marker(self) -> bytes:
        """What takes the secret's place."""
        return f"[redacted:{self.rule.name}]".encode("ascii")


class Expression(Protocol):
    """The part of a compiled RE2 expression that is used here; the package has no types."""

    def search(self, text: bytes | bytearray, pos: int = 0) -> "Match | None": ...
    def match(self, text: bytes, pos: int = 0) -> "Match | None": ...
    def finditer(self, text: bytes) -> "Iterator[Match]": ...


class Match(Protocol):
    """One match."""

    def span(self, group: int = 0) -> tuple[int, int]: ...


def compile_bytes(pattern: str, *, has_groups: bool = False) -> Expression:
    """The expression over bytes; without groups it runs about three times faster."""
    expression: Expression = re2.compile(pattern.encode("latin-1"), _options(has_groups))
    return expression


def _options(has_groups: bool) -> re2.Options:  # noqa: FBT001 - private, one caller per value
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = not has_groups
    options.log_errors = False  # it would write the pattern, and with it known secrets, to stderr
    return options


class Scanner:
    """All rules as one expression, plus what a stream needs: the viable prefixes."""

    def __init__(self, rules: Sequence[SecretPattern]) -> None:
        self._rules = tuple(rules)
        self._any = compile_bytes("|".join(rule.shape for rule in rules))
        self._margins = [rule.margins for rule in rules]
        self._each = [compile_bytes(rule.shape, has_groups=True) for rule in rules]
        self._which = re2.Set.FullMatchSet(_options(has_groups=False))
        for rule in rules:
            self._which.Add(rule.shape.encode("latin-1"))
        self._which.Compile()
        # Anchored at the end only: RE2 then runs backwards and stops with the last viable byte.
        viable = "|".join(rule.viable for rule in rules)
        self._viable = compile_bytes(rf"(?:{viable})\z")

    def find(self, data: bytes | bytearray, pos: int = 0, floor: int = 0) -> Span | None:
        """The leftmost secret that is accepted and starts at `floor` or later."""
        while (match := self._any.search(data, pos)) is not None:
            span = self._span(data, *match.span())
            if span.start >= floor and _is_secret(data, span):
                return span
            pos = span.at + 1
        return None

    def find_viable(self, data: bytes, pos: int) -> int:
        """Where the longest end of `data` begins that more text could complete; len() if none."""
        match = self._viable.search(data, pos)
        return len(data) if match is None else match.span()[0]

    def _span(self, data: bytes | bytearray, at: int, end: int) -> Span:
        found = bytes(data[at:end])
        which = self._which.Match(found)
        if not which:
            return Span(at, at, end, _UNKNOWN)
        index = min(which)
        rule, margins = self._rules[index], self._margins[index]
        if margins is None or found[:1] in _ESCAPE_MARKS:
            match = cast("Match", self._each[index].match(found))  # the set has just said so
            start, stop = match.span(1)
            return Span(at, at + start, at + stop, rule)
        # The usual boundary is one byte, or none at the beginning of the text.
        boundary = 1 if rule.start and not found[:1].isalnum() else 0
        return Span(at, at + boundary + margins[0], end - margins[1], rule)


def _is_secret(data: bytes | bytearray, span: Span) -> bool:
    """The rule's last word, on what it found and on what stands before it."""
    needs = span.rule.needs
    if needs and not any(byte in data[span.at : span.end] for byte in needs):
        return False
    context = max(0, span.at - CONTEXT_BYTES)
    return span.rule.accepts(bytes(data[span.start : span.end])) and not span.rule.spares(
        bytes(data[context : span.start])
    )
