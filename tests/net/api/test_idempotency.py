"""Idempotency: one effect per key, for any number of requests, before and after a restart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pytest
import trio.testing

from palyra.core.journal.changes import Change
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import RECEIPT_TTL_MS
from palyra.core.ports import JournalStore
from palyra.core.session.commands import Steered
from palyra.errors import IdempotencyConflict, Unavailable
from palyra.net.api.idempotency import IdempotencyStore, digest_body
from palyra.net.api.methods.run import RunStart
from palyra.net.api.methods.table import METHODS
from tests.net.api.fake_services import RUN, Daemon, open_daemon
from tests.net.api.fake_store import run_record
from tests.store.memory.journal import MemoryJournal

Clock = trio.testing.MockClock
T = TypeVar("T")


@dataclass
class Inline:
    """The journal's handle over the real store in memory."""

    store: MemoryJournal
    backlog: int = 0
    is_writable: bool = True

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        await trio.lowlevel.checkpoint()
        return query(self.store)

    async def find(self, query: Callable[[JournalStore], T]) -> T:
        return await self.read(query)

    async def commit(self, change: Change) -> None:
        await trio.lowlevel.checkpoint()
        (error,) = self.store.commit([change])
        if error is not None:
            raise error


class SlowInline(Inline):
    """A journal whose commits take a second."""

    async def commit(self, change: Change) -> None:
        async def write() -> None:
            await trio.sleep_until(done_s)
            await Inline.commit(self, change)

        done_s = trio.current_time() + 1.0
        trio.lowlevel.spawn_system_task(write)
        await trio.sleep_until(done_s + 1.0)

    async def cancel_meanwhile(self, asker: trio.CancelScope) -> None:
        await trio.sleep_until(trio.current_time() + 0.5)
        asker.cancel()


class Office:
    """A store, receipts over it, and an effect that counts."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.store = MemoryJournal(now_ms=lambda: self.now_ms)
        self.store.open()
        self.effects = 0
        self.gate = trio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.restart()

    def restart(self) -> None:
        self.store.close()
        self.store.open()
        self.receipts = IdempotencyStore(cast("Any", Inline(self.store)), lambda: self.now_ms)

    async def effect(self) -> Steered:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.effects += 1
        return Steered(seq=self.effects)

    async def ask(
        self, key: str = "k", *, body: str = "b", principal: str = "ann", keeps: bool = False
    ) -> int:
        receipt = IdempotencyKey(principal=principal, key=key, body_sha256=body)
        kept = await self.receipts.once(receipt, Steered, self.effect, is_kept_by_effect=keeps)
        return kept.seq


async def test_repeats_get_the_first_answer(autojump_clock: Clock) -> None:
    """Same key and body: the first result again, also after a restart, and one effect."""
    services = Office()
    answers = [await services.ask(), await services.ask()]
    services.restart()
    answers.append(await services.ask())
    assert ([1, 1, 1], 1) == (answers, services.effects)


async def test_another_body_is_refused(autojump_clock: Clock) -> None:
    """The key with another body is a conflict, now and after a restart."""
    services = Office()
    await services.ask()
    for _ in range(2):
        with pytest.raises(IdempotencyConflict, match="'k' was already used"):
            await services.ask(body="other")
        services.restart()
    assert 1 == services.effects


async def test_keys_belong_to_their_principal(autojump_clock: Clock) -> None:
    """The same key of another principal is another key."""
    services = Office()
    assert [1, 2] == [await services.ask(), await services.ask(principal="bob")]


async def test_simultaneous_requests_have_one_effect(autojump_clock: Clock) -> None:
    """Requests during the first one wait for it and get its reply."""
    services = Office()
    services.gate = trio.Event()
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await services.ask())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(IdempotencyConflict):
            await services.ask(body="other")
        services.gate.set()
    assert ([1] * 5, 1) == (answers, services.effects)


async def test_failed_effect_leaves_no_receipt(autojump_clock: Clock) -> None:
    """After an error the same key may try again."""
    services = Office()
    services.failure = Unavailable("disk full")
    with pytest.raises(Unavailable):
        await services.ask()
    services.failure = None
    assert 1 == await services.ask()


async def _open_at(at_s: float, gate: trio.Event) -> None:
    await trio.sleep_until(at_s)
    gate.set()


@pytest.mark.parametrize("keeps", [False, True])
async def test_cancelled_request_frees_its_key(autojump_clock: Clock, *, keeps: bool) -> None:
    """A request that is given up blocks neither those behind it nor the stop of its connection."""
    services = Office()
    services.gate = trio.Event()
    trio.lowlevel.spawn_system_task(_open_at, trio.current_time() + 60, services.gate)
    with trio.move_on_after(1):
        await services.ask(keeps=keeps)
    assert 1 == trio.current_time()
    services.gate.set()
    assert 1 == await services.ask()


async def test_a_pending_receipt_is_waited_for(autojump_clock: Clock) -> None:
    """After a disconnect during the commit of a receipt, a repetition finds the receipt."""
    services = Office()
    journal = SlowInline(services.store)
    services.receipts = IdempotencyStore(cast("Any", journal), lambda: services.now_ms)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            nursery.start_soon(journal.cancel_meanwhile, first)
            await services.ask()
        services.now_ms += 1
        assert 1 == await services.ask()
    assert 1 == services.effects


async def test_receipts_expire(autojump_clock: Clock) -> None:
    """After 24 hours the key is new."""
    services = Office()
    await services.ask()
    services.now_ms += RECEIPT_TTL_MS
    assert 2 == await services.ask(body="other")


# --- what counts as the same body ---


def test_defaults_and_order_do_not_matter() -> None:
    """A default spelt out, and fields in another order, make the same body."""
    spelt = RunStart(text="a", attachments=({"x": 1, "y": 2},), origin="interactive")
    plain = RunStart(text="a", attachments=({"y": 2, "x": 1},), idempotency_key="k")
    assert digest_body("run.start", spelt) == digest_body("run.start", plain)


def test_everything_else_matters() -> None:
    """Another text or another method is another body."""
    start = RunStart(text="a")
    others = [
        digest_body("run.start", RunStart(text="b")),
        digest_body("run.start", RunStart(text="a", subscribe=True)),
        digest_body("run.steer", start),
    ]
    assert digest_body("run.start", start) not in others


# --- over the wire ---

MUTATIONS: dict[str, dict[str, Any]] = {
    "run.start": {"text": "hi"},
    "run.fork": {"run_id": RUN, "at_seq": 7, "text": "hi"},
    "run.steer": {"run_id": RUN, "text": "hi"},
    "run.cancel": {"run_id": RUN},
    "run.undo": {"run_id": RUN, "digest": "d"},
    "approval.resolve": {"approval_id": "apr_1", "decision": "allow", "digest": "d"},
    "approval.revoke": {"grant_id": "grt_1"},
    "checkpoint.restore": {"checkpoint_id": "ckp_1"},
    "session.resolve": {"session_key": "k"},
    "session.archive": {"session_id": "ses_1"},
    "session.purge": {"session_id": "ses_1"},
    "session.rename": {"session_id": "ses_1", "title": "Ours"},
    "backup.create": {"path": "/backups/b"},
    "policy.apply_suggestion": {"suggestion_id": "sug_0123456789abcdef"},
    "policy.undo": {},
    "policy.allow_from": {"approval_id": "apr_1"},
    "learning.accept": {"candidate_id": "can_1"},
    "learning.reject": {"candidate_id": "can_1"},
    "learning.edit": {"candidate_id": "can_1", "text": "our port is 2"},
    "learning.undo": {"candidate_id": "can_1"},
    "task.submit": {"kind": "prompt", "payload": {"text": "hello"}},
    "task.cancel": {"task_id": "tsk_1", "reason": "enough"},
    "task.pause": {"task_id": "tsk_1"},
    "task.resume": {"task_id": "tsk_1"},
    "task.retry": {"task_id": "tsk_1"},
    "schedule.add": {"name": "nightly", "cron": "30 2 * * *", "payload": {"text": "hello"}},
    "schedule.pause": {"schedule_id": "sch_1"},
    "schedule.resume": {"schedule_id": "sch_1"},
    "schedule.remove": {"schedule_id": "sch_1"},
    "retention.apply": {"max_runs": 3},
    "retention.compact": {"max_steps": 3},
    "session.reset": {"session_id": "ses_1"},
    "session.set_mode": {"session_id": "ses_1", "mode": "plan"},
    "session.queue": {"session_id": "ses_1", "paused": True},
    "session.compact": {"session_id": "ses_1"},
    "session.pin": {"session_id": "ses_1", "run_id": "run_1", "seq": 1},
    "session.checkpoint": {"session_id": "ses_1"},
    "session.restore": {"session_id": "ses_1"},
    "token.create": {"principal": "ann", "role": "client", "name": "laptop"},
    "token.revoke": {"token_id": "id-of-tok-bob"},
    "agent.create": {"name": "scout", "instructions": "Look."},
    "agent.update": {"name": "scout"},
    "agent.delete": {"name": "scout"},
    "budget.set": {"budget_id": "day", "hard": 9},
    "budget.delete": {"budget_id": "day"},
    "config.set": {"key": "server.port", "value": 7000},
    "system.suspend": {"reason": "upgrade"},
    "system.resume": {},
    "channel.set": {"channel": "chat"},
    "channel.delete": {"channel": "chat"},
    "incident.resolve": {"incident_id": "inc_1", "reason": "seen to"},
    "memory.add": {"text": "the port is 8080"},
    "memory.import": {"items": [{"text": "the port is 8080"}]},
    "memory.edit": {"memory_id": "mem_1", "text": "a third text"},
    "memory.forget": {"memory_id": "mem_1"},
    "memory.undo": {"memory_id": "mem_1"},
    "memory.pin": {"memory_id": "mem_1"},
    "memory.never_recall": {"memory_id": "mem_1"},
    "memory.purge": {"principal": "root"},
    "pairing.approve": {"pairing_id": "pai_1", "code": "c"},
    "pairing.revoke": {"pairing_id": "pai_1"},
    "skill.install": {"sha256": "b" * 64, "grant": ["clock"]},
    "skill.quarantine": {"id": "counter", "reason": "odd"},
    "skill.enable": {"id": "counter"},
    "skill.remove": {"id": "counter"},
}


def test_every_mutation_is_covered() -> None:
    """The list above has exactly the methods that take an idempotency key."""
    assert {name for name, method in METHODS.items() if method.is_mutating} == set(MUTATIONS)


def effects_of(daemon: Daemon) -> list[Any]:
    """The effects in the daemon."""
    asked = [*daemon.agents.asked, *daemon.channels.asked, *daemon.skills.asked]
    asked += [*daemon.budgets.asked, *daemon.incidents.asked, *daemon.memories.asked]
    asked += [*daemon.keeping.asked, *daemon.suggestions.asked, *daemon.learning.asked]
    asked += [*daemon.tasks.asked, *daemon.schedules.asked]
    tokens = list(daemon.store.tokens.items())
    return [
        *daemon.gateway.effects,
        *asked,
        *daemon.files.restored,
        *daemon.changes.undone,
        *tokens,
    ]


@pytest.mark.parametrize("method", MUTATIONS)
async def test_mutations_are_idempotent(autojump_clock: Clock, method: str) -> None:
    """Sent twice on two connections: one effect, the same result; with another body: refused."""
    async with open_daemon() as daemon:
        daemon.store.runs[RUN] = run_record(RUN, principal="root")
        first, second = [await daemon.connect("tok-operator") for _ in range(2)]
        params = MUTATIONS[method] | {"idempotency_key": "once"}
        before = effects_of(daemon)
        answer = await first.call(method, **params)
        effects = effects_of(daemon)
        assert before != effects, "this test would not see a second effect"
        daemon.now_ms += 1
        again = await second.call(method, **params)
        assert effects == effects_of(daemon)
        answer.pop("token", None)  # shown once
        assert answer == again
        other = "run.start" if method != "run.start" else "run.cancel"
        error = await first.fail(other, **MUTATIONS[other], idempotency_key="once")
        assert "idempotency_conflict" == error["data"]["code"]


async def test_keys_on_the_wire_belong_to_their_principal(autojump_clock: Clock) -> None:
    """Two principals that happen on the same key get a run each."""
    async with open_daemon() as daemon:
        peers = [await daemon.connect(token) for token in ("tok-ann", "tok-bob")]
        params = {"text": "hi", "idempotency_key": "1"}
        runs = {(await peer.call("run.start", **params))["run_id"] for peer in peers}
        assert 2 == len(runs)


async def test_without_a_key_each_request_counts(autojump_clock: Clock) -> None:
    """Two requests without a key are two runs."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        runs = {(await peer.call("run.start", text="hi"))["run_id"] for _ in range(2)}
        assert 2 == len(runs)


async def test_repeated_start_subscribes_again(autojump_clock: Clock) -> None:
    """A repeat with `subscribe` on a new connection shows the same run from its beginning."""
    async with open_daemon() as daemon:
        params = {"text": "hi", "subscribe": True, "idempotency_key": "once"}
        first = await daemon.connect()
        run_id = (await first.call("run.start", **params))["run_id"]
        first.leave()
        second = await daemon.connect()
        again = await second.call("run.start", **params)
        assert run_id == again["run_id"]
        assert 1 == len(daemon.hub.get_feed(run_id).listeners)


@pytest.mark.parametrize("key", ["", "x" * 129])
async def test_keys_are_bounded(autojump_clock: Clock, key: str) -> None:
    """Empty and over-long keys are refused."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        error = await peer.fail("run.start", text="hi", idempotency_key=key)
        assert "idempotency_key" == error["data"]["field"]
