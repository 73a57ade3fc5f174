"""tool.list and policy.explain: what a model could call, and what would come of it."""

from typing import Annotated, Any

import msgspec

from palyra.core.policy import PolicyDecision
from palyra.core.tools import ToolSpec
from palyra.net.methods.method import Call, Method, Result, at_once
from palyra.net.params import NoParams, Params


class Tools(Result, frozen=True, kw_only=True):
    """The catalogue; `hash` is the one a turn records."""

    tools: list[ToolSpec]
    hash: str


class PolicyExplain(Params, frozen=True, kw_only=True):
    """A call that is not made."""

    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    arguments: dict[str, Any]


def list_(call: Call, _params: NoParams) -> Tools:
    catalogue = call.services.gateway.catalogue()
    tools = [catalogue.tools[name] for name in sorted(catalogue.tools)]
    return Tools(tools=tools, hash=catalogue.hash)


async def explain(call: Call, params: PolicyExplain) -> PolicyDecision:
    return await call.services.gateway.explain_policy(call.caller, params.tool, params.arguments)


METHODS = (
    Method("tool.list", NoParams, Tools, "tools:read", at_once(list_)),
    Method("policy.explain", PolicyExplain, PolicyDecision, "tools:read", explain),
)
