"""approval.*: approval requests, their decisions, and the grants that outlive one call."""

from typing import Annotated, Any, Literal

import msgspec

from palyra.core.approval import ResolveApproval
from palyra.core.journal.records import ApprovalRecord, ApprovalScope, GrantRecord
from palyra.core.policy.questions import ANSWER_BYTES
from palyra.core.policy.views import Resolved
from palyra.core.preview.blocks import Preview, ReachList
from palyra.core.preview.call import DEFAULT_LINES, MAX_LINES
from palyra.errors import InvalidParams
from palyra.net.api.method import Duration, Id, Limit, Method, MethodCall, Mutation
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import ApprovalList, GrantList


class ApprovalListParams(Params, frozen=True, kw_only=True):
    """Filter of approvals; pending ones come first."""

    run_id: Id | None = None
    pending_only: bool = False
    limit: Limit = 100


class ApprovalGet(Params, frozen=True, kw_only=True):
    """One approval."""

    approval_id: Id


class ApprovalPreview(Params, frozen=True, kw_only=True):
    """One approval, shown with at most `max_lines` lines of its files and arguments."""

    approval_id: Id
    max_lines: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINES)] = DEFAULT_LINES


class ApprovalReach(Params, frozen=True, kw_only=True):
    """One approval, whose scopes are compared with recent calls."""

    approval_id: Id


class ApprovalResolve(Mutation, frozen=True, kw_only=True):
    """A decision; `digest` must be that of the call that was shown."""

    approval_id: Id
    decision: Literal["allow", "deny"]
    digest: Annotated[str, msgspec.Meta(max_length=128)]
    scope: ApprovalScope = "once"
    ttl_ms: Duration | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    answer: Any = None  # to a question of the model: a text, or the object of its form


class GrantListParams(Params, frozen=True, kw_only=True):
    """Filter of grants; newest first."""

    live_only: bool = True
    limit: Limit = 100


class GrantRevoke(Mutation, frozen=True, kw_only=True):
    """The grant to end."""

    grant_id: Id


async def list_(call: MethodCall, params: ApprovalListParams) -> ApprovalList:
    approvals = await call.backend.approvals.list_seen(
        call.caller,
        run_id=params.run_id,
        pending_only=params.pending_only,
        limit=params.limit,
    )
    return ApprovalList(approvals=approvals)


async def get(call: MethodCall, params: ApprovalGet) -> ApprovalRecord:
    return await call.backend.approvals.get(call.caller, params.approval_id)


async def preview(call: MethodCall, params: ApprovalPreview) -> Preview:
    return await call.backend.previews.preview(call.caller, params.approval_id, params.max_lines)


async def reach(call: MethodCall, params: ApprovalReach) -> ReachList:
    return await call.backend.previews.reach(call.caller, params.approval_id)


async def resolve(call: MethodCall, params: ApprovalResolve) -> Resolved:
    command = ResolveApproval(
        approval_id=params.approval_id,
        decision=params.decision,
        digest=params.digest,
        scope=params.scope,
        ttl_ms=params.ttl_ms,
        reason=params.reason if params.answer is None else _words_of(params),
        has_answer=params.answer is not None,
    )
    return await call.once(
        Resolved,
        lambda: call.backend.approvals.resolve(call.caller, command, call.key),
        is_kept_by_effect=True,
    )


def _words_of(params: ApprovalResolve) -> str:
    """Return the answer as the approval keeps it: a text, or JSON."""
    if params.reason or params.decision == "deny":
        raise InvalidParams("an answer goes with `allow` and without a reason", field="answer")
    answer = params.answer
    words = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    size_bytes = len(words.encode())
    if size_bytes > ANSWER_BYTES:
        raise InvalidParams(f"answer: {size_bytes} bytes, at most {ANSWER_BYTES}", field="answer")
    return words


async def grants(call: MethodCall, params: GrantListParams) -> GrantList:
    found = await call.backend.grants.list_seen(
        call.caller, live_only=params.live_only, limit=params.limit
    )
    return GrantList(grants=found)


async def revoke(call: MethodCall, params: GrantRevoke) -> GrantRecord:
    return await call.once(
        GrantRecord, lambda: call.backend.grants.revoke(call.caller, params.grant_id)
    )


METHODS = (
    Method(
        "approval.list", ApprovalListParams, ApprovalList, "approvals:read", list_, is_bulk=True
    ),
    Method("approval.get", ApprovalGet, ApprovalRecord, "approvals:read", get),
    Method("approval.preview", ApprovalPreview, Preview, "approvals:read", preview, is_bulk=True),
    Method("approval.reach", ApprovalReach, ReachList, "approvals:read", reach, is_bulk=True),
    Method("approval.resolve", ApprovalResolve, Resolved, "approvals:write", resolve),
    Method("approval.grants", GrantListParams, GrantList, "approvals:read", grants, is_bulk=True),
    Method("approval.revoke", GrantRevoke, GrantRecord, "approvals:write", revoke),
)
