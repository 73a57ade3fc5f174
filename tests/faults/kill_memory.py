"""kill -9 of a daemon whose memory and sessions change: `python -m tests.faults.kill_memory --kills N`.

One client adds, edits, imports, pins, forgets and purges items, talks in sessions, pins messages,
compacts, marks, restores and forks, and lets a document be synced; each request is repeated until it
is answered.  Meanwhile the daemon is killed at named points, while it starts, or anywhere.  After
each kill the file that it left is read, and after each start the daemon's answers are compared with
what was acknowledged.  Prints what happened as JSON; the exit code is 1 when something was not so.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import trio

from palyra.client import Client, reconnecting
from palyra.core.tape import events as ev
from palyra.errors import PalyraError
from palyra.net.protocol.results import MemoryStatement
from tests.e2e.people import find_events
from tests.e2e.tapes import read_whole
from tests.faults.crash_points import MEMORY_POINTS, POINTS, CrashAt
from tests.faults.kill_daemon import QUICK
from tests.faults.mortal_daemon import MortalDaemon
from tests.store.orphans import find_orphans_in_copy

T = TypeVar("T")
WITHIN_S, LOOK_S, KILL_WITHIN_S = 120.0, 0.01, 1.2
STARTING_S = 0.6
SAMPLE = 12  # words of each sort that one look asks for
OLD = 2  # sessions that most deeds are for, so that they grow long
GUEST = "guest"  # whose memory is purged now and then
DOCUMENT = "MEMORY.md"
COMMITS = ("before a commit", "committed, nobody told", "one pending commit settled")
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


class Storm:
    """One home, its daemons, and what is done to them."""

    def __init__(self, base: Path, seed: int, points: tuple[str, ...]) -> None:
        self.daemon = MortalDaemon(
            base,
            PALYRA_SERVER__REQUESTS_PER_S="100000",
            PALYRA_RUNS__HISTORY_TOKENS="300",
            PALYRA_DOCUMENTS__WRITE="true",
            PALYRA_LOGGING__LEVEL="warning",
        )
        self.points = points
        self.rng = random.Random(seed)
        self.expected = Expected()
        self.counts: Counter[str] = Counter()
        self.is_over = False
        self.crash: CrashAt | None = None  # of the daemon that runs
        self._turn = trio.Lock()  # of a deed, or of a look at everything
        self._number = 0
        self._client: Client | None = None

    async def rage(self, kills: int) -> None:
        """Kill that many daemons while one client works, then look once more."""
        await self.start(None)
        async with self.daemon.follow() as self._client, trio.open_nursery() as nursery:
            nursery.start_soon(self.work)
            while self.counts["kills"] < kills:
                with trio.fail_after(WITHIN_S):
                    await self.kill_one()
                    await self.look()
            self.is_over = True
            with trio.fail_after(WITHIN_S):
                await self.look(is_whole=True)

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    # --- kills

    async def kill_one(self) -> None:
        """Wait for the daemon's own end, or kill it; look at the file; start the next one."""
        with trio.move_on_after(self.rng.random() * KILL_WITHIN_S):
            while self.daemon.is_alive():  # noqa: ASYNC110 - a process sends no event
                await trio.sleep(LOOK_S)
        is_own = self.crash is not None and not self.daemon.is_alive()
        self.counts[f"at: {self.crash.point}" if is_own and self.crash else "from outside"] += 1
        await trio.to_thread.run_sync(self.daemon.kill)
        self.counts["kills"] += 1
        while self.rng.random() < 0.15:
            await trio.to_thread.run_sync(self.daemon.launch)
            await trio.sleep(self.rng.random() * STARTING_S)
            await trio.to_thread.run_sync(self.daemon.kill)
            self.counts["kills while starting"] += 1
        self.check_file()
        point = self.rng.choice(self.points)
        places = POINTS | MEMORY_POINTS
        most = min(places[point].most, 8)
        await self.start(CrashAt(point, self.rng.randint(1, most)))

    def check_file(self) -> None:
        """Read the file as the kill has left it."""
        left = find_orphans_in_copy(self.daemon.home / "journal.sqlite3")
        if left:
            raise Broken(f"the file has {left}")

    async def start(self, crash: CrashAt | None) -> None:
        """Start a daemon, again if it died before it was ready."""
        while True:
            self.daemon.crash = self.crash = crash
            try:
                await trio.to_thread.run_sync(self.daemon.start)
            except AssertionError:
                if crash is None or self.daemon.process is not None:
                    raise
                self.counts["kills"] += 1
                self.counts[f"at: {crash.point}"] += 1
                crash = None
            else:
                return

    # --- deeds

    async def work(self) -> None:
        """Do one thing after the other."""
        deeds = (
            *[self.add] * 3, self.take_in, self.edit, self.hold, *[self.forget] * 3, self.purge,
            *[self.say] * 4, self.pin, *[self.compact] * 2, *[self.mark] * 2, *[self.restore] * 2,
            self.fork, self.write_down,
        )  # fmt: skip
        while not self.is_over:
            async with self._turn:
                if self.is_over:
                    return
                await self.rng.choice(deeds)()
            await trio.sleep(0)

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
            MemoryStatement(text=f"{word} was said", session_id="ses_1", at_ms=self._number * 10 + at)
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
        chosen = [word for word in sorted(self.expected.kept) if self.rng.random() < 0.1][:3]
        if chosen:
            await self.client.forget_memories(*(self.expected.kept.pop(each) for each in chosen))
            self.expected.gone += chosen

    async def purge(self) -> None:
        """The whole memory of the guest."""
        await self.client.purge_memory(GUEST)
        self.expected.guests.clear()

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
        applied = find_events(tape, ev.CompactionApplied)
        skipped = find_events(tape, ev.CompactionSkipped)
        self.counts["compactions"] += len(applied)
        if len(applied) + len(skipped) != 1:
            raise Broken(f"{done.run_id}: {len(applied)} applied, {len(skipped)} skipped")
        for each in applied:
            self.check_summary(each, dict(said))

    def check_summary(self, applied: ev.CompactionApplied, rules: dict[str, frozenset[str]]) -> None:
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
        found = find_events(tape, ev.ConversationInherited)
        held = {
            rule
            for each in found
            for text in (each.messages, each.summary and each.summary.ledger)
            for rule in _RULE.findall(str(text))
        }
        is_cut = any(each.summary and each.summary.ledger.exceeded for each in found)
        if held - rules or (rules - held and not is_cut):
            raise Broken(f"{run_id}: the branch has {sorted(held)}, not {sorted(rules)}")
        self.expected.sessions[session_id] = [(run_id, rules)]
        await self.say_in(session_id)

    async def write_down(self) -> None:
        """Type a line into the document, and let the daemon give it an id."""
        line = self.new_word("line")
        path = self.daemon.workspace / DOCUMENT
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

    # --- looks

    async def look(self, *, is_whole: bool = False) -> None:
        """Compare the daemon's answers with what was acknowledged."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.revive)
            async with self._turn:
                await self.insist(lambda: self.check_items(is_whole=is_whole))
                await self.insist(self.check_sessions)
                report = await self.insist(self.client.verify_tape)
                if report.breaks:
                    raise Broken(f"the chain has {report.breaks} breaks")
            nursery.cancel_scope.cancel()
        self.counts["looks"] += 1

    async def revive(self) -> None:
        """Start a daemon that has killed itself during a look, this time to live."""
        while True:
            if not self.daemon.is_alive():
                self.counts["kills"] += 1
                self.counts[f"at: {self.crash.point}" if self.crash else "by itself"] += 1
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self.daemon.kill)
                    self.check_file()
                    await self.start(None)
            await trio.sleep(LOOK_S)

    async def check_items(self, *, is_whole: bool) -> None:
        """Rows, text index and answers by id agree."""
        expected, client = self.expected, self.client
        listed = await self._list(None)
        if listed != expected.kept:
            raise Broken(f"items: {sorted(listed.items() ^ expected.kept.items())}")
        if (guests := (await self._list(GUEST)).keys()) != expected.guests:
            raise Broken(f"items of the guest: {sorted(guests ^ expected.guests)}")
        for word in self._sample(sorted(expected.kept), is_whole=is_whole):
            memory_id = expected.kept[word]
            hits = (await client.search_memories(f"what is {word}?", limit=1)).hits
            if [hit.memory_id for hit in hits] != [memory_id]:
                raise Broken(f"{word} is {memory_id}, and a search finds {hits}")
            if word not in (await client.get_memory(memory_id)).text:
                raise Broken(f"{memory_id} is not {word}")
        for word in self._sample(expected.gone, is_whole=is_whole):
            hits = (await client.search_memories(word, limit=50)).hits
            if any(word in hit.text.split() for hit in hits):
                raise Broken(f"{word} was forgotten, and a search finds it")

    def _sample(self, words: list[str], *, is_whole: bool) -> list[str]:
        return words if is_whole else self.rng.sample(words, min(SAMPLE, len(words)))

    async def _list(self, principal: str | None) -> dict[str, str]:
        found: dict[str, str] = {}
        cursor: str | None = None
        while True:
            page = await self.client.list_memories(limit=500, cursor=cursor, principal=principal)
            for item in page.items:
                word = item.text.split()[0]
                if word in found:
                    raise Broken(f"{word} is there twice")
                found[word] = item.memory_id
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def check_sessions(self) -> None:
        """Every run is there once, every mark is listed once."""
        runs = set[str]()
        cursor: str | None = None
        while True:
            page = await self.client.list_runs(limit=500, cursor=cursor)
            runs |= {run.run_id for run in page.runs}
            cursor = page.next_cursor
            if cursor is None:
                break
        if runs != self.expected.runs:
            raise Broken(f"runs: {sorted(runs ^ self.expected.runs)}")
        if self.expected.marks:
            mark = self.rng.choice(sorted(self.expected.marks))
            session_id, _ = self.expected.marks[mark]
            listed = (await self.client.session_checkpoints(session_id, limit=500)).checkpoints
            if [each.checkpoint_id for each in listed].count(mark) != 1:
                raise Broken(f"{mark} is not listed once")


def _rules_until(said: Spoken, run_id: str) -> frozenset[str]:
    """Return the rules of a session up to the end of a run."""
    rules = frozenset[str]()
    for each, own in said:
        rules |= own
        if each == run_id:
            break
    return rules


def kill_many(kills: int, seed: int, points: tuple[str, ...] = ()) -> dict[str, Any]:
    """Kill so many daemons, at these points or at all; return what happened, and what was wrong."""
    every = points or (*COMMITS, *MEMORY_POINTS)
    problem = ""
    with tempfile.TemporaryDirectory() as name, patch.object(reconnecting, "BACKOFF", QUICK):
        storm = Storm(Path(name), seed, every)
        try:
            trio.run(storm.rage, kills)
            if (code := storm.daemon.stop()) != 0:
                problem = f"the last daemon ended with {code}"
        except* Broken as group:
            problem = repr(group.exceptions)
        finally:
            storm.daemon.end()
    expected = storm.expected
    sizes = {"items": len(expected.kept), "gone": len(expected.gone), "runs": len(expected.runs)}
    return {**sizes, **dict(sorted(storm.counts.items())), "problem": problem}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="kill -9 of a daemon whose memory changes.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", action="append", choices=MEMORY_POINTS, help="repeatable")
    options = parser.parse_args()
    found = kill_many(options.kills, options.seed, tuple(options.at or ()))
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problem"] else 0


if __name__ == "__main__":
    sys.exit(main())
