"""Artifacts: complete outputs of calls of which the tape has an excerpt, read in pages.

An artifact belongs to one session and is named by the SHA-256 of its bytes, which are the output
after redaction.  The same output in another session is another artifact.
"""

import msgspec

from palyra.core.trust.labels import Trust

MAX_ARTIFACT_BYTES = 4_194_304  # the largest possible output, with room for redaction marks
NAME_CHARS = 16  # of the digest, in texts for a model; a longer prefix is accepted
MAX_PAGE_BYTES = 65_536
_LONGEST = 4  # bytes of one character


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """Description of an artifact; its bytes are stored separately."""

    artifact: str  # SHA-256, hex
    session_id: str
    run_id: str
    call_id: str
    tool: str
    size_bytes: int
    created_ms: int
    trust: Trust  # of the output; reading it again does not raise it


class ArtifactPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of an artifact: whole characters, and whole lines where possible."""

    text: str
    offset: int  # of its first byte
    next_offset: int | None  # None: the last page
    line: int  # number of its first line, from 1


def read_page(data: bytes, offset: int, limit_bytes: int) -> ArtifactPage | None:
    """Return the page that begins at or just before `offset`; None past the end.

    `limit_bytes` is at least 4, so that a page has a character.
    """
    if offset > len(data) or (offset == len(data) and offset > 0):
        return None
    start = _char_start(data, offset) if data else 0
    end = min(len(data), start + limit_bytes)
    if end < len(data):
        line_end = data.rfind(b"\n", start, end) + 1
        end = line_end or _char_start(data, end)
    return ArtifactPage(
        text=data[start:end].decode("utf-8", "replace"),
        offset=start,
        next_offset=None if end == len(data) else end,
        line=data.count(b"\n", 0, start) + 1,
    )


def line_offset(data: bytes, line: int) -> int | None:
    """Return the offset of a line, counted from 1; None if there are fewer lines."""
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
        if not at:
            return None
    return at


def _char_start(data: bytes, at: int) -> int:
    """Return the start of the character at `at`; `at` itself if the bytes are not UTF-8."""
    for start in range(at, max(at - _LONGEST, -1), -1):
        byte = data[start]
        if byte & 0xC0 != 0x80:  # noqa: PLR2004 - UTF-8: 10xxxxxx goes on, 11xxxxxx begins
            return start if byte >= 0xC0 else at  # noqa: PLR2004 - as above
    return at
