"""Redaction: removes secrets from tapes, frames and log lines, and leaves all other text as it is.

Owns: compiled rules only.  Calls no other module of the daemon.  Never: decides what is a secret
(`patterns`, `known_secrets`) or drops a whole document.

A secret is replaced by `[redacted:<class>]`, span by span; in JSON the whole string beside a key that
names a secret.  Redacting twice changes nothing more, valid JSON stays valid JSON, and a text
without a secret is returned byte for byte.  The usual case costs one search of one expression
(`scanner.FirstLook`), which matches a little more than the rules do.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import sha256

from palyra.core.redaction.base64_encoded import base64_rules
from palyra.core.redaction.key_names import may_name_secret, names_secret
from palyra.core.redaction.known_secrets import find_refusal, is_long, known_rules
from palyra.core.redaction.long_secrets import LongSecrets
from palyra.core.redaction.patterns import KEYED_STRING, RULES
from palyra.core.redaction.percent_encoded import encoded_rules
from palyra.core.redaction.scanner import Ahead, Scanner, compile_bytes, look_pattern
from palyra.core.redaction.secret_values import is_opaque, is_password, may_be_secret
from palyra.core.redaction.stream import AFTER_SECRET, AnyScanner, StreamHoldBack
from palyra.core.redaction.structures import Structures

# Escapes that could hide a rule's letters in JSON text: \u but for control characters, and \/.
_HIDING = r"\\u(?:[1-9A-Fa-f]|0[1-9A-Fa-f]|00[2-9A-Fa-f])|\\/"
BASE64 = base64_rules(lambda decoded: _holds_secret(decoded))  # noqa: PLW0108 - defined below
_HIDDEN = compile_bytes(_HIDING)
_JSON_STRING = compile_bytes(r'"(?:[^"\\]|\\[\x00-\xff])*"')
# Several values in a row as well, and JSON that was cut off.
_JSON_TEXT = compile_bytes(
    r'(?:[ \t\r\n{}\[\]:,]|true|false|null|-?[0-9][0-9.eE+-]*|"(?:[^"\\]|\\[\x00-\xff])*")*'
    r'(?:"(?:[^"\\]|\\[\x00-\xff])*\\?|[a-z]*)\z'
)
REMEMBERED_BYTES = 1_024  # a shorter text takes less than a millisecond
MEMORY_BYTES = 2_097_152
ENTRY_BYTES = 256  # of an entry, without its text
SHORTEST_TOKEN = 10  # with its quotes; no rule matches in a shorter JSON string
_BLANKS = b" \t\r\n"
_JSON_SYNTAX = b" \t\r\n{}[]:,-+.0123456789Eaeflnrstu"  # everything between strings


# Pairs of containers and of deployment descriptions that are written as two members, in any order.
_NAMES = frozenset({"name", "Name", "key", "Key"})
_VALUES = frozenset({"value", "Value"})
_NAME_BEHIND = compile_bytes(
    r'[ \t\r\n]*,[ \t\r\n]*"(?:[nN]ame|[kK]ey)"[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\[\x00-\xff])*")',
    has_groups=True,
)
# Members of a value such as `{"credential": {"id": …}}` that are no secret by themselves.
_NO_SECRET_MEMBER = re.compile(
    r"(?i)(?:\b|_|-|[a-z](?=[A-Z]))(?:id|kid|ref|hash|sha256|etag|digest|path|url)\Z"
)


class Redactor:
    """The rules, with the daemon's own secrets."""

    def __init__(self, known_secrets: Iterable[str]) -> None:
        self._known = frozenset(known_secrets)
        self._memory = _Memory()
        self._compile()

    def learn(self, *secrets: str) -> None:
        """Redact these secrets from now on; a stream that began before does not know them.

        A value that cannot be a secret (`known_secrets.find_refusal`) is passed over.
        Not thread-safe.  New secrets take some milliseconds, all of them together.
        """
        learned = frozenset(secret for secret in secrets if not find_refusal(secret))
        if not self._known.issuperset(learned):
            self._known |= learned
            self._compile()
            self._memory = (
                _Memory()
            )  # last: a search that began with the old rules keeps the old one

    def _compile(self) -> None:
        known = known_rules(secret for secret in self._known if not is_long(secret))
        long = [secret for secret in self._known if is_long(secret)]
        self._known_scanners: tuple[AnyScanner, ...] = (
            *([LongSecrets(long)] if long else []),
            *([Scanner(known)] if known else []),
        )

    @property
    def scanners(self) -> tuple[AnyScanner, ...]:
        """Scanners in the order in which they read a text.

        Known secrets come first, so that no other rule removes a part of one.
        """
        return (*self._known_scanners, _STRUCTURES, encoded_scanner(), _PLAIN, _BASE64)

    def prepare(self) -> Iterator[bool]:
        """Compile ahead of time in small steps; yields True after each step."""
        for scanner in self.scanners:
            yield from scanner.prepare()

    def _may_hold(self, data: bytes) -> bool:
        """Return True if any rule may match; false positives are possible."""
        if _PLAIN.may_find(data) or _STRUCTURES.may_find(data):
            return True
        if any(scanner.may_find(data) for scanner in self._known_scanners):
            return True
        return _may_be_encoded(data) and encoded_scanner().may_find(data)

    def _narrowed(self, data: bytes) -> Callable[[bytes], object]:
        """Return a look at strings of this text, which searches for what may be in the text only.

        A text without hidden letters matches wherever one of its strings does, decoded.
        """
        if _HIDDEN.search(data) is not None:
            return self._may_hold
        looks: list[Callable[[bytes], object]] = [
            *_PLAIN.look.narrowed(data),
            *(scanner.may_find for scanner in self._known_scanners if scanner.may_find(data)),
        ]
        if _may_be_encoded(data):
            looks += encoded_scanner().look.narrowed(data)
        if _STRUCTURES.place.search(data) is not None:
            looks.append(_STRUCTURES.place.search)
        return lambda text: any(look(text) for look in looks)

    def redact_bytes(self, data: bytes) -> tuple[bytes, bool]:
        """Return the JSON text with secrets replaced in its strings, and True if there were any.

        Text that is not JSON is redacted as plain text, and its strings as those of JSON.
        """
        if not self._may_hold(data):
            return data, False
        redacted = self._memory.recall(data, self._redact_json)
        return redacted, redacted != data

    def _redact_json(self, data: bytes) -> bytes:
        if _JSON_TEXT.match(data) is None:  # then a key may be outside of the strings
            data = self._redact_plain(data)
        return b"".join(self._json_pieces(data))

    def redact_text(self, text: str) -> tuple[str, bool]:
        """Return the text with secrets replaced, and True if there were any."""
        data = text.encode("utf-8", "surrogatepass")
        if not self._may_hold(data):
            return text, False
        redacted = self._redact_plain(data)
        return redacted.decode("utf-8", "surrogatepass"), redacted != data

    def _redact_plain(self, data: bytes) -> bytes:
        for scanner in self._known_scanners:
            data = b"".join(_pieces(scanner, data))
        for scanner in _fixed_scanners(data):
            data = b"".join(_pieces(scanner, data))
        return data

    def _json_pieces(self, data: bytes) -> Iterator[bytes]:
        done = 0
        before = b""  # the string before
        name = ""  # of `{"name": …, "value": …}`
        may_hold = self._narrowed(data)
        owners: list[
            str | None
        ] = []  # class of the secret that each open array or object is part of
        while (match := _JSON_STRING.search(data, done)) is not None:
            start, end = match.span()
            between, token = data[done:start], data[start:end]
            key = _decoded(before) if between.strip(_BLANKS) == b":" else ""
            _follow_brackets(owners, between, before)
            name = "" if b"}" in between else name
            yield self._redact_syntax(between)
            if key in _NAMES:
                name = _decoded(token)
            elif key in _VALUES:
                key, name = name or _name_behind(data, end) or key, ""
            yield self._redact_value(token, key, owners[-1] if owners else None, may_hold)
            before, done = token, end
        yield self._redact_syntax(data[done:])

    def _redact_value(
        self, token: bytes, key: str, owner: str | None, may_hold: Callable[[bytes], object]
    ) -> bytes:
        """Redact a string by its key and by the class of the array or object that it is part of.

        It is a secret if its key names one.  If its key may name one, or the key of an array or
        object round it does, the string must look like a secret as well.
        """
        name = names_secret(key) if key else None
        if name is not None:
            is_secret = may_be_secret(_decoded(token))
        else:
            name = (may_name_secret(key) if key else None) or _class_of_member(key, owner)
            is_secret = name is not None and _is_certain(name, key, _decoded(token))
        return (
            f'"[redacted:{name}]"'.encode() if is_secret else self._redact_string(token, may_hold)
        )

    def _redact_syntax(self, between: bytes) -> bytes:
        is_json = not between.strip(_JSON_SYNTAX)
        return between if is_json else self._redact_plain(between)

    def _redact_string(self, token: bytes, may_hold: Callable[[bytes], object]) -> bytes:
        """Redact a JSON string with its quotes; without a secret it is returned byte for byte."""
        if len(token) < SHORTEST_TOKEN or not may_hold(token):
            return token
        return self._memory.recall(token, self._redact_token)

    def _redact_token(self, token: bytes) -> bytes:
        try:
            text = json.loads(token.decode(), strict=False)
        except ValueError:  # bad escapes or bad UTF-8: not JSON, so there is no form to keep
            return self._redact_plain(token)
        data = text.encode("utf-8", "surrogatepass")
        redacted = self._redact_plain(data)
        return (
            token if redacted == data else _json_string(redacted.decode("utf-8", "surrogatepass"))
        )


class _Memory:
    """Results for long texts, by digest: an argument is part of several events of a run.

    The texts themselves are not kept.  Thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, bytes], bytes | None] = {}  # None: as it was
        self._size_bytes = 0

    def recall(self, data: bytes, redact: Callable[[bytes], bytes]) -> bytes:
        """Return `redact(data)`, computed once."""
        if len(data) < REMEMBERED_BYTES:
            return redact(data)
        key = redact.__name__, sha256(data).digest()
        try:
            known = self._known[key]
        except KeyError:
            redacted = redact(data)
            self._keep(key, None if redacted == data else redacted)
            if redacted != data:  # redaction is idempotent: the second pass of a step finds it
                self._keep((redact.__name__, sha256(redacted).digest()), None)
            return redacted
        return data if known is None else known

    def _keep(self, key: tuple[object, bytes], redacted: bytes | None) -> None:
        self._size_bytes += ENTRY_BYTES + len(redacted or b"")
        if self._size_bytes > MEMORY_BYTES:
            self._known.clear()
            self._size_bytes = ENTRY_BYTES + len(redacted or b"")
        self._known[key] = redacted


class StreamRedactor:
    """Redaction of one stream; `feed` and `flush` return text that may be sent."""

    def __init__(self, redactor: Redactor) -> None:
        self._stages = [StreamHoldBack(scanner) for scanner in redactor.scanners]

    def feed(self, text: str) -> str:
        """Take a piece and return the text that is now certain; empty while none is."""
        data = text.encode("utf-8", "surrogatepass")
        for stage in self._stages:
            data = stage.feed(data)
        return data.decode("utf-8", "surrogatepass")

    def flush(self) -> str:
        """Return the held-back rest at the end of the text, and start a new stream."""
        data = b""
        for stage in self._stages:
            data = stage.feed(data) + stage.flush()
        return data.decode("utf-8", "surrogatepass")


# Scanners that no known secret changes.
_STRUCTURES = Structures()
_PLAIN = Scanner(RULES, beside=(_HIDING, KEYED_STRING, look_pattern(BASE64)))
_BASE64 = Scanner(BASE64)
_ENCODED_PART_RULES = 8  # each rule is several times as large as its plain one


@cache
def encoded_scanner() -> Scanner:
    """Return the scanner of percent-encoded text, derived for the first such text."""
    return Scanner(encoded_rules(RULES), part_rules=_ENCODED_PART_RULES)


def _fixed_scanners(data: bytes) -> Iterator[AnyScanner]:
    """Yield the scanners that may match in the text."""
    yield _STRUCTURES
    # Encoded forms first: a plain rule would take such a token only up to its first escape.
    if _may_be_encoded(data):
        yield encoded_scanner()
    yield _PLAIN
    yield _BASE64


def _may_be_encoded(data: bytes) -> bool:
    return b"%" in data or b"+" in data


def _holds_secret(data: bytes) -> bool:
    return any(scanner.find(data) is not None for scanner in _fixed_scanners(data))


def _pieces(scanner: AnyScanner, data: bytes) -> Iterator[bytes]:
    """Yield the redacted text in pieces; text after a secret is read as following a marker."""
    shown: bytes | bytearray = data
    done = 0
    ahead: Ahead = {}
    while (span := scanner.find(shown, max(0, done - 1), floor=done, ahead=ahead)) is not None:
        yield data[done : span.start]
        yield span.marker
        done = span.end
        if isinstance(shown, bytes):
            shown = bytearray(data)
        shown[done - 1 : done] = AFTER_SECRET
    yield data[done:]


def _name_behind(data: bytes, pos: int) -> str:
    """Return the name of `{"value": …, "name": …}`, whose value ends at `pos`."""
    match = _NAME_BEHIND.match(data, pos)
    return "" if match is None else _decoded(data[slice(*match.span(1))])


def _follow_brackets(owners: list[str | None], between: bytes, before: bytes) -> None:
    """Enter and leave arrays and objects; one below a key that names no secret is part of its owner.

    An array is often named by the plural.
    """
    key = _decoded(before) if between.lstrip(_BLANKS)[:1] == b":" else ""
    for byte in between:
        if byte in b"]}":
            del owners[-1:]
        elif byte in b"[{":
            named = names_secret(key) or names_secret(key.removesuffix("s"))
            owners.append(named or (owners[-1] if owners else None))
            key = ""


def _class_of_member(key: str, owner: str | None) -> str | None:
    return None if _NO_SECRET_MEMBER.search(key) else owner


def _is_certain(name: str, key: str, value: str) -> bool:
    """Return True if the value is a key for certain, or a password in a list or pair of these."""
    data = value.encode("utf-8", "replace")
    is_bare = not key or key in _VALUES
    return is_opaque(data) or (is_bare and name == "password" and is_password(data))


def _decoded(token: bytes) -> str:
    """Return the text of a JSON string; empty if it is not one."""
    try:
        return (
            str(json.loads(token.decode("utf-8", "surrogatepass"), strict=False)) if token else ""
        )
    except ValueError:
        return ""


def _json_string(text: str) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8; its escape is valid JSON
        return json.dumps(text).encode()
