"""`POST /v1/messages/count_tokens`: what a message would take of the model's window.

An estimate, made as a run makes it for its budgets (`core.context`): the agent's instructions and
tools count, for they are sent, too; what a session remembers does not.
"""

from functools import partial

from palyra.actors.blocking import run_sync
from palyra.core.access import Caller
from palyra.core.agents import DEFAULT_AGENT
from palyra.core.context import Prefix, brief_prefix
from palyra.core.pictures import PICTURE_TOKENS
from palyra.core.prompt import message_tokens
from palyra.core.tokens import estimate_tokens
from palyra.net.compat.asking import make_command
from palyra.net.compat.messages import read_messages
from palyra.net.compat.messages_schema import CountRequest, MessagesRequest, TokenCount
from palyra.net.compat.names import Target, find_target
from palyra.net.compat.sources import CompatSources

SCOPE = "runs:write"


async def count_tokens(sources: CompatSources, caller: Caller, request: CountRequest) -> TokenCount:
    """The tokens.  Raises ModelNotFound, InvalidParams, Unsupported, TooLarge; NotFound for the agent."""
    caller.require(SCOPE)
    target = await find_target(sources, caller, request.model)
    agents = sources.services.agents
    name = request.palyra.agent or target.agent or DEFAULT_AGENT.name
    prefix = agents.prefix(await agents.get(caller, name))
    return await run_sync(partial(_count, request, target, prefix))


def _count(request: CountRequest, target: Target, prefix: Prefix) -> TokenCount:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    ask = read_messages(MessagesRequest(**fields, max_tokens=1), target, {})
    told = ask.told
    words = sum(map(message_tokens, (*told.before, *told.results))) + estimate_tokens(told.text)
    pictures = PICTURE_TOKENS * len(told.pictures)
    whole = brief_prefix(prefix, make_command(ask).brief)
    return TokenCount(input_tokens=whole.tokens + words + pictures)
