"""Notifications, as the daemon encodes them and the client decodes them.

An event's payload is embedded as the bytes it is stored in, never decoded and encoded again.
"""

from typing import Annotated, Literal

import msgspec

from palyra.core.channel import PairingRequested
from palyra.core.journal.records import ApprovalRecord, IncidentRecord, SessionRecord
from palyra.core.memory.document_views import DocumentChanged
from palyra.core.policy.views import Resolved
from palyra.core.session.commands import RunView
from palyra.core.tape.events import ProgressKind
from palyra.core.task.views import TaskView
from palyra.core.usage.views import BudgetWarned
from palyra.net.protocol.open_values import known

State = Literal["starting", "ready", "draining"]
Feature = Literal["batch"]  # and the installed parts, see `palyra.config.parts`
PROTOCOL = "palyra.v1"
FEATURES: tuple[Feature, ...] = ("batch",)


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all notification parameters."""


class PublicLimits(Notification, frozen=True, kw_only=True):
    """Limits that a client must respect."""

    max_message_bytes: int
    max_inflight: int
    max_subscriptions: int
    outbox_bytes: int
    requests_per_s: int


class Hello(Notification, frozen=True, kw_only=True):
    """The first message on every connection."""

    server: str
    version: str
    instance_id: str
    protocol: str
    features: tuple[str, ...]
    limits: PublicLimits
    state: Annotated[str, known(State)]


class TapeItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A committed event as read from the tape."""

    run_id: str
    session_id: str
    seq: int
    at_ms: int
    kind: str
    data: msgspec.Raw


class TapeEventNotice(TapeItem, frozen=True, kw_only=True, gc=False):
    """An event as it is pushed; `committed` is the durable seq when the frame is written."""

    subscription: str
    committed: int


class TapeCommitted(Notification, frozen=True, kw_only=True):
    """The run's tape is durable up to and including this seq."""

    run_id: str
    committed: int


class TapeCaughtUp(Notification, frozen=True, kw_only=True):
    """Everything up to `through` has been sent; later events are live."""

    subscription: str
    through: int


class TapeReset(Notification, frozen=True, kw_only=True):
    """The client must discard events from `floor` on: the stream continues there."""

    subscription: str
    run_id: str
    reason: Annotated[str, known(Literal["below_floor", "truncated"])]
    floor: int


class ProgressItem(Notification, frozen=True, kw_only=True):
    """Volatile; `order` is that of the newest delta merged into this one."""

    run_id: str
    item: str
    order: int
    kind: ProgressKind
    delta: str
    offset: int | None = None  # characters of this kind in the item before the delta


class ApprovalResolvedNotice(Resolved, frozen=True, kw_only=True):
    """An approval was resolved by a person or by its deadline."""

    approval_id: str


class RunsUpdated(Notification, frozen=True, kw_only=True):
    """Runs of a watch: a part of its snapshot, or the newest state of those that have changed.

    A snapshot is a series of frames up to the one that is `complete`: a run in none of them is over
    or does not match.
    """

    subscription: str
    runs: list[RunView] = []
    gone: list[str] = []  # ids of open runs that do not match any more
    snapshot: bool = False
    complete: bool = False  # the last frame of a snapshot


class SystemDraining(Notification, frozen=True, kw_only=True):
    """The daemon is shutting down."""

    restart_expected: bool
    close_after_ms: int


NOTIFICATIONS: dict[str, type[msgspec.Struct]] = {
    "hello": Hello,
    "tape.event": TapeEventNotice,
    "tape.committed": TapeCommitted,
    "tape.caught_up": TapeCaughtUp,
    "tape.reset": TapeReset,
    "progress": ProgressItem,
    "run.updated": RunsUpdated,
    "approval.requested": ApprovalRecord,
    "approval.resolved": ApprovalResolvedNotice,
    "session.updated": SessionRecord,
    "budget.warned": BudgetWarned,
    "incident.opened": IncidentRecord,
    "incident.updated": IncidentRecord,
    "incident.resolved": IncidentRecord,
    "document.changed": DocumentChanged,
    "pairing.requested": PairingRequested,
    "task.updated": TaskView,
    "system.draining": SystemDraining,
}
