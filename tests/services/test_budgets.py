"""Budgets on virtual time: real runs against real accounts, and a ledger that survives crashes."""

from collections.abc import Callable
from datetime import date
from itertools import product
from typing import Any, get_args

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.actors.hub import Hub
from palyra.core.journal.changes import Change, RunFilter, UsageFilter
from palyra.core.journal.records import (
    BudgetMetric,
    BudgetRecord,
    BudgetScope,
    BudgetWindow,
    Usage,
    UsageRecord,
)
from palyra.core.model.messages import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.core.tape import events as ev
from palyra.core.usage.budgets import BudgetAccount, Key
from palyra.core.usage.prices import Price, Prices
from palyra.core.usage.views import BudgetWarned
from palyra.services.usage.budgets import Budgets
from palyra.services.usage.reports import UsageService
from tests.actors.run.office_kit import OPERATOR, OTHER, Kit, call, now_ms, running, say
from tests.actors.run.test_runs import answer, prompt_of, reach, settle, store
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]  # a fixture

ANSWER = Usage(input_tokens=700, output_tokens=300, source="provider")  # 1 000 tokens
ANSWER_S = 1.0
MINUTE_S = 60.0


def budget(**fields: Any) -> BudgetRecord:
    """10 000 tokens of everybody a day."""
    plain: dict[str, Any] = {"budget_id": "b", "scope": "global", "metric": "tokens"}
    return BudgetRecord(**{**plain, "window": "day", "hard": 10_000, **fields})


def having(
    *budgets: BudgetRecord, reserve: int = 2_000, prices: Prices | None = None
) -> Callable[[Hub], Budgets]:
    """These budgets, small reservations, and the price of the embedded model or others."""
    return lambda hub: Budgets(
        hub, now_ms, prices=prices or Prices(), configured=budgets, reserve_tokens=reserve
    )


def answering(
    kit: Kit, usage: Usage = ANSWER, *, takes_s: Callable[[int], float] = lambda n: 1 + n % 7
) -> None:
    """The model answers after a while, each request with that usage."""

    async def stream(request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        kit.model.requests.append(request)
        await trio.sleep(takes_s(len(kit.model.requests)))
        on_delta(Delta("text", "done"))
        return ModelTurn(text="done", calls=(), finish_reason="stop", usage=usage)

    kit.model.stream = stream  # type: ignore[method-assign]  # of this test


def lines(kit: Kit, **wanted: Any) -> list[UsageRecord]:
    """The ledger, oldest first."""
    return kit.journal.store.list_usage(UsageFilter(**wanted), limit=1_000)[::-1]


def spent(kit: Kit) -> int:
    return sum(line.tokens for line in lines(kit))


def reserved(kit: Kit) -> int:
    return sum(account.reserved for account in kit.services.budgets.accounts)


async def end_all(kit: Kit, run_ids: list[str]) -> list[str]:
    return [await kit.end(run_id) for run_id in run_ids]


def largest_reservation(kit: Kit, reserve: int = 2_000) -> int:
    """The maximum reservation of a call."""
    runs = kit.journal.store.list_runs(RunFilter(limit=500))
    found = [event for run in runs for event in kit.events(run.run_id, "context.assembled")]
    return reserve + max(int(event.input_tokens) for event in found)


# --- many at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [10_000, 10_500, 700])
async def test_a_hundred_runs_stay_within_one_reservation(
    store: MemoryJournal, autojump_clock: MockClock, hard: int
) -> None:
    """100 runs at once against one limit: at most one reservation above it, never more."""
    async with running(store, make_budgets=having(budget(hard=hard))) as kit:
        answering(kit)
        run_ids = [await kit.start(f"hello {n}") for n in range(100)]
        states = await end_all(kit, run_ids)
        least = largest_reservation(kit, reserve=0)
        assert hard - least < spent(kit) < hard + largest_reservation(kit)
        assert spent(kit) == 1_000 * states.count("done")
        assert states.count("done") == len(kit.model.requests) == 1 + (hard - least) // 1_000
        assert {"done", "failed"} == set(states)
        refused = 100 - len(kit.model.requests)
        assert (refused, 0) == (kit.services.budgets.refusals["global"], reserved(kit))


async def test_the_requests_own_limit_is_reserved(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It replaces the default reservation for unlimited answers."""
    async with running(store, make_budgets=having(budget(), reserve=100_000)) as kit:
        answering(kit)
        kit.model.most_output = lambda request: 50  # type: ignore[method-assign]  # noqa: ARG005 - the port
        run_id = await kit.start()
        await settle()
        (assembled,) = kit.events(run_id, "context.assembled")
        assert assembled.input_tokens + 50 == reserved(kit)


async def test_input_may_all_go_into_the_cache(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Of money so much is reserved as that would cost."""
    dear = Price(model="scripted", input=1_000_000, cache_write=4_000_000, output=0)
    made = having(budget(metric="usd_micros", hard=10**9), prices=Prices([dear]))
    async with running(store, make_budgets=made) as kit:
        answering(kit)
        run_id = await kit.start()
        await settle()
        (assembled,) = kit.events(run_id, "context.assembled")
        assert 4 * assembled.input_tokens == reserved(kit)


async def test_control_without_a_limit_all_calls_are_made(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """No call is refused, and none waits."""
    async with running(store) as kit:
        answering(kit, takes_s=lambda _: 5)
        run_ids = [await kit.start(f"hello {n}") for n in range(100)]
        started_s = trio.current_time()
        assert {"done"} == set(await end_all(kit, run_ids))
        assert (100_000, 5) == (spent(kit), round(trio.current_time() - started_s))


async def test_a_call_waits_for_reserved_amounts(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Only spent amounts refuse a call."""
    async with running(store, make_budgets=having(budget(), reserve=100_000)) as kit:
        answering(kit, takes_s=lambda _: 10)
        started_s = trio.current_time()
        run_ids = [await kit.start(f"hello {n}") for n in range(3)]
        assert ["done"] * 3 == await end_all(kit, run_ids)
        assert 30 == round(trio.current_time() - started_s)  # one after the other


async def test_a_run_that_waits_can_be_cancelled(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It has made no call, costs nothing and leaves no reservation."""
    async with running(store, make_budgets=having(budget(), reserve=100_000)) as kit:
        answering(kit)
        first = await kit.start()
        await settle()
        second = await kit.start("again")
        await settle()
        await kit.gateway.cancel_run(OPERATOR, second, "enough")
        assert ["done", "cancelled"] == await end_all(kit, [first, second])
        assert ([first], 0) == ([line.run_id for line in lines(kit)], reserved(kit))


# --- a refusal -----------------------------------------------------------------------------------


async def test_a_refusal_is_typed_and_makes_no_call(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The tape names budget, account, limit and the time of its reset."""
    async with running(store, make_budgets=having(budget(hard=900))) as kit:
        answering(kit)
        assert "done" == await kit.end(await kit.start())
        run_id = await kit.start()
        assert ("failed", 1) == (await kit.end(run_id), len(kit.model.requests))
        assert ["turn.started", "budget.exceeded", "run.failed"] == kit.kinds(run_id)[-3:]
        (exceeded,) = kit.events(run_id, "budget.exceeded")
        (failed,) = kit.events(run_id, "run.failed")
        assert ("b", 1_000, 900, 86_400_000) == (
            exceeded.budget_id,
            exceeded.spent,
            exceeded.limit,
            exceeded.rolls_ms,
        )
        assert "budget_exceeded" == failed.failure_class
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched


CHEAP = Prices([Price(model="scripted", input=1_000_000, output=0, cached_input=100_000)])


@pytest.mark.parametrize("metric", get_args(BudgetMetric))
async def test_a_call_that_cannot_fit_is_not_made(
    store: MemoryJournal, autojump_clock: MockClock, metric: BudgetMetric
) -> None:
    """In each scope and window; where the least that it takes fits it is made."""
    async with running(store, make_budgets=having(prices=CHEAP)) as kit:
        answering(kit)
        for scope, window in product(get_args(BudgetScope), get_args(BudgetWindow)):
            fields: dict[str, Any] = {"scope": scope, "window": window, "metric": metric}
            if window == "sliding":
                fields["window_ms"] = 60_000
            kit.services.budgets.enforce(budget(hard=20, **fields), {})
            refused, answered = await kit.start(), len(kit.model.requests)
            assert ("failed", answered) == (await kit.end(refused), len(kit.model.requests))
            (exceeded,) = kit.events(refused, "budget.exceeded")
            (seen,) = kit.events(refused, "context.assembled")
            (failed,) = kit.events(refused, "run.failed")
            price = 1 if metric == "tokens" else 10
            assert (0, 20, -(-seen.input_tokens // price)) == (
                exceeded.spent,
                exceeded.limit,
                exceeded.needs,
            )
            assert f"takes at least {exceeded.needs}" in failed.reason
            kit.services.budgets.enforce(budget(hard=exceeded.needs + 20, **fields), {})
            assert "done" == await kit.end(await kit.start())
            kit.services.budgets.lift("b")


async def test_a_runs_own_limit_refuses_its_first_call(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A prompt that is longer than the limit of the run costs nothing."""
    async with running(store) as kit:
        answering(kit)
        run_id = await kit.start(budget=ev.Budget(tokens=100))
        assert ("failed", 0) == (await kit.end(run_id), len(kit.model.requests))


async def test_warnings_refuse_no_call(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The action decides, not the amount."""
    async with running(store, make_budgets=having(budget(hard=1, action="warn"))) as kit:
        answering(kit)
        assert ["done"] * 3 == await end_all(kit, [await kit.start() for _ in range(3)])


@pytest.mark.parametrize(
    ("fields", "others"),
    [
        ({"scope": "principal", "subject": "ann"}, "done"),
        ({"scope": "principal"}, "done"),
        ({"scope": "global"}, "failed"),
        ({"scope": "agent", "subject": "default"}, "failed"),
        ({"scope": "session"}, "done"),
        ({"scope": "global", "window": "run"}, "done"),
    ],
)
async def test_only_shared_budgets_stop_a_run(
    store: MemoryJournal, autojump_clock: MockClock, fields: dict[str, Any], others: str
) -> None:
    """A run is stopped only by accounts that it shares."""
    async with running(store, make_budgets=having(budget(hard=900, **fields))) as kit:
        answering(kit)
        assert "done" == await kit.end(await kit.start())
        assert others == await kit.end(await kit.start(caller=OTHER))


# --- the run's own -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "state"),
    [
        (ev.Budget(tokens=1_000), "failed"),
        (ev.Budget(tokens=2_001), "done"),
        (ev.Budget(usd_micros=1_000), "failed"),
        (ev.Budget(usd_micros=2_001), "done"),
    ],
)
async def test_a_run_has_a_budget_of_its_own(
    store: MemoryJournal, autojump_clock: MockClock, own: ev.Budget, state: str
) -> None:
    """The budget of `run.start`, in tokens and in money, counts no other run's calls."""
    prices = Prices([Price(model="scripted", input=1_000_000, output=1_000_000)])
    async with running(store, make_budgets=having(prices=prices)) as kit:
        kit.model.turns = [
            _with(say("other")),
            _with(call(("note", {"text": "x"}))),
            _with(say("y")),
        ]
        await kit.end(await kit.start())
        run_id = await kit.start(budget=own)
        assert state == await kit.end(run_id)
        assert (["x"], 2 if state == "failed" else 3) == (kit.effects, len(kit.model.requests))


def _with(turn: ModelTurn, usage: Usage = ANSWER) -> ModelTurn:
    return ModelTurn(
        text=turn.text, calls=turn.calls, finish_reason=turn.finish_reason, usage=usage
    )


# --- money ---------------------------------------------------------------------------------------


async def test_prices_by_date(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """A call costs what its model costs on that day; turn, run and ledger say the same."""
    later = Price(model="scripted", input=2_000_000, output=10_000_000, since=date(1970, 1, 2))
    prices = Prices([Price(model="scripted", input=1_000_000, output=2_000_000), later])
    async with running(store, make_budgets=having(prices=prices)) as kit:
        answering(kit)
        first = await kit.start()
        await kit.end(first)
        await trio.sleep(86_400 - trio.current_time() % 86_400)
        second = await kit.start()
        await kit.end(second)
        costs = [700 + 2 * 300, 2 * 700 + 10 * 300]
        assert costs == [line.cost_usd_micros for line in lines(kit)]
        for run_id, cost in zip((first, second), costs, strict=True):
            view = await kit.gateway.get_run(OPERATOR, run_id)
            (turn,) = kit.events(run_id, "turn.completed")
            assert (cost, cost, False) == (
                view.cost_usd_micros,
                turn.cost_usd_micros,
                turn.is_unpriced,
            )


@pytest.mark.parametrize(("metric", "state"), [("usd_micros", "failed"), ("tokens", "done")])
async def test_a_model_without_a_price_is_not_free(
    store: MemoryJournal, autojump_clock: MockClock, metric: Any, state: str
) -> None:
    """A budget of money refuses it; otherwise its cost is unknown."""
    prices = Prices([Price(model="scripted", input=0, output=0, since=date(2100, 1, 1))])
    prices._entries = prices._entries[:1]  # not even the built-in entry
    made = having(budget(metric=metric), prices=prices)
    async with running(store, make_budgets=made) as kit:
        answering(kit)
        run_id = await kit.start()
        assert (state, state == "done") == (await kit.end(run_id), bool(kit.model.requests))
        if state == "failed":
            (failed,) = kit.events(run_id, "run.failed")
            assert ("budget_unpriced", True) == (
                failed.failure_class,
                "usage.prices" in failed.action,
            )
        else:
            view = await kit.gateway.get_run(OPERATOR, run_id)
            assert (0, 1) == (view.cost_usd_micros, view.unpriced_calls)
            assert [None] == [line.cost_usd_micros for line in lines(kit)]


# --- windows -------------------------------------------------------------------------------------


async def test_a_sliding_window_rolls(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Refused while the first call is in the window, let through once it is not."""
    sliding = budget(window="sliding", window_ms=60_000, hard=1_000)
    async with running(store, make_budgets=having(sliding)) as kit:
        answering(kit, takes_s=lambda _: 1)
        assert "done" == await kit.end(await kit.start())
        ended_s = trio.current_time()
        assert "failed" == await kit.end(await kit.start())
        await trio.sleep_until(ended_s + MINUTE_S - 0.5)
        assert "failed" == await kit.end(await kit.start())
        await trio.sleep_until(ended_s + MINUTE_S + 0.5)
        assert "done" == await kit.end(await kit.start())


async def test_a_day_rolls_at_midnight(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """In UTC, where virtual time begins at midnight too."""
    async with running(store, make_budgets=having(budget(hard=900))) as kit:
        answering(kit)
        assert ["done", "failed"] == [await kit.end(await kit.start()) for _ in range(2)]
        await trio.sleep(86_400 - trio.current_time() % 86_400)
        assert ["done", "failed"] == [await kit.end(await kit.start()) for _ in range(2)]


# --- many accounts -------------------------------------------------------------------------------


async def test_among_many_accounts_a_call_keeps_all_of_its_own(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None that it is about to reserve in is swept away as empty."""
    monkeypatch.setattr("palyra.services.usage.budgets.SWEEP_AT", 1)
    scopes: list[BudgetScope] = ["global", "principal", "agent"]
    made = having(*(budget(budget_id=scope, scope=scope) for scope in scopes))
    async with running(store, make_budgets=made) as kit:
        answering(kit)
        run_id = await kit.start()
        await settle()
        assert [True] * 3 == [each.reserved > 0 for each in kit.services.budgets.accounts]
        assert "done" == await kit.end(run_id)
        assert [1_000] * 3 == [each.spent(now_ms()) for each in kit.services.budgets.accounts]


@pytest.mark.parametrize(("many", "left"), [(1, 1), (100, 6)])
async def test_accounts_that_hold_nothing_are_forgotten_when_there_are_many(
    store: MemoryJournal,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    many: int,
    left: int,
) -> None:
    """Those of a window that is over, at the end of a run."""
    monkeypatch.setattr("palyra.services.usage.budgets.SWEEP_AT", many)
    async with running(store, make_budgets=having(budget(scope="run", window="hour"))) as kit:
        answering(kit)
        await end_all(kit, [await kit.start() for _ in range(5)])
        await trio.sleep(60 * MINUTE_S)
        await kit.end(await kit.start())
        await settle()
        assert left == len(kit.services.budgets.accounts)


def test_each_sweep_checks_the_next_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step after the other, each account once a round, and no more than a step at a time."""
    monkeypatch.setattr("palyra.services.usage.budgets.SWEEP_AT", 1)
    monkeypatch.setattr("palyra.services.usage.budgets.SWEEP_STEP", 2)
    none: Any = None
    budgets = Budgets(none, lambda: 1, prices=Prices(), configured=(budget(),))
    keys = [Key("b", str(number)) for number in range(5)]
    budgets._accounts |= {key: BudgetAccount(budget(), key.subject) for key in keys}
    left = []
    for _ in range(3):
        budgets._sweep()
        left.append(list(budgets._accounts))
    assert [keys[:3], keys[:1], []] == left


# --- who is told ---------------------------------------------------------------------------------


async def test_each_limit_is_reported_once_a_window(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """There is one alert at soft and one at hard; runs continue."""
    async with running(store, make_budgets=having(budget(soft=2_000, hard=4_000))) as kit:
        told: list[BudgetWarned] = []
        kit.hub.notify = lambda _method, params, **_: told.append(params)  # type: ignore[method-assign]  # of this test
        answering(kit)
        states = [await kit.end(await kit.start()) for _ in range(5)]
        assert ["done"] * 4 + ["failed"] == states
        levels = [each for each in told if isinstance(each, BudgetWarned)]
        assert [("soft", 2_000, 2_000), ("hard", 4_000, 4_000)] == [
            (each.level, each.spent, each.limit) for each in levels
        ]
        assert 2 == kit.services.budgets.alerts["global"]


# --- crashes, failures, cancels ------------------------------------------------------------------


async def test_spending_survives_a_restart(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """It is read from the ledger, by subject; no reservation and no second alert remain."""
    made = having(budget(soft=1, hard=1_000, scope="principal"))
    async with running(store, make_budgets=made) as kit:
        answering(kit)
        assert "done" == await kit.end(await kit.start())
    async with running(store, make_budgets=made) as kit:
        assert "failed" == await kit.end(await kit.start())
        assert ([], 0) == (kit.model.requests, kit.services.budgets.alerts.total())
        assert [("ann", 1_000, 0)] == [
            (each.subject, each.spent(now_ms()), each.reserved)
            for each in kit.services.budgets.accounts
        ]


async def test_lines_of_a_clock_far_ahead_do_not_count_at_a_start(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """They are in the ledger, in no current window."""
    async with running(store, make_budgets=having(budget(hard=1_000))) as kit:
        answering(kit)
        assert "done" == await kit.end(await kit.start())
        (line,) = lines(kit)
        ahead = msgspec.structs.replace(line, run_id="run_x", at_ms=line.at_ms + 10**12)
        store.commit([Change(records=(ahead,))])
    async with running(store, make_budgets=having(budget(hard=1_000))) as kit:
        (account,) = kit.services.budgets.accounts
        assert (1_000, 86_400_000) == (account.spent(now_ms()), account.rolls_ms(now_ms()))
        desk = UsageService(kit.journal, kit.services.budgets, now_ms)
        await desk.set(OPERATOR, budget(budget_id="c"))
        assert [1_000] * 2 == [each.spent(now_ms()) for each in kit.services.budgets.accounts]


async def test_a_resumed_run_pays_each_call_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The call that the crash cut off as an estimate, and the one after it as it was."""
    made = having(budget(window="run"))
    async with running(store, make_budgets=made) as kit:
        run_id = await reach(kit, "turn")
    async with running(store, make_budgets=made) as kit:
        kit.model.turns = [_with(say("done"))]
        assert "done" == await kit.end(run_id)
        sent = kit.events(run_id, "context.assembled")[0].input_tokens
        assert [("abandoned", 1, sent, True), ("completed", 2, 1_000, False)] == [
            (line.outcome, line.attempt, line.tokens, line.is_estimate) for line in lines(kit)
        ]
        record = await kit.gateway.get_run(OPERATOR, run_id)
        assert spent(kit) == record.usage.input_tokens + record.usage.output_tokens
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched
    async with running(store, make_budgets=made) as kit:
        await settle()
        assert 2 == len(lines(kit))


async def test_a_cancelled_call_is_charged_by_estimate(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Prompt and received text are estimated; the reservation is released."""
    async with running(store, make_budgets=having(budget())) as kit:

        async def stream(request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
            kit.model.requests.append(request)
            on_delta(Delta("text", "x" * 400))
            await trio.sleep_forever()
            raise AssertionError

        kit.model.stream = stream  # type: ignore[method-assign]  # of this test
        run_id = await kit.start()
        await settle()
        assert reserved(kit) > 2_000
        await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        (line,) = lines(kit)
        sent = kit.events(run_id, "context.assembled")[0].input_tokens
        assert ("abandoned", sent, 100, 0) == (
            line.outcome,
            line.input_tokens,
            line.output_tokens,
            reserved(kit),
        )
        assert [line.tokens] == [
            each.spent(now_ms()) for each in kit.services.budgets.accounts if each.spent(now_ms())
        ]
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched


async def test_a_failed_call_releases_its_reservation(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A call without output costs nothing; nothing is reserved during the back-off."""
    async with running(store, make_budgets=having(budget())) as kit:
        kit.model.turns = [ModelFailure("transient", "503"), _with(say("done"))]
        run_id = await kit.start()
        await settle()
        assert (0, 1) == (reserved(kit), len(kit.model.requests))
        assert "done" == await kit.end(run_id)
        assert [("failed", 0, 0), ("completed", 1_000, 0)] == [
            (line.outcome, line.tokens, line.cost_usd_micros) for line in lines(kit)
        ]


async def test_a_cancel_while_a_run_backs_off_costs_nothing(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The next attempt had not been sent."""
    async with running(store) as kit:
        run_id = await reach(kit, "backoff")
        await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        assert [("failed", 0)] == [(line.outcome, line.tokens) for line in lines(kit)]


async def test_a_replay_charges_nothing(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """It makes no call: ledger and accounts are unchanged."""
    async with running(store, make_budgets=having(budget(hard=1_000))) as kit:
        answering(kit)
        run_id = await kit.start()
        await kit.end(run_id)
        before = lines(kit)
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=False)
        assert (True, before, 1_000) == (report.matched, lines(kit), spent(kit))
        assert [1_000] == [each.spent(now_ms()) for each in kit.services.budgets.accounts]


# --- a question ----------------------------------------------------------------------------------


async def ask_about(kit: Kit) -> tuple[str, Any]:
    """A run that waits for a person because its budget is spent, and the question."""
    answering(kit)
    assert "done" == await kit.end(await kit.start())
    run_id = await kit.start()
    await settle()
    return run_id, (await prompt_of(kit, run_id))


@pytest.mark.parametrize(
    ("decision", "state", "calls"), [("allow", "done", 2), ("deny", "failed", 1)]
)
async def test_a_budget_can_ask_a_person(
    store: MemoryJournal, autojump_clock: MockClock, decision: str, state: str, calls: int
) -> None:
    """No call is made before the answer; allowing it applies to this run alone."""
    made = having(budget(hard=1_000, action="ask"))
    async with running(store, make_budgets=made) as kit:
        run_id, prompt = await ask_about(kit)
        assert ("budget", "", 1) == (prompt.tool, prompt.call_id, len(kit.model.requests))
        resolved = await kit.answers.resolve(OPERATOR, answer(kit, prompt, decision))
        assert (True, state) == (resolved.won, await kit.end(run_id))
        assert calls == len(kit.model.requests)
        if state == "failed":
            (failed,) = kit.events(run_id, "run.failed")
            assert "budget_exceeded" == failed.failure_class
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched
        other = await kit.start()
        await settle()
        assert ("run.failed" in kit.kinds(other), calls) == (False, len(kit.model.requests))
        assert (await kit.gateway.get_run(OPERATOR, other)).phase == "awaiting_approval"


def proposing(kit: Kit) -> None:
    """The first turn of every run proposes a call that asks, and takes 1 000 tokens."""

    async def stream(request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        kit.model.requests.append(request)
        await trio.sleep(ANSWER_S)
        on_delta(Delta("text", "so"))
        turn = call(("ask_note", {"text": "x"})) if request.turn == 1 else say("done")
        return msgspec.structs.replace(turn, usage=ANSWER)

    kit.model.stream = stream  # type: ignore[method-assign]  # of this test


@pytest.mark.parametrize("scope", ["global", "run", "own"])
@pytest.mark.parametrize(("hard", "asked"), [(1_000, 0), (1_001, 1)])
async def test_no_approval_for_a_run_whose_budget_is_spent(
    store: MemoryJournal, autojump_clock: MockClock, scope: str, hard: int, asked: int
) -> None:
    """The call is denied with the budget's name, because the model could not get its result."""
    window = "run" if scope == "run" else "day"
    budgets = [] if scope == "own" else [budget(hard=hard, scope=scope, window=window)]
    own: dict[str, Any] = {"budget": ev.Budget(tokens=hard)} if scope == "own" else {}
    async with running(store, make_budgets=having(*budgets, reserve=10)) as kit:
        proposing(kit)
        run_id = await kit.start(**own)
        await trio.sleep(2 * ANSWER_S)
        assert asked == len(kit.events(run_id, "approval.requested"))
        if asked:
            return
        (decided,) = kit.events(run_id, "tool.decided")
        assert ("deny", "budget_spent") == (decided.verdict, decided.reason_code)
        assert "1000 of 1000 tokens" in decided.reason
        assert ("failed", []) == (await kit.end(run_id), kit.effects)
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched


@pytest.mark.parametrize("action", ["ask", "warn"])
async def test_approvals_while_the_budget_lets_the_run_continue(
    store: MemoryJournal, autojump_clock: MockClock, action: Any
) -> None:
    """A budget that asks or only warns is no reason to deny."""
    async with running(store, make_budgets=having(budget(hard=1_000, action=action))) as kit:
        proposing(kit)
        run_id = await kit.start()
        await trio.sleep(2 * ANSWER_S)
        assert 1 == len(kit.events(run_id, "approval.requested"))


async def test_waiting_for_a_person_costs_nothing(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Nothing is reserved meanwhile, nothing spent, and others may use what is left."""
    async with running(store, make_budgets=having(budget(hard=10_000))) as kit:
        proposing(kit)
        run_id = await kit.start()
        await trio.sleep(2 * ANSWER_S)
        await trio.sleep(10 * MINUTE_S)
        assert (0, 1_000) == (reserved(kit), spent(kit))
        prompt = await prompt_of(kit, run_id)
        await kit.answers.resolve(OPERATOR, answer(kit, prompt))
        assert ("done", 2_000) == (await kit.end(run_id), spent(kit))


async def test_an_unattended_run_ends_at_an_asking_budget(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It is refused, as by a budget that blocks."""
    made = having(budget(hard=1_000, action="ask"))
    async with running(store, make_budgets=made) as kit:
        answering(kit)
        await kit.end(await kit.start())
        assert "failed" == await kit.end(await kit.start(approval_mode="deny"))
        assert 1 == len(kit.model.requests)


async def test_the_question_survives_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The same one, and the answer to it counts."""
    made = having(budget(hard=1_000, action="ask"))
    async with running(store, make_budgets=made) as kit:
        run_id, prompt = await ask_about(kit)
    async with running(store, make_budgets=made) as kit:
        answering(kit)
        await settle()
        assert prompt.approval_id == (await prompt_of(kit, run_id)).approval_id
        await kit.answers.resolve(OPERATOR, answer(kit, prompt))
        assert ("done", 1) == (await kit.end(run_id), len(kit.model.requests))
        assert 2 == len(lines(kit))
