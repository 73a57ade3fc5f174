"""Routing and failover on virtual time: real runs, real breakers, failing models."""

from collections.abc import Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.agent import AgentChange
from palyra.core.journal.changes import RunFilter
from palyra.core.model.circuit_breaker import OPEN_MS
from palyra.core.model.messages import (
    FAILURE_CLASSES,
    Delta,
    FailureClass,
    ModelFailure,
    ToolMessage,
)
from palyra.core.model.routing import ProviderHealth, Route, RouteTable
from palyra.errors import InvalidParams
from palyra.models.guarded import CallSlots, GuardedModel, ProviderLimits
from palyra.services.registry.model_router import ModelRouter
from tests.actors.run.office_kit import OPERATOR, STRANGER, Kit, Model, call, now_ms, running, say
from tests.actors.run.test_runs import store
from tests.pictures import attached
from tests.rows import every_row
from tests.services.test_budgets import budget, having, lines, reserved
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]  # a fixture

PNG = attached()
TO_SPARE = RouteTable(failover=("b/spare",))


def test_the_cheapest_model_is_one_of_a_provider_that_gives_json() -> None:
    """A known price comes before an unknown one, then the tier; the scripted model has no provider."""
    table = RouteTable(
        routes=(
            Route(model="a/big", tier=3),
            Route(model="a/mid"),
            Route(model="b/plain", tier=1, json=False),
            Route(model="b/small", tier=1),
        )
    )
    models = {name: Model() for name in ("scripted", "a/big", "a/mid", "b/plain", "b/small")}
    for name, model in models.items():
        model.name, model.provider = name, name.partition("/")[0]
    prices: dict[str, tuple[int, int]] = {}

    def router(providers: list[str], default: str = "scripted") -> ModelRouter:
        return ModelRouter(models, table, rates=prices.get, providers=providers, default=default)

    assert not router([]).find_cheapest()
    assert "b/small" == router(["a", "b"]).find_cheapest()
    assert "a/mid" == router(["a"], default="a/mid").find_cheapest()
    prices["a/big"] = (2, 8)
    assert "a/big" == router(["a", "b"]).find_cheapest()
    prices["a/mid"] = (1, 4)
    assert "a/mid" == router(["a", "b"]).find_cheapest()


class Fleet:
    """Models behind guards, over several lives of the daemon."""

    def __init__(self, table: RouteTable, *names: str) -> None:
        self.table = table
        self.by_name = {name: Model() for name in ("scripted", *names)}
        self.guards: dict[str, ProviderLimits] = {}

    def __getitem__(self, name: str) -> Model:
        return self.by_name[name]

    def running(self, store: MemoryJournal, *, without: str = "", **options: Any) -> Any:
        """A life of the daemon with these models."""
        models = {name: self._guarded(name) for name in self.by_name if name != without}
        return running(
            store,
            models=models,
            make_router=lambda all_there: ModelRouter(all_there, self.table, look=self._look),
            **options,
        )

    def _guarded(self, name: str) -> GuardedModel:
        model, provider = self.by_name[name], name.partition("/")[0]
        model.name, model.provider = name, provider
        guard = self.guards.setdefault(provider, ProviderLimits(provider, "", CallSlots(), now_ms))
        return GuardedModel(model, guard)

    def _look(self, name: str) -> ProviderHealth:
        return self.guards[name.partition("/")[0]].health(name)

    @property
    def asked(self) -> dict[str, int]:
        """The number of calls of each called model."""
        counts = {name: len(model.requests) for name, model in self.by_name.items()}
        return {name: count for name, count in counts.items() if count}


def fail(failure_class: FailureClass = "transient", times: int = 1) -> list[ModelFailure]:
    """So many failures in a row."""
    return [ModelFailure(failure_class, "it does not work") for _ in range(times)]


def models_of(kit: Kit, run_id: str) -> list[str]:
    """The called models, turn by turn."""
    return [event.model for event in kit.events(run_id, "turn.started")]


async def replayed(kit: Kit, run_id: str) -> None:
    """The tape follows from its inputs, with the settings of now and without."""
    for strict in (True, False):
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
        assert report.matched, report.first_divergence


# --- plans ---------------------------------------------------------------------------------------


async def test_without_routes_there_is_nothing_to_plan(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """A run costs no event for a choice that it does not have."""
    async with running(store) as kit:
        run_id = await kit.start()
        await kit.end(run_id)
        assert not {"route.planned", "route.changed"} & set(kit.kinds(run_id))


@pytest.mark.parametrize(
    ("mode", "answers"), [("suggest", "scripted"), ("dry_run", "scripted"), ("enforced", "a/small")]
)
async def test_a_plan_is_recorded_and_only_enforced_it_switches(
    mode: Any, answers: str, autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Between the start and the first turn, with reasons; replayed, the run comes to the same."""
    table = RouteTable(
        mode=mode, routes=(Route(model="scripted", tier=3), Route(model="a/small", tier=1))
    )
    fleet = Fleet(table, "a/small")
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        assert ["run.started", "route.planned", "context.assembled"] == kit.kinds(run_id)[2:5]
        (plan,) = kit.events(run_id, "route.planned")
        assert ("a/small", "a", answers) == (plan.model, plan.provider, plan.uses)
        assert all(reason.text for reason in plan.reasons)
        assert plan.estimate.input_tokens == kit.events(run_id, "context.assembled")[0].input_tokens
        assert ([answers], {answers: 1}) == (models_of(kit, run_id), fleet.asked)
        assert answers == (await kit.gateway.get_run(OPERATOR, run_id)).model
        await replayed(kit, run_id)


@pytest.mark.parametrize(
    ("lacks", "start"),
    [
        ("vision", {"attachments": (PNG,)}),
        ("json", {"json_mode": True}),
        ("tools", {}),
    ],
)
async def test_the_needs_of_a_run_decide(
    lacks: str, start: dict[str, Any], autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """A default without a needed capability is replaced; a named one is refused."""
    able = {"vision": True, "json": True, "tools": True}
    table = RouteTable(
        mode="enforced",
        routes=(
            Route(model="scripted", **{**able, lacks: False}),  # type: ignore[arg-type]  # flags
            Route(model="a/able", **able),  # type: ignore[arg-type]  # likewise
        ),
    )
    fleet = Fleet(table, "a/able")
    fleet["a/able"].turns = [say("{}")]
    async with fleet.running(store) as kit:
        run_id = await kit.start(**start)
        assert "done" == await kit.end(run_id)
        (plan,) = kit.events(run_id, "route.planned")
        assert "a/able" == plan.uses
        assert f"no_{lacks}" in [reason.code for reason in plan.candidates[0].reasons]
        with pytest.raises(InvalidParams, match=lacks) as refused:
            await kit.start(model="scripted", **start)
        assert "model" == refused.value.field
        assert {"a/able": 1} == fleet.asked
        assert [run_id] == [run.run_id for run in kit.journal.store.list_runs(RunFilter(limit=9))]


async def test_a_named_model_is_kept(autojump_clock: MockClock, store: MemoryJournal) -> None:
    """Pinned it answers though the plan knows a better one, and is not left when it fails."""
    table = RouteTable(
        mode="enforced",
        routes=(Route(model="scripted", tier=3), Route(model="a/small", tier=1)),
        failover=("a/small",),
    )
    fleet = Fleet(table, "a/small")
    fleet["scripted"].turns = fail(times=3)
    async with fleet.running(store) as kit:
        run_id = await kit.start(model="scripted")
        assert "failed" == await kit.end(run_id)
        (plan,) = kit.events(run_id, "route.planned")
        assert ("scripted", "pinned") == (plan.uses, plan.reasons[0].code)
        assert {"scripted": 3} == fleet.asked


async def test_an_agents_model_is_kept_while_it_can_answer(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """It is a wish, not a pin: an ill provider's model is left."""
    table = RouteTable(
        mode="enforced", routes=(Route(model="a/big", tier=3), Route(model="b/small", tier=1))
    )
    fleet = Fleet(table, "a/big", "b/small")
    async with fleet.running(store) as kit:
        await kit.services.agents.create(
            OPERATOR, "poet", AgentChange(instructions="Rhyme.", model="a/big")
        )
        well = await kit.start(agent="poet")
        await kit.end(well)
        fleet.guards["a"].trip("a/big")
        later = await kit.start(agent="poet")
        await kit.end(later)
        assert (["a/big"], ["b/small"]) == (models_of(kit, well), models_of(kit, later))


# --- failover ------------------------------------------------------------------------------------

RETRIED = {"transient", "timeout", "unavailable", "rate_limited"}
AT_ONCE = {"quota", "auth", "unknown_model"}


@pytest.mark.parametrize("failure_class", FAILURE_CLASSES)
@pytest.mark.parametrize("has_spare", [True, False])
async def test_each_class_of_failure(
    failure_class: FailureClass,
    has_spare: bool,  # noqa: FBT001 - a case
    autojump_clock: MockClock,
    store: MemoryJournal,
) -> None:
    """The class decides on retries, another model, or the end of the run."""
    fleet = Fleet(TO_SPARE if has_spare else RouteTable(), "b/spare")
    fleet["scripted"].turns = fail(failure_class, times=9)
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        state = await kit.end(run_id)
        times = 3 if failure_class in RETRIED else 2 if failure_class == "malformed" else 1
        if has_spare and failure_class in RETRIED | AT_ONCE:
            assert ("done", {"scripted": times, "b/spare": 1}) == (state, fleet.asked)
            (changed,) = kit.events(run_id, "route.changed")
            assert ("scripted", "b/spare", "b") == (
                changed.from_model,
                changed.model,
                changed.provider,
            )
            assert failure_class == changed.reason
        else:
            assert ("failed", {"scripted": times}) == (state, fleet.asked)
            assert failure_class == kit.events(run_id, "run.failed")[0].failure_class
        await replayed(kit, run_id)


async def test_the_next_model_gets_the_same_turn_and_keeps_the_run(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """The same prompt, the next attempt, no pause; the turns after it are its own."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = fail("auth")
    fleet["b/spare"].turns = [call(("note", {"text": "x"})), say("done")]
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        started = kit.events(run_id, "turn.started")
        assert [(1, 1), (1, 2), (2, 1)] == [(each.turn, each.attempt) for each in started]
        assert ["scripted", "b", "b"] == [each.provider for each in started]
        assert 0 == kit.events(run_id, "turn.failed")[0].delay_ms
        first, second = fleet["scripted"].requests[0], fleet["b/spare"].requests[0]
        assert (first.messages, first.tools) == (second.messages, second.tools)
        assert "b/spare" == (await kit.gateway.get_run(OPERATOR, run_id)).model
        await replayed(kit, run_id)


async def test_a_provider_that_is_left_alone_is_not_waited_for(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """The first run opens the breaker; the next ones go over at once, until a probe succeeds."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = fail(times=3)
    async with fleet.running(store) as kit:
        await kit.end(await kit.start())
        began_s = trio.current_time()
        second = await kit.start()
        await kit.end(second)
        assert began_s == trio.current_time()
        assert ["scripted", "b/spare"] == models_of(kit, second)
        assert {"scripted": 3, "b/spare": 2} == fleet.asked  # the breaker answered for it
        autojump_clock.jump(OPEN_MS / 1000)
        third = await kit.start()
        await kit.end(third)
        assert ["scripted"] == models_of(kit, third)
        assert "closed" == fleet.guards["scripted"].standing.breaker


async def test_a_call_refused_by_the_breaker_is_not_charged(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """It has no line in the ledger and no reservation."""
    fleet = Fleet(RouteTable())
    fleet["scripted"].turns = fail(times=3)
    async with fleet.running(store, make_budgets=having(budget(hard=10**9))) as kit:
        assert ["failed", "done"] == [await kit.end(await kit.start()) for _ in range(2)]
        told = lines(kit)
        assert (["failed"] * 3 + ["completed"], 4) == (
            [line.outcome for line in told],
            fleet.asked["scripted"],
        )
        (run_id,) = {line.run_id for line in told[3:]}
        assert [False] == [event.was_asked for event in kit.events(run_id, "turn.failed")]
        assert 0 == reserved(kit)
        await replayed(kit, run_id)


async def test_a_cancelled_wait_for_a_breaker_costs_nothing(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Nothing is reserved while it waits for the provider."""
    fleet = Fleet(RouteTable())
    async with fleet.running(store, make_budgets=having(budget(hard=10**9))) as kit:
        fleet.guards["scripted"].trip("scripted")
        run_id = await kit.start()
        await wait_all_tasks_blocked()
        assert ["turn.failed"] == [kind for kind in kit.kinds(run_id) if kind == "turn.failed"]
        await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        assert ("cancelled", [], 0) == (await kit.end(run_id), lines(kit), reserved(kit))


async def test_a_busy_provider_opens_no_breaker(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Each run gets its own Retry-After; other runs and models are called."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = fail("rate_limited", times=9)
    async with fleet.running(store) as kit:
        for _ in range(3):
            await kit.end(await kit.start())
        assert {"scripted": 9, "b/spare": 3} == fleet.asked
        assert "closed" == fleet.guards["scripted"].standing.breaker
        last = await kit.start()
        await kit.end(last)
        assert ["scripted"] == models_of(kit, last)


@pytest.mark.parametrize(("after_ms", "asked"), [(20_000, 3), (20_001, 1)])
async def test_a_provider_that_wants_a_long_pause_is_not_waited_for(
    after_ms: int, asked: int, autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """While another model may take over; alone it is waited for as long as it says."""
    for table, times in ((TO_SPARE, asked), (RouteTable(), 3)):
        fleet = Fleet(table, "b/spare")
        busy = [ModelFailure("rate_limited", "slow down", after_ms) for _ in range(9)]
        fleet["scripted"].turns = list(busy)
        async with fleet.running(store) as kit:
            run_id = await kit.start()
            await kit.end(run_id)
            assert times == fleet.asked["scripted"]


async def test_an_answer_that_breaks_off_is_asked_for_again(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """The same model is tried to the end of its attempts, and then the other one answers."""
    fleet = Fleet(TO_SPARE, "b/spare")
    model = fleet["scripted"]

    async def stream(request: Any, on_delta: Any) -> Any:
        model.requests.append(request)
        await trio.lowlevel.checkpoint()
        on_delta(Delta("text", "half an ans"))
        raise ModelFailure("transient", "cut")

    model.stream = stream  # type: ignore[method-assign]  # of this test
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        assert {"scripted": 3, "b/spare": 1} == fleet.asked
        await replayed(kit, run_id)


async def test_each_model_is_tried_once_in_a_turn(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """When none is left the run fails with the last failure."""
    fleet = Fleet(RouteTable(failover=("b/x", "c/y", "b/x")), "b/x", "c/y")
    for name, failure_class in (("scripted", "auth"), ("b/x", "quota"), ("c/y", "auth")):
        fleet[name].turns = fail(failure_class)  # type: ignore[arg-type]  # a class
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        assert "failed" == await kit.end(run_id)
        assert {"scripted": 1, "b/x": 1, "c/y": 1} == fleet.asked
        assert "auth" == kit.events(run_id, "run.failed")[0].failure_class
        await replayed(kit, run_id)


async def test_the_next_model_has_its_own_attempts(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Three each; the pauses grow with the turn's attempts."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = fail(times=9)
    fleet["b/spare"].turns = fail(times=2)
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        assert {"scripted": 3, "b/spare": 3} == fleet.asked
        attempts = [event.attempt for event in kit.events(run_id, "turn.started")]
        assert [1, 2, 3, 4, 5, 6] == attempts
        await replayed(kit, run_id)


async def test_a_later_turn_may_go_back(autojump_clock: MockClock, store: MemoryJournal) -> None:
    """Once in a turn, not once in a run."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = [*fail("auth"), say("back")]
    fleet["b/spare"].turns = [call(("note", {"text": "x"})), *fail("auth")]
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        assert ["scripted", "b/spare", "b/spare", "scripted"] == models_of(kit, run_id)
        await replayed(kit, run_id)


async def test_a_named_model_is_left_for_its_own_alternatives_only(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Those that its route names, never those for everybody."""
    table = RouteTable(
        routes=(Route(model="scripted", failover=("c/own",)),), failover=("b/spare",)
    )
    fleet = Fleet(table, "b/spare", "c/own")
    fleet["scripted"].turns = fail("auth")
    async with fleet.running(store) as kit:
        run_id = await kit.start(model="scripted")
        assert "done" == await kit.end(run_id)
        assert ["scripted", "c/own"] == models_of(kit, run_id)


# --- over restarts, forks ------------------------------------------------------------------------


@pytest.mark.parametrize("keep", range(2, 9))
async def test_a_crash_anywhere_loses_no_change(
    keep: int, autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """A run that is resumed stays with the model that took over, or comes to it again."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = fail("auth", times=2)
    async with fleet.running(store) as kit:
        kit.journal.keep = keep
        with trio.move_on_after(5):
            run_id = await kit.start()
            await kit.end(run_id)
    async with fleet.running(store) as kit:
        record = kit.journal.store.list_runs(RunFilter(limit=9))[0]
        assert "done" == await kit.end(record.run_id)
        assert "b/spare" == models_of(kit, record.run_id)[-1]
        assert 1 == len(kit.events(record.run_id, "route.changed"))
        await replayed(kit, record.run_id)


@pytest.mark.parametrize(("choice", "state"), [({}, "done"), ({"model": "a/gone"}, "cancelled")])
async def test_a_run_whose_model_is_gone_goes_over_if_it_may(
    choice: dict[str, str], state: str, autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Resumed by a daemon that does not have it: another answers, unless it was named."""
    fleet = Fleet(RouteTable(mode="enforced", routes=(Route(model="a/gone", tier=1),)), "a/gone")
    fleet["a/gone"].turns = [trio.Event()]
    async with fleet.running(store) as kit:
        run_id = await kit.start(**choice)
        await wait_all_tasks_blocked()
        assert ["a/gone"] == models_of(kit, run_id)
    fleet.table = RouteTable(failover=("b/spare",))
    fleet.by_name["b/spare"] = Model()
    async with fleet.running(store, without="a/gone") as kit:
        assert state == await kit.end(run_id)
        changes = kit.events(run_id, "route.changed")
        if state == "done":
            assert ("gone", "b/spare") == (changes[0].reason, models_of(kit, run_id)[-1])
            await replayed(kit, run_id)
        else:
            assert "not there any more" in kit.events(run_id, "run.cancelled")[0].reason
            assert [] == changes


async def test_a_fork_uses_the_model_at_its_event(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Not the one that the run was accepted with; it may fail over as before."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = fail("auth")
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        await kit.end(run_id)
        head = (await kit.gateway.get_run(OPERATOR, run_id)).head_seq
        fleet["b/spare"].turns = fail("auth")
        fork = await kit.gateway.fork_run(OPERATOR, run_id, head, "and now?")
        assert "failed" == await kit.end(fork.run_id)  # it has no third to go to but itself
        accepted = kit.events(fork.run_id, "run.accepted")[0]
        assert ("b/spare", "preferred") == (accepted.model, accepted.model_choice)
        assert ["b/spare"] == models_of(kit, fork.run_id)


# --- overflow ------------------------------------------------------------------------------------


async def test_an_overflow_leaves_out_history_and_a_resumed_run_sees_the_same(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """The oldest runs go, the tape says how many, and a restart assembles the same prompt."""
    fleet = Fleet(RouteTable())
    async with fleet.running(store, history_tokens=50_000) as kit:
        for number in range(4):
            await kit.end(await kit.start(f"word {number} " * 500, session_key="s"))
        model = fleet["scripted"]
        model.turns = [*fail("context_overflow"), trio.Event()]
        run_id = await kit.start("short", session_key="s")
        await wait_all_tasks_blocked()
        (compacted,) = kit.events(run_id, "context.compacted")
        assert compacted.history_runs in {2, 3}
        assert compacted.after_tokens <= compacted.before_tokens // 2
        seen = model.requests[-1].messages
    async with fleet.running(store, history_tokens=50_000) as kit:
        assert "done" == await kit.end(run_id)
        assert seen == fleet["scripted"].requests[-1].messages
        assert "run.recovered" in kit.kinds(run_id)
        await replayed(kit, run_id)


async def test_a_second_overflow_is_a_typed_end(
    autojump_clock: MockClock, store: MemoryJournal
) -> None:
    """Long outputs are shown as head and tail, between fences, once; then the run fails."""
    fleet = Fleet(TO_SPARE, "b/spare")
    fleet["scripted"].turns = [
        call(("echo", {"text": "word " * 3_000})),
        *fail("context_overflow", times=2),
    ]
    async with fleet.running(store) as kit:
        run_id = await kit.start()
        assert "failed" == await kit.end(run_id)
        assert "context_overflow" == kit.events(run_id, "run.failed")[0].failure_class
        whole, short = (_outputs(each.messages) for each in fleet["scripted"].requests[1:])
        assert len(short[0]) < len(whole[0])
        assert short[0].rstrip().endswith(">")
        assert "b/spare" not in fleet.asked
        await replayed(kit, run_id)


def _outputs(messages: Iterable[Any]) -> list[str]:
    return [each.output for each in messages if isinstance(each, ToolMessage)]


# --- what is configured --------------------------------------------------------------------------


@every_row(
    ("table", "named"),
    [
        (RouteTable(routes=(Route(model="no/such"),)), "no/such"),
        (RouteTable(failover=("no/such",)), "no/such"),
        (RouteTable(routes=(Route(model="m", failover=("no/such",)),)), "no/such"),
        (RouteTable(routes=(Route(model="m"), Route(model="m"))), "twice"),
    ],
)
def test_a_table_that_cannot_be_kept_is_refused(table: RouteTable, named: str) -> None:
    """At the start, naming what is wrong with it."""
    with pytest.raises(InvalidParams, match=named):
        ModelRouter({"m": Model()}, table)


def test_every_model_is_listed_once() -> None:
    """The default first, then routes, alternatives and the rest."""
    models = {name: Model() for name in ("rest", "m", "spare", "default")}
    table = RouteTable(routes=(Route(model="m", tier=3),), failover=("spare", "m"))
    router = ModelRouter(models, table, rates=lambda _: (2, 5), default="default")
    found = router.list_all(OPERATOR).models
    assert ["default", "m", "spare", "rest"] == [each.name for each in found]
    assert (True, 2, 5) == (
        found[0].is_default,
        found[0].input_usd_micros,
        found[0].output_usd_micros,
    )
    assert (3, None) == (found[1].tier, found[3].tier)
    assert (0, None) == (found[0].waiting, router.list_all(STRANGER).models[0].waiting)


async def test_another_model_of_the_same_provider_takes_over(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A model that is left alone says nothing of its neighbour at the same provider."""
    table = RouteTable(
        mode="enforced", routes=(Route(model="a/big", tier=3), Route(model="a/small", tier=3))
    )
    fleet = Fleet(table, "a/big", "a/small")
    async with fleet.running(store) as kit:
        change = AgentChange(instructions="Rhyme.", model="a/big")
        await kit.services.agents.create(OPERATOR, "poet", change)
        fleet.guards["a"].trip("a/big")
        await kit.end(run_id := await kit.start(agent="poet"))
        assert ["a/small"] == models_of(kit, run_id)


def test_published_facts_stand_in_for_a_route() -> None:
    """Without a route the published window and abilities count; a configured route replaces them."""
    known = {"p/m": Route(model="p/m", vision=False, window=9), "p/n": Route(model="p/n", window=7)}
    table = RouteTable(routes=(Route(model="p/n", vision=True, window=5),))
    models = {"p/m": Model(), "p/n": Model(), "p/o": Model()}
    router = ModelRouter(models, table, known=known)
    assert [9, 5, 0, 5] == [
        *(router.window(name) for name in ("p/m", "p/n", "p/o")),
        router.least_window,
    ]
    router.check("p/n", ("vision",))
    router.check("p/o", ("vision",))
    with pytest.raises(InvalidParams, match="'p/m' lacks vision"):
        router.check("p/m", ("vision",))
    found = {each.name: each for each in router.list_all(OPERATOR).models}
    assert (9, True, None) == (found["p/m"].window, found["p/m"].is_published, found["p/m"].tier)
    assert (5, False, 2) == (found["p/n"].window, found["p/n"].is_published, found["p/n"].tier)
    assert (None, False) == (found["p/o"].window, found["p/o"].is_published)
