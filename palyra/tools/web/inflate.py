"""Inflating a body under a cap: never more in memory than what may be kept.

A few kilobytes of gzip hold gigabytes of zeros.  So each piece is inflated with a limit on what
comes out, and nothing more is fed in once the cap is reached.
"""

import zlib

from palyra.errors import Unavailable

ENCODINGS = ("gzip", "deflate")
_PLAIN = frozenset({"", "identity"})
_GZIP, _ZLIB, _RAW = 31, 15, -15  # window bits: the wrapping zlib expects


class Inflater:
    """One body.  `feed` gives what is decoded, at most `cap_bytes` of it over all calls."""

    def __init__(self, encoding: str, cap_bytes: int) -> None:
        """`encoding` is the Content-Encoding.  Raises Unavailable for one we did not ask for."""
        self._encoding = encoding.strip().lower().removeprefix("x-")
        if self._encoding not in _PLAIN.union(ENCODINGS):
            raise Unavailable("the body's encoding is none that was asked for")
        self._left = cap_bytes
        self._stream: zlib._Decompress | None = None
        self.is_cut = False  # there was more than the cap

    @property
    def is_done(self) -> bool:
        """Whether nothing more is taken; what follows the end of the stream does not count."""
        return self.is_cut or (self._stream is not None and self._stream.eof)

    def feed(self, data: bytes) -> bytes:
        """What the next piece of the body decodes to.  Raises Unavailable for damaged data."""
        if not data or self.is_done:
            return b""
        return self._take(data if self._encoding in _PLAIN else self._inflate(data))

    def finish(self) -> None:
        """There is no more.  Raises Unavailable when the body broke off."""
        if self._stream is not None and not self.is_done:
            raise Unavailable(f"the {self._encoding} body broke off")

    def _take(self, decoded: bytes) -> bytes:
        kept = decoded[: self._left]
        self._left -= len(kept)
        self.is_cut = len(kept) < len(decoded)
        return kept

    def _inflate(self, data: bytes) -> bytes:
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window_bits(data))
        try:
            # One byte more than there is room for tells whether there is more.
            return self._stream.decompress(data, self._left + 1)
        except zlib.error:
            raise Unavailable(f"the body is no {self._encoding}, or damaged") from None

    def _window_bits(self, data: bytes) -> int:
        """Of gzip; for deflate, of zlib (RFC 1950) or of none at all, which some servers send."""
        if self._encoding == "gzip":
            return _GZIP
        has_check = len(data) == 1 or int.from_bytes(data[:2], "big") % 31 == 0
        return _ZLIB if data[0] & 0x0F == zlib.DEFLATED and has_check else _RAW
