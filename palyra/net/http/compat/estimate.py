"""Estimated tokens of a request, for the paths that count them; no run."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from palyra.actors.kernel.threads import run_sync
from palyra.core.access import Caller
from palyra.core.agent import DEFAULT_AGENT
from palyra.core.context.assembly import brief_prefix
from palyra.core.model.images import PICTURE_TOKENS
from palyra.core.model.messages import message_tokens
from palyra.core.text.tokens import estimate_tokens
from palyra.net.http.compat.model_names import ModelTarget, find_target
from palyra.net.http.compat.run_request import Extension, RunRequest, make_command
from palyra.net.http.compat.sources import CompatSources

SCOPE = "runs:write"


class Counted(Protocol):
    """A request whose tokens are counted."""

    @property
    def model(self) -> str: ...
    @property
    def palyra(self) -> Extension: ...


R = TypeVar("R", bound=Counted)


async def estimate_input(
    sources: CompatSources, caller: Caller, request: R, read: Callable[[R, ModelTarget], RunRequest]
) -> int:
    """Estimate the input tokens of the run that `read` makes of the request.

    The agent's instructions and tools count, because they are sent, too; messages kept by a session do
    not.  Raises ModelNotFound, InvalidParams, Unsupported, TooLarge, and NotFound for the agent.
    """
    caller.require(SCOPE)
    target = await find_target(sources, caller, request.model)
    agents = sources.backend.agents
    name = request.palyra.agent or target.agent or DEFAULT_AGENT.name
    prefix = agents.prefix(await agents.get(caller, name), caller.principal)

    def count() -> int:
        ask = read(request, target)
        chat = ask.chat
        texts = sum(map(message_tokens, (*chat.before, *chat.results))) + estimate_tokens(chat.text)
        whole = brief_prefix(prefix, make_command(ask).brief)
        return whole.tokens + texts + PICTURE_TOKENS * len(chat.pictures)

    return await run_sync(count)
