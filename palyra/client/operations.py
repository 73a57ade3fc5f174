"""Typed methods about the daemon itself: tools, policy, tokens, log, health, suspension and end."""

from typing import Any

from palyra.client.requests import Json, RequestMethods
from palyra.core.journal.records import ConsoleRole, Role
from palyra.core.log_lines import LogLevel
from palyra.core.policy.request import Explanation
from palyra.core.policy.views import AppliedSuggestion, RuleFor, SuggestionList
from palyra.net.protocol.results import (
    ConsoleLink,
    DrainBegun,
    LogPage,
    Pong,
    Status,
    SuspensionState,
    Token,
    TokenList,
    ToolList,
)


class OperationMethods(RequestMethods):
    """Tools and policy, tokens, and the state of the daemon."""

    # --- tools and policy

    async def list_tools(self, agent: str | None = None) -> ToolList:
        """List the tools that the agent may call now, with the hash of the list."""
        return await self._ask("tool.list", {"agent": agent}, ToolList)

    async def explain_policy(
        self,
        tool: str,
        arguments: Json,
        *,
        agent: str | None = None,
        session_id: str | None = None,
        workspace: str | None = None,
    ) -> Explanation:
        """Return the verdict on a hypothetical call of that agent in that session, with the reason."""
        params = {
            "tool": tool,
            "arguments": arguments,
            "agent": agent,
            "session_id": session_id,
            "workspace": workspace,
        }
        return await self._ask("policy.explain", params, Explanation)

    async def suggest_policies(
        self, *, min_answers: int | None = None, folders: bool = False
    ) -> SuggestionList:
        """List the rules that recorded answers speak for, with the proof.  Operators only."""
        return await self._ask(
            "policy.suggest", {"min_answers": min_answers, "folders": folders}, SuggestionList
        )

    async def apply_suggestion(
        self, suggestion_id: str, *, min_answers: int | None = None, folders: bool = False
    ) -> AppliedSuggestion:
        """Put a suggested rule among the user policies, in a file of its own."""
        params = {
            "suggestion_id": suggestion_id,
            "min_answers": min_answers,
            "folders": folders,
        }
        return await self._mutate("policy.apply_suggestion", params, AppliedSuggestion)

    async def find_rule_for(self, approval_id: str) -> RuleFor:
        """Return the narrowest rule for the call of an approval, or why there is none; changes nothing."""
        return await self._ask("policy.rule_for", {"approval_id": approval_id}, RuleFor)

    async def allow_from(self, approval_id: str) -> RuleFor:
        """Write the narrowest rule for the call of an approval; `undo_suggestion` removes it."""
        return await self._mutate("policy.allow_from", {"approval_id": approval_id}, RuleFor)

    async def undo_suggestion(self, suggestion_id: str | None = None) -> AppliedSuggestion:
        """Remove the file of an applied suggestion, by default of the newest."""
        params = {"suggestion_id": suggestion_id}
        return await self._mutate("policy.undo", params, AppliedSuggestion)

    # --- tokens

    async def create_token(
        self, *, principal: str, role: Role, name: str, ttl_ms: int | None = None
    ) -> Token:
        """Create a bearer token.

        The secret, `token`, is sent once: it is None if that reply was lost with a connection.
        Then revoke the token and create another.
        """
        params = {"principal": principal, "role": role, "name": name, "ttl_ms": ttl_ms}
        return await self._mutate("token.create", params, Token)

    async def list_tokens(self) -> list[Token]:
        """List the tokens, without their secrets."""
        return (await self._ask("token.list", {}, TokenList)).tokens

    async def revoke_token(self, token_id: str) -> Token:
        """Revoke a token and close its connections."""
        return await self._mutate("token.revoke", {"token_id": token_id}, Token)

    async def make_console_link(
        self,
        *,
        role: ConsoleRole = "operator",
        principal: str | None = None,
        ttl_ms: int | None = None,
    ) -> ConsoleLink:
        """Make a link that logs a browser in to the web console, once, within two minutes.

        The login ends `ttl_ms` after its last use, by default 12 hours.  Operators only.
        """
        params: Json = {"role": role}
        params |= {} if principal is None else {"principal": principal}
        params |= {} if ttl_ms is None else {"ttl_ms": ttl_ms}
        return await self._ask("console.link", params, ConsoleLink)

    # --- log, suspension, end

    async def tail_log(
        self,
        after: int | None = None,
        *,
        level: LogLevel | None = None,
        limit: int | None = None,
        wait_ms: int | None = None,
    ) -> LogPage:
        """Return the newest lines of the daemon's log, or those after a number.

        An empty page after a number waits `wait_ms` for the next line; continue with `next_after`.
        """
        params = {"after": after, "level": level, "limit": limit, "wait_ms": wait_ms}
        return await self._ask("log.tail", params, LogPage)

    async def suspend(self, reason: str = "") -> SuspensionState:
        """Refuse new runs and start no task until `resume`, also after a restart; return the state."""
        return await self._mutate("system.suspend", {"reason": reason}, SuspensionState)

    async def resume(self) -> SuspensionState:
        """End the suspension."""
        return await self._mutate("system.resume", {}, SuspensionState)

    async def drain(self) -> DrainBegun:
        """Have the daemon refuse new runs, finish those that make progress, and exit."""
        return await self._ask("system.drain", {}, DrainBegun)

    # --- health

    async def ping(self) -> Pong:
        """Return the daemon's time."""
        return await self._ask("ping", {}, Pong)

    async def status(self) -> Status:
        """Return the state of the daemon."""
        return await self._ask("system.status", {}, Status)

    async def tree(self) -> Json:
        """Read the supervision tree, with restarts and mailbox depths."""
        return await self._ask("system.tree", {}, dict[str, Any])

    async def describe(self) -> Json:
        """Read the JSON Schemas of every method, notification and event kind."""
        return await self._ask("system.describe", {}, dict[str, Any])
