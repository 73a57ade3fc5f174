"""Typed methods about the daemon itself: sessions, tools, policy, proofs, tokens, health."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from palyra.client.files import FileMethods
from palyra.client.results import (
    ExportPage,
    Json,
    Pong,
    SessionList,
    Status,
    Token,
    TokenList,
    ToolList,
)
from palyra.core.journal.changes import VerifyReport
from palyra.core.journal.records import QueueMode, Role, SessionRecord
from palyra.core.policy.request import Explanation
from palyra.core.session.commands import Queue


class QueueChange(TypedDict, total=False):
    """What `session.queue` may change."""

    mode: QueueMode
    paused: bool
    drop: Sequence[str]
    order: Sequence[str]
    idempotency_key: str


class OperationMethods(FileMethods):
    """Everything that is not about one run."""

    async def ping(self) -> Pong:
        return await self._ask("ping", {}, Pong)

    # --- sessions ---

    async def resolve_session(
        self, *, session_key: str | None = None, session_id: str | None = None
    ) -> SessionRecord:
        """The session of that id, or of that key (made when there is none yet)."""
        params = {"session_key": session_key, "session_id": session_id}
        return await self._mutate("session.resolve", params, SessionRecord)

    async def get_session(self, session_id: str) -> SessionRecord:
        return await self._ask("session.get", {"session_id": session_id}, SessionRecord)

    async def list_sessions(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> SessionList:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        return await self._ask("session.list", {"cursor": cursor, "limit": limit}, SessionList)

    async def archive_session(self, session_id: str) -> SessionRecord:
        return await self._mutate("session.archive", {"session_id": session_id}, SessionRecord)

    async def reset_session(self, session_id: str) -> SessionRecord:
        """From now on the session begins anew: history and grants before no longer count."""
        return await self._mutate("session.reset", {"session_id": session_id}, SessionRecord)

    async def queue(self, session_id: str, **change: Unpack[QueueChange]) -> Queue:
        """What waits in the session, after the change if there is one; next run first.

        All of the change happened, or a Conflict says why nothing did.
        """
        params = {"session_id": session_id, **change}
        if not change:
            return await self._ask("session.queue", params, Queue)
        return await self._mutate("session.queue", params, Queue)

    # --- tools and policy ---

    async def list_tools(self, agent: str | None = None) -> ToolList:
        """Every tool that agent could call now, and the hash of exactly that list."""
        return await self._ask("tool.list", {"agent": agent}, ToolList)

    async def explain_policy(
        self,
        tool: str,
        arguments: Json,
        *,
        agent: str | None = None,
        session_id: str | None = None,
    ) -> Explanation:
        """What would happen to such a call of that agent, in that session, and why."""
        params = {"tool": tool, "arguments": arguments, "agent": agent, "session_id": session_id}
        return await self._ask("policy.explain", params, Explanation)

    # --- proofs ---

    async def verify_tape(self, run_id: str | None = None) -> VerifyReport:
        """The daemon's own check of chain and signed roots, of one run or everything."""
        return await self._ask("tape.verify", {"run_id": run_id}, VerifyReport)

    async def export_tape(
        self, run_id: str, after_seq: int = -1, *, limit: int | None = None
    ) -> ExportPage:
        """A page of a tape's proof; go on until `next_after_seq` is None."""
        params = {"run_id": run_id, "after_seq": after_seq, "limit": limit}
        return await self._ask("tape.export", params, ExportPage)

    # --- tokens ---

    async def create_token(
        self, *, principal: str, role: Role, name: str, ttl_ms: int | None = None
    ) -> Token:
        """A new bearer token.

        Its secret, `token`, is sent once: None when that reply was lost with a connection.  Then
        revoke it and make another.
        """
        params = {"principal": principal, "role": role, "name": name, "ttl_ms": ttl_ms}
        return await self._mutate("token.create", params, Token)

    async def list_tokens(self) -> list[Token]:
        return (await self._ask("token.list", {}, TokenList)).tokens

    async def revoke_token(self, token_id: str) -> Token:
        """The token, no longer valid; its live connections are closed."""
        return await self._mutate("token.revoke", {"token_id": token_id}, Token)

    # --- health ---

    async def status(self) -> Status:
        return await self._ask("system.status", {}, Status)

    async def tree(self) -> Json:
        """The supervision tree, with restarts and mailbox depths."""
        return await self._ask("system.tree", {}, dict[str, Any])

    async def describe(self) -> Json:
        """JSON Schemas of every method, notification and event kind."""
        return await self._ask("system.describe", {}, dict[str, Any])
