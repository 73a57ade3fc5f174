"""A provider's guards round a model, on virtual time."""

from collections.abc import Callable

import msgspec
import pytest
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.incident.kinds import provider_key
from palyra.core.journal.records import Usage
from palyra.core.model.circuit_breaker import OPEN_MS
from palyra.core.model.messages import Delta, FailureClass, ModelFailure, ModelRequest, ModelTurn
from palyra.models.catalogue import MAX_MADE, ModelCatalogue
from palyra.models.guarded import MAX_BREAKERS, CallSlots, GuardedModel, ProviderLimits
from tests.actors.fake_alarms import FakeAlarms

REQUEST = ModelRequest(run_id="r", turn=1, attempt=1, model="m", instructions="", messages=())
TURN = ModelTurn(text="", calls=(), finish_reason="stop", usage=Usage())


class Inner:
    """A model that follows a plan; each call takes one second."""

    def __init__(self, name: str = "p/m") -> None:
        self.name, self.provider = name, "p"
        self.plan: list[FailureClass | None] = []
        self.asked = 0

    def most_output(self, request: ModelRequest) -> int:
        return request.sampling.max_output_tokens or 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:  # noqa: ARG002 - as models have them
        self.asked += 1
        await trio.sleep_until(trio.current_time() + 1)
        failure = self.plan.pop(0) if self.plan else None
        if failure is not None:
            raise ModelFailure(failure, "as planned")
        return TURN


def now_ms() -> int:
    return round(trio.current_time() * 1000)


def guarded(inner: Inner) -> GuardedModel:
    """The model behind guards of its own."""
    return GuardedModel(inner, ProviderLimits("p", "env:KEY", CallSlots(4, 2), now_ms))


def ignore(_delta: Delta) -> None:
    pass


async def fail(model: GuardedModel, failure: FailureClass) -> ModelFailure:
    """Ask, and be refused."""
    with pytest.raises(ModelFailure) as caught:
        await model.stream(REQUEST, ignore)
    assert caught.value.failure_class == failure
    return caught.value


async def test_a_failing_provider_is_left_alone(autojump_clock: MockClock) -> None:
    """After three failures no call is sent; half a minute later one probe is."""
    inner = Inner()
    inner.plan = ["transient"] * 3
    model = guarded(inner)
    for _ in range(3):
        await fail(model, "transient")
    refused = await fail(model, "unavailable")
    assert (3, OPEN_MS, False) == (inner.asked, refused.retry_after_ms, refused.was_asked)
    await trio.sleep_until(trio.current_time() + OPEN_MS / 1000)
    assert await model.stream(REQUEST, ignore) == TURN
    assert await model.stream(REQUEST, ignore) == TURN


async def test_a_provider_that_is_left_alone_is_an_incident_until_it_answers(
    autojump_clock: MockClock,
) -> None:
    """An incident is reported each time the breaker opens and resolved when a call succeeds."""
    inner, alarms = Inner(), FakeAlarms()
    guard = ProviderLimits("p", "env:KEY", CallSlots(4, 2), now_ms, alarms=alarms)
    model, key = GuardedModel(inner, guard), provider_key("p/m")
    inner.plan = ["transient", "timeout", "transient", "timeout", None, None, "transient"]
    await fail(model, "transient")
    await fail(model, "timeout")
    assert [] == alarms.told
    await fail(model, "transient")
    assert [key] == alarms.told
    await fail(model, "unavailable")
    await trio.sleep_until(trio.current_time() + OPEN_MS / 1000)
    await fail(model, "timeout")
    assert [key, key] == alarms.told
    assert (4, "timeout: as planned") == (
        alarms.raised[-1].evidence["failures"],
        alarms.raised[-1].evidence["last"],
    )
    await trio.sleep_until(trio.current_time() + OPEN_MS / 1000)
    await model.stream(REQUEST, ignore)
    await model.stream(REQUEST, ignore)
    await fail(model, "transient")
    assert [key, key, f"-{key}"] == alarms.told


async def test_another_model_of_the_provider_is_not_left_alone(autojump_clock: MockClock) -> None:
    """Each model has a breaker of its own; the places at the provider are shared."""
    ill, well, alarms = Inner("p/m"), Inner("p/n"), FakeAlarms()
    guard = ProviderLimits("p", "env:KEY", CallSlots(4, 2), now_ms, alarms=alarms)
    ill.plan = ["transient"] * 3
    for _ in range(3):
        await fail(GuardedModel(ill, guard), "transient")
    assert await GuardedModel(well, guard).stream(REQUEST, ignore) == TURN
    refused = await fail(GuardedModel(ill, guard), "unavailable")
    assert "p/m failed 3 times in a row" in refused.message
    assert [provider_key("p/m")] == alarms.told
    assert ["open", "closed", "open"] == [
        guard.health("p/m").breaker, guard.health("p/n").breaker, guard.standing.breaker,
    ]  # fmt: skip
    guard.trip("p/n")
    assert not guard.health("p/n").admits


def test_the_number_of_breakers_is_bounded() -> None:
    """Clients may name any model: the oldest breaker is forgotten, with its incident."""
    alarms = FakeAlarms()
    guard = ProviderLimits("p", "env:KEY", CallSlots(4, 2), lambda: 0, alarms=alarms)
    for number in range(MAX_BREAKERS + 1):
        guard.trip(f"p/{number}")
    assert (True, False) == (guard.health("p/0").admits, guard.health("p/1").admits)
    assert [f"-{provider_key('p/0')}"] == alarms.told
    assert MAX_BREAKERS == len(guard._breakers)


async def test_a_probe_that_is_cancelled_lets_the_next_one_try(autojump_clock: MockClock) -> None:
    """A cancelled probe leaves the breaker as it was, so the next call may probe."""
    inner = Inner()
    inner.plan = ["timeout"] * 3
    model = guarded(inner)
    for _ in range(3):
        await fail(model, "timeout")
    await trio.sleep_until(trio.current_time() + OPEN_MS / 1000)
    with trio.move_on_after(0.5):
        await model.stream(REQUEST, ignore)
    assert await model.stream(REQUEST, ignore) == TURN


async def test_two_calls_a_key(autojump_clock: MockClock) -> None:
    """The third waits for one of them."""
    model = guarded(Inner())
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(model.stream, REQUEST, ignore)
    assert trio.current_time() == pytest.approx(2)


async def test_background_turns_come_last(autojump_clock: MockClock) -> None:
    """A background turn waits for every foreground turn, however early it was queued."""
    inner, order = Inner(), list[str]()
    model = GuardedModel(inner, ProviderLimits("p", "env:KEY", CallSlots(1, 1), now_ms))

    async def ask(run_id: str) -> None:
        changes = {"run_id": run_id, "is_background": run_id == "background"}
        await model.stream(msgspec.structs.replace(REQUEST, **changes), ignore)
        order.append(run_id)

    async with trio.open_nursery() as nursery:
        for run_id in ("first", "background", "foreground"):
            nursery.start_soon(ask, run_id)
            await wait_all_tasks_blocked()
    assert ["first", "foreground", "background"] == order


def test_models_are_made_by_name() -> None:
    """Fixed ones by their whole name, others by their provider's; nothing else is there."""
    fixed, made = Inner("scripted"), []

    def make(model: str) -> Inner:
        made.append(model)
        return Inner(f"p/{model}")

    models = ModelCatalogue({"scripted": fixed}, {"p": make}, ("p/known",))
    assert models["scripted"] is fixed
    assert models["p/org/big:7b"] is models["p/org/big:7b"]
    assert ["org/big:7b"] == made
    assert ["scripted", "p/known"] == list(models)
    assert 2 == len(models)
    for name in ("p", "p/", "p/.", "p/..", "q/m", "/m", "", "scripted/x", f"p/{'x' * 200}", 7):
        assert name not in models
    for number in range(MAX_MADE):
        assert f"p/{number}" in models
    assert models["p/org/big:7b"].name == "p/org/big:7b"
    assert 2 == made.count("org/big:7b")  # forgotten meanwhile


def test_a_model_of_a_replaced_provider_is_not_kept() -> None:
    """A replacement while a model is made, which a thread may do, leaves none of the former provider."""
    models = ModelCatalogue({})

    def make_new(model: str) -> Inner:
        return Inner(f"new {model}")

    def make_old(model: str) -> Inner:
        models.replace({"p": make_new}, ())
        return Inner(f"old {model}")

    models.replace({"p": make_old}, ())
    assert ["old m", "new m"] == [models["p/m"].name for _ in range(2)]
    assert models["p/m"] is models["p/m"]


async def test_the_guard_reports_load_and_breaker_state(autojump_clock: MockClock) -> None:
    """The guard reports active calls, waiting calls and each state of the breaker."""
    inner = Inner()
    guard = ProviderLimits("p", "env:KEY", CallSlots(4, 2), now_ms, api="chat")
    model = GuardedModel(inner, guard)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(model.stream, REQUEST, ignore)
        await trio.testing.wait_all_tasks_blocked()
        busy = guard.standing
        assert (2, 1, True) == (busy.under_way, busy.waiting, busy.is_busy)
    inner.plan = ["transient"] * 3
    for _ in range(3):
        await fail(model, "transient")
    ill = guard.standing
    assert ("chat", "open", False, OPEN_MS) == (ill.api, ill.breaker, ill.admits, ill.opens_in_ms)
    autojump_clock.jump(OPEN_MS / 1000)
    assert ("half_open", True, 0) == (
        guard.standing.breaker,
        guard.standing.admits,
        guard.standing.opens_in_ms,
    )
