"""Encoding of tape events and progress, once for all readers.

What depends on the reader (its subscription) or on the moment of writing (the committed seq) is
left open and appended when the frame is written.
"""

import msgspec

from palyra.actors.hub.hub import ProgressDelta
from palyra.core.journal.tape_row import TapeRow
from palyra.net.delivery.outbox import ProgressFrame
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.net.protocol.notifications import TapeItem

_ENCODER = msgspec.json.Encoder()
_EVENT = b'{"jsonrpc":"2.0","method":"tape.event","params":%b'
_PROGRESS = (
    b'{"jsonrpc":"2.0","method":"progress","params":{"run_id":%b,"item":%b,"kind":%b,"order":'
)


def read_item(row: TapeRow) -> TapeItem:
    """The row as clients see it."""
    return TapeItem(
        run_id=row.run_id,
        session_id=row.session_id,
        seq=row.seq,
        at_ms=row.at_ms,
        kind=row.kind,
        data=msgspec.Raw(row.data),
    )


def encode_event(row: TapeRow) -> bytes:
    """A `tape.event`, open at the end: `end_event` completes it."""
    return _EVENT % _ENCODER.encode(read_item(row))[:-1]


def end_event(subscription: str, committed: int) -> bytes:
    """What completes a `tape.event` for one reader."""
    return b',"subscription":"%b","committed":%d}}' % (subscription.encode(), committed)


def encode_notice(method: str, params: object) -> bytes:
    """A whole notification."""
    return encode_notification(method, params)


def encode_progress(progress: ProgressDelta) -> ProgressFrame:
    """A delta in parts that can be merged without decoding."""
    encode = _ENCODER.encode
    head = _PROGRESS % (encode(progress.run_id), encode(progress.item), encode(progress.kind))
    key = (progress.run_id, progress.item, progress.kind)
    return ProgressFrame(key, head, progress.order, _encode_delta(progress.delta))


def _encode_delta(delta: str) -> bytes:
    """JSON text without quotes; half a surrogate pair, which a cut stream can end in, becomes ?."""
    try:
        return _ENCODER.encode(delta)[1:-1]
    except UnicodeEncodeError:
        return _ENCODER.encode(delta.encode(errors="replace").decode())[1:-1]
