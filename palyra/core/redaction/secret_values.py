"""Tests for values that look like secrets: random, or at least no placeholder and no code."""

import base64
import binascii
import re
from math import log2

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS = b"0123456789"
_PLACEHOLDERS = re.compile(
    rb"(?i)your|example|placeholder|change|dummy|redacted|sample|insert|replace|fixme|todo|xxx|\*\*\*"
    rb"|\.\.\.|0123456|1234567|abcdef|[$<>{}]"
)
# What code writes where a value would stand, with its digits taken away.
_CODE_WORDS = frozenset(
    b"password passwd pwd pass pw passphrase secret token tok key apikey api_key value val str string"
    b" int uint float base utf latin sha md test user admin arg param var v s p k line item none null"
    b" true false bytes".split()
)
_MIN_BITS_A_CHARACTER = 2.75
_CODE = re.compile(
    rb"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[~.a-z0-9_-]*(?:/[a-z0-9_.-]+)+|\d+(?:\.\d+)+\S*"
)


def is_password(found: bytes) -> bool:
    """Whether it may be a password: letters and digits, no placeholder, nothing that code writes."""
    is_drawn_word = _is_mixed(found) or is_scattered(found) or _is_shuffled(found)
    return is_drawn_word and not _is_placeholder(found)


def _is_shuffled(found: bytes) -> bool:
    """Whether a short word of letters has both cases all over, unlike any name in a program."""
    changes = len(_CASE_CHANGE.findall(found))
    is_name = _CAMEL.fullmatch(found) or _ABBREVIATED.fullmatch(found)
    return not is_name and len(found) >= _LEAST_SHUFFLED and changes >= _CHANGES_OF_A_WORD


def is_hash(found: bytes) -> bool:
    """Whether salt and digest of a password follow the mark of their scheme (crypt(5))."""
    digest = found.rpartition(b"$")[2]
    return len(digest) >= _LEAST_DIGEST and bits_a_character(digest) >= _STRICT_BITS


_LEAST_DIGEST = 22  # of MD5, the shortest
_LEAST_SHUFFLED = 10
_CHANGES_OF_A_WORD = 4
_ABBREVIATED = re.compile(rb"[A-Za-z]?[a-z]*(?:[A-Z]+[a-z]{2,})*[A-Z]*s?")


def is_lettered(found: bytes) -> bool:
    """Whether a word of letters alone is long enough for a password, and no name of a program."""
    return (
        bits_a_character(found) >= _MIN_BITS_A_CHARACTER
        and not _CAMEL.fullmatch(found)
        and not _is_placeholder(found)
    )


def is_random(found: bytes) -> bool:
    """Return True if it looks random: like a password, and with few repeated characters."""
    if _is_placeholder(found) or bits_a_character(found) < _MIN_BITS_A_CHARACTER:
        return False
    return _is_mixed(found) or is_scattered(found) or _is_shuffled(found)


def is_scattered(found: bytes) -> bool:
    """Return True if upper and lower case alternate as in a random draw, not as in `camelCase`."""
    if _CAMEL.fullmatch(found):
        return False
    changes = len(_CASE_CHANGE.findall(found))
    return len(found) >= _LEAST_SCATTERED and changes >= len(found) * _CHANGES_A_CHARACTER


# Of two letters drawn at random, half differ in case; of two in a row of camel case, a third at most.
_CASE_CHANGE = re.compile(rb"(?=[a-z][A-Z]|[A-Z][a-z])")
_CHANGES_A_CHARACTER = 0.36
_CAMEL = re.compile(rb"[a-z]*(?:[A-Z][a-z]{2,})+")
_LEAST_SCATTERED = 16


def is_drawn(found: bytes) -> bool:
    """Whether a token has what every random one of its length has: digits, or mixed case."""
    return has_digit(found) or is_scattered(found)


def has_digit(found: bytes) -> bool:
    """A token of 16 or more characters without any digit is a word, not a token."""
    return found.translate(None, b"0123456789") != found


def is_strictly_drawn(found: bytes) -> bool:
    """Upper case, lower case and digits, with the entropy of base 62."""
    kinds = [found.translate(None, kind) != found for kind in (_UPPER, _LOWER, _DIGITS)]
    return all(kinds) and bits_a_character(found) >= _STRICT_BITS and not _is_wordy(found)


_UPPER, _LOWER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz"
_STRICT_BITS = 3.4
_WORD = re.compile(rb"[a-z]{6,}|[A-Z]{7,}|[A-Z][a-z]{5,}")


def _is_wordy(found: bytes) -> bool:
    """Whether a third of it is made of long runs of one case, as names are."""
    return sum(map(len, _WORD.findall(found))) * 3 >= len(found)


def is_opaque(found: bytes) -> bool:
    """Whether the value is a key for certain: hexadecimal digits, a UUID, base 32 or base 62."""
    if _is_placeholder(found) or bits_a_character(found) < _OPAQUE_BITS or not is_drawn(found):
        return False
    return _UNIFORM.fullmatch(found) is not None or is_strictly_drawn(found)


_OPAQUE_BITS = 2.9
_UNIFORM = re.compile(
    rb"[0-9a-f]{16,}|[0-9A-F]{16,}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    rb"|(?=(?:[^0-9]*[0-9]){2})[a-z0-9]{20,}|(?=(?:[^0-9]*[0-9]){2})[A-Z0-9]{20,}"
)


def is_typed_password(found: bytes) -> bool:
    """Whether an argument of a command is a password and no placeholder, number, path or variable."""
    word = found.strip(b"\"'`.,;)").lower()
    is_number = not word.strip(b"0123456789:./")  # ports and addresses as well
    is_plain = word in _EXAMPLES or word in _CODE_WORDS or is_number or not word.strip(b"*.x-")
    return not (is_plain or _PLACEHOLDERS.search(found) or found[:1] in b"-/$%&@<=[(|>+~")


def is_no_name(found: bytes) -> bool:
    """Whether it is more than lower-case words with a number behind them, as accounts are called."""
    return has_digit(found) and _NAME.fullmatch(found) is None


def is_key_of_network(found: bytes) -> bool:
    """Whether it is a password and no name of a protocol, such as `wpa2-personal`."""
    return is_password(found) and is_no_name(found)


_NAME = re.compile(rb"(?:[a-z]+[0-9]{0,3}[._-])+[a-z]*[0-9]{0,3}")


def is_login(found: bytes) -> bool:
    """Whether `user:password` holds a password that looks like one, no range and no pair of names."""
    return is_no_example(found) and is_password(found.partition(b":")[2])


_EXAMPLES = frozenset(
    b"pass password passwd pwd pw secret token key apikey api_key api-key changeme xxx".split()
)


def is_no_example(found: bytes) -> bool:
    """Return True if `user:password` is no placeholder out of a manual or a template."""
    password = found.partition(b":")[2].lower()
    is_masked = not password.strip(b"*.x")
    return not (is_masked or password in _EXAMPLES or password.startswith((b"$", b"%(", b"%s")))


def is_basic(found: bytes) -> bool:
    """Return True if it decodes to the credentials of HTTP's basic scheme (RFC 7617)."""
    bare = found.rstrip(b"=").translate(_STANDARD)
    try:
        decoded = base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return False
    return (
        b":" in decoded
        and decoded.isascii()
        and decoded.decode().isprintable()
        and not _is_placeholder(decoded)
    )


_STANDARD = bytes.maketrans(b"-_", b"+/")


def may_be_secret(value: str) -> bool:
    """Whether a string beside a key that names a secret can be one: neither empty nor a hint."""
    data = value.strip().encode("utf-8", "surrogatepass")
    if data.lower() in {b"", b"true", b"false", b"none", b"null"} or data.startswith(b"[redacted:"):
        return False
    return not (_PLACEHOLDERS.search(data) and len(data) <= _LONGEST_PLACEHOLDER)


_LONGEST_PLACEHOLDER = 40


def _is_mixed(found: bytes) -> bool:
    has_digit = len(found.translate(None, _DIGITS)) < len(found)
    return has_digit and len(found.translate(None, _LETTERS)) < len(found)


def _has_drawn(found: bytes) -> bool:
    """Whether a part between dots is a random draw, which no name in a program is."""
    return any(
        len(part) >= _LEAST_DRAWN
        and (is_strictly_drawn(part) or len(_DIGIT_CHANGE.findall(part)) >= _DIGIT_CHANGES)
        for part in re.split(rb"[./]", found)
    )


_LEAST_DRAWN = 16
_DIGIT_CHANGE = re.compile(rb"(?=[a-z][0-9]|[0-9][a-z])")
_DIGIT_CHANGES = 4
_PUBLIC = (b"pk_live_", b"pk_test_")  # publishable keys, which pages carry


def _is_placeholder(found: bytes) -> bool:
    word = found.translate(None, _DIGITS).strip(b"_-.").lower()
    is_code = word in _CODE_WORDS or (_CODE.fullmatch(found) is not None and not _has_drawn(found))
    return is_code or found.startswith(_PUBLIC) or _PLACEHOLDERS.search(found) is not None


def bits_a_character(found: bytes) -> float:
    """Shannon's entropy of the characters by themselves."""
    size = len(found)
    counts = [found.count(byte) for byte in set(found)]
    return -sum(count / size * log2(count / size) for count in counts)
