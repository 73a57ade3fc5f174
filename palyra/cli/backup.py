"""`palyra backup`: make, check and restore backups of the daemon's directory.

`create` asks the running daemon; without one it locks the directory and copies it itself.  `verify`
and `restore` need no daemon: they are for the day when there is none.
"""

import getpass
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from palyra import __version__
from palyra.cli.command.errors import FAILED, CommandFailed, stop_for
from palyra.cli.command.options import GivenPath, load_config, shared_options
from palyra.cli.command.output import print_json, say
from palyra.cli.command.talk import Options, is_daemon_needed, talk
from palyra.cli.tape import parse_key
from palyra.core.journal.backup import BackupMade, BackupOrder, BackupReport, BackupRestored
from palyra.core.text.visible import pluralize
from palyra.errors import PalyraError
from palyra.net.protocol.discovery import find_home

KEYS_ORIGIN = {
    "backup": "its keys are those of the backup",
    "given": "its keys are the given ones",
    "new": "its key is new; what was signed before is checked with the old public key",
}


@click.group()
def backup() -> None:
    """Make, check and restore backups of the daemon's directory."""


@backup.command()
@click.argument("path", type=GivenPath(), required=False)
@click.option("--with-keys", is_flag=True, help="Include keys, the token and the vault.")
@shared_options
def create(options: Options, path: Path | None, *, with_keys: bool) -> None:
    """Make a backup as the new folder PATH, by default in backups/ of the data directory.

    The daemon serves meanwhile.  Without a daemon the directory is copied as it is.
    """
    target = None if path is None else str(path.absolute())
    if is_daemon_needed(options):
        made = talk(options, lambda client: client.create_backup(target, with_keys=with_keys))
    else:
        made = _create_stopped(options, target, with_keys=with_keys)
    if options.as_json:
        print_json(made)
        return
    say(
        f"{made.path}: {pluralize(made.files, 'file')}, {made.size_bytes} bytes, "
        f"{pluralize(made.head_position, 'event')}"
    )
    if made.has_keys:
        say("it has the keys and secrets of the daemon: keep it as safe as these")
    else:
        say(f"it has no keys; its signature is by key {made.key_id}", dim=True)


def _create_stopped(options: Options, target: str | None, *, with_keys: bool) -> BackupMade:
    """Copy the directory of a stopped daemon.  Raises CommandFailed."""
    from uuid_utils import uuid7  # noqa: PLC0415 - help must be instant

    from palyra.store.backup.home import stopped_home  # noqa: PLC0415 - help must be instant

    config = load_config(options.home, None)
    order = BackupOrder(
        backup_id=f"bak_{uuid7()}",
        by=_find_user(),
        created_ms=time.time_ns() // 1_000_000,
        with_keys=with_keys,
    )
    paths = config.paths
    try:
        with stopped_home(
            paths.data_dir,
            paths.config_file,
            config.policy_dir,
            config.workspaces.values(),
            __version__,
        ) as backups:
            return backups.create(target, order)
    except PalyraError as error:
        raise stop_for(error) from None


@backup.command()
@click.argument("path", type=GivenPath())
@click.option("--key", help="Public key (hex or file) that it must be signed with.")
@shared_options
def verify(options: Options, path: Path, key: str | None) -> None:
    """Check every byte of a backup, and the journal in it.  Needs no daemon.

    The key is --key, else that of the home directory; without either its own.
    """
    from palyra.store.backup.verify import verify_backup  # noqa: PLC0415 - help must be instant

    try:
        report = verify_backup(path.absolute(), trusted=_find_trusted(options, key))
    except PalyraError as error:
        raise stop_for(error) from None
    if options.as_json:
        print_json(report)
    else:
        _print_report(report)
    if not report.is_intact:
        raise SystemExit(FAILED)


def _find_trusted(options: Options, key: str | None) -> tuple[bytes, ...]:
    from palyra.store.backup.home import read_trusted  # noqa: PLC0415 - help must be instant

    return read_trusted(find_home(options.home)) if key is None else (_read_key(key),)


def _read_key(key: str) -> bytes:
    path = Path(key)
    try:
        return parse_key(path.read_text(encoding="ascii") if path.is_file() else key)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{key}: cannot be read: {error}") from None


def _print_report(report: BackupReport) -> None:
    if report.backup_id:
        made = datetime.fromtimestamp(report.created_ms / 1000, UTC)
        say(f"{report.backup_id}, made {made:%Y-%m-%d %H:%M:%S} UTC by version {report.version}")
    if report.is_intact:
        say(
            f"intact: {pluralize(report.files, 'file')}, {report.size_bytes} bytes, "
            f"{pluralize(report.checked_events, 'event')}"
            + (f", {report.purged_events} purged" if report.purged_events else ""),
            fg="green",
        )
    else:
        say(f"damaged: {pluralize(report.problem_count, 'problem')}", fg="red")
        for problem in report.problems:
            say(f"  {problem}")
    if report.recorded_breaks:
        say(f"the journal has {report.recorded_breaks} break(s) that it had recorded itself")
    if report.backup_id and report.is_known_key is None:
        say(
            f"signed with key {report.key_id}, which nothing here knows: "
            "give the daemon's public key with --key",
        )


@backup.command()
@click.argument("path", type=GivenPath())
@click.argument("target", type=GivenPath())
@click.option(
    "--keys", "keys_from", type=GivenPath(), help="keys/ folder of the home that it replaces."
)
@click.option("--key", help="Public key (hex or file) that it must be signed with.")
@click.option("--trust", default="", help="Id of another key that it may be signed with.")
@click.option("--reason", default="", help="Why; it is recorded.")
@shared_options
def restore(  # noqa: PLR0913 - one an option
    options: Options,
    path: Path,
    target: Path,
    *,
    keys_from: Path | None,
    key: str | None,
    trust: str,
    reason: str,
) -> None:
    """Restore the backup PATH as the new home TARGET, which is empty or does not exist.

    It trusts the keys that `verify` trusts: --key, else those of the home directory and of --keys;
    without any its own.  The home has everything that the backup has.  The next daemon reports the restore as an
    incident, with your name and the reason.
    """
    from palyra.store.backup.home import read_trusted  # noqa: PLC0415 - help must be instant
    from palyra.store.backup.restore import RestoreRequest, restore_backup  # noqa: PLC0415 - as above

    request = RestoreRequest(
        by=_find_user(),
        reason=reason,
        at_ms=time.time_ns() // 1_000_000,
        keys_from=None if keys_from is None else keys_from.absolute(),
        trusted_id=trust,
        closed=_find_closed(options),
    )
    try:
        trusted = _find_trusted(options, key)
        if trusted and key is None and keys_from is not None:
            trusted += read_trusted(keys_from.absolute().parent)
        request = replace(request, trusted=trusted)
        restored = restore_backup(path.absolute(), target.absolute(), request)
    except PalyraError as error:
        raise stop_for(error) from None
    if options.as_json:
        print_json(restored)
    else:
        _print_restored(restored)


def _find_closed(options: Options) -> tuple[Path, ...]:
    """Return the configured workspaces of the home, none if its configuration is lost or broken."""
    try:
        config = load_config(options.home, None)
    except CommandFailed:
        return ()
    folders = config.workspaces
    return tuple(folders.values() if config.tools.workspace else [*folders.values()][1:])


def _print_restored(restored: BackupRestored) -> None:
    made = datetime.fromtimestamp(restored.created_ms / 1000, UTC)
    say(
        f"{restored.path} is restored from {restored.backup_id}, as of "
        f"{made:%Y-%m-%d %H:%M:%S} UTC: {pluralize(restored.head_position, 'event')}"
    )
    say(KEYS_ORIGIN[restored.keys])
    if restored.open_runs:
        say(f"{pluralize(restored.open_runs, 'open run')} will continue when a daemon starts")
    say(f"start it with `palyra up --home {restored.path}`")


def _find_user() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
