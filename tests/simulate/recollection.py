"""The memory's part of the oracle: what each item said at any time, and who may see it.

A text is compared with the commits since the request for it: an answer may show the item as it was
when it was asked for, or as any later change left it, never as it was before.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from palyra.core.journal.records import LineageTrim, MemoryRecord, MemoryRemoval, SessionRemoval
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ModelRequest
from palyra.core.run.state import Run
from palyra.core.tape import events as ev
from tests.simulate.marks import find_marks, owner_of

Fail = Callable[[str, str], None]
_LINE = re.compile(r"^(?P<memory_id>mem_\S+) \[.*?\] (?P<text>.*)$", re.MULTILINE)


class Place(NamedTuple):
    """Where a search is made from."""

    principal: str
    session_id: str | None = None
    channel: str | None = None


class Recollection:
    """Every item there ever was, by its commits."""

    def __init__(self, fail: Fail, now_ms: Callable[[], int]) -> None:
        self._fail, self._now_ms = fail, now_ms
        self.now = 0  # commits so far
        self._times_ms = [0]  # latest time of an event before each commit
        self._latest_ms = 0
        self._hidden: dict[str, list[tuple[int, bool]]] = {}  # by commit: is it never recalled
        self.items: dict[str, MemoryRecord] = {}  # that are there
        self._ever: dict[str, MemoryRecord] = {}  # the last revision of each that ever was
        self._texts: dict[str, list[tuple[int, str | None]]] = {}  # None: forgotten
        self._homes: dict[str, str] = {}  # session of a text that is its own, by mark
        self._parents: dict[str, set[str]] = {}  # sessions that a branch continues
        self._began: dict[str, int] = {}  # runs and calls
        self._searches: set[str] = set()  # calls of `memory_search`

    # --- what is committed

    def begin_commit(self) -> None:
        """Count a commit."""
        self.now += 1
        self._times_ms.append(self._latest_ms)

    def set_clock_back(self, by_ms: int) -> None:
        """Note that what had expired may be valid again."""
        self._times_ms = [time_ms - by_ms for time_ms in self._times_ms]
        self._latest_ms -= by_ms

    def take(self, record: msgspec.Struct) -> None:
        """An item, or a removal, is committed."""
        match record:
            case MemoryRecord():
                before = self.items.get(record.memory_id)
                if before is not None and before.principal != record.principal:
                    self._fail("an item keeps its owner", record.memory_id)
                self.items[record.memory_id] = self._ever[record.memory_id] = record
                self._note(record.memory_id, record.text)
                self._hidden.setdefault(record.memory_id, []).append(
                    (self.now, record.never_recall)
                )
                for mark in find_marks(record.text) if record.scope == "session" else ():
                    self._homes[mark] = record.session_id or ""
            case MemoryRemoval(memory_ids=None):
                for item in [*self.items.values()]:
                    if item.principal == record.principal:
                        self._drop(item.memory_id)
            case MemoryRemoval(memory_ids=tuple(memory_ids)):
                self._forget(record, memory_ids)
            case SessionRemoval(trims=trims):
                self._trim(trims)
            case _:
                pass

    def _forget(self, removal: MemoryRemoval, memory_ids: Iterable[str]) -> None:
        for memory_id in memory_ids:
            if self._ever[memory_id].principal != removal.principal:
                self._fail("scope isolation", f"{removal.by} forgets {memory_id}")
            self._drop(memory_id)

    def _trim(self, trims: Iterable[LineageTrim]) -> None:
        for trim in trims:
            item = self.items[trim.memory_id]
            self.items[trim.memory_id] = msgspec.structs.replace(item, lineage=trim.lineage)

    def _drop(self, memory_id: str) -> None:
        if self.items.pop(memory_id, None) is not None:
            self._note(memory_id, None)

    def _note(self, memory_id: str, text: str | None) -> None:
        self._texts.setdefault(memory_id, []).append((self.now, text))

    def note(self, run: Run, row: TapeRow, event: ev.Event) -> None:
        """Check the texts that an event brings from the memory into a run."""
        self._latest_ms = min(row.at_ms, self._now_ms())  # the clock may have been set back since
        match event:
            case ev.RunAccepted():
                self._began[row.run_id] = self.now
            case ev.ConversationInherited(run_id=str(origin)) if origin:
                self._parents.setdefault(row.session_id, set()).add(origin)
            case ev.ContextGathered(sources=sources):
                for source in sources:
                    if source.name.startswith("mem_") and source.text:
                        self.check(source.name, source.text, _place(run), self._began[row.run_id])
            case ev.ToolProposed(call_id=call_id, tool="memory_search"):
                self._searches.add(call_id)
            case ev.ToolStarted(call_id=call_id):
                self._began[call_id] = self.now
            case ev.ToolCompleted(call_id=call_id, output=output) if call_id in self._searches:
                for line in _LINE.finditer(output):
                    self.check(line["memory_id"], line["text"], _place(run), self._began[call_id])
            case _:
                pass

    # --- what is shown

    @property
    def stored(self) -> int:
        """Items that ever were."""
        return len(self._ever)

    def was_stored(self, memory_id: str) -> bool:
        """Return True if the item is, or was, there."""
        return memory_id in self._ever

    def check(self, memory_id: str, text: str, place: Place, since: int) -> None:
        """Check an item that a search from a place returned, which was asked for at a commit."""
        item = self._ever.get(memory_id)
        if item is None:
            self._fail("only what is stored is found", f"{memory_id}: {text}")
            return
        is_home = item.scope != "session" or item.session_id == place.session_id
        is_channel = item.scope != "channel" or item.channel == place.channel
        if item.principal != place.principal or not (is_home and is_channel):
            self._fail("scope isolation", f"{place} got {memory_id}: {text}")
        self.check_life(memory_id, since)
        states = self._hidden[memory_id]
        before = [each for at, each in states if at <= since][-1:]
        if all([*before, *(each for at, each in states if at > since)]):
            self._fail("what is never recalled stays away", f"{memory_id}: {text}")
        self.check_text(memory_id, text, since)

    def check_life(self, memory_id: str, since: int) -> None:
        """Check that the item had not expired when it was asked for."""
        expires_ms = self._ever[memory_id].expires_ms
        if expires_ms is not None and expires_ms <= self._times_ms[since]:
            self._fail("what has expired stays away", f"{memory_id}: {expires_ms}")

    def check_text(self, memory_id: str, text: str, since: int) -> None:
        """Check that the item had this text when it was asked for, or has had it since."""
        told = self._texts.get(memory_id, [])
        before = [each for at, each in told if at <= since][-1:]
        possible = [*before, *(each for at, each in told if at > since)]
        if text in possible:
            return
        if before == [None]:
            self._fail("what is forgotten does not come back", f"{memory_id}: {text}")
        self._fail("the newest revision is shown", f"{memory_id}: {text!r}, not {possible}")

    def check_prompt(self, run: Run, request: ModelRequest, runs: dict[str, Run]) -> None:
        """Check that a prompt has no text of another principal, or of another session alone."""
        for mark in find_marks(msgspec.json.encode(request.messages).decode()):
            home = self._homes.get(mark)
            if owner_of(mark) != run.accepted.principal:
                self._fail("scope isolation", f"{run.run_id}: the prompt has {mark}")
            elif home is not None and home not in self._line(run.accepted.session_id, runs):
                self._fail("scope isolation", f"{run.run_id}: the prompt has {mark} of {home}")

    def _line(self, session_id: str, runs: dict[str, Run]) -> set[str]:
        """Return the session and those that it continues."""
        found, left = {session_id}, [session_id]
        while left:
            for run_id in self._parents.get(left.pop(), ()):
                parent = runs[run_id].accepted.session_id
                if parent not in found:
                    found.add(parent)
                    left.append(parent)
        return found


def _place(run: Run) -> Place:
    accepted = run.accepted
    return Place(accepted.principal, accepted.session_id, accepted.channel)
