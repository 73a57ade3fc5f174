"""Search for matches of the rules, in time linear in the text for any text.

The engine is RE2 on bytes (Latin-1 mode: every byte is a character), so UTF-8 passes through and
no input makes it backtrack.  It builds its automaton state by state while it reads, and is fast as
long as the automaton stays in its cache.  It is slow for an expression of hundreds of rules that has
to return *where* it matches: it then follows each rule at each byte, forwards to the end of a match
and backwards to its beginning.  A text therefore passes four steps, each of which reads only a small
part of what the step before it read:

1. The first look (`FirstLook`): a few runs over the text, which return only which parts may find
   something.  Its expressions are simplified rules: counts end at LOOK_BYTES, and the `hint` of a
   rule replaces the rule.  They match wherever a rule does, and in ordinary text hardly anywhere
   else.  Nearly every text ends here.
2. The parts (`Part`): PART_RULES neighbouring rules form one expression, which finds the leftmost
   match.  Only parts that the first look returned are searched, and a match further on is kept for
   the next search.  A rule that matches often and is mostly refused has a part of its own.
3. The rule: the match alone is read again, to find which rules of the part it fits and where in it
   the secret is.  Of two rules the first in the table wins.
4. The check: `accepts` examines the secret (entropy, words), `spares` the text before it (a key, a
   command).  If the match is refused, step 2 continues after it.

Rules with the same boundary share it in their expression, and neighbours that differ in `before`
alone, as the words of a key do, share all that follows.  This makes the expressions smaller by half,
and with them the time to compile them.

Nothing is compiled before a text needs it; `prepare` does it ahead of time.  The first look is all
that a start pays for.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, starmap
from typing import NamedTuple, Protocol, cast

import re2

from palyra.core.redaction.grammar import (
    ANYWHERE,
    CONTEXT_BYTES,
    ONE_WORD,
    WITH_ESCAPES,
    Rule,
    viable_prefix,
)

_ESCAPE_MARKS = frozenset({b"\\", b"%", b"["})  # what the longer boundaries begin with
# Upper bound of an automaton's cache, filled as texts need it.  With the library's 8 MiB the rules
# together fall back to its slow engine.
_AUTOMATON_BYTES = 64 << 20
# Rules of one expression.  To find where a match begins the engine runs back through all rules of its
# expression, and what is not cached of that costs milliseconds.
PART_RULES = 48
LOOK_BYTES = 16  # characters of a secret that the first look requires
_UNKNOWN = Rule("secret", ANYWHERE, "", "[ -~]")  # if the engine does not name the rule


class Span(NamedTuple):
    """A match from `at`, of which `start` to `end` is the secret."""

    at: int
    start: int
    end: int
    rule: Rule

    @property
    def marker(self) -> bytes:
        """The text that replaces the secret."""
        return f"[redacted:{self.rule.name}]".encode("ascii")


class Expression(Protocol):
    """The part of a compiled RE2 expression that is used here; the package has no types."""

    programsize: int
    reverseprogramsize: int

    def search(
        self, text: bytes | bytearray, pos: int = 0, endpos: int | None = None
    ) -> "Match | None": ...
    def match(self, text: bytes, pos: int = 0) -> "Match | None": ...
    def finditer(self, text: bytes) -> "Iterator[Match]": ...


class Match(Protocol):
    """One match."""

    def span(self, group: int = 0) -> tuple[int, int]: ...


def compile_bytes(
    pattern: str, *, has_groups: bool = False, is_longest: bool = False
) -> Expression:
    """Compile an expression over bytes; without groups it runs about three times faster.

    `is_longest`: of the matches at a place the longest one, not the first alternative.
    """
    options = _options(has_groups)
    options.longest_match = is_longest
    expression: Expression = re2.compile(pattern.encode("latin-1"), options)
    return expression


def _options(has_groups: bool) -> re2.Options:  # noqa: FBT001 - private, one caller per value
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = not has_groups
    options.max_mem = _AUTOMATON_BYTES
    options.log_errors = False  # it would write the pattern, and with it known secrets, to stderr
    return options


Ahead = dict[int, tuple[int, int] | None]  # by part: where its next match is, None without any
_UNREAD = (-1, -1)


# Expressions that share an automaton: one has a state for each combination of theirs, and builds
# those that a text leads to.  All together they cost ten times as much in a text not seen before.
_SET_PATTERNS = 3
_SET_CHARACTERS = 6_000


class FirstLook:
    """Several expressions over a text: finds which of them match, not where.

    They are dealt to small sets, the short ones together, and each set reads the text once.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        dealt: list[list[int]] = []
        sizes: list[int] = []
        patterns = list(patterns)
        for at in sorted(range(len(patterns)), key=lambda at: len(patterns[at])):
            size = len(patterns[at])
            is_full = not dealt or len(dealt[-1]) == _SET_PATTERNS
            if is_full or sizes[-1] + size > _SET_CHARACTERS:
                dealt.append([])
                sizes.append(0)
            dealt[-1].append(at)
            sizes[-1] += size
        self._sets = [
            (_compile_set(re2.Set.SearchSet, [patterns[at] for at in chosen]).Match, chosen)
            for chosen in dealt
        ]

    def __call__(self, data: bytes) -> Sequence[int]:
        """Return the indices of the expressions that match, in no order; none for most texts."""
        found: list[int] = []
        for match, chosen in self._sets:
            if which := match(data):
                found += [chosen[at] for at in which]
        return found

    def narrowed(self, data: bytes) -> list[Callable[[bytes], object]]:
        """Return the searches that match the text, and so may match parts of it."""
        return [match for match, _ in self._sets if match(data)]


class WholeMatch:
    """Several expressions at once: finds which of them match the whole of a text."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._set = _compile_set(re2.Set.FullMatchSet, patterns)

    def __call__(self, data: bytes) -> Sequence[int]:
        """Return the indices of the expressions that match, in no order."""
        return self._set.Match(data) or ()


def _compile_set(kind: Callable[[re2.Options], re2.Set], patterns: Iterable[str]) -> re2.Set:
    made = kind(_options(has_groups=False))
    for pattern in patterns:
        made.Add(pattern.encode("latin-1"))
    made.Compile()
    return made


def look_pattern(rules: Iterable[Rule]) -> str:
    """Return an expression that matches wherever a rule does, and more often.

    It also matches in JSON text that still has its escapes.
    """
    rules = tuple(rules)
    hints = sorted({rule.hint for rule in rules if rule.hint})
    shapes = _together(
        rule if rule.start in WITH_ESCAPES else rule._replace(start="")
        for rule in rules
        if not rule.hint
    )
    return _LONG.sub(_shortened, "|".join(filter(None, [*hints, shapes])))


_LONG = re.compile(r"\{([0-9]+)(?:,[0-9]*)?\}")


def _shortened(count: re.Match[str]) -> str:
    return count[0] if int(count[1]) <= LOOK_BYTES else f"{{{LOOK_BYTES},}}"


def _together(rules: Iterable[Rule]) -> str:
    """Join all rules to one expression, in their order; neighbours share the boundary on their left.

    Otherwise the engine would follow hundreds of equal boundaries at each byte.
    """
    groups = groupby(rules, lambda rule: rule.start)
    return "|".join(f"{start}(?:{_bodies(group)})" for start, group in groups)


def _viable_together(rules: Iterable[Rule]) -> str:
    groups = groupby(rules, lambda rule: rule.start)
    return "|".join(f"{start}(?:{_viable_bodies(group)})" for start, group in groups)


def _bodies(rules: Iterable[Rule]) -> str:
    """Join rules without their boundaries; neighbours share everything after `before`."""
    groups = groupby(rules, lambda rule: rule.rest)
    return "|".join(
        f"(?:{'|'.join(rule.before for rule in group)}){rest}" for rest, group in groups
    )


def _viable_bodies(rules: Iterable[Rule]) -> str:
    return "|".join(starmap(_viable_group, groupby(rules, lambda rule: rule.rest)))


def _viable_group(rest: str, group: Iterable[Rule]) -> str:
    befores = [rule.before for rule in group]
    if len(befores) == 1:
        return viable_prefix(befores[0] + rest)
    whole = f"(?:{'|'.join(befores)})(?:{viable_prefix(rest)})?"
    return "|".join([whole, *map(viable_prefix, befores)])


class Part:
    """Neighbouring rules, compiled when they are needed."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._each: dict[int, Expression] = {}

    @cached_property
    def expression(self) -> Expression:
        """All rules as one expression."""
        return compile_bytes(_together(self._rules))

    @cached_property
    def which(self) -> re2.Set:
        return _compile_set(re2.Set.FullMatchSet, (rule.shape for rule in self._rules))

    @cached_property
    def _margins(self) -> list[tuple[int, int] | None]:
        return [rule.margins for rule in self._rules]

    def prepare(self) -> None:
        """Compile the expressions of a search."""
        self.expression, self.which  # noqa: B018 - for their effect

    def look(self) -> str:
        """Return an expression that matches wherever the rules do, and more often."""
        return look_pattern(self._rules)

    def next_place(self, data: bytes | bytearray, pos: int) -> tuple[int, int] | None:
        """Return start and end of the leftmost match from `pos` on."""
        match = self.expression.search(data, pos)
        return None if match is None else match.span()

    def spans(self, data: bytes | bytearray, at: int, end: int) -> Iterator[Span]:
        """Yield the secret by each rule that matches this piece, in the order of the rules."""
        found = bytes(data[at:end])
        which = [0] if len(self._rules) == 1 else self.which.Match(found)
        if not which:
            yield Span(at, at, end, _UNKNOWN)
            return
        for index in sorted(which):
            yield self._span(found, at, index)

    def _span(self, found: bytes, at: int, index: int) -> Span:
        rule, margins = self._rules[index], self._margins[index]
        if margins is None or found[:1] in _ESCAPE_MARKS:
            match = cast("Match", self._expression(index).match(found))  # the set has just matched
            start, stop = match.span(1)
            return Span(at, at + start, at + stop, rule)
        # The usual boundary is one byte, or none at the beginning of the text.
        boundary = 1 if rule.start and not found[:1].isalnum() else 0
        return Span(at, at + boundary + margins[0], at + len(found) - margins[1], rule)

    def _expression(self, index: int) -> Expression:
        if index not in self._each:
            self._each[index] = compile_bytes(self._rules[index].shape, has_groups=True)
        return self._each[index]


class Scanner:
    """All rules in parts, and the viable prefixes for streams; compiled as needed."""

    def __init__(
        self, rules: Sequence[Rule], beside: Sequence[str] = (), part_rules: int = PART_RULES
    ) -> None:
        """`beside` are further patterns of the first look."""
        self._rules = tuple(rules)
        self._beside = tuple(beside)
        needs = [rule.needs for rule in rules]
        self._needs = b"".join(needs) if all(needs) else b""
        near = [rule for rule in rules if not rule.is_broad]
        parts = [near[at : at + part_rules] for at in range(0, len(near), part_rules)]
        parts += [[rule] for rule in rules if rule.is_broad]
        self._parts = [Part(part) for part in parts]

    @cached_property
    def look(self) -> FirstLook:
        """First look at a text: indices of the parts that may match, then of `beside`."""
        return FirstLook([*(part.look() for part in self._parts), *self._beside])

    @cached_property
    def _viable(self) -> Expression:
        # Anchored at the end only: RE2 then runs backwards and stops with the last viable byte.
        exact = [rule for rule in self._rules if not rule.is_word]
        words = [] if len(exact) == len(self._rules) else [ONE_WORD]
        viable = "|".join([*words, _viable_together(exact)])
        return compile_bytes(rf"(?:{viable})\z")

    def prepare(self) -> Iterator[bool]:
        """Compile in small steps what is not compiled yet; yields True after each step."""
        self.look  # noqa: B018 - for its effect
        yield True
        for part in self._parts:
            part.prepare()
            yield True
        self._viable  # noqa: B018 - for its effect
        yield True

    def may_find(self, data: bytes) -> bool:
        """Return True if any rule may find something; false positives are possible."""
        if self._needs and len(data.translate(None, self._needs)) == len(data):
            return False
        return bool(self.look(data))

    def find(
        self, data: bytes | bytearray, pos: int = 0, floor: int = 0, ahead: Ahead | None = None
    ) -> Span | None:
        """Return the leftmost accepted secret that starts at `floor` or later; None without one.

        `ahead` keeps matches of the parts further on for the next call on the same text; without it
        a text with many secrets would be read to its end for each of them.
        """
        matches: Ahead = {} if ahead is None else ahead
        if not matches:
            likely = (at for at in self.look(bytes(data)) if at < len(self._parts))
            matches.update(dict.fromkeys(likely, _UNREAD))
        for at, known in matches.items():
            if known is not None and known[0] <= pos + 1:
                matches[at] = self._parts[at].next_place(data, pos)
        while found := [(place, at) for at, place in matches.items() if place is not None]:
            (start, end), at = min(found, key=lambda item: (item[0][0], item[1]))
            for span in self._parts[at].spans(data, start, end):
                if span.start >= floor and _is_secret(data, span):
                    return span
            matches[at] = self._parts[at].next_place(data, start + 1)
        return None

    def find_viable(self, data: bytes | bytearray, pos: int) -> int:
        """Return the start of the longest end of `data` that more text may complete; len() if none."""
        match = self._viable.search(data, pos)
        return len(data) if match is None else match.span()[0]


def _is_secret(data: bytes | bytearray, span: Span) -> bool:
    """Check a match and the text before it by the functions of its rule."""
    needs = span.rule.needs
    if needs and not any(byte in data[span.at : span.end] for byte in needs):
        return False
    context = max(0, span.at - CONTEXT_BYTES)
    return span.rule.accepts(bytes(data[span.start : span.end])) and not span.rule.spares(
        bytes(data[context : span.start])
    )
