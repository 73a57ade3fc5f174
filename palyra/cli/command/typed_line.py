"""One line that a person types as an answer."""

import sys

import trio


async def wait_line() -> str:
    """Return the next line of standard input, "" for an empty one and at the end.

    Cancellation: the line that is read is lost.
    """
    line: bytes = await trio.to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True)
    return line.decode(errors="replace").strip()
