"""Frames of a write-ahead log that SQLite ignores because one before them is damaged.

Each frame has the salts of its log and a checksum over all frames up to it, so a damaged one hides
every later one, without an error.  A process that is killed leaves at most its last frame incomplete.
Source of the format: https://www.sqlite.org/walformat.html.
"""

import struct
from pathlib import Path

from palyra.store.files.private_files import read_file

_HEADER, _FRAME = 32, 24  # bytes
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}  # and the order of bytes of the checksums


def count_hidden_frames(path: Path) -> int:
    """Return the number of frames behind the first damaged one; 0 for a sound log, or none.

    Reads the whole log, some 20 MiB a second.  Raises OSError.
    """
    try:
        content = memoryview(read_file(path))
    except FileNotFoundError:
        return 0
    if len(content) <= _HEADER:
        return 0
    magic, _, page_bytes, _, *salts = struct.unpack(">6I", content[:24])
    order = _MAGIC.get(magic)
    if order is None or page_bytes not in {1 << bits for bits in range(9, 17)}:
        return 1  # no frame is found
    length = _FRAME + page_bytes
    frames = [content[at : at + length] for at in range(_HEADER, len(content) - length + 1, length)]
    sums = _add(content[:24], order, (0, 0))
    if sums != struct.unpack(">2I", content[24:_HEADER]):
        return len(frames)
    for number, frame in enumerate(frames):
        sums = _add(frame[_FRAME:], order, _add(frame[:8], order, sums))
        if [*struct.unpack(">2I", frame[8:16])] != salts or sums != struct.unpack(
            ">2I", frame[16:24]
        ):
            rest = frames[number + 1 :]
            return sum([*struct.unpack(">2I", each[8:16])] == salts for each in rest)
    return 0


def _add(content: memoryview, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """Add the words to the checksums."""
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    first, second = sums
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
