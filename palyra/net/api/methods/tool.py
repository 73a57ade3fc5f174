"""tool.list and policy.explain: the tools of an agent, and the verdict on a hypothetical call."""

from typing import Annotated, Any

import msgspec

from palyra.core.policy.request import Explanation
from palyra.core.session.commands import AgentName
from palyra.core.tool.spec import compute_risk
from palyra.net.api.method import Id, Method, MethodCall, WorkspaceName
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import ToolList


class ToolListParams(Params, frozen=True, kw_only=True):
    """Tools of that agent; the default agent may call all."""

    agent: AgentName | None = None


class PolicyExplain(Params, frozen=True, kw_only=True):
    """A hypothetical call, which is not executed."""

    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    arguments: dict[str, Any]
    agent: AgentName | None = None
    session_id: Id | None = None  # whose grants apply too
    workspace: WorkspaceName | None = None  # without a session; the default one


async def list_(call: MethodCall, params: ToolListParams) -> ToolList:
    agents = call.backend.agents
    catalogue = agents.prefix(
        await agents.get_present(params.agent), call.caller.principal
    ).catalogue
    tools = [
        msgspec.structs.replace(spec, risk=compute_risk(spec, is_tainted=False))
        for _, spec in sorted(catalogue.tools.items())
    ]
    return ToolList(tools=tools, hash=catalogue.hash)


async def explain(call: MethodCall, params: PolicyExplain) -> Explanation:
    return await call.backend.gateway.explain_policy(
        call.caller,
        params.tool,
        params.arguments,
        params.agent,
        session_id=params.session_id,
        workspace=params.workspace,
    )


METHODS = (
    Method("tool.list", ToolListParams, ToolList, "tools:read", list_),
    Method("policy.explain", PolicyExplain, Explanation, "tools:read", explain),
)
