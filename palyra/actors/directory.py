"""The directory: which sessions and runs have an actor right now.

Plain dictionaries touched by one trio thread between checkpoints; entries are made and removed by
the actors they stand for, so a look-up followed by an `offer` without a checkpoint is safe.
"""

from typing import TYPE_CHECKING

import msgspec

from palyra.core.records import Place

if TYPE_CHECKING:
    from palyra.actors.run_handle import RunHandle
    from palyra.actors.session_handle import SessionHandle


class Directory:
    """Live runs and sessions by id, live sessions also by (principal, key) and by place."""

    def __init__(self) -> None:
        self.runs: dict[str, RunHandle] = {}
        self.sessions: dict[str, SessionHandle] = {}
        self.keys: dict[tuple[str, str], SessionHandle] = {}
        self.stranded: dict[str, str] = {}  # open runs that cannot go on in this life, and why
        self.is_complete = False  # recovery has been through: every open run is in `runs` or there
        self.conversations: dict[Place, SessionHandle] = {}

    def clear(self) -> None:
        """Nothing has an actor: the supervisor of sessions and runs begins anew."""
        self.runs.clear()
        self.sessions.clear()
        self.keys.clear()
        self.stranded.clear()
        self.is_complete = False
        self.conversations.clear()

    def add_session(self, handle: "SessionHandle") -> None:
        """The session can be found from now on."""
        self.sessions[handle.session_id] = handle
        if handle.record.key is not None:
            self.keys[handle.record.principal, handle.record.key] = handle
        if handle.record.place is not None:
            self.conversations[handle.record.place] = handle

    def find_conversation(self, place: Place) -> "SessionHandle | None":
        """The live session of that place; one that was archived meanwhile is it no more."""
        handle = self.conversations.get(place)
        return handle if handle is not None and handle.record.place == place else None

    def remove_session(self, handle: "SessionHandle") -> None:
        """The session has no actor any more."""
        self.sessions.pop(handle.session_id, None)
        if handle.record.key is not None:
            self.keys.pop((handle.record.principal, handle.record.key), None)
        unarchived = msgspec.structs.replace(handle.record, archived_ms=None)
        if unarchived.place is not None and self.conversations.get(unarchived.place) is handle:
            del self.conversations[unarchived.place]
