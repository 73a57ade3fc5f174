"""Rows of a journal file without the item that they belong to: what to forget may not leave."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

_ORPHANS = {
    "a text entry": "SELECT count(*) FROM memory_fts_docsize WHERE id NOT IN (SELECT row FROM memories)",
    "a vector": "SELECT count(*) FROM memory_vectors WHERE row NOT IN (SELECT row FROM memories)",
    "a revision": "SELECT count(*) FROM memory_versions"
    " WHERE memory_id NOT IN (SELECT memory_id FROM memories)",
    "an item without a text entry": "SELECT count(*) FROM memories"
    " WHERE row NOT IN (SELECT id FROM memory_fts_docsize)",
    "a gap among neighbours": "SELECT count(*) FROM memories WHERE previous_row IS NOT NULL"
    " AND previous_row NOT IN (SELECT row FROM memories)",
    "an item superseded by none": "SELECT count(*) FROM memories WHERE superseded_by IS NOT NULL"
    " AND superseded_by NOT IN (SELECT memory_id FROM memories)",
}


def find_orphans(path: Path) -> Iterator[str]:
    """Yield what is in one table and not in the one that it belongs to."""
    with closing(apsw.Connection(str(path))) as connection:
        for name, query in _ORPHANS.items():
            ((count,),) = connection.execute(query)
            if count:
                yield f"{count} times {name}"


def find_orphans_in_copy(path: Path) -> list[str]:
    """Return the same of a file that was left by a crash, which keeps its log for the next start."""
    with tempfile.TemporaryDirectory() as name:
        for part in path.parent.glob(f"{path.name}*"):
            if not part.name.endswith("-shm"):
                shutil.copy(part, name)
        return list(find_orphans(Path(name) / path.name))
