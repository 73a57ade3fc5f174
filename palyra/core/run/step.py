"""A step of a run: its events are applied as they are added, its effects collected.

`transition` drives every step and redacts it; `tape_rows` turns the result into rows of the tape.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES, TapeRow
from palyra.core.redaction.redactor import REMEMBERED_BYTES
from palyra.core.run.environment import RunEnvironment, TapeEnvironment
from palyra.core.run.inputs import Effect
from palyra.core.run.state import Run, apply
from palyra.core.tape import events as ev
from palyra.errors import TooLarge


class EncodedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event beside its bytes, as they will stand on the tape."""

    event: ev.Event
    data: bytes
    redacted: bool

    @property
    def kind(self) -> str:
        """Kind of the event."""
        return self.event.KIND


class Transition:
    """One step of a run in progress: the state after its events so far, their payloads, effects.

    `add` applies an event at once, so a decision always sees the state that its earlier events
    have produced.
    """

    __slots__ = ("_redacts_each", "_unsearched", "drafts", "effects", "env", "now_ms", "run")

    def __init__(self, run: Run, env: TapeEnvironment, *, now_ms: int, redacts_each: bool) -> None:
        self.run = run
        self.env = env
        self.now_ms = now_ms
        self.drafts: list[EncodedEvent] = []
        self.effects: list[Effect] = []
        self._redacts_each = redacts_each
        self._unsearched: list[bytes] = []

    def add(self, event: ev.Event, *, room_bytes: int = 0) -> None:
        """Encode, redact, size-check and apply one event; leave `room_bytes` of its payload free.

        Raises InvariantBroken when the state does not allow the event and TooLarge when its payload
        exceeds the tape's limit.  Neither changes anything.  The size is judged before the search, which
        may take a second for a megabyte, and after it, because a mark may be longer than a secret.
        """
        data, redacted = ev.encode_event(event), False
        limit = MAX_PAYLOAD_BYTES - room_bytes
        if len(data) > limit:
            raise _too_large(event, data, limit)
        if event.MAY_CONTAIN_USER_TEXT:
            if self._redacts_each:
                data, redacted = self.env.redact(data)
            else:
                self._unsearched.append(data)
        if redacted:
            event, data = _keep_computed(event, ev.decode_event(event.KIND, data), data)
            if len(data) > limit:
                raise _too_large(event, data, limit)
        self.run = apply(self.run, event, self.now_ms)
        self.drafts.append(EncodedEvent(event, data, redacted))

    @property
    def holds_secret(self) -> bool:
        """True if an event of the first pass contains text that must be redacted.

        Short payloads are searched together: one search costs more than its bytes.  A long payload
        is searched alone, because the redactor caches the results of long texts.
        """
        long = [data for data in self._unsearched if len(data) >= REMEMBERED_BYTES]
        short = [data for data in self._unsearched if len(data) < REMEMBERED_BYTES]
        pieces = [*long, b"\n".join(short)] if short else long
        return any(self.env.redact(data)[1] for data in pieces)


class Step(Transition):
    """A transition that a decision adds to; the decision may ask the run's environment."""

    __slots__ = ()
    env: RunEnvironment

    if TYPE_CHECKING:  # one constructor, with the narrower type

        def __init__(
            self, run: Run, env: RunEnvironment, *, now_ms: int, redacts_each: bool
        ) -> None: ...


def transition(run: Run, env: RunEnvironment, decide: Callable[[Step], None]) -> Step:
    """Run `decide` over a new step of `run` and return the step, fully redacted.

    State, wire and tape see the same redacted events.  Unredacted arguments of a call are kept by
    the run actor, in memory only.

    Redaction takes two passes because secrets are rare and each search has a fixed cost.  The first
    pass decides without searching; then all payloads are searched at once.  If one holds a secret,
    the whole decision is repeated with every event redacted as it is added.  Redacting the finished
    events instead would be wrong: digests, excerpts, attestations and effects derived from the
    unredacted text would stay, and a replay of the redacted tape would compute different ones.
    `decide` therefore must not have effects of its own; both passes share one time.
    """
    now_ms = env.now_ms()
    step = Step(run, env, now_ms=now_ms, redacts_each=False)
    decide(step)
    if step.holds_secret:
        step = Step(run, env, now_ms=now_ms, redacts_each=True)
        decide(step)
    return step


def record_event(run: Run, event: ev.Event, env: TapeEnvironment) -> Transition:
    """Return the step that adds one event and decides nothing.  Raises TooLarge."""
    step = Transition(run, env, now_ms=env.now_ms(), redacts_each=True)
    step.add(event)
    return step


def tape_rows(step: Transition) -> tuple[TapeRow, ...]:
    """The step's events as rows, numbered from the run's next seq before the step."""
    run, accepted = step.run, step.run.accepted
    first = run.next_seq - len(step.drafts)
    return tuple(
        TapeRow(
            run.run_id,
            accepted.session_id,
            first + index,
            step.now_ms,
            draft.event.KIND,
            accepted.principal,
            draft.redacted,
            draft.data,
        )
        for index, draft in enumerate(step.drafts)
    )


def _too_large(event: ev.Event, data: bytes, limit: int) -> TooLarge:
    return TooLarge(f"{event.KIND} has {len(data)} bytes; it may have {limit}")


def _keep_computed(event: ev.Event, found: ev.Event, data: bytes) -> tuple[ev.Event, bytes]:
    """Return the redacted event with the computed fields of the original, and its payload.

    A signature is random base64 and may look like a token of some vendor; without it the call
    could not be verified.
    """
    if not event.COMPUTED:
        return found, data
    kept = msgspec.structs.replace(found, **{name: getattr(event, name) for name in event.COMPUTED})
    return kept, ev.encode_event(kept)
