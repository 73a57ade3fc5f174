"""The rules for percent-encoded text, in which the characters around a secret are written as %XX.

Each rule is derived from a rule of `patterns`: a unit that matches a character which encoding changes
matches its escapes as well, and no bare `%`.  A rule whose units encoding does not change (most
vendors' tokens) finds its secrets anyway and has no derived one.  The checks of a rule are applied to
decoded values and keys.

Source: RFC 3986 (2.1, 2.3); `+` for a blank as in application/x-www-form-urlencoded.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from urllib.parse import unquote_to_bytes

from palyra.core.redaction.context_patterns import BEFORE_FLAG, BLANK
from palyra.core.redaction.grammar import ANYWHERE, Rule, units
from palyra.core.redaction.scanner import WholeMatch

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_CHANGED = [chr(code) for code in range(128) if chr(code) not in _UNRESERVED]
_BEYOND = "\x80"  # in place of those beyond ASCII
_HIGH = "%[89A-Fa-f][0-9A-Fa-f]"  # a byte of a character beyond ASCII
_ANY = r"[\s\S]"
_SCHEME = "[ \\t]+)"  # ends a group that is a word and blanks
_AFTER_BLANK = frozenset({"bearer", "basic"})  # only a blank separates them, and `+` is one
_BODY = "(?:[A-Za-z0-9+/=%._]|-[A-Za-z0-9+/=%._])"  # of a key in PEM, and not its end

_PEM = Rule(
    "private_key", ANYWHERE, "",
    rf"-----BEGIN[A-Z0-9+%]*PRIVATE(?:%20|%2520|\+)KEY[A-Z0-9+%]*-----{_BODY}{{32,}}",
    needs=b"%", is_word=True,
)  # fmt: skip


_BLANK_BEHIND_WORD = re.compile(r"(?<=[a-z]) (?=[|)])")


def encoded_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules for percent-encoded forms, in the order of the plain ones."""
    plain = tuple(rule for rule in rules if rule.name != _PEM.name)
    encode = _ShapeEncoder(shape for rule in plain for shape in _shapes(rule))
    derived = (_encoded(rule, encode) for rule in plain)
    return (_PEM, *(rule for rule in derived if rule is not None))


def _shapes(rule: Rule) -> tuple[str, ...]:
    """Return the parts of a rule that may be encoded."""
    parts = rule.before, rule.joint, rule.secret, rule.after
    return (*parts, rule.start, _argument_hint(rule)) if _is_argument(rule) else parts


def _encoded(rule: Rule, encode: "_ShapeEncoder") -> Rule | None:
    plain = rule.before, rule.joint, rule.secret, rule.after
    before, joint, secret, after = encoded = tuple(map(encode, plain))
    if encoded == plain:
        return None
    derived = rule._replace(
        before=before,
        joint=joint,
        secret=secret,
        after=after,
        accepts=lambda found: rule.accepts(_unquoted(found)),
        spares=lambda found: rule.spares(_unquoted(found)),
        is_word=" " not in secret,
        needs=b"%+" if rule.name in _AFTER_BLANK else b"%",
        hint=rule.hint.replace("[ \\t]", "[ \\t+%09]"),  # a blank, or an end of its escape
    )
    return _as_argument(derived, rule, encode) if _is_argument(rule) else derived


def _is_argument(rule: Rule) -> bool:
    return rule.start in {BLANK, BEFORE_FLAG}


def _argument_hint(rule: Rule) -> str:
    return _BLANK_BEHIND_WORD.sub("", rule.hint)


def _as_argument(encoded: Rule, plain: Rule, encode: "_ShapeEncoder") -> Rule:
    """The row for an argument of a command: the blanks round it and behind the command are encoded.

    A `+` is such a blank only behind a word; at the beginning of a line it is one of a patch.
    """
    return encoded._replace(
        start=encode(plain.start).replace(r"\+", r"[A-Za-z0-9]\+"),
        spares=lambda found: plain.spares(_unquoted(found.replace(b"+", b" "))),
        needs=b"%+",
        hint=encode(_argument_hint(plain)),
    )


def _unquoted(found: bytes) -> bytes:
    """The text before both rounds; what was encoded once stays as it is in the second."""
    return unquote_to_bytes(unquote_to_bytes(found))


class _ShapeEncoder:
    """Adds to the units of shapes the escapes of every character they match.

    All units of all shapes are one set of expressions: compiled one by one they take a tenth of a
    second, at the first text with a `%`.
    """

    def __init__(self, shapes: Iterable[str]) -> None:
        parts = {shape: units(shape) for shape in set(shapes)}
        kinds = sorted({unit for part in parts.values() for unit, _ in part})
        matches = WholeMatch(kinds)
        alone: dict[str, list[str]] = {unit: [] for unit in kinds}  # characters that each matches
        for character in (*_CHANGED, _BEYOND):
            for index in matches(character.encode("latin-1")):
                alone[kinds[index]].append(character)
        encoded = {unit: _encoded_unit(unit, characters) for unit, characters in alone.items()}
        self._encoded = {
            shape: "".join(encoded[unit] + quantifier for unit, quantifier in part)
            for shape, part in parts.items()
        }

    def __call__(self, shape: str) -> str:
        """Return the shape for encoded text."""
        return self._encoded[shape]


def _encoded_unit(unit: str, characters: Collection[str]) -> str:
    """The unit, with the escapes of these characters, which it matches."""
    if unit.endswith(_SCHEME):
        return f"{unit.removesuffix(_SCHEME)}[ \\t+%][ \\t+%209]*)"
    escapes = [] if unit == _ANY else list(_escapes(characters))
    if not escapes:
        return unit
    inner = unit[3:-1] if unit.startswith("(?:") else _without_percent(unit)
    return f"(?:{'|'.join([*filter(None, [inner]), *escapes])})"


def _without_percent(unit: str) -> str:
    """A class without the bare `%`, which would take escapes of what does not belong to it.

    Nor with bare parentheses, which would end the group it is in.
    """
    if not unit.startswith("["):
        return unit
    plain = unit.replace("(", r"\x28").replace(")", r"\x29")
    if plain.startswith("[^"):  # nor with the `+` that encodes a blank
        return plain.replace("[^", r"[^%+" if r"\s" in plain else "[^%", 1)
    return plain.replace("%", "", 1)


def _escapes(characters: Collection[str]) -> Iterator[str]:
    """`%XX` for those of the characters that encoding changes; by the first digit."""
    found: dict[str, str] = {}
    for character in characters:
        if character in _CHANGED:
            digits = f"{ord(character):02x}"
            seconds = "".join(sorted({digits[1], digits[1].upper()}))
            found[digits[0]] = found.get(digits[0], "") + seconds
    for first, seconds in found.items():
        yield f"%{first}[{seconds}]"
        yield f"%25{first}[{seconds}]"
    if " " in characters and "+" not in characters:
        yield r"\+"
    if _BEYOND in characters:
        yield _HIGH
        yield _HIGH.replace("%", "%25")
