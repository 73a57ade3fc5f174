"""What every store promises about codes and searches of a tape; the store in memory is the model."""

import msgspec
import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.purged_row import make_tombstone
from palyra.core.ports import JournalStore
from palyra.core.tape import events as ev
from palyra.core.tape.outline import code_of
from palyra.core.tape.search import TapeSearch
from palyra.services.tape.looks import outline_tape, search_tape
from palyra.store.sqlite import tape_search as module
from tests.store.kit import row

pytestmark = pytest.mark.real
EVENTS: tuple[ev.Event, ...] = (
    ev.ToolProposed(
        call_id="c1", tool="t", arguments={"findings": ["x"], "status": "failed"}, digest="",
        tool_class="read_only",
    ),
    ev.ToolDecided(
        call_id="c1", verdict="deny", reason_code="r", reason="no", policies=(), policy_version="",
    ),
    ev.ToolCompleted(call_id="c1", status="failed", output='50% of_it\\n "Quoted" ÄÖ', findings=("h",)),
    ev.ToolCompleted(call_id="c2", status="succeeded", output='"findings":["x"]'),
    ev.GuardWarned(rule="denial", call="again c2", count=3, guidance="stop"),
    ev.RunRecovered(attempt=1, from_seq=4),
)  # fmt: skip


def fill(store: JournalStore, repeats: int = 1) -> list[ev.Event]:
    events = [*EVENTS] * repeats
    rows = tuple(
        row("run_a", seq, kind=each.KIND, data=ev.encode_event(each))
        for seq, each in enumerate(events)
    )
    assert [None, None] == store.commit([Change(rows=rows), Change(rows=(row("run_b", 0),))])
    return events


def test_codes_are_those_of_the_events(store: JournalStore) -> None:
    """The statement and the function agree on each event; a run without events has none."""
    events = fill(store)
    assert "".join(code_of(each.KIND, ev.encode_event(each)) for each in events) == (
        store.read_codes("run_a")
    )
    assert not store.read_codes("run_x")
    outline = outline_tape(store, "run_a", 2)
    assert (0, len(events) - 1, "run_a") == (outline.floor, outline.head, outline.run_id)
    assert (None, None) == (outline.kinds, outline.codes)


def test_an_outline_names_each_event_on_request(store: JournalStore) -> None:
    """A client finds the kind of an event and its failure by the code alone."""
    events = fill(store)
    outline = outline_tape(store, "run_a", 2, with_codes=True)
    assert outline.kinds is not None
    assert outline.codes is not None
    numbers = [ord(code) - 256 for code in outline.codes]
    assert [each.KIND for each in events] == [outline.kinds[number >> 2] for number in numbers]
    assert [0, 1, 1, 0, 0, 0] == [number & 1 for number in numbers]


def test_attachments_do_not_taint(store: JournalStore) -> None:
    """A message whose attachment has the field of a finding is looked at, and is not marked."""
    message = ev.MessageReceived(text="hi", attachments=({"type": "x", "findings": ["y"]},))
    inherited = ev.RunStarted.KIND
    rows = (
        row("run_a", 0, kind=message.KIND, data=ev.encode_event(message)),
        row("run_a", 1, kind=inherited, data=b'{"is_tainted":true}'),
    )
    store.commit([Change(rows=rows)])
    marks = [(each.mark, each.seq) for each in outline_tape(store, "run_a", 10).marks]
    assert ("taint", 0) not in marks
    found = search_tape(store, "run_a", TapeSearch(marks=("taint",)))
    assert [1] == [hit.seq for hit in found.hits]  # damaged, so it may have brought some
    whole = search_tape(store, "run_a", TapeSearch())
    assert [(), ("taint",)] == [hit.marks for hit in whole.hits]


@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        (TapeSearch(), [0, 1, 2, 3, 4, 5]),
        (TapeSearch(text="50% OF_it\\n"), [2]),
        (TapeSearch(text="50x"), []),
        (TapeSearch(text='"quoted" ÄÖ'), [2]),
        (TapeSearch(text="'; DROP TABLE tape; --"), []),
        (TapeSearch(kinds=("tool.completed",)), [2, 3]),
        (TapeSearch(kinds=("tool.completed",) * 40_000), [2, 3]),
        (TapeSearch(call_id="c2"), [3]),
        (TapeSearch(marks=("failure", "denial")), [1, 2]),
        (TapeSearch(marks=("taint",)), [2]),
        (TapeSearch(from_seq=3), [3, 4, 5]),
        (TapeSearch(from_seq=3, backwards=True), [3, 2, 1, 0]),
        (TapeSearch(backwards=True, limit=2), [5, 4]),
        (TapeSearch(from_seq=99), []),
    ],
)
def test_a_search_finds_what_fits(store: JournalStore, wanted: TapeSearch, seqs: list[int]) -> None:
    """Each filter and direction finds the same events in both stores, whatever text is asked."""
    fill(store)
    found = search_tape(store, "run_a", wanted)
    assert seqs == [hit.seq for hit in found.hits]
    assert len(EVENTS) - 1 == found.head_seq


def test_a_payload_that_is_too_deep_costs_itself(store: JournalStore) -> None:
    """A search shows such an event, finds no text in it, and goes on behind it."""
    deep = b'{"a":' + b"[" * 100_000 + b'"port"' + b"]" * 100_000 + b"}"
    sound = b'{"a":"port"}'
    rows = [row("run_a", seq, data=data) for seq, data in enumerate((deep, sound))]
    store.commit([Change(rows=tuple(rows))])
    for wanted, seqs in ((TapeSearch(), [0, 1]), (TapeSearch(text="port"), [1])):
        assert seqs == [hit.seq for hit in search_tape(store, "run_a", wanted).hits]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("text", ["", "again", "c1", "nothing"])
def test_pages_of_a_search_are_the_whole_search(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch, text: str, *, backwards: bool
) -> None:
    """However small parts and pages are, going on at `next_seq` finds each event once and ends."""
    monkeypatch.setattr(module, "PARTS", ((2, 10_000), (3, 200)))
    monkeypatch.setattr(module, "MAX_CANDIDATES", 2)
    fill(store, repeats=5)
    wanted = TapeSearch(text=text, backwards=backwards, limit=100)
    with monkeypatch.context() as whole:
        whole.setattr(module, "PARTS", ((1_000, 10**9),))
        whole.setattr(module, "MAX_CANDIDATES", 1_000)
        expected = [hit.seq for hit in search_tape(store, "run_a", wanted).hits]
    seqs, cursor, pages = list[int](), wanted.from_seq, 0
    while pages == 0 or cursor is not None:
        page = msgspec.structs.replace(wanted, from_seq=cursor, limit=3)
        found = search_tape(store, "run_a", page)
        seqs += [hit.seq for hit in found.hits]
        cursor, pages = found.next_seq, pages + 1
        assert pages < 100
    assert expected == seqs


def test_the_latest_event_of_each_run(store: JournalStore) -> None:
    """Kind and time of the last event; a run without events has no entry."""
    fill(store)
    found = store.find_latest(["run_a", "run_b", "run_x"])
    assert {"run_a": EVENTS[-1].KIND, "run_b": row("run_b", 0).kind} == {
        run_id: kind for run_id, (kind, _) in found.items()
    }
    assert row("run_b", 0).at_ms == found["run_b"][1]


def test_a_purged_event_is_no_failure(store: JournalStore) -> None:
    """How a call ended is not known without its payload; one that only quotes a tombstone is a failure."""
    done = ev.ToolCompleted(call_id="c1", status="succeeded", output="")
    quoted = ev.ToolCompleted(call_id="c1", status="failed", output='{"purged":{')
    rows = (
        row("run_a", 0, kind=done.KIND, data=make_tombstone(ev.encode_event(done), 7)),
        row("run_a", 1, kind=ev.ToolDecided.KIND, data=make_tombstone(b"{}", 7)),
        row("run_a", 2, kind=quoted.KIND, data=ev.encode_event(quoted)),
    )
    store.commit([Change(rows=rows)])
    assert "".join(code_of(each.kind, each.data) for each in rows) == store.read_codes("run_a")
    assert [2] == [each.seq for each in outline_tape(store, "run_a", 10).marks]
    found = search_tape(store, "run_a", TapeSearch(marks=("failure", "denial")))
    assert [2] == [hit.seq for hit in found.hits]
