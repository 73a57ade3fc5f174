"""What every run and session of the daemon works with, wired once by `daemon.py`."""

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


@dataclass(frozen=True, slots=True)
class RunServices:
    """The services a run may call on; none of them belongs to a run."""

    journal: JournalHandle
    hub: Notifier
    toolbox: ToolRunner
    artifacts: Artifacts
    gate: Gate
    models: Mapping[str, LanguageModel]
    router: ModelRouter
    agents: Agents
    channels: Channels
    approvals: OpenApprovals
    grants: Grants
    budgets: Budgets
    incidents: Incidents
    histories: ConversationHistory
    redactor: Redactor
    fence_key: bytes  # of the nonces round what tools returned
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
    """Look through JSON that a step is about to write: in a thread, unless it is short.

    The redactor remembers what it found, so the step, which holds up everybody, asks it for nothing
    new.  Cancellation: not heard while it is in a thread.
    """
    if len(written) >= REMEMBERED_BYTES:
        await services.run_blocking(services.redactor.redact_bytes, written)
