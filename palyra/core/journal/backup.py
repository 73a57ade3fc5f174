"""Backups of a data directory: the manifest, and the reports of making, checking and restoring one.

Why this format: docs/decisions/0030-backups.md.
"""

from typing import Annotated, Literal

import msgspec

_Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
KeysOrigin = Literal["backup", "given", "new"]  # of the keys of a restored home
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class Restoration(msgspec.Struct, frozen=True, kw_only=True):
    """Declared return of a journal to an earlier state, as a line of its roots file."""

    backup_id: str
    created_ms: int  # of the backup
    by: str  # who restored it
    reason: str = ""
    at_ms: int = 0
    head_position: int = 0  # last one of the backup


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of files."""

    path: str  # below `data/`, with slashes
    size_bytes: _Count
    sha256: _Hex


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed description of a backup; it covers the list of files, which covers the rest."""

    format: Literal[1] = 1
    backup_id: str
    version: str  # of Palyra
    created_ms: _Count
    by: str
    journal_id: str
    schema_version: _Count
    epoch: _Count
    head_position: _Count
    public_key: _Hex
    former_keys: tuple[_Hex, ...] = ()
    has_keys: bool
    files: _Count
    size_bytes: _Count
    files_sha256: _Hex


class BackupOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a backup."""

    backup_id: str
    by: str
    created_ms: int
    with_keys: bool = False


class BackupMade(msgspec.Struct, frozen=True, kw_only=True):
    """A complete backup."""

    backup_id: str
    path: str
    created_ms: int
    has_keys: bool
    files: int
    size_bytes: int
    head_position: int
    key_id: str


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking a backup.  `problems` are the first ones, as sentences."""

    path: str
    is_intact: bool
    problem_count: int
    problems: tuple[str, ...] = ()
    backup_id: str = ""  # "": there is no valid manifest
    version: str = ""
    created_ms: int = 0
    has_keys: bool = False
    files: int = 0
    size_bytes: int = 0
    head_position: int = 0
    key_id: str = ""  # of the key that signed it
    is_known_key: bool | None = None  # None: there was no key to compare it with
    checked_events: int = 0
    purged_events: int = 0
    checked_roots: int = 0
    recorded_breaks: int = 0  # of the chain, that the journal had recorded before
    open_runs: int = 0


class BackupRestored(msgspec.Struct, frozen=True, kw_only=True):
    """A restored data directory."""

    backup_id: str
    path: str
    created_ms: int
    files: int
    size_bytes: int
    head_position: int
    keys: KeysOrigin
    key_id: str
    open_runs: int  # they continue at the next start
