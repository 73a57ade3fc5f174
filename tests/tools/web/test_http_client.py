"""Inflating under a cap."""

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Unavailable
from palyra.tools.web.http_client import Inflater
from tests.rows import every_row

CAP = 1_000


def raw_deflate(data: bytes) -> bytes:
    """Deflate without the wrapping it should have."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("", bytes),
]


@given(st.binary(max_size=CAP), st.integers(1, 50))
def test_pieces_of_any_size(data: bytes, size: int) -> None:
    """The text is the same however it is split."""
    for encoding, pack in PACKERS:
        packed = pack(data)
        inflater = Inflater(encoding, CAP)
        pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
        assert data == b"".join(inflater.feed(piece) for piece in pieces)
        inflater.finish()
        assert not inflater.is_cut


@given(st.integers(CAP + 1, 100 * CAP), st.integers(1, 5_000))
def test_never_more_than_the_cap(size: int, step: int) -> None:
    """Over all pieces together."""
    for encoding, pack in PACKERS:
        packed = pack(b"x" * size)
        inflater = Inflater(encoding, CAP)
        pieces = [packed[at : at + step] for at in range(0, len(packed), step)]
        assert b"x" * CAP == b"".join(inflater.feed(piece) for piece in pieces)
        assert inflater.is_cut
        assert inflater.is_done
        inflater.finish()


def test_data_after_the_end_is_dropped() -> None:
    """In the same piece and in later ones; it is not stored either."""
    inflater = Inflater("gzip", CAP)
    assert b"hello" == inflater.feed(gzip.compress(b"hello") + b"more")
    assert b"" == inflater.feed(b"x" * 100)
    assert inflater.is_done


@every_row("encoding", ["gzip", "deflate"])
@every_row("data", [b"no such thing", gzip.compress(b"x" * 50, mtime=0)[:15] + b"\xff" * 9])
def test_damaged_data_is_an_error(encoding: str, data: bytes) -> None:
    """Damaged compressed data is reported as such."""
    with pytest.raises(Unavailable, match="damaged"):
        Inflater(encoding, CAP).feed(data)


def test_a_body_that_breaks_off_is_an_error() -> None:
    """An empty one is none: an empty file is sent that way."""
    inflater = Inflater("gzip", CAP)
    inflater.finish()
    inflater.feed(gzip.compress(b"hello")[:-9])
    with pytest.raises(Unavailable, match="broke off"):
        inflater.finish()
