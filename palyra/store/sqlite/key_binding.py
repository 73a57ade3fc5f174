"""Binding of a signing key to its journal: `keys/journal.id` names the journal the key signs for.

A journal that was deleted, emptied or replaced by a newer one shows no trace of that in itself, and
perhaps none in the roots file.  The binding is written with a new key, as "none", and completed when
the first journal has been opened.  A key without the file was created by an older version or lost
it; then only a journal that this opening created is suspect.
"""

import os
from pathlib import Path

from palyra.core.journal.changes import ChainViolation
from palyra.store.files import private_files
from palyra.store.journal.keys import NO_JOURNAL, KeyRing
from palyra.store.sqlite.writer import JournalOwner

_MAX_SHOWN = 64  # characters of a journal's id; it has 32


def find_mismatch(keys: KeyRing, found: JournalOwner) -> ChainViolation | None:
    """Return a violation if the key is bound to another journal.  Raises OSError."""
    if keys.bond_path is None:
        return None
    bound = _read(keys.bond_path)
    if bound == found.journal_id:
        return None
    if bound is None:
        if not found.is_new:
            return None
        detail = (
            "the journal is new, but the signing key is not: its database was deleted or emptied"
        )
    elif bound == NO_JOURNAL:
        if found.head_position == 0 and found.roots == 0:
            return None
        detail = "the signing key is newer than the journal: it cannot check what was signed before"
    else:
        kind = "new" if found.is_new else "another one"
        detail = (
            f"the signing key belongs to journal {bound}, and this one is {kind}: "
            "its database was deleted, emptied or replaced"
        )
    return ChainViolation(kind="missing", position=None, run_id=None, seq=None, detail=detail)


def bind(keys: KeyRing, journal_id: str) -> None:
    """Bind the key to this journal, durably.  Raises OSError."""
    if keys.bond_path is not None and _read(keys.bond_path) != journal_id:
        private_files.create_file(keys.bond_path, f"{journal_id}\n".encode())


def _read(path: Path) -> str | None:
    try:
        descriptor = private_files.open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        return file.read().strip()[:_MAX_SHOWN]
