"""The conversations of sessions, kept by their marks, and what prompts and summaries hold of them.

Each message of a keeper states a rule with a mark.  A rule survives every compaction as data, so at
any time the rules of a prompt are exactly those of the messages up to it: a rule that is missing was
lost, one that is too many comes from another session, or from after the point of a restore.
"""

from collections.abc import Callable, Sequence

import msgspec

from palyra.core.journal.records import Pin, SessionRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ModelRequest
from palyra.core.model.summary import Summary
from palyra.core.run.state import COMPACTION, Run
from palyra.core.session.queue import BESIDE
from palyra.core.tape import events as ev
from tests.simulate.marks import find_marks

Fail = Callable[[str, str], None]
EXHAUSTED = "context_budget_exhausted"  # a summary that says so may have lost its oldest rules


class Transcripts:
    """Rules by run, and the order of runs in sessions."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self.compactions = self.branches = 0
        self._said: dict[str, list[tuple[int, set[str]]]] = {}  # by run: seq and rules
        self._before: dict[str, tuple[str, ...]] = {}  # earlier runs of the session, by run
        self._began: dict[str, list[str]] = {}  # runs of a session, in order
        self._origin: dict[str, tuple[str, int]] = {}  # run and event that a run continues
        self._inherited: dict[str, set[str]] = {}  # rules that came with it
        self._cut: set[str] = (
            set()
        )  # runs whose prompt, or inherited summary, has had to drop rules
        self._pins: dict[str, tuple[Pin, ...]] = {}  # of the session, when a run was accepted

    def note(
        self,
        runs: dict[str, Run],
        sessions: dict[str, SessionRecord],
        row: TapeRow,
        event: ev.Event,
    ) -> None:
        """One more event is committed; the runs are as after it."""
        run_id = row.run_id
        match event:
            case ev.RunAccepted():
                session = sessions.get(row.session_id)
                self._pins[run_id] = () if session is None else session.pins
            case ev.ConversationInherited(run_id=str(origin), at_seq=at_seq) if origin:
                text = msgspec.json.encode((event.messages, event.summary)).decode()
                self._origin[run_id] = origin, at_seq
                if origin not in self._before:  # it waits: it would start after these
                    self._before[origin] = self._earlier(runs, origin)
                self._inherited.setdefault(run_id, set()).update(find_marks(text, "ru"))
                if event.summary is not None and event.summary.ledger.exceeded:
                    self._cut.add(run_id)
            case ev.MessageReceived(text=text):
                self._said.setdefault(run_id, []).append((row.seq, find_marks(text, "ru")))
            case ev.RunStarted():
                self._begin(runs, row)
            case ev.CompactionApplied(summary=summary):
                self._check_summary(runs[run_id], sessions[row.session_id], summary)
            case _:
                pass

    def _begin(self, runs: dict[str, Run], row: TapeRow) -> None:
        accepted = runs[row.run_id].accepted
        if accepted.origin in BESIDE:
            return
        self._before[row.run_id] = self._earlier(runs, row.run_id)
        self._began.setdefault(row.session_id, []).append(row.run_id)
        if row.run_id in self._origin:
            self._check_branch(row.run_id)

    def _earlier(self, runs: dict[str, Run], run_id: str) -> tuple[str, ...]:
        """Return the runs that a run of the session continues if it starts now."""
        accepted = runs[run_id].accepted
        return tuple(
            each
            for each in self._began.get(accepted.session_id, ())
            if runs[each].is_terminal and runs[each].accepted.epoch == accepted.epoch
        )

    def _rules(self, run_id: str, at_seq: int | None = None) -> set[str]:
        """Return the rules of the conversation up to an event of a run, or to its end."""
        found = set(self._inherited.get(run_id, ()))
        for earlier in self._before.get(run_id, ()):
            found |= self._own(earlier) | self._inherited.get(earlier, set())
        return found | self._own(run_id, at_seq)

    def _own(self, run_id: str, at_seq: int | None = None) -> set[str]:
        said = self._said.get(run_id, [])
        return set().union(*(rules for seq, rules in said if at_seq is None or seq <= at_seq))

    def _check_branch(self, run_id: str) -> None:
        """Check that a branch has inherited the rules up to its mark, and no others."""
        origin, at_seq = self._origin[run_id]
        wanted, held = self._rules(origin, at_seq), self._inherited[run_id]
        self.branches += 1
        if held - wanted:
            self._fail("a branch ends at its mark", f"{run_id}: {sorted(held - wanted)}")
        is_whole = run_id not in self._cut and origin in self._before
        if is_whole and wanted - held:
            self._fail("a branch holds its transcript", f"{run_id}: {sorted(wanted - held)}")

    def _check_summary(self, run: Run, session: SessionRecord, summary: Summary) -> None:
        """Check that rules and pins of the covered messages are entries of the ledger."""
        self.compactions += 1
        if summary.ledger.exceeded:
            return
        kept = set().union(*(find_marks(each.text, "ru") for each in summary.ledger.entries))
        prose = find_marks(summary.narrative, "ru") - kept
        lost = (self._covered_rules(summary) | prose) - kept
        if lost:
            self._fail("obligations survive as data", f"{run.run_id}: {sorted(lost)}")
        held = {each.run_id for each in summary.ledger.entries if each.kind == "pin"}
        for pin in set(self._pins[run.run_id]) & set(session.pins):
            is_covered = summary.covered_of(pin.run_id) is not None
            if is_covered and pin.run_id not in self._origin and pin.run_id not in held:
                self._fail("pins survive as data", f"{run.run_id}: {pin}")

    def _covered_rules(self, summary: Summary) -> set[str]:
        """Return the rules of runs whose first message, which states them, is covered."""
        covered = {each.run_id for each in summary.covers} - self._origin.keys()
        return set().union(*map(self._own, covered))

    def shorten(self, run_id: str) -> None:
        """Note that a provider has refused a prompt of the run as too long."""
        self._cut.add(run_id)

    def check_prompt(self, run: Run, request: ModelRequest, runs: dict[str, Run]) -> None:
        """Check that the rules of a prompt are those of the conversation.

        The first prompt may be sent before the start of the run is committed.
        """
        if request.is_background or run.accepted.origin in BESIDE | {COMPACTION}:
            return
        if run.run_id not in self._began.get(run.accepted.session_id, ()):
            # What is known may be from a fork of the waiting run, before others ended.
            self._before[run.run_id] = self._earlier(runs, run.run_id)
        held, wanted = _held(request.messages), self._rules(run.run_id)
        if held - wanted:
            text = f"{run.run_id}: {sorted(held - wanted)}"
            self._fail("a prompt holds its conversation alone", text)
        text = msgspec.json.encode(request.messages).decode()
        is_cut = EXHAUSTED in text or run.run_id in self._cut
        if wanted - held and not is_cut:
            self._fail("obligations survive", f"{run.run_id}: {sorted(wanted - held)}")


def _held(messages: Sequence[object]) -> set[str]:
    return find_marks(msgspec.json.encode(messages).decode(), "ru")
