"""All rules in their order: one row per shape of a secret.

Formats of vendors are in `token_formats`, secrets that only their context shows in
`context_patterns`; here are private keys, JWTs, bearer tokens, logins in addresses, and tokens of
unknown vendors.  At one place the first row that matches wins, so the longer prefix comes first.
"""

import re
from collections.abc import Callable

from palyra.core.redaction.context_patterns import CONTEXT_RULES
from palyra.core.redaction.grammar import ANYWHERE, RUN, TOKEN, WORD, Rule, any_case
from palyra.core.redaction.key_names import KEY_OF, SECRET_WORDS
from palyra.core.redaction.scanner import compile_bytes
from palyra.core.redaction.secret_values import (
    bits_a_character,
    has_digit,
    is_drawn,
    is_no_example,
    is_no_name,
    is_opaque,
    is_strictly_drawn,
)
from palyra.core.redaction.token_formats import FORMATS, MIN_BITS_A_CHARACTER, Format

_URL64 = "[A-Za-z0-9_-]"
_PEM = "[A-Za-z0-9+/=]"
# SSH2's own form (RFC 4716) has four hyphens and a blank.
_PEM_BEGIN = "----[- ]BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----?"
_PEM_HINT = "----[- ]BEGIN [A-Z0-9 ]*PRIVATE KEY"
_USER = "[!$&*+,.;=A-Za-z0-9_~%-]"
_PASSWORD = "[!#$%&*+,.;=?^_~A-Za-z0-9:@()-]"  # noqa: S105 - the characters of one

# RFC 7468 and its ancestors: a header block, then lines of base64, the first of at least 32
# characters.  The end may be missing, and is left.  The second row is a block cut into the string
# literals of a program.  The headers go with the key: what a match keeps, no other rule would see.
_KEYS = (
    Rule(
        "private_key", ANYWHERE, "",
        rf"""{_PEM_BEGIN}(?:[^-"'\[\]]|-[^-"'\[\]])*?{_PEM}{{32,}}[A-Za-z0-9+/=\s\\>#|]*""",
        hint=_PEM_HINT,
    ),
    Rule(
        "private_key", ANYWHERE, "",
        rf"""{_PEM_BEGIN}[\s"'+,\\nr]*{_PEM}{{32,}}[A-Za-z0-9+/=\s\\"',]*""",
        hint=_PEM_HINT,
    ),
    Rule("private_key", ANYWHERE, "-----BEGIN OpenVPN Static key V1-----", r"[0-9a-f\s\\n]{64,}"),
    Rule("private_key", ANYWHERE, r"Private-Lines: [0-9]+[\s\\nr]+", r"[A-Za-z0-9+/=\s]{32,}"),
    Rule("age", WORD, "", "AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    Rule("age", WORD, "", "AGE-PLUGIN-[A-Z0-9]+-1[0-9A-Z]{50,}"),
)  # fmt: skip


def _never(_found: bytes) -> bool:
    return False


# RFC 7519; the payload of a JWE is no object, so only the first part must begin like one.
_TOKENS = (
    Rule("jwt", TOKEN, "", rf"eyJ{_URL64}{{8,}}\.{_URL64}{{8,}}\.{_URL64}*"),
    Rule("bearer", WORD, rf"{any_case('bearer')}(?:[ \t]|\\+t)+", "[A-Za-z0-9._~+/=-]{16,}",
         accepts=has_digit),
    Rule("url_userinfo", ANYWHERE, "://", f"{_USER}*:{_PASSWORD}{{3,}}", "@", accepts=is_no_example),
    # Where errors are reported to, with the public half of a key: refused before the next row asks.
    Rule("url_userinfo", ANYWHERE, "://", "[0-9a-f]{32}", "@[A-Za-z0-9.:-]+/[0-9]+", accepts=_never),
    Rule("url_userinfo", ANYWHERE, "://", f"{_URL64}{{20,}}", "@", accepts=is_no_name),
)  # fmt: skip


# --- Formats of vendors --------------------------------------------------------------------------


def _has_entropy(found: bytes) -> bool:
    return len(found) > _LONGEST_REFUSED or bits_a_character(found) >= MIN_BITS_A_CHARACTER


def _is_token(found: bytes) -> bool:
    return len(found) > _LONGEST_REFUSED or (_has_entropy(found) and is_drawn(found))


# A longer run is taken for a token: a prefix may stand in it again and again, and to refuse the run
# from each of them would take quadratic time.
_LONGEST_REFUSED = 512


def _is_token_and_no_base64(found: bytes) -> bool:
    return _is_token(found) and b"+" not in found and b"/" not in found


def _always(_found: bytes) -> bool:
    return True


_CHECKS: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "own": (WORD, _always),
    "drawn": (WORD, _is_token),
    "entropy": (WORD, _has_entropy),
    "marked": (RUN, _is_token),
    "run": (RUN, _is_token_and_no_base64),
    "strict": (RUN, lambda found: len(found) > _LONGEST_REFUSED or is_strictly_drawn(found)),
}


_CERTAIN = 4
# What sets a token apart from base64: a literal outside its alphabet.  A random signature or a packed
# vector of 88 characters or more holds any two or three given letters behind a slash now and then.
_CLASSES = re.compile(r"\[[^\]]*\]|\{[^}]*\}|\(\?:")
_SEPARATOR = re.compile(r"[_:~!|.-]")


def vendor_rule(row: Format) -> Rule:
    """The rule of one row of the table."""
    start, accepts = _CHECKS[row.check]
    if start == WORD and not _SEPARATOR.search(_CLASSES.sub("", row.regex)):
        # Letters and digits alone: inside base64 a slash or plus is no boundary, except before more
        # letters than chance puts there, so that a token is found in the path of an address.
        start = WORD if any(len(word) >= _CERTAIN for word in row.keywords) else RUN
    if (
        row.is_rare
    ):  # at a boundary where there is one, or a rule with a boundary would begin earlier
        start = f"{WORD[:-1]}|)" if row.regex[0].isalnum() else ANYWHERE
    is_word = not _BLANK.search(row.regex)
    return Rule(
        row.name, start, "", row.regex, accepts=accepts, spares=_is_digest, is_word=is_word
    )  # fmt: skip


_DIGEST_AT_END = re.compile(rb"(?:sha(?:1|224|256|384|512)|md5)[=:-]\Z", re.IGNORECASE)


def _is_digest(before: bytes) -> bool:
    """Whether a digest of a lock file or a list of files follows, whatever it begins with."""
    return _DIGEST_AT_END.search(before) is not None


_BLANK = re.compile(r"""\\[st]|["' ]""")


# --- Unknown vendors -----------------------------------------------------------------------------

_PREFIXED = re.compile(
    rb"((?:[A-Za-z]?[a-z0-9]{0,11}[_-]){1,4}|(?:[A-Z][A-Z0-9]{0,11}[_-]){1,4})([A-Za-z0-9]+)"
)
# Bodies of ids that are sorted by time: `01…` of 24 to 26 characters, KSUIDs.
_TIMED = re.compile(rb"01[A-Za-z0-9]{22,24}|[0-3][A-Za-z0-9]{25,26}")
# Prefixes of ids, digests and names, which are no secrets.
_NO_PREFIX = frozenset(
    b"acct appr asst att ba batch blob build bundle call ch chatcmpl chunk cmpl commit conv cs cus"
    b" digest dpl ev evt fc file fp ft gen hash id img in index ii item job md5 msg node obj org pi"
    b" pk pm po prj price prod proj py react req resp ref rev rs run seti sha sha1 sha256 sha384 sha512"
    b" sha3 si snap span src step sub subnet task team thread tok toolu trace txn us user usr uuid"
    b" vec vpc vs webpack ws".split()
)
_SECRET_PREFIX = frozenset(
    b"access admin api apikey auth bearer cred key live oat pat password prod private priv pwd"
    b" refresh sec secret service session sk sat svc tkn tok token test".split()
)


def _is_foreign_token(found: bytes) -> bool:
    """Whether a prefix and a long word are a token, not an id, a digest or a name."""
    match = _PREFIXED.fullmatch(found)
    if match is None or _TIMED.fullmatch(match[2]):
        return False
    words = re.split(rb"[_-]", match[1].lower())[:-1]
    if not _NO_PREFIX.isdisjoint(words[:1]):
        return False
    if not _SECRET_PREFIX.isdisjoint(words):
        return is_opaque(match[2])
    if is_strictly_drawn(match[2]):
        return True
    is_public = (
        not _OF_FILES.isdisjoint(words)
        or max(map(len, words)) > _LONGEST_PREFIX_WORD
        or _SHA.fullmatch(match[2]) is not None
        or (match[1].endswith(b"-") and _MD5.fullmatch(match[2]) is not None)
    )
    return not is_public and _ONE_CASE.fullmatch(match[2]) is not None and is_opaque(match[2])


# A body of hexadecimal digits, or of one case and digits, is a digest or a name behind most words: a
# vendor's prefix is short, and none of these.
_ONE_CASE = re.compile(
    rb"[0-9a-f]{32,}|(?=(?:[a-z]*[0-9]){4})[a-z0-9]{24,}|(?=(?:[A-Z]*[0-9]){3})[A-Z0-9]{24,}"
)
# SHA-1 and the members of SHA-2: keys and names are made of them as often as `bench-` and `cache_`.
_SHA = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128}")
_MD5 = re.compile(rb"[0-9a-f]{32}")  # behind a hyphen a name; vendors have an underscore there
_LONGEST_PREFIX_WORD = 5
_OF_FILES = frozenset(
    b"app apps asset base body cache chart css data db dir disk doc docs etag font fonts git head icon index js"
    b" layer lib log logs main mod node page path pkg png ptr root row scope src state style svg tab table tag temp"
    b" tmp tree view vol zip"
    b" audio cid col crc did el elem ent gid grp hunk image line link list logo media name oid pack part patch photo"
    b" pic piece pid set sum thumb time uid val var ver video zone".split()
)

_FOREIGN = Rule(
    "token", r"(?:^|[^A-Za-z0-9_\].+-]|\\[a-z]|%(?:25)*[0-9A-Fa-f]{2}|\[[0-9;]*[mK])", "",
    "(?:[A-Za-z][A-Za-z0-9]*[_-])+[A-Za-z0-9]{24,}", accepts=_is_foreign_token, spares=_is_digest,
    is_word=True, is_broad=True,
)  # fmt: skip

_MARKED = compile_bytes("|".join(row.regex for row in FORMATS if row.check == "marked"))
_MARKS = (
    r"[78]Q~", r"\+AS[tb]", "ACDb", r"\+ABa", "AIoT", r"\+AEh", r"\+ARm", "Az[SFC][eua]", "APIM", "AZDO",
    "JQQJ99", r"\+ACR", "NRAL", r"\.atlasv1\.", "[0-9a-f]-us[0-9]", "msh[0-9a-f]+p1", "_mmk",
    "[0-9a-f]{16,}-[0-9a-f]{8,}-[0-9a-f]{8,}",
)  # fmt: skip


def _is_marked(found: bytes) -> bool:
    match = _MARKED.search(found)
    return match is not None and _is_token(found[slice(*match.span())])


MARKED_RULE = Rule(
    "service", r"(?:^|[^A-Za-z0-9+/_.~\]-])", "", "[A-Za-z0-9+/_.~-]{30,}=*", accepts=_is_marked, is_word=True, is_broad=True,
    hint="|".join(_MARKS).replace(r"\+", r"(?:\+|%2B|%2b|%252B|%252b)"),
)  # fmt: skip

# Rows with the same boundary stand together: the scanner then follows it once for all of them.
RULES: tuple[Rule, ...] = (
    *_KEYS,
    *_TOKENS,
    *CONTEXT_RULES,
    *sorted(
        (vendor_rule(row) for row in FORMATS if row.check != "marked"),
        key=lambda rule: rule.start != WORD,
    ),
    _FOREIGN,
    MARKED_RULE,
)

# Text of JSON that may hold a secret by its keys: an ordinary `path_key` must not cost a second look.
# A key that may name a secret, perhaps by the plural, before a string, an array or an object; or a
# name of a pair.  Between two words of a key lies nothing that `names_secret` takes for a word.
_BETWEEN = r"(?:[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9A-Fa-f]{4})*"
_STRING = r's?[\\"]*[ \t\r\n]*:[ \t\r\n]*(?:[\\"]|[\[{][ \t\r\n\\"\[{0-9tfn-])'  # no marker
_NAME = (
    r'(?:[nN]ame|[kK]ey)[\\"]*[ \t\r\n]*:[ \t\r\n]*[\\"]+(?:[^"\\]|\\[bfnrt]|\\u[0-9A-Fa-f]{4})*'
)
KEYED_STRING = "|".join(
    form
    for word in (
        *map(any_case, SECRET_WORDS),
        f"(?:{'|'.join(map(any_case, sorted(KEY_OF)))}){_BETWEEN}{any_case('key')}",
    )
    for form in (word + _STRING, _NAME + word + r'[\\"]')
)
