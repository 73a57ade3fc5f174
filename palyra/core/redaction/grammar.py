"""Grammar of secret shapes: units with quantifiers, and what is derived from them.

A shape is a sequence of units (a character, a class, a group) with quantifiers, without
alternation between units and without nested groups.  Three expressions are derived from each
rule: the shape itself, a shorter one for a cheap first look (see `scanner`), and its *viable
prefixes*: every text that more text may turn into a match.  A stream holds these back.

Everything runs in a linear-time engine on bytes.  Two rules keep the whole scan linear as well,
not just each match: a shape that can run on without end needs a start that cannot occur inside
it, and open repetition is never bounded from above (counters multiply the automaton's states).
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

CONTEXT_BYTES = 96  # before a match that a rule may look at: a terminal's colour, a command's name


def _anything(_found: bytes) -> bool:
    return True


def _nothing(_before: bytes) -> bool:
    return False


class Rule(NamedTuple):
    """One shape; only the match of `secret` is replaced, `before`, `joint` and `after` are kept."""

    name: str  # the class in `[redacted:<class>]`
    start: str  # the boundary on the left
    before: str
    secret: str
    after: str = ""
    accepts: Callable[[bytes], bool] = _anything  # decides about the match of `secret`
    spares: Callable[[bytes], bool] = (
        _nothing  # given CONTEXT_BYTES and more before `secret`, True keeps it
    )
    needs: bytes = b""  # one of these bytes must be in what `start` to `secret` matched
    is_word: bool = False  # the secret is one word, and what precedes it fits CONTEXT_BYTES
    is_broad: bool = False  # most matches are refused, and must not hide other rules
    hint: str = ""  # found in the JSON text of every match; by default the shape itself
    joint: str = (
        ""  # between `before` and `secret`; neighbours that share all from here on share it
    )

    @property
    def margins(self) -> tuple[int, int] | None:
        """Bytes of `before` and of `after`, when both are plain text."""
        before = self.before + self.joint
        is_plain = not re.search(r"[\\\[(*+?{.]", before + self.after)
        return (len(before), len(self.after)) if is_plain else None

    @property
    def shape(self) -> str:
        """The rule as one expression with one group."""
        return f"{self.start}{self.before}{self.joint}({self.secret}){self.after}"

    @property
    def rest(self) -> str:
        """The expression after `before`."""
        return f"{self.joint}{self.secret}{self.after}"

    @property
    def tail(self) -> str:
        """Expression of an unlimited continuation of a match; empty if the end is known."""
        unit, quantifier = units(self.secret)[-1]
        is_open = quantifier in {"*", "+"} or quantifier.endswith(",}")
        return f"{unit}*" if is_open and not self.after else ""


# --- The grammar ---------------------------------------------------------------------------------

_UNIT = re.compile(
    r"(?P<unit>\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:[^()]*\)|\\x[0-9a-f]{2}|\\.|[^\\\[(])"
    r"(?P<quantifier>[*+?]\??|\{\d+(?:,\d*)?\})?"
)
_DANGLING = r"[%\\][\\%0-9A-Fa-fu]*"  # an escape sequence that has only begun


def units(shape: str) -> list[tuple[str, str]]:
    """Return the units of the shape with their quantifiers ("" for exactly one)."""
    return [(found["unit"], found["quantifier"] or "") for found in _UNIT.finditer(shape)]


def viable_prefix(shape: str) -> str:
    """Return an expression for all prefixes of the shape, or a few more, never fewer.

    Counts are dropped (`{20,}` becomes `*`): too long a prefix only delays text, too short a one
    lets a secret pass.
    """
    rest = ""
    for unit, quantifier in reversed(units(shape)):
        rest = _viable_unit(unit, quantifier, f"(?:{rest})?" if rest else "")
    return rest


def _viable_unit(unit: str, quantifier: str, rest: str) -> str:
    if not unit.startswith("("):
        if not quantifier:
            return f"{unit}{rest}"
        return f"{unit}{'*' if quantifier[0] in '*?' else '+'}{rest}"
    begun = "".join(f"{prefix}|" for prefix in _begun(unit))
    if not quantifier:
        return f"(?:{unit}{rest}|{begun}{_DANGLING})"
    repeated = f"{unit}*" if quantifier[0] in "*?" else f"{unit}+"
    return f"{repeated}(?:{begun}[\\s\\S]|{_DANGLING})?{rest}"


def _begun(group: str) -> Iterator[str]:
    """Yield viable prefixes of the alternatives that are words, not characters or escapes."""
    for alternative in _ALTERNATIVE.findall(group[3:-1]):
        if len(units(alternative)) > 1 and not alternative.startswith(("%", r"\\")):
            yield viable_prefix(alternative)


_ALTERNATIVE = re.compile(r"(?:\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^\[\\|])+")


# --- Left boundaries -----------------------------------------------------------------------------

# A letter or digit before a prefix makes it part of a word (`task-…` is no `sk-…`), unless it ends
# an escape: \n in JSON or source text, %3D in a URL, a terminal's colour.  The bracket that ends
# our own marker is no boundary: text that was kept next to a secret is kept next to its marker.
_ESCAPE = r"\\[a-z]|\\u[0-9A-Fa-f]{4}|%(?:25)*[0-9A-Fa-f]{2}|\[[0-9;]*[mK]"
ANYWHERE = ""
WORD = rf"(?:^|[^A-Za-z0-9\]]|{_ESCAPE})"
TOKEN = rf"(?:^|[^A-Za-z0-9_\]-]|{_ESCAPE})"
# A run of base64 in either alphabet is one word.
RUN = rf"(?:^|[^A-Za-z0-9+/_\]-]|{_ESCAPE})"
# Boundaries that match in escaped JSON text wherever they match in the decoded text.
WITH_ESCAPES = frozenset({WORD, TOKEN, RUN})

# Viable prefixes, and a few more texts, of all rules whose matches are one word: the last word.
# The exact prefixes of some hundred formats would make an automaton of as many states as words.
ONE_WORD = rf"(?:^|[\s\S]|{_ESCAPE})[!#-&(-;=?@A-Z^_a-z|~\x80-\xff]+"


def any_case(word: str) -> str:
    """Return an expression for the word in any case; a blank matches any joint of two words."""
    return "".join(
        f"[{letter.upper()}{letter.lower()}]"
        if letter.isalpha()
        else letter
        if letter.isdigit()
        else _JOINT
        for letter in word
    )


_JOINT = "[ _.-]?"
