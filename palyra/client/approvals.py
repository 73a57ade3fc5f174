"""Typed methods about approvals and the grants they leave."""

from typing import Any, Literal, TypedDict, Unpack

from palyra.client.requests import RequestMethods
from palyra.core.journal.records import ApprovalRecord, ApprovalScope, GrantRecord
from palyra.core.policy.views import Resolved
from palyra.core.preview.blocks import Preview, ReachList
from palyra.core.push import PushDevice, PushKey
from palyra.net.protocol.results import ApprovalList, GrantList


class AnswerOptions(TypedDict, total=False):
    """Params of `approval.resolve` besides the decision."""

    scope: ApprovalScope
    ttl_ms: int | None
    reason: str
    answer: Any  # to a question of the model: a text, or the object of its form
    idempotency_key: str


class ApprovalMethods(RequestMethods):
    """List and resolve approvals, list and revoke grants."""

    async def list_approvals(
        self,
        *,
        run_id: str | None = None,
        pending_only: bool | None = None,
        limit: int | None = None,
    ) -> list[ApprovalRecord]:
        """List approvals, pending ones first."""
        params = {"run_id": run_id, "pending_only": pending_only, "limit": limit}
        return (await self._ask("approval.list", params, ApprovalList)).approvals

    async def get_approval(self, approval_id: str) -> ApprovalRecord:
        """Return an approval with the call it is about.  Raises NotFound."""
        return await self._ask("approval.get", {"approval_id": approval_id}, ApprovalRecord)

    async def preview_approval(self, approval_id: str, *, max_lines: int | None = None) -> Preview:
        """Return the call as a person reads it: files, words, texts, with at most that many lines."""
        params = {"approval_id": approval_id, "max_lines": max_lines}
        return await self._ask("approval.preview", params, Preview)

    async def get_reach(self, approval_id: str) -> ReachList:
        """Return how many recent calls each offered scope would have decided."""
        return await self._ask("approval.reach", {"approval_id": approval_id}, ReachList)

    async def resolve_approval(
        self,
        approval_id: str,
        decision: Literal["allow", "deny"],
        digest: str,
        **options: Unpack[AnswerOptions],
    ) -> Resolved:
        """Resolve an approval and return the recorded outcome; `won` is false if it was resolved.

        `digest` is that of the call that was shown; another one raises DigestMismatch.
        """
        params = {"approval_id": approval_id, "decision": decision, "digest": digest, **options}
        return await self._mutate("approval.resolve", params, Resolved)

    async def list_grants(
        self, *, live_only: bool | None = None, limit: int | None = None
    ) -> list[GrantRecord]:
        """List grants (decisions that apply to more than one call), newest first."""
        params = {"live_only": live_only, "limit": limit}
        return (await self._ask("approval.grants", params, GrantList)).grants

    async def revoke_grant(self, grant_id: str) -> GrantRecord:
        """End a grant; one that has ended already keeps its end."""
        return await self._mutate("approval.revoke", {"grant_id": grant_id}, GrantRecord)

    # --- a browser that rings when a question waits

    async def get_push_key(self) -> PushKey:
        """Return the key that a browser subscribes with, and where this login rings already."""
        return await self._ask("push.key", {}, PushKey)

    async def subscribe_push(self, endpoint: str) -> PushDevice:
        """Ring a browser at the address that its push service gave it, until this login ends."""
        return await self._ask("push.subscribe", {"endpoint": endpoint}, PushDevice)

    async def unsubscribe_push(self) -> PushDevice:
        """Ring no browser for this login."""
        return await self._ask("push.unsubscribe", {}, PushDevice)
