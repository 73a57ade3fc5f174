"""Services of sessions: those of their runs, plus the registry of live actors and queue limits."""

from dataclasses import dataclass

from palyra.actors.run.services import RunServices
from palyra.actors.session.registry import ActorRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServices(RunServices):
    """Handed by sessions to their runs as plain `RunServices`."""

    registry: ActorRegistry
    queue_cap: int  # messages that may wait in one session
    max_open: int  # runs without an end, in all sessions together
    debounce_ms: int = 500  # how long a collected run waits for a further message
