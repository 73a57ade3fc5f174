"""Parser of AWS event streams (`application/vnd.amazon.eventstream`), sans I/O.

Source: https://smithy.io/2.0/aws/amazon-eventstream.html.  A message is

    total length (4) | length of headers (4) | CRC-32 of those 8 bytes (4)
    headers | payload | CRC-32 of everything before (4)

with numbers in network order.  A header is the length of its name (1), the name, a type (1) and a
value whose length follows from the type.  Both sums are checked before anything of a message is
used: a damaged message is a broken connection and no answer.

The parser returns each message as one JSON object: `{"type": NAME, "data": PAYLOAD}`, where an
exception's type is `exception:NAME`.
"""

import struct
import zlib
from collections.abc import Iterator

import msgspec

from palyra.core.model.messages import ModelFailure
from palyra.models.sse import MAX_EVENT_BYTES

MEDIA_TYPE = "application/vnd.amazon.eventstream"
_PRELUDE = struct.Struct(">III")
_SUM = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_OVERHEAD = _PRELUDE.size + _SUM.size
_MAX_HEADER_BYTES = 131_072  # of the format
_FIXED_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # by type
_BYTES, _TEXT = 6, 7


class EventStreamParser:
    """Parser of one response: call `feed` for each chunk and `finish` at the end."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the messages that the chunk completes.

        Raises ModelFailure: malformed for a message over the cap, transient for a damaged one.
        """
        buffer, at, found = self._rest + chunk, 0, list[str]()
        while len(buffer) - at >= _PRELUDE.size:
            total, header_bytes, checksum = _PRELUDE.unpack_from(buffer, at)
            if zlib.crc32(buffer[at : at + 8]) != checksum:
                raise _damaged("the sum of its lengths is wrong")
            if total > self._max_event_bytes:
                raise ModelFailure(
                    "malformed",
                    f"the provider sent an event of more than {self._max_event_bytes} bytes",
                )
            if header_bytes > min(total - _OVERHEAD, _MAX_HEADER_BYTES):
                raise _damaged("its headers are longer than itself")
            if len(buffer) - at < total:
                break
            found.append(_read_message(buffer[at : at + total], header_bytes))
            at += total
        self._rest = buffer[at:]
        return found

    def finish(self) -> str | None:  # noqa: PLR6301 - an incomplete message is dropped
        """Return None: a message without its end cannot be trusted."""
        return None


def _read_message(message: bytes, header_bytes: int) -> str:
    (checksum,) = _SUM.unpack_from(message, len(message) - _SUM.size)
    if zlib.crc32(message[: -_SUM.size]) != checksum:
        raise _damaged("its sum is wrong")
    end = _PRELUDE.size + header_bytes
    headers = read_headers(message[_PRELUDE.size : end])
    kind = headers.get(":message-type", "event")
    if kind == "error":
        name, data = headers.get(":error-code", ""), _encode(headers.get(":error-message", ""))
        return f'{{"type":{_encode(f"exception:{name}")},"data":{{"message":{data}}}}}'
    payload = message[end : -_SUM.size].decode("utf-8", "replace") or "{}"
    name = headers.get(f":{kind}-type", "")
    return f'{{"type":{_encode(f"exception:{name}" if kind == "exception" else name)},"data":{payload}}}'


def read_headers(data: bytes) -> dict[str, str]:
    """Return the text headers; others are skipped.  Raises ModelFailure for a broken block."""
    try:
        found = list(_each_header(data))
    except (IndexError, KeyError, struct.error):
        raise _damaged("a header cannot be read") from None
    return {name: value.decode("utf-8", "replace") for name, kind, value in found if kind == _TEXT}


def _each_header(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, type and value.  Raises IndexError, KeyError or struct.error for a broken block."""
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        name, kind, at = data[at + 1 : end].decode("utf-8", "replace"), data[end], end + 1
        if kind in {_BYTES, _TEXT}:
            (size,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
        else:
            size = _FIXED_BYTES[kind]
        if at + size > len(data):
            raise IndexError(name)
        yield name, kind, data[at : at + size]
        at += size


def _encode(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _damaged(why: str) -> ModelFailure:
    return ModelFailure("transient", f"the provider sent a damaged message: {why}")
