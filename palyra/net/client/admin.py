"""Typed methods about the daemon itself: sessions, tools, policy, proofs, tokens, health."""

from typing import Any

from palyra.core.journal import VerifyReport
from palyra.core.policy import PolicyDecision
from palyra.core.records import Role, SessionRecord
from palyra.net.client.replies import Json, NewToken, Pong, SessionList, Token, TokenList
from palyra.net.client.requests import Requests


class Admin(Requests):
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
        self, *, before: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Newest first."""
        params = {"before": before, "limit": limit}
        return (await self._ask("session.list", params, SessionList)).sessions

    async def archive_session(self, session_id: str) -> SessionRecord:
        return await self._mutate("session.archive", {"session_id": session_id}, SessionRecord)

    async def reset_session(self, session_id: str) -> SessionRecord:
        """From now on the session begins anew: history and grants before no longer count."""
        return await self._mutate("session.reset", {"session_id": session_id}, SessionRecord)

    # --- tools and policy ---

    async def list_tools(self) -> list[Json]:
        """Name, description, class, risk and parameters of every tool."""
        return (await self._ask("tool.list", {}, dict[str, list[Json]]))["tools"]

    async def explain_policy(self, tool: str, arguments: Json) -> PolicyDecision:
        """What would happen to such a call, and why."""
        params = {"tool": tool, "arguments": arguments}
        return await self._ask("policy.explain", params, PolicyDecision)

    # --- proofs ---

    async def verify_tape(self, run_id: str | None = None) -> VerifyReport:
        """The daemon's own check of chain and signed roots, of one run or everything."""
        return await self._ask("tape.verify", {"run_id": run_id}, VerifyReport)

    # --- tokens ---

    async def create_token(
        self, *, principal: str, role: Role, name: str, ttl_ms: int | None = None
    ) -> NewToken:
        """A new bearer token; the only time its secret is shown."""
        params = {"principal": principal, "role": role, "name": name, "ttl_ms": ttl_ms}
        return await self._mutate("token.create", params, NewToken)

    async def list_tokens(self) -> list[Token]:
        return (await self._ask("token.list", {}, TokenList)).tokens

    async def revoke_token(self, token_id: str) -> Token:
        """The token, no longer valid; its live connections are closed."""
        return await self._mutate("token.revoke", {"token_id": token_id}, Token)

    # --- health ---

    async def status(self) -> Json:
        """Health and versions."""
        return await self._ask("system.status", {}, dict[str, Any])

    async def tree(self) -> Json:
        """The supervision tree, with restarts and mailbox depths."""
        return await self._ask("system.tree", {}, dict[str, Any])

    async def describe(self) -> Json:
        """JSON Schemas of every method, notification and event kind."""
        return await self._ask("system.describe", {}, dict[str, Any])
