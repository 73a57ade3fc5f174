"""Payloads that are no event: each is Damaged, and readers of a list leave it out."""

import pytest

from palyra.core.journal.damaged_row import is_json, make_mark
from palyra.core.journal.tape_row import TapeRow
from palyra.core.tape.events import (
    KINDS,
    RunDone,
    RunStarted,
    decode_event,
    decode_row,
    encode_event,
    read_events,
)
from palyra.core.tape.taint import TAINTING, read_taint
from palyra.errors import Damaged

DONE = RunDone(reason="completed")
NO_JSON = (b"", b"{bro", b'{"a":"\xff"}', b"[" * 9_000, b"\x00\x00", b"{} {}")


def row(seq: int, kind: str, data: bytes) -> TapeRow:
    return TapeRow("run_a", "ses_a", seq, 1, kind, "ann", redacted=False, data=data)


@pytest.mark.parametrize("data", NO_JSON)
def test_a_payload_that_is_no_json_is_damaged_for_every_kind(data: bytes) -> None:
    """Its mark is JSON, and as damaged as it is itself, also for a kind whose members all have defaults."""
    assert not is_json(data)
    assert is_json(make_mark(data))
    for kind in KINDS:
        for stored in (data, make_mark(data)):
            with pytest.raises(Damaged):
                decode_event(kind, stored)


def test_an_unknown_kind_is_damaged() -> None:
    """Its error names the kind."""
    with pytest.raises(Damaged, match=r"'run\.vanished'"):
        decode_event("run.vanished", b"{}")


def test_a_row_of_another_kind_is_damaged() -> None:
    """A reader that wants one kind of event gets no other."""
    done = row(3, RunDone.KIND, encode_event(DONE))
    assert DONE == decode_row(done, RunDone)
    with pytest.raises(Damaged, match="event 3 of run_a"):
        decode_row(done, RunStarted)


def test_a_damaged_event_costs_itself_alone() -> None:
    """The events around it are read."""
    done = row(2, RunDone.KIND, encode_event(DONE))
    damaged = row(1, RunDone.KIND, b"{bro")
    assert [(done, DONE)] == list(read_events([damaged, done]))


@pytest.mark.parametrize("kind", sorted(TAINTING))
def test_a_damaged_event_that_may_taint_taints(kind: str) -> None:
    """What cannot be read is not trusted."""
    assert [1] == [source.seq for source in read_taint([row(1, kind, b"{bro")])]
