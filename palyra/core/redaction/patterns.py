"""What a secret looks like: one row per shape, in a grammar simple enough to reason about.

A shape is a sequence of units (a character, a class, a group) with quantifiers, and no
alternation between units.  Three expressions are derived from each row: the shape itself, the
shape without its left boundary (a cheap first look), and its *viable prefixes*: every text that
more text could still turn into a match.  The last one is what a stream must hold back.

Some shapes are unambiguous by themselves; where a key, a header or a parameter names what stands
beside it, an `accepts` has the last word (`core.secret_keys`).

Everything runs in a linear-time engine on bytes.  Two rules keep the whole scan linear as well,
not just each match: a shape that can run on without end needs a start that cannot occur inside
it, and open repetition is never bounded from above (counters multiply the automaton's states).
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from palyra.core.redaction.key_names import (
    KEY_OF,
    SECRET_WORDS,
    is_basic,
    is_no_key,
    is_password,
    is_random,
)

CONTEXT_BYTES = 24  # before a match that a rule may look at: a terminal's colour, a long key


def _anything(_found: bytes) -> bool:
    return True


def _nothing(_before: bytes) -> bool:
    return False


class SecretPattern(NamedTuple):
    """One shape; only what `secret` matches is replaced, `before` and `after` stay."""

    name: str  # the class in `[redacted:<class>]`
    start: str  # what must precede
    before: str
    secret: str
    after: str = ""
    accepts: Callable[[bytes], bool] = _anything  # the last word on what `secret` matched
    spares: Callable[[bytes], bool] = _nothing  # what `secret` stands behind, CONTEXT_BYTES and on
    needs: bytes = b""  # one of these bytes must be in what `start` to `secret` matched
    hint: str = ""  # found in the JSON text of every match; by default the shape itself

    @property
    def margins(self) -> tuple[int, int] | None:
        """Bytes of `before` and of `after`, when both are plain text."""
        is_plain = not re.search(r"[\\\[(*+?{.]", self.before + self.after)
        return (len(self.before), len(self.after)) if is_plain else None

    @property
    def shape(self) -> str:
        """The rule as one expression with one group."""
        return f"{self.start}{self.before}({self.secret}){self.after}"

    @property
    def first_look(self) -> str:
        """Matches wherever the rule does, also in JSON text that still has its escapes."""
        return self.hint or f"{self.before}{self.secret}{self.after}"

    @property
    def viable(self) -> str:
        """Matches every prefix of a match that is longer than its `start`."""
        return f"{self.start}{viable_prefix(self.before + self.secret + self.after)}"

    @property
    def tail(self) -> str:
        """What may go on for ever once the rule has matched; empty when the end is known."""
        unit, quantifier = units(self.secret)[-1]
        is_open = quantifier in {"*", "+"} or quantifier.endswith(",}")
        return f"{unit}*" if is_open and not self.after else ""


# --- The grammar ---------------------------------------------------------------------------------

_UNIT = re.compile(
    r"(?P<unit>\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:[^()]*\)|\\.|[^\\\[(])"
    r"(?P<quantifier>[*+?]\??|\{\d+(?:,\d*)?\})?"
)
_DANGLING = r"[%\\][\\%0-9A-Fa-fu]*"  # an escape sequence that has only begun


def units(shape: str) -> list[tuple[str, str]]:
    """The shape's units with their quantifiers ("" for exactly one)."""
    return [(found["unit"], found["quantifier"] or "") for found in _UNIT.finditer(shape)]


def viable_prefix(shape: str) -> str:
    """An expression for all prefixes of the shape, or a few more, never fewer.

    Counts are dropped (`{20,}` becomes `*`): holding back too much costs a moment, too little
    costs a secret.
    """
    rest = ""
    for unit, quantifier in reversed(units(shape)):
        rest = _viable_unit(unit, quantifier, f"(?:{rest})?" if rest else "")
    return rest


def _viable_unit(unit: str, quantifier: str, rest: str) -> str:
    is_group = unit.startswith("(")
    if not quantifier:
        return f"(?:{unit}{rest}|{_DANGLING})" if is_group else f"{unit}{rest}"
    is_optional = quantifier[0] in "*?"
    repeated = f"{unit}*" if is_optional else f"{unit}+"
    return f"{repeated}(?:[\\s\\S]|{_DANGLING})?{rest}" if is_group else f"{repeated}{rest}"


# --- Left boundaries -----------------------------------------------------------------------------

# A letter or digit before a prefix makes it part of a word (`task-…` is no `sk-…`), unless it ends
# an escape: \n in JSON or source text, %3D in a URL, a terminal's colour.  The bracket that ends
# our own marker is no boundary: what was left alone beside a secret stays alone beside its marker.
_ESCAPE = r"\\[a-z]|\\u[0-9A-Fa-f]{4}|%(?:25)*[0-9A-Fa-f]{2}|\[[0-9;]*[mK]"
ANYWHERE = ""
WORD = rf"(?:^|[^A-Za-z0-9\]]|{_ESCAPE})"
TOKEN = rf"(?:^|[^A-Za-z0-9_\]-]|{_ESCAPE})"


# --- The last word -------------------------------------------------------------------------------

_EXAMPLES = frozenset(
    b"pass password passwd pwd pw secret token key apikey api_key api-key changeme xxx".split()
)


def has_digit(found: bytes) -> bool:
    """A token of 16 or more characters without any digit is a word, not a token."""
    return found.translate(None, b"0123456789") != found


def is_no_example(found: bytes) -> bool:
    """Whether `user:password` is more than a placeholder out of a manual or a template."""
    password = found.partition(b":")[2].lower()
    is_masked = not password.strip(b"*.x")
    return not (is_masked or password in _EXAMPLES or password.startswith((b"$", b"%(", b"%s")))


# --- The rows ------------------------------------------------------------------------------------


def _any_case(word: str) -> str:
    return "".join(
        f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else _JOINT for letter in word
    )


_JOINT = "[ _-]?"  # between the words of a key


_ALNUM = "[A-Za-z0-9]"
_URL64 = "[A-Za-z0-9_-]"
_HEX = "[0-9a-f]"
_PEM = "[A-Za-z0-9+/=]"
_PEM_BEGIN = "-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----"
_PEM_HINT = "-----BEGIN [A-Z0-9 ]*PRIVATE KEY"
_USER = "[!$&*+,.;=A-Za-z0-9_~%-]"
_PASSWORD = "[!#$%&*+,.;=?^_~A-Za-z0-9:@()-]"  # noqa: S105 - the characters of one

# RFC 7468 and its ancestors: a header block, then lines of base64, the first of at least 32
# characters.  The end may be missing, and is left.  The second row is a block cut into the string
# literals of a program.  The headers go with the key: what a match keeps, no other rule would see.
_KEYS = (
    SecretPattern(
        "private_key", ANYWHERE, "",
        rf"""{_PEM_BEGIN}(?:[^-"'\[\]]|-[^-"'\[\]])*?{_PEM}{{32,}}[A-Za-z0-9+/=\s\\>#|]*""",
        hint=_PEM_HINT,
    ),
    SecretPattern(
        "private_key", ANYWHERE, "",
        rf"""{_PEM_BEGIN}[\s"'+,\\nr]*{_PEM}{{32,}}[A-Za-z0-9+/=\s\\"',]*""",
        hint=_PEM_HINT,
    ),
    SecretPattern("age", ANYWHERE, "", "AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
)  # fmt: skip

# RFC 7519; the payload of a JWE is no object, so only the first part must begin like one.
_TOKENS = (
    SecretPattern("jwt", TOKEN, "", rf"eyJ{_URL64}{{8,}}\.{_URL64}{{8,}}\.{_URL64}*"),
    SecretPattern("bearer", WORD, rf"{_any_case('bearer')}(?:[ \t]|\\+t)+", "[A-Za-z0-9._~+/=-]{16,}",
         accepts=has_digit),
    SecretPattern("url_userinfo", ANYWHERE, "://", f"{_USER}*:{_PASSWORD}{{3,}}", "@", accepts=is_no_example),
    SecretPattern("url_userinfo", ANYWHERE, "://", f"{_URL64}{{20,}}", "@", accepts=has_digit),
)  # fmt: skip

# class, start, prefix, body.  Prefixes as their owners document them.
_VENDORS = (
    ("palyra", WORD, "pal_", f"{_URL64}{{40,}}"),  # our own bearer tokens
    ("anthropic", WORD, "sk-ant-", f"{_URL64}{{20,}}"),
    ("openai", WORD, "sk-proj-", f"{_URL64}{{20,}}"),
    ("openai", WORD, "sk-svcacct-", f"{_URL64}{{20,}}"),
    ("openai", WORD, "sk-admin-", f"{_URL64}{{20,}}"),
    ("openrouter", WORD, "sk-or-v1-", f"{_HEX}{{32,}}"),
    ("openai", WORD, "sk-", f"{_ALNUM}{{32,}}"),  # and the many who copied it
    ("aws", ANYWHERE, "A[KS]IA", "[A-Z0-9]{16,}"),
    ("github", ANYWHERE, "gh[oprsu]_", f"{_ALNUM}{{36,}}"),
    ("github", ANYWHERE, "github_pat_", "[A-Za-z0-9_]{22,}"),
    ("gitlab", WORD, "glpat-", f"{_URL64}{{20,}}"),
    ("gitlab", WORD, "gl[cdfr]t-", f"{_URL64}{{20,}}"),  # feed, deploy, runner, …
    ("gitlab", WORD, "gl[cipo][bmta][ts]-", f"{_URL64}{{20,}}"),
    ("gitlab", WORD, "glsoat-", f"{_URL64}{{20,}}"),
    ("gitlab", WORD, "glagent-", f"{_URL64}{{20,}}"),
    ("slack", ANYWHERE, "xox[abceoprs]-", "[A-Za-z0-9-]{10,}"),
    ("slack", ANYWHERE, "xapp-[0-9]-", "[A-Za-z0-9-]{10,}"),
    ("slack", ANYWHERE, r"hooks\.slack\.com/services/", "[A-Z0-9]{8,}/[A-Z0-9]{8,}/[A-Za-z0-9]{20,}"),
    ("discord", ANYWHERE, r"discord\.com/api/webhooks/[0-9]+/", f"{_URL64}{{60,}}"),
    ("discord", WORD, "[MNO][DTjz]", rf"{_ALNUM}{{21,}}\.{_URL64}{{6}}\.{_URL64}{{27,}}"),
    ("telegram", ANYWHERE, "[0-9]{8,10}:AA", f"{_URL64}{{32,}}"),
    ("google", ANYWHERE, "AIza", f"{_URL64}{{35,}}"),
    ("google", ANYWHERE, "GOCSPX-", f"{_URL64}{{20,}}"),
    ("google", WORD, r"ya29\.", f"{_URL64}{{20,}}"),
    ("stripe", ANYWHERE, "[rs]k_live_", f"{_ALNUM}{{16,}}"),
    ("stripe", ANYWHERE, "[rs]k_test_", f"{_ALNUM}{{16,}}"),
    ("stripe", ANYWHERE, "whsec_", f"{_ALNUM}{{24,}}"),
    ("npm", ANYWHERE, "npm_", f"{_ALNUM}{{36,}}"),
    ("pypi", ANYWHERE, "pypi-A", f"{_URL64}{{40,}}"),
    ("hugging_face", WORD, "hf_", f"{_ALNUM}{{30,}}"),
    ("twilio", WORD, "SK", f"{_HEX}{{32,}}"),
    ("sendgrid", WORD, r"SG\.", rf"{_URL64}{{16,}}\.{_URL64}{{32,}}"),
    ("mailgun", WORD, "key-", f"{_HEX}{{32,}}"),
    ("digitalocean", ANYWHERE, "do[opr]_v1_", f"{_HEX}{{64,}}"),
    ("shopify", ANYWHERE, "shp[acps][ast]_", "[0-9a-fA-F]{32,}"),
    ("databricks", WORD, "dapi", f"{_HEX}{{32,}}"),
    ("groq", ANYWHERE, "gsk_", f"{_ALNUM}{{40,}}"),
    ("xai", WORD, "xai-", f"{_ALNUM}{{60,}}"),
    ("perplexity", WORD, "pplx-", f"{_ALNUM}{{40,}}"),
    ("replicate", WORD, "r8_", f"{_ALNUM}{{37,}}"),
    ("vault", WORD, r"hv[bs]\.", f"{_URL64}{{24,}}"),
    ("docker", ANYWHERE, "dckr_pat_", f"{_URL64}{{20,}}"),
    ("linear", ANYWHERE, "lin_api_", f"{_ALNUM}{{32,}}"),
)  # fmt: skip

# What stands beside a key.  The value has no `=` or `:`, so that no key begins inside it: what is
# left of a password that holds one stays.  A structure's values are replaced whole (`redact`).
_SEPARATOR = r"""["'`\\]*[ \t]*(?:[:=]|%3[ADad])[ \t>=]*["'`\\]*"""
_VALUE = r"[A-Za-z0-9+/_.~!@#$%^*?\x80-\xff-]"


_PART = "(?:^|[^:])"  # of a key, or all of it; `arn:aws:secret:…` and `AWS::Secret` are none


def _keyed(name: str, word: str, start: str, accepts: Callable[[bytes], bool]) -> SecretPattern:
    least = 6 if accepts is is_password else 12
    key = _any_case(word) + _SEPARATOR
    spares = _nothing if word == "pass" else is_no_key
    return SecretPattern(name, start, key, f"{_VALUE}{{{least},}}", accepts=accepts, spares=spares)


_KEYED = (
    *(
        _keyed("password", word, start, is_password)
        for word, start in (
            ("password", _PART), ("passwd", _PART), ("passphrase", _PART), ("pwd", WORD),
            ("pass", WORD),
        )
    ),
    _keyed("secret", "secret", _PART, is_random),
    _keyed("token", "token", _PART, is_random),
    *(
        _keyed("api_key", f"{word} key", _PART, is_random)
        for word in (
            "api", "access", "secret", "private", "signing", "encryption", "auth", "account",
            "master", "service",
        )
    ),
    SecretPattern("authorization", WORD,
         _any_case("authorization") + _SEPARATOR + r"(?:[A-Za-z0-9-]{1,20}[ \t]+)?",
         "[A-Za-z0-9._~+/-]{16,}", accepts=is_random),
    SecretPattern("basic", WORD, rf"{_any_case('basic')}[ \t]+", "[A-Za-z0-9+/]{8,}=*", accepts=is_basic),
    SecretPattern("cookie", WORD, _any_case("cookie") + r":[ \t]*[A-Za-z0-9_.-]+=",
         r"[A-Za-z0-9+/_.~%!*(), =;-]{12,}", accepts=is_random),
    *(
        SecretPattern("url_query", ANYWHERE, f"[?&#]{_any_case(word)}=", "[A-Za-z0-9._~%+/-]{12,}",
             accepts=is_random)
        for word in ("key", "sig", "signature", "code", "auth")
    ),
    *(
        SecretPattern("url_query", ANYWHERE, f"{_any_case('x-amz-')}{_any_case(word)}=",
             "[A-Za-z0-9._~%+/-]{12,}", accepts=is_random)
        for word in ("signature", "credential")
    ),
)  # fmt: skip

# At one place the first row that matches wins, so the longer prefix comes first.
RULES: tuple[SecretPattern, ...] = (
    *_KEYS,
    *_TOKENS,
    *_KEYED,
    *(SecretPattern(name, start, "", prefix + body) for name, start, prefix, body in _VENDORS),
)

# A key that may name a secret, with a string beside it, in JSON text: an ordinary `path_key` must not
# cost a second look.  Between two words of a key lies nothing that `names_secret` takes for a word.
_BETWEEN = r"(?:[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9A-Fa-f]{4})*"
KEYED_STRING = "|".join(
    word + r'[\\"]*[ \t\r\n]*:[ \t\r\n]*[\\"]'
    for word in (
        *map(_any_case, SECRET_WORDS),
        f"(?:{'|'.join(map(_any_case, sorted(KEY_OF)))}){_BETWEEN}{_any_case('key')}",
    )
)
