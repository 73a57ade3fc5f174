"""Queries that must not read a whole table have their index."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from palyra.core.journal.changes import RunFilter
from palyra.core.journal.records import RunState
from palyra.core.tape.search import TapeSearch
from palyra.store.sqlite.decoding import DamageNotes
from palyra.store.sqlite.queries import Queries
from palyra.store.sqlite.schema import migrate
from palyra.store.sqlite.tape_search import find_latest, read_codes, search_tape
from tests.rows import every_row

T = TypeVar("T")


class TracedQueries(Queries):
    """Queries of an empty journal, with the plan of each statement."""

    damaged = DamageNotes()

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        migrate(self.connection)
        self.plans: list[str] = []

    def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        statements: list[tuple[str, Any]] = []

        def note(_cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
            statements.append((statement, bindings or ()))
            return True

        self.connection.exec_trace = note
        found = query(self.connection)
        self.connection.exec_trace = None
        for statement, bindings in statements:
            plan = self.connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)
            self.plans += [str(row[3]) for row in plan]
        return found

    def ask(self, query: Callable[..., object], *given: object) -> None:
        """Answer a query of the tape."""
        self._read(lambda connection: query(connection, *given))


FORWARDS, BACKWARDS = TapeSearch(text="x"), TapeSearch(kinds=("run.done",), backwards=True)
OPEN: tuple[RunState, ...] = ("accepted", "in_progress")
QUERIES: dict[str, tuple[str, Callable[[TracedQueries], object]]] = {  # and their index
    "children of a run": (
        "runs_by_parent",
        lambda store: store.list_runs(RunFilter(parent_run_id="run_1")),
    ),
    "children, next page": (
        "runs_by_parent",
        lambda store: store.list_runs(
            RunFilter(principal="ann", parent_run_id="run_1", before="run_9")
        ),
    ),
    "branches": ("runs_by_parent", lambda store: store.list_branches(["run_1", "run_2"])),
    "open runs": ("runs_open", lambda store: store.list_runs(RunFilter(states=OPEN))),
    "open runs, next page": (
        "runs_open",
        lambda store: store.list_runs(RunFilter(states=OPEN[:1], before="run_9")),
    ),
    "runs by name": ("(run_id=?)", lambda store: store.list_runs(RunFilter(run_ids=("run_1",)))),
    "runs before a call": (
        "runs_by_principal",
        lambda store: store.list_runs(RunFilter(principal="ann", before="run_9")),
    ),
    "last events": ("tape_by_run", lambda store: store.ask(find_latest, ["run_1"])),
    "codes of a tape": ("tape_by_run", lambda store: store.ask(read_codes, "run_1")),
    "search in a tape": ("tape_by_run", lambda store: store.ask(search_tape, "run_1", FORWARDS)),
    "search backwards": ("tape_by_run", lambda store: store.ask(search_tape, "run_1", BACKWARDS)),
}
_IS_WHOLE_SCAN = re.compile(r"SCAN (runs|tape|latest)\b(?!.*runs_open)")


@every_row("name", QUERIES)
def test_a_query_is_answered_by_its_index(name: str) -> None:
    """No plan reads all runs or events."""
    store = TracedQueries()
    index, query = QUERIES[name]
    query(store)
    assert any(index in plan for plan in store.plans), store.plans
    assert not any(map(_IS_WHOLE_SCAN.match, store.plans)), store.plans


def test_control_a_query_without_an_index_scans() -> None:
    """The plans are those of the statements: one without a condition reads the table."""
    store = TracedQueries()
    store.list_runs(RunFilter())
    assert any(map(_IS_WHOLE_SCAN.match, store.plans)), store.plans
