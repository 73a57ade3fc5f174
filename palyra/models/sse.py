"""Parser of server-sent events, sans I/O: bytes in, the data of complete events out.

Lines end with LF, CRLF or CR and with nothing else (U+2028 is data); source: HTML Living Standard,
"Server-sent events".  Only the `data` field is returned: every provider repeats the event's type in
the payload, and the payload decides.
"""

import re

from palyra.core.model.messages import ModelFailure

MAX_EVENT_BYTES = 1_310_720  # the arguments of a turn in one event, escaped twice, and some room
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class SseParser:
    """Parser of one response: call `feed` for each chunk and `finish` at the end."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""  # incomplete last line
        self._data: list[bytes] = []
        self._size = 0  # of the incomplete event
        self._is_first = True

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that the chunk completes.

        Raises ModelFailure (malformed) for an event over the cap.
        """
        buffer = self._rest + chunk if self._rest else chunk
        if self._is_first:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                self._rest = buffer
                return []
            buffer, self._is_first = buffer.removeprefix(_BOM), False
        lines = self._split(buffer)
        found = [data for line in lines if (data := self._take(line)) is not None]
        self._check(len(self._rest))
        return found

    def finish(self) -> str | None:
        """Return the data of a last event whose closing empty line is missing, or None."""
        last = self._take(self._rest.removesuffix(b"\r")) if self._rest else None
        return self._take(b"") if last is None else last

    def _split(self, buffer: bytes) -> list[bytes]:
        if b"\r" not in buffer:
            *lines, self._rest = buffer.split(b"\n")
            return lines
        held = b""
        if buffer.endswith(b"\r"):  # the LF of a CRLF may come with the next chunk
            buffer, held = buffer[:-1], b"\r"
        *lines, rest = _LINE_END.split(buffer)
        self._rest = rest + held
        return lines

    def _take(self, line: bytes) -> str | None:
        """Parse one line; return the data of the event that it ends, or None."""
        if not line:
            return self._end_event()
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
            self._check(0)
        return None

    def _end_event(self) -> str | None:
        if not self._data:
            return None
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data, self._size = [], 0
        return data.decode("utf-8", "replace")

    def _check(self, more: int) -> None:
        if self._size + more > self._max_event_bytes:
            raise ModelFailure(
                "malformed",
                f"the provider sent an event of more than {self._max_event_bytes} bytes",
            )
