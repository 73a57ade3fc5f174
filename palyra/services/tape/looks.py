"""Looks into long tapes: an outline of all of it, and a search in a bounded part.

Both run in a thread of the journal.  Owns: nothing.
"""

from msgspec.structs import replace

from palyra.core.ports import JournalStore
from palyra.core.tape.outline import KINDS, TapeOutline, doubtful, make_outline, without_taint
from palyra.core.tape.search import TapeFound, TapeHit, TapeSearch, find_hit
from palyra.core.tape.taint import brings_taint

MOST_CONFIRMED = 200  # events that are decoded for an outline; one tape has a few of these kinds


def outline_tape(
    store: JournalStore, run_id: str, buckets: int, *, with_codes: bool = False
) -> TapeOutline:
    """Return the outline of a tape.  Blocks: 0.1 s for 100 000 events."""
    floor = store.read_tape(run_id, after_seq=-1, limit=1).floor_seq
    codes = store.read_codes(run_id)
    for at in doubtful(codes)[:MOST_CONFIRMED]:
        if not _is_taint(store, run_id, floor + at):
            codes = codes[:at] + without_taint(codes[at]) + codes[at + 1 :]
    outline = make_outline(run_id, codes, floor=floor, buckets=buckets)
    return replace(outline, kinds=KINDS, codes=codes) if with_codes else outline


def _is_taint(store: JournalStore, run_id: str, seq: int) -> bool:
    rows = store.read_tape(run_id, after_seq=seq - 1, limit=1).rows
    return any(brings_taint(row.kind, row.data) for row in rows)


def search_tape(store: JournalStore, run_id: str, wanted: TapeSearch) -> TapeFound:
    """Return hits up to the limit, of a bounded part of the tape.  Blocks: 0.5 s at most."""
    head_seq = store.read_tape(run_id, after_seq=-1, limit=1).head_seq
    rows, next_seq = store.search_tape(run_id, wanted)
    hits: list[TapeHit] = []
    for row in rows:
        hit = find_hit(row, wanted)
        if hit is None:
            continue
        if len(hits) == wanted.limit:
            next_seq = row.seq
            break
        hits.append(hit)
    return TapeFound(hits=hits, head_seq=head_seq, next_seq=next_seq)
