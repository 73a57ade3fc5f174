"""Planted bugs: what a careless change might do, and which invariant has to notice.

Each is a context manager; inside, the daemon has the bug.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import trio

from palyra.actors import watchdog
from palyra.actors.hub import Hub
from palyra.actors.journal import actor as journal_actor
from palyra.actors.journal.actor import PendingCommit
from palyra.actors.run import actor as run_actor
from palyra.actors.run import approval, tool_call
from palyra.actors.run.environment import LiveEnvironment
from palyra.actors.watchdog import Watchdog
from palyra.core.access import Caller
from palyra.core.journal.changes import Change
from palyra.core.policy.gate import Allow, NeedsApproval, judge
from palyra.core.redaction.redactor import Redactor
from palyra.core.run import decide as core_run
from palyra.core.run.call import Call
from palyra.core.tape.events import TurnFailed
from palyra.core.usage import ledger
from palyra.net.api.idempotency import IdempotencyStore
from palyra.net.delivery.feed_cursor import FeedCursor
from palyra.net.delivery.outbox import Outbox
from palyra.services.policy import gate
from palyra.services.policy.grants import Grants
from palyra.services.usage.budgets import Reservation

Plant = AbstractContextManager[Any]


def drop_an_event() -> Plant:
    """The hub loses every event of one kind on the way to a reader."""

    def deliver(self: FeedCursor, rows: Any) -> None:
        kept = [each for each in rows if each.row.kind != "turn.started"]
        if kept and self._is_live:
            self.next_seq = kept[0].row.seq
            self._put(kept)

    return patch.object(FeedCursor, "deliver", deliver)


def acknowledge_early() -> Plant:
    """The journal acknowledges a commit before it is on disk."""
    commit = journal_actor._Incarnation._commit

    async def early(self: Any, tickets: Any) -> None:
        for ticket in tickets:
            ticket.settle(None)
        await commit(self, tickets)

    return patch.object(journal_actor._Incarnation, "_commit", early)


def execute_early() -> Plant:
    """A tool does not wait until its start is committed."""
    execute = tool_call.execute_call
    done = PendingCommit(Change())
    done.settle(None)

    async def early(execution: Any) -> None:
        execution.start = done
        await execute(execution)

    return patch.object(run_actor, "execute_call", early)


def repeat_effects() -> Plant:
    """After a restart every call without an outcome is simply started again."""
    resume = core_run._resume_call

    def careless(step: Any, call: Call) -> None:
        resume(step, msgspec.structs.replace(call, may_rerun=True))

    return patch.object(core_run, "_resume_call", careless)


def take_any_digest() -> Plant:
    """An answer counts even if its digest belongs to another question."""
    return patch.object(approval, "check_answer", lambda *_: None)


def show_everything() -> Plant:
    """A client sees what belongs to others."""
    return patch.object(Caller, "sees", lambda _self, _principal: True)


def keep_secrets_in() -> Plant:
    """Nothing is redacted."""
    return patch.object(Redactor, "redact_bytes", lambda _self, data: (data, False))


def forget_receipts() -> Plant:
    """The same key is another effect."""

    async def careless(_self: Any, _key: Any, _kind: Any, effect: Any, **_: Any) -> Any:
        return await effect()

    return patch.object(IdempotencyStore, "once", careless)


def call_it_committed() -> Plant:
    """The wire reports more rows as committed than the disk has."""
    committed = Hub.committed

    def boast(self: Hub, heads: Any) -> None:
        committed(self, [(run_id, seq + 1) for run_id, seq in heads])

    return patch.object(Hub, "committed", boast)


def stray_from_the_tape() -> Plant:
    """The live state differs from the tape."""
    emit = run_actor._RunActor.emit

    def careless(self: Any, step: Any, *rest: Any) -> None:
        emit(self, step, *rest)
        stray = msgspec.structs.replace(self.handle.run, tool_calls=99)
        self.handle.run = stray

    return patch.object(run_actor._RunActor, "emit", careless)


def crash_now_and_then() -> Plant:
    """A part that is expected never to fail crashes."""
    count = 0
    publish = Hub.publish

    def careless(self: Hub, rows: Any) -> None:
        nonlocal count
        count += 1
        if count % 20 == 0:
            raise KeyError(count)
        publish(self, rows)

    return patch.object(Hub, "publish", careless)


def keep_old_verdicts() -> Plant:
    """An allowed call starts although the rules have changed since."""
    compare = tool_call.compare_with_gate

    def careless(execution: Any, _version: str) -> None:
        recorded = execution.run.run.find_call(execution.call.call_id)
        compare(execution, recorded.policy_version)

    fresh = patch.object(LiveEnvironment, "is_stale", lambda _self, _call: False)
    return both(fresh, patch.object(tool_call, "compare_with_gate", careless))


def grant_to_everybody() -> Plant:
    """A grant of the key applies in every session and for ever."""
    return patch.object(gate, "find_grant", lambda grants, **_: next(iter(grants), None))


def grant_for_ever() -> Plant:
    """A revoked grant is reported as revoked but still applies."""

    def careless(self: Grants, grant: Any, by: str) -> Any:
        return msgspec.structs.replace(grant, ended_ms=self._now_ms(), ended_by=by)

    return patch.object(Grants, "_end", careless)


def say_nothing_of_unknown() -> Plant:
    """An unknown outcome is reported to the model but not to the operator."""
    return patch.object(run_actor, "ReportIncident", type("Nothing", (), {}))


def ask_nobody() -> Plant:
    """The rules ask, and the call goes through."""

    def careless(*given: Any) -> Any:
        verdict = judge(*given)
        if not isinstance(verdict, NeedsApproval):
            return verdict
        return Allow(
            reason_code="allowed", reason="", policies=verdict.policies, version=verdict.version
        )

    return patch.object(gate, "judge", careless)


def lose_lines_of_failures() -> Plant:
    """A call that broke is not in the ledger."""
    line = ledger.usage_record

    def careless(handle: Any, event: Any, at_ms: int) -> Any:
        return None if isinstance(event, TurnFailed) else line(handle, event, at_ms)

    return patch.object(run_actor, "usage_record", careless)


def keep_reservations() -> Plant:
    """The unused part of a call's reservation is not released."""
    return patch.object(Reservation, "give_back", lambda _meter: None)


def take_nothing_for_the_end() -> Plant:
    """A writer that wakes and finds nothing to write does not come back."""

    async def careless(self: Outbox) -> bool:
        if not self._queue and not self._is_finished:
            self._work = trio.Event()
        await self._work.wait()
        return bool(self._queue)

    return patch.object(Outbox, "wait", careless)


def disturb_patient_runs() -> Plant:
    """The watchdog takes waiting for a person for silence."""
    return patch.object(watchdog, "is_waiting", lambda _run: False)


def miss_progress() -> Plant:
    """Events do not end a silence."""
    find_silent = watchdog.find_silent
    first_s: dict[str, float] = {}

    def careless(runs: Any, now_s: float, window_s: float) -> Any:
        for run in runs:
            run.silent_since_s = first_s.setdefault(run.run_id, now_s)
        return find_silent(runs, now_s, window_s)

    return patch.object(watchdog, "find_silent", careless)


def keep_incidents_open() -> Plant:
    """Incidents of runs that progress or have ended are not resolved."""
    return patch.object(Watchdog, "_clear_runs", lambda _self: None)


@contextmanager
def both(one: Plant, other: Plant) -> Generator[None]:
    with one, other:
        yield


# The bug, and the invariants of which one has to break.
PLANTS: list[tuple[Callable[[], Plant], set[str]]] = [
    (
        drop_an_event,
        {
            "a stream has no gap and no repeat",
            "a reader sees every event once",
            "a stream ends with its run",
            "nobody waits for ever",
        },
    ),
    (
        acknowledge_early,
        {
            "an accepted message is durable",
            "no tool before its start is committed",
            "a person is asked what is committed",
            "a resolution is told when committed",
            "an end that is told is durable",
        },
    ),
    (execute_early, {"no tool before its start is committed"}),
    (repeat_effects, {"what may not be repeated is not", "an effect happens once"}),
    (take_any_digest, {"an answer needs the right digest"}),
    (show_everything, {"nothing crosses principals"}),
    (keep_secrets_in, {"no secret reaches the tape", "no secret reaches the wire"}),
    (
        forget_receipts,
        {
            "one key, one effect",
            "the same key gets the same receipt",
            "the journal refuses nothing sound",
        },
    ),
    (call_it_committed, {"committed is durable"}),
    (
        stray_from_the_tape,
        {"the live state is the fold of the tape", "a record is the fold of its tape"},
    ),
    # A journal that crashed has lost what it had not committed; its next change is refused then.
    (crash_now_and_then, {"nothing crashes by itself", "the journal refuses nothing sound"}),
    (keep_old_verdicts, {"a verdict ends with its rules"}),
    (
        grant_to_everybody,
        {
            "a grant holds for its key",
            "a grant ends with its time",
            "a grant that was ended speaks no more",
        },
    ),
    (grant_for_ever, {"a grant that was ended speaks no more", "a grant ends once"}),
    (say_nothing_of_unknown, {"an unknown outcome has its incident"}),
    (ask_nobody, {"nothing starts that nobody allowed"}),
    (take_nothing_for_the_end, {"a request is answered", "nobody waits for ever"}),
    (lose_lines_of_failures, {"the ledger says what a run took"}),
    (keep_reservations, {"reservations are returned", "nobody waits for ever"}),
    (disturb_patient_runs, {"no remedy for a healthy run"}),
    (miss_progress, {"no remedy for a healthy run"}),
    (keep_incidents_open, {"an incident that is healed is resolved"}),
]
