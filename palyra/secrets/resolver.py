"""Resolution of secret references: env, file, keyring and vault.

Never: caches a value (a replaced secret takes effect at its next use), puts a value into a
message, or returns a value that is too short for the redactor to recognise, except as a model's key.
"""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from palyra.core.redaction.known_secrets import MIN_KNOWN_BYTES, find_refusal
from palyra.core.redaction.secret_references import SecretReference, parse_reference
from palyra.errors import InvalidParams, NotFound, Unavailable
from palyra.secrets.vault import MAX_VALUE_BYTES, Vault

Passphrase = Callable[[], str]


class Resolver:
    """Resolves secret references; all methods block."""

    def __init__(
        self,
        data: Path,
        keys: Path,
        *,
        passphrase: str = "",
        environ: Mapping[str, str] = os.environ,
        owner: str = "the daemon",
        find_words: Callable[[], str] = str,
    ) -> None:
        """`passphrase`: reference to the vault's passphrase, "" if the vault uses a key file.

        `owner` is whose environment it is, for messages; `find_words` returns the words that the
        daemon itself writes, which are no secrets.

        Raises InvalidParams for an invalid reference, Unavailable for one into the vault itself.
        """
        self._environ, self._owner = environ, owner
        self._find_words = find_words
        self.vault = Vault(data, keys, self._passphrase_finder(passphrase))

    def resolve(self, text: str, *, may_be_short: bool = False) -> str:
        """Return the secret that a reference names.

        `may_be_short` accepts a value that is too short for a secret, such as the `EMPTY` and `sk-1234`
        that local servers take for a key; it is not redacted.  Raises InvalidParams, NotFound or Unavailable; no message contains a value.
        """
        reference = parse_reference(text)
        value = self._find(reference)
        plain = value.removesuffix("\n").removesuffix("\r")
        if may_be_short and len(plain.encode()) < MIN_KNOWN_BYTES:
            return plain
        return self.recognisable(reference.text, value)

    def put(self, name: str, value: str, now_ms: int) -> None:
        """Store a secret in the vault, durably.  Raises InvalidParams or Unavailable."""
        self.require_secret(value)
        self.vault.put(name, value, now_ms)

    def require_secret(self, value: str) -> None:
        """Raise InvalidParams, without the value, if it cannot be a secret."""
        refusal = find_refusal(value, self._find_words())
        if refusal:
            placeholder = "; the short key of a local model server goes into env:NAME or file:PATH"
            more = placeholder if len(value.encode()) < MIN_KNOWN_BYTES else ""
            raise InvalidParams(f"{refusal}; use another one{more}", field="value")

    def recognisable(self, reference: str, value: str) -> str:
        """Strip one trailing newline.  Raises Unavailable for a value that cannot be a secret."""
        value = value.removesuffix("\n").removesuffix("\r")
        refusal = find_refusal(value, self._find_words())
        if refusal:
            raise Unavailable(f"{reference} is {refusal}")
        return value

    def _find(self, reference: SecretReference) -> str:
        match reference.kind:
            case "env":
                if reference.name not in self._environ:
                    raise NotFound(
                        f"{reference.text}: the environment of {self._owner} has no such name"
                    )
                return self._environ[reference.name]
            case "file":
                # `Path.expanduser` raises for an unknown user; `os.path.expanduser` keeps the name.
                return _read_file(Path(os.path.expanduser(reference.name)))  # noqa: PTH111
            case "keyring":
                return _ask_keyring(*reference.name.split("/", 1))
            case _:
                return self.vault.get(reference.name)

    def _passphrase_finder(self, text: str) -> Passphrase | None:
        if not text:
            return None
        reference = parse_reference(text)
        if reference.kind == "vault":
            raise Unavailable(
                "secrets.passphrase: the vault's passphrase cannot be stored in the vault"
            )
        return lambda: self.resolve(reference.text)


def _read_file(path: Path) -> str:
    """Read a secret file that is private to its owner and group.

    Group read access is accepted, because orchestrators mount secrets that way.
    Raises NotFound or Unavailable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # for a FIFO
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            data = file.read(MAX_VALUE_BYTES + 1) if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        raise NotFound(f"file:{path}: the file does not exist") from None
    except OSError as error:
        raise Unavailable(f"file:{path}: {error.strerror}") from None
    if not stat.S_ISREG(mode) or len(data) > MAX_VALUE_BYTES:
        raise Unavailable(f"file:{path}: not a file of at most {MAX_VALUE_BYTES} bytes")
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise Unavailable(f"file:{path}: others may read or write it: chmod 600 {path}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Unavailable(f"file:{path}: not UTF-8 text") from None


def _ask_keyring(service: str, name: str) -> str:
    try:
        import keyring  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise Unavailable("keyring: not installed: pip install 'palyra[keyring]'") from None
    try:
        found: str | None = keyring.get_password(service, name)
    except keyring.errors.KeyringError as error:
        raise Unavailable(f"keyring:{service}/{name}: {type(error).__name__}") from None
    if found is None:
        raise NotFound(f"keyring:{service}/{name}: the keyring has no such entry")
    return found
