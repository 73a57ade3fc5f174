"""Grants in force: answers of people that cover more than one call.

Owns: a copy of the live grant records, by principal, agent, tool and key.  Talks to: the journal.
Written by: the question whose answer made a grant (once committed), a session reset, and `revoke`.
Restart: loaded from the journal before any run is resumed.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.access import Caller
from palyra.core.journal.changes import Change
from palyra.core.journal.records import GrantRecord
from palyra.core.policy.grants import MAX_LIVE
from palyra.core.ports import Journal, JournalStore, NowMs
from palyra.errors import Conflict, NotFound, Overloaded

RESET = "session.reset"
MOST_EARLY = 256  # ended grants remembered until `add` reports their commit
_LOADED = 100_000  # far more than principals times MAX_LIVE of any real daemon
_Key = tuple[str, str, str, str, str]  # principal, agent, tool, key, workspace


class Grants:
    """Live grants for the gate; the journal has the same records."""

    def __init__(self, journal: Journal, now_ms: NowMs) -> None:
        self._journal = journal
        self._now_ms = now_ms
        self._live: dict[_Key, dict[str, GrantRecord]] = defaultdict(dict)
        # Ended after their commit and before `add`, which may never follow if the run crashes.
        self._ended_early: deque[str] = deque(maxlen=MOST_EARLY)

    def query(self, store: JournalStore) -> list[GrantRecord]:
        """Return all live grants from the journal.  Blocks."""
        return store.list_grants(principal=None, live_at_ms=self._now_ms(), limit=_LOADED)

    def put(self, found: Iterable[GrantRecord]) -> None:
        """Replace all known grants."""
        self._live.clear()
        for grant in found:
            self.add(grant)

    def find(
        self, principal: str, agent: str, tool: str, key: str, workspace: str
    ) -> Sequence[GrantRecord]:
        """Return the grants of a key; the caller checks that they are live."""
        known = self._live.get((principal, agent, tool, key, workspace))
        return tuple(known.values()) if known else ()

    def holds(self, grant_id: str) -> bool:
        """True if the grant is live."""
        now_ms = self._now_ms()
        found = (known[grant_id] for known in self._live.values() if grant_id in known)
        return any(grant.is_live(now_ms) for grant in found)

    def check_room(self, principal: str) -> None:
        """Raise Overloaded if the principal has `MAX_LIVE` live grants."""
        now_ms = self._now_ms()
        live = sum(
            grant.principal == principal and grant.is_live(now_ms)
            for known in self._live.values()
            for grant in known.values()
        )
        if live >= MAX_LIVE:
            raise Overloaded(
                f"{live} grants of {principal} are active, which is the limit: revoke some, "
                "or answer with the scope once",
                retry_after_ms=1_000,
            )

    def add(self, grant: GrantRecord) -> bool:
        """Put a committed grant in force; return False if it was ended already.

        Expired grants of the same key are removed.
        """
        if grant.grant_id in self._ended_early:
            self._ended_early.remove(grant.grant_id)
            return False
        now_ms = self._now_ms()
        known = self._live[_key(grant)]
        for old in [old for old in known.values() if not old.is_live(now_ms)]:
            del known[old.grant_id]
        known[grant.grant_id] = grant
        return True

    def end_session(self, session_id: str) -> tuple[GrantRecord, ...]:
        """End the grants of a session; return their records, to be committed with its reset."""
        ended = [
            grant
            for known in self._live.values()
            for grant in known.values()
            if grant.scope == "session" and grant.session_id == session_id
        ]
        return tuple(self._end(grant, RESET) for grant in ended)

    def forget_session(self, session_id: str) -> None:
        """Put the grants that were given in a session out of force, whatever their scope."""
        for known in self._live.values():
            for grant_id in [key for key, each in known.items() if each.session_id == session_id]:
                del known[grant_id]

    def _end(self, grant: GrantRecord, by: str) -> GrantRecord:
        known = self._live.get(_key(grant), {})
        if known.pop(grant.grant_id, None) is None:
            if grant.grant_id not in self._ended_early:
                self._ended_early.append(grant.grant_id)
        elif not known:
            del self._live[_key(grant)]
        return msgspec.structs.replace(grant, ended_ms=self._now_ms(), ended_by=by)

    # --- for clients

    async def list_seen(self, caller: Caller, *, live_only: bool, limit: int) -> list[GrantRecord]:
        """Return the grants that the caller sees, newest first."""
        caller.require("approvals:read")
        now_ms = self._now_ms() if live_only else None
        return await self._journal.read(
            lambda store: store.list_grants(
                principal=caller.principal_filter, live_at_ms=now_ms, limit=limit
            )
        )

    async def revoke(self, caller: Caller, grant_id: str) -> GrantRecord:
        """End a grant, committed on return; an ended grant keeps its end.  Raises NotFound.

        The grant is out of force from the call on, even if the commit fails.
        """
        caller.require("approvals:write")
        found = await self._find_seen(caller, grant_id)
        if not found.is_live(self._now_ms()):
            return found
        ended = self._end(found, caller.principal)
        try:
            await self._journal.commit(Change(records=(ended,)))
        except Conflict:  # ended by another request meanwhile
            return await self._find_seen(caller, grant_id)
        return ended

    async def _find_seen(self, caller: Caller, grant_id: str) -> GrantRecord:
        found = await self._journal.find(lambda store: store.find_grant(grant_id))
        if found is None or not caller.sees(found.principal):
            raise NotFound(f"no grant {grant_id!r}", field="grant_id")
        return found


def _key(grant: GrantRecord) -> _Key:
    return grant.principal, grant.agent, grant.tool, grant.key, grant.workspace
