"""What every run and session of the daemon works with, wired once by `daemon.py`."""

from collections.abc import Mapping
from dataclasses import dataclass

from palyra.actors.agents import Agents
from palyra.actors.approvals import Approvals
from palyra.actors.budgets import Budgets
from palyra.actors.channels import Channels
from palyra.actors.directory import Directory
from palyra.actors.gate import Gate
from palyra.actors.grants import Grants
from palyra.actors.histories import Histories
from palyra.actors.hub import HubHandle
from palyra.actors.incidents import Incidents
from palyra.actors.journal import JournalHandle
from palyra.actors.router import Router
from palyra.core.ids import NewId
from palyra.core.ports import Artifacts, LanguageModel, NowMs, RunBlocking, Toolbox
from palyra.core.redact import REMEMBERED_BYTES, Redactor
from palyra.core.run_steps import Limits, Setting


@dataclass(frozen=True, slots=True)
class Office:
    """The services a run may call on; none of them belongs to a run."""

    journal: JournalHandle
    hub: HubHandle
    toolbox: Toolbox
    artifacts: Artifacts
    gate: Gate
    models: Mapping[str, LanguageModel]
    router: Router
    agents: Agents
    channels: Channels
    approvals: Approvals
    grants: Grants
    budgets: Budgets
    incidents: Incidents
    histories: Histories
    directory: Directory
    redactor: Redactor
    fence_key: bytes  # of the nonces round what tools returned
    setting: Setting  # a run adds its own `prepare` and `assemble`
    limits: Limits
    run_blocking: RunBlocking
    now_ms: NowMs
    new_id: NewId
    instance_id: str
    default_model: str
    queue_cap: int
    max_open: int
    debounce_ms: int = 500  # how long a collected run waits for a further message


async def look_for_secrets(office: Office, written: bytes) -> None:
    """Look through JSON that a step is about to write: in a thread, unless it is short.

    The redactor remembers what it found, so the step, which holds up everybody, asks it for nothing
    new.  Cancellation: not heard while it is in a thread.
    """
    if len(written) >= REMEMBERED_BYTES:
        await office.run_blocking(office.redactor.redact_bytes, written)
