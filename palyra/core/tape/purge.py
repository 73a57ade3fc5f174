"""Proof of a purge: why rows without their payloads are still a valid tape.  Pure.

The chain hash of a row covers its payload, so it cannot be computed once the payload is gone.  The
hash itself stays: the next row and the signed roots cover it.  The other fields of the row would be
unprotected, and an attacker could remove a payload as well.  So the last event of a purged run,
`run.purged`, has a digest over all earlier rows (every field, the SHA-256 of each payload, each
chain hash) and a signature of the daemon's key over it.  Rows without payloads are valid exactly if
their run ends with such an event and the digest matches.

    row 0 … row N        payloads replaced, chain hashes as before
    row N + 1            run.purged: digest over rows 0 … N, signed

Why: docs/decisions/0028-a-purge-keeps-the-chain.md.
"""

import struct
from collections.abc import Callable, Iterable
from hashlib import sha256

import msgspec

from palyra.core.journal.purged_row import read_tombstone
from palyra.core.journal.tape_row import TapeRow
from palyra.core.tape.events import RunPurged

IsSigned = Callable[[bytes, bytes], bool]  # message, signature
Link = tuple[int, bytes, TapeRow]  # position, chain hash, row

_DOMAIN = b"palyra.purge.v1\x00"
_FIELDS = struct.Struct(">qqq?qIIII")
_EVENT = msgspec.json.Decoder(RunPurged)

UNRECORDED = "the payload is missing, and no purge of it is on record"
MISMATCH = "the purged events do not match the record of their purge"
UNSIGNED = "the record of the purge is not signed with the daemon's key"


class RowsDigest:
    """Digest over the rows of a run, in order; equal before and after the payloads are replaced."""

    def __init__(self) -> None:
        self._hash = sha256(_DOMAIN)
        self.rows = 0
        self.purged_ms: set[int] = set()  # times in the replaced payloads

    def add(self, link: Link) -> None:
        """Add the next row."""
        position, digest, row = link
        tombstone = read_tombstone(row.data)
        if tombstone is None:
            payload, size = sha256(row.data).hexdigest(), len(row.data)
        else:
            payload, size = tombstone.sha256, tombstone.size_bytes
            self.purged_ms.add(tombstone.at_ms)
        texts = (row.run_id, row.session_id, row.kind, row.principal)
        parts = [text.encode("utf-8", "replace") for text in texts]
        fields = _FIELDS.pack(position, row.seq, row.at_ms, row.redacted, size, *map(len, parts))
        self._hash.update(b"".join((fields, *parts, payload.encode(), digest)))
        self.rows += 1

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def claim(run_id: str, event: RunPurged, at_ms: int) -> bytes:
    """Return the bytes that the signature of a purge covers."""
    fields = (run_id, event.purge_id, event.by, str(event.events), str(at_ms), event.digest)
    return _DOMAIN + b"\x00".join(field.encode() for field in fields)


def find_fault(run_id: str, links: Iterable[Link], is_signed: IsSigned) -> str | None:
    """Return why the purge of a run is not proven by its rows (all of them, in order), or None."""
    digest, last = RowsDigest(), None
    for link in links:
        if last is not None:
            digest.add(last)
        last = link
    if last is None or last[2].kind != RunPurged.KIND:
        return UNRECORDED
    at_ms = last[2].at_ms
    try:
        event = _EVENT.decode(last[2].data)
        signature = bytes.fromhex(event.signature)
    except (msgspec.DecodeError, ValueError):
        return UNRECORDED
    if not is_signed(claim(run_id, event, at_ms), signature):
        return UNSIGNED
    is_same = digest.hexdigest() == event.digest and digest.rows == event.events
    return None if is_same and digest.purged_ms <= {at_ms} else MISMATCH
