"""One step of a run in the making: events are applied as they are added, effects are collected."""

import msgspec

from palyra.core import events as ev
from palyra.core.fold import apply, begin
from palyra.core.run_state import Run
from palyra.core.run_steps import Effect, Setting
from palyra.core.tape import MAX_PAYLOAD_BYTES
from palyra.errors import TooLarge


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event as it will stand on the tape."""

    kind: str
    data: bytes
    redacted: bool


class Step:
    """The state after the events so far, their payloads, and what is to be done.

    Redaction happens here, once, before state, wire and tape see the event: all three see the
    same.  What must stay unredacted to be executed (a call's operands) is kept by the actor, in
    memory only.
    """

    __slots__ = ("drafts", "effects", "now_ms", "run", "setting")

    def __init__(self, run: Run, setting: Setting, now_ms: int | None = None) -> None:
        self.run = run
        self.setting = setting
        self.now_ms = setting.now_ms() if now_ms is None else now_ms
        self.drafts: list[Draft] = []
        self.effects: list[Effect] = []

    @classmethod
    def first(cls, run_id: str, accepted: ev.RunAccepted, setting: Setting) -> "Step":
        """The step that begins a tape."""
        now_ms = setting.now_ms()
        data, redacted = setting.redact(ev.encode_event(accepted))
        if redacted:
            accepted = msgspec.json.decode(data, type=ev.RunAccepted)
        step = cls(begin(run_id, accepted, now_ms), setting, now_ms)
        step.drafts.append(Draft(accepted.KIND, data, redacted))
        return step

    def add(self, event: ev.Event) -> None:
        """Redact, apply, keep.

        Raises InvariantBroken when the state does not allow the event, TooLarge for one that no
        tape takes; neither changes anything.
        """
        data, redacted = ev.encode_event(event), False
        if event.HAS_FOREIGN_TEXT:
            data, redacted = self.setting.redact(data)
        if redacted:
            event = ev.decode_event(event.KIND, data)
        if len(data) > MAX_PAYLOAD_BYTES:
            raise TooLarge(
                f"{event.KIND} has {len(data)} bytes; an event may have {MAX_PAYLOAD_BYTES}"
            )
        self.run = apply(self.run, event, self.now_ms)
        self.drafts.append(Draft(event.KIND, data, redacted))
