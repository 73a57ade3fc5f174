"""A load of every kind of run, and a ledger of the promises and events its clients received.

Starters begin runs and follow most of them to their ends, through all failures of the daemon;
answerers answer prompts, some at once and some only when the storm is over.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import msgspec
import trio

from palyra.client import Client, EventsDiscarded, TapeEvent
from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.views import Resolved
from palyra.core.session.commands import Started
from palyra.errors import Unavailable

SESSIONS = ("queue-a", "queue-b", "queue-c")
FOLDER = "out"  # of the workspace: where runs write
POSTPONED = 8  # prompts left for the end
FREE, ASKED = "free", "asked"  # prefixes of names that need no person, or one

RULES = f"""
permit (principal, action == Action::"tool.execute", resource == Tool::"write_file")
when {{ context has path && context.path like "{FOLDER}/{FREE}*" }};
"""


@dataclass(frozen=True)
class Order:
    """One run as it was asked for."""

    key: str  # idempotency key
    text: str
    session_key: str | None


@dataclass
class Ledger:
    """The promises and events that clients received."""

    started: dict[str, tuple[Order, Started]] = field(default_factory=dict)  # acknowledged, by run
    seen: dict[str, list[TapeEvent]] = field(default_factory=dict)  # followed to the end, by run
    prompts: dict[str, ApprovalRecord] = field(default_factory=dict)  # as first seen, by id
    told: dict[str, Resolved] = field(default_factory=dict)  # replies to answers
    postponed: list[str] = field(default_factory=list)  # prompts to be answered after the storm
    events: int = 0  # seen by followers
    dropped: int = 0  # announced as undone by a crash
    answers: Counter[str] = field(default_factory=Counter)
    is_over: bool = False
    _alarm: tuple[int, trio.Event] | None = None

    def take(self, run_id: str, item: object) -> None:
        """Note what a follower was given.  Every event comes once and in order, or is undone."""
        events = self.seen[run_id]
        if isinstance(item, TapeEvent):
            assert len(events) == item.seq, f"{run_id}: {item.seq} after {len(events) - 1}"
            events.append(item)
            self.events += 1
            self._ring()
        elif isinstance(item, EventsDiscarded):
            self.dropped += len(events) - item.after_seq - 1
            del events[item.after_seq + 1 :]

    def may_postpone(self, run_id: str) -> bool:
        """Return True if no run queues behind that one and few answers are postponed."""
        order, _ = self.started.get(run_id, (None, None))
        return order is not None and order.session_key is None and len(self.postponed) < POSTPONED

    async def wait_events(self, more: int) -> None:
        """Return when followers have seen that many more events."""
        self._alarm = (self.events + more, trio.Event())
        await self._alarm[1].wait()

    def _ring(self) -> None:
        if self._alarm is not None and self.events >= self._alarm[0]:
            self._alarm[1].set()


# --- what is asked for ---------------------------------------------------------------------------


class Recipes:
    """Texts of runs; every file name is used once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._numbers = count(1)

    def order(self) -> Order:
        """The next run to ask for."""
        number = next(self._numbers)
        make = self._rng.choice(
            (
                self._plain,
                self._slow,
                self._reads,
                self._writes,
                self._writes,
                self._asks,
                self._mix,
            )
        )
        session_key = self._rng.choice(SESSIONS) if self._rng.random() < 0.3 else None
        return Order(f"load-{number}", make(), session_key)

    def _plain(self) -> str:
        return f"/tokens {self._rng.randint(1, 400)}"

    def _slow(self) -> str:
        return f"/delay {self._rng.randint(1, 20)}\n/tokens {self._rng.randint(1, 20)}"

    def _reads(self) -> str:
        calls = ['/call list_dir {"path": ""}', '/call sleep {"seconds": 0.05}']
        turns = ["\n".join(self._rng.choices(calls, k=3)) for _ in range(self._rng.randint(1, 4))]
        return "\n/then\n".join(turns)

    def _writes(self) -> str:
        return "\n/then\n".join(self._write(FREE) for _ in range(self._rng.randint(1, 4)))

    def _asks(self) -> str:
        return "\n/then\n".join(self._write(ASKED) for _ in range(self._rng.randint(1, 2)))

    def _mix(self) -> str:
        return f"{self._write(FREE)}\n{self._write(ASKED)}\n/then\n{self._reads()}"

    def _write(self, kind: str) -> str:
        name = f"{kind}-{next(self._numbers)}.txt"
        content = name * self._rng.choice((1, 3_000))  # the larger one takes its time
        arguments = msgspec.json.encode({"path": f"{FOLDER}/{name}", "content": content})
        return f"/call write_file {arguments.decode()}"


# --- who asks ------------------------------------------------------------------------------------


async def start_runs(client: Client, ledger: Ledger, recipes: Recipes, rng: random.Random) -> None:
    """One run after the other, until it is over."""
    while not ledger.is_over:
        order = recipes.order()
        started = await client.start_run(
            order.text, session_key=order.session_key, idempotency_key=order.key
        )
        ledger.started[started.run_id] = (order, started)
        if rng.random() < 0.8:
            cancel_at = rng.randint(1, 30) if rng.random() < 0.15 else None
            await follow(client, ledger, started.run_id, cancel_at)


async def follow(client: Client, ledger: Ledger, run_id: str, cancel_at: int | None) -> None:
    """Watch the run to its end, and cancel it after so many events if wanted."""
    ledger.seen[run_id] = []
    async with client.events(run_id) as items, trio.open_nursery() as nursery:
        async for item in items:
            ledger.take(run_id, item)
            if len(ledger.seen[run_id]) == cancel_at:
                cancel_at = None
                nursery.start_soon(cancel, client, run_id)


async def cancel(client: Client, run_id: str) -> None:
    """Cancel, also when the daemon is killed in between: the key makes it once."""
    await client.cancel(run_id, "enough", idempotency_key=f"cancel-{run_id}")


# --- who answers ---------------------------------------------------------------------------------


async def answer_prompts(client: Client, ledger: Ledger, rng: random.Random) -> None:
    """Answer what is pending, round after round, also what is pending again after a kill."""
    while True:
        try:
            for record in await client.list_approvals(pending_only=True, limit=100):
                await _consider(client, ledger, record, rng)
        except Unavailable:  # a kill between question and reply, or a run that is being resumed
            ledger.answers["unavailable"] += 1
        await trio.sleep(rng.random() / 20)


async def _consider(
    client: Client, ledger: Ledger, record: ApprovalRecord, rng: random.Random
) -> None:
    known = ledger.prompts.setdefault(record.approval_id, record)
    assert known == record, f"{record} is not what it was: {known}"
    if known is record and ledger.may_postpone(record.run_id) and rng.random() < 0.25:
        ledger.postponed.append(record.approval_id)
    if ledger.is_over or record.approval_id not in ledger.postponed:
        number = int(record.approval_id[-4:], 16)  # the same answer each time it is repeated
        ledger.told[record.approval_id] = await client.resolve_approval(
            record.approval_id,
            "deny" if number % 4 == 0 else "allow",
            record.digest,
            idempotency_key=f"answer-{record.approval_id}",
        )
