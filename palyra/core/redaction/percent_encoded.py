"""The rules for percent-encoded text, in which the characters around a secret are written as %XX.

Each rule is derived from a rule of `patterns`: a unit that matches a character which encoding changes
matches its escapes as well, and no bare `%`.  A rule whose units encoding does not change (most
vendors' tokens) finds its secrets anyway and has no derived one.  The checks of a rule are applied to
decoded values and keys.

Source: RFC 3986 (2.1, 2.3); `+` for a blank as in application/x-www-form-urlencoded.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from urllib.parse import unquote_to_bytes

from palyra.core.redaction.context_patterns import BEFORE_FLAG, BLANK
from palyra.core.redaction.grammar import ANYWHERE, Rule, units

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_CHANGED = [chr(code) for code in range(128) if chr(code) not in _UNRESERVED]
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


def encoded_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules for percent-encoded forms, in the order of the plain ones."""
    derived = (_encoded(rule) for rule in rules if rule.name != _PEM.name)
    return (_PEM, *(rule for rule in derived if rule is not None))


def _encoded(rule: Rule) -> Rule | None:
    plain = rule.before, rule.joint, rule.secret, rule.after
    before, joint, secret, after = encoded = tuple(map(_encoded_shape, plain))
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
    return _as_argument(derived, rule) if rule.start in {BLANK, BEFORE_FLAG} else derived


def _as_argument(encoded: Rule, plain: Rule) -> Rule:
    """The row for an argument of a command: the blanks round it and behind the command are encoded.

    A `+` is such a blank only behind a word; at the beginning of a line it is one of a patch.
    """
    return encoded._replace(
        start=_encoded_shape(plain.start).replace(r"\+", r"[A-Za-z0-9]\+"),
        spares=lambda found: plain.spares(_unquoted(found.replace(b"+", b" "))),
        needs=b"%+",
        hint=_encoded_shape(_BLANK_BEHIND_WORD.sub("", plain.hint)),
    )


_BLANK_BEHIND_WORD = re.compile(r"(?<=[a-z]) (?=[|)])")


def _unquoted(found: bytes) -> bytes:
    """The text before both rounds; what was encoded once stays as it is in the second."""
    return unquote_to_bytes(unquote_to_bytes(found))


@cache
def _encoded_shape(shape: str) -> str:
    return "".join(_encoded_unit(unit) + quantifier for unit, quantifier in units(shape))


@cache
def _encoded_unit(unit: str) -> str:
    """The unit, with the escapes of every character it matches."""
    if unit.endswith(_SCHEME):
        return f"{unit.removesuffix(_SCHEME)}[ \\t+%][ \\t+%209]*)"
    escapes = [] if unit == _ANY else list(_escapes(unit))
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


def _escapes(unit: str) -> Iterator[str]:
    """`%XX` for what the unit matches alone and encoding changes; by the first digit."""
    compiled = re.compile(unit.encode("latin-1"), re.DOTALL)
    found: dict[str, str] = {}
    for character in _CHANGED:
        if compiled.fullmatch(character.encode()):
            digits = f"{ord(character):02x}"
            seconds = "".join(sorted({digits[1], digits[1].upper()}))
            found[digits[0]] = found.get(digits[0], "") + seconds
    for first, seconds in found.items():
        yield f"%{first}[{seconds}]"
        yield f"%25{first}[{seconds}]"
    if compiled.fullmatch(b" ") and not compiled.fullmatch(b"+"):
        yield r"\+"
    if compiled.fullmatch(b"\x80"):
        yield _HIGH
        yield _HIGH.replace("%", "%25")
