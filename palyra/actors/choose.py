"""Choosing at the door: the agent a message is for, in its present version, and the run's own model."""

import msgspec

from palyra.actors.office import Office
from palyra.actors.router import needs_of
from palyra.core.commands import StartRun
from palyra.core.pictures import is_picture
from palyra.core.records import AgentRecord
from palyra.core.route_plan import ModelChoice
from palyra.errors import InvalidParams


async def choose(office: Office, command: StartRun) -> StartRun:
    """The command with the agent as it is now, and the model the run is to have.

    Raises InvalidParams for a model that is not there, and for one that is known to lack what the
    run needs when nothing else may stand in for it: one that the client named, and for pictures
    any, unless routes are enforced.
    """
    agent = await office.agents.get_present(command.agent)
    model = command.model or agent.model or office.default_model
    if model not in office.models:
        whose = f" (of the agent {agent.name!r})" if command.model is None else ""
        known = ", ".join(sorted(office.models))
        raise InvalidParams(f"no model {model!r}{whose}; known: {known}", field="model")
    choice = command.model_choice or _choice(command, agent)
    has_pictures = any(map(is_picture, command.attachments))
    if choice == "pinned":
        _check(office, model, command, agent)
    elif has_pictures and office.router.table.mode != "enforced":
        office.router.check(model, ("vision",))
    return msgspec.structs.replace(
        command,
        agent=agent.name,
        agent_version=agent.version,
        model=model,
        model_choice=choice,
    )


def _choice(command: StartRun, agent: AgentRecord) -> ModelChoice:
    """How the run comes by its model."""
    if command.model is not None:
        return "pinned"
    return "default" if agent.model is None else "preferred"


def _check(office: Office, model: str, command: StartRun, agent: AgentRecord) -> None:
    brief = command.brief
    has_tools = bool(brief is not None and brief.tools) or bool(office.agents.prefix(agent).tools)
    needs = needs_of(
        has_pictures=any(map(is_picture, command.attachments)),
        json_mode=command.json_mode,
        has_tools=has_tools,
    )
    office.router.check(model, needs)
