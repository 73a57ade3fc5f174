"""Values beside a key that names a secret, found by the structure round them and not by their looks.

Structures are JSON at any depth of escapes, literals of programs, YAML, TOML, INI, dotenv, headers,
options and assignments of a shell, lists of arguments, calls with a name and a value, statements of SQL,
netrc, elements and attributes of XML, connection strings and queries of addresses.  A reader finds a key (`key_names`) with a separator behind it, takes the value as far as
the structure says, and only then asks whether the *whole* value is a placeholder, a word or code.  So
no character inside of a password decides about it.

The object has the interface of `scanner.Scanner`, so texts and streams use it as one scanner more.
The text before a key is read LOOK_BACK_BYTES far at most, less than a stream keeps.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import NamedTuple

from palyra.core.redaction.grammar import ANYWHERE, Rule, any_case
from palyra.core.redaction.key_names import (
    MODIFIERS,
    PERHAPS_WORDS,
    SECRET_WORDS,
    may_name_secret,
    names_secret,
)
from palyra.core.redaction.scanner import Ahead, Expression, Span, compile_bytes
from palyra.core.redaction.secret_values import (
    is_drawn_value,
    is_joined,
    is_secret_argument,
    is_secret_line,
    is_secret_member,
    is_secret_option,
    is_secret_string,
    is_secret_variable,
)

LOOK_BACK_BYTES = 64
LONGEST_VALUE_BYTES = 8_192  # of a quoted value; a longer one is cut there
LONGEST_WORD_BYTES = 1_024  # of a value without quotes
# Read backwards, because a search would try each place before the key.
_KEY_BACKWARDS = re.compile(
    rb"[.]?(?:[A-Za-z0-9_\x80-\xff-]|(?<=[A-Za-z_])[.]|(?<=[A-Za-z]) (?=[A-Za-z0-9]))*"
)
_BLANKS = b" \t"

# --- Where a key ends ----------------------------------------------------------------------------

_KEY_IN_GERMAN = r"[sS][cC][hH][lL](?:[uU][eE]|\xc3[\xbc\x9c]|\\+u00[dDfF][cC])[sS][sS][eE][lL]"
_APART = {word.replace(" ", ""): word for word in ("pass word", "pass phrase", "pass code")}
_WORD = "|".join(
    sorted(
        {
            *(any_case(_APART.get(word, word)) for word in (*SECRET_WORDS, *PERHAPS_WORDS)),
            _KEY_IN_GERMAN,
        },
        key=lambda form: (-len(form), form),
    )
)
_MODIFIER = f"(?:[_.-]?(?:{'|'.join(any_case(word) for word in sorted(MODIFIERS))}|[0-9]+))?"
# Of one password, several.  Texts are full of tokens that are none.
_SEVERAL = "|".join(
    any_case(word) for word in ("password", "passphrase", "secret", "apikey", "api key")
)
_NAME = f"(?:{_WORD}|(?:{_SEVERAL})s){_MODIFIER}"
_ATTRIBUTE = r"""[ \t]+[A-Za-z:-]+=\\*["'][^"'<>\r\n]*["']"""
_IDENTIFIED = any_case("identified")
_SHAPES = (
    # `"key": `, `key = `, `key := `, `key ||= `, `'key' => `, `[:key] = `
    rf"""{_NAME}["'`\\]*[\]\x29}}]?[ \t]*(?:[|?][|?]=|[?:]=|=>|[:=])""",
    # `"pass\u0077ord": `
    r"""\\u00[2-7][0-9A-Fa-f][A-Za-z0-9_.\x80-\xff-]*["'\\]+[ \t]*:""",
    # `{"name": "KEY", "value": "…"}`, `- name: KEY` above `value: …`, `name="key" value="…"`
    rf"""(?:{_WORD}){_MODIFIER}["'\\]*[ \t]*(?:,|;|\r|\n|\\n|[ \t])[ \t\r\n]*["'\\]*[Vv]alue["'\\]*[ \t]*[:=]""",
    # `<key>…`, `<key type="…">…`
    rf"(?:{_WORD}){_MODIFIER}>",
    rf"""{_NAME}(?:\\*["'])?(?:{_ATTRIBUTE})+[ \t]*>""",
    # `<property name="key">…`, `<name>key</name><value>…`, `<key>key</key> <string>…`
    rf"""{_NAME}\\*["'][ \t]*>""",
    rf"""{_NAME}[ \t]*</[A-Za-z]+>(?:[ \t\r\n]|\\[nrt])*<(?:[A-Za-z]*[vV]alue|[sS]tring)>""",
    # `--key …`
    rf"""(?:^|[ \t\r\n"'`\x28,\\])--?(?:[A-Za-z][A-Za-z0-9.-]*[-._]|[A-Za-z]+)?(?:{_WORD}){_MODIFIER}[ \t]""",
    # `- --key` above `- …`
    rf"""--?[A-Za-z0-9._-]*(?:{_WORD}){_MODIFIER}(?:\\*["'])?[ \t]*(?:\r?\n|(?:\\r)?\\n)[ \t]*-[ \t]""",
    # `ENV KEY …` of a Dockerfile, `setenv KEY …` of a shell, an entry of a netrc
    rf"(?:ENV|setenv|SetEnv|setx)[ \t]+[A-Za-z0-9_]*(?:{_WORD}){_MODIFIER}[ \t]",
    r"login[ \t]+[^ \t\r\n]+[ \t\r\n]+password[ \t]",
    # `f("key", "…")`, `["--key", "…"]`
    rf"""{_NAME}\\*["'][ \t]*,""",
    # `IDENTIFIED BY '…'`, `PASSWORD '…'` of SQL
    rf"""{_IDENTIFIED}(?:[ \t]+{any_case("with")}[ \t]+[A-Za-z0-9_"'`]+)?[ \t]+{any_case("by")}[ \t]+(?:{any_case("password")}[ \t]+)?["']""",
    rf"""(?:{_WORD})[ \t]+["']""",
)


@cache
def _place() -> Expression:
    return compile_bytes("|".join(_SHAPES))


@cache
def _begun() -> Expression:
    """Return the expression for an end of a text that may become a place, or the key of one."""
    ends = (
        r"""["'`\\]*[\]\x29}]?[ \t]*[|?:]?[|?]?""",
        r"""["'\\]*[ \t]*(?:,|;|\r|\n|\\n|[ \t])[ \t\r\n]*["'\\]*[Vv]?a?l?u?e?["'\\]*[ \t]*""",
        rf"""["']?(?:{_ATTRIBUTE})*[ \t]*(?:[A-Za-z:-]+(?:=(?:["'][^"'<>\r\n]*)?)?|/)?""",
        r"""[ \t]*<?/?[A-Za-z]*>?[ \t\r\n]*<?[A-Za-z]*""",
        r"""["']?[ \t]*\r?\n?[ \t]*-?""",
    )
    words = (
        r"(?:ENV|setenv|SetEnv|setx)[ \t]+[A-Za-z0-9_]*",
        r"login[ \t]+[^ \t\r\n]*(?:[ \t\r\n]+p?[a-z]*)?",
        rf"""{_IDENTIFIED}(?:[ \t]+[A-Za-z0-9_"'`]*)*""",
        r"""\\u00[2-7][0-9A-Fa-f][A-Za-z0-9_.\x80-\xff-]*["'\\]+[ \t]*""",
        r"(?:[A-Za-z0-9_.-]|\\+(?:u[0-9A-Fa-f]*)?)+",
    )
    return compile_bytes(rf"(?:{'|'.join(words)}|{_NAME}(?:{'|'.join(ends)}))\z")


class _Place(NamedTuple):
    """A separator behind a key."""

    start: int  # of the key
    end: int  # behind the separator
    key: str
    name: str | None  # class of the secret that the key names, None if it only may name one
    perhaps: str | None
    sign: bytes  # the separator: `:`, `=`, `>`, ` `
    before: bytes  # of the same line, before the key
    is_quoted: bool  # the key has quotes
    is_plural: bool = False  # only a list of values can be meant


class _Value(NamedTuple):
    start: int
    end: int
    is_open: bool  # more text may make it longer
    kind: str
    tail: str  # unit of the text that continues it
    is_cut: bool = False  # its end is further away than is read


class Structures:
    """Reads the values of all keys that name a secret."""

    @cached_property
    def place(self) -> Expression:
        return _place()

    @cached_property
    def begun(self) -> Expression:
        return _begun()

    def prepare(self) -> Iterator[bool]:
        """Compile ahead of time; yields True after each step."""
        self.place  # noqa: B018 - for its effect
        yield True
        self.begun  # noqa: B018 - for its effect
        yield True

    def may_find(self, data: bytes) -> bool:
        """Return True if there is a key that names a secret, with a separator behind it."""
        return next(self._places(data, 0), None) is not None

    def find(
        self, data: bytes | bytearray, pos: int = 0, floor: int = 0, ahead: Ahead | None = None
    ) -> Span | None:
        """Return the first secret value that starts at `floor` or later; None without one."""
        del ahead
        for place in self._places(data, pos):
            value, is_secret = _judged(data, place)
            if is_secret and value.start >= floor:
                name = place.name or place.perhaps or "secret"
                return Span(value.start, value.start, value.end, _rule(name, value.tail))
        return None

    def find_viable(self, data: bytes | bytearray, pos: int) -> int:
        """Return the start of the end of `data` that more text may complete; len() if none."""
        for place in self._places(data, pos):
            if _judged(data, place)[0].is_open:
                return place.start
        match = self.begun.search(data, max(pos, len(data) - LONGEST_WORD_BYTES))
        return len(data) if match is None else match.span()[0]

    def _places(self, data: bytes | bytearray, pos: int) -> Iterator[_Place]:
        while (match := self.place.search(data, pos)) is not None:
            start, end = match.span()
            place = _place_at(data, start, end)
            if place is not None:
                yield place
            pos = end - 1 if end - 1 > start else end


_SIGN = re.compile(
    rb"""(["'`\\]*)([\])}]?)[ \t]*([|?][|?]=|[?:]=|=>|[:=,]|>|[ \t])\Z|["'\\]*[ \t]*(?:,|;|\r|\n|\\n|[ \t])[ \t\r\n]*["'\\]*[Vv]alue["'\\]*[ \t]*([:=])\Z"""
)
_ELEMENT_END = re.compile(
    rb"""(?:\\*["'])?(?:[ \t]+[A-Za-z:-]+=\\*["'][^"'<>\r\n]*["'])*[ \t]*>\Z"""
    rb"""|[ \t]*</[A-Za-z]+>(?:[ \t\r\n]|\\[nrt])*<[A-Za-z]+>\Z"""
)
_NAMES_ELEMENT = re.compile(
    rb"""(?:[<:]|(?:[nN]ame|[kK]ey|[iI]d)=\\*["']|<(?:[nN]ame|[kK]ey)>)\Z"""
)
_ITEM_BEHIND = re.compile(rb"""(?:\\*["'])?[ \t]*(?:\r?\n|(?:\\r)?\\n)[ \t]*-[ \t]\Z""")
_CALLED = re.compile(rb"""[A-Za-z0-9_\])][ \t]*\(\s*\\*["']\Z""")
_ESCAPED_KEY = re.compile(rb"(?:[A-Za-z0-9_.\x80-\xff-]|\\u00[2-7][0-9A-Fa-f])*\Z")
_ESCAPED = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
_MATCHED_KEY = re.compile(rb"-?[A-Za-z][A-Za-z0-9_. -]*")


def _place_at(data: bytes | bytearray, start: int, end: int) -> _Place | None:
    """Return the place whose key ends in this match, None if it is no key of a secret."""
    matched = bytes(data[start:end])
    if matched.startswith(b"\\u00"):
        return _escaped_place(data, start, end)
    if matched.endswith((b"'", b'"')):
        return _statement_place(data, start, end)
    start += len(matched) - len(matched := matched.lstrip(b" \t\r\n\"'`(,\\"))
    key_end, sign, close = _split(matched)
    lead, before = _look_back(data, start)
    key = _ESCAPED_UE.sub(b"ue", lead + matched[:key_end]).decode("utf-8", "replace")
    is_option = (lead + matched).startswith(b"-")
    if sign == b" " or _OPTION.search(lead):
        key = re.split(r" -|^-+", key)[-1]
    name, is_plural = names_secret(key), False
    if name is None and key[-1:] in {"s", "S"} and sign in {b":", b"="}:
        name = _name_of_many(key)
        is_plural = name is not None
    perhaps = may_name_secret(key) if name is None else None
    is_quoted = (
        matched[key_end : key_end + 1] in {b'"', b"'", b"`", b"\\"} and not before[-1:].isalnum()
    )
    is_open = close and not is_quoted and not (close == b"]" and before.endswith(b"[:"))
    is_unnamed = (name is None and perhaps is None) or (
        sign == b"," and (name is None or name in _WITH_SCHEME)
    )
    if is_unnamed or is_open or _is_elsewhere(before, sign, is_option=is_option):
        return None
    if sign == b"=>" and (key.isupper() or b";" in before) and data[end : end + 1] not in _SPACED:
        sign, end = b"=", end - 1
    return _Place(start - len(lead), end, key, name, perhaps, sign, before, is_quoted, is_plural)


_SPACED = frozenset({b" ", b"'", b'"', b""})


def _look_back(data: bytes | bytearray, start: int) -> tuple[bytes, bytes]:
    """Return the beginning of the key that a match continues, and the text of the line before it."""
    back = bytes(data[max(0, start - LOOK_BACK_BYTES) : start])
    back = back[max(back.rfind(b"\n"), back.rfind(b"\r"), back.rfind(b"]")) + 1 :]
    lead = back[len(back) - _KEY_BACKWARDS.match(back[::-1]).end() :]  # type: ignore[union-attr]  # `…*` matches anything
    return lead, back[: len(back) - len(lead)]


def _name_of_many(key: str) -> str | None:
    """Return the class of the secrets that the plural of a key names; texts are full of tokens."""
    name = names_secret(key[:-1])
    return None if name in {"token", "cookie"} else name


def _is_elsewhere(before: bytes, sign: bytes, *, is_option: bool) -> bool:
    """Whether the text before a key shows that what follows is not its value."""
    if before.endswith((b"::", b"${", b"/")) or (_ARN.search(before) and sign == b":"):
        return True
    if sign == b",":
        return not (before[-1:] in {b'"', b"'"} if is_option else _CALLED.search(before))
    return sign == b">" and _NAMES_ELEMENT.search(before) is None


def _escaped_place(data: bytes | bytearray, start: int, end: int) -> _Place | None:
    """Return the place behind a key of JSON that has escapes for some of its letters."""
    back = bytes(data[max(0, start - LOOK_BACK_BYTES) : start])
    lead = _ESCAPED_KEY.search(back)[0]  # type: ignore[index]  # `…*` matches anything
    raw = lead + bytes(data[start:end]).rstrip(b"\"'\\: \t")
    key = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), raw).decode("utf-8", "replace")
    before, name = back[: len(back) - len(lead)], names_secret(key)
    if name is None or not before.endswith((b'"', b"'")):
        return None
    return _Place(start - len(lead), end, key, name, None, b":", before, is_quoted=True)


def _statement_place(data: bytes | bytearray, start: int, end: int) -> _Place | None:
    """Return the place of `IDENTIFIED BY '…'` and `PASSWORD '…'`, where words are the separator."""
    words = bytes(data[start : end - 1]).split()
    lead, before = _look_back(data, start)
    key = "password" if len(words) > 1 else (lead + words[0]).decode("utf-8", "replace")
    name = names_secret(key.rpartition(" ")[2])
    if name != "password" or lead[:1] == b"-":
        return None
    return _Place(start - len(lead), end - 1, key, name, None, b" ", before, is_quoted=False)


_ESCAPED_UE = re.compile(rb"\\+u00[DdFf][Cc]")
_OPTION = re.compile(rb"(?:\A| )--?[A-Za-z][A-Za-z0-9_. -]*\Z")
_ARN = re.compile(rb"[A-Za-z0-9-]:\Z")


def _split(matched: bytes) -> tuple[int, bytes, bytes]:
    """Return where the key ends in the match, the sign behind it, and a bracket between them."""
    if matched.endswith(b">") and not matched.endswith(b"=>"):
        element = _ELEMENT_END.search(matched)
        return (element.start() if element else len(matched) - 1), b">", b""
    if (item := _ITEM_BEHIND.search(matched)) is not None:
        return item.start(), b"-", b""
    found = _SIGN.search(matched)
    if found is None:
        return len(matched), b"", b""
    if found[4] is not None:
        return found.start(), found[4], b""
    sign = b" " if found[3] in {b" ", b"\t"} else found[3]
    return found.start(), sign, found[2]


# --- Where a value ends --------------------------------------------------------------------------

_MEMBER = re.compile(rb"""(?:\A|[{,])\s*\\*["']\Z""")
_QUOTE = re.compile(rb"""(\\*)(["'`])""")
_TAG = re.compile(
    rb"(?:(?:!<[^<>\s]*>|!{1,2}[A-Za-z][A-Za-z0-9.-]*|&[A-Za-z][A-Za-z0-9_.-]+)[ \t]+)+|[bBfFrRuU]{1,2}(?=[\"'])"
)
_PREFIX = re.compile(rb"[@bBfFrRuUnNL]{1,2}[@$]?(?=[\"'])|[$@](?=[\"'])|!![a-z]+[ ]")
_NEXT_IN_SHELL = re.compile(rb"""\\''|"'"'|'""")


def _judged(data: bytes | bytearray, place: _Place) -> tuple[_Value, bool]:
    """Return the value at a place, and True if it is a secret.

    Of a value without an end nearby only the beginning decides.
    """
    if place.perhaps not in {None, "password"}:  # only one that says how it is encoded
        ahead = bytes(data[place.end : place.end + _AHEAD_BYTES])
        is_near_end = len(ahead) < _AHEAD_BYTES
        if is_near_end or _ENCODED_AHEAD.match(ahead) is None:
            return _Value(place.end, place.end, is_near_end, "none", ""), False
    value = _read(data, place)
    judged_end = min(value.end, value.start + _JUDGED_BYTES)
    is_secret = _is_secret(place, value, bytes(data[value.start : judged_end]))
    if value.is_cut:
        end = _rest(value.tail).match(data, value.end).end() if is_secret else value.end  # type: ignore[union-attr]  # `…*` matches anything
        value = value._replace(end=end, is_open=is_secret and end == len(data))
    return value, is_secret


_AHEAD_BYTES = 16
_ENCODED_AHEAD = re.compile(rb"""[ \t\\"'`]{0,6}(?:base64|b64|hex):""")
_JUDGED_BYTES = 256


@cache
def _rest(unit: str) -> re.Pattern[bytes]:
    return re.compile(f"{unit}*".encode("latin-1"))


def _read(data: bytes | bytearray, place: _Place) -> _Value:
    """Return the value at a place."""
    at, size = place.end, len(data)
    is_member = place.is_quoted and place.sign == b":" and _MEMBER.search(place.before) is not None
    blanks = b" \t\r\n" if is_member or place.sign == b"," else _BLANKS
    if place.sign == b"=" and _is_comparison(data, place):
        return _Value(at, at, is_open=False, kind="none", tail="")
    while at < size and data[at] in blanks:
        at += 1
    if at == size:
        return _Value(at, at, is_open=True, kind="none", tail="")
    prefix = (
        (_TAG if place.sign == b":" else _PREFIX).match(data, at) if place.sign != b">" else None
    )
    if data[at] in _CONTAINERS or place.is_plural or place.sign == b",":
        container = _container(data, place, at, is_member=is_member)
        if container is not None:
            return container
    is_raw = prefix is not None and prefix[0][:1] not in b"!&" and b"r" in prefix[0].lower()
    at = prefix.end() if prefix else at
    if place.name in _WITH_SCHEME and place.sign in {b":", b"="}:
        return _credentials(data, place, at)
    return _string(data, place, at, is_raw=is_raw, is_prefixed=prefix is not None)


def _container(
    data: bytes | bytearray, place: _Place, at: int, *, is_member: bool
) -> _Value | None:
    """Return the values of a list or an object; None where a string may stand."""
    if data[at] == _ARRAY and (is_member or place.is_plural):
        return _array(data, at)
    if data[at] == _OBJECT and is_member:
        return _member(data, place, at)
    if place.is_plural and place.sign == b":" and not place.before.strip(_BLANKS + b"-"):
        return _below(data, place, at)
    if place.is_plural or (place.sign == b"," and _QUOTE.match(data, at) is None):
        return _Value(at, at, is_open=False, kind="none", tail="")
    return None


_ARRAY = 0x5B  # [
_CONTAINERS = b"[{"
_ITEM = rb'"(?:[^"\\\r\n]|\\.)*"'
_STRINGS = re.compile(rb"\[\s*" + _ITEM + rb"(?:\s*,\s*" + _ITEM + rb")*\s*\]")
_STRINGS_BEGUN = re.compile(
    rb"\[\s*(?:" + _ITEM + rb"\s*,\s*)*(?:" + _ITEM + rb'\s*|"(?:[^"\\\r\n]|\\.)*\\?)?\Z'
)
_ITEMS = re.compile(_ITEM)


def _array(data: bytes | bytearray, at: int) -> _Value:
    """Return the strings of an array of strings as one value, from the first to the last."""
    limit = min(len(data), at + LONGEST_VALUE_BYTES)
    found = _STRINGS.match(data, at, limit)
    if found is None:
        is_open = limit == len(data) and _STRINGS_BEGUN.match(data, at, limit) is not None
        return _Value(at, at, is_open=is_open, kind="none", tail="")
    start, end = data.find(b'"', at) + 1, data.rfind(b'"', at, found.end())
    return _Value(start, end, is_open=False, kind="array", tail="")


_OBJECT = 0x7B  # {
_MEMBER_OF_SECRET = re.compile(
    rb"""\{\s*(?:\\*"[^"\\\r\n]*\\*"\s*:\s*(?:\\*"[^"\\\r\n]*\\*"|[^"\\,{}\[\]\s]+)\s*,\s*)*"""
    rb"""\\*"(?:value|Value|plain|plaintext|raw|content|data|default|current|new|old|string|secretString)\\*"\s*:\s*(?=\\*")"""
)
LONGEST_OBJECT_BYTES = 512


def _member(data: bytes | bytearray, place: _Place, at: int) -> _Value:
    """Return the member of an object that holds the secret which the object's key names."""
    limit = min(len(data), at + LONGEST_OBJECT_BYTES)
    found = _MEMBER_OF_SECRET.match(data, at, limit)
    quote = None if found is None else _QUOTE.match(data, found.end())
    if quote is None:
        is_open = limit == len(data) and data.find(b"}", at, limit) < 0
        return _Value(at, at, is_open=is_open, kind="none", tail="")
    return _quoted(data, place, quote)


_LINE_BELOW = re.compile(rb"\r?\n([ \t]*)(- +)?([^\r\n]*)")
_BEGINS_BELOW = re.compile(rb"\r?\n?[ \t]*-?[ \t]*\Z")
_MAPPING = re.compile(rb"""["']?[A-Za-z0-9_. -]+["']?:(?:[ \t]|\Z)|[{\[|>&*!#%]""")


def _below(data: bytes | bytearray, place: _Place, at: int) -> _Value:
    """Return the value of YAML on the line below its key, or the list there from first to last item."""
    indent = len(place.before) - len(place.before.lstrip(_BLANKS + b"-"))
    limit = min(len(data), at + LONGEST_WORD_BYTES)
    lines, end = [], at
    while (line := _LINE_BELOW.match(data, end, limit)) is not None and line[3]:
        depth = len(line[1])
        if depth < indent or (depth == indent and line[2] is None):
            break
        lines.append(line)
        end = line.end()
    is_open = limit == len(data) and _BEGINS_BELOW.match(data, end) is not None
    nothing = _Value(at, at, is_open=is_open, kind="none", tail="")
    is_list = bool(lines) and all(line[2] for line in lines)
    if not (is_list or len(lines) == 1) or any(_MAPPING.match(line[3]) for line in lines):
        return nothing
    start, end = lines[0].start(3), lines[-1].start(3) + len(lines[-1][3].rstrip())
    mark = bytes(data[start : start + 1])
    if mark in {b'"', b"'"} and data[end - 1 : end] == mark and end - 1 > start:
        start, end = start + 1, end - 1
    return _Value(start, end, is_open, "below", "")


_BETWEEN = re.compile(rb"""["']?[ \t]*\r?\n[ \t]*- +["']?""")


def _is_secret_list(found: bytes) -> bool:
    """Whether each line is one word and a secret; `found` has no quote at its ends."""
    items = _BETWEEN.split(found)
    return all(is_secret_option(item) and b" " not in item for item in items)


def _is_secret_array(found: bytes) -> bool:
    """Whether each of the strings is a secret; `found` has no quote at its ends."""
    return all(is_secret_string(item[1:-1]) for item in _ITEMS.findall(b'"' + found + b'"'))


def _string(  # noqa: PLR0911 - a line for each form
    data: bytes | bytearray, place: _Place, at: int, *, is_raw: bool, is_prefixed: bool
) -> _Value:
    """Return the quoted value at `at`, or the one without quotes if what looks like quotes is none."""
    quote = _QUOTE.match(data, at) if place.sign != b">" else None
    depth, enclosing = (0, b"") if place.is_quoted else _enclosing(place.before)
    if quote is None or (quote[2] == b"`" and (enclosing or place.sign == b" ")):
        return _unquoted(data, place, at)
    if quote[2] == enclosing and len(quote[1]) == depth:  # the end of that string
        if _NEXT_IN_SHELL.match(data, at + 1) is None:
            return _Value(at, at, is_open=at + 4 >= len(data), kind="none", tail="")
        return _unquoted(data, place, at)
    value = _quoted(data, place, quote, is_raw=is_raw)
    if value.tail and not quote[1] and (is_prefixed or enclosing):  # it has no end
        found = _unquoted(data, place, place.end)
        return found._replace(is_open=found.is_open or value.is_open)
    if value.is_open or value.tail or quote[1] or place.is_quoted:
        return value
    is_strict = enclosing or value.start == value.end or quote[2] == b"`"
    behind = _BEHIND_INNER if is_strict else _BEHIND_QUOTE
    if behind.match(data, value.end + 1) is not None:
        return value
    end = _closing_raw(data, value.start, quote[2])
    if end >= 0 and behind.match(data, end + 1) is not None:
        return value._replace(end=end)
    is_open = b"\n" not in data[value.start : value.start + LONGEST_VALUE_BYTES]
    value = _unquoted(data, place, place.end)
    return value._replace(is_open=value.is_open or is_open)


_BEHIND_INNER = re.compile(rb"\Z|[\s,;)}\]]|\\?[\"'`](?:\Z|[\s,;)}\]])")
_BEHIND_QUOTE = re.compile(
    rb"""\Z|[\s,;:.+*<>|&`\\/#=-]|[)\]}](?:\Z|[\s,;.:)\]}\\"'])|["'](?:\Z|[^"'])"""
)


_WITH_SCHEME = frozenset({"authorization", "cookie"})
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,19}[ \t]+(?=[^ \t\r\n])")
_PARAMETERS = re.compile(rb"""[A-Za-z_]+=["'][^,]*(?:,|["']\Z)""")
_BEHIND = {"authorization": re.compile(rb"[ \t]"), "cookie": re.compile(rb";")}
_COOKIE = re.compile(rb"[A-Za-z0-9_.-]+=(?=[^=])")


def _credentials(data: bytes | bytearray, place: _Place, at: int) -> _Value:
    """Return what follows the scheme of an Authorization header, or the name of a cookie."""
    quote = _QUOTE.match(data, at)
    value = _quoted(data, place, quote) if quote is not None else _unquoted(data, place, at)
    text = bytes(data[value.start : value.end])
    lead = (_COOKIE if place.name == "cookie" else _SCHEME).match(text)
    if lead is not None and _PARAMETERS.match(text, lead.end()):
        return value._replace(kind="none")
    if lead is not None:
        value = value._replace(start=value.start + lead.end())
    if value.kind != "json":
        after = _BEHIND[place.name or ""].search(data, value.start, value.end)
        value = value if after is None else value._replace(end=after.start())
    kind = "line" if value.kind in {"json", "env"} else value.kind
    return value._replace(kind=kind)


_COMPARISON = re.compile(rb"""[=~](?:[ \t"'`\[({\\]|=[ \t])|=\Z""")


def _is_comparison(data: bytes | bytearray, place: _Place) -> bool:
    """Whether the sign is the first half of `==` or `=~`, which no variable of a shell has."""
    is_variable = place.key.isupper() and _LINE_KEY.match(place.before) is not None
    return _COMPARISON.match(data, place.end) is not None and not (
        is_variable or _enclosing(place.before)[1] or _IN_QUERY.search(place.before)
    )


def _quoted(
    data: bytes | bytearray, place: _Place, opening: re.Match[bytes], *, is_raw: bool = False
) -> _Value:
    depth, mark = len(opening[1]), opening[2]
    start = opening.end()
    limit = min(len(data), start + LONGEST_VALUE_BYTES)
    kind = "json" if place.is_quoted and place.sign == b":" and mark == b'"' else "quoted"
    kind = "none" if is_raw else kind  # an expression
    triple = mark * 3
    if not depth and bytes(data[opening.start() : opening.start() + 3]) == triple:
        end = data.find(triple, start + 2, limit)
        return _Value(
            start + 2, limit if end < 0 else end, end < 0 and limit == len(data), kind, r"[^\"']",
            is_cut=end < 0 and limit < len(data),
        )  # fmt: skip
    line = len(data) if mark == b"`" else _line_end(data, start, limit)
    end, is_open = _closing(data, start, limit, depth, mark), False
    while not depth and mark == b"'" and 0 <= end < line:
        more = _NEXT_IN_SHELL.match(data, end + 1)  # `''` of YAML, `'\''` and `'"'"'` of a shell
        further = -1 if more is None else _closing(data, more.end(), limit, depth, mark)
        if more is not None and not 0 <= further <= line:
            further = data.find(mark, more.end(), line)
        if further < 0:
            is_open = more is not None and line == len(data)
            break
        end = further
    if end < 0 and depth == 0:  # raw text that ends in a backslash
        end, is_open = data.find(mark, start, line), line == len(data)
    if 0 <= end <= line:
        is_open = is_open or (not depth and end + 4 >= len(data))
        return _Value(start, end, is_open, kind, "")
    unit = rf"[^{mark.decode()}\r\n]"
    return _Value(start, line, line == len(data), kind, unit, is_cut=line == limit < len(data))


def _closing(data: bytes | bytearray, start: int, limit: int, depth: int, mark: bytes) -> int:
    """Return where the string ends: the mark behind as many backslashes as at its beginning.

    One level deeper a backslash is two, and an escaped mark has one more.
    """
    at = start
    while (at := data.find(mark, at, limit)) >= 0:
        run = at
        while run > start and data[run - 1] == 0x5C:  # noqa: PLR2004 - a backslash
            run -= 1
        if (at - run) % (2 * (depth + 1)) == depth:
            return at - depth
        at += 1
    return -1


def _closing_raw(data: bytes | bytearray, start: int, mark: bytes) -> int:
    """Return where a string without escapes ends, which may hold a backslash before its end."""
    line = _line_end(data, start, min(len(data), start + LONGEST_VALUE_BYTES))
    end = data.find(mark, start, line)
    while end >= 0 and mark == b"'" and (more := _NEXT_IN_SHELL.match(data, end + 1)) is not None:
        end = data.find(mark, more.end(), line)
    return end


def _line_end(data: bytes | bytearray, start: int, limit: int) -> int:
    ends = [
        end for end in (data.find(b"\n", start, limit), data.find(b"\r", start, limit)) if end >= 0
    ]
    return min(ends, default=limit)


_LINE_KEY = re.compile(
    rb"(?:[ \t]|[-*][ \t]|[#;/]{1,2}[ \t]*|(?:export|set|setx|ENV|ARG|declare -x)[ \t]+|[-+][ \t]?|[$]env:|\[redacted:)*[\"']?\Z"
)
_WORD_END = re.compile(rb"[\s]|\\[nrt\"']")
_COMMENT = re.compile(rb"[,;]?[ \t]+#[ \t]+[A-Za-z].*\Z|[,;]?[ \t]*\Z", re.DOTALL)
_COMMAND_BEHIND = re.compile(
    rb"[^ \t]+([ \t]+[a-z][a-z0-9_./-]{2,})(?:[ \t]+[A-Za-z0-9_./:=@-]+)*\Z"
)
_IN_QUERY = re.compile(rb"[?&](?:amp;)?\Z|(?:[?]|://)[^\s\"'<>]*[;#]\Z")
_QUERY_END = re.compile(rb"[&#\s\"'<>\\`)]")
_PAIR_BEHIND = re.compile(rb"[;,&][ \t]*[A-Za-z][A-Za-z0-9_. -]*=|;[ \t]*(?:\Z|[\"'\r\n])")
_SEMICOLON = re.compile(rb";")
_INDENTED = re.compile(rb"[|>][0-9+-]*[ \t]*(?:\r?\n[ \t]+|\r?\n?\Z)")


def _unquoted(  # noqa: PLR0911 - a line for each form
    data: bytes | bytearray, place: _Place, at: int
) -> _Value:
    limit = min(len(data), at + LONGEST_WORD_BYTES)
    line = _line_end(data, at, limit)
    if place.sign == b">":
        cdata = 9 if data[at : at + 9] == b"<![CDATA[" else 0
        end = data.find(b"]]>" if cdata else b"<", at + cdata, limit)
        kind = "string" if end >= 0 else "none"
        return _Value(
            at + cdata, limit if end < 0 else end, end < 0 and limit == len(data), kind, "[^<]"
        )
    if place.sign == b":" and (block := _INDENTED.match(data, at)) is not None:
        if block.end() == len(data):
            return _Value(at, at, is_open=True, kind="none", tail="")
        at = block.end()
        limit = min(len(data), at + LONGEST_WORD_BYTES)
        line = _line_end(data, at, limit)
        return _Value(at, line, line == len(data), "line", r"[^\r\n]", line == limit < len(data))
    if _IN_QUERY.search(place.before) and place.sign == b"=":
        return _until(_QUERY_END, data, at, limit, kind="argument", tail=r"[^&#\s\"'<>]")
    depth, enclosing = _enclosing(place.before)
    is_alone = _LINE_KEY.match(place.before) is not None and not place.is_quoted
    is_alone = is_alone and data[place.start : place.start + 1] != b"-"
    if is_alone and not enclosing and place.sign in {b":", b"=", b":="}:
        text = bytes(data[at:line])
        if place.sign == b":" and not text.strip() and line < limit and " " not in place.key:
            return _below(data, place, line)
        is_env = place.key.upper() == place.key and place.sign == b"=" and at == place.end
        end = at + len(text.rstrip() if is_env else _COMMENT.sub(b"", text, count=1))
        command = _COMMAND_BEHIND.match(text) if is_env else None
        if command is not None:
            end = at + command.start(1)
        kind = "env" if is_env else "line"
        return _Value(at, end, line == len(data), kind, r"[^\r\n]", line == limit < len(data))
    if enclosing and place.sign in {b":", b"="}:
        found = _until_mark(data, at, limit, depth, enclosing)
        return found if place.sign == b":" else _cut_pairs(data, place.before, found)
    is_option = data[place.start : place.start + 1] == b"-" or place.sign == b" "
    value = _until(
        _WORD_END, data, at, limit, kind="option" if is_option else "argument", tail=r"[^\s]"
    )
    return value if place.sign == b" " else _cut_pairs(data, place.before, value)


def _until_mark(data: bytes | bytearray, at: int, limit: int, depth: int, mark: bytes) -> _Value:
    """Return the value up to the end of the string round it, or of its line.

    In single quotes a shell has no escapes, and goes on behind a quote in quotes.
    """
    tail = rf"[^{mark.decode()}\r\n]"
    for match in _ends(mark).finditer(data, at, limit):
        if match[1] is not None:
            continue
        run = len(match[2] or b"")
        is_end = match[3] == mark if mark == b"'" else run % (2 * (depth + 1)) == depth
        is_break = match[4] is not None and mark != b"'" and run % (2 * (depth + 1)) == depth + 1
        if match[5] is not None or (match[3] is not None and is_end) or is_break:
            end = match.end() - 1 - (run if is_break else depth if match[3] is not None else 0)
            return _Value(at, end, end + 5 >= len(data), "line", tail)
    return _Value(at, limit, limit == len(data), "line", tail, is_cut=limit < len(data))


@cache
def _ends(mark: bytes) -> re.Pattern[bytes]:
    if mark == b"'":
        return re.compile(rb"""('"'"'|'\\'')|()(?:(')|((?!)))|([\r\n])""")
    return re.compile(rb"((?!))|(\\*)(?:(" + mark + rb")|(?<=\\)([nrt]))|([\r\n])")


def _until(
    stop: re.Pattern[bytes], data: bytes | bytearray, at: int, limit: int, *, kind: str, tail: str
) -> _Value:
    match = stop.search(data, at, limit)
    end = limit if match is None else match.start()
    return _Value(
        at, end, end + 4 >= len(data), kind, tail, is_cut=match is None and limit < len(data)
    )


def _cut_pairs(data: bytes | bytearray, before: bytes, value: _Value) -> _Value:
    """End the value before the next pair of a connection string or form, and its punctuation."""
    pair = (_SEMICOLON if b";" in before else _PAIR_BEHIND).search(data, value.start, value.end)
    if pair is not None:
        return value._replace(
            end=pair.start(),
            tail="",
            is_open=value.is_open and pair.end() == value.end,
            is_cut=False,
        )
    return value


def _enclosing(before: bytes) -> tuple[int, bytes]:
    """Return the quote that is open before the key with its backslashes, empty if there is none."""
    text = before[1:] if before[:1] in {b'"', b"'"} else before
    marks = [mark for mark in (b'"', b"'", b"`") if text.count(mark) % 2]
    if not marks:
        return 0, b""
    mark = max(marks, key=text.rfind)
    ahead = text[: text.rfind(mark)]
    return len(ahead) - len(ahead.rstrip(b"\\")), mark


def _is_secret(place: _Place, value: _Value, found: bytes) -> bool:
    if value.kind == "none" or b"[redacted:" in found[:10]:
        return False
    if place.name is None:
        return is_drawn_value(found, str(place.perhaps))
    kind = value.kind
    if place.sign in {b",", b"-"} and _NEXT_OPTION.fullmatch(found):
        return False
    if place.sign == b"," and kind == "quoted":
        kind, found = "option", found.removesuffix(b"\\n")
    return _JUDGES[kind](found) or (place.name == "password" and is_joined(found))


_NEXT_OPTION = re.compile(rb"--?[a-z]+(?:-[a-z0-9]+)*")
_JUDGES: dict[str, Callable[[bytes], bool]] = {
    "json": is_secret_member,
    "quoted": is_secret_string,
    "array": _is_secret_array,
    "below": _is_secret_list,
    "string": is_secret_string,
    "env": is_secret_variable,
    "line": is_secret_line,
    "argument": is_secret_argument,
    "option": is_secret_option,
}


@cache
def _rule(name: str, unit: str) -> Rule:
    return Rule(name, ANYWHERE, "", f"{unit or '[ -~]'}{'*' if unit else ''}")
