"""Readings of the metrics page, which `palyra.net.http.pages` renders.

Pure functions of snapshots.  A label never carries an id, a name or a text that a client chose:
the number of time series stays fixed, and nothing crosses principals.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from palyra.actors.kernel.child import ChildSnapshot
from palyra.actors.kernel.loop_lag import LoopLag
from palyra.core.incident.incident import SEVERITIES
from palyra.core.journal.records import BudgetMetric, BudgetScope
from palyra.core.model.circuit_breaker import State as BreakerState
from palyra.core.model.routing import ProviderHealth
from palyra.core.ports import Journal
from palyra.net.protocol.notifications import State
from palyra.net.server.listener import EdgeCounters
from palyra.services.usage.budgets import Budgets


@dataclass(frozen=True, slots=True)
class Metric:
    """One number; `is_total` marks a counter, which only grows."""

    name: str
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    is_total: bool = False


Source = Callable[[], Iterable[Metric]]


def read_state(state: State) -> Iterator[Metric]:
    """The state of the daemon: 1 for the current one, 0 for the others."""
    for name in get_args(State):
        yield Metric(
            "palyra_state", "State of the daemon.", float(name == state), (("state", name),)
        )


def read_journal(journal: Journal) -> Iterator[Metric]:
    """Health and backlog of the journal."""
    yield Metric(
        "palyra_journal_backlog_rows", "Events that are not committed yet.", journal.backlog
    )
    yield Metric(
        "palyra_journal_writable",
        "1 if commits succeed, 0 while they fail, for example on a full disk.",
        journal.is_writable,
    )


def read_stranded(count: int) -> Iterator[Metric]:
    """Open runs that cannot be resumed."""
    yield Metric("palyra_runs_stranded", "Open runs that cannot be resumed.", count)


def read_problems(count: int) -> Iterator[Metric]:
    """Problems for the operator; `system.status` describes them."""
    yield Metric("palyra_problems", "Problems that an operator has to repair.", count)


def read_incidents(severities: Mapping[str, int]) -> Iterator[Metric]:
    """Open incidents by severity."""
    for severity in SEVERITIES:
        yield Metric(
            "palyra_incidents_open",
            "Unresolved incidents.",
            severities.get(severity, 0),
            (("severity", severity),),
        )


def read_loop(lag: LoopLag) -> Iterator[Metric]:
    """Lag of the event loop."""
    yield Metric("palyra_loop_lag_seconds", "Delay of the last timer.", lag.last_s)
    yield Metric(
        "palyra_loop_lag_max_seconds", "Largest delay of a timer in the last minute.", lag.worst_s
    )


def read_budgets(budgets: Budgets) -> Iterator[Metric]:
    """Sums of the budget accounts of each scope, without their owners."""
    now_ms = budgets.now_ms()
    for scope in get_args(BudgetScope):
        own = [each for each in budgets.accounts if each.budget.scope == scope]
        for metric in get_args(BudgetMetric):
            found = [each for each in own if each.budget.metric == metric]
            labels = (("scope", scope), ("metric", metric))
            spent = sum(each.spent(now_ms) for each in found)
            reserved = sum(each.reserved for each in found)
            yield Metric(
                "palyra_budget_spent", "Amount spent in the current windows.", spent, labels
            )
            yield Metric(
                "palyra_budget_reserved", "Amount reserved for calls in progress.", reserved, labels
            )
        whose = (("scope", scope),)
        refused, alerts = budgets.refusals[scope], budgets.alerts[scope]
        yield _total("palyra_budget_refusals", "Calls refused because of a budget.", refused, whose)
        yield _total(
            "palyra_budget_alerts", "Soft or hard limits that were reached.", alerts, whose
        )


def read_models(standings: Iterable[ProviderHealth]) -> Iterator[Metric]:
    """Breaker state and calls of each configured provider."""
    for each in standings:
        labels = (("provider", each.provider),)
        for name in get_args(BreakerState):
            yield Metric(
                "palyra_model_breaker",
                "State of the worst circuit breaker of a provider's models: 1 for the current state.",
                float(name == each.breaker),
                (*labels, ("state", name)),
            )
        yield Metric("palyra_model_calls", "Calls in progress.", each.under_way, labels)
        yield Metric(
            "palyra_model_calls_waiting", "Calls waiting for a free slot.", each.waiting, labels
        )


def read_tally(tally: EdgeCounters) -> Iterator[Metric]:
    """Connections, and the reasons why some were not served."""
    yield _total("palyra_connections_accepted", "Accepted connections.", tally.accepted)
    yield _total(
        "palyra_accept_errors",
        "Failed accept calls, for example for lack of file descriptors.",
        tally.accept_errors,
    )
    yield _total(
        "palyra_connections_turned_away", "Connections refused above the limit.", tally.turned_away
    )
    yield _total(
        "palyra_connections_silent",
        "Connections that ended before a complete request.",
        tally.silent,
    )
    yield _total("palyra_websockets_opened", "WebSocket upgrades accepted.", tally.websockets)
    yield _total("palyra_http_connections", "Plain HTTP connections.", tally.http_connections)
    for status, count in sorted(tally.refused.items()):
        labels = (("status", str(status)),)
        yield _total(
            "palyra_requests_refused",
            "Connections refused before the protocol started.",
            count,
            labels,
        )


def read_tree(root: ChildSnapshot) -> Iterator[Metric]:
    """The supervision tree by kind of actor: `run:…` counts as run, whatever its id."""
    kinds: dict[str, list[ChildSnapshot]] = defaultdict(list)
    for child in _walk(root):
        kinds[child.id.partition(":")[0]].append(child)
    for kind, children in sorted(kinds.items()):
        yield from _read_kind((("kind", kind),), children)


def _walk(child: ChildSnapshot) -> Iterator[ChildSnapshot]:
    yield child
    for below in child.children:
        yield from _walk(below)


def _read_kind(
    labels: tuple[tuple[str, str], ...], children: list[ChildSnapshot]
) -> Iterator[Metric]:
    alive = sum(child.state != "ended" for child in children)
    restarts = sum(child.restarts for child in children)
    depths = [child.mailbox_depth for child in children if child.mailbox_depth is not None]
    yield Metric("palyra_actors", "Actors in the supervision tree.", alive, labels)
    # A gauge: the restarts of an actor leave the tree together with it.
    yield Metric(
        "palyra_actor_restarts", "Restarts of the actors that are in the tree.", restarts, labels
    )
    if depths:
        yield Metric(
            "palyra_mailbox_depth", "Messages waiting in all mailboxes.", sum(depths), labels
        )
        yield Metric(
            "palyra_mailbox_depth_max",
            "Messages waiting in the fullest mailbox.",
            max(depths),
            labels,
        )


def _total(
    name: str, help_text: str, value: float, labels: tuple[tuple[str, str], ...] = ()
) -> Metric:
    return Metric(name, help_text, value, labels, is_total=True)
