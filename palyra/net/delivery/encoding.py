"""The encoder: rows, deltas and notices as frames of a socket.

An event or delta is encoded once for all sockets.  The first one that queues it encodes it and
stores the bytes with the published row or delta; every later one takes them from there.  The
members that differ between readers (`subscription`, `committed`) come last in a `tape.event`, so
`end_event` appends them when the frame is written, and nothing is decoded or encoded again.
Readers inside the daemon, as the compat APIs, take rows and never come here.
"""

import msgspec

from palyra.actors.hub import ProgressDelta, PublishedRow
from palyra.core.journal.tape_row import TapeRow
from palyra.net.protocol.notifications import TapeItem

_ENCODER = msgspec.json.Encoder()
_EVENT = b'{"jsonrpc":"2.0","method":"tape.event","params":%b'
_PROGRESS = (
    b'{"jsonrpc":"2.0","method":"progress","params":'
    b'{"run_id":%b,"item":%b,"kind":%b,"offset":%d,"order":'
)


def read_item(row: TapeRow) -> TapeItem:
    """Return the row as clients see it."""
    return TapeItem(
        run_id=row.run_id,
        session_id=row.session_id,
        seq=row.seq,
        at_ms=row.at_ms,
        kind=row.kind,
        data=msgspec.Raw(row.data),
    )


def encode_event(published: PublishedRow) -> bytes:
    """Return the row as a `tape.event` that `end_event` completes; encode it the first time."""
    if published.encoded is None:
        published.encoded = _EVENT % _ENCODER.encode(read_item(published.row))[:-1]
    return published.encoded


def end_event(subscription: str, committed: int) -> bytes:
    """Return the end of a `tape.event` for one reader."""
    return b',"subscription":"%b","committed":%d}}' % (subscription.encode(), committed)


def encode_progress(progress: ProgressDelta) -> tuple[bytes, bytes]:
    """Return a `progress` up to its order, and its delta as JSON text without quotes.

    Deltas of one item are merged by joining their texts.  Half a surrogate pair, in which a stream
    that was cut off may end, becomes `?`.
    """
    if progress.encoded is None:
        encode = _ENCODER.encode
        names = encode(progress.run_id), encode(progress.item), encode(progress.kind)
        head = _PROGRESS % (*names, progress.offset)
        try:
            text = encode(progress.delta)
        except UnicodeEncodeError:
            text = encode(progress.delta.encode(errors="replace").decode())
        progress.encoded = head, text[1:-1]
    return progress.encoded
