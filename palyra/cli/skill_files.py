"""A skill's folder, its package and its publisher's key, as files of whoever writes skills."""

import os
import shutil
import tomllib
from pathlib import Path

import msgspec

import palyra
from palyra.cli.exits import USAGE, Stop
from palyra.cli.tape import read_bytes
from palyra.core.skill_package import build_package, sign_package
from palyra.core.skills import MODULE, Description, SkillId, SkillRefused

TEMPLATES = ("wat", "c", "rust", "assemblyscript")
SOURCE = "skill.toml"
TEXT_MODULE = "module.wat"
_EXAMPLE_ID = 'id = "example"'


def make_folder(folder: Path, template: str, skill_id: str) -> None:
    """A new folder from a template.  Raises Stop for one that exists, or a name no skill can have."""
    if not folder.exists():
        _check_id(skill_id)
    source = Path(palyra.__file__).parent / "templates" / "skills" / template
    try:
        shutil.copytree(source, folder)
        described = (folder / SOURCE).read_text(encoding="utf-8")
        (folder / SOURCE).write_text(
            described.replace(_EXAMPLE_ID, f'id = "{skill_id}"'), encoding="utf-8"
        )
    except OSError as error:
        raise Stop(f"{folder}: {error.strerror}", "name a folder that is not there yet") from None


def _check_id(skill_id: str) -> None:
    try:
        msgspec.convert(skill_id, SkillId)
    except msgspec.ValidationError:
        raise Stop(
            f"{skill_id!r} cannot be a skill's name: a lowercase letter, then at most 23 of those, "
            "digits, _ and -",
            "give it one with --id",
            code=USAGE,
        ) from None


def pack_folder(folder: Path) -> tuple[Description, bytes]:
    """What the folder's skill is, and its package, not signed.  Raises Stop."""
    try:
        described = tomllib.loads(read_bytes(folder / SOURCE).decode())
        description = msgspec.convert(described, Description)
        return description, build_package(description, {MODULE: _read_module(folder)})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise Stop(f"{folder / SOURCE}: {error}", "see docs/skills.md", code=USAGE) from None
    except SkillRefused as refused:
        raise Stop(refused.message, "see docs/skills.md", code=USAGE) from None


def _read_module(folder: Path) -> bytes:
    """`module.wat` made into a module, or else `module.wasm` as it is."""
    text = folder / TEXT_MODULE
    if not text.exists():
        return read_bytes(folder / MODULE)
    import wasmtime  # noqa: PLC0415 - slow, and rarely needed

    try:
        return bytes(wasmtime.wat2wasm(read_bytes(text).decode()))
    except (wasmtime.WasmtimeError, UnicodeDecodeError) as error:
        raise Stop(f"{text}: {error}", "mend the text", code=USAGE) from None


def sign_file(path: Path, key: Path, *, may_create: bool) -> tuple[bytes, str]:
    """The signed package and the public key, in hex.  Raises Stop."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - slow
        Ed25519PrivateKey,
    )

    seed = _read_key(key, may_create=may_create)
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes_raw()
    try:
        return sign_package(read_bytes(path), public, private.sign), public.hex()
    except SkillRefused as refused:
        raise Stop(f"{path}: {refused.message}", "build it anew", code=USAGE) from None


def _read_key(path: Path, *, may_create: bool) -> bytes:
    """The seed in the file, 32 bytes as hex; a fresh one if there is none and one may be made."""
    if not path.exists():
        if not may_create:
            raise Stop(f"{path}: there is no such key", "make one with --create", code=USAGE)
        _write_key(path)
    try:
        seed = bytes.fromhex(read_bytes(path).decode("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != 32:  # noqa: PLR2004 - an Ed25519 private key (RFC 8032)
        raise Stop(f"{path} is no key of a publisher", "make one with --create", code=USAGE)
    return seed


def _write_key(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(32).hex() + "\n")
    except OSError as error:
        raise Stop(f"{path}: {error.strerror}", "name a file that can be written") from None
