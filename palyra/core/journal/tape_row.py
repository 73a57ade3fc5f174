"""One row of a tape, the hash chain of a tape and the Merkle tree over a journal.  Pure.

A tape is the append-only sequence of the events of one run.  A row is stored and hashed; its `data`
decodes to an event (`core.tape.events`).

The chain hash of an event covers the chain hash of the event before it in its run; each signed root
covers the chain hashes committed since the last root.  A chain hash includes position and run, so an
event can be neither changed nor moved without detection.  An attacker with write access to the
database can recompute a valid chain, but not one that matches a root that was signed before.

Source of the tree: RFC 6962 section 2.1 (leaf and node prefixes, split at a power of two).
"""

import struct
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from palyra.errors import InvariantBroken

GENESIS = bytes(32)  # the hash before the first event of every run
_DOMAIN = b"palyra.tape.v1\x00"  # domain separation from every other hash
_FIELDS = struct.Struct(">qqq?IIIII")  # the numbers, then the length of each following field
_LEAF, _NODE = b"\x00", b"\x01"


class TapeRow(msgspec.Struct, frozen=True, gc=False):
    """One committed or about-to-be-committed event.  `data` is the event's JSON, redacted."""

    run_id: str
    session_id: str
    seq: int  # dense from 0 within the run
    at_ms: int
    kind: str
    principal: str
    redacted: bool  # True if redaction changed the payload
    data: bytes


# One event; larger content belongs in an artifact.  A page of 256 KiB and one event fit into a message of
# 1 MiB, the limit of many WebSocket clients.
MAX_PAYLOAD_BYTES = 720_896


def link(prev: bytes, position: int, row: TapeRow) -> bytes:
    """Return the chain hash of the row, 32 bytes: SHA-256 over domain, `prev` and all fields.

    Lengths precede the fields.  Raises InvariantBroken for a row that cannot be stored (a number over
    64 bits, text that is not Unicode).
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


def merkle_root(leaves: Iterable[bytes]) -> bytes:
    """Return the Merkle tree hash of the leaves, 32 bytes; of none, the hash of no bytes.

    Pairing level by level, with an odd node moving up unpaired, gives the tree that the RFC
    defines by splitting at the largest power of two.
    """
    level = [sha256(_LEAF + leaf).digest() for leaf in leaves]
    if not level:
        return sha256().digest()
    while len(level) > 1:
        odd = level[len(level) & ~1 :]
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [sha256(_NODE + left + right).digest() for left, right in pairs] + odd
    return level[0]
