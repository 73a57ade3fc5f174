"""The owner row: who may write to the journal, and what it last said about itself.

Every opening raises the epoch; every commit checks it in its own transaction, so a writer that
was replaced while it slept adds nothing.  The same statement notes the head, which tells a cut
tail from an empty one even where no root is signed yet.
"""

import secrets
from typing import NamedTuple

import apsw

from palyra.errors import Unavailable
from palyra.store.sqlite.schema import transaction


class JournalOwner(NamedTuple):
    """The row as it was found."""

    journal_id: str
    epoch: int
    head_position: int
    roots: int  # lines of the roots file known to be durable
    is_clean: bool  # whether the last owner closed it
    is_new: bool  # whether this opening made the journal


def take(connection: apsw.Connection) -> JournalOwner:
    """Become the owner; what the last one left, with the new epoch."""
    with transaction(connection):
        connection.execute(
            "INSERT INTO owner VALUES (1, ?, 0, 0, 0, 1) ON CONFLICT (id) DO NOTHING",
            (secrets.token_hex(16),),
        )
        is_new = connection.changes() > 0
        connection.execute("UPDATE owner SET epoch = epoch + 1")
        found = connection.execute(
            "SELECT journal_id, epoch, head_position, roots, is_clean FROM owner"
        ).get
        connection.execute("UPDATE owner SET is_clean = 0")
    journal_id, epoch, head_position, roots, is_clean = found
    return JournalOwner(journal_id, epoch, head_position, roots, bool(is_clean), is_new)


def touch(
    connection: apsw.Connection,
    epoch: int,
    *,
    head_position: int,
    roots: int,
    is_clean: bool = False,
) -> None:
    """Note the head, within the caller's transaction.  Raises Unavailable when it lost the row."""
    connection.execute(
        "UPDATE owner SET head_position = ?, roots = ?, is_clean = ? WHERE epoch = ?",
        (head_position, roots, is_clean, epoch),
    )
    if not connection.changes():
        raise Unavailable("journal: ownership lost: it was opened again elsewhere")
