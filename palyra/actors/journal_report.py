"""What opening the journal found, in the log."""

import structlog

from palyra.core.journal import OpenReport

log = structlog.get_logger()


def report_opened(report: OpenReport) -> None:
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
    if found.first_break is not None:
        log.critical(
            "the journal's chain is broken: run `palyra tape verify`",
            breaks=found.breaks,
            first=found.first_break.detail,
        )
