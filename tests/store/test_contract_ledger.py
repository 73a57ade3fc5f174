"""The contract of both stores about the ledger and the budgets."""

from palyra.core.journal.changes import Change, UsageFilter, UsageSum
from palyra.core.ports import JournalStore
from tests.store.kit import budget, row, usage
from tests.store.test_contract_records import put

HOUR_MS = 3_600_000


def put_some(store: JournalStore) -> None:
    """Three runs of two principals, over two hours."""
    lines = (
        usage("run_a", 1, at_ms=10, cost_usd_micros=5),
        usage("run_a", 2, at_ms=20, outcome="failed", input_tokens=0, output_tokens=0),
        usage("run_b", 1, at_ms=HOUR_MS, model="p/m", cost_usd_micros=None, cached_tokens=3),
        usage("run_c", 1, at_ms=HOUR_MS + 1, principal="bob", agent="other", is_estimate=True),
    )
    assert [None] == store.commit([Change(records=lines)])


def sums(found: list[UsageSum]) -> list[tuple[str, int, int, int]]:
    return [(each.key, each.from_ms, each.calls, each.input_tokens) for each in found]


def test_all_of_it(store: JournalStore) -> None:
    """One sum, with what is not known counted and not guessed."""
    put_some(store)
    assert [
        UsageSum(
            last_ms=HOUR_MS + 1,
            calls=4,
            broken_calls=1,
            estimated_calls=1,
            unpriced_calls=1,
            input_tokens=30,
            cached_tokens=3,
            output_tokens=6,
            cost_usd_micros=5,
        )
    ] == store.sum_usage(UsageFilter())


def test_nothing_is_no_group(store: JournalStore) -> None:
    """An empty ledger, or a filter nothing fits, has no sums."""
    assert [] == store.sum_usage(UsageFilter())
    put_some(store)
    assert [] == store.sum_usage(UsageFilter(principal="nobody"))


def test_groups(store: JournalStore) -> None:
    """By principal, agent, session, run and model, in the order of the keys."""
    put_some(store)
    assert [("alice", 0, 3, 20), ("bob", 0, 1, 10)] == sums(
        store.sum_usage(UsageFilter(), "principal")
    )
    assert [("default", 0, 3, 20), ("other", 0, 1, 10)] == sums(
        store.sum_usage(UsageFilter(), "agent")
    )
    assert ["ses_run_a", "ses_run_b", "ses_run_c"] == [
        each.key for each in store.sum_usage(UsageFilter(), "session")
    ]
    assert ["run_a", "run_b"] == [
        each.key for each in store.sum_usage(UsageFilter(), "run", limit=2)
    ]
    assert [("p/m", 0, 1, 10), ("scripted", 0, 3, 20)] == sums(
        store.sum_usage(UsageFilter(), "model")
    )


def test_sums_by_period(store: JournalStore) -> None:
    """With a grain each group is divided by period, and has its newest call."""
    put_some(store)
    found = store.sum_usage(UsageFilter(), "principal", grain_ms=HOUR_MS)
    assert [("alice", 0, 2, 10), ("alice", HOUR_MS, 1, 10), ("bob", HOUR_MS, 1, 10)] == sums(found)
    assert [20, HOUR_MS, HOUR_MS + 1] == [each.last_ms for each in found]


def test_a_family_of_models(store: JournalStore) -> None:
    """A beginning and `*`, as in prices; nothing else in a name means more than itself."""
    put_some(store)
    found = {
        model: [line.run_id for line in store.list_usage(UsageFilter(model=model), limit=9)]
        for model in ("p/*", "p/m*", "p*m", "%*", "scrip*", "*")
    }
    some = ["run_c", "run_a", "run_a"]
    everything = ["run_c", "run_b", "run_a", "run_a"]
    one = ["run_b"]
    assert {"p/*": one, "p/m*": one, "p*m": [], "%*": [], "scrip*": some, "*": everything} == found


def test_filters(store: JournalStore) -> None:
    """Each narrows; the end of a range is not in it."""
    put_some(store)
    wanted = [
        UsageFilter(principal="alice"),
        UsageFilter(agent="other"),
        UsageFilter(session_id="ses_run_a"),
        UsageFilter(run_id="run_b"),
        UsageFilter(model="p/m"),
        UsageFilter(since_ms=20),
        UsageFilter(until_ms=20),
        UsageFilter(since_ms=11, until_ms=HOUR_MS),
    ]
    found = [
        [(line.run_id, line.turn) for line in store.list_usage(each, limit=9)] for each in wanted
    ]
    assert [
        [("run_b", 1), ("run_a", 2), ("run_a", 1)],
        [("run_c", 1)],
        [("run_a", 2), ("run_a", 1)],
        [("run_b", 1)],
        [("run_b", 1)],
        [("run_c", 1), ("run_b", 1), ("run_a", 2)],
        [("run_a", 1)],
        [("run_a", 2)],
    ] == found
    assert [sum(each.calls for each in store.sum_usage(one)) for one in wanted] == [
        len(lines) for lines in found
    ]


def test_a_line_is_written_once(store: JournalStore) -> None:
    """The same again is no second call; another one for the same call is refused."""
    line = usage("run_a", 1)
    assert [None, None, "Conflict"] == put(store, line, line, usage("run_a", 1, output_tokens=9))
    assert [line] == store.list_usage(UsageFilter(), limit=9)


def test_a_line_is_committed_with_its_event(store: JournalStore) -> None:
    """A refused change leaves no line, a repeated one no second line."""
    answered = Change(rows=(row("run_a", 0),), records=(usage("run_a", 1),))
    behind_a_gap = Change(rows=(row("run_b", 5),), records=(usage("run_b", 1),))
    outcomes = store.commit([answered, behind_a_gap, answered])
    assert [True, False, True] == [outcome is None for outcome in outcomes]
    assert ["run_a"] == [line.run_id for line in store.list_usage(UsageFilter(), limit=9)]


def test_budgets_change_in_turn(store: JournalStore) -> None:
    """A change of something that was changed meanwhile is refused; deleted ones are not listed."""
    second = budget("day", revision=2, hard=7)
    assert [None, None, "Conflict", None] == put(
        store, budget("day"), budget("month"), budget("day", revision=3), second
    )
    assert [second, budget("month")] == store.list_budgets()
    gone = budget("month", revision=2, deleted_ms=5)
    assert [None] == put(store, gone)
    assert ([second], gone, None) == (
        store.list_budgets(),
        store.find_budget("month"),
        store.find_budget("week"),
    )
