"""context.explain and reference.preview: the prompt of a turn, and the cost of a message."""

from typing import Annotated

import msgspec

from palyra.core.context.views import ContextExplained, ReferencePreview
from palyra.core.session.commands import AgentName
from palyra.net.api.method import Id, Method, MethodCall, Ordinal, WorkspaceName
from palyra.net.protocol.params import Params


class ContextExplain(Params, frozen=True, kw_only=True):
    """The prompt of one turn; without a number, of the last one."""

    run_id: Id
    turn: Ordinal | None = None


class PreviewParams(Params, frozen=True, kw_only=True):
    """A message that is not sent, with the agent and the session that it would go to."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    agent: AgentName | None = None
    session_id: Id | None = None
    workspace: WorkspaceName | None = None  # of a new session; the default one


async def explain(call: MethodCall, params: ContextExplain) -> ContextExplained:
    gateway = call.backend.gateway
    return await gateway.explain_context(call.caller, params.run_id, params.turn)


async def preview(call: MethodCall, params: PreviewParams) -> ReferencePreview:
    return await call.backend.gateway.preview_references(
        call.caller, params.text, params.agent, params.session_id, params.workspace
    )


METHODS = (
    Method("context.explain", ContextExplain, ContextExplained, "runs:read", explain),
    Method(
        "reference.preview", PreviewParams, ReferencePreview, "runs:write", preview, is_read=True
    ),
)
