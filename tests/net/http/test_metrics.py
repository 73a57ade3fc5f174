"""Readings: pure functions of snapshots, with a fixed number of time series."""

from collections import Counter
from dataclasses import dataclass

from palyra.actors.hub import Hub
from palyra.actors.kernel.child import ChildSnapshot
from palyra.actors.kernel.loop_lag import LoopLag
from palyra.core.journal.changes import UsageSum
from palyra.core.journal.records import BudgetRecord
from palyra.core.model.routing import ProviderHealth
from palyra.core.usage.prices import Prices
from palyra.net.http.metrics import (
    Metric,
    read_budgets,
    read_incidents,
    read_journal,
    read_loop,
    read_models,
    read_state,
    read_stranded,
    read_tally,
    read_tree,
)
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.net.protocol.notifications import State
from palyra.net.server.listener import EdgeCounters
from palyra.services.usage.budgets import Budgets
from palyra.services.usage.sums import open_accounts
from tests.rows import every_row


@dataclass
class FakeJournal:
    backlog: int
    is_writable: bool


def values(readings: list[Metric], name: str) -> dict[str, float]:
    """Label value to number, of one metric."""
    return {
        "".join(value for _, value in reading.labels): reading.value
        for reading in readings
        if reading.name == name
    }


@every_row("state", ["starting", "ready", "draining"])
def test_exactly_one_state_is_one(state: State) -> None:
    """Each state has a series; that of the present one is 1."""
    found = values(list(read_state(state)), "palyra_state")
    assert {"starting", "ready", "draining"} == set(found)
    assert {state} == {name for name, value in found.items() if value == 1}


def test_journal_readings() -> None:
    """The backlog, and whether commits succeed."""
    journal = FakeJournal(7, is_writable=False)
    found = list(read_journal(journal))  # type: ignore[arg-type]  # it has all that is read
    assert {"": 7} == values(found, "palyra_journal_backlog_rows")
    assert {"": 0} == values(found, "palyra_journal_writable")


def test_incidents_by_severity() -> None:
    """Each severity has a series, also where there is none."""
    found = list(read_incidents({"critical": 2}))
    assert {"warning": 0, "error": 0, "critical": 2} == values(found, "palyra_incidents_open")


def test_stranded_readings() -> None:
    """The metric has the number of stranded runs and no id."""
    (reading,) = read_stranded(2)
    assert ("palyra_runs_stranded", 2, ()) == (reading.name, reading.value, reading.labels)


def test_model_readings() -> None:
    """A series for each provider and state; models have none, for there may be any number."""
    standings = [
        ProviderHealth(provider="a", breaker="open", admits=False, waiting=3),
        ProviderHealth(provider="b", under_way=2),
    ]
    found = list(read_models(standings))
    assert {"aopen", "bclosed"} == {
        name for name, value in values(found, "palyra_model_breaker").items() if value
    }
    assert {"a": 0, "b": 2} == values(found, "palyra_model_calls")
    assert {"a": 3, "b": 0} == values(found, "palyra_model_calls_waiting")
    assert 2 * (3 + 2) == len(found)


def test_loop_readings() -> None:
    """The last lag and the worst, zero before the first sample."""
    found = list(read_loop(LoopLag()))
    assert {"": 0.0} == values(found, "palyra_loop_lag_seconds")
    assert {"": 0.0} == values(found, "palyra_loop_lag_max_seconds")


def test_budget_readings_name_no_one() -> None:
    """Sums by scope and metric, whatever the budgets and subjects are called."""
    prices, limit = Prices(), {"metric": "tokens", "window": "day", "hard": 9}
    budgets = Budgets(Hub(encode_notification), lambda: 1_000, prices=prices)
    for n in range(3):
        budget = BudgetRecord(budget_id=f"b{n}", scope="agent", **limit)  # type: ignore[arg-type]
        sums = [UsageSum(key=f"agent {n}", input_tokens=4, last_ms=5)]
        budgets.enforce(budget, open_accounts(budget, sums, 1_000))
    budgets.refusals["agent"] += 2
    found = list(read_budgets(budgets))
    assert len(
        list(read_budgets(Budgets(Hub(encode_notification), lambda: 0, prices=prices)))
    ) == len(found)
    assert 12 == values(found, "palyra_budget_spent")["agenttokens"]
    assert 0 == values(found, "palyra_budget_reserved")["agenttokens"]
    assert {"agent": 2, "global": 0} == {
        scope: count
        for scope, count in values(found, "palyra_budget_refusals").items()
        if scope in {"agent", "global"}
    }


def test_tally_readings_are_totals() -> None:
    """Refusals are counted by status; everything of the tally only grows."""
    tally = EdgeCounters(accepted=5, refused=Counter({403: 2, 400: 1}))
    found = list(read_tally(tally))
    assert {"400": 1, "403": 2} == values(found, "palyra_requests_refused")
    assert {"": 5} == values(found, "palyra_connections_accepted")
    assert all(reading.is_total for reading in found)


def make_child(child_id: str, depth: int | None = None, restarts: int = 0) -> ChildSnapshot:
    return ChildSnapshot(
        id=child_id, state="running", incarnation=1, restarts=restarts, mailbox_depth=depth
    )


def test_number_of_series_does_not_grow_with_actors() -> None:
    """A thousand runs are one kind; nothing of their ids shows."""
    runs = tuple(make_child(f"run:{number}", depth=number) for number in range(1_000))
    root = ChildSnapshot(
        id="daemon", state="running", incarnation=1, restarts=0, children=(*runs, make_child("hub"))
    )
    found = list(read_tree(root))
    assert {"daemon": 1, "hub": 1, "run": 1_000} == values(found, "palyra_actors")
    assert {"run": 999} == values(found, "palyra_mailbox_depth_max")
    assert len(found) < 12
    assert "run:1" not in str(found)
