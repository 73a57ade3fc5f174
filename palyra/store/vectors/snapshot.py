"""The file of the vectors: a header line of JSON, then rows and codes.

Of 1 600 damaged FAISS files 804 load unnoticed and 42 answer wrongly, so the header holds the
SHA-256 of itself without it and of the rest.  A file is replaced as a whole and durably.  A file
that is damaged, or of another embedder or format, is as good as none.
"""

import hashlib
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from palyra.core.memory.vectors import VectorSpace
from palyra.store.files.private_files import create_file, make_directory, open_file

FORMAT = 1
MAX_HEADER_BYTES = 4_096


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file: vectors of `count` rows at the log entry."""

    format: int
    embedder: str
    dimensions: int
    count: int
    last_entry: int
    high_water_row: int
    span: float  # of the codes, see `flat`
    sha256: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    header: SnapshotHeader
    rows: NDArray[np.int64]
    codes: NDArray[np.uint8]  # (count, dimensions)


class SnapshotError(Exception):
    """The file cannot be used; the message says why."""


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace the file durably.  Raises OSError, Unavailable."""
    body = [
        np.ascontiguousarray(snapshot.rows, "<i8").tobytes(),
        np.ascontiguousarray(snapshot.codes).tobytes(),
    ]
    header = msgspec.structs.replace(snapshot.header, sha256=_digest(snapshot.header, *body))
    make_directory(path.parent)
    create_file(path, b"".join([msgspec.json.encode(header), b"\n", *body]))


def read_snapshot(path: Path, space: VectorSpace) -> Snapshot:
    """Return the content of the file.  Raises SnapshotError."""
    try:
        with open_file(path) as file:
            line = file.readline(MAX_HEADER_BYTES)
            body = file.read()
    except FileNotFoundError:
        raise SnapshotError("missing") from None
    except OSError as error:
        raise SnapshotError(f"unreadable: {error.strerror}") from None
    try:
        header = msgspec.json.decode(line, type=SnapshotHeader)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SnapshotError("damaged: no header") from None
    if header.format != FORMAT:
        raise SnapshotError(f"of format {header.format}, not {FORMAT}")
    if (header.embedder, header.dimensions) != space:
        raise SnapshotError(f"of another embedder: {header.embedder}")
    if len(body) != header.count * (8 + space.dimensions):
        raise SnapshotError("damaged: of another length")
    if _digest(header, body) != header.sha256:
        raise SnapshotError("damaged: another SHA-256")
    split = 8 * header.count
    rows = np.frombuffer(body[:split], "<i8").astype(np.int64)
    codes = np.frombuffer(body, np.uint8, offset=split).reshape(header.count, space.dimensions)
    return Snapshot(header=header, rows=rows, codes=codes)


def find_damage(path: Path) -> str:
    """Return why the file is damaged, whatever its embedder; "" if it is whole."""
    try:
        with open_file(path) as file:
            header = msgspec.json.decode(file.readline(MAX_HEADER_BYTES), type=SnapshotHeader)
        read_snapshot(path, VectorSpace(header.embedder, header.dimensions))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "damaged: no header"
    except (OSError, SnapshotError) as error:
        return str(error)
    return ""


def _digest(header: SnapshotHeader, *body: bytes) -> str:
    digest = hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(header, sha256="")))
    for part in body:
        digest.update(part)
    return digest.hexdigest()
