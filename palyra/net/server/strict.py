"""Stricter parsing of HTTP/1 heads and chunks than h11's, against request smuggling.

h11 accepts all that RFC 9112 lets a server accept: bare line feeds, folded lines, repeated equal
lengths, a length together with a transfer coding, anything after a chunk's size.  A proxy in front
of the daemon may parse the same bytes differently, and one request then becomes two.  Every such
head is refused with 400, and the connection ends.  So is a method in lower case, with 405.  Used
by: the head parser and the HTTP server, each of which puts `StrictBuffer` into its h11 connection
(a private attribute: the version range in pyproject.toml is narrow, and a test fails when it
moves).
Source: RFC 9112 sections 2.2, 3.2, 5.2, 6 and 7.1, RFC 9110 section 5.5.
"""

import re

import h11
from h11._receivebuffer import ReceiveBuffer  # noqa: PLC2701 - see above

# Of a head or a trailer.  h11 has the same limit, but applies it only while the end is missing, so a
# larger head would pass when it arrives in one piece.
MAX_HEAD_BYTES = 16_384
_END = b"\r\n\r\n"
# A line feed or carriage return by itself, a folded line, a control character.
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,16}(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_LAST_CHUNK = re.compile(rb"0+(?![0-9A-Fa-f])")
_MAX_CHUNK_LINE_BYTES = 1_024
_LENGTH = re.compile(rb"[0-9]{1,18}")


def harden(connection: h11.Connection) -> None:
    """Make a new connection refuse ambiguous requests."""
    connection._receive_buffer = StrictBuffer()  # noqa: SLF001 - see the module


class StrictBuffer(ReceiveBuffer):
    """Buffer of received bytes; raises LocalProtocolError like h11's readers."""

    def __init__(self) -> None:
        super().__init__()
        self._searched = 0  # bytes searched without finding an end or an ambiguity
        self._is_trailer = False  # after the last chunk, before the end of its trailer

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines of a complete head or trailer without line ends, else None."""
        if self._data[:2] == b"\r\n":  # no trailer; before a request it is an empty head
            self._extract(2)
            self._searched, self._is_trailer = 0, False
            return []
        found = self._data.find(_END, max(0, self._searched - len(_END)))
        end = len(self._data) if found < 0 else found + len(_END)
        if _AMBIGUOUS.search(self._data, max(0, self._searched - 3), end):
            raise _refused("a control character, a bare line end or a folded line in the head")
        if end > MAX_HEAD_BYTES:
            raise _refused(f"a head may have {MAX_HEAD_BYTES} bytes", status=431)
        if found < 0:
            self._searched = end
            return None
        lines = self._extract(end)[: -len(_END)].split(b"\r\n")
        if not self._is_trailer:
            _check_framing(lines)
            lines[0] = _in_origin_form(lines)
        self._searched, self._is_trailer = 0, False
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Return the line with a chunk's size and extensions once it is complete, else None."""
        line: bytearray | None = super().maybe_extract_next_line()
        if line is None:
            if len(self._data) > _MAX_CHUNK_LINE_BYTES:
                raise _refused("a chunk's first line is too long")
            return None
        if len(line) > _MAX_CHUNK_LINE_BYTES or _CHUNK.fullmatch(line) is None:
            raise _refused("a chunk has no valid size")
        self._is_trailer = _LAST_CHUNK.match(line) is not None
        return line


def _check_framing(lines: list[bytearray]) -> None:
    """Refuse a head that does not define the end of its body in exactly one way."""
    lengths, codings = _values(lines, b"content-length"), _values(lines, b"transfer-encoding")
    if lengths and codings:
        raise _refused("Content-Length and Transfer-Encoding in one request")
    if len(lengths) > 1 or (lengths and _LENGTH.fullmatch(lengths[0]) is None):
        raise _refused("Content-Length must occur once and consist of digits")
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
        raise _refused("the only supported Transfer-Encoding is a single chunked")
    if codings and lines[0].endswith(b"/1.0"):
        raise _refused("HTTP/1.0 has no Transfer-Encoding")


def _in_origin_form(lines: list[bytearray]) -> bytearray:
    """Return the request line in origin form; an absolute target must name the same host.

    RFC 9112 section 3.2.2 has every server accept that form.
    """
    method, _, rest = lines[0].partition(b" ")
    target, _, version = rest.rpartition(b" ")
    if target and method.isalpha() and not method.isupper():  # Hypercorn would make it upper case
        raise _refused("methods are case-sensitive: use capital letters", status=405)
    if not target or target.startswith(b"/") or (target == b"*" and version != b"HTTP/1.0"):
        if b"#" in target:
            raise _refused("the target contains a fragment")
        return lines[0]
    scheme, _, after = bytes(target).partition(b"://")
    authority = re.split(rb"[/?#]", after, maxsplit=1)[0]
    hosts = [value.lower() for value in _values(lines, b"host")]
    if scheme.lower() not in {b"http", b"https"} or hosts != [authority.lower()] or b"#" in after:
        raise _refused("the target is neither a path nor an URL of the named host")
    rest_of_it = after[len(authority) :]
    path = rest_of_it if rest_of_it.startswith(b"/") else b"/" + rest_of_it
    return bytearray(b" ".join((method, path, version)))


def _values(lines: list[bytearray], name: bytes) -> list[bytes]:
    """Return the values of every header of that name; h11 refuses a blank before the colon."""
    pairs = (bytes(line).partition(b":") for line in lines[1:])
    return [value.strip(b" \t") for key, _, value in pairs if key.lower() == name]


def _refused(why: str, *, status: int = 400) -> h11.LocalProtocolError:
    return h11.LocalProtocolError(why, error_status_hint=status)
