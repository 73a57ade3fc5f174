"""Those who leave work to the daemon: prompts as tasks, schedules, runs that delegate, what is learned."""

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from palyra.client.client import Client
from palyra.core.journal.records import Role
from palyra.errors import NotFound
from tests.simulate.marks import Kind, make_mark
from tests.simulate.people import TOLERATED, Person
from tests.simulate.script import draw_text

if TYPE_CHECKING:
    from tests.simulate.world import World

PLAIN_TOOLS = ("peek", "mark", "again", "press", "approve_mark")
CHORES = (
    "compaction",
    "compaction",
    "cleanup",
    "maintenance",
    "memory_rebuild",
)  # the last are an operator's
MAX_DEPTH = 3
PERIODS_MS = (30_000, 90_000, 600_000)
PRIVATE_S = 600.0  # patience with one run


class Planner(Person):
    """Submits tasks, sets up schedules, and starts runs that delegate; changes its mind often."""

    def __init__(self, world: "World", name: str, role: Role, deeds: int) -> None:
        super().__init__(world, name, role)
        self.deeds = deeds
        self.tasks: list[str] = []  # acknowledged
        self.schedules: list[str] = []  # likewise
        self._numbers = 0

    async def live(self) -> None:
        """Do all deeds, then take the schedules down and see that nothing is lost."""
        async with self.connected() as client, trio.open_nursery() as nursery:
            for number in range(self.deeds):
                await self.pause(0.05, 20)
                if self.world.is_over:
                    break
                deed = self.rng.choice(self.choose_deeds())
                self.begin(nursery, self.do, deed, client, f"errand {self.name}.{number}")
            self.world.starters.discard(self.name)
            while not self.world.is_over:
                await self.pause(1, 30)
                await self.look(client)
            await self.take_down(client)

    def choose_deeds(self) -> tuple[Callable[[Client, str], Awaitable[None]], ...]:
        """Return the possible deeds, the frequent ones several times."""
        always = (self.submit, self.submit, self.delegate, self.delegate, self.schedule, self.chore)
        with_tasks = (self.change_task, self.change_task, self.retry) if self.tasks else ()
        with_schedules = (self.change_schedule,) if self.schedules else ()
        return (*always, *with_tasks, *with_schedules, self.review)

    async def do(
        self, deed: Callable[[Client, str], Awaitable[None]], client: Client, name: str
    ) -> None:
        """Do one deed.  What a person may address is there."""
        try:
            await deed(client, name)
        except NotFound as error:
            self.fail("what is there is found", f"{self.name}: {error.message}")

    # --- texts

    def new_mark(self, kind: Kind) -> str:
        self._numbers += 1
        return make_mark(kind, self.name, self._numbers)

    def draw_message(self, name: str, depth: int = 0) -> str:
        """Return a message whose runs may delegate, down to some depth."""
        lines = [draw_text(self.rng, name, PLAIN_TOOLS)]
        if not depth:
            lines.insert(0, f"Remember that our server is called {self.new_mark('sa')}.")
        elif self.rng.random() < 0.5:
            lines.insert(0, f"Remember that our server is called {self.new_mark('to')}.")
        if depth == 0 and self.rng.random() < 0.2:
            said = f"this:\nI always prefer {self.new_mark('to')}."
            lines.append(f"/then\n/call peek {json.dumps({'text': said})}")
        is_delegating = depth < MAX_DEPTH and self.rng.random() < (0.7, 0.4, 0.2)[depth]
        if is_delegating:
            lines.append("/then")
            lines += [self._draw_delegation(f"{name}.{n}", depth + 1) for n in range(self._few())]
        return "\n".join(lines)

    def _few(self) -> int:
        return self.rng.choice((1, 1, 2, 3, 5))

    def _draw_delegation(self, name: str, depth: int) -> str:
        asked: dict[str, Any] = {"task": self.draw_message(name, depth)}
        if self.rng.random() < 0.2:
            asked["tools"] = ["peek", "mark", "delegate"]
        if self.rng.random() < 0.2:
            asked["wall_s"] = self.rng.choice((1, 30, 300))
        return f"/call delegate {json.dumps(asked)}"

    # --- deeds

    async def submit(self, client: Client, name: str) -> None:
        """A prompt for later; the same request again is answered alike."""
        payload = {"text": self.draw_message(name)}
        if self.rng.random() < 0.3:
            payload["session_key"] = f"desk {self.rng.randrange(2)}"
        await self._submit(client, "prompt", payload)

    async def chore(self, client: Client, _name: str) -> None:
        """Some work of the house."""
        kind = self.rng.choice(CHORES if self.caller.role == "operator" else CHORES[:1])
        payload: dict[str, Any] = {}
        if kind == "compaction":
            mine = [
                session.session_id
                for session in self.world.oracle.sessions.values()
                if session.principal == self.name
            ]
            if not mine:
                return
            payload = {"session_id": self.rng.choice(mine)}
        await self._submit(client, kind, payload)

    async def _submit(self, client: Client, kind: Any, payload: dict[str, Any]) -> None:
        rng, now_ms, key = self.rng, self.world.now_ms(), self.new_key()
        wanted: Any = {
            "priority": rng.randint(0, 9),
            "max_attempts": rng.randint(1, 3),
            "idempotency_key": key,
        }
        if rng.random() < 0.3:
            wanted["not_before_ms"] = now_ms + rng.randint(1, 300_000)
        if rng.random() < 0.3:
            wanted["expires_ms"] = now_ms + rng.randint(300_001, 900_000)
        task = await self.insist(lambda: client.submit_task(kind, payload, **wanted))
        if task is None:
            return
        self.note(f"{kind} is {task.task_id}")
        self.tasks.append(task.task_id)
        if rng.random() < 0.2:
            again = await self.insist(lambda: client.submit_task(kind, payload, **wanted))
            if again is not None and again.task_id != task.task_id:
                self.fail("one key, one effect", f"{again.task_id} after {task.task_id}")

    async def delegate(self, client: Client, name: str) -> None:
        """A run that hands parts of its work down; sometimes it is cancelled with all below it."""
        text, key = self.draw_message(name), self.new_key()
        started = await self.insist(lambda: client.start_run(text, idempotency_key=key))
        if started is None:
            return
        self.world.known_runs.append(started.run_id)
        with trio.move_on_after(PRIVATE_S * self.rng.random()):
            await self.insist(lambda: client.wait_run(started.run_id))
        if self.rng.random() < 0.4:
            key = self.new_key()
            await self.insist(lambda: client.cancel(started.run_id, "enough", idempotency_key=key))

    async def schedule(self, client: Client, name: str) -> None:
        """A prompt, or a chore, again and again."""
        rng, now_ms = self.rng, self.world.now_ms()
        when: Any = rng.choice(
            (
                {"every_ms": rng.choice(PERIODS_MS)},
                {"at_ms": now_ms + rng.randint(1, 90_000)},
                {"cron": "*/5 * * * *", "zone": "Europe/Berlin"},
            )
        )
        is_prompt = rng.random() < 0.7 or self.caller.role != "operator"
        wanted: Any = {
            "kind": "prompt" if is_prompt else "maintenance",
            "payload": {"text": self.draw_message(name)} if is_prompt else {},
            "missed": rng.choice(("skip", "once", "all")),
            "overlap": rng.choice(("forbid", "queue", "replace")),
            "max_attempts": rng.randint(1, 3),
            "idempotency_key": self.new_key(),
            **when,
        }
        added = await self.insist(lambda: client.add_schedule(name, **wanted))
        if added is not None:
            self.schedules.append(added.schedule_id)
            self.world.trace.counts["schedules"] += 1

    async def change_task(self, client: Client, _name: str) -> None:
        """Cancel, pause or resume a task."""
        task_id = self.rng.choice(self.tasks)
        change = self.rng.choice((client.cancel_task, client.pause_task, client.resume_task))
        changed = await self.insist(lambda: change(task_id))
        if changed is not None and change == client.cancel_task:
            self.world.trace.counts["tasks cancelled"] += 1

    async def retry(self, client: Client, _name: str) -> None:
        """Have a task repeated, if it failed."""
        task_id = self.rng.choice(self.tasks)
        task = await self.insist(lambda: client.retry_task(task_id))
        if task is not None:
            self.tasks.append(task.task_id)

    async def change_schedule(self, client: Client, _name: str) -> None:
        """Pause, resume or remove a schedule."""
        schedule_id = self.rng.choice(self.schedules)
        change = self.rng.choice(
            (client.pause_schedule, client.resume_schedule, client.remove_schedule)
        )
        try:
            await self.insist(lambda: change(schedule_id))
        except NotFound:  # another deed has removed it
            return

    async def review(self, client: Client, _name: str) -> None:
        """Accept, reject or take back something that was learned."""
        page = await self.insist(
            lambda: client.list_candidates(states=("proposed", "applied", "rejected"))
        )
        if page is None or not page.candidates:
            return
        candidate_id = self.rng.choice(page.candidates).candidate_id
        change = self.rng.choice(
            (client.accept_candidate, client.reject_candidate, client.undo_candidate)
        )
        if await self.insist(lambda: change(candidate_id)) is not None:
            self.world.trace.counts["candidates reviewed"] += 1

    # --- what is there

    async def look(self, client: Client) -> None:
        """Every acknowledged task is there, and no task of another person."""
        known = sorted(self.world.oracle.backlog.tasks)
        if not known:
            return
        task_id = self.rng.choice(known)
        try:
            page = await client.list_tasks(limit=500)
            seen = await client.get_task(task_id)
        except TOLERATED as error:
            self.note(f"is put off: {error.code}")
            return
        except NotFound as error:
            if task_id in self.tasks:
                self.fail("an acknowledged task is there", error.message)
            return
        if not all(self.caller.sees(task.principal) for task in (seen, *page.tasks)):
            self.fail("nothing crosses principals", f"{self.name} sees other tasks")

    async def take_down(self, client: Client) -> None:
        """Remove all schedules, so that the story can end."""
        for schedule in await self.insist(client.list_schedules):
            remove = schedule.schedule_id
            try:
                await self.insist(lambda s=remove: client.remove_schedule(s))
            except NotFound:  # the attempt before did it
                continue
        left = await self.insist(client.list_schedules)
        if left:
            self.fail("what is removed does not come back", str(left))
