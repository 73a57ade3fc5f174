"""Small whole pictures of every type, and PNGs of any size."""

import base64
import zlib
from typing import Any

# Baseline, 1 x 1 grey: quantisation, frame, codes of DC and AC with one symbol each, scan, end.
JPEG = b"".join((
    bytes.fromhex("ffd8 ffdb0043 00"), b"\xff" * 64, bytes.fromhex("ffc0000b 08 0001 0001 01 011100"),
    bytes.fromhex("ffc40014 00 01"), bytes(16), bytes.fromhex("ffc40014 10 01"), bytes(16),
    bytes.fromhex("ffda0008 01 0100 003f00 3f ffd9"),
))  # fmt: skip
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
WEBP = base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")
WEBP_LOSSLESS = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG with its length and checksum."""
    checksum = zlib.crc32(kind + body).to_bytes(4, "big")
    return len(body).to_bytes(4, "big") + kind + body + checksum


def png(width: int = 1, height: int = 1, *, colour: int = 0) -> bytes:
    """A whole black picture of 8 bits a sample; colour types as the specification numbers them."""
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, colour, 0, 0, 0])
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    pixels = zlib.compress(bytes(1 + width * samples) * height)
    palette = chunk(b"PLTE", bytes(3)) if colour == 3 else b""
    chunks = chunk(b"IHDR", header) + palette + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


PNG = png()


def attached(data: bytes = PNG, **more: Any) -> dict[str, Any]:
    """A picture as a client sends it."""
    return {"type": "image", "data": base64.b64encode(data).decode(), **more}
