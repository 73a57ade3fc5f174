"""Keys that name a secret, for certain or perhaps.

A key in a structure (`{"client_secret": …}`) is read by its words: the last ones say what the value
is.  In plain text (`client_secret = …`), and beside a key that only may name a secret (`ROUTING_KEY`),
the value must look random as well (`secret_values`).
"""

import re
from functools import cache

from palyra.core.redaction.scanner import Expression, compile_bytes

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
SECRET_WORDS = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "credential",
    "credentials", "cookie", "authorization", "passcode", "passwort", "wachtwoord", "senha", "heslo",
    "kennwort", "losungswort", "geheimnis", "zugangsdaten", "contrasena",
)  # fmt: skip
KEY_OF = frozenset(
    [
        "access",
        "account",
        "api",
        "auth",
        "client",
        "consumer",
        "deploy",
        "encryption",
        "license",
        "master",
        "preshared",
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
        "lock",
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
        "request",
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
# Last words of a key that leave open what it is a secret of: `password_old`, `db_password_2`.
MODIFIERS = frozenset(
    [
        "again",
        "backup",
        "confirm",
        "confirmation",
        "current",
        "dev",
        "live",
        "main",
        "new",
        "old",
        "plain",
        "primary",
        "prod",
        "production",
        "repeat",
        "secondary",
        "staging",
        "value",
    ]
)
MAX_KEY_CHARS = 128  # a longer one is no key but a text


def names_secret(key: str) -> str | None:  # noqa: PLR0911 - a line for each kind of word
    """The class of what such a key holds, None for anything that is no secret."""
    key = _in_ascii(key)
    found = list(_WORDS.finditer(key)) if len(key) <= MAX_KEY_CHARS else []
    if not found or found[-1].end() != len(key):
        return None
    while len(found) > 1 and (found[-1][0].isdigit() or found[-1][0].lower() in MODIFIERS):
        found.pop()
    if len(found) > 1 and [match.group().lower() for match in found[-2:]] == ["key", "base"]:
        found.pop()  # `secret_key_base` of Rails
    before, last = (match.group().lower() for match in (found[-2:-1] or found)[:1] + found[-1:])
    if f"{before}{last}" in _APART:
        return "password"
    if last.endswith(_KEY_IN_GERMAN):
        return "api_key" if f"{before} {last}".startswith(_KEY_OF_IN_GERMAN) else None
    if last == "key":
        return "api_key" if before in KEY_OF else None
    if last.endswith("key") and last[:-3] in KEY_OF:
        return "api_key"
    if last.endswith("pass") and (last[:-4] or before) in _PASS_OF:
        return "password"
    word = next((word for word in SECRET_WORDS if last.endswith(word)), "")
    if word == "token" and (before in _NO_TOKEN or last[:-5] in _NO_TOKEN):
        return None
    return _CLASSES.get(word, word) or None


def _in_ascii(key: str) -> str:
    return key if key.isascii() else key.replace("ü", "ue").replace("Ü", "UE")


_APART = frozenset({"password", "passphrase", "passcode"})  # `PassWord`, `pass-phrase`
_KEY_IN_GERMAN = "schluessel"
_KEY_OF_IN_GERMAN = ("api", "geheim", "privat", "zugang", "zugriff", "verschluesselung", "signatur")
_CLASSES = {
    "passwd": "password", "passphrase": "password", "pwd": "password", "apikey": "api_key",
    "credential": "secret", "credentials": "secret", "passcode": "password", "passwort": "password", "wachtwoord": "password",
    "senha": "password", "heslo": "password", "kennwort": "password", "losungswort": "password",
    "contrasena": "password", "geheimnis": "secret", "zugangsdaten": "secret",
}  # fmt: skip

# Last words that make a key worth a look at its value.
_PERHAPS = {
    "key": "api_key", "pat": "token", "auth": "token", "bearer": "token", "jwt": "token",
    "creds": "secret", "cred": "secret", "salt": "secret", "pass": "password", "pw": "password",
    "authtoken": "token", "dsn": "secret", "storepass": "password", "psk": "password", "keypass": "password",
    "passin": "password", "passout": "password", "schluessel": "api_key",
}  # fmt: skip
PERHAPS_WORDS = tuple(_PERHAPS)
_PASS_OF = frozenset(
    [
        "admin",
        "db",
        "ftp",
        "mail",
        "my",
        "mysql",
        "pg",
        "redis",
        "root",
        "smtp",
        "sql",
        "ssh",
        "svn",
        "user",
    ]
)
# Words before `key` that make it a place, a name or something public.
_NO_KEY = frozenset(
    b"alias arrow artifact author blob block border bucket build cache child class client column"
    b" commit compare composite content correlation css cursor data dedup dedupe default dict digest"
    b" document entity etag event extra feature field file filter first fk foreign front get grant"
    b" group has hash header host hot i18n id idempotency image index input item job join json key"
    b" label last list locale lock log lookup map message meta metric min max name namespace next"
    b" node object option order ordering output page param parent partition path pk primary prop"
    b" property pub public publishable query queue range react ref region registry relation request"
    b" resource result root row run s3 schema scope search section sequence session setting shard"
    b" sharding short site snapshot socket sort source span start state store string subject tab table tag"
    b" target task template tenant text thread trace translation type unique upload url user value"
    b" variable version view websocket".decode().split()
)


def may_name_secret(key: str) -> str | None:
    """The class of what such a key may hold, None when its words say that it holds no secret."""
    key = _in_ascii(key)
    words = [match.group().lower() for match in _WORDS.finditer(key)]
    if len(key) > MAX_KEY_CHARS or not words or not key.endswith(key[-1:].strip("=: ")):
        return None
    if words[-1] == "key" and (len(words) == 1 or words[-2] in _NO_KEY):
        return None
    if words[-1] not in _PERHAPS and words[-1].endswith("key") and words[-1][:-3] not in _NO_KEY:
        return "api_key"
    return _PERHAPS.get(words[-1])


# Read backwards, because a search would try each place before the key.  A type in a template
# (`AWS::ApiGateway::ApiKey`) is no key: the colons are taken with it.
_KEY_BACKWARDS = re.compile(rb"[^A-Za-z0-9_-]*([A-Za-z0-9_-][A-Za-z0-9_. -]*(?:::)?)")
# What may stand between a key and its value beside a sign.  Its words are no part of the key, so one
# table serves to find values and to read the keys before them.  A line may end in an escape of JSON.
BRIDGES = (
    # `name: K` above `value: V`, also with attributes in between
    r"""[ \t\r\n,;\\rn]+\\*["']?[Vv]alue\\*["']?[ \t]*[:=]""",
    r"""["'][ \t]+[a-z-]+=\\*["'][^"'<>\\]*\\*["'][ \t]+value=""",
    r"""["'][ \t]+content=""",
    ",[ \\t]*ParameterValue=",
    # prose; the longer before those that they begin with
    *(
        rf"[ \t]+{words}[ \t]+"
        for words in (
            "is[ \\t]+now",
            "ist[ \\t]+jetzt",
            "wurde[ \\t]+auf",
            "to",  # I changed the password to
            "was[ \\t]+[a-z]+[ \\t]+to",
            "has[ \\t]+been[ \\t]+[a-z]+[ \\t]+to",
        )
    ),
    *(  # of the printer is, für das WLAN:
        r"[ \t]+[afovz][a-z\xc3\xbc]{1,3}"
        + r"[ \t]+[A-Za-z0-9@._\x80-\xff-]+" * count
        + rf"{end}[ \t]+"
        for count in (1, 2, 3)
        for end in (":", r"[ \t]+ist?", r"[ \t]+lautet", r"[ \t]+was[ \t]+[a-z]+[ \t]+to")
    ),
    *(
        rf"[ \t]+{word}:?[ \t]+"
        for word in ("is", "was", "es", "est", "ist", "lautet", "provided", r"\xc3\xa8")
    ),
    # the type of a declaration
    r"""[ \t]*:[ \t]*[A-Za-z&'][A-Za-z'_|<>]*[ \t]*[A-Za-z]*[ \t]*=[ \t]*\\*["'`]""",
    r"""[ \t]+[Aa]s[ \t]+[A-Za-z]+[ \t]*=[ \t]*\\*["']""",
    # the prefix of a literal, a default, an arrow, the signs of other scripts
    r"""[ \t]*[:=,>][ \t]*[@bBfFrRuUnNL][@$]?\\*["']""",
    r"""[|?][|?][ \t]+\\*["'`]""",
    r"""or[ \t]+\\*["'`]""",
    "<-",
    "-+>",
    "[?]=",
    r"\xef\xbc\x9a",
    r"\xe6\x98\xaf",
    # a block scalar, a tag, an anchor and an example of YAML
    r"[ \t]*:[ \t]*[|>][0-9+-]*[ \t]*[\r\n\\rn]+[ \t]+",
    r"[ \t]*:[ \t]*&[A-Za-z0-9_.-]+[ \t]+",
    r"""[ \t]*:[ \t]*![A-Za-z0-9_.-]+[ \t]+\\*["']""",
    r"[ \t]*:[ \t\r\n\\rn]+example:",
    # an element that holds the value, and a part of a form
    *(
        rf"""[ \t]+{word}=\\*["'][^"'<>\\]*\\*["']>"""
        for word in ("[Tt]ype", "xmlns[a-z:]*", "encoding", "encrypted")
    ),
    r"></?[A-Za-z]+>",
    r"><!\[CDATA\[",
    r"</[A-Za-z]+>[ \t\r\n\\rnt]*<[A-Za-z]+>",
    r"[\r\n][\r\n]+",
    r"\\+r\\+n\\+r\\+n",
)
# A bridge begins where a word ends, at any of them: behind an element `</user><password>` could be a
# bridge as a whole.  The linear engine matches it, because quantifiers stand side by side.
_WORD_END = re.compile(rb"[A-Za-z0-9_-](?![A-Za-z0-9_-])")
_WORDS_OF_BRIDGE = 6  # at most, with the key before them


@cache
def _bridge() -> Expression:
    bridges = "|".join((*BRIDGES, r"[ \t]+[0-9][ \t]+"))
    return compile_bytes(rf"""["'`\\]*\[?[\]\x29}}]?[ \t]*(?:{bridges})[ \t>=]*["'`\\]*\z""")


def is_no_key(before: bytes) -> bool:
    """Whether the key that a text ends with, and what separates it from a value, names no secret."""
    keys = _keys(before)
    return bool(keys) and all(names_secret(key) is None for key in keys)


def is_no_random_key(before: bytes) -> bool:
    """Return True if the key before a value cannot name a secret, however random the value is."""
    keys = _keys(before)
    return bool(keys) and all(
        names_secret(key) is None and may_name_secret(key) is None for key in keys
    )


# The default in a block of HCL that the key names.
_BLOCK_AT_END = re.compile(rb"[\"']\s*\{[^{}]*default\s*=[\s\\\"']*\Z")
# A subscript without quotes is a key only as a symbol: neither a variable nor our own marker.
_VARIABLE_AT_END = re.compile(rb"(?:\[|redacted:)[\w.-]+\][^\w\]]*\Z")


def _keys(before: bytes) -> list[str]:
    """Return the possible keys before a value, one for each bridge that may separate them."""
    if _VARIABLE_AT_END.search(before):
        return [""]
    before = _BLOCK_AT_END.sub(b"=", before)
    end = (
        before[-MAX_KEY_CHARS:].replace(b"%253D", b"=").replace(b"%3D", b"=").replace(b"%3d", b"=")
    )
    ends = [end]
    if _bridge().search(end) is not None:
        words = [word.end() for word in _WORD_END.finditer(end)][-_WORDS_OF_BRIDGE:]
        ends += [end[:at] for at in words if _bridge().match(end, at) is not None]
    found = (_KEY_BACKWARDS.match(text[::-1]) for text in ends)
    return [_key(match[1][::-1]) for match in found if match is not None]


def _key(found: bytes) -> str:
    return "" if found.startswith(b"::") else _FLAG.split(found)[-1].decode("ascii")


# The words of a command before a flag are no part of the flag.
_FLAG = re.compile(rb"[ ]-")
