"""Installed skills on disk: one file that says which, one file for each package.

Owns: `skills.json` and `packages/` in one directory.  Files, not journal records: packages are too
large for rows and must be readable as they were signed, and what a run did with a skill is on its
tape already (the tool's version names the package).  Each change replaces `skills.json` in one
step, after the package it names is on disk.
"""

from pathlib import Path

import msgspec

from palyra.core.skill.manifest import SkillIndex
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Unavailable
from palyra.store.files import private_files


class SkillStore:
    """Blocking; called from threads, one change at a time."""

    def __init__(self, directory: Path) -> None:
        self._index = directory / "skills.json"
        self._packages = directory / "packages"

    def read(self) -> SkillIndex:
        """What is installed.  Raises Unavailable for a file that is not ours."""
        try:
            return msgspec.json.decode(self._index.read_bytes(), type=SkillIndex)
        except FileNotFoundError:
            return SkillIndex()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"{self._index}: cannot be read: {error}") from None

    def write(self, shelf: SkillIndex) -> None:
        """From now on that is what is installed, durably.  Raises Unavailable."""
        try:
            private_files.make_directory(self._index.parent)
            private_files.create_file(self._index, msgspec.json.encode(shelf, order="sorted"))
        except OSError as error:
            raise Unavailable(f"{self._index}: cannot be written: {error}") from None
        self._sweep(shelf)

    def put_package(self, data: bytes) -> str:
        """Keep the package; its SHA-256.  Raises Unavailable."""
        digest = sha256_hex(data)
        try:
            private_files.make_directory(self._packages)
            private_files.create_file(self._path(digest), data)
        except OSError as error:
            raise Unavailable(f"{self._packages}: cannot be written: {error}") from None
        return digest

    def find_package(self, digest: str) -> bytes | None:
        """The package with exactly that digest; None when it is gone or is another one."""
        try:
            data = self._path(digest).read_bytes()
        except OSError:
            return None
        return data if sha256_hex(data) == digest else None

    def _path(self, digest: str) -> Path:
        return self._packages / f"{digest}.zip"

    def _sweep(self, shelf: SkillIndex) -> None:
        """Remove packages that no skill names; what cannot be removed does no harm."""
        named = {self._path(skill.package_sha256) for skill in shelf.skills.values()}
        for path in self._packages.glob("*.zip"):
            if path not in named:
                path.unlink(missing_ok=True)
