"""The hash chain and the Merkle tree."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.tape_row import GENESIS, TapeRow, link, merkle_root
from palyra.errors import InvariantBroken
from tests.rows import every_row

ROW = TapeRow(
    "run_1", "ses_1", 3, 1_700_000_000_000, "run.done", "alice", redacted=False, data=b'{"a":1}'
)

# Every field changed, and the changes that a hash without lengths would not see.
OTHER_ROWS = [
    msgspec.structs.replace(ROW, **change)
    for change in (
        {"run_id": "run_2"},
        {"session_id": "ses_2"},
        {"seq": 4},
        {"at_ms": 1_700_000_000_001},
        {"kind": "run.gone"},
        {"principal": "alicf"},
        {"redacted": True},
        {"data": b'{"a":2}'},
        {"run_id": "run_1s", "session_id": "es_1"},
        {"kind": "run.donealice", "principal": ""},
        {"principal": 'alice{"a":1}', "data": b""},
    )
]

# From the test vectors of RFC 6962's reference implementation.
LEAVES = [
    bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
]


def recursive_root(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962 section 2.1, word for word."""
    if not leaves:
        return sha256().digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = recursive_root(leaves[:split]), recursive_root(leaves[split:])
    return sha256(b"\x01" + left + right).digest()


def test_link_is_stable() -> None:
    """The hash of a known row never changes between versions: stored chains depend on it."""
    expected = "bfb13d6a819f8804b27be0c664e466b0b16d6ad460d3234f951afa87b1821ce7"
    assert expected == link(GENESIS, 7, ROW).hex()


@every_row("other", OTHER_ROWS)
def test_link_binds_every_field(other: TapeRow) -> None:
    """A row that differs in any field, or only in where fields end, has another hash."""
    assert link(GENESIS, 7, ROW) != link(GENESIS, 7, other)


def test_link_binds_place() -> None:
    """The same row at another position or after another event has another hash."""
    hashes = {link(GENESIS, 7, ROW), link(GENESIS, 8, ROW), link(bytes([1]) * 32, 7, ROW)}
    assert 3 == len(hashes)


@every_row(
    "row",
    [
        msgspec.structs.replace(ROW, at_ms=2**63),
        msgspec.structs.replace(ROW, seq=-(2**63) - 1),
        msgspec.structs.replace(ROW, principal="\ud800"),
    ],
)
def test_link_refuses_what_storage_cannot_hold(row: TapeRow) -> None:
    """A number over 64 bits or a lone surrogate is our bug, and named as such."""
    with pytest.raises(InvariantBroken, match="cannot be hashed"):
        link(GENESIS, 7, row)


@every_row("size", range(8))
def test_merkle_root_matches_the_published_vectors(size: int) -> None:
    """Roots of the first leaves equal those of the RFC's reference implementation."""
    assert ROOTS[size] == merkle_root(LEAVES[:size]).hex()


@given(st.lists(st.binary(max_size=40), max_size=70))
def test_merkle_root_matches_the_definition(leaves: list[bytes]) -> None:
    """Pairing level by level has the root that the recursive definition gives."""
    assert recursive_root(leaves) == merkle_root(leaves)
