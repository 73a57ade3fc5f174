"""Each format of the table: found plain, cut and encoded; what falls short of it stays."""

import base64
import json
import random
import re
from urllib.parse import quote

from palyra.core.redaction.patterns import vendor_rule
from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.core.redaction.scanner import Scanner
from palyra.core.redaction.token_formats import FORMATS, Format
from tests.core.redaction.secret_samples import format_sample
from tests.rows import every_row

REDACTOR = Redactor([])
IDS = [row.id for row in FORMATS]
# Their slashes stand in a group, which the derived rows for percent-encoding leave as it is.
PLAIN_ONLY = {"discord-webhook", "zapier-webhook", "ifttt-webhook", "alchemy-address"}
each_format = every_row("row", FORMATS)


def test_ids_are_unique() -> None:
    """A row can be named by its id."""
    assert len(IDS) == len(set(IDS))


@each_format
def test_row_is_complete(row: Format) -> None:
    """Each row describes its format, and every match contains its keyword."""
    assert row.description
    text = format_sample(row)
    assert all(keyword in text.lower() for keyword in row.keywords)
    assert Scanner([vendor_rule(row)]).find(text.encode()) is not None


@each_format
def test_sample_is_found(row: Format) -> None:
    """Nothing of a sample is left in a sentence, in quotes, in an address or in JSON."""
    secret = format_sample(row)
    for text in (f"see {secret} there", f'"{secret}"', f"https://x.example/a?b={secret}&c=d"):
        assert_gone(secret, text, REDACTOR.redact_text(text)[0])
    data = json.dumps({"note": f"a\n{secret}\tb"}).encode()
    redacted = REDACTOR.redact_bytes(data)[0]
    assert_gone(secret, data.decode(), redacted.decode())
    json.loads(redacted)


@each_format
def test_sample_is_found_encoded(row: Format) -> None:
    """Percent-encoded once and twice, and in both alphabets of base64."""
    secret = format_sample(row)
    once = quote(f" {secret} ", safe="")
    for text in () if row.id in PLAIN_ONLY else (once, quote(once, safe="")):
        assert "[redacted:" in REDACTOR.redact_text(f"https://x.example/?q={text}")[0]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        blob = encode(f"# value\n{secret}\n".encode()).decode()
        assert "data: [redacted:base64]" == REDACTOR.redact_text(f"data: {blob}")[0].rstrip("=")


def test_base64_is_read_two_layers_deep() -> None:
    """A secret is found inside base64 of base64; a third layer is beyond the documented depth."""
    layers = [f"# value\n{format_sample(FORMATS[0])}\n".encode()]
    for _ in range(3):
        layers.append(base64.b64encode(layers[-1]))
    found = ["[redacted:base64]" in REDACTOR.redact_text(f"data: {b.decode()}")[0] for b in layers]
    assert [False, True, True, False] == found


@each_format
def test_sample_that_is_split_never_leaves(row: Format) -> None:
    """Wherever a stream is cut, it comes to what the whole text comes to."""
    text = f"see {format_sample(row)} there"
    whole = REDACTOR.redact_text(text)[0]
    for cut in (5, 8, len(text) // 3, len(text) // 2, len(text) - 8, len(text) - 6):
        stream = StreamRedactor(REDACTOR)
        assert whole == stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush()


@each_format
def test_near_miss_stays(row: Format) -> None:
    """The beginning alone, and a placeholder in the place of the random part, are no secret."""
    secret = format_sample(row)
    beginning = secret[: max(4, len(secret) // 3)]
    if row.id == "aws-key-pair":
        return  # its beginning is an access key id
    assert f"see {beginning} there" == REDACTOR.redact_text(f"see {beginning} there")[0]
    masked = re.sub(r"[A-Za-z0-9]", "x", secret)
    assert masked == REDACTOR.redact_text(masked)[0]


def assert_gone(secret: str, text: str, redacted: str) -> None:
    """No eight characters in a row of the secret are left, but for those of an address."""
    assert text != redacted
    assert "[redacted:" in redacted
    tail = secret[-8:]
    assert tail not in redacted


def test_random_base64_is_no_token() -> None:
    """Signatures and packed vectors pass, whatever letters they happen to hold."""
    rng = random.Random(7)
    redactor = Redactor([])
    texts = [base64.b64encode(rng.randbytes(64)).decode() for _ in range(3_000)]
    zeros = bytes(rng.choice((0, 0, 0, 0, 190)) for _ in range(1_536))
    texts.extend(
        (
            base64.b64encode(zeros + bytes(300) + rng.randbytes(64)).decode(),
            f"Yp1+sk{'aB3xK9qLm2' * 8}==",
        )
    )  # what a rule of two letters once took for a token
    changed = [
        text for text in texts if redactor.redact_bytes(f'{{"signature":"{text}"}}'.encode())[1]
    ]
    assert [] == changed
