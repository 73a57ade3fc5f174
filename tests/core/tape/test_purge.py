"""The proof of a purge, and what decoding a purged payload says."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.purged_row import PREFIX, make_tombstone
from palyra.core.journal.tape_row import TapeRow
from palyra.core.tape.events import KINDS, RunPurged, decode_event, encode_event
from palyra.core.tape.purge import (
    MISMATCH,
    UNRECORDED,
    UNSIGNED,
    Link,
    RowsDigest,
    claim,
    find_fault,
)
from palyra.errors import Damaged, Purged
from tests.rows import every_row
from tests.store.kit import row

AT_MS = 99
HASH = bytes(32)


def is_signed(message: bytes, signature: bytes) -> bool:
    return signature == message[::-1]


def purged(count: int = 3) -> list[Link]:
    """A run with payloads replaced and the record of it."""
    links: list[Link] = [(seq + 1, HASH, row("run_a", seq)) for seq in range(count)]
    digest = RowsDigest()
    for link in links:
        digest.add(link)
    event = RunPurged(purge_id="p", by="b", events=count, digest=digest.hexdigest(), signature="")
    signature = claim("run_a", event, AT_MS)[::-1].hex()
    data = encode_event(msgspec.structs.replace(event, signature=signature))
    last = row("run_a", count, kind=RunPurged.KIND, data=data, at_ms=AT_MS)
    return [*(blank(link) for link in links), (count + 1, HASH, last)]


def blank(link: Link, at_ms: int = AT_MS) -> Link:
    return (
        link[0],
        link[1],
        msgspec.structs.replace(link[2], data=make_tombstone(link[2].data, at_ms)),
    )


def changed(link: Link, **fields: object) -> Link:
    return link[0], link[1], msgspec.structs.replace(link[2], **fields)


def test_a_recorded_purge_is_proven() -> None:
    """The digest is the same before and after the payloads went."""
    assert None is find_fault("run_a", purged(), is_signed)


@every_row(
    "fields",
    [
        {"kind": "x"},
        {"principal": "bob"},
        {"at_ms": 5},
        {"session_id": "ses_x"},
        {"redacted": True},
        {"data": make_tombstone(b"other", AT_MS)},
        {"data": make_tombstone(b'{"n":0}', AT_MS + 1)},
    ],
)
def test_an_edit_of_a_purged_row_is_no_longer_proven(fields: dict[str, object]) -> None:
    """Every field of every row is part of the proof."""
    first, *rest = purged()
    assert MISMATCH == find_fault("run_a", [changed(first, **fields), *rest], is_signed)


def test_rows_without_their_record_are_not_proven() -> None:
    """A lost record, a lost row, an undecodable record and a foreign signature prove nothing."""
    links = purged()
    assert UNRECORDED == find_fault("run_a", [], is_signed)
    assert UNRECORDED == find_fault("run_a", links[:-1], is_signed)
    assert UNRECORDED == find_fault(
        "run_a", [*links[:-1], changed(links[-1], data=b"{")], is_signed
    )
    assert MISMATCH == find_fault("run_a", links[1:], is_signed)
    assert MISMATCH == find_fault("run_a", [(9, HASH, links[0][2]), *links[1:]], is_signed)
    assert UNSIGNED == find_fault("run_b", links, is_signed)
    assert UNSIGNED == find_fault("run_a", links, lambda *_: False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_purged_payload_of_any_kind_says_so(kind: str) -> None:
    """Decoding raises an error with the day, whatever the event was."""
    with pytest.raises(Purged, match="purged on 1970-01-01"):
        decode_event(kind, make_tombstone(b"{}", AT_MS))


@pytest.mark.parametrize("kind", KINDS)
def test_no_event_looks_purged(kind: str) -> None:
    """No kind has a first field of the name that marks a purged payload."""
    first = msgspec.structs.fields(KINDS[kind])[0].encode_name
    assert not PREFIX.startswith(b'{"%b"' % first.encode())


def test_a_damaged_payload_is_not_purged() -> None:
    """Another payload that does not fit its kind is damaged."""
    with pytest.raises(Damaged):
        decode_event(RunPurged.KIND, b"{}")


@given(st.text(max_size=9), st.text(max_size=9))
def test_fields_do_not_run_into_each_other(left: str, right: str) -> None:
    """Moving text between neighbouring fields changes the digest."""
    assert _digest("ses" + left, right) != _digest("ses", left + right) or not left


def _digest(session_id: str, kind: str) -> str:
    digest = RowsDigest()
    digest.add((1, HASH, TapeRow("run_a", session_id, 0, 1, kind, "p", redacted=False, data=b"")))
    return digest.hexdigest()
