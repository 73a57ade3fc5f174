"""Secrets inside base64: a blob whose decoded text holds a secret is replaced whole.

Both alphabets, at any depth up to MAX_DEPTH, with line breaks as `base64` and MIME put them (RFC
4648, 2045).  Printable ASCII leaves a trace in base64: three of four characters come from a part of
the alphabet.  `_PRINTABLE` matches six such groups in a row; a random blob has them once in some
ten million characters, so pictures and digests are never decoded.
"""

import base64
import re
from collections.abc import Callable

from palyra.core.redaction.grammar import Rule

MAX_DEPTH = 2  # base64 inside of base64, as in a Kubernetes secret with a Docker configuration
_LEAST = 24
_FIRST = "[CI-Za-f]"  # a byte of 0x20 to 0x7f, a line break or a tab
_SECOND = "[AC-HQS-Xgi-nwyz0-3]"
_THIRD = "[ABEFIJMNQRUVYZcdghklopstwx014589]"
_PRINTABLE = f"(?:{_FIRST}{_SECOND}{_THIRD}[A-Za-z0-9+/_-]){{6,}}"
_TEXT = re.compile(f"{_PRINTABLE}[A-Za-z0-9+/_-]{{0,3}}".encode())
_STANDARD = bytes.maketrans(b"-_", b"+/")
_START = r"(?:^|[^A-Za-z0-9+/_\]-]|\\[a-z]|%(?:25)*[0-9A-Fa-f]{2}|\[[0-9;]*[mK])"


def base64_rules(holds_secret: Callable[[bytes], bool]) -> tuple[Rule, ...]:
    """The rows that find blobs whose decoded text `holds_secret`."""
    depth = 0

    def accepts(found: bytes) -> bool:
        nonlocal depth
        if depth == MAX_DEPTH:
            return False
        depth += 1
        try:
            return any(map(holds_secret, _decoded(found)))
        finally:
            depth -= 1

    return (
        Rule("base64", _START, "", "[A-Za-z0-9+/]{60,}(?:[\r\n]+[ \t]*[A-Za-z0-9+/]+)+=*",
             accepts=accepts, hint=_PRINTABLE),
        Rule("base64", _START, "", f"[A-Za-z0-9+/_-]{{{_LEAST},}}",
             accepts=accepts, hint=_PRINTABLE),
    )  # fmt: skip


def _decoded(found: bytes) -> list[bytes]:
    """The texts that the blob holds, wherever in it they begin."""
    whole = found.translate(_STANDARD, b"\r\n \t=")
    return [_decode(match[0]) for match in _TEXT.finditer(whole)]


def _decode(text: bytes) -> bytes:
    whole = text[:-1] if len(text) % 4 == 1 else text  # one character more is less than a byte
    return base64.b64decode(whole + b"=" * (-len(whole) % 4))
