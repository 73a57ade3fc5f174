"""Packages on their way in, chunk by chunk: larger than one message of the protocol may be."""

from palyra.core.canonical import sha256_hex
from palyra.core.skill_package import MAX_PACKAGE_BYTES
from palyra.errors import Conflict, InvalidParams, NotFound, TooLarge

MAX_UPLOADS = 4  # at once; the oldest goes first


class Uploads:
    """Unfinished and finished uploads, in memory, by the digest that they are to have."""

    def __init__(self) -> None:
        self._parts: dict[str, bytearray] = {}

    def take(self, sha256: str, offset: int, chunk: bytes) -> int:
        """Add a chunk; how many bytes there are.  A chunk that is there already changes nothing.

        Raises Conflict for a gap, TooLarge.
        """
        if offset == 0:
            self._parts.pop(sha256, None)
            while len(self._parts) >= MAX_UPLOADS:
                del self._parts[next(iter(self._parts))]
            self._parts[sha256] = bytearray()
        part = self._parts.get(sha256)
        if part is None or offset > len(part):
            raise Conflict("the upload is not known, or has a gap: begin again at offset 0")
        if offset + len(chunk) > MAX_PACKAGE_BYTES:
            raise TooLarge(f"a package has at most {MAX_PACKAGE_BYTES} bytes")
        part[offset:] = chunk
        return len(part)

    def get(self, sha256: str) -> bytes:
        """The whole package.  Raises NotFound, InvalidParams when it has another digest."""
        part = self._parts.get(sha256)
        if part is None:
            raise NotFound(f"no package {sha256} was uploaded", field="sha256")
        data = bytes(part)
        if sha256_hex(data) != sha256:
            raise InvalidParams("what was uploaded has another SHA-256", field="sha256")
        return data

    def drop(self, sha256: str) -> None:
        """It is not needed any more."""
        self._parts.pop(sha256, None)
