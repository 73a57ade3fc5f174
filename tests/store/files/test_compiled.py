"""Machine code between runs: believed with its MAC only."""

from pathlib import Path

import pytest
import wasmtime

from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Unavailable
from palyra.store.files.compiled import MAX_FILES, CompiledCache
from palyra.tools.wasm.engine import make_engine

MODULE = sha256_hex(b"module")


class Believing(CompiledCache):
    """Control: the same cache without its MAC."""

    def find(self, engine: str, module_sha256: str) -> bytes | None:
        path = self._path(engine, module_sha256)
        return path.read_bytes()[32:] if path.exists() else None


def open_cache(tmp_path: Path) -> CompiledCache:
    return CompiledCache(tmp_path / "compiled", tmp_path / "keys")


def code_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "compiled").glob("*.code")
    return path


def test_code_outlives_the_daemon(tmp_path: Path) -> None:
    """It is found again under the same engine and module, and under no other."""
    open_cache(tmp_path).put("e", MODULE, b"code")
    cache = open_cache(tmp_path)
    assert b"code" == cache.find("e", MODULE)
    assert None is cache.find("f", MODULE)
    assert None is cache.find("e", sha256_hex(b"other"))


def test_every_changed_byte_makes_code_unknown(tmp_path: Path) -> None:
    """And every missing one."""
    cache = open_cache(tmp_path)
    cache.put("e", MODULE, b"code")
    whole = code_file(tmp_path).read_bytes()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        code_file(tmp_path).write_bytes(flipped)
        assert None is cache.find("e", MODULE)
        code_file(tmp_path).write_bytes(whole[:at])
        assert None is cache.find("e", MODULE)


def test_code_of_one_module_is_not_code_of_another(tmp_path: Path) -> None:
    """A file that was moved to another name is not believed there."""
    cache = open_cache(tmp_path)
    cache.put("e", MODULE, b"code")
    cache._path("e", sha256_hex(b"other")).write_bytes(code_file(tmp_path).read_bytes())
    assert None is cache.find("e", sha256_hex(b"other"))


def test_control_without_the_mac_poisoned_code_is_run(tmp_path: Path) -> None:
    """Machine code of another program, put in the place of the right one, runs."""

    def code_of(number: int) -> bytes:
        text = f'(module (func (export "f") (result i32) (i32.const {number})))'
        return bytes(wasmtime.Module(make_engine(), text).serialize())

    def run(code: bytes) -> int:
        engine = make_engine()
        store = wasmtime.Store(engine)
        store.set_fuel(1_000)
        store.set_epoch_deadline(1)
        module = wasmtime.Module.deserialize(engine, code)
        function = wasmtime.Instance(store, module, []).exports(store)["f"]
        assert isinstance(function, wasmtime.Func)
        result: int = function(store)
        return result

    open_cache(tmp_path).put("e", MODULE, code_of(1))
    code_file(tmp_path).write_bytes(b"\0" * 32 + code_of(666))
    poisoned = Believing(tmp_path / "compiled", tmp_path / "keys").find("e", MODULE)
    assert poisoned is not None
    assert 666 == run(poisoned)
    assert None is open_cache(tmp_path).find("e", MODULE)


def test_the_key_is_private_and_another_one_finds_nothing(tmp_path: Path) -> None:
    """The mode is 0600; a lost key costs a compilation, and an invalid key is an error."""
    open_cache(tmp_path).put("e", MODULE, b"code")
    key = tmp_path / "keys" / "compiled-wasm.key"
    assert 0o600 == key.stat().st_mode & 0o777
    key.unlink()
    assert None is open_cache(tmp_path).find("e", MODULE)
    key.write_text("not hex")
    key.chmod(0o600)
    with pytest.raises(Unavailable, match="not a key"):
        open_cache(tmp_path).find("e", MODULE)
    open_cache(tmp_path)  # the key is read when it is needed


def test_old_code_makes_room(tmp_path: Path) -> None:
    """There are at most so many files."""
    cache = open_cache(tmp_path)
    for number in range(MAX_FILES + 3):
        cache.put("e", sha256_hex(b"%d" % number), b"code")
    assert MAX_FILES == len(list((tmp_path / "compiled").iterdir()))
