"""The promise: what a message becomes on the first line of its run's tape."""

from palyra.core.access import Caller
from palyra.core.agents import DEFAULT_AGENT
from palyra.core.commands import StartRun
from palyra.core.events import RunAccepted
from palyra.core.records import SessionRecord


def make_promise(
    command: StartRun, caller: Caller, session: SessionRecord, default_model: str
) -> RunAccepted:
    """What the daemon accepts, from the command, who gave it and where it goes."""
    return RunAccepted(
        principal=caller.principal,
        role=caller.role,
        session_id=session.session_id,
        agent=command.agent or DEFAULT_AGENT.name,
        agent_version=command.agent_version,
        model=command.model or default_model,
        model_choice=command.model_choice or "default",
        origin=command.origin,
        queue_mode=command.queue_mode or session.queue_mode,
        approval_mode=command.approval_mode,
        json_mode=command.json_mode,
        budget=command.budget,
        parent_run_id=command.branch.run_id or None if command.branch is not None else None,
        epoch=session.epoch,
        channel=command.channel,
        conversation_id=command.conversation_id,
        sender=command.sender,
        brief=command.brief,
    )
