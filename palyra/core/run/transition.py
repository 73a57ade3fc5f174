"""One step of a run in the making: events are applied as they are added, effects are collected.

From a step to rows of a tape.
"""

from collections.abc import Callable

import msgspec

from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES, TapeRow
from palyra.core.redaction.redactor import REMEMBERED_BYTES
from palyra.core.run.fold import apply, begin
from palyra.core.run.inputs import Effect, RunEnvironment
from palyra.core.run.state import Run
from palyra.core.tape import events as ev
from palyra.errors import TooLarge


class EncodedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it will stand on the tape."""

    kind: str
    data: bytes
    redacted: bool


class Transition:
    """The state after the events so far, their payloads, and what is to be done.

    Redaction happens here, once, before state, wire and tape see the event: all three see the
    same.  What must stay unredacted to be executed (a call's operands) is kept by the actor, in
    memory only.

    Secrets are rare and a search has a fixed price, so a step is first taken without looking and
    then searched as a whole; only a step that holds one is taken again, carefully (`searched`).
    """

    __slots__ = ("_unsearched", "drafts", "effects", "is_careful", "now_ms", "run", "setting")

    def __init__(
        self, run: Run, setting: RunEnvironment, *, is_careful: bool, now_ms: int | None = None
    ) -> None:
        self.run = run
        self.setting = setting
        self.is_careful = is_careful  # redact event by event
        self.now_ms = setting.now_ms() if now_ms is None else now_ms
        self.drafts: list[EncodedEvent] = []
        self.effects: list[Effect] = []
        self._unsearched: list[bytes] = []

    @classmethod
    def first(
        cls, run_id: str, accepted: ev.RunAccepted, setting: RunEnvironment, *, is_careful: bool
    ) -> "Transition":
        """The step that begins a tape."""
        now_ms = setting.now_ms()
        data, redacted = setting.redact(ev.encode_event(accepted))
        if redacted:
            accepted = msgspec.json.decode(data, type=ev.RunAccepted)
        step = cls(begin(run_id, accepted, now_ms), setting, is_careful=is_careful, now_ms=now_ms)
        step.drafts.append(EncodedEvent(accepted.KIND, data, redacted))
        return step

    def add(self, event: ev.Event, *, room_bytes: int = 0) -> None:
        """Redact, apply, keep; with so much room left in the payload.

        Raises InvariantBroken when the state does not allow the event, TooLarge for one that no
        tape takes; neither changes anything.
        """
        data, redacted = ev.encode_event(event), False
        if event.MAY_CONTAIN_USER_TEXT:
            if self.is_careful or len(data) > MAX_PAYLOAD_BYTES:
                data, redacted = self.setting.redact(data)
            else:
                self._unsearched.append(data)
        if redacted:
            event = ev.decode_event(event.KIND, data)
        if len(data) > MAX_PAYLOAD_BYTES - room_bytes:
            limit = MAX_PAYLOAD_BYTES - room_bytes
            raise TooLarge(f"{event.KIND} has {len(data)} bytes; it may have {limit}")
        self.run = apply(self.run, event, self.now_ms)
        self.drafts.append(EncodedEvent(event.KIND, data, redacted))

    @property
    def holds_secret(self) -> bool:
        """Whether an event that was added without looking has something to redact."""
        long = [data for data in self._unsearched if len(data) >= REMEMBERED_BYTES]
        short = [data for data in self._unsearched if len(data) < REMEMBERED_BYTES]
        pieces = [*long, b"\n".join(short)] if short else long
        return any(self.setting.redact(data)[1] for data in pieces)


def redacted_transition(take: Callable[[bool], Transition]) -> Transition:
    """The step that `take(is_careful)` makes; nothing in it is unredacted."""
    step = take(False)  # noqa: FBT003 - the parameter has one meaning
    return take(True) if step.holds_secret else step  # noqa: FBT003 - likewise


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
            draft.kind,
            accepted.principal,
            draft.redacted,
            draft.data,
        )
        for index, draft in enumerate(step.drafts)
    )
