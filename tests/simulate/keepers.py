"""Those who use the memory and sessions that last, and one who wants those of others."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from palyra.client.client import Client
from palyra.core.journal.records import Role
from palyra.core.tape import events as ev
from palyra.errors import Forbidden, InvalidParams, NotFound
from palyra.net.protocol.results import MemoryStatement
from tests.simulate.marks import Kind, find_marks, make_mark
from tests.simulate.people import TOLERATED, Person

if TYPE_CHECKING:
    from tests.simulate.world import World

DESKS = (1, 1, 2)  # sessions of a keeper, besides branches
LOOKS, ATTEMPTS = 10, 8  # of a keeper in passing, and of a snoop
CHANNELS = ("chat", "mail")
LIVES_MS = (500, 5_000, 60_000)  # of items with an end
PATIENCE_S = 300.0  # with a run, before the next deed
WORDS = (10, 40, 120)  # of an answer: conversations soon outgrow their history
PURGED = 0.06  # how likely the next deed is the purge of a session


class Remembering(Person):
    """A person who adds, changes, finds and forgets items of memory."""

    def __init__(self, world: "World", name: str, role: Role) -> None:
        super().__init__(world, name, role)
        self.kept: dict[str, str] = {}  # mark -> id, of what is stored for sure
        self.private: set[str] = set()  # marks of items of one session
        self.passing: list[str] = []  # marks of items with an end, or that are never recalled
        self.sessions: dict[str, None] = {}
        self._numbers = 0

    def new_mark(self, kind: Kind = "zz") -> str:
        """Return a word that only one text has."""
        self._numbers += 1
        return make_mark(kind, self.name, self._numbers)

    async def add(self, client: Client, _name: str) -> None:
        """Store an item: everywhere, or in one channel or session."""
        mark, key = self.new_mark(), self.new_key()
        text, options = f"{mark} keeps the key of the barn", self.draw_scope()
        added = await self.insist(
            lambda: client.add_memory(text, kind="fact", idempotency_key=key, **options)
        )
        if added is not None:
            self.note(f"{mark} is {added.memory_id} {added.disposition}")
            self.world.known_items.append(added.memory_id)
            if "ttl_ms" in options:
                self.passing.append(mark)
                return
            self.kept[mark] = added.memory_id
            if options.get("scope") == "session":
                self.private.add(mark)

    def draw_scope(self) -> dict[str, Any]:
        """Return the options of an item's place."""
        pick = self.rng.random()
        if pick < 0.2 and self.sessions:
            return {"scope": "session", "session_id": self.rng.choice([*self.sessions])}
        if pick < 0.3:
            return {"scope": "channel", "channel": self.rng.choice(CHANNELS)}
        if pick < 0.5:
            return {"ttl_ms": self.rng.choice(LIVES_MS)}
        return {}

    async def take_in(self, client: Client, _name: str) -> None:
        """Import a few items at once."""
        marks, key = [self.new_mark() for _ in range(self.rng.randint(1, 3))], self.new_key()
        items = [
            MemoryStatement(text=f"{mark} came with an import", at_ms=number)
            for number, mark in enumerate(marks, 1)
        ]
        done = await self.insist(lambda: client.import_memories(items, idempotency_key=key))
        if done is None:
            return
        if done.added != len(items):
            self.fail("an import stores all of it", f"{done} of {marks}")
        self.kept |= dict(zip(marks, done.memory_ids, strict=True))
        self.world.known_items.extend(done.memory_ids)

    async def forget(self, client: Client, _name: str) -> None:
        """Look for an item, forget it, look for it again."""
        mark = self.rng.choice(sorted(self.kept))
        memory_id, key = self.kept[mark], self.new_key()
        if self.rng.random() < 0.7:
            await self.find(client, mark)
        del self.kept[mark]
        asked = {"memory_ids": [memory_id], "idempotency_key": key}
        if await self.insist(lambda: client.call("memory.forget", asked)) is None:
            return
        self.world.trace.counts["forgotten"] += 1
        if mark in await self.find(client, mark):
            self.fail("what is forgotten does not come back", f"{memory_id}: {mark}")
        try:
            await self.insist(lambda: client.get_memory(memory_id))
        except NotFound:
            return
        self.fail("what is forgotten does not come back", f"{memory_id} is there")

    async def hide(self, client: Client, _name: str) -> None:
        """Have an item never recalled, and look for it."""
        mark = self.rng.choice(sorted(self.kept))
        asked = {"memory_id": self.kept.pop(mark), "idempotency_key": self.new_key()}
        self.passing.append(mark)
        if await self.insist(lambda: client.call("memory.never_recall", asked)) is not None:
            self.world.trace.counts["hidden"] += 1
            await self.find(client, mark)

    async def purge(self, client: Client, _name: str) -> None:
        """Delete the whole memory; a dry run counts it before."""
        planned = await self.insist(lambda: client.purge_memory(self.name, dry_run=True))
        gone, self.kept = self.kept, {}
        done = await self.insist(lambda: client.purge_memory(self.name))
        if planned is None or done is None:
            return
        self.world.trace.counts["purged"] += 1
        if gone and not planned.items:
            self.fail("a dry run counts what would go", f"{planned} of {sorted(gone)}")
        page = await self.insist(lambda: client.list_memories(limit=500, hidden=True))
        if page is not None and (left := {*gone.values()} & {i.memory_id for i in page.items}):
            self.fail("what is purged does not come back", f"{sorted(left)}")

    async def edit(self, client: Client, _name: str) -> None:
        """Give an item another text, with another mark; sometimes take that back."""
        mark, other, key = self.rng.choice(sorted(self.kept)), self.new_mark(), self.new_key()
        memory_id = self.kept[mark]
        asked = {"memory_id": memory_id, "text": f"{other} was edited", "idempotency_key": key}
        if await self.insist(lambda: client.call("memory.edit", asked)) is None:
            return
        del self.kept[mark]
        self.kept[other] = memory_id
        if mark in self.private:
            self.private.add(other)
        if self.rng.random() < 0.3:
            again = {"memory_id": memory_id, "idempotency_key": self.new_key()}
            if await self.insist(lambda: client.call("memory.undo", again)) is not None:
                del self.kept[other]
                self.kept[mark] = memory_id

    async def find(self, client: Client, mark: str) -> set[str]:
        """Return the marks that a question about one finds."""
        found = await self.insist(lambda: client.search_memories(f"who is {mark}?", limit=5))
        return set() if found is None else find_marks(" ".join(hit.text for hit in found.hits))

    async def look_up(self, client: Client) -> None:
        """Search now and then from some place; the wiretap compares the answers."""
        for _ in range(LOOKS):
            await self.pause(1, 60)
            place: dict[str, Any] = {}
            if self.sessions and self.rng.random() < 0.5:
                place = {"session_id": self.rng.choice([*self.sessions])}
            elif self.rng.random() < 0.3:
                place = {"channel": self.rng.choice(CHANNELS)}
            query = self.rng.choice(
                [*sorted(self.kept), *self.passing, "who keeps the key of the barn?"]
            )
            await self.insist(lambda p=place, q=query: client.search_memories(q, **p))

    async def take_stock(self, client: Client) -> None:
        """Check that each acknowledged item is there once, and found by its mark."""
        page = await self.insist(lambda: client.list_memories(limit=500))
        listed = [mark for item in page.items for mark in sorted(find_marks(item.text))]
        for mark, memory_id in self.kept.items():
            ids = [item.memory_id for item in page.items if mark in item.text]
            if ids != [memory_id]:
                self.fail("an acknowledged item is there once", f"{mark} is {ids}, not {memory_id}")
        if len(set(listed)) != len(listed):
            self.fail("an acknowledged item is there once", f"{sorted(listed)}")
        kept = {*self.kept.values()}  # a run that waits for a person may forget others just now
        everywhere = [
            item for item in page.items if item.memory_id in kept and item.scope == "principal"
        ][:3]
        for item in everywhere:
            for mark in find_marks(item.text):
                if mark not in await self.find(client, mark):
                    self.fail("what is stored is found", f"{item.memory_id}: {mark}")


class Keeper(Remembering):
    """Uses the memory; talks in sessions, which are compacted, marked and branched."""

    def __init__(self, world: "World", name: str, role: Role, deeds: int) -> None:
        super().__init__(world, name, role)
        self.deeds = deeds
        self.desks = self.rng.choice(DESKS)
        self.runs: list[str] = []
        self.purges = world.chance.stream(f"{name} purges")
        self.purged: list[str] = []  # sessions, for sure

    async def live(self) -> None:
        """Do all deeds, one after the other, while another task looks things up."""
        async with self.connected() as client, trio.open_nursery() as nursery:
            nursery.start_soon(self.look_up, client)
            for number in range(self.deeds):
                await self.pause(0.01, 5)
                if self.world.is_over:
                    break
                self.world.starts += 1
                is_purge = self.runs and self.purges.random() < PURGED
                deed = self.purge_session if is_purge else self.rng.choice(self.choose_deeds())
                try:
                    await deed(client, f"task {self.name}.{number}")
                except NotFound as error:
                    self.fail("what is there is found", f"{self.name}: {error.message}")
                self.world.starts -= 1
            self.world.starters.discard(self.name)
            await self.take_stock(client)
            for session_id in self.purged:
                await self.look_behind(client, session_id)
            nursery.cancel_scope.cancel()

    def choose_deeds(self) -> tuple[Callable[[Client, str], Awaitable[None]], ...]:
        """Return the possible deeds, the frequent ones several times."""
        always = (self.add, self.add, self.take_in, *[self.say] * 5)
        with_items = (self.forget, self.forget, self.edit, self.hide) if self.kept else ()
        with_runs = (
            (self.compact, self.compact, self.pin, self.mark, self.restore, self.restore, self.fork)
            if self.runs
            else ()
        )
        rarely = (self.purge,) if self.rng.random() < 0.5 else ()
        return (*always, *with_items, *with_runs, *rarely)

    async def say(self, client: Client, name: str) -> None:
        """State a rule in a session, with some calls of the memory's tools."""
        text = self.draw_message(name)
        where = {"session_key": f"desk {self.rng.randrange(self.desks)}"}
        if self.sessions and self.rng.random() < 0.3:
            where = {"session_id": self.rng.choice([*self.sessions])}
        await self.start(client, text, where)

    def draw_message(self, name: str) -> str:
        """Return a message with a rule, a saying and directives."""
        rule, saying = self.new_mark("ru"), self.new_mark("sa")
        lines = [name, f"Never open the gate of {rule}.", f"{saying} stood by the river."]
        lines += (self.draw_call() for _ in range(self.rng.choice((0, 1, 1, 2))))
        lines += ["/then", f"/tokens {self.rng.choice(WORDS)}"]
        return "\n".join(lines)

    def draw_call(self) -> str:
        known = [m for m in (*sorted(self.kept), *self.passing) if m not in self.private]
        mark = self.rng.choice([*known, self.new_mark()])
        pick = self.rng.random()
        if pick < 0.4:
            return f'/call memory_retain {{"text": "{self.new_mark()} was retained"}}'
        if pick < 0.9 or mark not in self.kept:
            return f'/call memory_search {{"query": "who is {mark}?"}}'
        return f'/call memory_forget {{"memory_ids": ["{self.kept.pop(mark)}"]}}'

    async def start(self, client: Client, text: str, where: dict[str, Any]) -> None:
        """Start a run and wait for its end, with bounded patience."""
        key = self.new_key()
        started = await self.insist(lambda: client.start_run(text, idempotency_key=key, **where))
        if started is None:
            return
        self.sessions[started.session_id] = None
        await self.follow(client, started.run_id)

    async def follow(self, client: Client, run_id: str) -> None:
        self.runs.append(run_id)
        self.world.known_runs.append(run_id)
        with trio.move_on_after(PATIENCE_S):
            await self.insist(lambda: client.wait_run(run_id))

    async def compact(self, client: Client, _name: str) -> None:
        """Ask for a compaction, or for its preview."""
        session_id, key = self.rng.choice([*self.sessions]), self.new_key()
        asked = {"session_id": session_id, "preview": self.rng.random() < 0.2}
        if not asked["preview"]:
            asked["idempotency_key"] = key
        done = await self.insist(lambda: client.call("session.compact", asked))
        if done is not None and done.get("run_id"):
            await self.follow(client, done["run_id"])

    async def pin(self, client: Client, _name: str) -> None:
        """Pin or release the first message of a run."""
        run_id = self.rng.choice(self.runs)
        tape = self.world.oracle.tapes[run_id]
        said = [row.seq for row in tape if row.kind == ev.MessageReceived.KIND]
        if not said:
            return
        asked = {
            "session_id": self.world.oracle.runs[run_id].accepted.session_id,
            "run_id": run_id,
            "seq": said[0],
            "pinned": self.rng.random() < 0.8,
            "idempotency_key": self.new_key(),
        }
        if await self.insist(lambda: client.call("session.pin", asked)) is not None:
            self.world.trace.counts["pinned"] += 1

    async def mark(self, client: Client, _name: str) -> None:
        """Make a checkpoint; the same request again is answered alike."""
        session_id, key = self.rng.choice([*self.sessions]), self.new_key()
        made = await self.insist(lambda: client.checkpoint_session(session_id, idempotency_key=key))
        if made is None:
            return
        again = await self.insist(
            lambda: client.checkpoint_session(session_id, idempotency_key=key)
        )
        if again != made:
            self.fail("the same key gets the same receipt", f"{again} after {made}")
        await self.see_marks(client, session_id, made.checkpoint_id)

    async def see_marks(self, client: Client, session_id: str, checkpoint_id: str) -> None:
        """Check that a checkpoint is listed once."""
        listed = await self.insist(lambda: client.session_checkpoints(session_id))
        ids = [each.checkpoint_id for each in listed.checkpoints]
        if ids.count(checkpoint_id) != 1:
            self.fail("a checkpoint is there once", f"{checkpoint_id} of {ids}")

    async def restore(self, client: Client, name: str) -> None:
        """Continue from a checkpoint in a branch, and say something there."""
        session_id, key = self.rng.choice([*self.sessions]), self.new_key()
        listed = await self.insist(lambda: client.session_checkpoints(session_id))
        if listed is None or not listed.checkpoints:
            return
        mark = self.rng.choice(listed.checkpoints)
        branch = await self.insist(
            lambda: client.restore_session(session_id, mark.checkpoint_id, idempotency_key=key)
        )
        if branch is None:
            return
        self.world.trace.counts["restored"] += 1
        if self.rng.random() < 0.3:
            again = await self.insist(
                lambda: client.restore_session(session_id, mark.checkpoint_id, idempotency_key=key)
            )
            if again != branch:
                self.fail("the same key gets the same receipt", f"{again} after {branch}")
        if (branch.parent_run_id, branch.at_seq) != (mark.run_id, mark.seq):
            at = (branch.parent_run_id, branch.at_seq)
            self.fail("a branch ends at its mark", f"{at}, not {(mark.run_id, mark.seq)}")
        await self.continue_in(client, branch.session_id, branch.run_id, name)

    async def purge_session(self, client: Client, _name: str) -> None:
        """Remove the content of a session for good, with the items that came from it alone."""
        session_id = self.purges.choice([*self.sessions])
        asked = {"session_id": session_id, "cancel": True, "idempotency_key": self.new_key()}
        items = self.world.oracle.memory.items
        self.kept = {m: i for m, i in self.kept.items() if items[i].session_id != session_id}
        del self.sessions[session_id]
        self.runs = [each for each in self.runs if self.session_of(each) != session_id]
        done = await self.insist(lambda: client.call("session.purge", asked))
        if done is None or not done.get("done_ms"):
            return
        self.world.trace.counts["sessions purged"] += 1
        self.purged.append(session_id)
        self.world.purged_sessions.append(session_id)
        await self.look_behind(client, session_id)

    def session_of(self, run_id: str) -> str:
        """Return the session of a run."""
        return self.world.oracle.runs[run_id].accepted.session_id

    async def look_behind(self, client: Client, session_id: str) -> None:
        """Check that the tapes of a purged session are gone, and its items without another origin."""
        runs = [each for each in self.world.oracle.runs if self.session_of(each) == session_id]
        for run_id in runs:
            page = await self.insist(lambda r=run_id: client.call("tape.read", {"run_id": r}))
            if left := find_marks(str(page)):
                self.fail("what is purged does not come back", f"{run_id}: {sorted(left)}")
        page = await self.insist(lambda: client.list_memories(limit=500, hidden=True))
        for item in [] if page is None else page.items:
            origins = {each.run_id for each in item.lineage}
            is_own = item.session_id == session_id and (item.scope == "session" or not origins)
            if is_own or origins & set(runs):
                self.fail("what is purged does not come back", f"{session_id}: {item}")

    async def fork(self, client: Client, name: str) -> None:
        """Continue from some event of a run."""
        run_id, key = self.rng.choice(self.runs), self.new_key()
        at_seq = self.rng.randint(0, self.world.oracle.head(run_id))
        forked = await self.insist(
            lambda: client.fork_run(run_id, at_seq, None, idempotency_key=key)
        )
        if forked is not None:
            self.world.trace.counts["forked"] += 1
            await self.continue_in(client, forked.session_id, forked.run_id, name)

    async def continue_in(self, client: Client, session_id: str, run_id: str, name: str) -> None:
        self.sessions[session_id] = None
        await self.follow(client, run_id)
        if self.rng.random() < 0.7:
            await self.start(client, self.draw_message(name), {"session_id": session_id})


class Snoop(Person):
    """A client who asks for the memory and the sessions of others."""

    async def live(self) -> None:
        """Until the story is over."""
        async with self.connected() as client:
            for _ in range(ATTEMPTS):
                await self.pause(1, 60)
                if self.world.is_over:
                    break
                await self.try_something(client)

    async def try_something(self, client: Client) -> None:
        memory_id = self.rng.choice([*self.world.known_items, "mem_none"])
        run_id = self.rng.choice([*self.world.known_runs, "run_none"])
        run = self.world.oracle.runs.get(run_id)
        session_id = "ses_none" if run is None else run.accepted.session_id
        key = self.new_key()
        asks: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: client.search_memories("who keeps the key of the barn?", principal="ann"),
            lambda: client.list_memories(principal="ann"),
            lambda: client.get_memory(memory_id),
            lambda: client.get_memory(memory_id, session_id=session_id),
            lambda: client.get_memory_history(memory_id),
            lambda: client.call(
                "memory.forget", {"memory_ids": [memory_id], "idempotency_key": key}
            ),
            lambda: client.call(
                "memory.edit", {"memory_id": memory_id, "text": "mine", "idempotency_key": key}
            ),
            lambda: client.session_checkpoints(session_id),
            lambda: client.restore_session(session_id, idempotency_key=key),
            lambda: client.checkpoint_session(session_id, idempotency_key=key),
            lambda: client.fork_run(run_id, 1, idempotency_key=key),
            lambda: client.compact_session(session_id),
            lambda: client.explain_context(run_id),
        )
        own = (
            lambda: client.search_memories("who keeps the key of the barn?", session_id=session_id),
            client.list_memories,
        )
        try:
            if self.rng.random() < 0.3:
                await self.rng.choice(own)()  # the wiretap reads the answer
                return
            answer = await self.rng.choice(asks)()
        except (NotFound, Forbidden, InvalidParams):
            self.world.trace.counts["pried in vain"] += 1
        except TOLERATED as error:
            self.note(f"is put off: {error.code}")
        else:
            self.fail("scope isolation", f"{self.name} got {answer}")
