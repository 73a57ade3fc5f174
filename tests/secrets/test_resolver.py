"""From a reference to the secret."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from palyra.errors import InvalidParams, NotFound, PalyraError, Unavailable
from palyra.secrets.resolver import Resolver
from palyra.secrets.vault import MAX_VALUE_BYTES

SECRET = "a-secret-somewhere"


def a_resolver(home: Path, passphrase: str = "", **environ: str) -> Resolver:
    """Over a data directory and an environment."""
    return Resolver(home, home / "keys", passphrase=passphrase, environ=environ)


def a_file(home: Path, content: bytes, mode: int = 0o600) -> str:
    """A file, and the reference to it."""
    path = home / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return f"file:{path}"


def test_from_the_environment(tmp_path: Path) -> None:
    """By the name of the variable."""
    assert SECRET == a_resolver(tmp_path, TOKEN=SECRET).resolve("env:TOKEN")
    with pytest.raises(NotFound, match="env:TOKEN"):
        a_resolver(tmp_path).resolve("env:TOKEN")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_from_a_file(tmp_path: Path, end: bytes, mode: int) -> None:
    """Without the end of its line; its group may read it."""
    assert SECRET == a_resolver(tmp_path).resolve(a_file(tmp_path, SECRET.encode() + end, mode))


def test_a_link_is_followed(tmp_path: Path) -> None:
    """Orchestrators mount secrets that way."""
    a_file(tmp_path, SECRET.encode())
    (tmp_path / "link").symlink_to("secret")
    assert SECRET == a_resolver(tmp_path).resolve(f"file:{tmp_path}/link")


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o620, 0o602, 0o601])
def test_a_file_of_others_is_no_secret(tmp_path: Path, mode: int) -> None:
    """With the remedy."""
    with pytest.raises(Unavailable, match="chmod 600"):
        a_resolver(tmp_path).resolve(a_file(tmp_path, SECRET.encode(), mode))


def test_what_is_no_file(tmp_path: Path) -> None:
    """A folder, a FIFO (which does not hang), nothing, too much, no text."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name in ("folder", "fifo"):
        with pytest.raises(Unavailable):
            a_resolver(tmp_path).resolve(f"file:{tmp_path}/{name}")
    with pytest.raises(NotFound, match="does not exist"):
        a_resolver(tmp_path).resolve("file:~nobody-of-that-name/secret")
    with pytest.raises(NotFound, match="does not exist"):
        a_resolver(tmp_path).resolve(f"file:{tmp_path}/nothing")
    with pytest.raises(Unavailable, match="at most"):
        a_resolver(tmp_path).resolve(a_file(tmp_path, b"x" * (MAX_VALUE_BYTES + 1)))
    with pytest.raises(Unavailable, match="UTF-8"):
        a_resolver(tmp_path).resolve(a_file(tmp_path, b"\xff" * 20))


def test_from_the_vault(tmp_path: Path) -> None:
    """The value as it is now."""
    resolver = a_resolver(tmp_path)
    for value in (SECRET, SECRET + "2"):
        resolver.vault.put("KEY", value, 5)
        assert value == resolver.resolve("vault:KEY")
    with pytest.raises(NotFound):
        resolver.resolve("vault:OTHER")


def test_a_vault_with_a_passphrase(tmp_path: Path) -> None:
    """A vault's passphrase is a reference to any source except the vault itself."""
    resolver = a_resolver(tmp_path, "env:PASS", PASS="correct horse battery")
    resolver.vault.put("KEY", SECRET, 5)
    assert SECRET == resolver.resolve("vault:KEY")
    with pytest.raises(NotFound, match="env:PASS"):
        a_resolver(tmp_path, "env:PASS").resolve("vault:KEY")
    with pytest.raises(Unavailable, match="cannot be stored in the vault"):
        a_resolver(tmp_path, "vault:PASS")
    with pytest.raises(InvalidParams):
        a_resolver(tmp_path, "correct horse battery")


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    """A secret too short for the redactor is refused, and the error does not show it."""
    with pytest.raises(Unavailable, match="shorter") as caught:
        a_resolver(tmp_path, PIN="1234567").resolve("env:PIN")
    assert "1234567" not in caught.value.message


def test_a_short_key_of_a_model_is_a_placeholder(tmp_path: Path) -> None:
    """Local servers take any text; a long one is a secret as ever."""
    resolver = a_resolver(tmp_path, FK="sk-1234\n", LONG="x")
    assert "sk-1234" == resolver.resolve("env:FK", may_be_short=True)


class KeyringError(Exception):
    """As the library has it."""


@pytest.mark.parametrize(
    ("answer", "error"),
    [(SECRET, None), (None, NotFound), (KeyringError(f"locked {SECRET}"), Unavailable)],
)
def test_from_the_keyring(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | KeyringError | None,
    error: type[PalyraError] | None,
) -> None:
    """A keyring's secret is returned; errors of the keyring are not repeated in ours."""
    asked = []

    def get_password(service: str, name: str) -> str | None:
        asked.append((service, name))
        if isinstance(answer, KeyringError):
            raise answer
        return answer

    errors = SimpleNamespace(KeyringError=KeyringError)
    fake = SimpleNamespace(get_password=get_password, errors=errors)
    monkeypatch.setitem(sys.modules, "keyring", fake)
    resolver = a_resolver(tmp_path)
    if error is None:
        assert SECRET == resolver.resolve("keyring:palyra/github/x")
    else:
        with pytest.raises(error, match="keyring:palyra/github/x") as caught:
            resolver.resolve("keyring:palyra/github/x")
        assert SECRET not in caught.value.message
    assert [("palyra", "github/x")] == asked


def test_without_a_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(Unavailable, match=r"palyra\[keyring\]"):
        a_resolver(tmp_path).resolve("keyring:palyra/github")
