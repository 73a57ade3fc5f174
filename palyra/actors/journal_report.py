"""What the journal says of itself, in the log and in the book of incidents."""

import structlog

from palyra.actors.incidents import Incidents
from palyra.core.alarms import JOURNAL, chain_broken, journal_refuses
from palyra.core.journal import OpenReport
from palyra.errors import Unavailable

log = structlog.get_logger()


def report_opened(incidents: Incidents, report: OpenReport) -> None:
    """Say what opening the journal found; a break in the chain must not pass unnoticed."""
    found = report.verification
    log.info(
        "journal opened",
        schema=report.schema_version,
        migrated_from=report.migrated_from,
        events=report.head_position,
        was_clean=report.was_clean,
    )
    for note in report.notes:
        log.warning("journal.opened", note=note)
    incidents.begin(report.incidents)
    if found.first_break is not None:
        incidents.report(chain_broken(found.first_break, found))


def report_writing(incidents: Incidents, refusal: Unavailable | None) -> None:
    """The journal refused a batch, or takes everything again."""
    if refusal is None:
        incidents.clear(JOURNAL, "the journal takes writes again")
    else:
        incidents.report(journal_refuses(refusal.message))
