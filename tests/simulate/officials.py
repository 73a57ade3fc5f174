"""Those who answer, those who pry, those who look after the daemon."""

from typing import TYPE_CHECKING, Any, Literal

import trio

from palyra.client.client import Client
from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.questions import ASK_USER
from palyra.errors import DigestMismatch, Forbidden, IllegalState, NotFound, PalyraError
from tests.simulate.people import TOLERATED, Person

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.simulate.world import World


class Approver(Person):
    """Answers questions: mostly well, sometimes twice, sometimes to what was not asked."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name, "approver")
        self.is_diligent = self.rng.random() < 0.7

    async def live(self) -> None:
        """Until nothing is left to answer."""
        async with self.connected() as client:
            while not self.world.is_settled:
                await self.pause(0.1, 120)
                if self.is_diligent:
                    await self.answer_all(client)
                if self.rng.random() < 0.2:
                    await self.take_back(client)

    async def answer_all(self, client: Client) -> None:
        try:
            pending = await client.list_approvals(pending_only=True)
            for prompt in pending:
                await self.answer(client, prompt)
        except TOLERATED as error:
            self.note(f"is put off: {error.code}")

    async def answer(self, client: Client, prompt: ApprovalRecord) -> None:
        rng = self.rng
        decisions: tuple[Literal["allow", "deny"], ...] = ("allow", "allow", "deny")
        decision = rng.choice(decisions)
        beyond = self.draw_scope(prompt)
        if rng.random() < 0.1:
            await self.answer_wrongly(client, prompt)
        try:
            for _ in range(rng.choice((1, 1, 2))):
                outcome = await client.resolve_approval(
                    prompt.approval_id, decision, prompt.digest, idempotency_key=self.new_key(),
                    reason="do as you like" if prompt.tool == ASK_USER else "", **beyond,
                )  # fmt: skip
                self.note(f"{decision} {prompt.approval_id[-4:]}: {outcome.decision}")
                self.world.trace.counts["grants"] += outcome.won and bool(beyond)
        except IllegalState as error:
            self.note(f"comes too late: {error.message[:60]}")
        except NotFound as error:
            if self.world.oracle.sessions[prompt.session_id].purge is None:
                self.fail("a question is there until its session is purged", error.message)

    def draw_scope(self, prompt: ApprovalRecord) -> dict[str, Any]:
        """Sometimes an answer holds for more than once."""
        scopes = [scope for scope in prompt.scopes if scope != "once"]
        if not scopes or self.rng.random() < 0.2:
            return {}
        scope = self.rng.choice(scopes)
        ends = {"ttl_ms": self.rng.choice((1_000, 60_000, 3_600_000))}
        return {"scope": scope, **(ends if scope == "timeboxed" else {})}

    async def take_back(self, client: Client) -> None:
        """End one of the grants that hold."""
        try:
            live = await client.list_grants(live_only=True)
            if live:
                ended = await client.revoke_grant(self.rng.choice(live).grant_id)
                self.note(f"takes back {ended.grant_id[-4:]}")
        except TOLERATED as error:
            self.note(f"is put off: {error.code}")

    async def answer_wrongly(self, client: Client, prompt: ApprovalRecord) -> None:
        """An answer to something else counts for nothing."""
        key = self.new_key()
        try:
            outcome = await client.resolve_approval(
                prompt.approval_id, "allow", "0" * 64, idempotency_key=key
            )
        except (DigestMismatch, IllegalState):
            return
        if outcome.won:
            self.fail("an answer needs the right digest", prompt.approval_id)


class Pry(Person):
    """A client who asks for what belongs to others."""

    async def live(self) -> None:
        """Until the story is over."""
        async with self.connected() as client:
            while not self.world.is_over:
                await self.pause(5, 200)
                if self.world.known_runs:
                    run_id = self.rng.choice(self.world.known_runs)
                    await self.try_something(client, run_id)

    async def try_something(self, client: Client, run_id: str) -> None:
        session_id = self.world.oracle.runs[run_id].accepted.session_id
        asks = (
            lambda: client.get_run(run_id),
            lambda: client.read_tape(run_id),
            lambda: client.cancel(run_id, "mine", idempotency_key=self.new_key()),
            lambda: client.steer(run_id, "mine", idempotency_key=self.new_key()),
            lambda: client.call("run.wait", {"run_id": run_id, "timeout_ms": 10}),
            lambda: client.call("tape.subscribe", {"run_id": run_id}),
            lambda: client.get_session(session_id),
            lambda: client.start_run(
                "task pry", session_id=session_id, idempotency_key=self.new_key()
            ),
        )
        ask = self.rng.choice(asks)
        try:
            answer = await ask()
        except (NotFound, Forbidden):
            self.world.trace.counts["pried in vain"] += 1
        except IllegalState as error:  # which says that there is such a run
            self.fail("nothing crosses principals", f"{self.name} got {error.message}")
        except TOLERATED as error:
            self.note(f"is put off: {error.code}")
        else:
            self.fail("nothing crosses principals", f"{self.name} got {answer}")


class Operator(Person):
    """Looks at everything, now and then; reads the wide stream; resets a session; sets up agents."""

    async def live(self) -> None:
        """Until the story is over."""
        async with self.connected() as client:
            while not self.world.is_over:
                await self.pause(5, 200)
                with trio.move_on_after(120):
                    await self.look_around(client)

    async def look_around(self, client: Client) -> None:
        sessions = list(self.world.oracle.sessions) or ["ses_none"]
        session_id = self.rng.choice(sessions)
        asks: tuple[Callable[[], Awaitable[object]], ...] = (
            client.status,
            client.tree,
            client.list_runs,
            lambda: client.call("tape.subscribe", {"all": True}),
            lambda: client.call("tape.verify", {}),
            lambda: client.get_session(session_id),
            lambda: client.reset_session(session_id),
            lambda: self.set_up_agent(client),
        )
        try:
            await self.rng.choice(asks)()
        except TOLERATED as error:
            self.note(f"is put off: {error.code}")
        except PalyraError as error:
            self.note(f"is refused: {error.code}")

    async def set_up_agent(self, client: Client) -> None:
        """The agent that some ask for: a new version, or none any more."""
        agents = [agent.name for agent in await client.list_agents()]
        if "helper" not in agents:
            await client.create_agent("helper", "Help.", tools=["peek", "mark", "echo"])
        elif self.rng.random() < 0.3:
            await client.delete_agent("helper")
        else:
            await client.update_agent("helper", instructions=f"Help {self.rng.randrange(99)}.")
