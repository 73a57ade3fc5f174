"""Redaction: every class is found, nothing else is touched, whole or in pieces, as JSON or text."""

import base64
import json
import re
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palyra.core.redaction.grammar import viable_prefix
from palyra.core.redaction.key_names import KEY_OF, may_name_secret, names_secret
from palyra.core.redaction.long_secrets import LongSecrets
from palyra.core.redaction.patterns import RULES
from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.core.redaction.scanner import Part, Scanner
from palyra.core.redaction.secret_values import is_opaque, is_password, may_be_secret
from palyra.core.redaction.stream import HELD_LIMIT_BYTES
from palyra.core.redaction.structures import Structures
from tests.examples import IS_WHOLE
from tests.rows import every_row

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "zA9-known_operator.token~0123456789"
ODD = 'päss/word+with "odd" \\ signs\n\t😀 (8=d)'
KNOWN = (TOKEN, ODD, "short")
REDACTOR = Redactor(KNOWN)

LOWER = string.ascii_lowercase * 4
HEX = "0123456789abcdef" * 8
RANDOM_HEX = "9f3b7c21e8d04a65" * 4
MIXED = "aB3dE5gH1j" * 10
PEM_LINES = f"MIIEvQIBADANBg{MIXED[:50]}\n{MIXED[:64]}\n{MIXED[:20]}==\n"
JWT = f"eyJhbGciOiJIUzI1NiJ9.{MIXED[:30]}.{MIXED[:43]}"

# class, text before, secret, text after.  Built from parts, so that no file holds a whole one.
SECRETS = [
    ("anthropic", "", "sk-ant-" + "api03-" + MIXED[:40], ""),
    ("openai", "key: ", "sk-" + "proj-" + MIXED[:40], ""),
    ("openai", "", "sk-" + "svcacct-" + MIXED[:40], " rest"),
    ("openai", "", "sk-" + "admin-" + MIXED[:40], "'"),
    ("openai", "", "sk-" + MIXED[:48], ""),
    ("palyra", "", "pal_" + MIXED[:43], ""),
    ("openrouter", "", "sk-or-" + "v1-" + HEX[:64], ""),
    ("aws", "id=", "AKIA" + "IOSFODNN7EXAMPLE", ""),
    ("aws", "", "ASIA" + "IOSFODNN7EXAMPLE", ""),
    ("github", "x=", "gh" + "p_" + MIXED[:36], ""),
    ("github", "", "github" + "_pat_" + MIXED[:60], ""),
    ("gitlab", "", "gl" + "pat-" + MIXED[:20], ""),
    ("gitlab", "", "gl" + "rt-" + MIXED[:20], ""),
    ("gitlab", "", "gl" + "cbt-" + MIXED[:20], ""),
    ("gitlab", "", "gl" + "soat-" + MIXED[:20], ""),
    ("gitlab", "", "gl" + "agent-" + MIXED[:20], ""),
    ("slack", "", "xox" + "b-123456789012-" + MIXED[:24], ""),
    ("slack", "", "xapp" + "-1-A0123-" + MIXED[:24], ""),
    ("slack", "https://", "hooks.slack.com/" + "services/T0000AAAA/B0000AAAA/" + MIXED[:24], ""),
    ("discord", "https://", "discord.com/" + "api/webhooks/123456789012345678/" + MIXED[:68], ""),
    ("discord", "", "MT" + MIXED[:24] + "." + MIXED[:6] + "." + MIXED[:38], ""),
    ("telegram", "bot", "1234567890" + ":AA" + MIXED[:33], ""),
    ("google", "", "AIza" + MIXED[:35], ""),
    ("google", "", "GOCSPX" + "-" + MIXED[:28], ""),
    ("google", "", "ya29" + "." + MIXED[:60], ""),
    ("stripe", "", "sk_" + "live_" + MIXED[:24], ""),
    ("stripe", "", "rk_" + "test_" + MIXED[:24], ""),
    ("stripe", "", "whsec" + "_" + MIXED[:32], ""),
    ("npm", "", "npm" + "_" + MIXED[:36], ""),
    ("pypi", "", "pypi" + "-AgEIcHlwaS5vcmc" + MIXED[:60], ""),
    ("hugging_face", "", "hf" + "_" + LOWER[:34], ""),
    ("twilio", "", "SK" + HEX[:32], ""),
    ("sendgrid", "", "SG" + "." + MIXED[:22] + "." + MIXED[:43], ""),
    ("mailgun", "", "key" + "-" + HEX[:32], ""),
    ("digitalocean", "", "dop" + "_v1_" + HEX[:64], ""),
    ("shopify", "", "shpat" + "_" + HEX[:32], ""),
    ("databricks", "", "dapi" + HEX[:32], ""),
    ("groq", "", "gsk" + "_" + MIXED[:52], ""),
    ("xai", "", "xai" + "-" + MIXED[:80], ""),
    ("perplexity", "", "pplx" + "-" + MIXED[:48], ""),
    ("replicate", "", "r8" + "_" + MIXED[:37], ""),
    ("vault", "", "hvs" + "." + MIXED[:24], ""),
    ("docker", "", "dckr" + "_pat_" + MIXED[:27], ""),
    ("linear", "", "lin" + "_api_" + MIXED[:40], ""),
    ("age", "", "AGE-SECRET-KEY-" + "1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2, ""),
    ("jwt", "x=", JWT, " next"),
    ("authorization", "Authorization: Bearer ", MIXED[:20], "\r\n"),
    ("authorization", "'Proxy-Authorization': 'Token ", MIXED[:20], "'"),
    ("authorization", "authorization=", RANDOM_HEX[:32], " x"),
    ("bearer", "with a Bearer ", MIXED[:20], "\r\n"),
    ("basic", "-H Basic ", "dXNlcjpodW50ZXIy", "\n"),
    ("cookie", "Set-Cookie: session=", MIXED[:32], "; Path=/\r\n"),
    ("password", "DB_PASSWORD=", "hunter2", "\n"),
    ("password", "PGPASSWORD='", "Tr0ub4dor-3!", "'"),
    ("password", "Server=db;Uid=sa;Pwd=", "Sw0rd-fish", ";Encrypt=yes"),
    ("password", "--passwd=", "p4ssw0rt", " -v"),
    ("password", "passphrase: ", "c0rrect-horse", ""),
    ("password", 'DB_PASS: "', "hunter22", '"'),
    ("password", "https://example.com/?user=a&password=", "hunter2", "&x=1"),
    ("password", "password%3D", "hunter2", ""),
    ("password", '{\\"password\\": \\"', "hunter2", '\\"}'),
    ("secret", "client_secret = `", MIXED[:24], "`"),
    ("token", "accessToken: ", MIXED[:24], ","),
    ("token", '"token" => "', RANDOM_HEX[:40], '"'),
    ("api_key", "X-Api-Key: ", RANDOM_HEX[:32], "\n"),
    ("api_key", "AccountName=a;AccountKey=", "Zm9vYmFyMTIzNDU2Nzg5MHF3ZXJ0eQ==", ";End"),
    ("api_key", "SharedAccessKeyName=x;SharedAccessKey=", MIXED[:32] + "=", ";"),
    ("api_key", "AWS_SECRET_ACCESS_KEY=", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzqwvtyKEY", "\n"),
    *(
        ("api_key", f"{word}_key: ", MIXED[:24], "\n")
        for word in ("secret", "private", "signing", "encryption", "auth", "master", "service")
    ),
    *(
        ("url_query", f"https://example.com/a?b=c&{name}=", MIXED[:20], "&d=e")
        for name in ("key", "sig", "signature", "code", "auth", "X-Amz-Signature")
    ),
    ("secret", "https://x/#X-Amz-Credential=", "AB12CD34EF56GH78%2F20260101", "&y"),
    ("bearer", "bEARER\t", HEX[:16], ""),
    ("url_userinfo", "postgres://", "admin:hunter2", "@db/prod"),
    ("url_userinfo", "x=https://", "a:p@ss:w0rd!", "@host "),
    ("url_userinfo", "redis://", ":s3cret", "@host"),
    ("url_userinfo", "https://", HEX[:32], "@sentry.example"),
    (
        "private_key",
        "key:\n",
        "-----BEGIN PRIVATE KEY-----\n" + PEM_LINES,
        "-----END PRIVATE KEY-----\n",
    ),
    ("private_key", "", "-----BEGIN RSA PRIVATE KEY-----\n" + PEM_LINES, ""),
    (
        "private_key",
        "",
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00FF\n\n"
        + PEM_LINES,
        "-----END EC PRIVATE KEY-----",
    ),
    (
        "private_key",
        "",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nComment: A - B\n\n" + PEM_LINES,
        "-----END PGP PRIVATE KEY BLOCK-----",
    ),
    (
        "private_key",
        "'",
        f"-----BEGIN PRIVATE KEY-----\\n' +\n    '{MIXED[:64]}\\n' '{MIXED[:9]}=\\n'",
        ")",
    ),
    ("known", "x", TOKEN, "y"),
    ("known", "", ODD, ""),
]
IDS = [f"{index}-{row[0]}" for index, row in enumerate(SECRETS)]

BENIGN = [
    "",
    "task-" + LOWER[:40] + "1",
    "disk-" + HEX[:32],
    "risk-ant-colony-optimisation-solver-2",
    "global-navigation-container-header",
    "The bearer responsibilities-of-directors and bearer tokens.",
    "Authorization: Bearer <your-token-goes-here>",
    "Authorization: Bearer $OPENAI_API_KEY",
    "curl -u user:password https://example.com/@scope/name:latest",
    "postgres://user:password@localhost/test",
    "postgres://{user}:{password}@{host}:5432/x",
    "mysql://$USER:$PASSWORD@db and amqp://%s:%s@h and x://a:***@b",
    "https://example.com/a:b@c",
    "ssh://git@github.com/palyra/palyra.git",
    "ssh://deployment-automation-user@host",
    'if text.startswith("-----BEGIN PRIVATE KEY-----") and "-----END PRIVATE KEY-----" in text:',
    "max_tokens=4096 session_id=ses_018f3c1e-aaaa-7bbb-8ccc-0123456789ab",
    f'{{"digest": "{HEX[:64]}", "arguments_sha256": "{HEX[:64]}"}}',
    "eyJpZCI6MTIzNDU2Nzg5LCJuYW1lIjoiYWxpY2UifQ==",
    "a = eyJ.x.y; sk-ant; AKIA; ghp_; xoxb-; hf_hub_download_with_a_long_name_here",
    "password = getpass.getpass('Password: ')",
    "password: Optional[str] = None; passwd=password2; PASSWORD=${DB_PASSWORD_1}",
    "def login(user, password=None, token=token1, secret=config.secret_value2): ...",
    "password = 'example-password-1' or 'your-password-2' or 'changeme123' or '<password1>'",
    "pass = 12 of 13; bypass=abc123; compass: north45",
    "max_tokens=a1b2c3d4e5f6g7h8 next_page_token: CAUQAA9f3b7c21e8d0 publicKeyToken=6595b64144ccf1df",
    "eos_token='<|end_of_text|>' pad_token: q8w7e6r5t4y3u2i1 tokens=q8w7e6r5t4y3u2i1",
    "primary_key: q8w7e6r5t4y3u2i1 foreign key = q8w7e6r5t4y3u2i1 sort_key=q8w7e6r5t4y3u2i1",
    "arn:aws:secretsmanager:eu-west-1:1:secret:prod/db-a1b2c3 AWS::Secret: a9a67ae6c371fcf4",
    "secret_path=/run/secrets/db1/password2 token: /var/run/token/k8s1/token2x",
    "api_key: aaaaaaaaaaaaaa1",
    "token = 1.2.3.4.5.6.7.8",
    "Basic understanding1 of Basic dXNlcjpwYXNz1 and Basic QUJDREVGR0g= is basic",
    "Cookie: name=value; Set-Cookie: theme=light; Path=/",
    "https://example.com/?code=7&key=color&sig=none&auth=basic#key=section-two-of-three",
    "Authorization: Bearer <token> authorization: required Proxy-Authorization=none",
    "short",
    "[redacted:known] password=[redacted:password] [redacted:token]: a9a67ae6c371fcf4",
    "\ud800 lone surrogate",
]


def marked(name: str) -> str:
    return f"[redacted:{name}]"


def stream(pieces: list[str], redactor: Redactor = REDACTOR) -> list[str]:
    streaming = StreamRedactor(redactor)
    return [*(streaming.feed(piece) for piece in pieces), streaming.flush()]


# --- Classes -------------------------------------------------------------------------------------


@every_row(("name", "before", "secret", "after"), SECRETS)
def test_secret_is_replaced_alone(name: str, before: str, secret: str, after: str) -> None:
    """Exactly the secret gives way to its class; the text round it stays."""
    assert (before + marked(name) + after, True) == REDACTOR.redact_text(before + secret + after)


@every_row(("name", "before", "secret", "after"), SECRETS)
def test_secret_is_found_in_json(name: str, before: str, secret: str, after: str) -> None:
    """In a value or a key, at any depth of JSON in JSON, the secret is replaced."""
    inner = json.dumps({before + secret + after: 1})
    data = json.dumps({"a": [before + secret + after], "b": inner}, ensure_ascii=False).encode()
    redacted, is_changed = REDACTOR.redact_bytes(data)
    decoded = json.loads(redacted)
    assert (True, [before + marked(name) + after]) == (is_changed, decoded["a"])
    assert secret[-8:] not in decoded["b"]
    assert marked(name) in decoded["b"]


OPAQUE = "0f1e2d3c" * 4
STRUCTURES: list[tuple[object, object]] = [
    ({"password": "letmein"}, {"password": "[redacted:password]"}),
    ({"a": [{"clientSecret": "x y z"}]}, {"a": [{"clientSecret": "[redacted:secret]"}]}),
    ({"X-Api-Key": "k", "apikey": "k"}, dict.fromkeys(["X-Api-Key", "apikey"], "[redacted:api_key]")),
    ({"Authorization": "abc", "Cookie": "a=b"},
     {"Authorization": "[redacted:authorization]", "Cookie": "[redacted:cookie]"}),
    ([{"name": "DB_PASSWORD", "value": "letmein2"}],
     [{"name": "DB_PASSWORD", "value": "[redacted:password]"}]),
    ({"DB_PWD": 'with "quotes"\\'}, {"DB_PWD": "[redacted:password]"}),
    ({"credentials": "c", "accessToken": "t"},
     {"credentials": "[redacted:secret]", "accessToken": "[redacted:token]"}),
    ({"refresh_token": "\ud800"}, {"refresh_token": "[redacted:token]"}),
    ([{"value": "letmein2", "name": "DB_PASSWORD"}, {"Value": "k", "Key": "API_KEY"}],
     [{"value": "[redacted:password]", "name": "DB_PASSWORD"}, {"Value": "[redacted:api_key]", "Key": "API_KEY"}]),
    ({"passwords": ["letmein2", "Tr0ub4dor&3", "admin"]},
     {"passwords": ["[redacted:password]", "[redacted:password]", "admin"]}),
    ({"tokens": [1, OPAQUE, "the"], "other": [OPAQUE]},
     {"tokens": [1, "[redacted:token]", "the"], "other": [OPAQUE]}),
    ({"secrets": {"prod": {"db": OPAQUE, "n": 1}, "id": OPAQUE}, "db": OPAQUE},
     {"secrets": {"prod": {"db": "[redacted:secret]", "n": 1}, "id": OPAQUE}, "db": OPAQUE}),
    ({"api_keys": [{"name": "a", "value": OPAQUE}, [OPAQUE]], "z": OPAQUE},
     {"api_keys": [{"name": "a", "value": "[redacted:api_key]"}, ["[redacted:api_key]"]], "z": OPAQUE}),
    ({"password": {"value": "letmein2"}}, {"password": {"value": "[redacted:password]"}}),
]  # fmt: skip
PLAIN_STRUCTURES: list[object] = [
    {"max_tokens": "5", "next_page_token": "abc", "session_id": "ses_1", "token_count": "7"},
    {"password": "", "secret": "true", "token": "null", "api_key": "$API_KEY", "pwd": "<pwd>"},
    {"password": "[redacted:password]", "passwords": ["a"], "password_field": "name"},
    {"password": None, "secret": 7, "token": True, "cookie": {"a": "b"}},
    {"password": {"type": "string", "pattern": "^[A-Za-z0-9]{8,}$", "title": "Password2"}},
    [{"name": "DB_PASSWORD"}, {"value": "red"}],
    {"credential": {"id": "0f1e2d3c" * 4, "type": "public-key"}, "tokens": ["the", "cat2", "sat"]},
    [{"value": "b1", "name": "PATH_2"}, {"password": ["a"]}, ["0f1e2d3c" * 4]],
    {"public_key": "k", "primary_key": "k", "key": "k", "keys": "k", "": "", "monkey": "k"},
    {"password=": "a", "password!": "b", "k" * 200 + "_password": "c"},
    ["password", "letmein", "token", ": not a key"],
]


@every_row(("value", "expected"), STRUCTURES)
def test_value_of_a_secret_key_is_replaced_completely(value: object, expected: object) -> None:
    """In JSON the string value of a key that names a secret is replaced, whatever it contains."""
    plain = json.dumps(value)
    for data in (plain, json.dumps(value, indent=1), plain.replace(": ", " :\t")):
        redacted, is_changed = REDACTOR.redact_bytes(data.encode())
        assert is_changed
        assert "[redacted:" in redacted.decode()
    redacted = REDACTOR.redact_bytes(json.dumps(value).encode())[0]
    assert expected == json.loads(redacted)
    assert (redacted, False) == REDACTOR.redact_bytes(redacted)


_OTHER = st.characters(exclude_characters=string.ascii_letters + string.digits)


@given(
    st.sampled_from(["", "a", "x_", "é", "7"]),
    st.sampled_from(sorted(KEY_OF)),
    st.text(_OTHER, max_size=4),
    st.sampled_from([str.lower, str.upper, str.capitalize, str.title]),
)
@example("", "api", "\n", str.lower)  # an escape has a letter
@example("", "api", "\x0b\x1f", str.upper)
@example("", "access", "\ud800", str.lower)  # half a character has no bytes, only an escape
def test_the_prefilter_finds_every_secret_key(
    before: str, word: str, between: str, case: Callable[[str], str]
) -> None:
    """The value is replaced however the words of its key are joined and escaped."""
    name = before + case(word) + between + case("key")
    for text in (json.dumps({name: "hush"}), json.dumps({name: "hush"}, ensure_ascii=False)):
        redacted, is_changed = REDACTOR.redact_bytes(text.encode("utf-8", "surrogatepass"))
        assert is_changed is (names_secret(name) is not None)
        assert is_changed is (b"hush" not in redacted)


@pytest.mark.parametrize("name", ["path_key", "grant_key", "idempotency_key", "primary key"])
def test_an_ordinary_key_costs_no_second_look(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's own events have such keys: they are let through at the first look."""
    looked: list[bytes] = []

    def look(_: Redactor, data: bytes) -> Iterator[bytes]:
        looked.append(data)
        yield data

    monkeypatch.setattr(Redactor, "_json_pieces", look)
    for key in (name, "api_key"):
        REDACTOR.redact_bytes(json.dumps({key: "src"}).encode())
    assert [b'{"api_key": "src"}'] == looked


@every_row("value", PLAIN_STRUCTURES)
def test_key_that_names_no_secret_hides_nothing(value: object) -> None:
    """Counters, cursors, hints, other types and words that only contain one stay."""
    data = json.dumps(value).encode()
    assert (data, False) == REDACTOR.redact_bytes(data)


def test_bad_string_after_a_key_is_redacted_as_text() -> None:
    """A value that is not valid JSON is redacted as text."""
    data = b'{"password": "\\x AKIA' + b'IOSFODNN7EXAMPLE"}'
    assert b"AKIA" not in REDACTOR.redact_bytes(data)[0]


@every_row("text", BENIGN)
def test_benign_text_is_untouched(text: str) -> None:
    """Text that resembles a secret passes unchanged, as text, as JSON and in a stream."""
    assert (text, False) == REDACTOR.redact_text(text)
    data = json.dumps([text]).encode()
    assert (data, False) == REDACTOR.redact_bytes(data)
    assert text == "".join(stream(list(text)))


# Classes that are told by what stands before them, which percent-encoding hides.
_TOLD_BY_THEIR_SURROUNDINGS = {
    "private_key", "cookie", "api_key", "basic", "password", "url_userinfo", "authorization", "token",
    "url_query", "discord", "secret", "bearer", "telegram", "slack", "known",
}  # fmt: skip


@every_row("row", SECRETS)
def test_secret_with_a_form_of_its_own_is_found_in_a_url(row: tuple[str, str, str, str]) -> None:
    """Percent-encoding of what is round it hides no vendor's token."""
    name, before, secret, after = row
    if name not in _TOLD_BY_THEIR_SURROUNDINGS:
        encoded = quote(before, safe="") + secret + quote(after, safe="")
        assert marked(name) in REDACTOR.redact_text(f"https://x/?q=%22{encoded}%0A&r=1")[0]


def lower_escapes(text: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), text)


@every_row("row", SECRETS)
def test_vendor_token_is_found_after_repeated_percent_encoding(
    row: tuple[str, str, str, str],
) -> None:
    """A token with its own format is found after up to four percent-encodings."""
    name, _, secret, _ = row
    if name not in _TOLD_BY_THEIR_SURROUNDINGS:
        for times in range(1, 5):
            told = f"https://x/?q=a {secret} b"
            for _ in range(times):
                told = quote(told, safe="")
            assert marked(name) in REDACTOR.redact_text(told)[0]


ENCODINGS = {
    "url": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "lower": lambda text: lower_escapes(quote(text, safe="")),
}
# Not those that are encoded already.
WHOLE = [row for row in SECRETS if "%" not in row[1] + row[2]]


@every_row("encode", ENCODINGS.values())
@every_row("row", WHOLE)
def test_secret_is_found_percent_encoded(
    row: tuple[str, str, str, str], encode: Callable[[str], str]
) -> None:
    """A percent-encoded secret is removed completely, in one text and in pieces."""
    _, before, secret, after = row
    text = f"https://x/?q={encode(before + secret + after)}&r=1 {encode('ordinary words: a/b')}"
    redacted, is_changed = REDACTOR.redact_text(text)
    assert is_changed
    assert "[redacted:" in redacted
    assert not {secret[:8], secret[-8:]} & {
        unquote(redacted)[at : at + 8] for at in range(len(text))
    }
    assert redacted.endswith(encode("ordinary words: a/b"))
    assert (redacted, False) == REDACTOR.redact_text(redacted)
    for at in range(0, len(text), 3 if len(text) < 200 else 11):
        assert redacted == "".join(stream([text[:at], text[at:]])), at


PLAIN_ENCODED = [
    "https://example.com/?q=%22password%22%3A+required&next=%2Fa%2Fb1",
    "password += chunk12345 + token += part9f3b7c21e8",
    "a%20bearer%20of%20good%20news1 basic%20facts1 100%25 of 50%3D1",
    "%7B%22max_tokens%22%3A%204096%2C%20%22session_id%22%3A%20%22ses_018f3c1e%22%7D",
    "https%3A%2F%2Fexample.com%2Fa%3Fb%3Dc%40d",
    "https%3A%2F%2Fuser%3Apassword%40localhost%2Ftest",
    "LIKE '%secret%' OR token LIKE '%a1b2c3d4e5f6%'",
]


@every_row("text", PLAIN_ENCODED)
def test_encoded_text_without_a_secret_is_unchanged(text: str) -> None:
    """Byte for byte, in one text and in pieces."""
    assert (text, False) == REDACTOR.redact_text(text)
    assert text == "".join(stream(list(text)))


def test_prepared_rules_are_compiled() -> None:
    """After the last step no scanner has anything left to compile."""
    redactor = Redactor(["a-secret-of-this-daemon"])
    steps = list(redactor.prepare())
    assert [True] * len(steps) == steps
    assert len(steps) > 2 * len(redactor.scanners)
    for scanner in redactor.scanners:
        if isinstance(scanner, Structures):
            assert {"place", "begun"} <= vars(scanner).keys()
        if not isinstance(scanner, Scanner):
            continue
        assert {"look", "_viable"} <= vars(scanner).keys()
        assert all({"expression", "which"} <= vars(part).keys() for part in scanner._parts)


def test_source_code_is_untouched() -> None:
    """The package's own source comes back as it is; by default every third file."""
    paths = sorted(ROOT.glob("palyra/**/*.py"))[:: 1 if IS_WHOLE else 3]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    assert sources == [REDACTOR.redact_text(source)[0] for source in sources]


@every_row("before", ["KEY=", '"', "a\\n", "%3D", "\x1b[01;31m", "\\u001b", "ü", "_", "-", "\n"])
def test_boundary_is_seen_through_escapes(before: str) -> None:
    """A prefix counts after anything that ends a word, also after an escape that ends in a letter."""
    secret = "sk-" + "ant-" + MIXED[:40]
    assert before + marked("anthropic") == REDACTOR.redact_text(before + secret)[0]


@every_row(
    ("found", "is_token"),
    [
        ("zorg_Xq7Rt2Lm9Zp4Vb8Kd3Hs6Wn1", True),  # an unknown vendor, and a drawn word
        ("zorg_Xq7Rt2averyordinarywordinside", False),
        ("zorg_api_Xq7Rt2Lm9Zp4Vb8Kd3Hs6Wn1", True),  # "api" promises a secret
        ("zorg_api_averyordinarywordwithoutany", False),
        ("chatcmpl_Xq7Rt2Lm9Zp4Vb8Kd3Hs6Wn1", False),  # the prefix of an id
        ("zorg_01JQ7RT2LM9ZP4VB8KD3HS6WN1", False),  # sorted by time: an id
    ],
)
def test_a_token_of_an_unknown_vendor_looks_drawn(found: str, *, is_token: bool) -> None:
    """A prefix and a long random word are a token; an id, a time or a plain word is none."""
    expected = f"see {marked('token') if is_token else found} there"
    assert expected == REDACTOR.redact_text(f"see {found} there")[0]


# --- Known secrets -------------------------------------------------------------------------------


@every_row(
    "escaped",
    [
        ODD,
        json.dumps(ODD)[1:-1],
        json.dumps(ODD, ensure_ascii=False)[1:-1],
        json.dumps(ODD)[1:-1].replace("/", "\\/").replace("(", "\\u0028"),
        json.dumps(json.dumps(json.dumps(ODD)))[1:-1],
        quote(ODD),
        quote(ODD, safe=""),
        quote_plus(ODD),
        quote_plus(ODD).lower(),
    ],
)
def test_known_secret_is_found_escaped(escaped: str) -> None:
    """A known secret is found through JSON escapes of any depth and URL escapes of any kind."""
    assert marked("known") in REDACTOR.redact_text(f"<{escaped}>")[0]
    assert "odd" not in REDACTOR.redact_text(f"<{escaped}>")[0]
    as_json = json.dumps(f"<{escaped}>").encode()
    assert b"odd" not in REDACTOR.redact_bytes(as_json)[0]


@given(st.binary(max_size=5), st.binary(max_size=5), st.sampled_from([TOKEN, ODD]))
def test_known_secret_is_found_in_base64(before: bytes, after: bytes, secret: str) -> None:
    """At whatever offset it was encoded, at most the neighbours' own bytes are left over."""
    data = before + secret.encode() + after
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        left = REDACTOR.redact_text(encode(data).decode())[0].split(marked("known"))
        assert len(left) == 2
        assert sum(map(len, left)) <= (len(before) + len(after)) * 4 // 3 + 8


def test_longer_known_secret_wins() -> None:
    """Of two known secrets that begin alike, the longer is replaced whole."""
    redactor = Redactor(["abcdefgh", "abcdefgh12345678"])
    assert (
        "[redacted:known] [redacted:known]9"
        == (redactor.redact_text("abcdefgh12345678 abcdefgh9")[0])
    )


def test_without_known_secrets() -> None:
    """A redactor that knows none still has its classes."""
    assert marked("aws") == Redactor([]).redact_text("AKIA" + "IOSFODNN7EXAMPLE")[0]


LONG_SECRETS = [
    "".join(Random(1).choices(string.ascii_letters + string.digits, k=16_000)),
    "".join(Random(2).choices([chr(code) for code in range(32, 127)], k=3_000)),
    "".join(Random(3).choices('äé\n"\\/ 😀aZ9', k=700)),
]


@every_row("secret", LONG_SECRETS)
def test_a_long_known_secret_is_found_in_all_its_spellings(secret: str) -> None:
    """As shorter ones are: whole, escaped, encoded, cut and in pieces; its beginning is searched for."""
    redactor = Redactor([secret, "another-short-secret"])
    texts = [
        secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[1:-1], quote(secret, safe=""),
        base64.b64encode(b"ab" + secret.encode()).decode(), secret[: len(secret) // 2],
    ]  # fmt: skip
    for text in texts:
        redacted = redactor.redact_text(f"<{text}> another-short-secret")[0]
        assert marked("known") in redacted
        assert redacted.endswith(f"> {marked('known')}")
        assert len(redacted) < 60
    data = json.dumps({"a": [secret], "b": 1}).encode()
    assert b'{"a": ["[redacted:known]"], "b": 1}' == redactor.redact_bytes(data)[0]
    if len(secret) < HELD_LIMIT_BYTES // 4:
        text = f"<{secret}> and on"
        pieces = [text[at : at + 50] for at in range(0, len(text), 50)]
        assert "<[redacted:known]> and on" == "".join(stream(pieces, redactor))


def test_a_long_known_secret_compiles_no_expression_of_its_length() -> None:
    """What is compiled is as small for 64 000 characters as for 200."""
    sizes = [
        sum(map(len, LongSecrets([LONG_SECRETS[0] * 4][:1])._begins)),
        sum(map(len, LongSecrets([LONG_SECRETS[0][:200]])._begins)),
    ]
    assert abs(sizes[0] - sizes[1]) < 100
    redactor = Redactor([])
    redactor.learn(LONG_SECRETS[0] * 5)  # more than a secret may have: passed over
    assert not redactor.redact_text(LONG_SECRETS[0] * 5)[1]


# --- JSON ----------------------------------------------------------------------------------------


@every_row(
    ("expected", "data"),
    [
        (b'{"a": "[redacted:aws]", "n": 1.0e5}', b'{"a": "AKIA%s", "n": 1.0e5}'),
        (b'["\\u00e9\\/ ok", "[redacted:aws]"]', b'["\\u00e9\\/ ok", "\\u0041KIA%s"]'),
        (b'["[redacted:aws]\\ud800"]', b'["AKIA%s\\ud800"]'),
        (b'["[redacted:aws]\xff"]', b'["AKIA%s\xff"]'),
        (b'["[redacted:aws]\\x"]', b'["AKIA%s\\x"]'),
        (b'{"a": "[redacted:aws]', b'{"a": "AKIA%s'),
        (b"[redacted:aws]", b"AKIA%s"),
    ],
)
def test_the_rest_of_json_keeps_its_bytes(expected: bytes, data: bytes) -> None:
    """Only the string with the secret changes; broken JSON is redacted as text."""
    assert (expected, True) == REDACTOR.redact_bytes(data.replace(b"%s", b"IOSFODNN7EXAMPLE"))


def test_deep_json_is_redacted() -> None:
    """Nesting costs no recursion."""
    data = b"[" * 50_000 + b'"AKIA' + b'IOSFODNN7EXAMPLE"' + b"]" * 50_000
    assert b"[" * 50_000 + b'"[redacted:aws]"' + b"]" * 50_000 == REDACTOR.redact_bytes(data)[0]


# --- Properties ----------------------------------------------------------------------------------

PARTS = [
    *(part for _, before, secret, after in SECRETS for part in (before, secret, after)),
    *(secret[:cut] for _, _, secret, _ in SECRETS for cut in (3, 9, 25)),
    *" .:/@-_]\"'\\\n", "\\n", "%3D", "eyJ", "://", "bearer ", "a", "ü", "😀", "[redacted:jwt]", "=",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS) | st.text(max_size=8), max_size=8).map("".join)


@given(TEXTS)
@example(TOKEN + "sk-" + "ant-" + MIXED[:30])
@example("bearer " + "a" * 16 + " " + JWT)
@example("AKIA" + "0" * 12 + TOKEN)
@example("-----BEGIN PRIVATE KEY-----\nsk-" + "svcacct-" + MIXED[:15] + "sk-" + "ant-" + MIXED[:40])
def test_redaction_is_idempotent(text: str) -> None:
    """A redacted text has nothing left to redact."""
    redacted = REDACTOR.redact_text(text)[0]
    assert (redacted, False) == REDACTOR.redact_text(redacted)


@given(
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=5,
    )
)
@example("dapi0123456789abcdef0123456789abcdefmaster_key: dXNlcjpodW50ZXIy")
@example("Set-Cookie: session=aB3dE5gH1jaB3dE5gH1jxoxb-123456789012-aB3dE5g")
def test_json_stays_json(value: object) -> None:
    """Redacting JSON is redacting its strings: the structure stays, the result is soon stable.

    What repeats itself hardly looks random; the half that is left beside a marker may.
    """
    data = json.dumps(value).encode()
    redacted, is_changed = REDACTOR.redact_bytes(data)
    assert redact_strings(value) == json.loads(redacted)
    assert is_changed == (redacted != data)
    again, _ = REDACTOR.redact_bytes(redacted)
    assert (again, False) == REDACTOR.redact_bytes(again)


def redact_beside(key: str, value: object, owner: str | None) -> object:
    """Redact a value by its key, and by the class of the array or object that it is part of."""
    if not isinstance(value, str):
        named = names_secret(key) or names_secret(key.removesuffix("s"))
        return redact_strings(value, named or owner)
    name = names_secret(key)
    if name is not None:
        return f"[redacted:{name}]" if may_be_secret(value) else redact_strings(value)
    name = may_name_secret(key) or owner
    data = value.encode("utf-8", "replace")
    is_secret = is_opaque(data) or (not key and name == "password" and is_password(data))
    return f"[redacted:{name}]" if name and is_secret else redact_strings(value)


def redact_strings(value: object, owner: str | None = None) -> object:
    match value:
        case str():
            return REDACTOR.redact_text(value)[0]
        case list():
            return [redact_beside("", item, owner) for item in value]
        case dict():
            return {
                redact_strings(key): redact_beside(key, item, owner) for key, item in value.items()
            }
        case _:
            return value


@given(TEXTS, st.lists(st.integers(min_value=0, max_value=400)))
def test_stream_agrees_with_the_whole(text: str, cuts: list[int]) -> None:
    """However a text is cut, what comes out of the stream is the whole text redacted."""
    places = sorted({min(cut, len(text)) for cut in cuts})
    ends = zip([0, *places], [*places, len(text)], strict=True)
    assert REDACTOR.redact_text(text)[0] == "".join(stream([text[a:b] for a, b in ends]))


# --- Streams -------------------------------------------------------------------------------------


@every_row(("name", "before", "secret", "after"), SECRETS)
def test_split_secret_never_leaves(name: str, before: str, secret: str, after: str) -> None:
    """Cut at any place or fed character by character, no part of the secret comes out."""
    text = before + secret + after
    expected = before + marked(name) + after
    assert expected == "".join(stream(list(text)))
    for cut in range(len(text)):
        assert expected == "".join(stream([text[:cut], text[cut:]]))


def test_held_back_text_starts_at_a_character() -> None:
    """The held-back part of a stream starts at a character boundary."""
    for before in ("ü", "\U0001f600", "日本"):
        streaming = StreamRedactor(REDACTOR)
        passed = streaming.feed(f"{before}hvs.") + streaming.feed(MIXED[:24]) + streaming.flush()
        assert before + marked("vault") == passed


def test_prose_is_hardly_held_back() -> None:
    """A word passes with the word after it at the latest."""
    words = re.findall(r"\w+ ", "nothing to see in this sentence but words and words ")
    for fed, passed in zip(words, stream(words)[:-1], strict=True):
        assert len(passed) >= len(fed) - 2


@every_row("size", [50, 700, HELD_LIMIT_BYTES + 1, 100_000])
def test_endless_secret_is_replaced_once(size: int) -> None:
    """A secret longer than the limit is replaced once, and no part of it is sent."""
    text = "x sk-" + "ant-" + MIXED * 180 + " and on"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert "x [redacted:anthropic] and on" == "".join(stream(pieces))


def test_long_key_file_is_replaced_once() -> None:
    """A private key larger than the limit is replaced once."""
    end = "-----END PRIVATE KEY-----\nok"
    pieces = ["-----BEGIN PRIVATE KEY-----\n", *([MIXED[:64] + "\n"] * 300), end]
    assert marked("private_key") + end == "".join(stream(pieces))


def test_held_back_text_is_bounded() -> None:
    """Text that could be a secret for ever is released, older half first; later text is still redacted."""
    streaming = StreamRedactor(REDACTOR)
    words = len(REDACTOR.scanners)  # each of them may hold as much
    long = "://" + "a" * HELD_LIMIT_BYTES * words
    passed = [streaming.feed(long), streaming.feed("b" * 100)]
    assert len("".join(passed)) >= HELD_LIMIT_BYTES // 2
    rest = streaming.feed(" AKIA" + "IOSFODNN7EXAMPLE") + streaming.flush()
    assert long + "b" * 100 + " [redacted:aws]" == "".join(passed) + rest


def test_a_flushed_stream_starts_empty() -> None:
    """After a flush the stream has no held-back or swallowed text."""
    streaming = StreamRedactor(REDACTOR)
    secret = "sk-" + "ant-" + MIXED * 100
    first = streaming.feed("x") + streaming.feed(secret) + streaming.flush()
    second = streaming.feed("a" * 30) + streaming.flush()
    assert ("x" + secret, "a" * 30) == (first, second)
    assert marked("anthropic") == streaming.feed(secret) + streaming.flush()
    assert "a" * 30 == streaming.feed("a" * 30) + streaming.flush()


# --- The machinery -------------------------------------------------------------------------------


@every_row(("name", "before", "secret", "after"), SECRETS)
def test_every_prefix_of_a_match_is_viable(name: str, before: str, secret: str, after: str) -> None:
    """A scanner is in doubt from the first character of a match to its last."""
    scanner = REDACTOR.scanners[0 if name == "known" else 3]
    text = before + secret
    span = scanner.find((text + after).encode())
    assert span is not None
    prefixes = [text[:end].encode() for end in range(1, len(text) + 1)]  # whole characters
    begun = [prefix for prefix in prefixes if len(prefix) > span.at + 1]  # beyond the boundary
    assert [] == [prefix for prefix in begun if scanner.find_viable(prefix, 0) > span.at]


@every_row(
    ("expected", "shape"),
    [
        ("a(?:b(?:c)?)?", "abc"),
        ("[ab]+(?:c*(?:d)?)?", "[ab]{2}c*d"),
        ("a*(?:\\.)?", "a?\\."),
        ("(?:a|b)+(?:[\\s\\S]|[%\\\\][\\\\%0-9A-Fa-fu]*)?(?:c)?", "(?:a|b){2,}c"),
        ("(?:a|b)*(?:[\\s\\S]|[%\\\\][\\\\%0-9A-Fa-fu]*)?", "(?:a|b)*?"),
        ("x(?:(?:(?:a|b)(?:y)?|[%\\\\][\\\\%0-9A-Fa-fu]*))?", "x(?:a|b)y"),
    ],
)
def test_viable_prefixes_of_a_shape(expected: str, shape: str) -> None:
    """Each unit may be the last; counts are dropped; a group may be cut inside."""
    assert expected == viable_prefix(shape)


def test_unclear_match_is_redacted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the engine cannot say which rule matched, the whole match goes."""

    class Silent:
        def Match(self, _text: bytes) -> None:  # noqa: N802 - the engine's name
            return None

    monkeypatch.setattr(Part, "which", Silent())
    span = Scanner(RULES).find(b"x AKIA" + b"IOSFODNN7EXAMPLE y")
    assert span is not None
    assert (b"[redacted:secret]", 1, 22) == (span.marker, span.start, span.end)


def test_a_redactor_learns() -> None:
    """A secret that is learned later is found from then on, and earlier ones still are."""
    redactor = Redactor(["first-known-secret"])
    text = "first-known-secret second-known-secret"
    assert ("[redacted:known] second-known-secret", True) == redactor.redact_text(text)
    redactor.learn("second-known-secret")
    redactor.learn("first-known-secret")
    assert ("[redacted:known] [redacted:known]", True) == redactor.redact_text(text)
    assert b'"[redacted:known]"' == redactor.redact_bytes(b'"second-known-secret"')[0]
    stream = StreamRedactor(redactor)
    assert (
        "[redacted:known]" == stream.feed("second-known-") + stream.feed("secret") + stream.flush()
    )


LONG = json.dumps({"text": "x " * 1_000 + "password: hunter2x"}).encode()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that were searched as plain text."""
    sizes: list[int] = []
    plain = Redactor._redact_plain

    def note(self: Redactor, data: bytes) -> bytes:
        sizes.append(len(data))
        return plain(self, data)

    monkeypatch.setattr(Redactor, "_redact_plain", note)
    return sizes


def test_a_long_text_is_searched_once(looked: list[int]) -> None:
    """A long text is searched once, also inside another one; a short one every time."""
    redactor = Redactor([])
    first = redactor.redact_bytes(LONG)
    assert first[1]
    assert first == redactor.redact_bytes(LONG)
    assert b"hunter2x" not in redactor.redact_bytes(b'{"more": [%b, 1]}' % LONG)[0]
    assert 1 == len(looked)
    for _ in range(2):
        redactor.redact_bytes(b'{"a": "password: hunter2x"}')
    assert 3 == len(looked)


def test_a_learned_secret_invalidates_cached_texts() -> None:
    """A text that was clean is searched again after a secret was learned."""
    redactor = Redactor([])
    data = json.dumps({"text": "password: hunter2x\n" * 100 + TOKEN}).encode()
    assert TOKEN.encode() in redactor.redact_bytes(data)[0]
    assert redactor._memory._known
    redactor.learn(TOKEN)
    assert TOKEN.encode() not in redactor.redact_bytes(data)[0]


def test_a_look_that_began_before_something_was_learnt_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is another thread's, and knows nothing of the new secret."""
    redactor = Redactor([])
    data = json.dumps({"text": "password: hunter2x\n" * 100 + TOKEN}).encode()
    plain = Redactor._redact_plain

    def slow(self: Redactor, text: bytes) -> bytes:
        found = plain(self, text)
        monkeypatch.undo()
        redactor.learn(TOKEN)  # meanwhile
        return found

    monkeypatch.setattr(Redactor, "_redact_plain", slow)
    assert TOKEN.encode() in redactor.redact_bytes(data)[0]
    assert TOKEN.encode() not in redactor.redact_bytes(data)[0]


def test_the_cache_is_bounded_and_contains_no_secret(
    monkeypatch: pytest.MonkeyPatch, looked: list[int]
) -> None:
    """The cache holds digests and redacted texts only."""
    monkeypatch.setattr("palyra.core.redaction.redactor.MEMORY_BYTES", 10_000)
    redactor = Redactor([])
    for number in range(20):
        redactor.redact_bytes(LONG.replace(b"x x", b"%d x" % number, 1))
        assert redactor._memory._size_bytes <= 10_000
    assert 20 == len(looked)
    assert b"hunter2x" not in b"".join(filter(None, redactor._memory._known.values()))
