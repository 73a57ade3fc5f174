"""Installed skills on disk: an index file and one file per package.

Owns: `skills.json` and `packages/` in one directory.  These are files, not journal records: packages
are too large for rows and must stay byte-identical to what was signed, and the tape of a run already
records its use of a skill (the tool's version names the package).  Each change replaces
`skills.json` atomically, after the package that it names is on disk.
"""

from pathlib import Path

import msgspec

from palyra.core.skill.manifest import SkillIndex
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write


class SkillStore:
    """The index and the packages; blocking, called from threads, one change at a time."""

    def __init__(self, directory: Path) -> None:
        self._index = directory / "skills.json"
        self._packages = directory / "packages"

    def read(self) -> SkillIndex:
        """Read the index.  Raises Unavailable for an invalid file."""
        try:
            return msgspec.json.decode(private_files.read_file(self._index), type=SkillIndex)
        except FileNotFoundError:
            return SkillIndex()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"{self._index}: cannot be read: {error}") from None

    def write(self, index: SkillIndex) -> None:
        """Replace the index durably and delete unnamed packages.  Raises Unavailable."""
        try:
            private_files.make_directory(self._index.parent)
            private_files.create_file(self._index, msgspec.json.encode(index, order="sorted"))
        except OSError as error:
            raise cannot_write(self._index, error) from error
        self._sweep(index)

    def put_package(self, data: bytes) -> str:
        """Store the package and return its SHA-256.  Raises Unavailable."""
        digest = sha256_hex(data)
        try:
            private_files.make_directory(self._packages)
            private_files.create_file(self._path(digest), data)
        except OSError as error:
            raise cannot_write(self._packages, error) from error
        return digest

    def find_package(self, digest: str) -> bytes | None:
        """Return the package with this digest, None if it is absent or its content differs."""
        try:
            data = private_files.read_file(self._path(digest))
        except OSError:
            return None
        return data if sha256_hex(data) == digest else None

    def _path(self, digest: str) -> Path:
        return self._packages / f"{digest}.zip"

    def _sweep(self, index: SkillIndex) -> None:
        """Delete packages that no skill names; a package that stays does no harm."""
        named = {self._path(skill.package_sha256) for skill in index.skills.values()}
        for path in self._packages.glob("*.zip"):
            if path not in named:
                path.unlink(missing_ok=True)
