"""`palyra retention`: apply the bounds of [retention], and shorten the database file."""

import click

from palyra.cli.command.errors import stop_for
from palyra.cli.command.options import confirm_loss, load_config, shared_options
from palyra.cli.command.output import print_json, say
from palyra.cli.command.talk import Options, is_daemon_needed, talk
from palyra.core.journal.retention import CompactionReport, RetentionReport
from palyra.core.text.visible import pluralize
from palyra.errors import PalyraError


@click.group()
def retention() -> None:
    """Preview and apply the bounds of [retention]; compact the journal."""


@retention.command()
@shared_options
def preview(options: Options) -> None:
    """Show what is over the bounds; nothing is changed."""
    report = talk(options, lambda client: client.preview_retention())
    if options.as_json:
        print_json(report)
    else:
        _print_report(report, "would lose their content")


@retention.command()
@click.option("--max-runs", type=click.IntRange(1), help="Most tapes to prune.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def apply(options: Options, *, max_runs: int | None, yes: bool) -> None:
    """Remove what is over the bounds, but nothing that is in use."""
    confirm_loss("Remove what is over the bounds for good?", is_confirmed=yes)
    report = talk(options, lambda client: client.apply_retention(max_runs=max_runs))
    if options.as_json:
        print_json(report)
        return
    _print_report(report, "lost their content")
    if not report.is_complete:
        say("there is more: apply it again")


def _print_report(report: RetentionReport, what: str) -> None:
    if not report.is_set:
        say("[retention] has no bound for tapes, incidents and tasks: they are kept")
    say(f"{pluralize(report.runs, 'run')} {what}: {report.tape_bytes} bytes")
    if report.kept_runs:
        say(f"{pluralize(report.kept_runs, 'older run')} in use: kept", dim=True)
    say(
        f"{pluralize(report.artifacts, 'artifact')}: {report.artifact_bytes} bytes; "
        f"{pluralize(report.file_checkpoints, 'file checkpoint')}: "
        f"{report.file_checkpoint_bytes} bytes; {pluralize(report.incidents, 'incident')}; "
        f"{pluralize(report.tasks, 'ended task')}"
    )
    say(f"{pluralize(report.receipts, 'receipt')} of requests, each kept for a day", dim=True)
    say(f"database: {report.database_bytes} bytes, {report.free_bytes} of them free", dim=True)


@retention.command()
@shared_options
def compact(options: Options) -> None:
    """Return free pages of the database file to the file system.

    A daemon does it in small steps while it serves.  Without a daemon the file is rewritten.
    """
    if is_daemon_needed(options):
        report = talk(options, lambda client: client.compact_journal())
    else:
        report = _rewrite(options)
    if options.as_json:
        print_json(report)
    else:
        say(f"database: {report.before_bytes} bytes before, {report.after_bytes} after")
        if report.remedy:
            say(report.remedy)


def _rewrite(options: Options) -> CompactionReport:
    from palyra.store.backup.journal_compaction import rewrite_database  # noqa: PLC0415 - instant help

    try:
        return rewrite_database(load_config(options.home, None).paths.data_dir)
    except PalyraError as error:
        raise stop_for(error) from None
