"""Services that runs and sessions share, wired once by `daemon.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.run.open_approvals import OpenApprovals
from palyra.core.ids import NewId
from palyra.core.ports import Artifacts, LanguageModel, Notifier, NowMs, RunBlocking, ToolRunner
from palyra.core.redaction.redactor import REMEMBERED_BYTES, Redactor
from palyra.core.run.environment import RunLimits
from palyra.services.agents import Agents
from palyra.services.budgets import Budgets
from palyra.services.channels import Channels
from palyra.services.gate import Gate
from palyra.services.grants import Grants
from palyra.services.history import ConversationHistory
from palyra.services.incidents import Incidents
from palyra.services.model_router import ModelRouter
from palyra.services.references import ContextSources
from palyra.services.token_factors import TokenFactors


@dataclass(frozen=True, slots=True)
class RunServices:
    """Services of a run.  None of them belongs to one run."""

    journal: JournalHandle
    hub: Notifier
    toolbox: ToolRunner  # inspects and executes calls
    artifacts: Artifacts  # stores whole outputs and pictures
    gate: Gate  # validates calls and asks the policy
    models: Mapping[str, LanguageModel]  # by name
    router: ModelRouter  # plans and changes the model of a run
    agents: Agents  # their versions, and the stable part of requests
    channels: Channels  # which agent and session a message of a channel belongs to
    approvals: OpenApprovals  # questions that wait for an answer
    grants: Grants  # answers that cover later calls
    budgets: Budgets  # reservations and refusals
    incidents: Incidents  # where findings are reported
    histories: ConversationHistory  # earlier runs of a session
    sources: ContextSources  # texts for prompts from outside the run
    factors: TokenFactors  # corrections of the token estimate
    redactor: Redactor
    fence_key: bytes  # for the nonces of fences round tool output
    limits: RunLimits
    run_blocking: RunBlocking
    now_ms: NowMs
    new_id: NewId
    sign: Callable[[bytes], bytes]  # digests of attestations, with the daemon's key
    jitter_ms: Callable[[int], int]  # backoff of a model call, by its failed attempts
    instance_id: str
    default_model: str

    def redact(self, data: bytes) -> tuple[bytes, bool]:
        """Redact a JSON document; True if it held a secret."""
        return self.redactor.redact_bytes(data)


async def look_for_secrets(services: RunServices, written: bytes) -> None:
    """Search JSON for secrets before a step writes it; in a thread unless it is short.

    The redactor caches the result, so the step itself, which blocks the event loop, finds it there.
    Cancellation: waits for the thread.
    """
    if len(written) >= REMEMBERED_BYTES:
        await services.run_blocking(services.redactor.redact_bytes, written)
