"""A skill's package: one form, every byte of it checked."""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable

import msgspec
import pytest

from palyra.core.skill.manifest import (
    MANIFEST,
    MODULE,
    SIGNATURE,
    SIGNED_PREFIX,
    Signature,
    SkillRefused,
    make_manifest,
)
from palyra.core.skill.package import (
    MAX_PACKAGE_BYTES,
    Package,
    build_package,
    read_module,
    read_package,
    render_package,
    sign_package,
)
from palyra.core.text.canonical_json import sha256_hex
from palyra.store.journal.keys import is_signed
from tests.core.skill.skill_samples import ANN, EMPTY_MODULE, description, package, public_key
from tests.rows import every_row


def refusal(data: bytes) -> str:
    """Why the package is not taken."""
    with pytest.raises(SkillRefused) as caught:
        read_package(data, is_signed)
    return caught.value.message


def entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zip_of(
    files: dict[str, bytes],
    *,
    compression: int = zipfile.ZIP_STORED,
    change: Callable[[zipfile.ZipInfo], None] = lambda _: None,
) -> bytes:
    """Any zip file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = compression
            change(entry)
            archive.writestr(entry, content)
    return out.getvalue()


def test_a_package_says_what_went_in() -> None:
    """Manifest, key, module and digest."""
    data = package()
    read = read_package(data, is_signed)
    assert (sha256_hex(data), public_key(ANN).hex()) == (read.sha256, read.public_key)
    assert ("words", "1.2.0") == (read.manifest.id, read.manifest.version)
    assert EMPTY_MODULE == read.module == read_module(data)


def test_equal_files_make_equal_packages() -> None:
    """No date, no order, no compressor gets into a package."""
    assert package() == package()


def test_every_flipped_byte_is_refused() -> None:
    """Whichever byte of a package is another one, the package is not taken."""
    data = package()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x01
        assert refusal(bytes(flipped))


def test_every_shorter_or_longer_package_is_refused() -> None:
    """Nothing may be cut off, nothing be put before or behind."""
    data = package()
    for end in range(len(data)):
        assert refusal(data[:end])
    assert refusal(data + b"\0")
    assert refusal(b"\0" + data)


def test_control_without_the_signature_check_a_changed_module_is_accepted() -> None:
    """Only the signature check refuses a package with a replaced module."""
    forged = {**entries(package()), **entries(build_package(description(), {MODULE: b"other"}))}
    data = render_package(forged)
    assert "the signature does not fit" in refusal(data)
    believed: Package = read_package(data, lambda *_: True)
    assert b"other" == believed.module


@pytest.mark.parametrize("name", [MANIFEST, SIGNATURE])
def test_a_missing_part_is_named(name: str) -> None:
    """A package without manifest or signature is refused by that name."""
    left = {key: text for key, text in entries(package()).items() if key != name}
    assert f"no {name}" in refusal(render_package(left))


def test_a_file_more_or_less_is_refused() -> None:
    """The manifest names every file there is, and there is every file it names."""
    whole = entries(package())
    assert "extra" in refusal(render_package({**whole, "extra": b""}))
    del whole[MODULE]
    assert MODULE in refusal(render_package(whole))


def test_a_signed_lie_about_a_file_is_refused() -> None:
    """The publisher's own signature over another hash."""
    manifest = make_manifest(description(), {MODULE: b"another"})
    signature = Signature(
        public_key=public_key(ANN).hex(), signature=ANN.sign(SIGNED_PREFIX + manifest).hex()
    )
    data = render_package(
        {MANIFEST: manifest, SIGNATURE: msgspec.json.encode(signature), MODULE: b"module"}
    )
    assert "is not the file that the manifest names" in refusal(data)


def test_a_zip_bomb_is_not_unpacked() -> None:
    """A compressed entry is refused before anything is inflated."""
    bomb = zip_of({MANIFEST: b"\0" * 50_000_000}, compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < MAX_PACKAGE_BYTES
    assert "is compressed" in refusal(bomb)


def test_a_bomb_that_lies_about_its_size_is_refused() -> None:
    """An entry cannot be larger than the package it is in."""
    data = bytearray(zip_of({MODULE: b"x" * 100}))
    at = data.index(b"PK\x01\x02")
    data[at + 20 : at + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    assert refusal(bytes(data))


def test_a_package_that_is_too_large_is_refused() -> None:
    """Two megabytes."""
    assert "the limit is" in refusal(b"x" * (MAX_PACKAGE_BYTES + 1))
    with pytest.raises(SkillRefused, match="the limit is"):
        build_package(description(), {MODULE: b"x" * MAX_PACKAGE_BYTES})


@every_row("name", ["../module.wasm", "/etc/passwd", "a/b", "..", "a\\b", "folder/"])
def test_a_path_is_refused(name: str) -> None:
    """A package has no folders, so there is nothing to climb out of."""
    assert "no folders and no paths" in refusal(zip_of({name: b"x"}))


def test_a_link_is_refused() -> None:
    """Nothing in a package points elsewhere."""

    def link(entry: zipfile.ZipInfo) -> None:
        entry.external_attr = 0o120777 << 16

    assert "is a link" in refusal(zip_of({MODULE: b"/etc/passwd"}, change=link))


def test_two_files_of_one_name_are_refused() -> None:
    """Duplicate names are refused, because the checked file could differ from the used one."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(MODULE, b"one")
        archive.writestr(MODULE, b"two")
    assert "one name" in refusal(out.getvalue())


def test_too_many_files_are_refused() -> None:
    """Sixteen, besides manifest and signature."""
    assert "the limit is 18" in refusal(zip_of({f"f{n}": b"" for n in range(19)}))


def test_another_zip_form_of_the_same_content_is_refused() -> None:
    """A package that differs only in its dates is refused."""
    whole = entries(package())

    def date(entry: zipfile.ZipInfo) -> None:
        entry.date_time = (2020, 1, 1, 0, 0, 0)

    assert "another form" in refusal(zip_of(whole, change=date))


def test_signing_again_replaces_the_signature() -> None:
    """Of a package that was signed before, and of none that is no package."""
    unsigned = build_package(description(), {MODULE: EMPTY_MODULE})
    once = sign_package(unsigned, public_key(ANN), ANN.sign)
    assert once == sign_package(once, public_key(ANN), ANN.sign)
    with pytest.raises(SkillRefused):
        sign_package(b"nothing", public_key(ANN), ANN.sign)
