"""Explanation of prompts, from the tapes of their runs.

Owns: nothing.  Talks to: the journal, in a reader's thread.
"""

from palyra.core.context.views import ContextExplained, explain_context
from palyra.core.ports import JournalStore
from palyra.core.tape.events import ContextAssembled, TurnStarted, read_events
from palyra.errors import NotFound

PAGE_ROWS = 1_000
_KINDS = frozenset({ContextAssembled.KIND, TurnStarted.KIND})


def find_context(store: JournalStore, run_id: str, turn: int | None) -> ContextExplained:
    """Return the explanation of the last attempt at a turn, of the last turn for None.  Blocks.

    Raises NotFound for a turn without a prompt.
    """
    assembled: ContextAssembled | None = None
    started: TurnStarted | None = None
    after_seq: int | None = -1
    while after_seq is not None:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        for _, event in read_events(row for row in page.rows if row.kind in _KINDS):
            if isinstance(event, ContextAssembled) and turn in {None, event.turn}:
                assembled, started = event, None
            elif isinstance(event, TurnStarted) and turn in {None, event.turn}:
                started = event
        after_seq = page.next_after_seq
    if assembled is None:
        which = "a prompt yet" if turn is None else f"a turn {turn}"
        raise NotFound(f"{run_id} does not have {which}", field="turn")
    return explain_context(run_id, assembled, started)
