"""Picture files: their type, their size and whether they are whole, read from their structure.

A provider that cannot decode a picture refuses the whole request.  `read_picture` therefore walks a
file to its end before it may enter a conversation: every chunk or segment is there, the header
agrees with itself, checksums hold, and the pixels of a PNG unpack to their number.  The compressed
pixels of the other types are not decoded.

Sources: PNG specification (third edition) 5, 10 and 11.2; ITU-T T.81 annex B (JPEG); GIF89a; RFC
9649 (WebP); RFC 6386 9.1 (VP8).  Pure.
"""

import re
import zlib
from collections.abc import Iterator
from itertools import starmap
from typing import NamedTuple

from palyra.errors import PalyraError

_UNPACK_BYTES = 1_048_576  # of pixels in memory at a time


class BrokenPicture(PalyraError):
    """The file is no picture, or a damaged one; the message is the reason."""

    code = "broken_picture"


class HugePicture(BrokenPicture):
    """The picture has a side of too many pixels."""


class PictureFile(NamedTuple):
    """Type and size of a picture, as its file says."""

    media_type: str
    width: int  # pixels
    height: int


def media_type_of(data: bytes) -> str | None:
    """Return the media type by the leading bytes; None for a type that no model accepts."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def read_picture(data: bytes, max_side: int) -> PictureFile:
    """Return type and size of a whole picture file.  Blocks: some milliseconds per megabyte.

    Raises BrokenPicture; HugePicture for a side of more than `max_side` pixels.
    """
    media_type = media_type_of(data)
    if media_type is None:
        raise BrokenPicture("it is no PNG, JPEG, GIF or WebP")
    width, height = _WALKS[media_type](data, max_side)
    return PictureFile(media_type, width, height)


def _check_size(width: int, height: int, max_side: int) -> tuple[int, int]:
    if not (width and height):
        raise BrokenPicture(f"its header says {width} x {height} pixels")
    if max(width, height) > max_side:
        raise HugePicture(f"it has {width} x {height} pixels; a side may have {max_side}")
    return width, height


def _take(data: bytes, start: int, size: int, part: str) -> bytes:
    """Return that part of the file.  Raises BrokenPicture if the file ends before."""
    found = data[start : start + size]
    if len(found) < size:
        raise BrokenPicture(f"it is truncated: it ends within {part}")
    return found


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")


# --- PNG -----------------------------------------------------------------------------------------

# Colour type: samples of a pixel, and bits that a sample may have.
_COLOURS = {0: (1, {1, 2, 4, 8, 16}), 2: (3, {8, 16}), 3: (1, {1, 2, 4, 8}), 4: (2, {8, 16}),
            6: (4, {8, 16})}  # fmt: skip
_HEADER_BYTES = 13
_PALETTE = 3  # the colour type that needs a chunk PLTE
# Of the seven passes of an interlaced picture: first column and row, steps to the next.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
           (0, 1, 1, 2))  # fmt: skip


def _walk_png(data: bytes, max_side: int) -> tuple[int, int]:
    chunks = _png_chunks(data)
    kind, header = next(chunks)
    if kind != b"IHDR" or len(header) != _HEADER_BYTES:
        raise BrokenPicture("it does not begin with its header (IHDR)")
    width, height = _check_size(_big(header[:4]), _big(header[4:8]), max_side)
    bits, colour, *methods, interlaced = header[8:]
    if bits not in _COLOURS.get(colour, (0, set()))[1] or any(methods) or interlaced > 1:
        raise BrokenPicture("its header (IHDR) names a form that does not exist")
    pixels: list[bytes] = []
    has_palette = False
    for kind, body in chunks:
        has_palette |= kind == b"PLTE"
        if kind == b"IDAT":
            pixels.append(body)
    if colour == _PALETTE and not has_palette:
        raise BrokenPicture("it has no palette (PLTE), which its pixels refer to")
    pixel_bits = bits * _COLOURS[colour][0]
    _check_pixels(
        b"".join(pixels), _pixel_bytes(width, height, pixel_bits, is_whole=not interlaced)
    )
    return width, height


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and body of each chunk, to the last one (IEND)."""
    at, kind = 8, b""
    while kind != b"IEND":
        head = _take(data, at, 8, "the list of its chunks")
        kind, name = head[4:], repr(head[4:])[2:-1]
        body = _take(data, at + 8, _big(head[:4]), f"the chunk {name}")
        at += 8 + len(body)
        if zlib.crc32(kind + body) != _big(_take(data, at, 4, f"the chunk {name}")):
            raise BrokenPicture(f"the checksum of the chunk {name} does not hold")
        at += 4
        yield kind, body


def _pixel_bytes(width: int, height: int, bits: int, *, is_whole: bool) -> int:
    """Return the unpacked size: each row of each pass has a byte for its filter."""
    total = 0
    for left, top, across, down in ((0, 0, 1, 1),) if is_whole else _PASSES:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total


def _check_pixels(packed: bytes, expected: int) -> None:
    """Raise BrokenPicture unless `packed` holds that many bytes; they are dropped."""
    if not packed:
        raise BrokenPicture("it has no pixels (IDAT)")
    unpacker, found = zlib.decompressobj(), 0
    try:
        while found < expected:
            piece = unpacker.decompress(packed, _UNPACK_BYTES)
            packed, found = unpacker.unconsumed_tail, found + len(piece)
            if not piece and not packed:
                raise BrokenPicture(f"it has {found} of {expected} bytes of pixels")
    except zlib.error:
        raise BrokenPicture("its pixels (IDAT) cannot be unpacked") from None


# --- JPEG ----------------------------------------------------------------------------------------

# A marker that ends a scan: within one, FF is followed by 00, by FF or by a restart (D0 to D7).
_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the others are no frame headers
_DECODABLE = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended, progressive; Huffman codes
_SCAN, _END, _TABLE, _FILL, _ALONE = 0xDA, 0xD9, 0xDB, 0xFF, 0x01


def _walk_jpeg(data: bytes, max_side: int) -> tuple[int, int]:
    size: tuple[int, int] | None = None
    has_table = has_scan = False
    at = 2
    while True:
        first, marker = _take(data, at, 2, "the list of its segments")
        if first != _FILL:
            raise BrokenPicture(f"it has no marker at byte {at}")
        if marker in {_FILL, _ALONE}:
            at += 1 if marker == _FILL else 2
            continue
        if marker == _END:
            break
        length = _big(_take(data, at + 2, 2, "the list of its segments"))
        body = _take(data, at + 4, max(0, length - 2), f"the segment {marker:02X}")
        at += 2 + max(2, length)
        has_table |= marker == _TABLE
        if marker in _FRAMES:
            size = _jpeg_size(marker, body, max_side)
        elif marker == _SCAN:
            if size is None or not has_table:
                raise BrokenPicture("its pixels come before their frame header or tables")
            found = _MARKER.search(data, at)
            if found is None:
                raise BrokenPicture("it is truncated: it ends within its pixels")
            has_scan, at = has_scan or found.start() > at, found.start()
    if size is None or not has_scan:
        raise BrokenPicture("it has no pixels")
    return size


def _jpeg_size(marker: int, body: bytes, max_side: int) -> tuple[int, int]:
    if marker not in _DECODABLE:
        raise BrokenPicture(f"it is a JPEG of a rare kind (frame {marker:02X})")
    if len(body) < 6 or body[5] not in {1, 3, 4} or len(body) != 6 + 3 * body[5]:  # noqa: PLR2004 - as B.2.2 has it
        raise BrokenPicture("its frame header does not agree with itself")
    return _check_size(_big(body[3:5]), _big(body[1:3]), max_side)


# --- GIF -----------------------------------------------------------------------------------------

_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_MAX_CODE_BITS = 11  # of the first codes of an image's pixels


def _walk_gif(data: bytes, max_side: int) -> tuple[int, int]:
    header = _take(data, 0, 13, "its header")
    size = _check_size(_little(header[6:8]), _little(header[8:10]), max_side)
    at, has_image = 13 + _table_bytes(header[10]), False
    # Old encoders leave the trailer out; every decoder takes such a file.
    while not (has_image and at == len(data)):
        kind = _take(data, at, 1, "the list of its blocks")[0]
        if kind == _TRAILER:
            break
        if kind == _EXTENSION:
            at += 2
        elif kind == _IMAGE:
            image = _take(data, at, 10, "the header of an image")
            at += 10 + _table_bytes(image[9])
            bits = _take(data, at, 1, "an image")[0]
            if not (1 < bits <= _MAX_CODE_BITS and data[at + 1 : at + 2] != b"\0"):
                raise BrokenPicture("an image of it has no pixels")
            at, has_image = at + 1, True
        else:
            raise BrokenPicture(f"it has a block of the unknown kind {kind:02X} at byte {at}")
        while count := _take(data, at, 1, "a block")[0]:
            at += 1 + len(_take(data, at + 1, count, "a block"))
        at += 1
    if not has_image:
        raise BrokenPicture("it has no image")
    return size


def _table_bytes(flags: int) -> int:
    """Return the size of the table of colours that the flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


# --- WebP ----------------------------------------------------------------------------------------


def _walk_webp(data: bytes, max_side: int) -> tuple[int, int]:
    end = 8 + _little(data[4:8])
    if end > len(data):
        raise BrokenPicture(f"it is truncated: it has {len(data)} of {end} bytes")
    size: tuple[int, int] | None = None
    has_pixels = False
    for kind, body in _riff_chunks(data[:end], 12):
        if kind == b"VP8X":
            wide = _take(body, 0, 10, "its header (VP8X)")
            size = 1 + _little(wide[4:7]), 1 + _little(wide[7:10])
        elif kind == b"ANMF":
            _take(body, 0, 16, "a frame (ANMF)")
            parts = list(starmap(_bitstream_size, _riff_chunks(body, 16)))
            has_pixels |= any(parts)
        elif (own := _bitstream_size(kind, body)) is not None:
            size, has_pixels = size or own, True
        if size is None:
            raise BrokenPicture("it does not begin with its header")
    if size is None or not has_pixels:
        raise BrokenPicture("it has no pixels")
    return _check_size(*size, max_side)


def _riff_chunks(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    while at < len(data):
        head = _take(data, at, 8, "the list of its chunks")
        name = repr(head[:4])[2:-1]
        body = _take(data, at + 8, _little(head[4:]), f"the chunk {name}")
        yield head[:4], body
        at += 8 + len(body) + len(body) % 2


def _bitstream_size(kind: bytes, body: bytes) -> tuple[int, int] | None:
    """Return the size that a chunk of pixels says; None for another chunk."""
    if kind == b"VP8L":
        head = _take(body, 0, 5, "its pixels (VP8L)")
        if head[0] != 0x2F or head[4] >> 5:  # noqa: PLR2004 - signature; version 0
            raise BrokenPicture("its pixels (VP8L) do not begin as they should")
        bits = _little(head[1:])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        head = _take(body, 0, 10, "its pixels (VP8)")
        if head[0] & 1 or head[3:6] != b"\x9d\x01\x2a":
            raise BrokenPicture("its pixels (VP8) do not begin as they should")
        _take(body, 10, _little(head[:3]) >> 5, "its pixels (VP8)")
        return _little(head[6:8]) & 0x3FFF, _little(head[8:10]) & 0x3FFF
    return None


_WALKS = {
    "image/png": _walk_png,
    "image/jpeg": _walk_jpeg,
    "image/gif": _walk_gif,
    "image/webp": _walk_webp,
}
