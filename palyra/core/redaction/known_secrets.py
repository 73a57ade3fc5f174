"""The daemon's own secrets in each form a text may hold: plain, escaped for JSON or a URL, in base64.

A known secret is matched exactly, anywhere in a text.  Escapes are followed to any depth (JSON in
a string in JSON doubles its backslashes), hexadecimal digits in either case; base64 in both
alphabets and at each of the three offsets a secret can have inside what was encoded.
"""

import base64
import re
from collections.abc import Iterable, Iterator

from palyra.core.ids import is_any_id
from palyra.core.redaction.grammar import ANYWHERE, Rule

MIN_KNOWN_BYTES = 8  # shorter ones occur in ordinary text; nothing that short is a credential
MAX_KNOWN_BYTES = 65_536
LONGEST_EXPRESSION_BYTES = 128  # of a secret that is one expression; see `long_secrets`
_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~")


def find_refusal(value: str, words: str = "") -> str:
    """Return why a value cannot be a secret, as a clause without the value; "" if it can.

    `words` are what the daemon itself writes, one a line: a part of it would be replaced there.
    """
    size = len(_bytes(value))
    if size < MIN_KNOWN_BYTES:
        return f"shorter than {MIN_KNOWN_BYTES} bytes: too short to be recognised for redaction"
    if size > MAX_KNOWN_BYTES:
        return f"longer than {MAX_KNOWN_BYTES} bytes: no secret is that long"
    if value in words or value in _MARKER or _NAME.fullmatch(value):
        return "a word of the protocol: replacing it would break the daemon's own records"
    if is_any_id(value):
        return "an id: replacing it would break the daemon's own records"
    return ""


_MARKER = "[redacted:known]"
_NAME = re.compile(r"[a-z]{2,}(?:_[a-z]+)+")  # as members and tools are called


def is_long(secret: str) -> bool:
    """Whether a secret is too long for one expression."""
    return len(_bytes(secret)) > LONGEST_EXPRESSION_BYTES


def forms_of(secret: str) -> tuple[str, ...]:
    """Return the secret and its forms in base64."""
    return secret, *_base64_forms(_bytes(secret))


def known_rules(secrets: Iterable[str]) -> tuple[Rule, ...]:
    """Return a rule for each form of each secret of at least MIN_KNOWN_BYTES, longest first."""
    forms = {
        form for secret in secrets if len(_bytes(secret)) >= MIN_KNOWN_BYTES
        for form in forms_of(secret)
    }  # fmt: skip
    ordered = sorted(forms, key=lambda form: (-len(form), form))
    return tuple(Rule("known", ANYWHERE, "", escapable(form)) for form in ordered)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the characters of base64 that depend on the secret alone, per offset (RFC 4648)."""
    for offset in range(3):
        whole_sextets = (offset + len(secret)) * 8 // 6
        foreign_sextets = -(-offset * 8 // 6)
        padded = bytes(offset) + secret
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded)[foreign_sextets:whole_sextets].decode("ascii")


def escapable(text: str) -> str:
    """Return an expression for the text in all its spellings."""
    return "".join(map(spell, text))


def spell(character: str) -> str:
    """Return a character in each of its spellings, as one unit of the grammar."""
    if character in _PLAIN:
        return character
    return f"(?:{'|'.join(_spellings(character))})"


def _spellings(character: str) -> Iterator[str]:
    encoded = _bytes(character)
    itself = "".join(rf"\x{byte:02x}" for byte in encoded)
    yield r"\\+" if character == "\\" else rf"\\*{itself}"
    yield "".join(f"%{_hexadecimal(f'{byte:02x}')}" for byte in encoded)
    utf16 = character.encode("utf-16-be", "surrogatepass").hex()
    yield "".join(rf"\\+u{_hexadecimal(utf16[at : at + 4])}" for at in range(0, len(utf16), 4))
    if character in _SHORT:
        yield rf"\\+{_SHORT[character]}"
    if character == " ":
        yield r"\x2b"  # application/x-www-form-urlencoded


def _hexadecimal(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)
