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
    return may_be_secret_bytes(value.encode("utf-8", "surrogatepass"))


def may_be_secret_bytes(found: bytes) -> bool:
    """Whether a string of JSON beside a key that names a secret can be one."""
    text = found.strip()
    return not (text.lower() in _NOTHING or text.startswith(b"[redacted:") or is_placeholder(text))


_NOTHING = frozenset([b"", b"true", b"false", b"none", b"null"])


def is_secret_member(found: bytes) -> bool:
    """Whether a string of JSON inside of a text is a secret: no placeholder, version or common word."""
    text = found.strip()
    if (
        len(text) < _LEAST_MASK
        or not may_be_secret_bytes(text)
        or text.lower() in _COMMON_WORDS
        or _VERSION.fullmatch(text)
    ):
        return False
    return not _is_filled_in(text)


_VERSION = re.compile(rb"[~^>=<]{0,2} ?v?\d+\.\d+\.\d+[\w.+-]*|workspace:.*")
_COMMON_WORDS = _CODE_WORDS | frozenset(
    b"any array auth authorization basic bearer boolean cookie credential credentials default digest disabled"
    b" enabled hidden high integer jwt low medium no number object off on optional private public read required"
    b" string text undefined unknown unset write yes header query oauth2 file env path".split()
)


def is_secret_string(found: bytes) -> bool:
    """Whether a quoted value in a program or a file is a secret: no placeholder, word or code.

    Long lists of words are passphrases unless they hold a word that a message to people has.
    """
    text = found.strip()
    if len(text) < _LEAST_STRING or not may_be_secret_bytes(text) or is_plain(text):
        return _NUMBER.fullmatch(text) is not None
    if _is_filled_in(text) or _is_expression(text):
        return False
    return not is_prose(text) or _is_passphrase(text)


_LEAST_STRING = 4
_NUMBER = re.compile(rb"\d{5,12}")
_FORMATTED = re.compile(
    rb"%[sdr]|\{['\"][^{}]*['\"]\.[a-z]+\([^{}]*\}|\{\w{3,}(?:[.]\w+|\[[^\]{}]*\]|\([^(){}]*\))*(?:![rsa])?(?::[^{}]{0,8})?\}"
    rb"|\$\{[^{}]*\}|\{\{[^{}]*\}\}"
)


def _is_filled_in(text: bytes) -> bool:
    """Whether a program fills the text in, and nothing else in it looks like a secret."""
    rest = _FORMATTED.sub(b" ", text).strip()
    return rest != text and (
        not rest.strip(b"/:.,;'\"()[]@&=#-_ ") or is_prose(rest) or is_plain(rest)
    )


def _is_expression(text: bytes) -> bool:
    """Whether it is a regular expression: it has a class with a range, or a group."""
    return _REGEX.search(text) is not None


_REGEX = re.compile(rb"\[[^\]]*(?:[aA]-[zZ]|0-9)|\(\?[:=!<P]")


def _is_passphrase(text: bytes) -> bool:
    words = text.split()
    is_plain = all(word.isalpha() and word.islower() for word in words)
    return len(words) >= _LEAST_PHRASE and is_plain and _MESSAGE_WORDS.isdisjoint(words)


_LEAST_PHRASE = 4
_MESSAGE_WORDS = frozenset(
    b"a an and are as at be by can cannot code do does enter error expected failed for from has have here if in"
    b" invalid is it key may missing must name no not of on or password please required secret set"
    b" should show that the this to token type use used user value was when will with wrong you your".split()
)


def is_secret_line(found: bytes) -> bool:
    """Whether the rest of a line behind a key is a secret: no placeholder, words or code."""
    text = found.strip()
    if len(text) < _LEAST_LINE or not may_be_secret_bytes(text) or is_code(text) or is_plain(text):
        return False
    return not (is_prose(text) or _is_filled_in(text) or _is_expression(text))


def is_secret_variable(found: bytes) -> bool:
    """Whether the value of a variable of a shell or of a container is a secret."""
    text = found.strip()
    if len(text) < _LEAST_LINE or not may_be_secret_bytes(text) or is_plain(text):
        return False
    return not (is_prose(text) or _is_filled_in(text)) and not _COMMAND.match(text)


_COMMAND = re.compile(rb"\$\(|`[a-z]")


def is_secret_argument(found: bytes) -> bool:
    """Whether a word behind a key is a secret: as one of an option, and not punctuation first."""
    return found[:1] not in _PUNCTUATION and is_secret_option(found)


def is_secret_option(found: bytes) -> bool:
    """Whether a word is a secret: as a line, and of more than one kind of characters."""
    text = found.rstrip(b",;.)")
    is_mixed_case = not (text.islower() or text.isupper() or _ABBREVIATED.fullmatch(text))
    return is_secret_line(text) and (_kinds(text) > 1 or (is_mixed_case and text.isalpha()))


_PUNCTUATION = frozenset(bytes([byte]) for byte in b"|&><),=")
_LEAST_LINE = 6


def is_drawn_value(found: bytes, name: str) -> bool:
    """Whether a value beside a key that only may name a secret is one."""
    text = _ENCODED_KEY.sub(b"", found.strip())
    if name == "password":
        return is_secret_argument(text) and b" " not in text
    is_encoded = text != found.strip() and len(text) >= _LEAST_DRAWN
    return is_encoded and bits_a_character(text) >= _OPAQUE_BITS and not is_placeholder(text)


_ENCODED_KEY = re.compile(rb"\A(?:base64|hex|b64):")


def is_placeholder(text: bytes) -> bool:
    """Whether the whole value is in place of another one: a variable, a hint, a mask, a reference."""
    if _VARIABLE.fullmatch(text) or (len(text) >= _LEAST_MASK and len(set(text)) == 1):
        return True
    if text.startswith(_PUBLIC):
        return True
    words = [word for word in _NOT_WORD.split(text.lower()) if word]
    if not all(_HINT_OR_WORD.fullmatch(word) for word in words):
        return False
    return any(_HINT.search(word) for word in words) and _PLAIN_TEXT.fullmatch(text) is not None


_VARIABLE = re.compile(
    rb"\$[A-Za-z_]\w*|\$\d|\$\{[^{}]*\}|\$\([^()]*\)|\$\{\{[^{}]*\}\}|\{\{[^{}]*\}\}|`[^`]*`|#\{[^{}]*\}"
    rb"|\{[A-Za-z_]{3,}(?:[.][A-Za-z_]+|\[[^\]{}]*\]|\([^(){}]*\))*(?:![rsa])?(?::[^{}]{0,8})?\}|%\([a-z_]\w*\)s|%[sdr]|%[A-Z_]+%|<[A-Za-z_][^<>]*>|\[[A-Z_ ]+\]|@[a-z_]+@?|:'?[a-z_]+[0-9]?'?|[.]{3}"
    rb"|[x*.#_-]{3,}|[A-Z]+(?:_[A-Z]+)+|ENC\[.*\]|(?:env|file|keyring|vault|secretref|op|arn|ssm|gcpsm)://?[^ ]*"
    rb"|(?:env|keyring|vault):[A-Za-z_][A-Za-z0-9_./-]*|file:[A-Za-z0-9_./~-]+|arn:aws[a-z-]*:[^ ]*",
    re.DOTALL,
)
_LEAST_MASK = 3
_NOT_WORD = re.compile(rb"[^A-Za-z0-9]+")
_PLAIN_TEXT = re.compile(rb"[A-Za-z0-9_.,:/ <>\[\](){}'-]*")
_HINT = re.compile(
    rb"^your|example|placeholder|change.?me|changeit|dummy|redacted|sample|insert|replace|fixme|todo|xxx"
)
_HINT_OR_WORD = re.compile(rb"[a-z]{2,}\d{0,3}|[a-z]|x+|\d{1,3}")


def is_plain(text: bytes) -> bool:
    """Whether it is a number, a path, an address, a version, a date, or a word as programs have."""
    return _PLAIN_VALUE.fullmatch(text) is not None or _NAME_IN_CODE.fullmatch(text) is not None


_PLAIN_VALUE = re.compile(
    rb"#[0-9A-Fa-f]{3,8}|"
    rb"[\d.,:/_TZ -]+[a-z]{0,2}|[~.]{0,2}(?:/[\w.@+-]+)+/?|[a-z][a-z+]*://[^\s@]+|[A-Za-z]:\\[^\s]*|v?\d+(?:\.\d+)+[\w.+-]*"
    rb"|[~^>=<]+ ?\d[\w.-]*"
)
# Words of one case, of camel case or joined by signs, with small numbers behind.
_CODE_WORD = (
    rb"(?:[a-z]{2,}\d{0,2}|[a-z]{2,}(?:[A-Z][a-z]+){1,6}\d{0,2}|[A-Z][a-z]+(?:[A-Z][a-z]+){0,6}\d{0,2}"
    rb"|[A-Z]{2,6}[a-z]{2,}(?:[A-Z][a-z]+){0,6}|[A-Z]{2,}\d{0,2})"
)
_NAME_IN_CODE = re.compile(
    rb"[&*@!:_]{0,2}(?:[a-z][.])?"
    + _CODE_WORD
    + rb"(?:[-_./:?!+]{1,2}"
    + _CODE_WORD
    + rb")*[]:?!.,;_)}=]{0,3}"
)


def is_joined(text: bytes) -> bool:
    """Whether it is words joined by signs in both cases with a number, as no program names a thing."""
    kinds = [text.translate(None, kind) != text for kind in (_UPPER, _LOWER, _DIGITS, _JOINTS)]
    return all(kinds) and _JOINED.fullmatch(text) is not None and not is_placeholder(text)


_JOINTS = b"_!@#+*-"
_JOINED = re.compile(rb"[A-Za-z0-9_!@#+*-]{10,}")


def is_code(text: bytes) -> bool:
    """Whether a value without quotes is an expression, which begins with a name."""
    return _EXPRESSION.match(text) is not None


# An argument that is a name, a number or a literal, or no argument yet.
_CALL = (
    rb"\((?:\)|\Z|[rbfuRBFU]{0,2}[\"'][^\"']*(?:[\"']|\Z)|[*&!-]{0,2}_{0,2}"
    + _CODE_WORD
    + rb"(?:[_.]+[A-Za-z_]+)*(?:[\[(,)=. :]|\Z)|\d+[,)]|[{\[(])"
)
_EXPRESSION = re.compile(
    rb"(?:(?:await|new|const|not|lambda|fn|async|typeof|yield|return) |[&*!(\[{+-]{1,2})?"
    rb"_{0,2}(?:[a-z]\.)?"
    + _CODE_WORD
    + rb"(?:(?:_{1,2}|\??\.|::|->)_{0,2}"
    + _CODE_WORD
    + rb")*_{0,2}\d{0,2}[?!]?"
    rb"(?:[,;:)\]}]+\s*\Z|(?<=[A-Za-z0-9_]{4})[,)\]}]+ [A-Za-z_*\"'{(\[].*\Z|(?<=[A-Za-z0-9_]{4})"
    + _CALL
    + rb"|(?<=\.[a-z]{3})"
    + _CALL
    + rb"|(?<=[A-Za-z0-9_]{3})"
    + _CALL
    + rb".*[])}(\[{,;:]\s*\Z|(?<=[A-Za-z0-9_]{4})\[(?:\Z|\]|\[\]|:[\d\]-]|\[[a-z]+\]|[\"'][\w-]+[\"']|-?\d*[:\]]|[A-Z]\]|"
    + _CODE_WORD
    + rb"(?:[_.]+\w+)*[\],.:(| ])"
    rb"|(?<=[A-Za-z0-9_]{3})<"
    + _CODE_WORD
    + rb"[,<>\[ |].*>.*\Z| +(?:=|\||\?|\?\?|or|and|if|else|in|is|as|==|\+|&&|=>|->|/|//)(?: .*)?\Z)",
    re.DOTALL,
)


def is_prose(text: bytes) -> bool:
    """Whether most of it is made of ordinary words, as in a sentence or a label."""
    words = text.split()
    plain = [word for word in words if _PROSE_WORD.fullmatch(word) or _NAME_IN_CODE.fullmatch(word)]
    size, all_size = sum(map(len, plain)), sum(map(len, words))
    return size * 3 >= all_size * 2 or (len(plain) >= _LEAST_WORDS and size * 2 > all_size)


_LEAST_WORDS = 3
_PROSE_WORD = re.compile(
    rb"[(\"'<\[]*(?:[A-Za-z]?[a-z\x80-\xff]+(?:['-][a-z]+)*|[A-Z]{2,}|\d{1,4}|[A-Za-z]?[a-z]+[/_.][a-z]+)[)\"'>\].,:;?!]*"
)


def _kinds(text: bytes) -> int:
    letters, digits = text.translate(None, _LETTERS), text.translate(None, _DIGITS)
    has_sign = bool(text.translate(None, _LETTERS + _DIGITS))
    return (len(letters) < len(text)) + (len(digits) < len(text)) + has_sign


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
