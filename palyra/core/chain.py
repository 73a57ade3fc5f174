"""The hash chain of a tape and the Merkle tree over a journal.  Pure.

Each event is linked to the event before it in its run; each signed root covers the links that
were committed since the last one.  A link binds position and run, so an event can be neither
changed nor moved.  Whoever can write to the database can also compute a chain that holds again:
what he cannot do is make it fit a root that was signed before.

Source of the tree: RFC 6962 section 2.1 (leaf and node prefixes, split at a power of two).
"""

import struct
from collections.abc import Iterable
from hashlib import sha256

from palyra.core.tape import TapeRow
from palyra.errors import InvariantBroken

GENESIS = bytes(32)  # what the first event of every run is linked to
_DOMAIN = b"palyra.tape.v1\x00"  # a link can never be mistaken for a hash of something else
_FIELDS = struct.Struct(">qqq?IIIII")  # the numbers, then the length of each text that follows
_LEAF, _NODE = b"\x00", b"\x01"


def link(prev: bytes, position: int, row: TapeRow) -> bytes:
    """The row's hash, 32 bytes: SHA-256 over domain, `prev` and all fields, lengths first.

    Raises InvariantBroken for a row that no storage could hold (a number over 64 bits, text that
    is not Unicode).
    """
    try:
        run_id, session_id = row.run_id.encode(), row.session_id.encode()
        kind, principal = row.kind.encode(), row.principal.encode()
        fields = _FIELDS.pack(
            position,
            row.seq,
            row.at_ms,
            row.redacted,
            len(run_id),
            len(session_id),
            len(kind),
            len(principal),
            len(row.data),
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise InvariantBroken(
            f"event {row.seq} of {row.run_id!r} cannot be hashed: {error}"
        ) from None
    parts = (_DOMAIN, prev, fields, run_id, session_id, kind, principal, row.data)
    return sha256(b"".join(parts)).digest()


class MerkleTree:
    """A tree that grows by its right edge; keeps one hash per power of two, not the leaves."""

    __slots__ = ("_peaks", "size")

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self.size = 0
        self._peaks: list[bytes] = []  # roots of full subtrees, largest first
        for leaf in leaves:
            self.append(leaf)

    def append(self, leaf: bytes) -> None:
        """Add one leaf; every full pair of equal height becomes one node."""
        peak = sha256(_LEAF + leaf).digest()
        size = self.size
        while size & 1:
            peak = sha256(_NODE + self._peaks.pop() + peak).digest()
            size >>= 1
        self._peaks.append(peak)
        self.size += 1

    def root(self) -> bytes:
        """The hash over all leaves so far, 32 bytes; of none, the hash of nothing."""
        if not self._peaks:
            return sha256().digest()
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = sha256(_NODE + peak + root).digest()
        return root
