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
from palyra.core.policy.grants import MAX_LIVE, covers, parts_of
from palyra.core.ports import Journal, JournalStore, NowMs
from palyra.errors import Conflict, NotFound, Overloaded

RESET = "session.reset"
MOST_EARLY = 256  # ended grants remembered until `add` reports their commit
_LOADED = 100_000  # far more than principals times MAX_LIVE of any real daemon
_Key = tuple[str, str, str, str, str]  # principal, agent, tool, part of the key, workspace


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
        """Return the grants that cover a key; the caller checks that they are live."""
        found = {
            grant.grant_id: grant
            for part in parts_of(key)
            for grant in self._live.get((principal, agent, tool, part, workspace), {}).values()
        }
        return tuple(grant for grant in found.values() if covers(grant, key))

    def holds(self, grant_id: str) -> bool:
        """True if the grant is live."""
        now_ms = self._now_ms()
        found = (known[grant_id] for known in self._live.values() if grant_id in known)
        return any(grant.is_live(now_ms) for grant in found)

    def check_room(self, principal: str) -> None:
        """Raise Overloaded if the principal has `MAX_LIVE` live grants."""
        now_ms = self._now_ms()
        live = len(
            {
                grant.grant_id
                for known in self._live.values()
                for grant in known.values()
                if grant.principal == principal and grant.is_live(now_ms)
            }
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
        for key in _keys(grant):
            known = self._live[key]
            for old in [old for old in known.values() if not old.is_live(now_ms)]:
                del known[old.grant_id]
            known[grant.grant_id] = grant
        return True

    def end_session(self, session_id: str) -> tuple[GrantRecord, ...]:
        """End the grants of a session; return their records, to be committed with its reset."""
        ended = {
            grant.grant_id: grant
            for known in self._live.values()
            for grant in known.values()
            if grant.scope == "session" and grant.session_id == session_id
        }
        return tuple(self._end(grant, RESET) for grant in ended.values())

    def forget_session(self, session_id: str) -> None:
        """Put the grants that were given in a session out of force, whatever their scope."""
        for known in self._live.values():
            for grant_id in [key for key, each in known.items() if each.session_id == session_id]:
                del known[grant_id]

    def _end(self, grant: GrantRecord, by: str) -> GrantRecord:
        was_known = False
        for key in _keys(grant):
            known = self._live.get(key, {})
            was_known = known.pop(grant.grant_id, None) is not None or was_known
            if not known:
                self._live.pop(key, None)
        if not was_known and grant.grant_id not in self._ended_early:
            self._ended_early.append(grant.grant_id)
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


def _keys(grant: GrantRecord) -> list[_Key]:
    return [
        (grant.principal, grant.agent, grant.tool, part, grant.workspace)
        for part in parts_of(grant.key)
    ]
