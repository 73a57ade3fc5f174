"""The contract of both stores about tapes: order, atomicity, repetition, limits, pages."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.core.journal.changes import Change
from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES, TapeRow
from palyra.core.ports import JournalStore
from palyra.errors import InvariantBroken, TooLarge, Unavailable
from tests.store.kit import MakeStore, row, rows, run, seqs


def test_a_fresh_journal_is_empty(make_store: MakeStore) -> None:
    """The first opening finds nothing, and nothing broken."""
    report = make_store().open()
    assert (1, True, 0, None) == (
        report.owner_epoch,
        report.was_clean,
        report.head_position,
        report.verification.first_break,
    )


def test_rows_come_back_as_they_went_in(store: JournalStore) -> None:
    """Every field of a row survives, bytes exactly."""
    strange = row(
        "run_\u2028", 0, principal="\x00é", data=b'{"a":"\\u0000 \xc3\xa9" }', redacted=True
    )
    assert [None] == store.commit([Change(rows=(strange,))])
    assert [strange] == store.read_tape(strange.run_id, after_seq=-1, limit=9).rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    text=st.text(max_size=20),
    at_ms=st.integers(-(2**63), 2**63 - 1),
    data=st.builds(msgspec.json.encode, st.text(max_size=50)),
    redacted=st.booleans(),
)
def test_any_row_is_read_back_unchanged(
    store: JournalStore, text: str, at_ms: int, data: bytes, *, redacted: bool
) -> None:
    """Every row with JSON that can be hashed can be stored and read."""
    run_id = f"run_{text!r}"
    head = store.read_tape(run_id, after_seq=-1, limit=1).head_seq
    wanted = TapeRow(run_id, text, head + 1, at_ms, text, text, redacted=redacted, data=data)
    assert [None] == store.commit([Change(rows=(wanted,))])
    assert [wanted] == store.read_tape(run_id, after_seq=head, limit=1).rows
    assert None is store.verify().first_break


def test_many_runs_in_one_batch(store: JournalStore) -> None:
    """Rows of several runs, appended together over many statements, are each in order."""
    outcomes = store.commit([rows(f"run_{n % 7}", n // 7, 1) for n in range(700)])
    assert [None] * 700 == outcomes
    assert [list(range(100))] * 7 == [seqs(store, f"run_{n}") for n in range(7)]


def test_positions_are_dense_over_all_runs(store: JournalStore) -> None:
    """The place in the journal counts committed rows in the order of their commit."""
    store.commit(
        [rows("run_a", 0, 2), rows("run_b", 0, 1), rows("run_a", 5, 1), rows("run_a", 2, 1)]
    )
    chain = [*store.read_chain("run_a", after_seq=-1, limit=9)]
    chain += store.read_chain("run_b", after_seq=-1, limit=9)
    assert [1, 2, 4, 3] == [link.position for link in chain]


@pytest.mark.parametrize(
    "change",
    [
        rows("run_a", 1, 1),
        rows("run_a", 4, 1),
        Change(rows=(row("run_a", 3), row("run_a", 5))),
        Change(rows=(row("run_a", 3), row("run_b", 4))),
        Change(rows=(row("run_a", 3), row("run_a", 3))),
        Change(rows=(row("run_a", 2, data=b"other"), row("run_a", 3))),
        Change(rows=(row("run_b", -1),)),
        Change(rows=(row("run_b", 0, principal="\udc80"),)),
        Change(rows=(row("run_b", 0, at_ms=2**63),)),
        Change(records=(run("run_a", 3),)),
        Change(rows=(row("run_a", 3),), records=(run("run_a", 4),)),
    ],
    ids=[
        "rewrites",
        "leaves a gap",
        "gap within",
        "two runs",
        "same seq twice",
        "rewrites before it appends",
        "negative seq",
        "not Unicode",
        "time over 64 bits",
        "record ahead of the tape",
        "record ahead of its rows",
    ],
)
def test_a_broken_change_is_refused_alone(store: JournalStore, change: Change) -> None:
    """A change that does not follow its tape is our bug; its neighbours are committed."""
    store.commit([Change(rows=tuple(row("run_a", n, data=b"first") for n in range(3)))])
    before, after = rows("run_y", 0, 1), rows("run_z", 0, 1)
    outcomes = store.commit([before, change, after])
    assert [type(None), InvariantBroken, type(None)] == [type(outcome) for outcome in outcomes]
    assert ([0, 1, 2], [], [0], [0]) == tuple(
        seqs(store, run_id) for run_id in ("run_a", "run_b", "run_y", "run_z")
    )
    assert None is store.find_run("run_a")


def test_neighbours_of_a_broken_change_follow_each_other(store: JournalStore) -> None:
    """Changes of one run on both sides of a refused one are in order, known or new."""
    store.commit([rows("run_a", 0, 1)])
    batch = [rows("run_a", 1, 1), rows("run_c", 0, 1), rows("run_b", 5, 1)]
    batch += [rows("run_a", 2, 1), rows("run_c", 1, 1)]
    refused = [outcome is not None for outcome in store.commit(batch)]
    assert [False, False, True, False, False] == refused
    assert ([0, 1, 2], [0, 1]) == (seqs(store, "run_a"), seqs(store, "run_c"))


def test_changes_behind_a_refused_one_are_refused(store: JournalStore) -> None:
    """A later change of the same run in the batch would leave a gap."""
    outcomes = store.commit([rows("run_a", 1, 1), rows("run_a", 2, 1)])
    assert [InvariantBroken, InvariantBroken] == [type(outcome) for outcome in outcomes]


@pytest.mark.parametrize("reopens", [False, True])
def test_a_repeat_changes_nothing(
    make_store: MakeStore, store: JournalStore, *, reopens: bool
) -> None:
    """Appending committed rows again is a no-op, also for a store that has forgotten them."""
    first = Change(rows=(row("run_a", 0), row("run_a", 1)), records=(run("run_a", 1),))
    second = Change(rows=(row("run_a", 2),), records=(run("run_a", 2, state="done"),))
    store.commit([first, second])
    if reopens:
        store.close()
        store = make_store()
        store.open()
    assert [None, None, None] == store.commit([first, second, first])
    assert [0, 1, 2] == seqs(store, "run_a")
    assert run("run_a", 2, state="done") == store.find_run("run_a")


def test_a_repeat_within_one_batch_changes_nothing(store: JournalStore) -> None:
    """A row that waits for its commit counts as there."""
    twice = rows("run_a", 0, 2)
    assert [None, None] == store.commit([twice, twice])
    assert [0, 1] == seqs(store, "run_a")


def test_a_repeat_may_add_new_rows(store: JournalStore) -> None:
    """Of rows partly committed only the new ones are appended, with their records."""
    store.commit([rows("run_a", 0, 2)])
    longer = Change(rows=rows("run_a", 0, 3).rows, records=(run("run_a", 2),))
    assert [None] == store.commit([longer])
    assert ([0, 1, 2], run("run_a", 2)) == (seqs(store, "run_a"), store.find_run("run_a"))


def test_an_oversize_payload_is_refused_alone(store: JournalStore) -> None:
    """A payload over the limit is refused, naming its size and the limit; one at it is not."""
    fits = Change(rows=(row("run_a", 0, data=b"x" * MAX_PAYLOAD_BYTES),))
    bursts = Change(rows=(row("run_b", 0, data=b"x" * (MAX_PAYLOAD_BYTES + 1)),))
    outcomes = store.commit([fits, bursts])
    assert [type(None), TooLarge] == [type(outcome) for outcome in outcomes]
    assert all(
        word in str(outcomes[1])
        for word in (str(MAX_PAYLOAD_BYTES + 1), str(MAX_PAYLOAD_BYTES), "artifact")
    )


def test_an_empty_commit_is_allowed(store: JournalStore) -> None:
    """A commit of nothing, and a change of nothing, succeed."""
    assert ([], [None]) == (store.commit([]), store.commit([Change()]))


def test_pages_end_at_the_limit(store: JournalStore) -> None:
    """A page holds at most `limit` rows and says where the next begins."""
    store.commit([rows("run_a", 0, 5)])
    page = store.read_tape("run_a", after_seq=0, limit=2)
    assert ([1, 2], 4, 0, 2) == (
        [event.seq for event in page.rows],
        page.head_seq,
        page.floor_seq,
        page.next_after_seq,
    )


def test_the_last_page_has_no_next(store: JournalStore) -> None:
    """At the head there is nothing to come back for."""
    store.commit([rows("run_a", 0, 3)])
    page = store.read_tape("run_a", after_seq=0, limit=2)
    assert ([1, 2], None) == ([event.seq for event in page.rows], page.next_after_seq)


@pytest.mark.parametrize(
    ("max_bytes", "expected"), [(0, [0]), (10, [0]), (20, [0, 1]), (29, [0, 1])]
)
def test_pages_end_before_their_bytes_run_over(
    store: JournalStore, max_bytes: int, expected: list[int]
) -> None:
    """A page stays below `max_bytes` of payload, but holds one row when there is any."""
    store.commit([Change(rows=tuple(row("run_a", n, data=b"x" * 10) for n in range(4)))])
    page = store.read_tape("run_a", after_seq=-1, limit=9, max_bytes=max_bytes)
    assert (expected, 10 * len(expected)) == ([event.seq for event in page.rows], page.size_bytes)


def test_reading_beyond_the_head_finds_nothing(store: JournalStore) -> None:
    """A cursor ahead of the tape gets no rows and the true head; so does an unknown run."""
    store.commit([rows("run_a", 0, 2)])
    pages = [store.read_tape(name, after_seq=7, limit=9) for name in ("run_a", "run_b")]
    assert [([], 1, None), ([], -1, None)] == [
        (page.rows, page.head_seq, page.next_after_seq) for page in pages
    ]


def test_a_reopened_journal_is_continued(make_store: MakeStore, store: JournalStore) -> None:
    """After `close` and `open` all rows exist and the tape grows from its head."""
    store.commit([rows("run_a", 0, 2)])
    store.close()
    store = make_store()
    report = store.open()
    assert (2, True, 2) == (report.owner_epoch, report.was_clean, report.head_position)
    assert [None] == store.commit([rows("run_a", 2, 1)])
    assert [0, 1, 2] == seqs(store, "run_a")


def test_an_unclean_end_is_noticed(store: JournalStore) -> None:
    """Opening without a close before it says so, and loses nothing that was committed."""
    store.commit([rows("run_a", 0, 2)])
    report = store.open()
    assert (False, 2, None) == (
        report.was_clean,
        report.head_position,
        report.verification.first_break,
    )
    assert [0, 1] == seqs(store, "run_a")


def test_a_closed_store_is_unavailable(store: JournalStore) -> None:
    """Neither half works between `close` and `open`."""
    store.close()
    for use in (
        lambda: store.commit([]),
        store.seal,
        store.close,
        lambda: store.read_tape("run_a", after_seq=-1, limit=1),
        store.list_open_runs,
        store.verify,
    ):
        with pytest.raises(Unavailable, match="closed"):
            use()


def test_sealing_signs_what_is_new(store: JournalStore) -> None:
    """A root covers the events since the last one; without any there is no root."""
    assert not store.seal()
    store.commit([rows("run_a", 0, 3)])
    assert [True, False] == [store.seal(), store.seal()]
    store.commit([rows("run_a", 3, 1)])
    report = store.verify()
    assert (4, 1, 4, 3, 0, 0, None, 0, ()) == msgspec.structs.astuple(report)


def test_closing_seals(make_store: MakeStore, store: JournalStore) -> None:
    """After a shutdown every event is signed."""
    store.commit([rows("run_a", 0, 3)])
    store.close()
    store = make_store()
    store.open()
    assert (3, 3) == (store.verify().signed_through_position, store.verify().through_position)


def test_one_run_is_verified_alone(store: JournalStore) -> None:
    """Verifying a run checks its events and only the roots that cover them."""
    for turn in range(4):
        store.commit([rows("run_a", turn, 1)] if turn % 2 else [rows("run_b", turn // 2, 1)])
        if turn == 0:
            store.commit([rows("run_a", 0, 1)])
        store.seal()
    report = store.verify("run_b")
    assert (2, 2, 0, None) == (
        report.checked_events,
        report.checked_roots,
        report.breaks,
        report.first_break,
    )


def test_a_verification_notes_each_signed_root(store: JournalStore) -> None:
    """The last position of each, in order, so that a long one is no silence."""
    notes: list[int] = []
    store.verify(note=notes.append)
    assert [] == notes
    for turn in range(3):
        store.commit([rows("run_a", 2 * turn, 2)])
        store.seal()
    store.commit([rows("run_a", 6, 1)])
    assert store.verify(note=notes.append).first_break is None
    assert [2, 4, 6] == notes


def test_a_repetition_is_recognised_before_its_record_is_checked(
    make_store: MakeStore, store: JournalStore
) -> None:
    """An existing first event makes the change a repetition, whatever its record."""
    store.commit([rows("run_a", 0, 1)])
    store.close()
    store = make_store()
    store.open()
    repeat = Change(rows=rows("run_a", 0, 1).rows, records=(run("run_a", 1),))
    assert [None] == store.commit([repeat])
    assert None is store.find_run("run_a")
