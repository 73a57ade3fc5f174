"""Replay: decide a run again from its own tape and compare event by event.

A tape holds two kinds of facts.  *Inputs* come from outside: messages, the model's turns, outcomes
of tools, answers of people, steering messages, cancels, restarts.  A replay takes them from the
tape, in its order, with its times and ids.  *Consequences* are the events that `decide` derived
from the inputs.  A replay derives them again; every field of every event must be equal, byte for
byte.

Answers of the environment (verdicts on calls, the assembled context, limits) have two sources:

- lenient: the tape.  The comparison covers the engine itself.
- strict: the configuration of today, so that a changed rule, catalogue, instruction or limit is a
  divergence.  Attestations are signed again.

A changed input shows in the first consequence that does not follow from it.  That no row was
changed at all is proved by the hash chain (`core.journal.tape_row`), not by a replay.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from palyra.core.journal.tape_row import TapeRow
from palyra.core.replay.recorded_environment import RecordedEnvironment, StrictEnvironment
from palyra.core.replay.recorded_inputs import RecordedTape, read_input
from palyra.core.replay.report import Divergence, ReplayReport
from palyra.core.run.decide import accept, decide
from palyra.core.run.environment import RunEnvironment, RunLimits
from palyra.core.run.state import Run
from palyra.core.run.step import EncodedEvent, Transition, record_event
from palyra.core.tape import events as ev
from palyra.core.text.excerpt import excerpt
from palyra.errors import Damaged, PalyraError

SHOWN_BYTES = 400  # of each value in a divergence


class Replay:
    """Replay of one tape: call `advance` until it returns False, then `report`."""

    def __init__(
        self,
        rows: Sequence[TapeRow],
        redact: Callable[[bytes], tuple[bytes, bool]],
        *,
        limits: RunLimits = RunLimits(),  # noqa: B008 - frozen
        now: RunEnvironment | None = None,
    ) -> None:
        """Decode the tape; `now`, the environment of such a run today, makes the replay strict.

        `redact` is applied to the values shown of a divergence.  A lenient replay takes from
        `limits` only how many calls may run in parallel.

        Raises Damaged for rows that are not the beginning of a tape.
        """
        if not rows or rows[0].kind != ev.RunAccepted.KIND:
            raise Damaged("a replay needs the whole tape, from run.accepted on")
        if any(row.seq != seq for seq, row in enumerate(rows)):
            raise Damaged("the tape has a gap")
        self._record = RecordedTape(rows)
        self._env = (
            RecordedEnvironment(self._record, limits)
            if now is None
            else StrictEnvironment(self._record, now)
        )
        self._redact = redact
        self._run: Run | None = None
        self._divergence: Divergence | None = None
        self._recorded, self._replayed = hashlib.sha256(), hashlib.sha256()

    @property
    def is_over(self) -> bool:
        """True if the tape has ended or a divergence was found."""
        return self._divergence is not None or self._record.position >= len(self._record.rows)

    def advance(self, steps: int) -> bool:
        """Replay at most `steps` steps; return True if there are more."""
        for _ in range(steps):
            if self.is_over:
                return False
            self._step()
        return not self.is_over

    def report(self) -> ReplayReport:
        """Return the result."""
        rows = self._record.rows
        return ReplayReport(
            run_id=rows[0].run_id,
            matched=self._divergence is None,
            strict=isinstance(self._env, StrictEnvironment),
            events=len(rows),
            recorded_digest=self._recorded.hexdigest(),
            replayed_digest=self._replayed.hexdigest(),
            first_divergence=self._divergence,
            unjudged=tuple(sorted(self._env.unjudged)),
        )

    def _step(self) -> None:
        record = self._record
        if record.position >= len(record.events):
            self._diverge(record.position, "kind", "", record.unreadable)
            return
        try:
            step = self._decide()
        except PalyraError as error:
            self._diverge(record.position, "kind", record.rows[record.position].kind, error.message)
            return
        if step is None or not step.drafts:
            kind = record.rows[record.position].kind
            self._diverge(record.position, "kind", kind, "nothing that could happen here")
            return
        for index, draft in enumerate(step.drafts, record.position):
            if not self._matches(index, draft, step.now_ms):
                return
        record.position += len(step.drafts)
        self._run = step.run

    def _decide(self) -> Transition | None:
        """Decide the step of the tape's next input."""
        record, env = self._record, self._env
        event = record.events[record.position]
        if self._run is not None and isinstance(event, ev.MessageReceived | ev.RunUndone):
            return record_event(self._run, event, env)
        if self._run is not None:
            incoming = read_input(record, self._run)
            return None if incoming is None else decide(self._run, incoming, env)
        accepted = record.events[0]
        assert isinstance(accepted, ev.RunAccepted)  # noqa: S101 - looked at in __init__
        inherited = record.opening(ev.ConversationInherited, 1)
        message = record.opening(ev.MessageReceived, 1 + len(inherited))[:1]
        run_id = record.rows[0].run_id
        return accept(run_id, accepted, message[0] if message else None, env, inherited)

    def _matches(self, seq: int, draft: EncodedEvent, now_ms: int) -> bool:
        """Compare one event with its row and record the first difference."""
        record = self._record
        if seq >= len(record.events):
            shown = record.unreadable if seq < len(record.rows) else "the end of the tape"
            self._feed(self._replayed, draft.kind, now_ms, draft.data)
            self._diverge(seq, "kind", shown, draft.kind)
            return False
        row, expected = record.rows[seq], ev.encode_event(record.events[seq])
        self._feed(self._recorded, row.kind, row.at_ms, expected)
        self._feed(self._replayed, draft.kind, now_ms, draft.data)
        if row.kind != draft.kind:
            self._diverge(seq, "kind", row.kind, draft.kind)
        elif row.at_ms != now_ms:
            self._diverge(seq, "at_ms", row.at_ms, now_ms)
        elif expected != draft.data:
            self._diverge(seq, *_first_difference(expected, draft.data))
        return self._divergence is None

    @staticmethod
    def _feed(digest: Any, kind: str, at_ms: int, data: bytes) -> None:  # noqa: ANN401 - hashlib's
        digest.update(b"%b\0%d\0%d\0%b" % (kind.encode(), at_ms, len(data), data))

    def _diverge(self, seq: int, field: str, expected: object, found: object) -> None:
        rows = self._record.rows
        self._divergence = Divergence(
            seq=seq,
            kind=rows[seq].kind if seq < len(rows) else "",
            field=field,
            expected=self._show(expected),
            found=self._show(found),
        )

    def _show(self, value: object) -> str:
        text = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        return excerpt(self._redact(text)[0].decode(errors="replace"), SHOWN_BYTES)[0]


def _first_difference(expected: bytes, found: bytes) -> tuple[str, object, object]:
    """Return path and values of the first member in which two events differ."""
    path: list[str] = []
    left, right = msgspec.json.decode(expected), msgspec.json.decode(found)
    while (key := _first_key(left, right)) is not None:
        path.append(str(key))
        left, right = left[key], right[key]
    return ".".join(path), left, right


def _first_key(left: Any, right: Any) -> str | int | None:  # noqa: ANN401 - JSON values
    """Return the first key or index in which two values of one shape differ, if any."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        keys: Sequence[str | int] = list(left)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        keys = range(len(left))
    else:
        return None
    return next((key for key in keys if _bytes(left[key]) != _bytes(right[key])), None)


def _bytes(value: object) -> bytes:
    return msgspec.json.encode(value)
