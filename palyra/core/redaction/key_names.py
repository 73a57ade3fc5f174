"""Keys that name a secret, and whether what stands beside one looks like it.

A key in a structure (`{"client_secret": …}`) is read by its words: the last ones say what the value
is.  In plain text (`client_secret = …`) the value must look random as well, because programs and
manuals are full of such lines without any secret in them.
"""

import base64
import binascii
import re
from math import log2

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
SECRET_WORDS = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "credential",
    "credentials", "cookie", "authorization",
)  # fmt: skip
KEY_OF = frozenset(
    [
        "access",
        "account",
        "api",
        "auth",
        "client",
        "encryption",
        "license",
        "master",
        "private",
        "secret",
        "service",
        "shared",
        "signing",
        "ssh",
        "storage",
        "webhook",
    ]
)
# Words before `token` that make it a place in a list, or a piece of text a model reads.
_NO_TOKEN = frozenset(
    [
        "begin",
        "bos",
        "cls",
        "continuation",
        "count",
        "cursor",
        "end",
        "eos",
        "first",
        "input",
        "key",
        "last",
        "mask",
        "max",
        "min",
        "next",
        "num",
        "output",
        "pad",
        "page",
        "prev",
        "previous",
        "resume",
        "sep",
        "special",
        "start",
        "stop",
        "sync",
        "total",
        "unk",
    ]
)
MAX_KEY_CHARS = 128  # a longer one is no key but a text


def names_secret(key: str) -> str | None:
    """The class of what such a key holds, None for anything that is no secret."""
    found = list(_WORDS.finditer(key)) if len(key) <= MAX_KEY_CHARS else []
    if not found or found[-1].end() != len(key):
        return None
    before, last = (match.group().lower() for match in (found[-2:-1] or found)[:1] + found[-1:])
    if last == "key":
        return "api_key" if before in KEY_OF else None
    word = next((word for word in SECRET_WORDS if last.endswith(word)), "")
    if word == "token" and (before in _NO_TOKEN or last[:-5] in _NO_TOKEN):
        return None
    return _CLASSES.get(word, word) or None


_CLASSES = {
    "passwd": "password", "passphrase": "password", "pwd": "password", "apikey": "api_key",
    "credential": "secret", "credentials": "secret",
}  # fmt: skip


_KEY_AT_END = re.compile(rb"([A-Za-z0-9_ -]*[A-Za-z0-9_-])[^A-Za-z0-9_-]*\Z")


def is_no_key(before: bytes) -> bool:
    """Whether the key that a text ends with, and what separates it from a value, names no secret."""
    end = before[-MAX_KEY_CHARS:].replace(b"%3D", b"=").replace(b"%3d", b"=")
    match = _KEY_AT_END.search(end)
    return match is not None and names_secret(match[1].decode("ascii")) is None


# --- Values --------------------------------------------------------------------------------------

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
    return _is_mixed(found) and not _is_placeholder(found)


def is_random(found: bytes) -> bool:
    """Whether it looks drawn at random: like a password, and hardly a character twice."""
    return is_password(found) and _bits_a_character(found) >= _MIN_BITS_A_CHARACTER


def is_basic(found: bytes) -> bool:
    """Whether it decodes to the credentials of HTTP's basic scheme (RFC 7617)."""
    try:
        decoded = base64.b64decode(found, validate=True)
    except binascii.Error:
        return False
    return b":" in decoded and decoded.isascii() and not _is_placeholder(decoded)


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


def _is_placeholder(found: bytes) -> bool:
    word = found.translate(None, _DIGITS).strip(b"_-.").lower()
    is_code = word in _CODE_WORDS or _CODE.fullmatch(found) is not None
    return is_code or _PLACEHOLDERS.search(found) is not None


def _bits_a_character(found: bytes) -> float:
    """Shannon's entropy of the characters by themselves."""
    size = len(found)
    counts = [found.count(byte) for byte in set(found)]
    return -sum(count / size * log2(count / size) for count in counts)
