"""Cancels at any instant, on virtual time: `python -m tests.actors.run.cancels --instants N`.

Runs of several turns with slow models, tools, questions and commits are cancelled at a random
instant of their lives, or just before, or after; some daemons fall first, and the next one is
told.  Whatever the instant: one terminal event, nothing starts after it, every call is attested,
every question is closed, leases and reservations are returned, and nothing of the run is left in
the daemon.  Prints sums as JSON; the
exit code is 1 when a rule was broken.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from unittest.mock import patch

import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.session.registry import SessionServices
from palyra.core.approval import ResolveApproval
from palyra.core.journal.records import BudgetRecord
from palyra.core.model.messages import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.core.run.environment import RunLimits
from palyra.core.tape.events import TERMINAL_KINDS, ToolAttested, decode_event
from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.errors import PalyraError
from palyra.models.guarded import CallSlots, GuardedModel, ProviderLimits
from palyra.tools.toolbox import AsyncTool
from tests.actors.run import office_kit
from tests.actors.run.office_kit import OPERATOR, Kit, call, running, say, spec
from tests.services.test_budgets import having
from tests.store.memory.journal import MemoryJournal

RUNS = 40  # at once, under one daemon
LIFE_S = 0.6  # about as long as a run takes that nobody cancels
MOST_TURNS = 4
EFFECTS = ("note", "ask_note", "slow")
AMPLE = BudgetRecord(
    budget_id="ample", scope="global", metric="tokens", window="day", hard=1_000_000_000
)
TOOLS = (*EFFECTS, "slow_safe", "forbidden")


class Watch:
    """A toolbox that notes what starts and what ends."""

    def __init__(self, inner: Any, tape_ended: Callable[[str], bool]) -> None:
        self.inner = inner
        self.tape_ended = tape_ended
        self.late: list[str] = []
        self.starts: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()  # of those, what may not happen twice
        self.open: Counter[str] = Counter()

    def catalogue(self) -> Any:
        return self.inner.catalogue()

    def facets(self, spec: ToolSpec, arguments: Any) -> Any:
        return self.inner.facets(spec, arguments)

    def inspects(self, tool: str) -> bool:
        return bool(self.inner.inspects(tool))

    async def inspect(self, made: ToolCall) -> Any:
        return await self.inner.inspect(made)

    async def execute(self, made: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        if self.tape_ended(made.run_id):
            self.late.append(made.call_id)
        self.starts[made.call_id] += 1
        self.effects[made.call_id] += made.tool in EFFECTS
        self.open[made.run_id] += 1
        try:
            output: ToolOutput = await self.inner.execute(made, on_output)
        finally:
            self.open[made.run_id] -= 1
        return output


class Script:
    """A model whose turns follow from the run's text, which is a seed."""

    name = provider = "scripted"

    def most_output(self, request: ModelRequest) -> int:
        return request.sampling.max_output_tokens or 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        rng = random.Random(f"{request.messages[0].text} {request.turn} {request.attempt}")  # type: ignore[union-attr]  # the user's
        await trio.sleep(rng.random() * LIFE_S / 8)
        if rng.random() < 0.1:
            raise ModelFailure("transient", "503")
        on_delta(Delta("text", "so far"))
        await trio.sleep(rng.random() * LIFE_S / 8)
        if request.turn >= MOST_TURNS or rng.random() < 0.15:
            return say("done")
        return call(*((name, {"text": "x"}) for name in rng.choices(TOOLS, k=rng.randint(1, 3))))


class SlowKit(Kit):
    """A daemon in which everything takes its time."""

    watch: Watch

    def build_services(self, limits: RunLimits, *rest: Any) -> SessionServices:
        self.leases = CallSlots(RUNS // 2, RUNS // 2)
        guard = ProviderLimits("scripted", "key", self.leases, office_kit.now_ms)
        self.model = GuardedModel(Script(), guard)  # type: ignore[assignment]  # another model
        services = super().build_services(limits, *rest)
        self.watch = Watch(services.toolbox, self.has_ended)
        return replace(services, toolbox=self.watch)

    def tools(self) -> list[Any]:
        async def slow(_call: Any, _on_output: Any) -> ToolOutput:
            await trio.sleep(LIFE_S / 6)
            return ToolOutput(text="slept")

        slow_tools = [
            AsyncTool(spec("slow"), slow),
            AsyncTool(spec("slow_safe", tool_class="read_only_safe"), slow),
        ]
        return [*super().tools(), *slow_tools]

    def has_ended(self, run_id: str) -> bool:
        """True if the tape has its terminal event."""
        return self.kinds(run_id)[-1] in TERMINAL_KINDS


@asynccontextmanager
async def running_slowly(store: MemoryJournal) -> AsyncGenerator[SlowKit]:
    """See `office_kit.running`."""
    with patch.object(office_kit, "Kit", SlowKit):
        async with running(store, make_budgets=having(AMPLE)) as kit:
            assert isinstance(kit, SlowKit)
            yield kit


@dataclass
class Campaign:
    """Some hundreds of runs, one daemon after the other over one journal each."""

    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    async def round(self) -> None:
        """One journal: runs, their cancels, perhaps a crash in between, and the check of all tapes."""
        store = MemoryJournal()
        store.open()
        effects: Counter[str] = Counter()  # over all lives
        ids: list[str] = []
        if self.rng.random() < 0.3:
            ids = await self.live_and_fall(store, effects)
        await self.live_to_the_end(store, ids, effects)
        self.problems += [f"{name}: {times} times" for name, times in effects.items() if times > 1]

    async def live_and_fall(self, store: MemoryJournal, effects: Counter[str]) -> list[str]:
        """A daemon that falls with its runs open."""
        async with running_slowly(store) as kit, trio.open_nursery() as nursery:
            ids = await self.begin(kit)
            nursery.start_soon(self.work, kit)
            await trio.sleep(self.rng.random() * LIFE_S)
            nursery.cancel_scope.cancel()
            effects.update(kit.watch.effects)
            self.counts["falls"] += 1
        return ids

    async def live_to_the_end(
        self, store: MemoryJournal, ids: list[str], effects: Counter[str]
    ) -> None:
        """A daemon in which every run is cancelled."""
        async with running_slowly(store) as kit, trio.open_nursery() as nursery:
            ids = ids or await self.begin(kit)
            nursery.start_soon(self.work, kit)
            async with trio.open_nursery() as cancels:
                for run_id in ids:
                    cancels.start_soon(self.cancel, kit, run_id)
            await trio.sleep(LIFE_S)
            nursery.cancel_scope.cancel()
            effects.update(kit.watch.effects)
            self.problems += _leftovers(kit)
            for run_id in ids:
                self.problems += [f"{run_id}: {text}" for text in self.judge(kit, run_id)]

    async def begin(self, kit: SlowKit) -> list[str]:
        """Start the runs, some of them behind others; their ids."""
        ids = []
        for number in range(RUNS):
            key = f"s{number % 7}" if number % 3 == 0 else None
            ids.append(await kit.start(f"{self.rng.random()}", session_key=key))
        return ids

    async def work(self, kit: SlowKit) -> None:
        """Let commits take their time, and answer approvals now and then."""
        while True:
            kit.journal.hold = True
            await trio.sleep(self.rng.random() / 100)
            kit.journal.release()
            for record in await kit.answers.list_seen(
                OPERATOR, run_id=None, pending_only=True, limit=100
            ):
                if self.rng.random() < 0.2:
                    await self.answer(kit, record)

    async def answer(self, kit: SlowKit, record: Any) -> None:
        decision: Literal["allow", "deny"] = "deny" if self.rng.random() < 0.3 else "allow"
        kit.journal.release()
        try:
            await kit.answers.resolve(
                OPERATOR,
                ResolveApproval(
                    approval_id=record.approval_id, decision=decision, digest=record.digest
                ),
            )
        except PalyraError:
            self.counts["answers refused"] += 1

    async def cancel(self, kit: SlowKit, run_id: str) -> None:
        """Cancel at an instant of the run's life; note what it was doing."""
        await trio.sleep(self.rng.random() ** 2 * LIFE_S)
        run = kit.registry.runs.get(run_id)
        if run is None:
            self.counts["when ended"] += 1
        elif run.is_recovering:
            self.counts["when recovering"] += 1
        else:
            busy = sorted({one.phase for one in run.run.calls if one.phase != "attested"})
            what = "turn" if run.run.turn_is_open else "+".join(busy) or run.run.state
            self.counts[f"when {what}"] += 1
        began_s = trio.current_time()
        try:
            ended = await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
            self.counts[f"ended {ended.state}"] += 1
        except PalyraError as error:
            self.problems.append(f"{run_id}: {error!r}")
        if trio.current_time() - began_s > 0.25:
            self.problems.append(f"{run_id}: {trio.current_time() - began_s:.3f} s to its end")

    def judge(self, kit: SlowKit, run_id: str) -> Iterator[str]:
        """The errors of one tape."""
        kinds = kit.kinds(run_id)
        self.counts["instants"] += 1
        if [kinds[-1]] != [kind for kind in kinds if kind in TERMINAL_KINDS]:
            yield f"not one terminal event: {kinds}"
        if kinds.count("approval.requested") != kinds.count("approval.resolved"):
            yield "a question without an answer"
        if kinds.count("tool.proposed") != kinds.count("tool.attested"):
            yield "a call without its attestation"
        for approval in kit.journal.store.list_approvals(
            principal=None, run_id=run_id, pending_only=True, limit=100
        ):
            yield f"{approval.approval_id} is pending"
        for row in kit.rows(run_id):
            if row.kind == ToolAttested.KIND:
                event = decode_event(row.kind, row.data)
                assert isinstance(event, ToolAttested)
                self.counts[f"call {event.attestation['status']}"] += 1


def _leftovers(kit: SlowKit) -> Iterator[str]:
    """Objects that the daemon still holds although every run has ended."""
    for call_id in kit.watch.late:
        yield f"{call_id} started after the end of its run"
    for call_id, times in kit.watch.starts.items():
        if times > 1:
            yield f"{call_id} started {times} times"
    if +kit.watch.open:
        yield f"tools at work: {+kit.watch.open}"
    if kit.registry.runs or kit.registry.sessions or kit.registry.stranded:
        yield f"in the directory: {list(kit.registry.runs)} {list(kit.registry.sessions)}"
    if len(kit.work):
        yield f"under the supervisor: {[child.id for child in kit.work.snapshot().children]}"
    held = {
        "open prompts": kit.approvals.count(OPERATOR.principal),
        "leases held": kit.leases.held,
        "waiting for a lease": kit.leases.waiting,
        "reserved of a budget": sum(account.reserved for account in kit.services.budgets.accounts),
    }
    yield from (f"{name}: {number}" for name, number in held.items() if number)


async def cancel_many(instants: int, seed: int) -> dict[str, Any]:
    """So many runs, each cancelled; sums of what happened, and what was wrong."""
    campaign = Campaign(random.Random(seed))
    while campaign.counts["instants"] < instants:
        await campaign.round()
    return {**dict(sorted(campaign.counts.items())), "problems": campaign.problems}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="Cancels at any instant.")
    parser.add_argument("--instants", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with capture_logs():
        found = trio.run(
            cancel_many, options.instants, options.seed, clock=MockClock(autojump_threshold=0)
        )
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
