"""The key that requests to push services are signed with: ECDSA P-256 (RFC 8292), made at first use.

Owns: `keys/push.key`.  Never: returns the private key.  A home without the file has a new key, and
browsers that subscribed for the former one must subscribe again.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

NAME = "push.key"
_SIZE_BYTES = 32  # of a private key, and of each half of a signature
_HEADER = b'{"typ":"JWT","alg":"ES256"}'


class PushKeyPair:
    """The pair of one data directory."""

    def __init__(self, directory: Path) -> None:
        """Load the key, or make it.  Blocks.  Raises Unavailable."""
        private_files.make_directory(directory)
        path = directory / NAME
        text = private_files.read_secret(path)
        try:
            self._private = (
                ec.generate_private_key(ec.SECP256R1())
                if text is None
                else ec.derive_private_key(int(text, 16), ec.SECP256R1())
            )
        except ValueError:
            raise Unavailable(f"{path}: not a key: remove it for a fresh one") from None
        if text is None:
            number = self._private.private_numbers().private_value
            try:
                private_files.create_file(path, number.to_bytes(_SIZE_BYTES).hex().encode())
            except OSError as error:
                raise cannot_write(path, error) from error
        self.public_key = _encode(
            self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        )

    def sign(self, claims: Mapping[str, str | int]) -> str:
        """Return the claims as a JWT signed by ES256 (RFC 7518 section 3.4)."""
        text = f"{_encode(_HEADER)}.{_encode(msgspec.json.encode(claims))}"
        signature = self._private.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        halves = (each.to_bytes(_SIZE_BYTES) for each in decode_dss_signature(signature))
        return f"{text}.{_encode(b''.join(halves))}"


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
