"""Wiring of run limits, incidents and channels."""

from collections.abc import Mapping

from palyra.actors.journal.actor import JournalHandle
from palyra.config.load import Config
from palyra.core.ports import LanguageModel, Notifier
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.environment import RunLimits
from palyra.errors import InvalidParams
from palyra.services.agents import Agents
from palyra.services.channels import Channels
from palyra.services.compaction import CompactionSettings
from palyra.services.incidents import Incidents
from palyra.wiring.host import Host


def run_limits(config: Config) -> RunLimits:
    """Return the configured limits of runs."""
    runs = config.runs
    return RunLimits(
        wall_ms=runs.wall_ms,
        wall_counts_approvals=runs.wall_counts_approvals,
        approval_ms=runs.approval_ms,
        max_turns=runs.max_turns,
    )


def compaction_settings(config: Config, models: Mapping[str, LanguageModel]) -> CompactionSettings:
    """Return when sessions are summarised.  Raises InvalidParams for an unknown model."""
    runs = config.runs
    if runs.compaction_model and runs.compaction_model not in models:
        raise InvalidParams(
            f"runs.compaction_model names {runs.compaction_model!r}, which no provider has",
            field="runs.compaction_model",
        )
    return CompactionSettings(
        history_tokens=runs.history_tokens,
        trigger_bps=runs.compact_at_percent * 100,
        model=runs.compaction_model,
    )


def build_incidents(
    journal: JournalHandle, hub: Notifier, redactor: Redactor, host: Host
) -> Incidents:
    """Build the incidents service."""
    return Incidents(journal, hub, redactor, now_ms=host.now_ms, new_id=host.new_id)


def build_channels(
    journal: JournalHandle, hub: Notifier, agents: Agents, redactor: Redactor, host: Host
) -> Channels:
    """Build the service of channels and pairings."""
    return Channels(
        journal,
        hub,
        agents,
        redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        new_code=host.new_code,
    )
