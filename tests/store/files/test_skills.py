"""Installed skills on disk: one file that says which, one for each package."""

from pathlib import Path

import msgspec
import pytest

from palyra.core.skill.manifest import SkillIndex
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Unavailable
from palyra.store.files.skills import SkillStore
from tests.core.skill.skill_samples import package
from tests.net.api.fake_skills import COUNTER


def shelf_of(*digests: str) -> SkillIndex:
    """A shelf of skills with these packages."""
    skills = {
        f"s{number}": msgspec.structs.replace(COUNTER, package_sha256=digest)
        for number, digest in enumerate(digests)
    }
    return SkillIndex(skills=skills, publishers={"example.org": "a" * 64})


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    """And looking leaves no trace."""
    store = SkillStore(tmp_path / "skills")
    assert SkillIndex() == store.read()
    assert None is store.find_package("0" * 64)
    assert [] == list(tmp_path.iterdir())


def test_a_written_skill_is_read(tmp_path: Path) -> None:
    """Another store of the same directory reads it, and its mode is private."""
    store = SkillStore(tmp_path / "skills")
    digest = store.put_package(package())
    store.write(shelf_of(digest))
    again = SkillStore(tmp_path / "skills")
    assert shelf_of(digest) == again.read()
    assert package() == again.find_package(digest)
    for path in (tmp_path / "skills").rglob("*"):
        assert 0 == path.stat().st_mode & 0o077


def test_packages_that_no_skill_names_are_removed(tmp_path: Path) -> None:
    """With the change that made them needless, and not before."""
    store = SkillStore(tmp_path)
    old, new = (store.put_package(package(version=f"1.0.{n}")) for n in range(2))
    store.write(shelf_of(old))
    new = store.put_package(package(version="1.0.1"))
    assert None is not store.find_package(old)
    store.write(shelf_of(new))
    assert (None, package(version="1.0.1")) == (store.find_package(old), store.find_package(new))


def test_a_package_is_what_its_name_says(tmp_path: Path) -> None:
    """Or is not there."""
    store = SkillStore(tmp_path)
    digest = store.put_package(b"package")
    (tmp_path / "packages" / f"{digest}.zip").write_bytes(b"another")
    assert None is store.find_package(digest)
    assert sha256_hex(b"package") == digest


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"surprise":1}', b'{"skills":{"a":{}}}', b"\xff"]
)
def test_a_foreign_index_is_an_error(tmp_path: Path, content: bytes) -> None:
    """The error names its path."""
    (tmp_path / "skills.json").write_bytes(content)
    with pytest.raises(Unavailable, match=r"skills\.json: cannot be read"):
        SkillStore(tmp_path).read()


def test_a_failed_write_is_an_error(tmp_path: Path) -> None:
    """A file is in the place of the directory."""
    (tmp_path / "skills").write_bytes(b"")
    store = SkillStore(tmp_path / "skills")
    with pytest.raises(Unavailable):
        store.put_package(b"package")
    with pytest.raises(Unavailable):
        store.write(SkillIndex())
