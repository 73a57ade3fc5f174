"""Audience: the part of a principal's data that one run reads and writes.

A channel belongs to a principal, but its senders are other people.  A run that answers them is
confined to its conversation: memory, earlier runs and sessions, procedures and what is learned stop
there, unless the operator gave the channel the audience `principal`.  Every reader and writer for a run
takes an audience, never a bare principal, so a new one cannot forget the channel.

A delegated run has the limits of the run that delegated.
"""

import msgspec

from palyra.core.journal.changes import MemoryPlace
from palyra.core.journal.records import MemoryScope, RunRecord, SessionRecord


class Audience(msgspec.Struct, frozen=True, kw_only=True):
    """Reach of a run in the data of its principal.  The default reaches nothing."""

    principal: str = ""
    session_id: str = ""
    channel: str | None = None
    memory_scope: MemoryScope = "none"
    is_confined: bool = True  # to its session

    @property
    def place(self) -> MemoryPlace | None:
        """Place of its searches and writes; None without a memory."""
        if self.memory_scope == "none" or not self.principal:
            return None
        return MemoryPlace(
            principal=self.principal,
            channel=self.channel,
            session_id=self.session_id or None,
            only_session=self.is_confined or self.memory_scope == "session",
        )

    def sees(self, record: RunRecord | SessionRecord) -> bool:
        """True if the run may quote this run or session."""
        if record.principal != self.principal:
            return False
        return not self.is_confined or record.session_id == self.session_id
