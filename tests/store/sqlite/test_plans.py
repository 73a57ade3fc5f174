"""Queries that must not read a whole table have their index."""

from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from palyra.core.journal.changes import RunFilter
from palyra.store.sqlite.decoding import DamageNotes
from palyra.store.sqlite.queries import Queries
from palyra.store.sqlite.schema import migrate
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


QUERIES: dict[str, Callable[[Queries], object]] = {
    "children of a run": lambda store: store.list_runs(RunFilter(parent_run_id="run_1")),
    "children, next page": lambda store: store.list_runs(
        RunFilter(principal="ann", parent_run_id="run_1", before="run_9")
    ),
    "branches": lambda store: store.list_branches(["run_1", "run_2"]),
}


@every_row("name", QUERIES)
def test_runs_below_a_run_are_found_by_their_index(name: str) -> None:
    """No plan scans the runs."""
    store = TracedQueries()
    QUERIES[name](store)
    assert any("runs_by_parent" in plan for plan in store.plans), store.plans
    assert not any(plan.startswith("SCAN runs") for plan in store.plans), store.plans


def test_control_a_query_without_an_index_scans() -> None:
    """The plans are those of the statements: one without a condition reads the table."""
    store = TracedQueries()
    store.list_runs(RunFilter())
    assert any(plan.startswith("SCAN runs") for plan in store.plans), store.plans
