"""Cache of compiled WASM modules, kept over restarts and authenticated with a MAC.

Owns: the files of one directory and a key that never leaves the daemon.  Loading machine code means
running it, so a file that the daemon did not write, or that was renamed, is treated as absent.
A file is 32 bytes of HMAC-SHA256 over engine, module and code (RFC 2104), then the code.
"""

import hashlib
import hmac
import secrets
from functools import cached_property
from pathlib import Path

from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

KEY_BYTES = 32
MAX_FILES = 64  # the least recently written are evicted
_MAC_BYTES = 32
_DOMAIN = b"palyra-compiled-wasm-v1"


class CompiledCache:
    """Compiled code by engine and module."""

    def __init__(self, directory: Path, keys: Path) -> None:
        """`keys` is the directory of the daemon's keys, where the key of this cache is created.

        Every method raises Unavailable when that key cannot be read.
        """
        self._directory = directory
        self._keys = keys

    @cached_property
    def _key(self) -> bytes:
        private_files.make_directory(self._keys)
        path = self._keys / "compiled-wasm.key"
        text = private_files.read_secret(path)
        if text is None:
            text = secrets.token_bytes(KEY_BYTES).hex().encode()
            try:
                private_files.create_file(path, text)
            except OSError as error:
                raise cannot_write(path, error) from error
        try:
            return bytes.fromhex(text.decode("ascii"))
        except ValueError:
            raise Unavailable(f"{path}: not a key; remove it for a fresh one") from None

    def find(self, engine: str, module_sha256: str) -> bytes | None:
        """Return the code, None if there is none that this daemon wrote."""
        try:
            content = private_files.read_file(self._path(engine, module_sha256))
        except OSError:
            return None
        mac, code = content[:_MAC_BYTES], content[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(engine, module_sha256, code)):
            return None
        return code

    def put(self, engine: str, module_sha256: str, code: bytes) -> None:
        """Store the code.  Raises OSError."""
        private_files.make_directory(self._directory)
        path = self._path(engine, module_sha256)
        private_files.create_file(path, self._mac(engine, module_sha256, code) + code)
        kept = sorted(self._directory.glob("*.code"), key=lambda each: each.stat().st_mtime_ns)
        for old in kept[:-MAX_FILES]:
            old.unlink(missing_ok=True)

    def _path(self, engine: str, module_sha256: str) -> Path:
        name = hashlib.sha256(f"{engine}\0{module_sha256}".encode()).hexdigest()
        return self._directory / f"{name}.code"

    def _mac(self, engine: str, module_sha256: str, code: bytes) -> bytes:
        message = b"\0".join((_DOMAIN, engine.encode(), module_sha256.encode(), code))
        return hmac.digest(self._key, message, "sha256")
