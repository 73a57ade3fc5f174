"""Server-sent events (HTML, section 9.2): JSON has no line ends, so one line of data is enough."""

import msgspec

_ENCODER = msgspec.json.Encoder()
HEARTBEAT = b": still there\n\n"
DONE = b"data: [DONE]\n\n"


def event(value: object, name: str = "") -> bytes:
    """One event; with a name if the API has typed ones."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, _ENCODER.encode(value))
