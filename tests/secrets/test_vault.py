"""The vault: what was put in comes out, nothing else does, and nothing is lost half-way."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from palyra.errors import InvalidParams, NotFound, Unavailable
from palyra.secrets import vault as module
from palyra.secrets.vault import MAX_ENTRIES, MAX_VALUE_BYTES, Vault

SECRET = "a-secret-of-the-vault-é"


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A derivation that takes no time."""
    monkeypatch.setattr(module, "_SCRYPT_COST", 2**4)


def a_vault(home: Path, passphrase: Callable[[], str] | None = None) -> Vault:
    """The vault of a data directory."""
    return Vault(home, home / "keys", passphrase)


def test_there_is_none_at_first(tmp_path: Path) -> None:
    """Looking makes no file."""
    assert {} == a_vault(tmp_path).read()
    with pytest.raises(NotFound, match="palyra secrets set KEY"):
        a_vault(tmp_path).get("KEY")
    assert not a_vault(tmp_path).remove("KEY")
    assert [] == [path for path in tmp_path.rglob("*") if path.suffix != ".lock"]


def test_what_is_put_in_comes_out(tmp_path: Path) -> None:
    """In this process and in the next."""
    a_vault(tmp_path).put("KEY", SECRET, 5)
    a_vault(tmp_path).put("OTHER", "x", 6)
    a_vault(tmp_path).put("KEY", SECRET + "2", 7)
    assert SECRET + "2" == a_vault(tmp_path).get("KEY")
    assert {"KEY": 7, "OTHER": 6} == {
        name: entry.set_ms for name, entry in a_vault(tmp_path).read().items()
    }
    assert a_vault(tmp_path).remove("KEY")
    assert ["OTHER"] == list(a_vault(tmp_path).read())


def test_nothing_of_it_can_be_read_in_the_directory(tmp_path: Path) -> None:
    """Neither value nor name; all files are their owner's alone."""
    a_vault(tmp_path).put("KEY_NAME", SECRET, 5)
    for path in tmp_path.rglob("*"):
        assert not path.stat().st_mode & 0o077
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes()
            assert b"KEY_NAME" not in path.read_bytes()


def test_the_same_secret_is_sealed_differently_every_time(tmp_path: Path) -> None:
    """A nonce is never used twice."""
    seen = set()
    for _ in range(5):
        a_vault(tmp_path).put("KEY", SECRET, 5)
        seen.add(json.loads((tmp_path / "vault.sealed").read_text())["nonce"])
    assert 5 == len(seen)


@pytest.mark.parametrize("field", ["format", "kdf", "salt", "cost", "nonce", "box"])
def test_a_changed_file_is_damaged(tmp_path: Path, field: str) -> None:
    """Every field is under the seal."""
    a_vault(tmp_path).put("KEY", SECRET, 5)
    path = tmp_path / "vault.sealed"
    sealed = json.loads(path.read_text())
    old = sealed[field]
    sealed[field] = old + 1 if isinstance(old, int) else ("A" if old[:1] != "A" else "B") + old[1:]
    path.write_text(json.dumps(sealed))
    with pytest.raises(Unavailable, match=r"vault\.sealed"):
        a_vault(tmp_path).read()
    with pytest.raises(Unavailable):  # and it is not written over
        a_vault(tmp_path).put("KEY", SECRET, 6)
    assert sealed == json.loads(path.read_text())


@pytest.mark.parametrize("content", [b"", b"{}", b"no json", b"\xff"])
def test_a_file_that_is_none_is_damaged(tmp_path: Path, content: bytes) -> None:
    """With a remedy."""
    a_vault(tmp_path).put("KEY", SECRET, 5)
    (tmp_path / "vault.sealed").write_bytes(content)
    with pytest.raises(Unavailable, match="restore it"):
        a_vault(tmp_path).read()


@pytest.mark.parametrize("content", [None, b"", b"00" * 31, b"zz" * 32, b"\xff"])
def test_a_lost_key_is_not_replaced(tmp_path: Path, content: bytes | None) -> None:
    """A lost vault key is an error and never replaced, because old secrets need it."""
    a_vault(tmp_path).put("KEY", SECRET, 5)
    key = tmp_path / "keys" / "vault.key"
    key.unlink() if content is None else key.write_bytes(content)
    for act in (a_vault(tmp_path).read, lambda: a_vault(tmp_path).put("A", "x", 6)):
        with pytest.raises(Unavailable, match=r"vault\.key"):
            act()


def test_another_key_opens_nothing(tmp_path: Path) -> None:
    """The file alone is worth nothing."""
    a_vault(tmp_path).put("KEY", SECRET, 5)
    (tmp_path / "keys" / "vault.key").write_bytes(b"00" * 32)
    with pytest.raises(Unavailable, match="another key"):
        a_vault(tmp_path).read()


def test_a_key_survives_its_vault(tmp_path: Path) -> None:
    """A removed vault is begun again with the key there is."""
    a_vault(tmp_path).put("KEY", SECRET, 5)
    key = (tmp_path / "keys" / "vault.key").read_bytes()
    (tmp_path / "vault.sealed").unlink()
    a_vault(tmp_path).put("KEY", SECRET, 6)
    assert key == (tmp_path / "keys" / "vault.key").read_bytes()


def test_a_file_open_to_others_is_refused(tmp_path: Path) -> None:
    """The vault's and the key's."""
    a_vault(tmp_path).put("KEY", SECRET, 5)
    for path in (tmp_path / "vault.sealed", tmp_path / "keys" / "vault.key"):
        path.chmod(0o640)
        with pytest.raises(Unavailable, match="chmod 600"):
            a_vault(tmp_path).read()
        path.chmod(0o600)


@pytest.mark.parametrize("value", ["", "x" * (MAX_VALUE_BYTES + 1)])
def test_a_value_has_a_size(tmp_path: Path, value: str) -> None:
    """Nothing is written otherwise."""
    with pytest.raises(InvalidParams, match="bytes"):
        a_vault(tmp_path).put("KEY", value, 5)
    assert {} == a_vault(tmp_path).read()


def test_a_vault_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full vault refuses new names but still replaces values."""
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    for name in ("A", "B", "B"):
        a_vault(tmp_path).put(name, "value", 5)
    with pytest.raises(InvalidParams, match="full"):
        a_vault(tmp_path).put("C", "value", 5)
    assert MAX_ENTRIES > 2


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is an error, and the vault stays as it was."""
    a_vault(tmp_path).put("KEY", SECRET, 5)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("palyra.store.files.private_files.create_file", fail)
    with pytest.raises(Unavailable, match="No space"):
        a_vault(tmp_path).put("KEY", "other", 6)
    with pytest.raises(Unavailable, match="No space"):
        a_vault(tmp_path / "new").put("KEY", "other", 6)
    assert SECRET == a_vault(tmp_path).get("KEY")


# --- with a passphrase -----------------------------------------------------------------------------


@pytest.mark.usefixtures("cheap")
def test_a_passphrase_opens_it(tmp_path: Path) -> None:
    """The right one; no key file is made."""
    a_vault(tmp_path, lambda: "correct horse").put("KEY", SECRET, 5)
    assert SECRET == a_vault(tmp_path, lambda: "correct horse").get("KEY")
    assert not (tmp_path / "keys" / "vault.key").exists()
    with pytest.raises(Unavailable, match="passphrase"):
        a_vault(tmp_path, lambda: "battery staple").get("KEY")


@pytest.mark.usefixtures("cheap")
def test_the_setting_and_the_vault_must_agree(tmp_path: Path) -> None:
    """A sealed vault is not silently replaced by one of the other kind."""
    a_vault(tmp_path, lambda: "correct horse").put("KEY", SECRET, 5)
    with pytest.raises(Unavailable, match=r"secrets\.passphrase"):
        a_vault(tmp_path).read()
    a_vault(tmp_path / "b").put("KEY", SECRET, 5)
    with pytest.raises(Unavailable, match=r"secrets\.passphrase"):
        a_vault(tmp_path / "b", lambda: "correct horse").put("KEY", SECRET, 6)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(("salt", "cost"), [("!", 16), ("QQ==", 3), ("QQ==", 2**30)])
def test_a_derivation_that_cannot_be(tmp_path: Path, salt: str, cost: int) -> None:
    """Neither a crash nor hours of work."""
    a_vault(tmp_path, lambda: "correct horse").put("KEY", SECRET, 5)
    path = tmp_path / "vault.sealed"
    sealed = json.loads(path.read_text()) | {"salt": salt, "cost": cost}
    path.write_bytes(msgspec.json.encode(sealed))
    with pytest.raises(Unavailable):
        a_vault(tmp_path, lambda: "correct horse").read()


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    """The error names it."""
    (tmp_path / "vault.lock").mkdir()
    with pytest.raises(Unavailable, match=r"vault\.lock"):
        a_vault(tmp_path).put("KEY", SECRET, 5)
