"""Skill package: a zip file in a single canonical form.

Entries are stored, not compressed, in the order manifest, signature, files by name, with one fixed
date.  Anything that `render_package` would not have written is refused: compression (and with it
zip bombs), paths, links, duplicate names, comments, bytes before, between and after entries.  So
the bytes follow from the content, and the digest of a package identifies it.
"""

import io
import stat
import zipfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from palyra.core.skill.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    MODULE,
    SIGNATURE,
    SIGNED_PREFIX,
    Manifest,
    Signature,
    SkillDescription,
    SkillRefused,
    make_manifest,
    parse_manifest,
    parse_signature,
)
from palyra.core.text.canonical_json import sha256_hex

MAX_PACKAGE_BYTES = 2_097_152
MAX_FILES = 18  # manifest, signature and 16 others
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date of the zip format
_REGULAR = stat.S_IFREG | 0o644

IsSigned = Callable[[bytes, bytes, bytes], bool]  # public key, message, signature
Sign = Callable[[bytes], bytes]


class Package(NamedTuple):
    """A package whose signature and content were verified."""

    sha256: str
    manifest: Manifest
    public_key: str  # hex
    files: Mapping[str, bytes]

    @property
    def module(self) -> bytes:
        """The WASM module."""
        return self.files[MODULE]


def build_package(description: SkillDescription, files: Mapping[str, bytes]) -> bytes:
    """Build the unsigned package of these files.  Raises SkillRefused."""
    package = render_package({**files, MANIFEST: make_manifest(description, files)})
    _check_size(package)
    return package


def sign_package(package: bytes, public_key: bytes, sign: Sign) -> bytes:
    """Sign the package, replacing a signature it may have.  Raises SkillRefused."""
    entries = _unpack(package)
    manifest = entries.get(MANIFEST, b"")
    parse_manifest(manifest)
    signature = Signature(
        public_key=public_key.hex(), signature=sign(SIGNED_PREFIX + manifest).hex()
    )
    signed = render_package({**entries, SIGNATURE: msgspec.json.encode(signature)})
    _check_size(signed)
    return signed


def _check_size(package: bytes) -> None:
    if len(package) > MAX_PACKAGE_BYTES:
        raise SkillRefused(
            f"the package has {len(package)} bytes; the limit is {MAX_PACKAGE_BYTES}"
        )


def render_package(entries: Mapping[str, bytes]) -> bytes:
    """Return the canonical zip file of these entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries, key=_rank):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3  # Unix, on every platform
            entry.external_attr = _REGULAR << 16
            archive.writestr(entry, entries[name])
    return out.getvalue()


def _rank(name: str) -> tuple[int, str]:
    return ([MANIFEST, SIGNATURE].index(name) if name in {MANIFEST, SIGNATURE} else 2, name)


def read_package(data: bytes, is_signed: IsSigned) -> Package:
    """Parse and verify a package completely.  Raises SkillRefused with the reason.

    The signature is checked with the key in the package; the key's owner is not verified here.
    """
    entries = _unpack(data)
    for name in (MANIFEST, SIGNATURE):
        if name not in entries:
            raise SkillRefused(f"there is no {name} in the package")
    signature = parse_signature(entries[SIGNATURE])
    key, signed = bytes.fromhex(signature.public_key), bytes.fromhex(signature.signature)
    if not is_signed(key, SIGNED_PREFIX + entries[MANIFEST], signed):
        raise SkillRefused("the signature does not fit the manifest: the package was changed")
    manifest = parse_manifest(entries[MANIFEST])
    files = {name: text for name, text in entries.items() if name not in {MANIFEST, SIGNATURE}}
    _check_files(manifest, files)
    if render_package(entries) != data:
        raise SkillRefused("the package has another form than `palyra skills build` gives it")
    return Package(sha256_hex(data), manifest, signature.public_key, files)


def read_module(data: bytes) -> bytes:
    """Return the module of a package that was verified before and is identified by its digest."""
    return _unpack(data)[MODULE]


def _check_files(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    if files.keys() != manifest.files.keys():
        odd = ", ".join(sorted(files.keys() ^ manifest.files.keys()))
        raise SkillRefused(f"the manifest and the package do not have the same files: {odd}")
    for name, content in files.items():
        if sha256_hex(content) != manifest.files[name].sha256:
            raise SkillRefused(f"{name} is not the file that the manifest names")


def _unpack(data: bytes) -> dict[str, bytes]:
    """Return all entries; none may be larger than the package itself."""
    _check_size(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
            _check_entries(listed, len(data))
            return {entry.filename: archive.read(entry) for entry in listed}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise SkillRefused(f"this is not a whole zip file: {error}") from None
    except (EOFError, UnicodeDecodeError, IndexError, OverflowError) as error:
        raise SkillRefused(f"this is not a whole zip file: {error}") from None


def _check_entries(listed: list[zipfile.ZipInfo], size: int) -> None:
    """Check the directory of the zip file before anything is unpacked."""
    if len(listed) > MAX_FILES:
        raise SkillRefused(f"the package has {len(listed)} files; the limit is {MAX_FILES}")
    names = [entry.filename for entry in listed]
    if len(set(names)) < len(names):
        raise SkillRefused("two files of the package have one name")
    for entry in listed:
        if "/" in entry.filename or "\\" in entry.filename or entry.filename in {"", ".", ".."}:
            raise SkillRefused(f"{entry.filename!r}: a package has no folders and no paths")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise SkillRefused(f"{entry.filename!r} is a link")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise SkillRefused(f"{entry.filename!r} is compressed: a package stores its files")
        if entry.file_size > size or (
            entry.filename == MANIFEST and entry.file_size > MAX_MANIFEST_BYTES
        ):
            raise SkillRefused(f"{entry.filename!r} says it has {entry.file_size} bytes")
