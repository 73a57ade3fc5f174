"""What a client does to memory, sessions and documents while daemons are killed; see `kill_memory`.

Each request is repeated until it is answered, so afterwards it is known to have had its effect once.
"""

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import trio

from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.errors import PalyraError
from palyra.net.protocol.results import MemoryStatement
from tests.e2e.people import find_events
from tests.e2e.tapes import read_whole

T = TypeVar("T")
LOOK_S = 0.01
OLD = 2  # sessions that most deeds are for, so that they grow long
GUEST = "guest"  # whose memory is purged now and then
DOCUMENT = "MEMORY.md"
_RULE = re.compile(r"gate of (rule\d+x)")
Spoken = list[tuple[str, frozenset[str]]]  # runs of a session, in order, with their rules


class Broken(AssertionError):
    """A promise does not hold."""


class Expected:
    """What the daemon has acknowledged."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}  # word -> id of its item
        self.guests: set[str] = set()  # words of the guest
        self.gone: list[str] = []
        self.sessions: dict[str, Spoken] = {}
        self.marks: dict[str, tuple[str, frozenset[str]]] = {}  # checkpoint -> session, rules
        self.typed: list[str] = []  # lines of the document
        self.runs: set[str] = set()
        self.branches: set[str] = set()  # runs that begin with the rules of another session


class MemoryDeeds:
    """Changes of the memory and of a document, by one client."""

    def __init__(self, workspace: Path, rng: random.Random) -> None:
        self.workspace = workspace
        self.rng = rng
        self.expected = Expected()
        self.counts: Counter[str] = Counter()
        self._number = 0
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, which finds the next daemon."""
        assert self._client is not None
        return self._client

    def new_word(self, kind: str = "word") -> str:
        self._number += 1
        return f"{kind}{self._number}x"

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request whose answer a kill took away."""
        while True:
            try:
                return await ask()
            except PalyraError as error:
                if error.code not in {"unavailable", "closed", "draining", "overloaded"}:
                    raise
                await trio.sleep(LOOK_S)

    async def add(self) -> None:
        """One item, of the operator or of the guest."""
        word = self.new_word()
        whose = GUEST if self.rng.random() < 0.2 else None
        added = await self.client.add_memory(f"{word} is a statement", kind="fact", principal=whose)
        if whose is None:
            self.expected.kept[word] = added.memory_id
        else:
            self.expected.guests.add(word)

    async def take_in(self) -> None:
        """Several items at once."""
        words = [self.new_word() for _ in range(5)]
        items = [
            MemoryStatement(
                text=f"{word} was said", session_id="ses_1", at_ms=self._number * 10 + at
            )
            for at, word in enumerate(words)
        ]
        done = await self.client.import_memories(items)
        if done.added != len(items):
            raise Broken(f"an import of {len(items)} stored {done.added}")
        self.expected.kept |= dict(zip(words, done.memory_ids, strict=True))

    async def edit(self) -> None:
        """Another text for an item."""
        if self.expected.kept:
            old, word = self.rng.choice(sorted(self.expected.kept)), self.new_word()
            memory_id = self.expected.kept.pop(old)
            await self.client.edit_memory(memory_id, text=f"{word} is another statement")
            self.expected.kept[word] = memory_id
            self.expected.gone.append(old)

    async def hold(self) -> None:
        """Pin an item, or release it."""
        if self.expected.kept:
            memory_id = self.rng.choice(sorted(self.expected.kept.values()))
            pinned = self.rng.random() < 0.5
            done = await self.client.pin_memory(memory_id, pinned=pinned)
            found = await self.insist(lambda: self.client.get_memory(memory_id))
            if found.pinned != pinned:
                raise Broken(f"{done} was not kept")

    async def forget(self) -> None:
        """One or several items."""
        kept = sorted(self.expected.kept)
        if kept:
            chosen = self.rng.sample(kept, min(self.rng.choice((1, 1, 3)), len(kept)))
            await self.client.forget_memories(*(self.expected.kept.pop(each) for each in chosen))
            self.expected.gone += chosen

    async def purge(self) -> None:
        """The whole memory of the guest."""
        await self.client.purge_memory(GUEST)
        self.expected.guests.clear()

    async def write_down(self) -> None:
        """Type a line into the document, and let the daemon give it an id."""
        line = self.new_word("line")
        path = self.workspace / DOCUMENT
        if not path.exists():
            path.write_text("<!-- palyra:begin facts -->\n<!-- palyra:end facts -->\n")
        end = "<!-- palyra:end facts -->\n"
        path.write_text(path.read_text().replace(end, f"- {line}\n{end}"))
        self.expected.typed.append(line)
        await self.insist(lambda: self.client.sync_document(DOCUMENT))
        lines = path.read_text().splitlines()
        for typed in self.expected.typed:
            found = [each for each in lines if each.startswith(f"- {typed} ")]
            if len(found) != 1 or "<!-- ent_" not in found[0]:
                raise Broken(f"the document has {found} of {typed}")
        self.counts["synced"] += 1


class Deeds(MemoryDeeds):
    """Changes of sessions, too."""

    async def say(self) -> None:
        """State a rule in a new or an old session."""
        known = sorted(self.expected.sessions)[:OLD]
        where = self.rng.choice(known) if known and self.rng.random() < 0.9 else None
        await self.say_in(where)

    async def say_in(self, session_id: str | None) -> None:
        rule = self.new_word("rule")
        text = f"Never open the gate of {rule}.\n/tokens {self.rng.choice((60, 200))}"
        started = await self.client.start_run(text, session_id=session_id)
        await self.finish(started.run_id)
        self.expected.sessions.setdefault(started.session_id, []).append(
            (started.run_id, frozenset({rule}))
        )

    async def finish(self, run_id: str) -> None:
        self.expected.runs.add(run_id)
        await self.insist(lambda: self.client.wait_run(run_id))

    def draw_session(self) -> tuple[str, Spoken] | None:
        known = sorted(self.expected.sessions)[: OLD if self.rng.random() < 0.7 else None]
        if not known:
            return None
        session_id = self.rng.choice(known)
        return session_id, self.expected.sessions[session_id]

    async def pin(self) -> None:
        """Pin the message of a run; a session has sixteen pins at most."""
        drawn = self.draw_session()
        if drawn is None:
            return
        session_id, said = drawn
        run_id = self.rng.choice([run_id for run_id, _ in said])
        found = await self.insist(lambda: read_whole(self.client, run_id))
        seqs = [each.seq for each in found if each.kind == "message.received"]
        held = (await self.insist(lambda: self.client.get_session(session_id))).pins
        is_known = any(pin.run_id == run_id for pin in held)
        if seqs and (is_known or len(held) < 4):
            after = await self.client.pin_message(session_id, run_id, seqs[0], pinned=not is_known)
            if any(pin.run_id == run_id for pin in after.pins) == is_known:
                raise Broken(f"{run_id}: the pins are {after.pins}")

    async def compact(self) -> None:
        """Ask for a compaction; it is on the tape once, and has every rule that it covers."""
        drawn = self.draw_session()
        if drawn is None:
            return
        session_id, said = drawn
        done = await self.client.compact_session(session_id)
        assert done.run_id is not None
        await self.finish(done.run_id)
        said.append((done.run_id, frozenset()))
        tape = await self.insist(lambda: read_whole(self.client, str(done.run_id)))
        applied = [each.event for each in tape if isinstance(each.event, ev.CompactionApplied)]
        skipped = find_events(tape, ev.CompactionSkipped)
        self.counts["compactions"] += len(applied)
        if len(applied) + len(skipped) != 1:
            raise Broken(f"{done.run_id}: {len(applied)} applied, {len(skipped)} skipped")
        for each in applied:
            own = {run_id: rules for run_id, rules in said if run_id not in self.expected.branches}
            self.check_summary(each, own)

    def check_summary(
        self, applied: ev.CompactionApplied, rules: dict[str, frozenset[str]]
    ) -> None:
        summary = applied.summary
        kept = set(_RULE.findall(" ".join(each.text for each in summary.ledger.entries)))
        covered = frozenset[str]().union(*(rules.get(each.run_id, ()) for each in summary.covers))
        if covered - kept and not summary.ledger.exceeded:
            raise Broken(f"{applied.compaction_id} lost {sorted(covered - kept)}")

    async def mark(self) -> None:
        """Mark the end of a session."""
        drawn = self.draw_session()
        if drawn is not None:
            session_id, said = drawn
            made = await self.client.checkpoint_session(session_id)
            self.expected.marks[made.checkpoint_id] = session_id, _rules_until(said, made.run_id)

    async def restore(self) -> None:
        """Continue from a mark; the branch has the rules up to it, and the run is there once."""
        if self.expected.marks:
            mark = self.rng.choice(sorted(self.expected.marks))
            session_id, rules = self.expected.marks[mark]
            done = await self.client.restore_session(session_id, mark)
            await self.check_branch(done.session_id, done.run_id, rules)
            self.counts["restored"] += 1

    async def fork(self) -> None:
        """Continue from the end of some run."""
        drawn = self.draw_session()
        if drawn is None:
            return
        _, said = drawn
        run_id = self.rng.choice([run_id for run_id, rules in said if rules] or [""])
        if run_id:
            head = (await self.insist(lambda: self.client.get_run(run_id))).head_seq
            done = await self.client.fork_run(run_id, head, "/say and on")
            await self.check_branch(done.session_id, done.run_id, _rules_until(said, run_id))
            self.counts["forked"] += 1

    async def check_branch(self, session_id: str, run_id: str, rules: frozenset[str]) -> None:
        await self.finish(run_id)
        tape = await self.insist(lambda: read_whole(self.client, run_id))
        found = [each.event for each in tape if isinstance(each.event, ev.ConversationInherited)]
        held = {
            rule
            for each in found
            for text in (each.messages, each.summary and each.summary.ledger)
            for rule in _RULE.findall(str(text))
        }
        is_cut = any(each.summary and each.summary.ledger.exceeded for each in found)
        if held - rules or (rules - held and not is_cut):
            raise Broken(f"{run_id}: the branch has {sorted(held)}, not {sorted(rules)}")
        self.expected.branches.add(run_id)
        self.expected.sessions[session_id] = [(run_id, rules)]
        await self.say_in(session_id)


def _rules_until(said: Spoken, run_id: str) -> frozenset[str]:
    """Return the rules of a session up to the end of a run."""
    rules = frozenset[str]()
    for each, own in said:
        rules |= own
        if each == run_id:
            break
    return rules
